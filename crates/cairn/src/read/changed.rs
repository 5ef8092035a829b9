//! What has changed of that which a transaction has read: a [`ReadSet`] against the commits after it.
//!
//! Nothing is recorded for this when data is written: entries have sequence numbers, so what is newer than the transaction is found where
//! entries are found. The memtables have the newest entries, and a transaction keeps those of its first read. So as long as nothing was flushed since,
//! a comparison reads no table; and of the tables, only those with newer entries than these memtables, whose filters have the key. A transaction may be
//! of any age: an older one reads more.

use crate::state::{Batch, KeyspaceInner, KeyspaceReads, ReadSet, ReadState};
use crate::types::Bounds;
use crate::wal::Entries;
use base::planted::{Bug, planted};
use base::{Cursor, EntryKind, Error, ErrorKind, MAX_SEQ, RangeSet, Result, Seq, hash};
use memtable::Memtable;
use std::sync::Arc;
use tree::KeyRange;

/// Bytes of a key that an error shows.
const SHOWN: usize = 64;

impl ReadSet {
    /// Compares with everything up to `newest`, which must be visible. Afterwards a comparison goes on from there.
    ///
    /// # Errors
    /// `Conflict` if something that was read has changed; those of reading tables; `Closed`.
    pub(crate) fn check_until(&mut self, newest: Seq) -> Result<()> {
        for reads in &mut self.keyspaces {
            // Loaded after `newest` was read: it has everything up to there. The read state of a dropped keyspace is empty.
            let read_state = reads.keyspace.read_state.load_full();
            reads.keyspace.check_open()?;
            if newest > self.since {
                reads.check(self.since, &read_state)?;
                reads.memtables = read_state.memtables().cloned().collect();
            }
        }
        self.since = newest;
        Ok(())
    }

    /// Compares with the writes of a batch that is committed before this transaction, but not yet visible.
    ///
    /// # Errors
    /// `Conflict`.
    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<()> {
        let mut entries = Entries::new(&batch.entries);
        while let Some(entry) = entries.next() {
            let Some(reads) = self.keyspaces.iter().find(|reads| reads.keyspace.id == entry.keyspace) else {
                continue;
            };
            let changed = match entry.kind {
                EntryKind::DeleteRange => {
                    let to = (!entry.value.is_empty()).then_some(entry.value);
                    reads.keys.iter().any(|key| entry.key <= &key[..] && to.is_none_or(|to| &key[..] < to))
                        || reads.ranges.iter().any(|bounds| bounds.meets(entry.key, to))
                }
                _ => {
                    reads.keys.contains(entry.key)
                        || reads.ranges.iter().any(|bounds| bounds.contains(entry.key))
                }
            };
            if changed {
                return Err(conflict(&reads.keyspace, entry.key));
            }
        }
        Ok(())
    }
}

/// Where entries newer than a sequence number are to be looked for.
struct Newer<'a> {
    since: Seq,
    read_state: &'a ReadState,
    /// Memtables of the last comparison that were flushed since.
    flushed: Vec<&'a Arc<Memtable>>,
    /// Newer entries in tables have a larger sequence number than this one; `None`: there are none.
    tables_after: Option<Seq>,
}

impl KeyspaceReads {
    fn check(&self, since: Seq, read_state: &ReadState) -> Result<()> {
        let is_current =
            |memtable: &&Arc<Memtable>| read_state.memtables().any(|current| Arc::ptr_eq(current, memtable));
        // Entries go into memtables in their order: if these had an entry of `since` or before, they had, or got, the next ones. But the tree of
        // older versions gets tables with what compactions of the other one evict, too.
        let had_all = !self.keyspace.is_historical()
            && self.memtables.iter().any(|memtable| memtable.min_seq().is_some_and(|seq| seq <= since));
        let tables_after = match self.memtables.first().filter(|_| had_all) {
            // Nothing that they have got was flushed. (The memtable without capacity is that of all keyspaces with nothing in memory.)
            Some(active) if active.capacity() > 0 && is_current(&active) => None,
            Some(active) => Some(active.max_seq().unwrap_or(0).max(since)),
            None => Some(since),
        };
        let flushed = self.memtables.iter().filter(|memtable| !is_current(memtable)).collect();
        let newer = Newer { since, read_state, flushed, tables_after };
        if !newer.has_any(&self.keyspace) {
            return Ok(());
        }
        for key in &self.keys {
            if newer.has_key(&self.keyspace, key)? && !planted(Bug::ForgetReadKeys) {
                return Err(conflict(&self.keyspace, key));
            }
        }
        for bounds in &self.ranges {
            if let Some(key) = newer.first_in(&self.keyspace, bounds)?
                && !planted(Bug::AllowPhantoms)
            {
                return Err(conflict(&self.keyspace, &key));
            }
        }
        Ok(())
    }
}

impl Newer<'_> {
    fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.read_state.memtables().chain(self.flushed.iter().copied())
    }

    /// Whether there is anything newer in the keyspace.
    fn has_any(&self, keyspace: &KeyspaceInner) -> bool {
        // The numbers of a memtable include those of its range tombstones. Evictions do not count as flushed.
        self.memtables().any(|memtable| memtable.max_seq() > Some(self.since))
            || self
                .tables_after
                .is_some_and(|after| keyspace.is_historical() || self.read_state.version.flushed_seq > after)
    }

    /// Whether the newest entry of a key, or a range tombstone over it, is newer.
    fn has_key(&self, keyspace: &KeyspaceInner, key: &[u8]) -> Result<bool> {
        if self.read_state.deleted_before(key, MAX_SEQ) > self.since {
            return Ok(true);
        }
        let in_memory = |memtable: &Arc<Memtable>| Some(memtable.get(key, MAX_SEQ)?.0.seq());
        if let Some(newest) = self.read_state.memtables().find_map(in_memory) {
            return Ok(newest > self.since);
        }
        if self.flushed.iter().copied().find_map(in_memory).is_some_and(|newest| newest > self.since) {
            return Ok(true);
        }
        let Some(after) = self.tables_after else { return Ok(false) };
        let newest = match &keyspace.hash_log {
            Some(log) if log.newest() <= after => None,
            Some(log) => keyspace.newest_by_hash(log, key, MAX_SEQ)?.map(|(seq, _)| seq),
            None => {
                let found = self.read_state.version.get_above(key, hash(key), MAX_SEQ, after + 1)?;
                found.map(|(trailer, _)| trailer.seq())
            }
        };
        Ok(newest.is_some_and(|newest| newest > self.since))
    }

    /// A key in the range with a newer entry, or the start of a newer range tombstone that meets it.
    fn first_in(&self, keyspace: &KeyspaceInner, bounds: &Bounds) -> Result<Option<Vec<u8>>> {
        let recent: Vec<Arc<RangeSet>> = self.memtables().filter_map(|memtable| memtable.ranges()).collect();
        let sets = recent.iter().map(|set| &**set).chain([&*self.read_state.version.range_tombstones]);
        for set in sets.filter(|set| set.max_seq() > self.since) {
            let newer = set.tombstones().into_iter().filter(|tombstone| tombstone.seq > self.since);
            if let Some(tombstone) =
                newer.into_iter().find(|tombstone| bounds.meets(&tombstone.from, tombstone.to.as_deref()))
            {
                return Ok(Some(tombstone.from.to_vec()));
            }
        }
        for memtable in self.memtables().filter(|memtable| memtable.max_seq() > Some(self.since)) {
            if let Some(key) = self.first_at(memtable.cursor(), bounds)? {
                return Ok(Some(key));
            }
        }
        let Some(after) = self.tables_after else { return Ok(None) };
        let range = KeyRange::new(&bounds.from, bounds.to.as_deref()).newer_than(after);
        for source in self.read_state.version.sources(&keyspace.charges, &range) {
            if let Some(key) = self.first_at(source, bounds)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn first_at(&self, mut cursor: impl Cursor, bounds: &Bounds) -> Result<Option<Vec<u8>>> {
        cursor.seek(&bounds.from, MAX_SEQ)?;
        while cursor.valid() && bounds.is_before_end(cursor.key()) {
            if cursor.trailer().seq() > self.since {
                return Ok(Some(cursor.key().to_vec()));
            }
            cursor.next()?;
        }
        Ok(None)
    }
}

#[cold]
fn conflict(keyspace: &KeyspaceInner, key: &[u8]) -> Error {
    let (shown, more) = (&key[..key.len().min(SHOWN)], if key.len() > SHOWN { "..." } else { "" });
    let message = format!(
        "keyspace {:?}: another commit has changed key \"{}{more}\", which the transaction has read",
        keyspace.name(),
        shown.escape_ascii()
    );
    Error::new(ErrorKind::Conflict, message)
}
