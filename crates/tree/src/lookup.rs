//! Looking for a key, with or without waiting for the disk.
//!
//! Level 0 is looked through from its newest table on, then one guard of each level; only the tables whose range and sequence numbers leave it open are
//! asked, and first their filters.
//!
//! A [`PendingLookup`] is a place in the search of a version: where a look-up would have to wait for a block it stops, with the block asked for, and
//! goes on from there when it is called again. So who looks for many keys has their blocks on the way all at once, and waits for the
//! disk about once. What it finds is what [`Version::get_above`] finds.

use crate::version::{TableFile, Version};
use base::planted::{Bug, planted};
use base::{Result, Seq, Slice, Trailer, head};
use std::sync::Arc;
use std::task::Poll;
use table::{PendingRead, Table};

/// Tables of a stack whose filters are looked at together.
const TOGETHER: usize = 64;

/// What a look-up is for: the newest version of `key` that is not newer than `seq`. Tables with nothing newer than `above` may be
/// left out.
#[derive(Clone, Copy)]
pub struct LookupKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash ([`base::hash`]).
    pub hash: u64,
    /// The moment.
    pub seq: Seq,
    /// What a range tombstone over the key hides.
    pub above: Seq,
}

/// How far a look-up has come.
#[derive(Default)]
pub struct PendingLookup {
    /// The level, and how many tables of its stack are done with.
    level: usize,
    done: usize,
    /// The block of the next table that it waits for.
    wanted: Option<PendingRead>,
}

impl PendingLookup {
    /// Bytes of the block that it waits for.
    pub fn waits_for(&self) -> u64 {
        self.wanted.as_ref().map_or(0, PendingRead::bytes)
    }
}

/// Where it ends, for now.
enum Stop {
    Found((Trailer, Slice)),
    /// At the table with this place in the stack.
    Waits(usize, PendingRead),
}

impl Version {
    /// The newest version of `key` that is not newer than `seq`: level 0 from the newest table on, then one guard per level,
    /// from its newest table on. Ends at the first hit, because what lies above is newer.
    ///
    /// Cost: one filter probe per table whose range holds the key, and one index and one block search for
    /// each that lets the key through.
    ///
    /// Range tombstones are the caller's: with [`Version::get_above`] he is spared the tables that they hide.
    pub fn get(&self, key: &[u8], hash: u64, seq: Seq) -> Result<Option<(Trailer, Slice)>> {
        self.get_above(key, hash, seq, 0)
    }

    /// [`Version::get`], which may leave out tables that have nothing newer than `above`.
    pub fn get_above(&self, key: &[u8], hash: u64, seq: Seq, above: Seq) -> Result<Option<(Trailer, Slice)>> {
        let sought = LookupKey { key, hash, seq, above };
        if planted(Bug::OldestTableFirst) {
            let reversed: Vec<_> = self.level0.iter().rev().cloned().collect();
            if let Some(found) = search(&reversed, sought, |_, table| table.get(key, hash, seq))? {
                return Ok(Some(found));
            }
        }
        for i in 0..=self.levels.len() {
            if let Some(found) = search(self.stack(i, key), sought, |_, table| table.get(key, hash, seq))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The tables of level `i` that may hold `key`, newest first; for level 0 all of them.
    #[inline]
    fn stack(&self, i: usize, key: &[u8]) -> &[Arc<TableFile>] {
        let Some(level) = i.checked_sub(1).map(|i| &self.levels[i]) else { return &self.level0 };
        match level.tables() {
            0 => &[],
            _ => &level.guards[level.find(key)].tables,
        }
    }

    /// Goes on with a look-up in this version, which must be told the same every time. `Pending`: the block that it needs next
    /// has been asked for, and the next call reads it, and waits. After an error it is over.
    pub fn go_on(
        &self,
        at: &mut PendingLookup,
        sought: LookupKey<'_>,
    ) -> Result<Poll<Option<(Trailer, Slice)>>> {
        if let Some(wanted) = at.wanted.take() {
            let found = self.stack(at.level, sought.key)[at.done].get_wanted(wanted, sought)?;
            at.done += 1;
            if found.is_some() || planted(Bug::StopAfterWait) {
                return Ok(Poll::Ready(found));
            }
        }
        while at.level <= self.levels.len() {
            let rest = &self.stack(at.level, sought.key)[at.done..];
            let stop = search(rest, sought, |place, table| {
                let mut wanted = None;
                let found = table.try_get(sought.key, sought.hash, sought.seq, &mut wanted)?;
                Ok(wanted.map(|wanted| Stop::Waits(place, wanted)).or(found.map(Stop::Found)))
            })?;
            match stop {
                Some(Stop::Found(found)) => return Ok(Poll::Ready(Some(found))),
                Some(Stop::Waits(place, wanted)) => {
                    (at.done, at.wanted) = (at.done + place, Some(wanted));
                    return Ok(Poll::Pending);
                }
                None => (at.level, at.done) = (at.level + 1, 0),
            }
        }
        Ok(Poll::Ready(None))
    }
}

impl TableFile {
    fn get_wanted(&self, wanted: PendingRead, sought: LookupKey<'_>) -> Result<Option<(Trailer, Slice)>> {
        self.table.get_wanted(wanted, sought.key, sought.seq).inspect_err(|e| self.note_damage(e))
    }
}

/// What `look` finds first in a stack; it is called with tables that may hold the key, and their places. The lines of all filters that will be
/// asked are called for before the first one is looked at, so that the processor waits for them together and not one after the other.
#[inline]
fn search<T>(
    tables: &[Arc<TableFile>],
    sought: LookupKey<'_>,
    mut look: impl FnMut(usize, &Table) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let wanted = head(sought.key);
    for (chunk, tables) in tables.chunks(TOGETHER).enumerate() {
        let mut asked = 0u64;
        let mut touched = 0;
        for (i, table) in tables.iter().enumerate() {
            let meta = &table.meta;
            if table.may_hold(sought.key, wanted)
                && meta.min_seq <= sought.seq
                && meta.max_seq >= sought.above
            {
                asked |= 1 << i;
                touched ^= table.table.touch_filter(sought.hash);
            }
        }
        std::hint::black_box(touched);
        while asked != 0 {
            let i = asked.trailing_zeros() as usize;
            let table = &tables[i];
            asked &= asked - 1;
            match look(chunk * TOGETHER + i, &table.table) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(e) => {
                    table.note_damage(&e);
                    return Err(e);
                }
            }
        }
    }
    Ok(None)
}
