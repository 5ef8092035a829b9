//! The last steps of an opening: a new log under the new manifest, removal of the files that they replace, and the [`DbInner`] itself.

use super::file_names::UNFINISHED;
use super::recovery::Recovery;
use super::replayed::Keyspaces;
use crate::parts::Unneeded;
use crate::state::DbInner;
use crate::wal::{ClosedLogs, Log, LogEnd, Logs, is_recycled_file_name, log_file_name};
use base::{Error, ErrorKind, Result, Seq};
use std::sync::Arc;
use tree::{DatabaseEdit, Manifest, ManifestError, manifest_file_name};

/// Whether a reader may need a file.
fn is_read(name: &str) -> bool {
    name != UNFINISHED && !name.ends_with(".tmp") && !is_recycled_file_name(name)
}

impl Recovery {
    /// Starts a new log under the new manifest, then removes the files that they replace. What was recovered is durable by now.
    pub(crate) fn start(
        self,
        keyspaces: Keyspaces,
        end: LogEnd,
        mut manifest: Manifest,
    ) -> Result<Arc<DbInner>> {
        let versions = keyspaces.values().map(|k| k.tree.version());
        let named = versions.flat_map(|v| v.tables().map(|(_, t)| t.meta.number).collect::<Vec<_>>());
        let hints = keyspaces.values().filter_map(|k| k.hash_log.as_ref()).flat_map(|log| log.hints());
        let named = named.chain(hints.map(|hints| hints.number)).collect();
        let mut leftovers = self.files.leftovers(&named, self.lacking);
        leftovers.retain(|name| !self.keeps(name) && !self.has_values(name));
        let logs = self.logs();
        let log = match self.start_log(&logs, end.seq, &mut manifest) {
            // Then files that are no longer needed are removed first.
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.remove_leftovers(std::mem::take(&mut leftovers), &manifest);
                self.parts.disk_reserve.release_for(&e);
                self.start_log(&logs, end.seq, &mut manifest)
            }
            log => log,
        };
        let (log, refusal) = match log {
            Ok(log) => (log, None),
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                let (log, refusal) = self.no_log(&logs, &e);
                (log, Some(refusal))
            }
            Err(e) => return Err(e),
        };
        self.remove_leftovers(leftovers, &manifest);
        if refusal.is_none() {
            // Before the next edit: were the new manifest lost later, an old one must not come back and be taken for the newest.
            self.parts.env.sync_dir(&self.parts.dir).map_err(|e| e.sync_failed())?;
        }
        let db = self.build(keyspaces, end, manifest, log, logs);
        if let Some(refusal) = refusal {
            db.refuse(refusal);
        }
        db.disk_reserve.fit(db.log_bytes());
        db.disk_reserve.retake();
        Ok(db)
    }

    fn logs(&self) -> Arc<Logs> {
        let (closed, recycled) = (ClosedLogs::keeping(&self.kept), self.recycled.clone());
        Arc::new(Logs { closed, recycled, begun: Default::default(), counters: Default::default() })
    }

    fn start_log(&self, logs: &Arc<Logs>, last_seq: Seq, manifest: &mut Manifest) -> Result<Log> {
        let header = self.next_header(last_seq);
        let number = self.next_log();
        let path = self.parts.dir.join(log_file_name(number));
        if self.parts.env.exists(&path)? {
            // The manifest did not get the edit that names this log: see below.
            self.parts.env.remove(&path)?;
        }
        let log = Log::create(&self.parts.env, &self.parts.dir, number, header, logs.clone())?;
        let exists = DatabaseEdit { newest_log: number, ..DatabaseEdit::default() };
        manifest.log(&exists).map_err(|e| match e {
            ManifestError::Rejected(e) => e,
            ManifestError::Unknown(e) => e.with_kind(ErrorKind::ReadOnly),
        })?;
        Ok(log)
    }

    /// A log that refuses writes because the disk has no space for a real one, and the error that writers get.
    fn no_log(&self, logs: &Arc<Logs>, cause: &Error) -> (Log, Error) {
        let message = format!(
            "{}: the disk was full when the database was opened, so it can only be read; free some space and open it again: \
             {cause}",
            self.parts.dir.display()
        );
        let refusal = Error::new(ErrorKind::ReadOnly, message);
        let log =
            Log::refusing(&self.parts.env, &self.parts.dir, self.next_log(), refusal.clone(), logs.clone());
        (log, refusal)
    }

    /// Opens for reading only, with the tables on disk and the logs replayed into memory; changes nothing on disk.
    pub(crate) fn start_without_space(
        self,
        keyspaces: Keyspaces,
        end: LogEnd,
        cause: &Error,
    ) -> Result<Arc<DbInner>> {
        self.sync_what_was_found()?;
        let logs = self.logs();
        let (log, refusal) = self.no_log(&logs, cause);
        let number = self.files.manifests.last().copied().unwrap_or(0);
        let manifest = Manifest::refusing(&self.parts.dir, number, refusal.clone());
        let db = self.build(keyspaces, end, manifest, log, logs);
        db.refuse(refusal);
        Ok(db)
    }

    /// Syncs the files that reads depend on and that are not rewritten: data that was read must not be lost in a power cut. Tables were
    /// durable before the manifest named them.
    pub(crate) fn sync_what_was_found(&self) -> Result<()> {
        let manifest = self.files.manifests.last().map(|&n| manifest_file_name(n));
        let logs = self.files.logs.iter().filter(|&&n| n >= self.state.min_log).map(|&n| log_file_name(n));
        manifest
            .into_iter()
            .chain(logs)
            .try_for_each(|name| self.parts.env.sync_file(&self.parts.dir.join(name)))?;
        self.parts.env.sync_dir(&self.parts.dir)
    }

    /// Removes the files that the new manifest does not name, unless readers in other processes may need them.
    fn remove_leftovers(&self, names: Vec<String>, manifest: &Manifest) {
        // What no reader reads goes at once.
        let (names, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_read(name));
        self.remove(&others);
        let free = self.parts.kept_files.release_leftovers(names, &self.files.manifests, manifest.number());
        self.remove(&free.iter().map(Unneeded::name).collect::<Vec<_>>());
    }

    /// Best effort: the next opening removes the rest.
    pub(crate) fn remove(&self, names: &[String]) {
        for name in names {
            let _ = self.parts.env.remove(&self.parts.dir.join(name));
        }
    }

    fn build(
        self,
        keyspaces: Keyspaces,
        end: LogEnd,
        manifest: Manifest,
        log: Log,
        logs: Arc<Logs>,
    ) -> Arc<DbInner> {
        self.parts.assemble(&self.state, keyspaces, end, manifest, log, logs)
    }
}
