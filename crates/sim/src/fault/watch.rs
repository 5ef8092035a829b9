//! Records the operations of the disk during a trial, and which syncs failed.

use cairn::env::{Fault, OpInfo, OpKind, Phase};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

/// The record of one trial.
#[derive(Default)]
pub(super) struct Watch {
    notes: Mutex<Notes>,
    /// The operation that is made to fail. Earlier ones fail by themselves: a file that is looked for may be missing.
    from: u64,
    /// The fault is a lack of file handles: a sync then fails before it starts, and may be retried.
    out_of_handles: bool,
    trace: bool,
}

/// The record of [`Watch`].
#[derive(Default)]
pub(super) struct Notes {
    /// The kinds of all operations, in order.
    pub(super) kinds: Vec<OpKind>,
    /// Number of operations that failed from the injected fault on.
    pub(super) failures: u64,
    /// Whether a sync failed since the database was last opened.
    pub(super) sync_failed: bool,
    /// Whether a rename or its sync, a truncation, or a sync failed, so that the durable state is unknown.
    pub(super) unknown: bool,
    /// Whether a file was renamed and the directory not synced since.
    renamed: bool,
    /// Files with a failed sync.
    poisoned: BTreeSet<PathBuf>,
    /// A file with a failed sync that was synced again.
    pub(super) synced_again: Option<PathBuf>,
}

impl Watch {
    pub(super) fn new(from: u64, out_of_handles: bool, trace: bool) -> Watch {
        Watch { notes: Mutex::default(), from, out_of_handles, trace }
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The I/O hook.
    pub(super) fn see(&self, op: OpInfo<'_>) -> Option<Fault> {
        let mut notes = self.notes();
        match op.phase {
            Phase::Before => {
                notes.kinds.push(op.kind);
                if op.kind == OpKind::Sync && notes.poisoned.contains(op.path) {
                    notes.synced_again = Some(op.path.to_owned());
                }
            }
            Phase::After { ok } => {
                if self.trace {
                    let failed = if ok { "" } else { "  FAILS" };
                    println!("    {} {:?} {}{failed}", op.index, op.kind, op.path.display());
                }
                if ok || op.index >= self.from {
                    notes.after(op, ok, self.out_of_handles);
                }
            }
        }
        None
    }
}

impl Notes {
    fn after(&mut self, op: OpInfo<'_>, ok: bool, out_of_handles: bool) {
        match (op.kind, ok) {
            // A new file with the name of a removed one.
            (OpKind::Create, true) => {
                self.poisoned.remove(op.path);
            }
            (OpKind::Rename, true) => self.renamed = true,
            (OpKind::SyncDir, true) => self.renamed = false,
            (_, true) => {}
            (kind, false) => {
                self.failures += 1;
                self.sync_failed |= matches!(kind, OpKind::Sync | OpKind::SyncDir) && !out_of_handles;
                self.unknown |= matches!(kind, OpKind::Rename | OpKind::Truncate | OpKind::Sync);
                self.unknown |= kind == OpKind::SyncDir && self.renamed;
                if kind == OpKind::Sync {
                    self.poisoned.insert(op.path.to_owned());
                }
            }
        }
    }

    /// The database is reopened.
    pub(super) fn begin_again(&mut self) {
        self.sync_failed = false;
        self.unknown = false;
    }
}
