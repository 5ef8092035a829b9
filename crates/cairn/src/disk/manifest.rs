//! The manifest of an open database: appends edits, and starts a new manifest when the present one is long.

use crate::state::{DbInner, FlushedCounts, PanicGuard, State};
use crate::sync::Ordering;
use base::Result;
use tree::{DatabaseEdit, Manifest, ManifestError};

impl DbInner {
    /// Makes an edit durable. The caller holds the manifest.
    pub(crate) fn log_edit(&self, manifest: &mut Manifest, edit: &mut DatabaseEdit) -> Result<()> {
        self.check_process()?;
        self.check_place()?;
        let _watch = PanicGuard::new(self, "a writer of the manifest");
        edit.next_file = self.next_file.load(Ordering::Relaxed);
        let before = manifest.bytes();
        let result = loop {
            match manifest.log(edit) {
                Err(ManifestError::Rejected(e)) if self.disk_reserve.release_for(&e) => {}
                result => break result,
            }
        };
        self.counters.manifest_bytes.fetch_add(manifest.bytes().saturating_sub(before), Ordering::Relaxed);
        match result {
            Ok(()) => {
                self.kept_files.note_edit(manifest.number(), manifest.bytes());
                Ok(())
            }
            Err(ManifestError::Rejected(e)) => Err(e),
            Err(ManifestError::Unknown(e)) => Err(self.stop(&e)),
        }
    }

    /// The present state, but for the trees and the logs, as an edit of an empty one. The caller holds the manifest.
    pub(crate) fn state_without_trees(&self, state: &State) -> DatabaseEdit {
        DatabaseEdit {
            created: state.keyspaces.values().map(|k| k.inner.description()).collect(),
            next_file: self.next_file.load(Ordering::Relaxed),
            next_keyspace: state.next_keyspace,
            last_seq: self.visible.newest(),
            last_time: self.last_time(),
            retention_time: self.retention_time(),
            value_files: self.tables.segments.value_files(),
            hints: state.keyspaces.values().flat_map(|k| k.inner.hints()).collect(),
            ..DatabaseEdit::default()
        }
    }

    /// Starts a new manifest when the present one is long. On a failure the old one stays in use.
    pub(crate) fn renew_manifest(&self, manifest: &mut Manifest) {
        if !manifest.is_long(self.options.manifest_cap) {
            return;
        }
        // Produces the present state from an empty one.
        let edit = {
            let state = self.state.lock();
            DatabaseEdit {
                newest_log: self.logs.begun.established(),
                min_log: self.min_log(&state, &FlushedCounts::default()),
                closed: self.logs.closed.synced(),
                ..self.state_without_trees(&state)
            }
            .with_trees(state.keyspaces.iter().map(|(id, k)| (*id, &**k.tree.version())))
        };
        let _watch = PanicGuard::new(self, "a writer of the manifest");
        match Manifest::create(&self.env, &self.dir, self.new_number(), &edit) {
            Ok(new) => {
                self.counters.manifest_bytes.fetch_add(new.bytes(), Ordering::Relaxed);
                *manifest = new;
                self.kept_files.note_edit(manifest.number(), manifest.bytes());
                self.remove_unneeded(Vec::new());
                // Before the next edit: were the new one lost later, the old one must not come back and be taken for the newest.
                self.stop_if_sync_failed(&self.env.sync_dir(&self.dir).map_err(|e| e.sync_failed()));
            }
            Err(ManifestError::Rejected(_)) => {}
            // It is undetermined which manifest a crash would leave: no edit may be written to either.
            Err(ManifestError::Unknown(e)) => {
                self.stop(&e);
            }
        }
    }
}
