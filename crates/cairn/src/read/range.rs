//! Iterators over a range of keys: two [`Cursor`]s of one [`ReadView`], one for each end, which stop where they meet.

use super::cursor::Cursor;
use super::read_view::ReadView;
use crate::types::{Bounds, successor};
use base::planted::{Bug, planted};
use base::{Result, Slice};

/// A double-ended iterator over the entries of a range. An error is yielded once; then the iterator ends.
pub struct Range {
    front: End,
    back: End,
    /// The state that both cursors read. Dropped after the cursors, which borrow its sequence number.
    read_view: ReadView,
    bounds: Bounds,
    done: bool,
}

#[derive(Default)]
struct End {
    /// `None` before its first use, and after a flush removed memtables: it is opened again then.
    cursor: Option<Cursor>,
    /// The key yielded last: the other end stops there, and a reopened cursor goes on from there.
    key: Option<Slice>,
}

impl Range {
    pub(crate) fn new(read_view: ReadView, bounds: Bounds) -> Range {
        Range { read_view, bounds, front: End::default(), back: End::default(), done: false }
    }

    fn step<const BACK: bool>(&mut self) -> Result<Option<(Slice, Slice)>> {
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
                let cursor = end.cursor.insert(Cursor::new(self.read_view.lend(), self.bounds.clone()));
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
        let entry = (Slice::copy_from(cursor.key()), cursor.value_slice());
        end.key = Some(entry.0.clone());
        Ok(Some(entry))
    }

    fn advance<const BACK: bool>(&mut self) -> Option<Result<(Slice, Slice)>> {
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
        self.advance::<false>()
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance::<true>()
    }
}
