//! Point lookups in a version, blocking or not.
//!
//! A lookup searches level 0 from the newest table on, then one guard per level. It reads only tables whose key range
//! and sequence numbers may match, and asks their filters first.
//!
//! A [`PendingLookup`] is the state of a lookup that does not block: when it needs a block from the disk, it requests
//! the block and returns; the next call continues there. So a caller with many keys (`multi_get`) has the blocks of all
//! of them requested before it waits for the disk once. The result is that of [`Version::get_above`].

use crate::version::{LiveTable, Version};
use base::planted::{Bug, planted};
use base::{Result, Seq, Slice, Trailer};
use std::sync::Arc;
use std::task::Poll;
use table::{PendingRead, Table};

/// The arguments of a lookup: the newest version of `key` that is not newer than `seq`. Tables without entries newer
/// than `above` may be left out.
#[derive(Clone, Copy)]
pub struct LookupKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash ([`base::hash`]).
    pub hash: u64,
    /// The sequence number at which the reader reads.
    pub seq: Seq,
    /// The newest range tombstone over the key that the reader sees; 0 if there is none.
    pub above: Seq,
}

/// The state of a lookup that does not block.
#[derive(Default)]
pub struct PendingLookup {
    /// The level, and how many tables of its stack are searched.
    level: usize,
    done: usize,
    /// The requested block of the next table.
    wanted: Option<PendingRead>,
}

impl PendingLookup {
    /// Bytes of the requested block.
    pub fn pending_bytes(&self) -> u64 {
        self.wanted.as_ref().map_or(0, PendingRead::bytes)
    }
}

/// Where a search stops.
enum Step {
    Found((Trailer, Slice)),
    /// At the table with this index in the stack, which needs a block from the disk.
    Blocked(usize, PendingRead),
}

impl Version {
    /// The newest version of `key` that is not newer than `seq`. Searches level 0 from the newest table on, then one
    /// guard per level from its newest table on, and ends at the first hit, because upper tables are newer.
    ///
    /// Cost: one filter probe for each table whose range contains the key; one index and one block search for each
    /// whose filter matches.
    ///
    /// Does not consult range tombstones: callers do. May leave out tables without entries newer than `above`: those that a range
    /// tombstone hides.
    pub fn get_above(&self, key: &[u8], hash: u64, seq: Seq, above: Seq) -> Result<Option<(Trailer, Slice)>> {
        let lookup = LookupKey { key, hash, seq, above };
        if planted(Bug::OldestTableFirst) {
            let reversed: Vec<_> = self.level0.iter().rev().cloned().collect();
            if let Some(found) = search(&reversed, lookup, |_, table| table.get(key, hash, seq))? {
                return Ok(Some(found));
            }
        }
        for i in 0..=self.levels.len() {
            if let Some(found) = search(self.stack(i, key), lookup, |_, table| table.get(key, hash, seq))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// [`Version::get_above`] if nothing has to be waited for. `Pending`: the disk was asked for what is missing.
    pub fn get_now(&self, lookup: LookupKey<'_>) -> Result<Poll<Option<(Trailer, Slice)>>> {
        for i in 0..=self.levels.len() {
            let found = search(self.stack(i, lookup.key), lookup, |_, table| {
                match table.get_now(lookup.key, lookup.hash, lookup.seq)? {
                    Poll::Ready(found) => Ok(found.map(|found| Poll::Ready(Some(found)))),
                    Poll::Pending => Ok(Some(Poll::Pending)),
                }
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Ok(Poll::Ready(None))
    }

    /// The tables of level `i` that may hold `key`, newest first; for level 0 all of them.
    #[inline]
    fn stack(&self, i: usize, key: &[u8]) -> &[Arc<LiveTable>] {
        let Some(level) = i.checked_sub(1).map(|i| &self.levels[i]) else { return &self.level0 };
        match level.tables() {
            0 => &[],
            _ => &level.guards[level.find(key)].tables,
        }
    }

    /// Continues a lookup in this version, with the same arguments at each call. `Pending`: the next block is
    /// requested, and the next call reads it, which may block. After an error the lookup is over.
    pub fn resume_lookup(
        &self,
        at: &mut PendingLookup,
        lookup: LookupKey<'_>,
    ) -> Result<Poll<Option<(Trailer, Slice)>>> {
        if let Some(wanted) = at.wanted.take() {
            let LiveTable { table, damage, .. } = &*self.stack(at.level, lookup.key)[at.done];
            let found = table.get_wanted(wanted, lookup.key, lookup.seq).inspect_err(|e| damage.note(e))?;
            at.done += 1;
            if found.is_some() || planted(Bug::StopAfterWait) {
                return Ok(Poll::Ready(found));
            }
        }
        while at.level <= self.levels.len() {
            let rest = &self.stack(at.level, lookup.key)[at.done..];
            let step = search(rest, lookup, |index, table| {
                let mut wanted = None;
                let found = table.try_get(lookup.key, lookup.hash, lookup.seq, &mut wanted)?;
                Ok(wanted.map(|wanted| Step::Blocked(index, wanted)).or(found.map(Step::Found)))
            })?;
            match step {
                Some(Step::Found(found)) => return Ok(Poll::Ready(Some(found))),
                Some(Step::Blocked(index, wanted)) => {
                    (at.done, at.wanted) = (at.done + index, Some(wanted));
                    return Ok(Poll::Pending);
                }
                None => (at.level, at.done) = (at.level + 1, 0),
            }
        }
        Ok(Poll::Ready(None))
    }
}

/// The first result of `look`, which is called for each table of a stack that may contain the key, with its index.
#[inline]
fn search<T>(
    tables: &[Arc<LiveTable>],
    lookup: LookupKey<'_>,
    mut look: impl FnMut(usize, &Table) -> Result<Option<T>>,
) -> Result<Option<T>> {
    for (i, table) in tables.iter().enumerate() {
        let meta = &table.meta;
        if table.may_hold(lookup.key) && meta.min_seq <= lookup.seq && meta.max_seq >= lookup.above {
            let found = look(i, &table.table).inspect_err(|e| table.damage.note(e))?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}
