//! The interface of a measured store.
//!
//! The trait is small, so that adapters are short and simple. All engines, including Cairn, are called through it,
//! so the cost of the indirection (a few nanoseconds per operation) is the same for all.

use cairn::ErrorKind;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// An engine failed an operation, or returned data that was not written.
#[derive(Debug)]
pub struct Error {
    message: String,
    kind: ErrorKind,
}

/// The result of an engine's operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of an engine that reports no kind.
    pub fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), kind: ErrorKind::Io }
    }

    /// The data read differs from the data written.
    pub fn corruption(message: impl Into<String>) -> Error {
        Error { message: message.into(), kind: ErrorKind::Corruption }
    }

    /// Adds the operation that failed.
    pub fn context(self, what: impl fmt::Display) -> Error {
        Error { message: format!("{what}: {}", self.message), ..self }
    }

    /// The kind of the error, for a program that reports it to its users.
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

/// The settings requested of every engine. An engine without a setting ignores it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RequestedSettings {
    /// Size of a memtable, in bytes.
    pub memtable_bytes: u64,
    /// Size of the block cache or page cache, in bytes.
    pub cache_bytes: u64,
    /// Number of threads that flush and compact.
    pub background_threads: usize,
    /// Filter bits per key.
    pub filter_bits_per_key: u32,
    /// Maximum number of bytes that the run stores. An engine with a fixed map size reserves this much.
    pub data_bytes_max: u64,
}

/// Receives the key and value of an entry of a scan. Returns whether to continue.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> bool + 'a;

/// An open store: an ordered map of bytes to bytes, without compression.
///
/// When a write returns, it is on the disk if `sync` is set; otherwise it survives the end of the process, but not
/// necessarily a power failure. An engine that cannot guarantee this says so in its `settings`.
pub trait Engine: Send + Sync {
    /// The settings in use, by the engine's own names, and its restrictions. For people to read.
    fn settings(&self) -> BTreeMap<String, String>;

    /// Whether scans are in the order of keys. Without an order, only a scan of all entries works.
    fn has_order(&self) -> bool {
        true
    }

    /// Stores a value.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;

    /// Deletes a key, which need not exist.
    fn delete(&self, key: &[u8], sync: bool) -> Result<()>;

    /// Looks up a key and passes its value to `show`, without a copy if the engine supports it. Returns whether the
    /// key exists.
    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Opens a cursor at the first key at or after `from` (the first key for `None`), and visits entries in order
    /// until `visit` returns false or the end is reached.
    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()>;

    /// Opens a cursor at the last key at or before `from` (the last key for `None`), and visits entries in reverse
    /// order until `visit` returns false or the beginning is reached.
    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()>;

    /// Reads two keys and stores a value under both, in one serializable transaction, which is repeated until it meets no conflict. Returns how
    /// many of the keys it has found, and how often it has met a conflict.
    fn update_both(&self, _keys: [&[u8]; 2], _values: [&[u8]; 2], _sync: bool) -> Result<(u64, u64)> {
        Err(Error::new("the engine has no transactions"))
    }

    /// Stores a version of a key. An engine without history stores it under [`version_key`].
    fn put_version(&self, key: &[u8], time: u64, value: &[u8], sync: bool) -> Result<()> {
        self.put(&version_key(key, time), value, sync)
    }

    /// Visits the versions of `key` with times from `from` to `to`, the latest first, until `visit` returns false. Keys are passed as
    /// [`version_key`].
    fn versions(&self, key: &[u8], (from, to): (u64, u64), visit: &mut Visit<'_>) -> Result<()> {
        self.scan(Some(&version_key(key, to)), &mut |version, value| {
            let in_range =
                split_version_key(version).is_some_and(|(found, time)| found == key && time >= from);
            in_range && visit(version, value)
        })
    }

    /// [`Engine::scan`] as of a time. An engine without history shows its present entries.
    fn scan_as_of(&self, _time: u64, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.scan(Some(from), visit)
    }

    /// Visits all versions of all keys as [`Engine::versions`] does.
    fn all_versions(&self, visit: &mut Visit<'_>) -> Result<()> {
        self.scan(None, visit)
    }

    /// Writes the memtable to a file. An engine without such a call does nothing.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until no flush and no compaction is running or due. Does not flush memtables.
    ///
    /// Returns the time at the end of the wait that must not be charged to the engine: an engine that cannot report
    /// when it is done is observed until it has been idle for a while, and that while is not its work. Other
    /// engines return zero.
    fn settle(&self) -> Result<Duration>;

    /// Total bytes written to files since the engine was opened, by its own count.
    fn written_bytes(&self) -> Option<u64> {
        None
    }

    /// Time that writers were stalled since the engine was opened, and the longest stall.
    fn stalls(&self) -> Option<Stalls> {
        None
    }

    /// Closes the engine and returns errors.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The key of a version in an engine without history: the key, and the time in eight bytes, inverted, big-endian, so that the latest comes
/// first.
pub fn version_key(key: &[u8], time: u64) -> Vec<u8> {
    [key, &(!time).to_be_bytes()].concat()
}

/// The key and the time in a [`version_key`].
pub fn split_version_key(version: &[u8]) -> Option<(&[u8], u64)> {
    let (key, time) = version.split_last_chunk::<8>()?;
    Some((key, !u64::from_be_bytes(*time)))
}

/// How long writers were stalled, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// The sum over all threads.
    pub seconds: f64,
    /// The longest stall, if the engine records it.
    pub longest_seconds: Option<f64>,
}

/// An engine that this program can open.
pub struct Kind {
    /// Its name on the command line and in results, such as `rocksdb-blob`.
    pub name: &'static str,
    /// Its name in reports, such as `RocksDB with blob files`.
    pub title: &'static str,
    /// Its version.
    pub version: fn() -> String,
    /// Opens the store in an existing directory, which is empty or has the files of an earlier opening.
    pub open: fn(&Path, &RequestedSettings) -> Result<Box<dyn Engine>>,
}
