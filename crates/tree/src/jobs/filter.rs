//! Compaction filters: a function of the application that decides about entries as compactions meet them.

use base::{Error, ErrorKind, MergeOperator, Reference, Result, Slice, Time, Trailer};
use std::cell::OnceCell;
use values::Segments;

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterDecision {
    /// It stays as it is.
    Keep,
    /// It is deleted. In a keyspace with history, a version becomes a delete at its time.
    Drop,
    /// It gets this value. Its time and its expiry stay.
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

/// The filter of a job.
#[derive(Clone, Copy)]
pub struct JobFilter<'a> {
    /// It decides about entries that no reader sees which the job knows.
    pub filter: &'a dyn CompactionFilter,
    /// How the tree stores versions; `None` if its entries are none.
    pub versions: Option<&'a dyn StoredVersions>,
    /// What checks new values, where values are joined.
    pub operator: Option<&'a dyn MergeOperator>,
}

/// A version that was taken apart.
pub struct StoredVersion<'a> {
    /// The value, or the reference to it.
    pub value: &'a [u8],
    /// Its time.
    pub time: Time,
    /// Whether it is a delete by what is stored. (By its trailer it may be one, too.)
    pub is_delete: bool,
}

/// How a tree stores versions: what is behind an entry that a filter decides about, where that is not a key with a value alone.
pub trait StoredVersions: Sync {
    /// Takes a version apart, and appends its key to `key`. `stored` is without an expiry. `None` if it is malformed.
    fn split<'a>(&self, stored_key: &[u8], stored: &'a [u8], key: &mut Vec<u8>) -> Option<StoredVersion<'a>>;

    /// Appends what is stored of a version that has become a delete, and returns its trailer. `trailer` and `stored` are those of the version; the latter
    /// without an expiry.
    fn put_delete(
        &self,
        stored_key: &[u8],
        trailer: Trailer,
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Trailer>;

    /// Maximum length of a value without an expiry.
    fn max_value_len(&self) -> usize;
}

/// An entry that a [`CompactionFilter`] decides about.
pub struct FilterEntry<'a> {
    key: &'a [u8],
    time: Option<Time>,
    expiry: Option<Time>,
    value: Value<'a>,
}

enum Value<'a> {
    Here(&'a [u8]),
    /// Outside of the tree. It is read when it is asked for.
    At(Reference, Option<&'a Segments>, OnceCell<Slice>),
}

impl std::fmt::Debug for FilterEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = Slice::copy_from(self.key);
        let mut entry = f.debug_struct("FilterEntry");
        entry.field("key", &key).field("time", &self.time).field("expiry", &self.expiry);
        entry.finish_non_exhaustive()
    }
}

impl<'a> FilterEntry<'a> {
    /// `value`: the reference to the value, if `is_reference`.
    pub(super) fn new(
        key: &'a [u8],
        (time, expiry): (Option<Time>, Option<Time>),
        is_reference: bool,
        value: &'a [u8],
        segments: Option<&'a Segments>,
    ) -> Result<Self> {
        let value = match is_reference {
            true => Value::At(Reference::decode(value).ok_or_else(malformed)?, segments, OnceCell::new()),
            false => Value::Here(value),
        };
        Ok(FilterEntry { key, time, expiry, value })
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

    /// The time of the version, in a keyspace with history.
    pub fn time(&self) -> Option<Time> {
        self.time
    }

    /// When it expires, if it does.
    pub fn expiry(&self) -> Option<Time> {
        self.expiry
    }

    /// Bytes that were read outside of the tree.
    pub(super) fn read_bytes(&self) -> u64 {
        match &self.value {
            Value::At(reference, _, read) if read.get().is_some() => reference.len.into(),
            _ => 0,
        }
    }
}

#[cold]
pub(super) fn malformed() -> Error {
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
