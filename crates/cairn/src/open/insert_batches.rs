//! [`Inserter`]: inserts the batches of logs into the memtables of their keyspaces.

use super::replayed::{Keyspaces, Replayed};
use crate::parts::{allocate, capacity_for};
use crate::types::Options;
use crate::wal::{BatchRecord, LogRecord, check_dropped};
use base::planted::{Bug, planted};
use base::{EntryKind, Error, Result};
use hashlog::pack;
use memtable::{LogPlace, SpareMemory};
use record::chunk_place;
use std::cell::Cell;
use std::sync::Arc;

/// Inserts the batches of logs into the memtables of their keyspaces.
pub(crate) struct Inserter<'a> {
    pub options: &'a Options,
    pub spare_memory: &'a Arc<SpareMemory>,
    /// Numbers of keyspaces below this one have been used.
    pub next_keyspace: u64,
    /// Takes the memtable of a keyspace that is full.
    pub flush: &'a dyn Fn(&mut Replayed) -> Result<()>,
    /// All keyspaces are flushed when their memtables have reserved so many bytes together.
    pub most: u64,
    /// Whether entries of keyspaces without order note their places in the log, which stays: a later flush leaves them where they are.
    pub notes_places: bool,
    /// Bytes reserved in memtables so far.
    pub held: Cell<u64>,
}

impl Inserter<'_> {
    /// Inserts the entries of a batch that are not in tables already.
    pub(crate) fn insert(&self, keyspaces: &mut Keyspaces, record: LogRecord<'_>) -> Result<()> {
        let malformed = || Error::corruption(record.path, record.offset, "this record is no batch");
        let BatchRecord { head, mut entries } = record.batch;
        for seq in head.first_seq..head.first_seq + head.count {
            let index = record.len - entries.left();
            let entry = entries.next().ok_or_else(malformed)?;
            let Some(keyspace) = keyspaces.get_mut(&entry.keyspace) else {
                check_dropped(entry.keyspace, self.next_keyspace, record.path, record.offset)?;
                continue;
            };
            let replays = planted(Bug::ReplayFlushedOperands) && entry.kind == EntryKind::Merge;
            if seq <= keyspace.tree.version().flushed_seq && !replays {
                continue;
            }
            if entry.kind == EntryKind::Merge && !keyspace.has_operands() {
                let what = "an operand of a keyspace that has none";
                return Err(Error::corruption(record.path, record.offset, what));
            }
            let tail = match (keyspace.historical, entry.time.or(head.time)) {
                (None, _) => &[][..],
                (Some(_), Some(time)) => &history::primary_suffix(time)[..],
                (Some(_), None) => {
                    let what = "a batch without a time writes to a keyspace with history";
                    return Err(Error::corruption(record.path, record.offset, what));
                }
            };
            let need = entry.cost(tail.len());
            if !keyspace.memtable.reserve(need) {
                self.make_room(keyspace, need)?;
                if !keyspace.memtable.reserve(need) {
                    return Err(malformed());
                }
            }
            keyspace.has_expiries |= entry.expiry.is_some();
            let entry = if planted(Bug::ForgetExpiry) { entry.until(None) } else { entry };
            entry.insert(&keyspace.memtable, seq, tail);
            if keyspace.hash_log.is_some() && self.notes_places {
                let offset = pack(chunk_place(record.offset, index as u64));
                keyspace.memtable.note_place(LogPlace { seq, log: record.number, offset });
            }
            self.held.set(self.held.get() + need as u64);
            if self.held.get() > self.most {
                // The count restarts.
                keyspaces.values_mut().try_for_each(self.flush)?;
                self.held.set(0);
            }
        }
        match entries.is_empty() {
            true => Ok(()),
            false => Err(malformed()),
        }
    }

    /// Makes a memtable with room for `need` bytes, or a larger one, or seals a full one and makes the next, like `memory.rs` in the room
    /// `write`.
    fn make_room(&self, keyspace: &mut Replayed, need: usize) -> Result<()> {
        let full = self.options.memtable_bytes(&keyspace.options);
        let wanted = keyspace.memtable.reserved() + need;
        let capacity = capacity_for(full, wanted.min(full).max(need));
        if !keyspace.memtable.is_empty()
            && keyspace.memtable.capacity() < full
            && wanted <= full
            && let Ok(grown) = keyspace.memtable.grown(capacity)
        {
            let more = grown.overhead() - keyspace.memtable.overhead();
            self.held.set(self.held.get() + more);
            keyspace.memtable = grown;
            return Ok(());
        }
        (self.flush)(keyspace)?;
        keyspace.memtable = allocate(capacity, need, keyspace.hash_log.is_none(), self.spare_memory)?;
        self.held.set(self.held.get() + keyspace.memtable.overhead());
        Ok(())
    }
}
