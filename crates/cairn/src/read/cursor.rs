//! Cursors over a keyspace: they merge memtables and tables, and show the newest visible version of each key. Range tombstones are
//! applied by `range_del.rs`; runs of deleted entries are skipped with `deleted_run.rs`.

use super::deleted_run::DeletedRun;
use super::range_del::RangeDelFilter;
use super::read_cost::{SkipCounter, charge_skipped};
use super::read_view::{HeldSeq, ReadView, Source, sources};
use super::values_ahead::{At, ValuesAhead};
use crate::parts::{Operation, begin};
use crate::state::{Reader, expiry_of, split_value};
use crate::types::{Bounds, successor};
use base::planted::{Bug, planted};
use base::{Cursor as _, Error, Operands, Result, Seq, Slice, Time, same_key};
use tree::{MergeCursor, SkipCharge};

/// The value of an entry that the merge has moved past. Short values are copied: with values of 128 bytes in memory a backward scan is a
/// fifth faster than with a reference to the block for each entry.
#[derive(Default)]
struct Saved {
    copy: Vec<u8>,
    shared: Option<Slice>,
    /// Whether the value is a reference to the value.
    is_reference: bool,
    /// Whether it is an operand, which is not joined yet.
    is_operand: bool,
    expiry: Option<Time>,
    /// The sequence number of the entry.
    seq: Seq,
    /// Index of the source that has the entry.
    source: usize,
}

impl Saved {
    const MAX_COPIED: usize = 1 << 10;

    /// `tail_len`: bytes behind the value that are not part of it.
    fn set(&mut self, merge: &MergeCursor<Source>, tail_len: usize, expiry: Option<Time>) {
        let stored = merge.value();
        let trailer = merge.trailer();
        (self.is_reference, self.seq, self.source) = (trailer.is_reference(), trailer.seq(), merge.current());
        (self.expiry, self.is_operand) = (expiry, trailer.is_merge());
        let value = &stored[..stored.len() - tail_len];
        self.copy.clear();
        self.shared = (value.len() > Self::MAX_COPIED).then(|| shared_value(merge, tail_len));
        if self.shared.is_none() {
            self.copy.extend_from_slice(value);
        }
    }

    fn value(&self) -> &[u8] {
        self.shared.as_deref().unwrap_or(&self.copy)
    }

    fn slice(&self) -> Slice {
        self.shared.clone().unwrap_or_else(|| Slice::copy_from(&self.copy))
    }
}

/// The value on which the merge stands, without the `tail_len` bytes behind it.
fn shared_value(merge: &MergeCursor<Source>, tail_len: usize) -> Slice {
    let stored = merge.value_slice();
    match tail_len {
        0 => stored,
        _ => stored.slice_of(&stored[..stored.len() - tail_len]),
    }
}

/// Position of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not positioned, past an end, or failed.
    Invalid,
    /// On the entry that the merge stands on.
    Forward,
    /// On the saved entry; the merge stands on the last entry before all versions of its key.
    Backward,
    /// On the saved entry, which was joined of operands; the merge stands behind them.
    Joined,
}

/// A position among the entries of a keyspace, in a consistent state.
///
/// A new cursor is invalid until it is positioned. Moving past either end makes it invalid, and so does an error: position it again after
/// one.
///
/// ```
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = cairn::Database::open(dir.path())?;
/// # let ks = db.keyspace("k", cairn::KeyspaceOptions::default())?;
/// for key in ["a", "b", "c"] {
///     ks.put(key, "")?;
/// }
/// let mut cursor = ks.cursor();
/// cursor.seek("b")?;
/// cursor.next()?;
/// assert_eq!(cursor.key(), b"c");
/// cursor.prev()?;
/// assert_eq!(cursor.key(), b"b");
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    merge: MergeCursor<Source>,
    seq: Seq,
    bounds: Bounds,
    place: Place,
    /// The filter of range tombstones, if there are any.
    range_del: Option<Box<RangeDelFilter>>,
    /// Going forward: the key whose older versions are to be skipped. Going backward: the key of the saved entry.
    key: Vec<u8>,
    /// Going backward: the value of the saved entry.
    saved: Saved,
    /// Going forward: the value that the entry refers to.
    fetched: Option<Slice>,
    /// Going forward: the expiry of the entry.
    expiry: Option<Time>,
    /// Whether values are shown.
    shows_values: bool,
    ahead: ValuesAhead,
    skip_counter: SkipCounter,
    skip_charge: SkipCharge,
    run: DeletedRun,
    keyspace: HeldSeq,
    db: Reader,
    /// The flush generation of the keyspace when the sources were taken, or an earlier one.
    pub(crate) generation: u64,
    /// The error that every seek returns because the keyspace was dropped before the cursor was made.
    closed: Option<Error>,
}

impl Drop for Cursor {
    #[inline]
    fn drop(&mut self) {
        self.skip_charge.leave(&self.keyspace.charges);
        if planted(Bug::DeleteTablesAfterClose) {
            self.db.delete_obsolete_tables();
        }
    }
}

impl Cursor {
    /// A cursor over `read_view`. Without `shows_values` it shows keys alone, and reads no value outside of the tree.
    pub(crate) fn new(read_view: ReadView, bounds: Bounds, shows_values: bool) -> Cursor {
        let ReadView { keyspace, db, read_state, generation, closed } = read_view;
        let seq = keyspace.seq;
        let (merge, range_del) = sources(&read_state, &keyspace, &bounds, seq);
        Cursor {
            merge,
            seq,
            bounds,
            place: Place::Invalid,
            range_del,
            key: Vec::new(),
            saved: Saved::default(),
            fetched: None,
            expiry: None,
            shows_values,
            ahead: ValuesAhead::default(),
            skip_counter: SkipCounter::default(),
            skip_charge: SkipCharge::default(),
            run: DeletedRun::new(&keyspace.dead),
            keyspace,
            db,
            generation,
            closed,
        }
    }

    /// Takes the sources again if memtables were flushed since, which releases them. Returns whether it did: the sources are then
    /// unpositioned, and the caller has to position them.
    #[inline]
    fn renewed(&mut self) -> bool {
        self.keyspace.generation.get() != self.generation && self.renew()
    }

    #[cold]
    fn renew(&mut self) -> bool {
        self.generation = self.keyspace.generation.get();
        let Some(read_state) = self.keyspace.current_read_state() else { return false };
        if planted(Bug::MovedCursorReadsNewest) {
            self.seq = self.db.newest();
        }
        (self.merge, self.range_del) = sources(&read_state, &self.keyspace, &self.bounds, self.seq);
        self.ahead.end();
        true
    }

    /// Begins a move: the cursor is invalid until the move succeeds. Fails when the database is closed.
    #[inline]
    fn begin_move(&mut self) -> Result<Place> {
        let place = std::mem::replace(&mut self.place, Place::Invalid);
        self.db.check_not_closed()?;
        Ok(place)
    }

    /// Begins a seek, after which the caller positions the merge.
    fn begin_seek(&mut self) -> Result<()> {
        self.begin_move()?;
        self.renewed();
        self.ahead.end();
        self.closed.clone().map_or(Ok(()), Err)
    }

    /// Converts the error of a move: a concurrent close may have removed the files that it read.
    #[inline]
    fn moved(&self, outcome: Result<()>) -> Result<()> {
        outcome.map_err(|e| self.db.read_error(e))
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// As for [`Keyspace::get`](crate::Keyspace::get). The cursor is then invalid, and another seek may succeed, except after `Closed`.
    pub fn seek_to_first(&mut self) -> Result<()> {
        // Before the bounds are taken: taking the sources needs them.
        self.renewed();
        let from = std::mem::take(&mut self.bounds.from);
        let result = self.seek_forward(&from);
        self.bounds.from = from;
        result
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// As for [`Cursor::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        // Before the bounds are taken: taking the sources needs them.
        self.renewed();
        let to = self.bounds.to.take();
        let result = self.seek_backward(to.as_deref());
        self.bounds.to = to;
        result
    }

    /// Moves to the first entry at or after `key`.
    ///
    /// # Errors
    /// As for [`Cursor::seek_to_first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        match key < &self.bounds.from[..] {
            true => self.seek_to_first(),
            false => self.seek_forward(key),
        }
    }

    /// Moves to the last entry at or before `key`.
    ///
    /// # Errors
    /// As for [`Cursor::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        match self.bounds.is_before_end(key) {
            true => self.seek_backward(Some(&successor(key))),
            false => self.seek_to_last(),
        }
    }

    /// Moves to the last entry before `end`, which is within the bounds; `None` moves to the last entry.
    pub(crate) fn seek_backward(&mut self, end: Option<&[u8]>) -> Result<()> {
        let begun = begin();
        let result = self.look_backward(end);
        self.db.latency().end(Operation::Seek, begun);
        result
    }

    fn look_backward(&mut self, end: Option<&[u8]>) -> Result<()> {
        self.begin_seek()?;
        let dead = self.keyspace.dead_ranges().and_then(|dead| dead.before(end, self.seq));
        let end = match &dead {
            None => end,
            Some(dead) if dead.from[..] <= self.bounds.from[..] => return Ok(()),
            Some(dead) => {
                self.run.look_soon();
                Some(&dead.from[..])
            }
        };
        let sought = match end {
            None => self.merge.seek_to_last(),
            Some(end) => self.merge.seek_before(end),
        };
        let found = sought.and_then(|()| self.find_backward(Some(end)));
        self.moved(found)
    }

    fn seek_forward(&mut self, key: &[u8]) -> Result<()> {
        let begun = begin();
        let result = self.look_forward(key);
        self.db.latency().end(Operation::Seek, begun);
        result
    }

    fn look_forward(&mut self, key: &[u8]) -> Result<()> {
        self.begin_seek()?;
        let dead = self.keyspace.dead_ranges().and_then(|dead| dead.over(key, self.seq));
        let from = match &dead {
            None => key,
            Some(dead) => match dead.to.as_deref().filter(|to| self.bounds.is_before_end(to)) {
                None => return Ok(()),
                Some(to) => {
                    self.run.look_soon();
                    to
                }
            },
        };
        let sought = self.merge.seek(from, self.seq);
        let found = sought.and_then(|()| self.find_forward(false, Some(from)));
        self.moved(found)
    }

    /// Charges for a deleted entry, on which the merge stands and which the cursor skips.
    #[inline]
    fn charge_skip(&mut self) {
        if let Some(bytes) = self.skip_charge.skip(&self.keyspace.charges) {
            charge_skipped(bytes, &self.merge, &self.keyspace, &self.db);
        }
    }

    /// Moves one entry forward. The cursor must be valid.
    ///
    /// # Errors
    /// As for [`Cursor::seek_to_first`]; `InvalidArgument` when the cursor is not valid. After an error the cursor stays invalid until it
    /// is positioned again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        let stepped = match self.begin_move()? {
            Place::Invalid => return Err(invalid_move()),
            Place::Forward => {
                self.key.clear();
                self.key.extend_from_slice(self.merge.key());
                match self.renewed() {
                    false => self.merge.next(),
                    true => {
                        let sought = self.merge.seek(&self.key, 0);
                        let skips = planted(Bug::MovedCursorSkipsEntry) && self.merge.valid();
                        sought.and_then(|()| if skips { self.merge.next() } else { Ok(()) })
                    }
                }
            }
            // Past every version of the saved key.
            Place::Joined if !self.renewed() => Ok(()),
            Place::Backward | Place::Joined => {
                self.renewed();
                self.merge.seek(&self.key, 0)
            }
        };
        self.ahead.stepped = true;
        let found = stepped.and_then(|()| self.find_forward(true, None));
        self.moved(found)
    }

    /// Moves one entry back. The cursor must be valid.
    ///
    /// # Errors
    /// As for [`Cursor::next`].
    pub fn prev(&mut self) -> Result<()> {
        let stepped = match self.begin_move()? {
            Place::Invalid => return Err(invalid_move()),
            Place::Forward => {
                self.key.clear();
                self.key.extend_from_slice(self.merge.key());
                self.renewed();
                self.merge.seek_before(&self.key)
            }
            Place::Joined => {
                self.renewed();
                self.merge.seek_before(&self.key)
            }
            Place::Backward if self.renewed() => self.merge.seek_before(&self.key),
            Place::Backward => Ok(()),
        };
        self.ahead.stepped = true;
        let found = stepped.and_then(|()| self.find_backward(None));
        self.moved(found)
    }

    /// Finds the first key with a visible value from the merge's position on. `sought`: the key to which the merge was sent, if this is a
    /// seek. `skip`: versions of `self.key` are ignored.
    #[inline]
    fn find_forward(&mut self, skip: bool, sought: Option<&[u8]>) -> Result<()> {
        let found = self.walk_forward(skip);
        if self.run.has_begun() {
            self.end_run(sought.map(Some), found.is_ok(), false);
        }
        found?;
        match self.place == Place::Forward && self.has_expired(self.expiry) {
            true => self.pass_expired(false),
            false => Ok(()),
        }
    }

    /// Whether an entry at which the cursor has arrived has expired.
    #[inline]
    fn has_expired(&self, expiry: Option<Time>) -> bool {
        expiry.is_some_and(|expiry| expiry <= self.keyspace.now)
    }

    /// Goes on from an entry that has expired. It is not part of a dead range: a reader with an earlier clock sees it.
    #[cold]
    fn pass_expired(&mut self, backward: bool) -> Result<()> {
        loop {
            self.place = Place::Invalid;
            let walked = match backward {
                false => {
                    self.charge_skip();
                    self.key.clear();
                    self.key.extend_from_slice(self.merge.key());
                    self.merge.next()?;
                    self.walk_forward(true)
                }
                true => self.walk_backward(),
            };
            if self.run.has_begun() {
                self.end_run(None, walked.is_ok(), backward);
            }
            walked?;
            let expiry = match self.place {
                Place::Invalid => return Ok(()),
                Place::Forward => self.expiry,
                Place::Backward | Place::Joined => self.saved.expiry,
            };
            if !self.has_expired(expiry) {
                return Ok(());
            }
        }
    }

    /// Finds and saves the last key with a visible value at or before the merge's position. `sought`: the exclusive bound of a backward
    /// seek.
    #[inline]
    fn find_backward(&mut self, sought: Option<Option<&[u8]>>) -> Result<()> {
        let found = self.walk_backward();
        if self.run.has_begun() {
            self.end_run(sought, found.is_ok(), true);
        }
        found?;
        let is_shown = planted(Bug::ShowExpiredBackward);
        match self.place == Place::Backward && self.has_expired(self.saved.expiry) && !is_shown {
            true => self.pass_expired(true),
            false => Ok(()),
        }
    }

    #[cold]
    fn end_run(&mut self, sought: Option<Option<&[u8]>>, is_known: bool, backward: bool) {
        let behind;
        let bound = match self.place {
            Place::Forward => Some(self.merge.key()),
            Place::Joined => Some(&self.key[..]),
            Place::Backward => {
                behind = successor(&self.key);
                Some(&behind[..])
            }
            Place::Invalid if backward => Some(&self.bounds.from[..]),
            Place::Invalid => self.bounds.to.as_deref(),
        };
        let seq = is_known.then_some(self.seq);
        self.run.end(seq, sought, bound, backward, &self.keyspace, &self.db);
    }

    /// Called on a deleted entry: skips the dead range there, if one is known. Returns whether the merge moved; `None` when the dead
    /// range extends to the bound of the cursor.
    #[inline]
    fn leave_out(&mut self, backward: bool) -> Result<Option<bool>> {
        match self.run.pass() {
            true => self.leave_out_dead(backward),
            false => Ok(Some(false)),
        }
    }

    #[cold]
    fn leave_out_dead(&mut self, backward: bool) -> Result<Option<bool>> {
        let dead = self.run.look(self.merge.key(), self.seq, &self.keyspace.dead);
        let Some(dead) = dead.filter(|_| self.keyspace.dead_ranges().is_some()) else {
            return Ok(Some(false));
        };
        match (&dead.to, backward) {
            (_, true) if dead.from[..] > self.bounds.from[..] => self.merge.seek_before(&dead.from)?,
            (Some(to), false) if self.bounds.is_before_end(to) => self.merge.seek(to, self.seq)?,
            _ => return Ok(None),
        }
        Ok(Some(true))
    }

    fn walk_forward(&mut self, mut skip: bool) -> Result<()> {
        while self.merge.valid() {
            let (key, trailer) = (self.merge.key(), self.merge.trailer());
            if !self.bounds.is_before_end(key) {
                return Ok(());
            }
            if trailer.seq() <= self.seq && !(skip && same_key(key, &self.key)) {
                if self.range_del.as_mut().is_some_and(|range_del| range_del.hides(key, trailer.seq())) {
                    self.charge_skip();
                    match (self.leave_out(false)?, &mut self.range_del) {
                        (None, _) => return Ok(()),
                        (Some(false), Some(range_del)) => range_del.pass(&mut self.merge)?,
                        _ => {}
                    }
                    continue;
                }
                if trailer.is_merge() && self.shows_values {
                    return self.arrive_at_operands();
                }
                if !trailer.is_delete() {
                    (self.expiry, self.fetched) = (None, None);
                    if trailer.expires() {
                        self.expiry = Some(expiry_of(self.merge.value())?);
                    }
                    if trailer.is_reference() && self.shows_values && !self.has_expired(self.expiry) {
                        self.fetched = Some(self.fetch(false)?);
                    }
                    self.place = Place::Forward;
                    return Ok(());
                }
                self.key.clear();
                self.key.extend_from_slice(key);
                skip = true;
                match self.leave_out(false)? {
                    None => return Ok(()),
                    Some(true) => continue,
                    Some(false) => {}
                }
            }
            // An entry newer than `self.seq` may be followed by older, visible versions.
            let (is_new, behind) = match trailer.seq() <= self.seq {
                true => (false, 0),
                false => (true, self.seq),
            };
            if !is_new && trailer.is_delete() {
                self.charge_skip();
            }
            match self.skip_counter.on(self.merge.key()) {
                true => self.merge.seek_current(&self.skip_counter.key, behind)?,
                false => self.merge.next()?,
            }
        }
        Ok(())
    }

    /// Versions of a key come oldest first in this direction, so the newest visible one is known only when the previous key is reached.
    fn walk_backward(&mut self) -> Result<()> {
        let mut found = false;
        while self.merge.valid() {
            let (key, trailer) = (self.merge.key(), self.merge.trailer());
            if found && !same_key(key, &self.key) {
                break;
            }
            if self.bounds.is_before_start(key) {
                break;
            }
            let is_seen = trailer.seq() <= self.seq;
            if is_seen {
                if self.range_del.as_mut().is_some_and(|range_del| range_del.hides(key, trailer.seq())) {
                    // Newer versions of this key may follow; a saved entry of the key is no longer valid.
                    found = false;
                    self.charge_skip();
                    match (self.leave_out(true)?, &mut self.range_del) {
                        (None, _) => return Ok(()),
                        (Some(false), Some(range_del)) => range_del.pass_back(&mut self.merge)?,
                        _ => {}
                    }
                    continue;
                }
                found = self.save()?;
                if !found {
                    self.charge_skip();
                    match self.leave_out(true)? {
                        None => return Ok(()),
                        Some(true) => continue,
                        Some(false) => {}
                    }
                }
            }
            // Of the versions of a key in one run the newest visible one decides; those after it in this direction are too new.
            match self.skip_counter.on(self.merge.key()) {
                true => self.merge.seek_current_back(&self.skip_counter.key, is_seen.then_some(self.seq))?,
                false => self.merge.prev()?,
            }
        }
        if found && self.saved.is_operand && self.shows_values {
            return self.arrive_backward_at_operands();
        }
        let is_seen = !self.has_expired(self.saved.expiry);
        if found && self.saved.is_reference && self.shows_values && is_seen {
            self.saved.shared = Some(self.fetch(true)?);
        }
        self.place = if found { Place::Backward } else { Place::Invalid };
        Ok(())
    }

    /// The merge stands on the newest entry of a key that the cursor sees, which is an operand: joins it with what is below it, and saves the
    /// result. The merge moves behind what was joined.
    #[cold]
    fn arrive_at_operands(&mut self) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(self.merge.key());
        let mut operands = Operands::default();
        let mut base = None;
        self.saved.expiry = None;
        while self.merge.valid() && same_key(self.merge.key(), &self.key) {
            let trailer = self.merge.trailer();
            let is_deleted =
                self.range_del.as_mut().is_some_and(|range_del| range_del.hides(&self.key, trailer.seq()));
            if is_deleted || trailer.is_delete() {
                break;
            }
            if !trailer.is_merge() {
                let stored = self.merge.value_slice();
                let (value, expiry) = split_value(trailer, &stored)?;
                if !self.has_expired(expiry) {
                    let value = stored.slice_of(value);
                    base =
                        Some(if trailer.is_reference() { self.keyspace.read_value(&value)? } else { value });
                    self.saved.expiry = expiry;
                }
                break;
            }
            self.keyspace.add_operand(&mut operands, &self.key, trailer, self.merge.value())?;
            // As a deleted entry that is skipped: a flush joins it. What a compaction would is not known.
            if let Source::Memtable(_) = &self.merge.children()[self.merge.current()] {
                self.charge_skip();
            }
            self.merge.next()?;
        }
        let joined = operands.fold(self.keyspace.known_operator()?, &self.key, base.as_deref())?;
        self.saved.shared = Some(joined.into());
        self.saved.is_operand = false;
        self.place = Place::Joined;
        Ok(())
    }

    /// The same when the newest entry was found going backward. The merge moves before the key.
    #[cold]
    fn arrive_backward_at_operands(&mut self) -> Result<()> {
        let key = std::mem::take(&mut self.key);
        self.merge.seek(&key, self.seq)?;
        self.arrive_at_operands()?;
        self.place = Place::Invalid;
        self.merge.seek_before(&key)?;
        self.place = Place::Backward;
        Ok(())
    }

    /// The value that the entry refers to at which the cursor has arrived.
    fn fetch(&mut self, backward: bool) -> Result<Slice> {
        let (key, entry_seq, reference, source) = match backward {
            false => (self.merge.key(), self.merge.trailer().seq(), self.merge.value(), self.merge.current()),
            true => (&self.key[..], self.saved.seq, self.saved.value(), self.saved.source),
        };
        let segments = &self.keyspace.segments;
        let reference = segments.decode(reference)?;
        let tried = !self.ahead.runs(backward);
        if tried && let Some(value) = segments.try_read(&reference) {
            return Ok(value);
        }
        let (seq, bounds, keyspace) = (self.seq, &self.bounds, &self.keyspace);
        self.ahead.arrive(&At { key, entry_seq, backward, seq, bounds, keyspace });
        if self.ahead.stepped
            && let Some(Source::Tree(source)) = self.merge.children().get(source)
        {
            source.charge_value(reference.len, &self.keyspace.charges);
        }
        segments.read_waiting(&reference, tried)
    }

    /// Saves the entry at the merge's position unless it is a tombstone; returns whether it did.
    #[inline]
    fn save(&mut self) -> Result<bool> {
        if self.merge.trailer().is_delete() {
            return Ok(false);
        }
        let trailer = self.merge.trailer();
        let expiry = if trailer.expires() { Some(expiry_of(self.merge.value())?) } else { None };
        self.key.clear();
        self.key.extend_from_slice(self.merge.key());
        self.saved.set(&self.merge, self.keyspace.tail_of(trailer), expiry);
        Ok(true)
    }

    /// Whether the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.place != Place::Invalid
    }

    /// The key of the entry.
    ///
    /// # Panics
    /// When the cursor is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.place {
            Place::Forward => self.merge.key(),
            Place::Backward | Place::Joined => &self.key,
            Place::Invalid => panic!("the cursor is not valid"),
        }
    }

    /// The value of the entry.
    ///
    /// # Panics
    /// When the cursor is not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.place {
            Place::Forward => self.fetched.as_deref().unwrap_or_else(|| {
                let stored = self.merge.value();
                // Long enough: the cursor has checked that on its arrival.
                &stored[..stored.len() - self.keyspace.tail_of(self.merge.trailer())]
            }),
            Place::Backward | Place::Joined => self.saved.value(),
            Place::Invalid => panic!("the cursor is not valid"),
        }
    }

    /// When the entry expires, if it does: see [`Keyspace::put_with_ttl`](crate::Keyspace::put_with_ttl).
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn expiry(&self) -> Option<Time> {
        match self.place {
            Place::Forward => self.expiry,
            Place::Backward | Place::Joined => self.saved.expiry,
            Place::Invalid => panic!("the cursor is not valid"),
        }
    }

    /// The value as a slice that outlives the cursor. It is not copied when it lies in a cached block, except for short values of a
    /// cursor that moves backward.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn value_slice(&self) -> Slice {
        match self.place {
            Place::Forward => {
                let tail_len = || self.keyspace.tail_of(self.merge.trailer());
                self.fetched.clone().unwrap_or_else(|| shared_value(&self.merge, tail_len()))
            }
            Place::Backward | Place::Joined => self.saved.slice(),
            Place::Invalid => panic!("the cursor is not valid"),
        }
    }
}

fn invalid_move() -> base::Error {
    base::Error::invalid("a cursor that is not valid cannot move: position it first")
}

crate::types::debug_of! {
    [] Cursor, "Cursor", key: |cursor| cursor.valid().then(|| Slice::copy_from(cursor.key()));
}
