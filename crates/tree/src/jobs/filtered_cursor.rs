//! [`FilteredCursor`]: the entries of a compaction as its filter leaves them.

use super::filter::{CompactionFilter, FilterDecision, FilterEntry, Filtered};
use super::job::JobContext;
use base::expiry::{MAX_EXPIRING_LEN, expiry_bytes};
use base::limits::MAX_VALUE_LEN;
use base::planted::{Bug, planted};
use base::{Cursor, Error, MAX_SEQ, Result, Seq, Trailer, same_key};
use values::Segments;

/// A cursor over the entries of a merge as a filter leaves them: a dropped one is a tombstone. Reads forward only.
///
/// The filter sees the newest version of each key in the merge, unless it is deleted, has expired, is an operand whose value is elsewhere, or
/// a listed reader sees it.
pub(super) struct FilteredCursor<'a, C> {
    cursor: &'a mut C,
    filter: &'a dyn CompactionFilter,
    segments: Option<&'a Segments>,
    context: &'a JobContext<'a>,
    /// Readers see entries up to this number.
    newest_reader: Option<Seq>,
    /// What the entry that is shown has become.
    changed: Option<Changed>,
    last_key: Option<Vec<u8>>,
    pub(super) done: Filtered,
}

enum Changed {
    Dropped,
    /// With its new value, and its expiry.
    Replaced(Vec<u8>),
}

impl<'a, C: Cursor> FilteredCursor<'a, C> {
    pub(super) fn new(
        cursor: &'a mut C,
        filter: &'a dyn CompactionFilter,
        segments: Option<&'a Segments>,
        context: &'a JobContext<'a>,
    ) -> Self {
        let newest_reader = context.snapshots.last().copied().filter(|_| !planted(Bug::FilterDespiteReaders));
        FilteredCursor {
            cursor,
            filter,
            segments,
            context,
            newest_reader,
            changed: None,
            last_key: None,
            done: Filtered::default(),
        }
    }

    /// Asks the filter about the entry that is shown.
    fn arrive(&mut self) {
        self.changed = None;
        if !self.cursor.valid() {
            return;
        }
        let (key, trailer) = (self.cursor.key(), self.cursor.trailer());
        if self.last_key.as_ref().is_some_and(|last| same_key(key, last)) {
            return;
        }
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        let is_seen = self.newest_reader.is_some_and(|reader| trailer.seq() <= reader);
        let ranges = self.context.range_tombstones;
        let is_hidden = || !ranges.is_empty() && ranges.newest(key, MAX_SEQ) > trailer.seq();
        if is_seen || trailer.is_delete() || trailer.is_merge() || is_hidden() {
            return;
        }
        match self.decide() {
            Ok(changed) => self.changed = changed,
            Err(e) => _ = self.done.error.get_or_insert(e),
        }
    }

    fn decide(&mut self) -> Result<Option<Changed>> {
        let (key, trailer) = (self.cursor.key(), self.cursor.trailer());
        let entry = FilterEntry::new(key, trailer, self.cursor.value(), self.segments)?;
        if entry.expiry().is_some_and(|expiry| expiry <= self.context.expired_by) {
            return Ok(None);
        }
        let decision = self.filter.filter(&entry);
        self.done.values_read += entry.read_bytes();
        Ok(match decision? {
            FilterDecision::Keep => None,
            FilterDecision::Drop => {
                self.done.dropped += 1;
                Some(Changed::Dropped)
            }
            FilterDecision::Replace(mut value) => {
                if let Some(operator) = self.context.operator {
                    operator.check(&value)?;
                }
                let limit = if entry.expiry().is_some() { MAX_EXPIRING_LEN } else { MAX_VALUE_LEN };
                if value.len() > limit {
                    let what =
                        format!("a value may have {limit} bytes; a filter gave one of {}", value.len());
                    return Err(Error::invalid(what));
                }
                if let Some(expiry) = entry.expiry() {
                    value.extend_from_slice(&expiry_bytes(expiry));
                }
                self.done.replaced += 1;
                Some(Changed::Replaced(value))
            }
        })
    }
}

impl<C: Cursor> Cursor for FilteredCursor<'_, C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.last_key = None;
        self.cursor.seek_to_first()?;
        self.arrive();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        // A filter may take long, and read much.
        self.context.check_cancelled()?;
        self.arrive();
        Ok(())
    }

    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn trailer(&self) -> Trailer {
        let trailer = self.cursor.trailer();
        match &self.changed {
            None => trailer,
            Some(Changed::Dropped) => trailer.as_delete(),
            Some(Changed::Replaced(_)) => trailer.with_reference(false),
        }
    }

    fn value(&self) -> &[u8] {
        match &self.changed {
            None => self.cursor.value(),
            Some(Changed::Dropped) => &[],
            Some(Changed::Replaced(value)) => value,
        }
    }
}
