//! Readers that are held across other calls: snapshots, cursors, iterators and returned slices.

use crate::data::{Keys, Value};
use crate::finding::{Outcome, ensure, show, show_option};
use crate::model::{Incarnation, Model, Version};
use crate::random::Rng;
use cairn::{Cursor, ErrorKind, Range, Slice, Snapshot};
use std::ops::Bound;

/// Maximum number of held readers of one kind.
pub(super) const MAX_HELD: usize = 6;

type Key = Vec<u8>;

fn as_bound(bound: &Bound<Key>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Whether a reader of a dropped keyspace returned `Closed`. It may also continue, but must not return wrong data.
fn is_refusal<T>(result: &cairn::Result<T>, model: &Model, keyspace: Incarnation) -> bool {
    result.as_ref().is_err_and(|e| e.kind() == ErrorKind::Closed) && model.is_dropped(keyspace)
}

/// The position of a reader, in words.
fn place(model: &Model, keyspace: Incarnation, low: &Bound<Key>, high: &Bound<Key>, at: Version) -> String {
    let words = |bound: &Bound<Key>| match bound {
        Bound::Included(key) => format!("{} (included)", show(key)),
        Bound::Excluded(key) => format!("{} (excluded)", show(key)),
        Bound::Unbounded => "the end".to_owned(),
    };
    let dropped = if model.is_dropped(keyspace) { " of a keyspace that was dropped meanwhile" } else { "" };
    format!("between {} and {} as of {at}{dropped}", words(low), words(high))
}

/// All held readers. Their versions are pinned in the model.
#[derive(Default)]
pub(super) struct Held {
    pub(super) snapshots: Vec<(Snapshot, Version)>,
    pub(super) cursors: Vec<HeldCursor>,
    pub(super) ranges: Vec<HeldRange>,
    pub(super) slices: Vec<(Slice, Value)>,
}

impl Held {
    pub(super) fn keep_slice(&mut self, slice: Slice, value: Value) {
        if self.slices.len() >= 4 * MAX_HELD {
            self.slices.remove(0);
        }
        self.slices.push((slice, value));
    }

    /// Releases all readers except the slices, which may outlive the database.
    pub(super) fn release_all(&mut self, model: &mut Model) {
        self.snapshots.drain(..).for_each(|(_, at)| model.unpin(at));
        self.cursors.drain(..).for_each(|c| model.unpin(c.at));
        self.ranges.drain(..).for_each(|r| model.unpin(r.at));
    }
}

/// An iterator, with its remaining entries in the model.
pub(super) struct HeldRange {
    range: Range,
    keyspace: Incarnation,
    pub(super) at: Version,
    low: Bound<Key>,
    high: Bound<Key>,
}

impl HeldRange {
    pub(super) fn new(
        range: Range,
        keyspace: Incarnation,
        at: Version,
        low: Bound<Key>,
        high: Bound<Key>,
    ) -> Self {
        HeldRange { range, keyspace, at, low, high }
    }

    /// Takes up to `steps` entries: from the front, from the back, or from both ends.
    pub(super) fn advance(&mut self, rng: &mut Rng, model: &Model, steps: usize) -> Outcome {
        let mode = rng.below(3);
        for _ in 0..steps {
            let back = mode == 1 || mode == 2 && rng.chance(1, 2);
            if !self.take(back, model)? {
                // After the end, both directions must return the end again.
                self.take(!back, model)?;
                self.take(back, model)?;
                break;
            }
        }
        Ok(())
    }

    /// Takes one entry. Returns whether there was one.
    fn take(&mut self, back: bool, model: &Model) -> Outcome<bool> {
        let got = if back { self.range.next_back() } else { self.range.next() }.transpose();
        if is_refusal(&got, model, self.keyspace) {
            return Ok(false);
        }
        let got = got?;
        let mut rest = model.range(self.keyspace, (as_bound(&self.low), as_bound(&self.high)), self.at);
        let want = if back { rest.next_back() } else { rest.next() };
        let side = if back { "next_back" } else { "next" };
        ensure!(
            got.as_ref().map(|g| &g.0[..]) == want.map(|w| w.0),
            "{side} {} gives {} instead of {}",
            place(model, self.keyspace, &self.low, &self.high, self.at),
            show_option(got.map(|g| g.0)),
            show_option(want.map(|w| w.0))
        );
        let (Some(got), Some(want)) = (got, want) else { return Ok(false) };
        ensure!(
            got.1[..] == want.1[..],
            "{side} gives {} = {} instead of {}",
            show(&got.0),
            show(&got.1),
            show(want.1)
        );
        drop(rest);
        let end = if back { &mut self.high } else { &mut self.low };
        *end = Bound::Excluded(got.0.to_vec());
        Ok(true)
    }
}

/// A cursor, with its position in the model.
pub(super) struct HeldCursor {
    cursor: Cursor,
    keyspace: Incarnation,
    pub(super) at: Version,
    low: Bound<Key>,
    high: Bound<Key>,
    position: Option<Key>,
}

impl HeldCursor {
    pub(super) fn new(
        cursor: Cursor,
        keyspace: Incarnation,
        at: Version,
        low: Bound<Key>,
        high: Bound<Key>,
    ) -> Self {
        HeldCursor { cursor, keyspace, at, low, high, position: None }
    }

    /// Moves the cursor: seeks, then runs in one direction with occasional turns.
    pub(super) fn walk(&mut self, rng: &mut Rng, keys: &Keys, model: &Model, steps: usize) -> Outcome {
        let mut forward = rng.chance(1, 2);
        for _ in 0..steps {
            if rng.chance(1, 5) {
                forward = !forward;
            }
            let made = match self.position.clone() {
                Some(key) if rng.chance(7, 8) => self.step(forward, key),
                _ => self.seek(rng, keys),
            };
            if is_refusal(&made, model, self.keyspace) {
                self.position = None;
                return Ok(());
            }
            let made = made?;
            let low = tighter(as_bound(&self.low), as_bound(&made.low), true);
            let high = tighter(as_bound(&self.high), as_bound(&made.high), false);
            let mut rest = model.range(self.keyspace, (low, high), self.at);
            let want = if made.to_last { rest.next_back() } else { rest.next() };
            self.stands_on(&made.name, want, model)?;
            self.position = want.map(|w| w.0.to_vec());
        }
        Ok(())
    }

    /// Moves one step.
    fn step(&mut self, forward: bool, from: Key) -> cairn::Result<Move> {
        if forward {
            self.cursor.next()?;
            Ok(Move::to_first(format!("next from {}", show(&from)), Bound::Excluded(from)))
        } else {
            self.cursor.prev()?;
            Ok(Move::to_last(format!("prev from {}", show(&from)), Bound::Excluded(from)))
        }
    }

    fn seek(&mut self, rng: &mut Rng, keys: &Keys) -> cairn::Result<Move> {
        let key = keys.probe(rng);
        Ok(match rng.below(8) {
            0 => {
                self.cursor.seek_to_first()?;
                Move::to_first("seek_to_first".into(), Bound::Unbounded)
            }
            1 => {
                self.cursor.seek_to_last()?;
                Move::to_last("seek_to_last".into(), Bound::Unbounded)
            }
            2..5 => {
                self.cursor.seek(&key)?;
                Move::to_first(format!("seek {}", show(&key)), Bound::Included(key))
            }
            _ => {
                self.cursor.seek_for_prev(&key)?;
                Move::to_last(format!("seek_for_prev {}", show(&key)), Bound::Included(key))
            }
        })
    }

    fn stands_on(&self, name: &str, want: Option<(&[u8], &Value)>, model: &Model) -> Outcome {
        let got = self.cursor.valid().then(|| self.cursor.key());
        ensure!(
            got == want.map(|w| w.0),
            "cursor {}: {name} leads to {} instead of {}",
            place(model, self.keyspace, &self.low, &self.high, self.at),
            show_option(got),
            show_option(want.map(|w| w.0))
        );
        if let Some((key, value)) = want {
            let got = self.cursor.value();
            ensure!(
                got == &value[..],
                "cursor: {name}: {} = {} instead of {}",
                show(key),
                show(got),
                show(value)
            );
            ensure!(
                self.cursor.value_slice() == got,
                "cursor: value and value_slice differ at {}",
                show(key)
            );
        }
        Ok(())
    }
}

/// The expected target of a move: the first or last entry between two bounds.
struct Move {
    name: String,
    low: Bound<Key>,
    high: Bound<Key>,
    to_last: bool,
}

impl Move {
    fn to_first(name: String, low: Bound<Key>) -> Move {
        Move { name, low, high: Bound::Unbounded, to_last: false }
    }

    fn to_last(name: String, high: Bound<Key>) -> Move {
        Move { name, low: Bound::Unbounded, high, to_last: true }
    }
}

/// The stricter bound.
fn tighter<'a>(a: Bound<&'a [u8]>, b: Bound<&'a [u8]>, lower: bool) -> Bound<&'a [u8]> {
    use Bound::{Excluded, Included, Unbounded};
    let (Included(a_key) | Excluded(a_key)) = a else { return b };
    let (Included(b_key) | Excluded(b_key)) = b else { return a };
    match a_key.cmp(b_key) {
        std::cmp::Ordering::Equal if matches!(a, Excluded(_)) => a,
        std::cmp::Ordering::Equal => b,
        order if (order == std::cmp::Ordering::Greater) == lower => a,
        _ => match b {
            Unbounded => a,
            _ => b,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Bound::{Excluded, Included, Unbounded};

    #[test]
    fn the_tighter_bound_wins() {
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        assert_eq!(tighter(Included(a), Excluded(a), true), Excluded(a));
        assert_eq!(tighter(Excluded(a), Included(b), true), Included(b));
        assert_eq!(tighter(Excluded(a), Included(b), false), Excluded(a));
        assert_eq!(tighter(Included(b), Excluded(a), false), Excluded(a));
        assert_eq!(tighter(Unbounded, Included(a), true), Included(a));
        assert_eq!(tighter(Included(a), Unbounded, false), Included(a));
    }
}
