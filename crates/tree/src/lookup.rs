//! Looking for a key without waiting for the disk.
//!
//! A [`LookUp`] is a place in the search of a version: where a look-up would have to wait for a block it stops, with the block asked for, and
//! goes on from there when it is called again. So who looks for many keys has their blocks on the way all at once, and waits for the
//! disk about once. What it finds is what [`Version::get_above`] finds.

use crate::version::{Sought, TableFile, Version, search};
use base::planted::{Bug, planted};
use base::{Result, Slice, Trailer};
use std::task::Poll;
use table::Wanted;

/// How far a look-up has come.
#[derive(Default)]
pub struct LookUp {
    /// The level, and how many tables of its stack are done with.
    level: usize,
    done: usize,
    /// The block of the next table that it waits for.
    wanted: Option<Wanted>,
}

impl LookUp {
    /// Bytes of the block that it waits for.
    pub fn waits_for(&self) -> u64 {
        self.wanted.as_ref().map_or(0, Wanted::bytes)
    }
}

/// Where it ends, for now.
enum Stop {
    Found((Trailer, Slice)),
    /// At the table with this place in the stack.
    Waits(usize, Wanted),
}

impl Version {
    /// Goes on with a look-up in this version, which must be told the same every time. `Pending`: the block that it needs next
    /// has been asked for, and the next call reads it, and waits. After an error it is over.
    pub fn go_on(&self, at: &mut LookUp, sought: Sought<'_>) -> Result<Poll<Option<(Trailer, Slice)>>> {
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
    fn get_wanted(&self, wanted: Wanted, sought: Sought<'_>) -> Result<Option<(Trailer, Slice)>> {
        self.table.get_wanted(wanted, sought.key, sought.seq).inspect_err(|e| self.note_damage(e))
    }
}
