//! Iterators over a range of keys: two [`Cursor`]s of one [`ReadView`], one for each end, which stop where they meet.

use super::cursor::Cursor;
use super::read_view::ReadView;
use crate::types::{Bounds, successor};
use base::planted::{Bug, planted};
use base::{Result, Slice, Time};
use std::iter::FusedIterator;

/// A double-ended iterator over the entries of a range. An error is yielded once; then the iterator ends.
pub struct Range {
    front: End,
    back: End,
    /// The state that both cursors read. Dropped after the cursors, which borrow its sequence number.
    read_view: ReadView,
    bounds: Bounds,
    shows_values: bool,
    /// The first expiry among the entries that it has come to.
    soonest: Option<Time>,
    done: bool,
}

/// A double-ended iterator over the keys of a range, from [`Range::keys`]. An error is yielded once; then the iterator ends.
pub struct Keys(Range);

#[derive(Default)]
struct End {
    /// `None` before its first use, and after a flush removed memtables: it is opened again then.
    cursor: Option<Cursor>,
    /// The key yielded last: the other end stops there, and a reopened cursor goes on from there.
    key: Option<Slice>,
}

impl End {
    /// The value of the entry on which its cursor stands.
    fn value(&self) -> Slice {
        self.cursor.as_ref().map_or_else(Slice::default, Cursor::value_slice)
    }
}

impl Range {
    pub(crate) fn new(read_view: ReadView, bounds: Bounds) -> Range {
        let (front, back) = (End::default(), End::default());
        Range { read_view, bounds, front, back, shows_values: true, soonest: None, done: false }
    }

    /// The keys alone, of the entries that are left. Values outside of the tree (`placement`) are not read.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// # let ks = db.keyspace("k", cairn::KeyspaceOptions::default())?;
    /// ks.put("user/1", "Ada")?;
    /// ks.put("user/2", "Grace")?;
    /// assert_eq!(ks.prefix("user/").keys().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(mut self) -> Keys {
        self.hide_values();
        Keys(self)
    }

    /// From now on values outside of the tree are not read: it shows no values.
    pub(crate) fn hide_values(&mut self) {
        self.shows_values = false;
        (self.front.cursor, self.back.cursor) = (None, None);
    }

    /// The first expiry among the entries that it has come to.
    pub(crate) fn soonest_expiry(&self) -> Option<Time> {
        self.soonest
    }

    /// Moves one end, and returns the key there.
    fn step<const BACK: bool>(&mut self) -> Result<Option<Slice>> {
        let (end, other) = match BACK {
            false => (&mut self.front, &mut self.back),
            true => (&mut self.back, &mut self.front),
        };
        let cursor = match &mut end.cursor {
            Some(cursor) => {
                if BACK {
                    cursor.prev()?
                } else {
                    cursor.next()?
                };
                cursor
            }
            None => {
                let cursor = Cursor::new(self.read_view.lend(), self.bounds.clone(), self.shows_values);
                let cursor = end.cursor.insert(cursor);
                match &end.key {
                    None if BACK => cursor.seek_to_last()?,
                    None => cursor.seek_to_first()?,
                    Some(key) if BACK => cursor.seek_backward(Some(key))?,
                    Some(key) => cursor.seek(successor(key))?,
                }
                cursor
            }
        };
        if cursor.generation != self.read_view.generation {
            self.read_view.renew();
            other.cursor = None;
        }
        let meets = |key: &Slice| if BACK { cursor.key() <= &key[..] } else { cursor.key() >= &key[..] };
        if !cursor.valid() || other.key.as_ref().is_some_and(meets) {
            return Ok(None);
        }
        if let Some(expiry) = cursor.expiry() {
            self.soonest = Some(self.soonest.map_or(expiry, |soonest| soonest.min(expiry)));
        }
        let key = Slice::copy_from(cursor.key());
        end.key = Some(key.clone());
        Ok(Some(key))
    }

    fn advance<const BACK: bool>(&mut self) -> Option<Result<Slice>> {
        if self.done {
            return None;
        }
        let step = match self.step::<BACK>() {
            Err(_) if planted(Bug::SwallowReadError) => None,
            step => step.transpose(),
        };
        self.done = !matches!(step, Some(Ok(_)));
        step
    }
}

impl Iterator for Range {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.advance::<false>()?;
        Some(key.map(|key| (key, self.front.value())))
    }

    /// Reads keys alone.
    fn count(self) -> usize {
        self.keys().count()
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        let key = self.advance::<true>()?;
        Some(key.map(|key| (key, self.back.value())))
    }
}

impl Iterator for Keys {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.advance::<false>()
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.advance::<true>()
    }
}

impl FusedIterator for Range {}

impl FusedIterator for Keys {}

crate::types::debug_of! {
    [] Range, "Range";
    [] Keys, "Keys";
}
