//! [`FilteredCursor`]: the entries of a compaction as its filter leaves them.

use super::filter::{FilterDecision, FilterEntry, Filtered, JobFilter, malformed};
use super::job::JobContext;
use base::expiry::{EXPIRY_LEN, without_expiry};
use base::limits::MAX_VALUE_LEN;
use base::planted::{Bug, planted};
use base::{Cursor, Error, MAX_SEQ, Result, Seq, Time, Trailer, same_key};
use values::Segments;

/// A cursor over the entries of a merge as a filter leaves them: a dropped one is a tombstone. Reads forward only.
///
/// The filter sees the newest version of each key in the merge, in a tree of versions all of them, unless it is deleted, has expired, is an operand whose
/// value is elsewhere, or a listed reader sees it.
pub(super) struct FilteredCursor<'a, C> {
    cursor: &'a mut C,
    filter: JobFilter<'a>,
    segments: Option<&'a Segments>,
    context: &'a JobContext<'a>,
    /// Readers see entries up to this number.
    newest_reader: Option<Seq>,
    /// What the entry that is shown has become.
    changed: Option<Changed>,
    last_key: Option<Vec<u8>>,
    /// The time of the last version.
    last_time: Time,
    /// The key of a version.
    key: Vec<u8>,
    pub(super) done: Filtered,
}

struct Changed {
    trailer: Trailer,
    /// Its new value with what is behind it, or what is stored with a tombstone.
    stored: Vec<u8>,
}

impl<'a, C: Cursor> FilteredCursor<'a, C> {
    pub(super) fn new(
        cursor: &'a mut C,
        filter: JobFilter<'a>,
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
            last_time: Time::MIN,
            key: Vec::new(),
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
        let is_older = self.last_key.as_ref().is_some_and(|last| same_key(key, last));
        let mut is_delete = false;
        match self.filter.versions {
            None if is_older => return,
            None => {}
            Some(versions) => {
                // Older versions are entries of their own, but not what was replaced by another write at the same time. (Malformed entries are found by
                // what writes them.)
                self.key.clear();
                let stored = without_expiry(trailer, self.cursor.value()).map(|(stored, _)| stored);
                let version = stored.and_then(|stored| versions.split(key, stored, &mut self.key));
                let Some(version) = version else { return };
                if is_older && self.last_time == version.time {
                    return;
                }
                (self.last_time, is_delete) = (version.time, version.is_delete);
            }
        }
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        let is_seen = self.newest_reader.is_some_and(|reader| trailer.seq() <= reader);
        let ranges = self.context.range_tombstones;
        let is_hidden = || !ranges.is_empty() && ranges.newest(key, MAX_SEQ) > trailer.seq();
        if is_seen || is_delete || trailer.is_delete() || trailer.is_merge() || is_hidden() {
            return;
        }
        match self.decide() {
            Ok(changed) => self.changed = changed,
            Err(e) => _ = self.done.error.get_or_insert(e),
        }
    }

    fn decide(&mut self) -> Result<Option<Changed>> {
        let (stored_key, trailer) = (self.cursor.key(), self.cursor.trailer());
        let (stored, expiry) = without_expiry(trailer, self.cursor.value()).ok_or_else(malformed)?;
        if expiry.is_some_and(|expiry| expiry <= self.context.expired_by) {
            return Ok(None);
        }
        let JobFilter { filter, versions, operator } = self.filter;
        let (key, value, time) = match versions {
            None => (stored_key, stored, None),
            Some(versions) => {
                self.key.clear();
                let version = versions.split(stored_key, stored, &mut self.key).ok_or_else(malformed)?;
                (&self.key[..], version.value, Some(version.time))
            }
        };
        let entry = FilterEntry::new(key, (time, expiry), trailer.is_reference(), value, self.segments)?;
        let decision = filter.filter(&entry);
        self.done.values_read += entry.read_bytes();
        Ok(match decision? {
            FilterDecision::Keep => None,
            FilterDecision::Drop => {
                let mut left = Vec::new();
                let trailer = match versions {
                    None => trailer.as_delete(),
                    Some(versions) => {
                        versions.put_delete(stored_key, trailer, stored, &mut left).ok_or_else(malformed)?
                    }
                };
                self.done.dropped += 1;
                Some(Changed { trailer, stored: left })
            }
            FilterDecision::Replace(new) => {
                if let Some(operator) = operator {
                    operator.check(&new)?;
                }
                let limit = versions.map_or(MAX_VALUE_LEN, |versions| versions.max_value_len())
                    - if expiry.is_some() { EXPIRY_LEN } else { 0 };
                if new.len() > limit {
                    let what = format!("a value may have {limit} bytes; a filter gave one of {}", new.len());
                    return Err(Error::invalid(what));
                }
                let mut left = new;
                left.extend_from_slice(&self.cursor.value()[value.len()..]);
                self.done.replaced += 1;
                Some(Changed { trailer: trailer.with_reference(false), stored: left })
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
        self.changed.as_ref().map_or_else(|| self.cursor.trailer(), |changed| changed.trailer)
    }

    fn value(&self) -> &[u8] {
        self.changed.as_ref().map_or_else(|| self.cursor.value(), |changed| &changed.stored)
    }
}
