//! [`Backups`]: the generations of a backup, and databases made from them.

use super::new_directory::{NewDirectory, of_copy};
use crate::types::{BackupGeneration, BackupProblem, CopyProgress};
use backup::Store;
use base::{Error, ErrorKind, Result};
use env::{Env, RealEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::DatabaseEdit;

/// A directory with backups, which [`Database::backup`](crate::Database::backup) makes: lists its generations, verifies them, makes
/// databases from them, and removes old ones.
///
/// While this value lives, the directory is locked, and no backup is made there. No method changes a generation; only
/// [`Backups::keep_newest`] removes some. It can be on a read-only file system.
///
/// ```
/// use cairn::{Backups, Database, KeyspaceOptions};
///
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (path, backup, copy) = (dir.path().join("db"), dir.path().join("backup"), dir.path().join("copy"));
/// let db = Database::open(path)?;
/// let users = db.keyspace("users", KeyspaceOptions::default())?;
/// users.put("alice", "1")?;
/// let first = db.backup(&backup)?;
/// users.put("alice", "2")?;
/// db.backup(&backup)?;
///
/// let backups = Backups::open(&backup)?;
/// assert!(backups.verify(&mut |_| ())?.is_empty());
/// backups.restore(Some(first.number), &copy, &mut |_| ())?;
/// let old = Database::open(copy)?.open_keyspace("users")?;
/// assert_eq!(old.get("alice")?.unwrap(), "1");
/// # Ok(())
/// # }
/// ```
pub struct Backups {
    env: Arc<dyn Env>,
    dir: PathBuf,
    store: Store,
}

impl Backups {
    /// Opens the backups in `dir`.
    ///
    /// # Errors
    /// `NotFound` when there are none; `Locked` while a backup is being made there, or they are open elsewhere; `Io`.
    pub fn open(dir: impl AsRef<Path>) -> Result<Backups> {
        Backups::open_in(RealEnv::new(), dir)
    }

    /// [`Backups::open`] in an environment.
    ///
    /// # Errors
    /// As for [`Backups::open`].
    pub fn open_in(env: Arc<dyn Env>, dir: impl AsRef<Path>) -> Result<Backups> {
        let store = Store::open(&env, dir.as_ref())?;
        Ok(Backups { env, dir: dir.as_ref().to_owned(), store })
    }

    /// The generations, oldest first. One whose list is damaged is left out: [`Backups::verify`] names it.
    ///
    /// # Errors
    /// `Io`.
    pub fn generations(&self) -> Result<Vec<BackupGeneration>> {
        let all = self.store.generations()?;
        Ok(all
            .iter()
            .filter_map(|(_, generation)| generation.as_ref().ok())
            .map(BackupGeneration::of)
            .collect())
    }

    /// Reads everything and compares it with its checksums. Returns what is wrong, in the order of files; nothing of it is an error.
    ///
    /// A damaged file of `files/` can be removed: then the next backup copies it anew, if the database still has it, and with that all
    /// generations that need it are whole again.
    ///
    /// # Errors
    /// `Io`.
    pub fn verify(&self, progress: &mut dyn FnMut(&CopyProgress)) -> Result<Vec<BackupProblem>> {
        let damage = self.store.verify(&mut |bytes_done, bytes_total, file| {
            progress(&CopyProgress { bytes_done, bytes_total, file: file.to_owned() });
            Ok(())
        })?;
        let problem = |found: backup::Damage| BackupProblem {
            file: found.file,
            what: found.what,
            generations: found.generations,
        };
        Ok(damage.into_iter().map(problem).collect())
    }

    /// Makes a database from a generation, `None` for the newest, in `dir`, which must be absent or empty, or have what an interrupted call has
    /// left. Each file is compared with its checksum while it is copied. The database is there with the last step: after a crash there is all
    /// of it, or none that opens.
    ///
    /// Opening it then replays its logs, as after a crash.
    ///
    /// # Errors
    /// `NotFound` when there is no such generation; `Corruption` when it is damaged; `Unsupported` when a newer Cairn made it; `AlreadyExists`
    /// when `dir` has other files; `InvalidArgument` when it lies in the directory of the backups; `NoSpace`, `Io`. Then nothing is left, or
    /// what is marked as unfinished.
    pub fn restore(
        &self,
        generation: Option<u64>,
        dir: impl AsRef<Path>,
        progress: &mut dyn FnMut(&CopyProgress),
    ) -> Result<BackupGeneration> {
        let number = match generation {
            Some(number) => number,
            None => self.store.numbers()?.last().copied().ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("{}: there is no generation", self.dir.display()))
            })?,
        };
        let generation = self.store.generation(number)?;
        let state = DatabaseEdit::decode(&generation.state).filter(|state| state.next_file > 1);
        let state = state.ok_or_else(|| {
            let what = format!(
                "{}, generation {number}: its state is one that this Cairn does not know",
                self.dir.display()
            );
            Error::new(ErrorKind::Unsupported, what)
        })?;
        let new = NewDirectory::begin(&self.env, dir.as_ref(), &self.dir).map_err(of_copy)?;
        let (mut done, bytes_total) = (0u64, generation.bytes());
        for file in &generation.files {
            let to = new.path(&file.name);
            self.store.restore(file, &to, &mut |at| {
                progress(&CopyProgress {
                    bytes_done: done.saturating_add(at),
                    bytes_total,
                    file: file.name.clone(),
                });
                Ok(())
            })?;
            done = done.saturating_add(file.len);
        }
        new.finish(state.next_file - 1, &state)?;
        progress(&CopyProgress { bytes_done: bytes_total, bytes_total, file: String::new() });
        Ok(BackupGeneration::of(&generation))
    }

    /// Removes all generations but the newest `keep`, and what only they have. Returns the numbers of those that are gone. Damaged ones do not
    /// count as kept; those older than what is kept are removed, too.
    ///
    /// # Errors
    /// `InvalidArgument` when `keep` is 0; `Io`: what is left is removed by the next call, or by the next backup.
    pub fn keep_newest(&self, keep: usize) -> Result<Vec<u64>> {
        self.store.keep_newest(keep)
    }
}

impl std::fmt::Debug for Backups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backups({})", self.dir.display())
    }
}
