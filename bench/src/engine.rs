//! What a store must be able to do to be measured.
//!
//! The trait is small, so that an adapter is short and there is little in it to get wrong. All engines, Cairn too, are
//! called through it: whatever the indirection costs (a few nanoseconds an operation), it costs all of them.

use cairn::ErrorKind;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// An engine could not do what it was asked to, or gave what was not written.
#[derive(Debug)]
pub struct Error {
    message: String,
    kind: ErrorKind,
}

/// The result of an engine's operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of an engine that does not say what kind it is of.
    pub fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), kind: ErrorKind::Io }
    }

    /// What was read is not what was written.
    pub fn corruption(message: impl Into<String>) -> Error {
        Error { message: message.into(), kind: ErrorKind::Corruption }
    }

    /// Says what was being done.
    pub fn context(self, what: impl fmt::Display) -> Error {
        Error { message: format!("{what}: {}", self.message), ..self }
    }

    /// What to do about it, for a program that tells it to its users.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

macro_rules! wraps {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(e: $error) -> Error {
                Error::new(e.to_string())
            }
        })*
    };
}
wraps!(std::io::Error, serde_json::Error);

impl From<cairn::Error> for Error {
    fn from(e: cairn::Error) -> Error {
        Error { message: e.to_string(), kind: e.kind() }
    }
}

/// What every engine is asked for, as far as it has a knob for it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Asked {
    /// Bytes of one memtable.
    pub memtable_bytes: u64,
    /// Bytes of the block (or page) cache.
    pub cache_bytes: u64,
    /// Threads that flush and compact.
    pub background_threads: usize,
    /// Bits of filter for a key.
    pub filter_bits_per_key: u32,
    /// Bytes of data that the run is about to store, at most: what an engine with a fixed map size must make room for.
    pub data_bytes_max: u64,
}

/// An entry of a scan: key and value. It returns whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// An open store: ordered, of bytes to bytes, compression off.
///
/// Operations that return have the effect of their kind of durability: with `sync` the write is on the disk, without it
/// outlives the process but not necessarily the machine. An engine that cannot promise that says so in its `settings`.
pub trait Engine: Send + Sync {
    /// The settings that it runs with, by the engine's own names, and what it lacks: for people to read.
    fn settings(&self) -> BTreeMap<String, String>;

    /// Stores a value.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;

    /// Removes a key, whether it is there or not.
    fn delete(&self, key: &[u8], sync: bool) -> Result<()>;

    /// Looks a key up, shows its value without a copy where the engine can, and returns whether it is there.
    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Opens a cursor, positions it at the first key at or after `from` (the very first for `None`), and visits entries in order until `visit`
    /// returns false or the end is met.
    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()>;

    /// Opens a cursor, positions it at the last key at or before `from` (the very last for `None`), and visits entries in reverse order until
    /// `visit` returns false or the beginning is met.
    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()>;

    /// Waits until no flush and no compaction is running or due. Memtables stay as they are.
    ///
    /// Returns the time, at the end of the wait, that is not to be charged: an engine that cannot say that it is done is
    /// watched until it has been quiet for a while, and the while is not its work. Engines that can say it return zero.
    fn settle(&self) -> Result<Duration>;

    /// All bytes that it wrote to files since it was opened, by its own count.
    fn written_bytes(&self) -> Option<u64> {
        None
    }

    /// Seconds that writers were made to wait, and the longest wait, since it was opened.
    fn stalls(&self) -> Option<Stalls> {
        None
    }

    /// Closes it and tells of errors.
    fn close(self: Box<Self>) -> Result<()>;
}

/// How long writers were made to wait, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// Of all threads together.
    pub seconds: f64,
    /// The longest, where the engine keeps it.
    pub longest_seconds: Option<f64>,
}

/// An engine that this program can open.
pub struct Kind {
    /// How it is called on the command line and in results, as `rocksdb-blob`.
    pub name: &'static str,
    /// How it is called in reports, as `RocksDB with blob files`.
    pub title: &'static str,
    /// Its version.
    pub version: fn() -> String,
    /// Opens the store in this directory, which is there, and is empty or holds what an earlier opening left.
    pub open: fn(&Path, &Asked) -> Result<Box<dyn Engine>>,
}
