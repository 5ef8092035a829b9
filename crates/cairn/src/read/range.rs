//! Iterators over a range of keys: two [`Cursor`]s of one [`ReadView`], one for each end, which stop where they meet.

use super::cursor::{Cursor, ReadView};
use crate::types::{Bounds, successor};
use base::planted::{Bug, planted};
use base::{Result, Slice};

/// A double-ended iterator over the entries of a range. An error is yielded once; then the iterator ends.
pub struct Range {
    /// The cursor of each end. `None` before its first use, and after a flush removed memtables: it is opened again then.
    front: Option<Cursor>,
    back: Option<Cursor>,
    /// The state that both cursors read. Dropped after the cursors, which borrow its sequence number.
    read_view: ReadView,
    bounds: Bounds,
    /// The key yielded last at each end: the other end stops there, and a reopened cursor goes on from there.
    front_key: Option<Slice>,
    back_key: Option<Slice>,
    done: bool,
}

impl Range {
    pub(crate) fn new(read_view: ReadView, bounds: Bounds) -> Range {
        Range { read_view, bounds, front: None, back: None, front_key: None, back_key: None, done: false }
    }

    fn open(&self) -> Cursor {
        Cursor::new(self.read_view.lend(), self.bounds.clone())
    }

    fn step_front(&mut self) -> Result<Option<(Slice, Slice)>> {
        let cursor = match &mut self.front {
            Some(cursor) => {
                cursor.next()?;
                cursor
            }
            None => {
                let cursor = self.open();
                let cursor = self.front.insert(cursor);
                match &self.front_key {
                    None => cursor.seek_to_first()?,
                    Some(key) => cursor.seek(successor(key))?,
                }
                cursor
            }
        };
        if cursor.generation != self.read_view.generation {
            self.read_view.renew();
            self.back = None;
        }
        if !cursor.valid() || self.back_key.as_ref().is_some_and(|back| cursor.key() >= &back[..]) {
            return Ok(None);
        }
        let entry = (Slice::copy_from(cursor.key()), cursor.value_slice());
        self.front_key = Some(entry.0.clone());
        Ok(Some(entry))
    }

    fn step_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        let cursor = match &mut self.back {
            Some(cursor) => {
                cursor.prev()?;
                cursor
            }
            None => {
                let cursor = self.open();
                let cursor = self.back.insert(cursor);
                match &self.back_key {
                    None => cursor.seek_to_last()?,
                    Some(key) => cursor.seek_backward(Some(key))?,
                }
                cursor
            }
        };
        if cursor.generation != self.read_view.generation {
            self.read_view.renew();
            self.front = None;
        }
        if !cursor.valid() || self.front_key.as_ref().is_some_and(|front| cursor.key() <= &front[..]) {
            return Ok(None);
        }
        let entry = (Slice::copy_from(cursor.key()), cursor.value_slice());
        self.back_key = Some(entry.0.clone());
        Ok(Some(entry))
    }

    fn finish(&mut self, step: Result<Option<(Slice, Slice)>>) -> Option<Result<(Slice, Slice)>> {
        let step = match step {
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
        if self.done {
            return None;
        }
        let step = self.step_front();
        self.finish(step)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step_back();
        self.finish(step)
    }
}
