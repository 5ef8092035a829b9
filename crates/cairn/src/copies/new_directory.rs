//! A directory that becomes a database with its last step, the manifest: after a crash there is all of it, or no database.
//!
//! ```text
//!   UNFINISHED --- files, synced --- manifest: a database --- UNFINISHED is removed
//! ```
//!
//! As long as there is the file `UNFINISHED` and no manifest, an opening refuses the directory, and a next attempt begins anew in it.

use crate::open::{Files, LOCK_FILE_NAME, UNFINISHED};
use base::{Error, ErrorKind, Result};
use env::{Env, FileLock};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::{DatabaseEdit, Manifest, ManifestError, manifest_file_name};

const TEXT: &[u8] = b"A copy of a database was begun here, and has not been finished: remove the directory, or make the copy again.\n";

/// A directory under construction. Nothing of it stays if it is dropped before [`NewDirectory::finish`].
pub(super) struct NewDirectory {
    env: Arc<dyn Env>,
    dir: PathBuf,
    /// What is there stays.
    finished: bool,
    /// A sync of the directory has failed. A later one proves nothing: removed files may come back, so the mark stays.
    unsure: Cell<bool>,
    /// Held until all is done: no other process opens the directory.
    lock: Option<Box<dyn FileLock>>,
}

impl NewDirectory {
    /// Begins in `dir`, which must be absent or empty, or have an unfinished copy, which is removed. `other`: a directory that neither may lie
    /// in the new one nor have it in itself.
    ///
    /// # Errors
    /// `AlreadyExists` when there is something else; `InvalidArgument` when one directory lies in the other; `Locked` while another copy is
    /// made there.
    pub(super) fn begin(env: &Arc<dyn Env>, dir: &Path, other: &Path) -> Result<NewDirectory> {
        check_apart(env, dir, other)?;
        let dir = env.canonical(dir)?;
        env.create_dir(&dir)?;
        let mark = dir.join(UNFINISHED);
        // Before any other file: a directory with files and without the mark would be taken for a database that lost its manifest.
        if !env.exists(&mark)? {
            // One that was removed, or was opened without being created, may have left a lock.
            if !env.is_empty_dir(&dir)? && env.list(&dir)? != [LOCK_FILE_NAME] {
                return Err(not_empty(&dir));
            }
            match write_mark(env, &mark) {
                // Another process begins a copy.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                marked => marked?,
            }
        }
        let lock = env.lock(&dir.join(LOCK_FILE_NAME))?;
        // Under the lock: another process may have finished a copy, or have opened it, since the directory was empty.
        let files = Files::list(env, &dir)?;
        if !files.manifests.is_empty() {
            // Beside a manifest the mark says nothing.
            let _ = env.remove(&mark);
            return Err(not_empty(&dir));
        }
        let (env, unsure) = (env.clone(), Cell::default());
        let new = NewDirectory { env, dir, finished: false, unsure, lock: Some(lock) };
        if !files.unfinished {
            // A process that has failed to make a copy has removed it.
            write_mark(&new.env, &mark)?;
        }
        new.sync()?;
        files.names().try_for_each(|name| new.env.remove(&new.dir.join(name)))?;
        Ok(new)
    }

    /// Makes the names in the directory durable.
    fn sync(&self) -> Result<()> {
        self.env.sync_dir(&self.dir).inspect_err(|_| self.unsure.set(true))
    }

    /// The path of a file of the database. It is removed again if the directory is not finished.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes the directory a database: all files are there, and synced. `state` is the first edit of manifest `number`.
    pub(super) fn finish(self, number: u64, state: &DatabaseEdit) -> Result<()> {
        self.try_finish(number, state).map_err(of_copy)
    }

    fn try_finish(mut self, number: u64, state: &DatabaseEdit) -> Result<()> {
        // The names, before the manifest makes them count.
        self.sync()?;
        if let Err(e) = Manifest::create(&self.env, &self.dir, number, state) {
            return Err(match e {
                ManifestError::Rejected(e) => e,
                ManifestError::Unknown(e) => {
                    // It may be there after a power cut, unless its removal is durable: until then all files stay.
                    self.unsure.set(true);
                    let removed = self.env.remove(&self.dir.join(manifest_file_name(number)));
                    self.finished = removed.and_then(|()| self.sync()).is_err();
                    e
                }
            });
        }
        self.finished = true;
        // A mark that stays says nothing beside a manifest.
        let _ = self.env.remove(&self.dir.join(UNFINISHED));
        Ok(())
    }

    /// Removes everything. The mark goes last, and only if all else is durably gone.
    fn discard(&self) -> Result<()> {
        let files = Files::list(&self.env, &self.dir)?;
        files.names().try_for_each(|name| self.env.remove(&self.dir.join(name)))?;
        self.sync()?;
        if self.unsure.get() {
            return Ok(());
        }
        self.env.remove(&self.dir.join(UNFINISHED))?;
        self.env.remove(&self.dir.join(LOCK_FILE_NAME))
    }
}

impl Drop for NewDirectory {
    /// Best effort: what stays is marked as unfinished.
    fn drop(&mut self) {
        if !self.finished {
            let _ = self.discard();
        }
        self.lock = None;
    }
}

/// An error of writing a copy: a failed sync of it ends nothing but the copy.
pub(super) fn of_copy(error: Error) -> Error {
    match error.kind() {
        ErrorKind::ReadOnly => error.with_kind(ErrorKind::Io),
        _ => error,
    }
}

/// An error of reading a file that a copy needs.
pub(super) fn of_part(error: Error, path: &Path) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::corruption(path, 0, "the file is missing"),
        _ => error,
    }
}

/// Creates the file `UNFINISHED`.
fn write_mark(env: &Arc<dyn Env>, path: &Path) -> Result<()> {
    let mut file = env.create(path)?;
    file.append(TEXT).and_then(|()| file.sync())
}

fn not_empty(dir: &Path) -> Error {
    let message = format!("{}: not empty; a copy of a database needs a new directory", dir.display());
    Error::new(ErrorKind::AlreadyExists, message)
}

/// Checks that neither directory lies in the other.
pub(crate) fn check_apart(env: &Arc<dyn Env>, dir: &Path, other: &Path) -> Result<()> {
    let (new, old) = (env.canonical(dir)?, env.canonical(other)?);
    match new.starts_with(&old) || old.starts_with(&new) {
        true => {
            Err(Error::invalid(format!("{} and {}: one lies in the other", other.display(), dir.display())))
        }
        false => Ok(()),
    }
}
