//! Batches: several writes that are applied atomically. A [`Batch`] is encoded as the log stores it; the room `write` commits it.

use super::keyspace_inner::KeyspaceInner;
use crate::types::check_lengths;
use crate::wal::{Entries, Entry, MAX_ENTRY_OVERHEAD, put_entry};
use base::limits::MAX_BATCH_LEN;
use base::{EntryKind, Error, ErrorKind, Seq};
use std::sync::Arc;

/// From this length on a batch grows by a fourth instead of doubling.
const GROWS_BY_A_FOURTH: usize = 16 << 20;

/// Writes to any number of keyspaces that [`Database::write`](crate::Database::write) applies atomically: after a crash all of them are
/// present or none, and every reader sees all of them or none.
///
/// A later write to a key replaces an earlier one in the same batch. A batch holds up to 1 GiB. A key or value over its limit makes
/// [`Database::write`](crate::Database::write) fail.
#[derive(Default)]
pub struct Batch {
    /// The encoded entries, as the log stores them.
    pub(crate) entries: Vec<u8>,
    pub(crate) count: u64,
    /// Bytes of all keys and values.
    pub(crate) user_bytes: u64,
    /// Whether the batch contains a put.
    pub(crate) has_puts: bool,
    /// Whether the batch contains a value that stays in the log.
    pub(crate) has_large: bool,
    /// Whether the batch contains a range tombstone.
    pub(crate) has_ranges: bool,
    /// The keyspaces that are written to.
    pub(crate) keyspaces: Vec<Written>,
    /// The first error; [`Database::write`](crate::Database::write) returns it.
    pub(crate) error: Option<Error>,
}

/// What a batch writes to a keyspace.
pub(crate) struct Written {
    pub keyspace: Arc<KeyspaceInner>,
    /// The bytes to reserve in its memtable.
    pub need: usize,
    has_puts: bool,
}

impl Batch {
    pub(crate) fn push(&mut self, keyspace: &Arc<KeyspaceInner>, kind: EntryKind, key: &[u8], value: &[u8]) {
        if self.error.is_some() {
            return;
        }
        if let Err(e) = check_lengths(key, value) {
            self.error = Some(e);
            return;
        }
        if self.entries.len() + key.len() + value.len() + 64 > MAX_BATCH_LEN {
            self.error = Some(Error::invalid(format!("a batch may have {MAX_BATCH_LEN} bytes")));
            return;
        }
        let wanted = key.len() + value.len() + MAX_ENTRY_OVERHEAD;
        if self.entries.capacity() - self.entries.len() < wanted && !self.grow(wanted) {
            return;
        }
        let cost = Entry { kind, keyspace: keyspace.id, key, value }.cost(0);
        let place = self.keyspaces.iter().position(|written| Arc::ptr_eq(&written.keyspace, keyspace));
        let place = place.unwrap_or_else(|| {
            self.keyspaces.push(Written { keyspace: keyspace.clone(), need: 0, has_puts: false });
            self.keyspaces.len() - 1
        });
        self.keyspaces[place].need += cost;
        self.keyspaces[place].has_puts |= kind == EntryKind::Put;
        put_entry(&mut self.entries, kind, keyspace.id, key, value);
        self.count += 1;
        self.has_puts |= kind == EntryKind::Put;
        self.has_ranges |= kind == EntryKind::DeleteRange;
        self.has_large |= kind == EntryKind::Put && keyspace.options.is_large(key.len(), value.len());
        self.user_bytes += (key.len() + value.len()) as u64;
    }

    /// Reserves another `wanted` bytes. A failed allocation becomes the error of the batch.
    #[cold]
    fn grow(&mut self, wanted: usize) -> bool {
        let len = self.entries.len();
        let grown = match len < GROWS_BY_A_FOURTH {
            true => self.entries.try_reserve(wanted),
            false => self.entries.try_reserve_exact(wanted.max(len / 4)),
        };
        if grown.is_err() {
            let message = format!("there is no memory for a batch of {} bytes", len + wanted);
            self.error = Some(Error::new(ErrorKind::Io, message));
        }
        grown.is_ok()
    }

    /// Called by the writer when the batch has sequence numbers up to `last_seq`: cuts its put keys out of the dead ranges of their
    /// keyspaces.
    pub(crate) fn note_puts(&self, last_seq: Seq) {
        if !self.has_puts {
            return;
        }
        let mut cuts = false;
        for written in self.keyspaces.iter().filter(|written| written.has_puts) {
            cuts |= written.keyspace.dead.note_batch(last_seq);
        }
        if cuts {
            self.cut_dead_ranges();
        }
    }

    #[cold]
    fn cut_dead_ranges(&self) {
        let mut entries = Entries::new(&self.entries);
        while let Some(entry) = entries.next() {
            if entry.kind == EntryKind::Put {
                self.keyspace_of(&entry).dead.cut(entry.key);
            }
        }
    }

    /// The keyspace of one of its entries.
    pub(crate) fn keyspace_of(&self, entry: &Entry<'_>) -> &Arc<KeyspaceInner> {
        let found = self.keyspaces.iter().find(|written| written.keyspace.id == entry.keyspace);
        &found.expect("push noted the keyspace").keyspace
    }

    /// Number of writes in the batch.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the batch has no writes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that the batch takes in the log.
    pub fn byte_len(&self) -> usize {
        self.entries.len()
    }

    /// Empties the batch; its memory is kept.
    pub fn clear(&mut self) {
        let Batch { mut entries, mut keyspaces, .. } = std::mem::take(self);
        entries.clear();
        keyspaces.clear();
        *self = Batch { entries, keyspaces, ..Batch::default() };
    }
}
