//! Compaction filters: a function of the application that decides about entries as compactions meet them.

use base::expiry::split_expiry;
use base::{Error, ErrorKind, Reference, Result, Slice, Time, Trailer};
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

impl std::fmt::Debug for FilterEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = Slice::copy_from(self.key);
        f.debug_struct("FilterEntry").field("key", &key).field("expiry", &self.expiry).finish_non_exhaustive()
    }
}

impl<'a> FilterEntry<'a> {
    pub(super) fn new(
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
    pub(super) fn read_bytes(&self) -> u64 {
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
