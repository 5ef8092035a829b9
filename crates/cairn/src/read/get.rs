//! Point reads, and batched ones with all disk reads of a batch in flight together.
//!
//! Each key of a batch is looked up as by [`Keyspace::get`](crate::Keyspace::get), but without blocking: a lookup that needs a block from
//! disk requests it and is suspended. Then the suspended lookups are resumed in turn, until each has its result. So a batch waits about as
//! long as one block takes, not as long as one block per key; and when everything is in memory no lookup is suspended, and the batch
//! costs what single reads cost.
//!
//! Only part of the keys is in flight at a time: this bounds the memory for suspended lookups and the readahead of the operating system,
//! which might otherwise be dropped before it is used.

use crate::state::{KeyspaceInner, ReadAt, ReadState, shows};
use base::planted::{Bug, planted};
use base::{Error, Reference, Result, Seq, Slice, Trailer, hash};
use std::task::Poll;
use tree::{LookupKey, PendingLookup};

/// Maximum number of keys in flight. A disk gains little from more.
pub(super) const AT_ONCE: usize = 128;

/// Maximum bytes of blocks in flight: when memory is short, more would evict each other before they are read.
const BYTES_AT_ONCE: u64 = 4 << 20;

/// A suspended lookup.
struct Waiting {
    /// Index of its key in the batch.
    place: usize,
    hash: u64,
    /// The newest range tombstone over the key.
    deleted: Seq,
    at: PendingLookup,
    /// The value that it has found, outside of the tree, and that the disk was asked for.
    value: Option<Reference>,
}

impl Waiting {
    /// Bytes that the disk was asked for.
    fn pending_bytes(&self) -> u64 {
        self.value.map_or_else(|| self.at.pending_bytes(), |reference| reference.len.into())
    }
}

/// A batch of reads.
struct Batch<'a, K> {
    keyspace: &'a KeyspaceInner,
    read_state: &'a ReadState,
    keys: &'a [K],
    at: &'a ReadAt,
    /// The results of the keys begun so far.
    values: Vec<Option<Slice>>,
    /// The suspended lookups, ascending by index.
    waiting: Vec<Waiting>,
    /// The error of the first key, in their order, that has one. Results of later keys are dropped.
    failed: Option<(usize, Error)>,
}

impl KeyspaceInner {
    /// The value of `key` in the state `at`, in `read_state`.
    pub(crate) fn get_in(&self, read_state: &ReadState, key: &[u8], at: &ReadAt) -> Result<Option<Slice>> {
        if let Some(log) = &self.hash_log {
            return self.get_by_hash(log, read_state, key, at, at.seq);
        }
        let deleted = read_state.deleted_before(key, at.seq);
        if self.has_merges() {
            return self.get_joined(read_state, key, at, deleted);
        }
        if let Some(value) = read_state.get_recent(key, at, deleted, self.tail_len) {
            return Ok(value);
        }
        self.value_of(read_state.version.get_above(key, hash(key), at.seq, deleted)?, at, deleted)
    }

    /// The same without waiting for the disk: pending if that has to be asked. Operands are not joined: that a key has some is pending, too.
    pub(crate) fn try_get_in(
        &self,
        read_state: &ReadState,
        key: &[u8],
        at: &ReadAt,
        flushed: Seq,
    ) -> Result<Poll<Option<Slice>>> {
        if let Some(log) = &self.hash_log {
            return self.try_get_by_hash(log, read_state, key, at, flushed);
        }
        let deleted = read_state.deleted_before(key, at.seq);
        if self.has_merges() && read_state.has_operand(key, at.seq) {
            return Ok(Poll::Pending);
        }
        if let Some(value) = read_state.get_recent(key, at, deleted, self.tail_len) {
            return Ok(Poll::Ready(value));
        }
        let wanted = LookupKey { key, hash: hash(key), seq: at.seq, above: deleted };
        let found = match read_state.version.get_now(wanted)? {
            Poll::Ready(found) => found.filter(|(trailer, _)| shows(*trailer, deleted)),
            Poll::Pending => return Ok(Poll::Pending),
        };
        match found {
            None => Ok(Poll::Ready(None)),
            Some((trailer, stored)) if !at.sees(trailer, &stored)? => Ok(Poll::Ready(None)),
            Some((trailer, _)) if trailer.is_merge() => Ok(Poll::Pending),
            Some((trailer, stored)) if trailer.is_reference() => {
                let value = self.segments.try_read(&self.segments.decode(&stored)?);
                Ok(value.map_or(Poll::Pending, |value| Poll::Ready(Some(value))))
            }
            Some((trailer, stored)) => self.resolve(trailer, stored).map(|value| Poll::Ready(Some(value))),
        }
    }

    /// The value of the entry that a lookup has found, unless it is deleted or has expired.
    #[inline]
    pub(super) fn value_of(
        &self,
        found: Option<(Trailer, Slice)>,
        at: &ReadAt,
        deleted: Seq,
    ) -> Result<Option<Slice>> {
        match found {
            Some((trailer, stored)) if shows(trailer, deleted) && at.sees(trailer, &stored)? => {
                self.resolve(trailer, stored).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The newest entry of `key` as of `seq`, in `read_state`: with what is stored, and also if it is a delete. From a memtable only the part
    /// that `wanted` returns is copied.
    pub(crate) fn newest_in(
        &self,
        read_state: &ReadState,
        key: &[u8],
        seq: Seq,
        wanted: impl FnOnce(Trailer, &[u8]) -> &[u8],
    ) -> Result<Option<(Trailer, Slice)>> {
        match read_state.memtables().find_map(|memtable| memtable.get(key, seq)) {
            Some((trailer, stored)) => Ok(Some((trailer, Slice::copy_from(wanted(trailer, stored))))),
            None => read_state.version.get_above(key, hash(key), seq, 0),
        }
    }

    /// Whether `key` has a value in the state `at`, in `read_state`.
    pub(crate) fn contains_in(&self, read_state: &ReadState, key: &[u8], at: &ReadAt) -> Result<bool> {
        if let Some(log) = &self.hash_log {
            return Ok(self.get_by_hash(log, read_state, key, at, at.seq)?.is_some());
        }
        let deleted = read_state.deleted_before(key, at.seq);
        if let Some(value) = read_state.get_recent(key, at, deleted, self.tail_len) {
            return Ok(value.is_some());
        }
        match read_state.version.get_above(key, hash(key), at.seq, deleted)? {
            Some((trailer, stored)) if shows(trailer, deleted) => at.sees(trailer, &stored),
            _ => Ok(false),
        }
    }

    /// The values of `keys` in the state `at`, in `read_state`.
    pub(crate) fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        read_state: &ReadState,
        keys: &[K],
        at: &ReadAt,
    ) -> Result<Vec<Option<Slice>>> {
        if let Some(log) = &self.hash_log {
            return self.multi_get_by_hash(log, read_state, keys, at);
        }
        let values = Vec::with_capacity(keys.len());
        let mut batch =
            Batch { keyspace: self, read_state, keys, at, values, waiting: Vec::new(), failed: None };
        while batch.failed.is_none() && batch.values.len() < keys.len() {
            batch.begin((batch.values.len() + AT_ONCE).min(keys.len()));
            while !batch.waiting.is_empty() {
                batch.go_on();
            }
        }
        batch.failed.map_or(Ok(batch.values), |(_, error)| Err(error))
    }
}

impl<K: AsRef<[u8]>> Batch<'_, K> {
    /// Begins lookups of the keys before `end`, without blocking, as many as may be in flight.
    fn begin(&mut self, end: usize) {
        let mut bytes = 0;
        for place in self.values.len()..end {
            let value = match self.look_for(place, place + 1 == end) {
                Ok(value) => value,
                Err(error) => {
                    self.failed = Some((place, error));
                    return;
                }
            };
            self.values.push(value);
            bytes += self.waiting.last().filter(|last| last.place == place).map_or(0, Waiting::pending_bytes);
            if bytes >= BYTES_AT_ONCE {
                return;
            }
        }
    }

    /// Looks a key up: its value, or `None` when the lookup is suspended. `last`: no other key can be read meanwhile, so a lone lookup
    /// may block.
    fn look_for(&mut self, place: usize, last: bool) -> Result<Option<Slice>> {
        let key = self.keys[place].as_ref();
        let deleted = self.read_state.deleted_before(key, self.at.seq);
        if self.keyspace.has_merges() && self.read_state.has_operand(key, self.at.seq) {
            return self.keyspace.get_joined(self.read_state, key, self.at, deleted);
        }
        if let Some(value) = self.read_state.get_recent(key, self.at, deleted, self.keyspace.tail_len) {
            return Ok(value);
        }
        let at = PendingLookup::default();
        let mut waiting = Waiting { place, hash: hash(key), deleted, at, value: None };
        if last && self.waiting.is_empty() {
            // There is no other lookup to overlap with.
            let found = self.read_state.version.get_above(key, waiting.hash, self.at.seq, deleted)?;
            return match found {
                Some((trailer, _)) if trailer.is_merge() => {
                    self.keyspace.get_joined(self.read_state, key, self.at, deleted)
                }
                found => self.keyspace.value_of(found, self.at, deleted),
            };
        }
        match look(self.keyspace, self.read_state, self.at, key, &mut waiting)? {
            Poll::Ready(value) => Ok(value),
            Poll::Pending => {
                self.waiting.push(waiting);
                Ok(None)
            }
        }
    }

    /// Resumes the suspended lookups, each up to the next block that it needs.
    fn go_on(&mut self) {
        let Batch { keyspace, read_state, keys, at, values, waiting, failed } = self;
        let mix_up = planted(Bug::MixUpAnswers).then(|| waiting.first().map(|w| w.place)).flatten();
        waiting.retain_mut(|waiting| {
            let place = waiting.place;
            if failed.as_ref().is_some_and(|(first, _)| *first < place) {
                return false;
            }
            match look(keyspace, read_state, at, keys[place].as_ref(), waiting) {
                Ok(Poll::Pending) => return true,
                Ok(Poll::Ready(value)) => values[mix_up.unwrap_or(place)] = value,
                Err(error) => *failed = Some((place, error)),
            }
            false
        });
    }
}

/// Runs a lookup until it has its value or would block again.
fn look(
    keyspace: &KeyspaceInner,
    read_state: &ReadState,
    at: &ReadAt,
    key: &[u8],
    waiting: &mut Waiting,
) -> Result<Poll<Option<Slice>>> {
    if let Some(reference) = waiting.value {
        return Ok(Poll::Ready(Some(keyspace.segments.read_waiting(&reference, true)?)));
    }
    let Waiting { hash, deleted, .. } = *waiting;
    let lookup = LookupKey { key, hash, seq: at.seq, above: deleted };
    let Poll::Ready(found) = read_state.version.resume_lookup(&mut waiting.at, lookup)? else {
        return Ok(Poll::Pending);
    };
    let Some((trailer, value)) = found.filter(|(trailer, _)| shows(*trailer, deleted)) else {
        return Ok(Poll::Ready(None));
    };
    if !at.sees(trailer, &value)? {
        return Ok(Poll::Ready(None));
    }
    if trailer.is_merge() {
        // What is below it is looked for without others.
        return keyspace.get_joined(read_state, key, at, deleted).map(Poll::Ready);
    }
    if !trailer.is_reference() {
        return keyspace.resolve(trailer, value).map(|value| Poll::Ready(Some(value)));
    }
    let reference = keyspace.segments.decode(&value)?;
    let value = keyspace.segments.try_read(&reference);
    waiting.value = value.is_none().then_some(reference);
    Ok(value.map_or(Poll::Pending, |value| Poll::Ready(Some(value))))
}
