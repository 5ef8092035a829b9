//! [`ReadSet`]: what a transaction has read. The room `read` compares it with what was committed since.

use super::keyspace_inner::KeyspaceInner;
use crate::types::Bounds;
use base::{Seq, Time};
use memtable::Memtable;
use std::collections::HashSet;
use std::sync::Arc;

/// The keys and ranges that a transaction has read, in the state up to a sequence number that is held.
pub(crate) struct ReadSet {
    /// Nothing that was read has changed up to here.
    pub since: Seq,
    pub keyspaces: Vec<KeyspaceReads>,
    /// The first expiry among the entries that were seen.
    pub expiry: Time,
}

/// What was read in one keyspace.
pub(crate) struct KeyspaceReads {
    pub keyspace: Arc<KeyspaceInner>,
    /// The memtables, newest first, when the keyspace was first read, or last compared. While they are here, entries that they had are found in memory,
    /// also after their flush.
    pub memtables: Vec<Arc<Memtable>>,
    pub keys: HashSet<Box<[u8]>>,
    pub ranges: Vec<Bounds>,
}

impl ReadSet {
    pub(crate) fn new(since: Seq) -> ReadSet {
        ReadSet { since, keyspaces: Vec::new(), expiry: Time::MAX }
    }

    /// Notes that entries were seen of which the first expires then.
    pub(crate) fn note_expiry(&mut self, expiry: Option<Time>) {
        self.expiry = self.expiry.min(expiry.unwrap_or(Time::MAX));
    }

    /// Joins ranges that overlap or touch, and leaves empty ones out.
    pub(crate) fn join_ranges(&mut self) {
        for reads in &mut self.keyspaces {
            let mut ranges = std::mem::take(&mut reads.ranges);
            ranges.retain(|bounds| !bounds.is_empty());
            ranges.sort_unstable_by(|a, b| a.from.cmp(&b.from));
            for bounds in ranges {
                match reads.ranges.last_mut() {
                    Some(last) if last.to.as_ref().is_none_or(|to| bounds.from <= *to) => {
                        // No end comes after all others.
                        last.to = last.to.take().zip(bounds.to).map(|(a, b)| a.max(b));
                    }
                    _ => reads.ranges.push(bounds),
                }
            }
        }
    }

    /// The reads in a keyspace.
    pub(crate) fn of(&mut self, keyspace: &Arc<KeyspaceInner>) -> &mut KeyspaceReads {
        let place = self.keyspaces.iter().position(|reads| reads.keyspace.id == keyspace.id);
        let place = place.unwrap_or_else(|| {
            self.keyspaces.push(KeyspaceReads::new(keyspace));
            self.keyspaces.len() - 1
        });
        &mut self.keyspaces[place]
    }
}

impl KeyspaceReads {
    fn new(keyspace: &Arc<KeyspaceInner>) -> KeyspaceReads {
        let memtables = keyspace.read_state.load().memtables().cloned().collect();
        KeyspaceReads { keyspace: keyspace.clone(), memtables, keys: HashSet::new(), ranges: Vec::new() }
    }

    /// Notes that `key` was read.
    #[inline]
    pub(crate) fn note_key(&mut self, key: &[u8]) {
        if !self.keys.contains(key) {
            self.keys.insert(key.into());
        }
    }
}
