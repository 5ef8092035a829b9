//! Iterators over a range of keys as a transaction sees it: the snapshot, merged with its own writes from both ends.

use super::own_writes::{OwnEntry, OwnWrites, join};
use crate::read::Range;
use crate::state::{KeyspaceInner, ReadSet};
use crate::sync::Mutex;
use crate::types::{Bounds, successor};
use base::{Result, Slice, Time};
use std::cmp::Ordering;
use std::collections::btree_map;
use std::sync::Arc;

/// A double-ended iterator over the entries of a range, as a transaction sees them: with its own writes. An error is yielded once; then the
/// iterator ends.
///
/// The transaction depends on the part of the range that was iterated over: from either end to the key that was yielded last there, or all of it once
/// an end has found nothing more.
pub struct TransactionRange<'a> {
    stored: Ends<Range>,
    own: Option<Own<'a>>,
    noted: Option<Noted<'a>>,
    /// Whether values are not shown.
    keys_only: bool,
    done: bool,
}

/// The writes of the transaction in the range.
struct Own<'a> {
    writes: &'a OwnWrites,
    entries: Ends<btree_map::Range<'a, Slice, OwnEntry>>,
    /// The time of the transaction.
    now: Time,
    keyspace: Arc<KeyspaceInner>,
}

/// An iterator with an item taken from each end.
pub(super) struct Ends<I: Iterator> {
    iter: I,
    front: Option<I::Item>,
    back: Option<I::Item>,
}

impl<I: DoubleEndedIterator> Ends<I> {
    pub(super) fn new(iter: I) -> Ends<I> {
        Ends { iter, front: None, back: None }
    }

    pub(super) fn iter(&self) -> &I {
        &self.iter
    }

    /// The next item at one end, which stays there.
    pub(super) fn peek<const BACK: bool>(&mut self) -> Option<&I::Item> {
        let (end, other) = match BACK {
            false => (&mut self.front, &mut self.back),
            true => (&mut self.back, &mut self.front),
        };
        if end.is_none() {
            let next = if BACK { self.iter.next_back() } else { self.iter.next() };
            *end = next.or_else(|| other.take());
        }
        end.as_ref()
    }

    pub(super) fn take<const BACK: bool>(&mut self) -> Option<I::Item> {
        self.peek::<BACK>();
        if BACK { self.back.take() } else { self.front.take() }
    }
}

/// Which of two keys at one end comes first: `Less` for the first one. `None` if there are none.
pub(super) fn order_of<const BACK: bool>(a: Option<&Slice>, b: Option<&Slice>) -> Option<Ordering> {
    match (a, b) {
        (None, None) => None,
        (Some(_), None) => Some(Ordering::Less),
        (None, Some(_)) => Some(Ordering::Greater),
        (Some(a), Some(b)) => Some(if BACK { b.cmp(a) } else { a.cmp(b) }),
    }
}

/// The range among the reads of the transaction, as a whole until the iterator is dropped.
struct Noted<'a> {
    reads: &'a Mutex<ReadSet>,
    keyspace: Arc<KeyspaceInner>,
    /// Its place among the ranges of the keyspace.
    place: usize,
    bounds: Bounds,
    /// The keys yielded last at both ends.
    front: Option<Slice>,
    back: Option<Slice>,
    /// Whether an end has found nothing more.
    whole: bool,
    /// The first expiry that was noted.
    expiry: Option<Time>,
}

impl<'a> TransactionRange<'a> {
    /// `reads`: where the range is noted, unless the transaction is read-only.
    pub(super) fn new(
        stored: Range,
        own: Option<&'a OwnWrites>,
        reads: Option<&'a Mutex<ReadSet>>,
        (keyspace, now): (&Arc<KeyspaceInner>, Time),
        bounds: Bounds,
    ) -> TransactionRange<'a> {
        let own = own.map(|writes| {
            let (entries, keyspace) = (Ends::new(writes.range(&bounds)), keyspace.clone());
            Own { writes, entries, now, keyspace }
        });
        let noted = reads.map(|reads| {
            let mut noting = reads.lock();
            let ranges = &mut noting.of(keyspace).ranges;
            ranges.push(bounds.clone());
            let (place, keyspace) = (ranges.len() - 1, keyspace.clone());
            drop(noting);
            Noted { reads, keyspace, place, bounds, front: None, back: None, whole: false, expiry: None }
        });
        TransactionRange { stored: Ends::new(stored), own, noted, keys_only: false, done: false }
    }

    /// The keys alone, of the entries that are left. Values outside of the tree (`placement`) are not read.
    pub fn keys(mut self) -> impl DoubleEndedIterator<Item = Result<Slice>> + use<'a> {
        self.stored.iter.hide_values();
        self.keys_only = true;
        self.map(|entry| entry.map(|(key, _)| key))
    }

    fn step<const BACK: bool>(&mut self) -> Option<Result<(Slice, Slice)>> {
        let TransactionRange { stored, own: Some(own), .. } = self else { return self.stored.take::<BACK>() };
        loop {
            let of_stored = match stored.peek::<BACK>() {
                Some(Ok((key, _))) => Some(key),
                Some(Err(_)) => return stored.take::<BACK>(),
                None => None,
            };
            let of_own = own.entries.peek::<BACK>().map(|(key, _)| *key);
            let order = order_of::<BACK>(of_stored, of_own)?;
            let mut found = None;
            if order.is_le() {
                match stored.take::<BACK>() {
                    Some(Ok((key, _))) if order.is_lt() && own.writes.deletes(&key) => continue,
                    Some(Ok((_, value))) if order.is_eq() => found = Some(value),
                    entry => return entry,
                }
            }
            match own.entries.take::<BACK>() {
                Some((key, OwnEntry::Value(written))) if written.is_seen(own.now) => {
                    return Some(Ok((key.clone(), written.value.clone())));
                }
                Some((key, OwnEntry::Operand(_))) if self.keys_only => {
                    return Some(Ok((key.clone(), Slice::default())));
                }
                Some((key, OwnEntry::Operand(operand))) => {
                    let value = join(&own.keyspace, key, found, operand.clone());
                    return Some(value.map(|value| (key.clone(), value)));
                }
                _ => {}
            }
        }
    }

    fn advance<const BACK: bool>(&mut self) -> Option<Result<(Slice, Slice)>> {
        if self.done {
            return None;
        }
        let step = self.step::<BACK>();
        self.done = !matches!(step, Some(Ok(_)));
        if let Some(noted) = &mut self.noted {
            let soonest = self.stored.iter.soonest_expiry();
            if soonest != noted.expiry {
                noted.expiry = soonest;
                noted.reads.lock().note_expiry(soonest);
            }
            match &step {
                Some(Ok((key, _))) if BACK => noted.back = Some(key.clone()),
                Some(Ok((key, _))) => noted.front = Some(key.clone()),
                Some(Err(_)) | None => noted.whole = true,
            }
        }
        step
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        if self.whole {
            return;
        }
        let mut reads = self.reads.lock();
        let ranges = &mut reads.of(&self.keyspace).ranges;
        // The places of other iterators stay what they are.
        let from = std::mem::take(&mut self.bounds.from);
        let nothing = Bounds { from: Vec::new(), to: Some(Vec::new()) };
        ranges[self.place] =
            self.front.take().map_or(nothing, |front| Bounds { from, to: Some(successor(&front)) });
        if let Some(back) = self.back.take() {
            ranges.push(Bounds { from: back.to_vec(), to: self.bounds.to.take() });
        }
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance::<false>()
    }

    /// Reads keys alone.
    fn count(self) -> usize {
        self.keys().fold(0, |count, _| count + 1)
    }
}

impl DoubleEndedIterator for TransactionRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance::<true>()
    }
}

impl std::iter::FusedIterator for TransactionRange<'_> {}

crate::types::debug_of! {
    ['a] TransactionRange<'a>, "TransactionRange";
}
