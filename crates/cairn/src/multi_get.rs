//! Reading the values of many keys, with all that is not in memory on its way from the disk at once.
//!
//! One key after another is looked for as [`Keyspace::get`](crate::Keyspace::get) does it, but without waiting: a look-up that needs a
//! block from the disk asks for it and is put off. Then those that were put off go on, one after another, until each has its
//! answer. So the wait for the disk is about that for one block, not for one per key; and where everything is in memory nobody
//! is put off, and it costs what single reads cost.
//!
//! A part of the keys at a time is under way: that bounds what is kept about them, and what the operating system reads ahead for
//! us and might have to drop again.

use crate::keyspace::{KeyspaceInner, ReadState, shows};
use base::planted::{Bug, planted};
use base::{Error, Result, Seq, Slice, hash};
use std::task::Poll;
use tree::{PendingLookup, TreeLookup};

/// Keys that may be under way at once. A disk gains little from more.
const AT_ONCE: usize = 128;

/// Bytes of blocks that may be on their way at once: where memory is short, more would push each other out before they are read.
const BYTES_AT_ONCE: u64 = 4 << 20;

/// A look-up that was put off.
struct Waiting {
    /// Place of its key in the batch.
    place: usize,
    hash: u64,
    /// The newest range tombstone over the key.
    deleted: Seq,
    at: TreeLookup,
}

/// A batch of reads.
struct Batch<'a, K> {
    read_state: &'a ReadState,
    keys: &'a [K],
    seq: Seq,
    /// Of the keys that were begun with.
    values: Vec<Option<Slice>>,
    /// Ascending by place.
    waiting: Vec<Waiting>,
    /// Of all errors that which the first key has. What comes behind it is nobody's concern any more.
    failed: Option<(usize, Error)>,
}

impl KeyspaceInner {
    /// The values of `keys` as of `seq`, in this view.
    pub(crate) fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        read_state: &ReadState,
        keys: &[K],
        seq: Seq,
    ) -> Result<Vec<Option<Slice>>> {
        let values = Vec::with_capacity(keys.len());
        let mut batch = Batch { read_state, keys, seq, values, waiting: Vec::new(), failed: None };
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
    /// Looks for the keys before `end`, without waiting, or for some of them: as many as may be under way.
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
            bytes += self.waiting.last().filter(|last| last.place == place).map_or(0, |w| w.at.waits_for());
            if bytes >= BYTES_AT_ONCE {
                return;
            }
        }
    }

    /// The value of a key, or nothing for now if it waits.
    fn look_for(&mut self, place: usize, last: bool) -> Result<Option<Slice>> {
        let key = self.keys[place].as_ref();
        let deleted = self.read_state.deleted_before(key, self.seq);
        if let Some(value) = self.read_state.get_recent(key, self.seq, deleted) {
            return Ok(value);
        }
        let mut waiting = Waiting { place, hash: hash(key), deleted, at: TreeLookup::default() };
        if last && self.waiting.is_empty() {
            // It has nobody to wait with.
            let found = self.read_state.version.get_above(key, waiting.hash, self.seq, deleted)?;
            return Ok(found.and_then(|(trailer, value)| shows(trailer, deleted).then_some(value)));
        }
        match look(self.read_state, self.seq, key, &mut waiting)? {
            Poll::Ready(value) => Ok(value),
            Poll::Pending => {
                self.waiting.push(waiting);
                Ok(None)
            }
        }
    }

    /// Lets those that wait go on, and wait, up to the next block that they need.
    fn go_on(&mut self) {
        let Batch { read_state, keys, seq, values, waiting, failed } = self;
        let mix_up = planted(Bug::MixUpAnswers).then(|| waiting.first().map(|w| w.place)).flatten();
        waiting.retain_mut(|waiting| {
            let place = waiting.place;
            if failed.as_ref().is_some_and(|(first, _)| *first < place) {
                return false;
            }
            match look(read_state, *seq, keys[place].as_ref(), waiting) {
                Ok(Poll::Pending) => return true,
                Ok(Poll::Ready(value)) => values[mix_up.unwrap_or(place)] = value,
                Err(error) => *failed = Some((place, error)),
            }
            false
        });
    }
}

/// Looks for a key until it has its value or would have to wait again.
fn look(read_state: &ReadState, seq: Seq, key: &[u8], waiting: &mut Waiting) -> Result<Poll<Option<Slice>>> {
    let Waiting { hash, deleted, .. } = *waiting;
    let found =
        read_state.version.go_on(&mut waiting.at, PendingLookup { key, hash, seq, above: deleted })?;
    Ok(found.map(|found| found.and_then(|(trailer, value)| shows(trailer, deleted).then_some(value))))
}
