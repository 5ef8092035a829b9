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
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::{DatabaseEdit, Manifest, ManifestError, manifest_file_name};

const TEXT: &[u8] = b"A copy of a database was begun here, and has not been finished: remove the directory, or make the copy again.\n";

/// A directory under construction. Nothing of it stays if it is dropped before [`NewDirectory::finish`].
pub(super) struct NewDirectory {
    env: Arc<dyn Env>,
    dir: PathBuf,
    /// The names of the files that were made.
    made: Vec<String>,
    /// The files stay.
    finished: bool,
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
        let exists = env.exists(&dir)?;
        if exists && !env.is_empty_dir(&dir)? && !is_unfinished(env, &dir)? {
            let message = format!("{}: not empty; a copy of a database needs a new directory", dir.display());
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        if !exists {
            env.create_dir(&dir)?;
        }
        let lock = env.lock(&dir.join(LOCK_FILE_NAME))?;
        let made = vec![LOCK_FILE_NAME.to_owned()];
        let mut new = NewDirectory { env: env.clone(), dir, made, finished: false, lock: Some(lock) };
        new.mark()?;
        Ok(new)
    }

    /// Marks the directory as unfinished, and removes what an earlier attempt has left.
    fn mark(&mut self) -> Result<()> {
        let mark = self.dir.join(UNFINISHED);
        if !self.env.exists(&mark)? {
            self.made.push(UNFINISHED.to_owned());
            let mut file = self.env.create(&mark)?;
            file.append(TEXT)?;
            file.sync()?;
        } else {
            self.made.push(UNFINISHED.to_owned());
        }
        // Before any other file: a directory with files and without the mark would be taken for a database that lost its manifest.
        self.env.sync_dir(&self.dir)?;
        let files = Files::list(&self.env, &self.dir)?;
        files.names().try_for_each(|name| self.env.remove(&self.dir.join(name)))
    }

    /// The path of a file with this name. It is removed again if the directory is not finished.
    pub(super) fn path(&mut self, name: &str) -> PathBuf {
        self.made.push(name.to_owned());
        self.dir.join(name)
    }

    /// Makes the directory a database: all files are there, and synced. `state` is the first edit of manifest `number`.
    pub(super) fn finish(mut self, number: u64, state: &DatabaseEdit) -> Result<()> {
        // The names, before the manifest makes them count.
        self.env.sync_dir(&self.dir)?;
        if let Err(e) = Manifest::create(&self.env, &self.dir, number, state) {
            return Err(match e {
                ManifestError::Rejected(e) => e,
                ManifestError::Unknown(e) => {
                    // It may be there after a power cut, unless its removal is durable: until then all files stay.
                    let removed = self.env.remove(&self.dir.join(manifest_file_name(number)));
                    self.finished = removed.and_then(|()| self.env.sync_dir(&self.dir)).is_err();
                    e
                }
            });
        }
        self.finished = true;
        // A mark that stays says nothing beside a manifest.
        let _ = self.env.remove(&self.dir.join(UNFINISHED));
        Ok(())
    }
}

impl Drop for NewDirectory {
    /// Best effort: what stays is marked as unfinished.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // The mark and the lock go last.
        for name in self.made.iter().rev() {
            let _ = self.env.remove(&self.dir.join(name));
        }
        self.lock = None;
    }
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

/// Whether a directory has an unfinished copy, or one that was not even marked.
fn is_unfinished(env: &Arc<dyn Env>, dir: &Path) -> Result<bool> {
    let (names, files) = (env.list(dir)?, Files::list(env, dir)?);
    // Without a file there are directories.
    let is_locked_only = !names.is_empty() && names.iter().all(|name| name == LOCK_FILE_NAME);
    Ok(is_locked_only || files.unfinished && files.manifests.is_empty())
}
