//! Requests the values outside of the tree that a cursor will come to ([`ValuesAhead`]), so that the disk works on many of them at once.
//!
//! A cursor that walks along entries whose values are not in memory would wait for each of them in turn. So when it has to wait, a second
//! merge of the same sources runs ahead of it, reads keys and references, and asks for the values. What it asks for is a hint: values of
//! entries that the cursor does not show, such as those under a range tombstone, are read in vain, and nothing else.

use super::read_view::{HeldSeq, Source, sources};
use crate::types::Bounds;
use base::{Cursor as _, Reference, Result, Seq, compare_keys, same_key};
use std::collections::VecDeque;
use tree::MergeCursor;

/// The number of values that are requested first. Each time half of them is used up, twice as many are, up to [`MAX_WINDOW`].
const MIN_WINDOW: usize = 16;

/// Maximum number of values that are requested and not reached yet. A disk gains little from more.
const MAX_WINDOW: usize = 128;

/// No more values are requested when those that are requested and not reached yet have so many bytes: more might be dropped from memory
/// before they are used.
const MAX_BYTES: u64 = 2 << 20;

/// The merge makes at most this many steps for each value to be requested: a run of deleted entries does not hold the cursor up.
const STEPS_EACH: usize = 4;

/// The values ahead of a cursor.
#[derive(Default)]
pub(super) struct ValuesAhead {
    /// What runs ahead; `None` until the cursor has waited.
    merge: Option<Box<MergeCursor<Source>>>,
    backward: bool,
    /// The cursor has come to the entry on which it stands from the one beside it. After a seek, no other value may be needed.
    pub stepped: bool,
    /// Far ahead there was no value to request: the merge would run through all entries for nothing. Its tables may be newer than those of
    /// the cursor, and have values in place that those do not.
    found_none: bool,
    /// The number of values to be requested and not reached yet.
    window: usize,
    /// Sequence numbers and lengths of the values that are requested and not reached yet, in the order of the merge. Some may be of entries
    /// that the cursor does not show.
    requested: VecDeque<(Seq, u32)>,
    /// The sum of these lengths.
    bytes: u64,
    /// The key that the merge has reached.
    key: Vec<u8>,
    wanted: Vec<Reference>,
}

/// Where a cursor is.
pub(super) struct At<'a> {
    pub key: &'a [u8],
    /// The sequence number of the entry.
    pub entry_seq: Seq,
    pub backward: bool,
    pub seq: Seq,
    pub bounds: &'a Bounds,
    pub keyspace: &'a HeldSeq,
}

impl ValuesAhead {
    /// Ends the requests: the cursor seeks, or takes its sources again.
    #[inline]
    pub(super) fn end(&mut self) {
        (self.stepped, self.found_none) = (false, false);
        self.merge = None;
    }

    /// Whether values in this direction are being requested.
    #[inline]
    pub(super) fn runs(&self, backward: bool) -> bool {
        self.merge.is_some() && self.backward == backward
    }

    /// The cursor has arrived at a value that was requested or that is not in memory: requests those behind it.
    pub(super) fn arrive(&mut self, at: &At<'_>) {
        if !self.stepped || self.found_none {
            return;
        }
        if !self.runs(at.backward) {
            (self.merge, self.backward, self.window) = (None, at.backward, MIN_WINDOW / 2);
        }
        self.reach(at.entry_seq);
        let is_low = self.requested.len() <= self.window / 2 && self.bytes <= MAX_BYTES / 2;
        if is_low && self.request(at).is_err() {
            // The cursor meets the error itself when it comes there.
            self.merge = None;
        }
    }

    /// Forgets the requests up to that of the entry with this sequence number: all, if it was not requested, because the cursor has then
    /// overtaken the merge.
    fn reach(&mut self, seq: Seq) {
        while let Some((reached, len)) = self.requested.pop_front() {
            self.bytes -= u64::from(len);
            if reached == seq {
                break;
            }
        }
    }

    fn request(&mut self, at: &At<'_>) -> Result<()> {
        let is_new = self.merge.is_none();
        let merge = match &mut self.merge {
            Some(merge) => merge,
            None => {
                let Some(read_state) = at.keyspace.current_read_state() else { return Ok(()) };
                let (merge, _) = sources(&read_state, at.keyspace, at.bounds, at.seq);
                self.merge.insert(Box::new(merge))
            }
        };
        let is_behind = match at.backward {
            false => compare_keys(&self.key, at.key).is_lt(),
            true => compare_keys(&self.key, at.key).is_gt(),
        };
        if is_new || is_behind {
            match at.backward {
                false => merge.seek(at.key, 0)?,
                true => merge.seek_before(at.key)?,
            }
            self.key.clear();
            self.key.extend_from_slice(at.key);
            self.requested.clear();
            self.bytes = 0;
        }
        self.window = (2 * self.window).min(MAX_WINDOW);
        let mut steps = STEPS_EACH * self.window;
        let (mut newest, mut is_known) = (None::<(Seq, Reference)>, true);
        let mut want = |newest: Option<(Seq, Reference)>| {
            if let Some((seq, reference)) = newest {
                self.requested.push_back((seq, reference.len));
                self.bytes += u64::from(reference.len);
                self.wanted.push(reference);
            }
            self.requested.len() < self.window && self.bytes < MAX_BYTES
        };
        while merge.valid() && steps > 0 {
            let (key, trailer) = (merge.key(), merge.trailer());
            if !at.bounds.is_before_end(key) || at.bounds.is_before_start(key) {
                break;
            }
            if !same_key(key, &self.key) {
                if !want(newest.take()) {
                    break;
                }
                self.key.clear();
                self.key.extend_from_slice(key);
                is_known = false;
            }
            // Going backward, the newest version comes last.
            if trailer.seq() <= at.seq && (at.backward || !is_known) {
                is_known = true;
                let reference = if trailer.is_reference() { Reference::decode(merge.value()) } else { None };
                newest = reference.map(|reference| (trailer.seq(), reference));
            }
            if at.backward {
                merge.prev()?
            } else {
                merge.next()?
            }
            steps -= 1;
        }
        want(newest);
        self.found_none = self.requested.is_empty() && steps == 0;
        if self.found_none {
            self.merge = None;
        }
        at.keyspace.segments.request(&mut self.wanted);
        Ok(())
    }
}
