//! What a reader wants of a tree: keys, and times of versions.

use crate::version::LiveTable;
use base::{Seq, Slice, Time};
use table::Wanted;

/// The keys that a reader requests, from an inclusive start to an exclusive end. Tables outside of it are not read, so
/// their damage does not affect the reader.
#[derive(Clone, Debug)]
pub struct KeyRange {
    pub(super) from: Slice,
    pub(super) to: Option<Slice>,
    /// The hash that the filters of tables have for all keys of the range.
    hash: Option<u64>,
    /// The first time that a query needs.
    since: Option<Time>,
    /// The last time.
    until: Option<Time>,
    /// Only entries with a larger sequence number are wanted.
    newer_than: Seq,
}

impl KeyRange {
    /// The keys in `[from, to)`; `to` of `None` is the end of all keys.
    pub fn new(from: &[u8], to: Option<&[u8]>) -> KeyRange {
        let (from, to) = (Slice::copy_from(from), to.map(Slice::copy_from));
        KeyRange { from, to, hash: None, since: None, until: None, newer_than: 0 }
    }

    /// The same range of keys, all of which have this hash in the filters of tables ([`table::TableOptions::filter_hash`]). Tables whose
    /// filters do not have it are not read.
    pub fn with_hash(self, hash: Option<u64>) -> KeyRange {
        KeyRange { hash, ..self }
    }

    /// The same range of keys, for a query that needs versions that had not ended by then. Tables and blocks that have none are left out where their times tell it.
    pub fn since(self, time: Time) -> KeyRange {
        KeyRange { since: Some(time), ..self }
    }

    /// The same range of keys, for a query that needs no version after this time, neither the end of one before, if that is the next one.
    /// Tables and blocks that begin later are left out where their times tell it.
    pub fn until(self, time: Option<Time>) -> KeyRange {
        KeyRange { until: time, ..self }
    }

    /// The same range of keys, for a reader that wants entries newer than `seq` only. Tables that have none are not read.
    pub fn newer_than(self, seq: Seq) -> KeyRange {
        KeyRange { newer_than: seq, ..self }
    }

    /// What is needed of a table, unless it is everything.
    pub(crate) fn wanted(&self, table: &LiveTable) -> Option<Wanted> {
        let times = table.meta.times?.wanted(self.since, self.until);
        (!times.is_all()).then(|| Wanted { times, from: self.from.clone(), to: self.to.clone() })
    }

    pub(crate) fn meets(&self, table: &LiveTable) -> bool {
        table.overlaps_range(&self.from, self.to.as_deref())
            && table.meta.max_seq > self.newer_than
            && table.meta.times.is_none_or(|times| times.meet(self.since, self.until))
            // A filter that cannot be read: the read of the table meets the error.
            && self.hash.is_none_or(|hash| table.table.may_contain(hash).unwrap_or(true))
    }
}
