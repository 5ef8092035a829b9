//! Compaction filters: a function of the application that decides about entries as compactions meet them.

use super::job::JobContext;
use base::expiry::{MAX_EXPIRING_LEN, expiry_bytes, split_expiry};
use base::limits::MAX_VALUE_LEN;
use base::planted::{Bug, planted};
use base::{
    Cursor, Error, ErrorKind, MAX_SEQ, RangeSet, Reference, Result, Seq, Slice, Time, Trailer, same_key,
};
use std::cell::OnceCell;
use values::Segments;

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterDecision {
    /// It stays as it is.
    Keep,
    /// It is deleted.
    Drop,
    /// It gets this value. Its expiry stays.
    Replace(Vec<u8>),
}

/// Decides about the entries of a keyspace, as its compactions meet them. A closure of the type `Fn(&FilterEntry) -> Result<FilterDecision>` is
/// one.
///
/// It is called on the threads that compact, several at once, and a compaction goes on only when it has returned. It must not call the database. If
/// it panics, the database stops writing, as after a panic of its own.
pub trait CompactionFilter: Send + Sync {
    /// Decides about an entry. An error leaves the entry as it is; it is logged, and the compaction goes on.
    fn filter(&self, entry: &FilterEntry<'_>) -> Result<FilterDecision>;
}

impl<F: Fn(&FilterEntry<'_>) -> Result<FilterDecision> + Send + Sync> CompactionFilter for F {
    fn filter(&self, entry: &FilterEntry<'_>) -> Result<FilterDecision> {
        self(entry)
    }
}

/// An entry that a [`CompactionFilter`] decides about.
pub struct FilterEntry<'a> {
    key: &'a [u8],
    expiry: Option<Time>,
    value: Value<'a>,
}

enum Value<'a> {
    Here(&'a [u8]),
    /// Outside of the tree. It is read when it is asked for.
    At(Reference, Option<&'a Segments>, OnceCell<Slice>),
}

impl<'a> FilterEntry<'a> {
    fn new(
        key: &'a [u8],
        trailer: Trailer,
        stored: &'a [u8],
        segments: Option<&'a Segments>,
    ) -> Result<Self> {
        let (stored, expiry) = match trailer.expires() {
            true => {
                split_expiry(stored).map(|(value, expiry)| (value, Some(expiry))).ok_or_else(malformed)?
            }
            false => (stored, None),
        };
        let value = match trailer.is_reference() {
            true => Value::At(Reference::decode(stored).ok_or_else(malformed)?, segments, OnceCell::new()),
            false => Value::Here(stored),
        };
        Ok(FilterEntry { key, expiry, value })
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// Its value. A large one that is outside of the tree (`placement`) is read from the disk, once.
    ///
    /// # Errors
    /// Those of reading such a value.
    pub fn value(&self) -> Result<&[u8]> {
        match &self.value {
            Value::Here(value) => Ok(value),
            Value::At(reference, segments, read) => match read.get() {
                Some(value) => Ok(value),
                None => {
                    let value = segments.ok_or_else(malformed)?.read(reference)?;
                    Ok(read.get_or_init(|| value))
                }
            },
        }
    }

    /// The length of its value, which is not read for this.
    pub fn value_len(&self) -> usize {
        match &self.value {
            Value::Here(value) => value.len(),
            Value::At(reference, ..) => reference.len as usize,
        }
    }

    /// When it expires, if it does.
    pub fn expiry(&self) -> Option<Time> {
        self.expiry
    }

    /// Bytes that were read outside of the tree.
    fn read_bytes(&self) -> u64 {
        match &self.value {
            Value::At(reference, _, read) if read.get().is_some() => reference.len.into(),
            _ => 0,
        }
    }
}

#[cold]
fn malformed() -> Error {
    Error::new(ErrorKind::Corruption, "an entry of a compaction is malformed")
}

/// What a filter has done in a job.
#[derive(Debug, Default)]
pub struct Filtered {
    /// Entries that it has dropped.
    pub dropped: u64,
    /// Entries that got another value.
    pub replaced: u64,
    /// Bytes of values outside of the tree that it has read.
    pub values_read: u64,
    /// Its first error.
    pub error: Option<Error>,
}

/// A cursor over the entries of a merge as a filter leaves them: a dropped one is a tombstone. Reads forward only.
///
/// The filter sees the newest version of each key in the merge, unless it is deleted, has expired, or a listed reader sees it.
pub(super) struct FilteredCursor<'a, C> {
    cursor: &'a mut C,
    filter: &'a dyn CompactionFilter,
    segments: Option<&'a Segments>,
    range_tombstones: &'a RangeSet,
    expired_by: Time,
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
        context: &JobContext<'a>,
    ) -> Self {
        let newest_reader = context.snapshots.last().copied().filter(|_| !planted(Bug::FilterDespiteReaders));
        FilteredCursor {
            cursor,
            filter,
            segments,
            range_tombstones: context.range_tombstones,
            expired_by: context.expired_by,
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
        let is_hidden = || {
            !self.range_tombstones.is_empty() && self.range_tombstones.newest(key, MAX_SEQ) > trailer.seq()
        };
        if is_seen || trailer.is_delete() || is_hidden() {
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
        if entry.expiry.is_some_and(|expiry| expiry <= self.expired_by) {
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
                let limit = if entry.expiry.is_some() { MAX_EXPIRING_LEN } else { MAX_VALUE_LEN };
                if value.len() > limit {
                    let what =
                        format!("a value may have {limit} bytes; a filter gave one of {}", value.len());
                    return Err(Error::invalid(what));
                }
                if let Some(expiry) = entry.expiry {
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
