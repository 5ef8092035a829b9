//! LevelDB, as installed in the system, through its C interface (`leveldb/c.h`).
//!
//! Uses the requested memory and filters, no compression, and LevelDB's defaults for everything else. The number of
//! threads cannot be set: one thread flushes and compacts.
//!
//! The first part of this file declares the C functions, the second wraps them in types that own the objects of C
//! ([`Owned`], [`Bytes`], [`Iter`]) and converts its messages to errors. The third is the adapter; its proofs only
//! say that the arguments are alive.
#![allow(unsafe_code)]

use super::idle;
use crate::engine::{Engine, Error, Kind, RequestedSettings, Result, Visit};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

/// Number of tables in level 0 that starts a compaction.
const LEVEL_0_TRIGGER: u64 = 4;
/// Maximum size of a table.
const MAX_FILE_SIZE: u64 = 2 << 20;

/// LevelDB with default options.
pub fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "leveldb",
        title: "LevelDB",
        version,
        open: |dir, requested| Ok(Box::new(LevelDb::open(dir, requested)?)),
    }]
}

fn version() -> String {
    // SAFETY: two functions that return constants.
    let (major, minor) = unsafe { (c::leveldb_major_version(), c::leveldb_minor_version()) };
    format!("{major}.{minor}")
}

/// The functions used. A `u8` is a truth value. An `err` is set to a message on failure and otherwise left
/// unchanged.
mod c {
    use super::{c_char, c_int, c_void};

    /// Opaque C types.
    macro_rules! opaque {
        ($($name:ident),*) => {
            $(#[repr(C)]
            pub struct $name {
                _private: [u8; 0],
            })*
        };
    }
    opaque!(Db, Cache, FilterPolicy, Iterator, Options, ReadOptions, WriteOptions);

    #[link(name = "leveldb")]
    unsafe extern "C" {
        pub fn leveldb_major_version() -> c_int;
        pub fn leveldb_minor_version() -> c_int;
        pub fn leveldb_free(buffer: *mut c_void);

        pub fn leveldb_open(options: *const Options, name: *const c_char, err: *mut *mut c_char) -> *mut Db;
        pub fn leveldb_close(db: *mut Db);
        pub fn leveldb_put(
            db: *mut Db,
            options: *const WriteOptions,
            key: *const u8,
            key_len: usize,
            value: *const u8,
            value_len: usize,
            err: *mut *mut c_char,
        );
        pub fn leveldb_delete(
            db: *mut Db,
            options: *const WriteOptions,
            key: *const u8,
            key_len: usize,
            err: *mut *mut c_char,
        );
        pub fn leveldb_get(
            db: *mut Db,
            options: *const ReadOptions,
            key: *const u8,
            key_len: usize,
            value_len: *mut usize,
            err: *mut *mut c_char,
        ) -> *mut u8;
        pub fn leveldb_property_value(db: *mut Db, name: *const c_char) -> *mut u8;

        pub fn leveldb_create_iterator(db: *mut Db, options: *const ReadOptions) -> *mut Iterator;
        pub fn leveldb_iter_destroy(iter: *mut Iterator);
        pub fn leveldb_iter_valid(iter: *const Iterator) -> u8;
        pub fn leveldb_iter_seek_to_first(iter: *mut Iterator);
        pub fn leveldb_iter_seek_to_last(iter: *mut Iterator);
        pub fn leveldb_iter_seek(iter: *mut Iterator, key: *const u8, len: usize);
        pub fn leveldb_iter_next(iter: *mut Iterator);
        pub fn leveldb_iter_prev(iter: *mut Iterator);
        pub fn leveldb_iter_key(iter: *const Iterator, len: *mut usize) -> *const u8;
        pub fn leveldb_iter_value(iter: *const Iterator, len: *mut usize) -> *const u8;
        pub fn leveldb_iter_get_error(iter: *const Iterator, err: *mut *mut c_char);

        pub fn leveldb_options_create() -> *mut Options;
        pub fn leveldb_options_destroy(options: *mut Options);
        pub fn leveldb_options_set_create_if_missing(options: *mut Options, create: u8);
        pub fn leveldb_options_set_write_buffer_size(options: *mut Options, bytes: usize);
        pub fn leveldb_options_set_max_open_files(options: *mut Options, files: c_int);
        pub fn leveldb_options_set_cache(options: *mut Options, cache: *mut Cache);
        pub fn leveldb_options_set_filter_policy(options: *mut Options, policy: *mut FilterPolicy);
        pub fn leveldb_options_set_compression(options: *mut Options, compression: c_int);
        pub fn leveldb_cache_create_lru(bytes: usize) -> *mut Cache;
        pub fn leveldb_cache_destroy(cache: *mut Cache);
        pub fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy;
        pub fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy);
        pub fn leveldb_readoptions_create() -> *mut ReadOptions;
        pub fn leveldb_readoptions_destroy(options: *mut ReadOptions);
        pub fn leveldb_writeoptions_create() -> *mut WriteOptions;
        pub fn leveldb_writeoptions_destroy(options: *mut WriteOptions);
        pub fn leveldb_writeoptions_set_sync(options: *mut WriteOptions, sync: u8);
    }
    pub const NO_COMPRESSION: c_int = 0;
}

/// An object created by C, with its destructor.
struct Owned<T> {
    ptr: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Panics if C returned null for lack of memory.
    ///
    /// # Safety `ptr` is null, or an object that no other code destroys and that `destroy` accepts.
    unsafe fn new(ptr: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Owned<T> {
        Owned { ptr: NonNull::new(ptr).expect("LevelDB makes its objects"), destroy }
    }

    fn as_ptr(&self) -> *mut T {
        self.ptr.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: guaranteed by the caller of `new`; the object is not used afterwards.
        unsafe { (self.destroy)(self.ptr.as_ptr()) }
    }
}

/// Bytes allocated by C for the caller.
struct Bytes {
    ptr: NonNull<u8>,
    len: usize,
}

impl Bytes {
    /// `None` for null.
    ///
    /// # Safety `ptr` is null or a buffer of `len` bytes that LevelDB allocated for its caller.
    unsafe fn new(ptr: *mut u8, len: usize) -> Option<Bytes> {
        Some(Bytes { ptr: NonNull::new(ptr)?, len })
    }

    /// The bytes of a string that ends with a zero, without the zero. `None` for null.
    ///
    /// # Safety `ptr` is null or a string that LevelDB allocated for its caller.
    unsafe fn from_c_string(ptr: *mut u8) -> Option<Bytes> {
        let ptr = NonNull::new(ptr)?;
        // SAFETY: guaranteed by the caller of this function.
        let len = unsafe { CStr::from_ptr(ptr.as_ptr().cast()) }.count_bytes();
        Some(Bytes { ptr, len })
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: guaranteed by the caller of `new`; the buffer belongs to `self` until it is dropped.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: LevelDB allocated it for its caller, and it is not used afterwards.
        unsafe { c::leveldb_free(self.ptr.as_ptr().cast::<c_void>()) }
    }
}

/// Calls a function that returns errors in its last argument.
#[inline]
fn call<T>(function: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut err = null_mut::<c_char>();
    let result = function(&mut err);
    // SAFETY: LevelDB leaves it null or sets it to a message that the caller frees.
    match unsafe { Bytes::from_c_string(err.cast()) } {
        None => Ok(result),
        Some(message) => Err(Error::new(String::from_utf8_lossy(message.as_slice()).into_owned())),
    }
}

/// A cursor. It must not outlive the database.
struct Iter<'db> {
    raw: Owned<c::Iterator>,
    _db: PhantomData<&'db LevelDb>,
}

impl Iter<'_> {
    fn seek_to_first(&mut self) {
        // SAFETY: `raw` is a live iterator, and `&mut` guarantees exclusive use.
        unsafe { c::leveldb_iter_seek_to_first(self.raw.as_ptr()) }
    }

    fn seek_to_last(&mut self) {
        // SAFETY: as in `seek_to_first`.
        unsafe { c::leveldb_iter_seek_to_last(self.raw.as_ptr()) }
    }

    /// Moves to the first key at or after `key`.
    fn seek(&mut self, key: &[u8]) {
        // SAFETY: as in `seek_to_first`; LevelDB copies the key.
        unsafe { c::leveldb_iter_seek(self.raw.as_ptr(), key.as_ptr(), key.len()) }
    }

    /// Moves to the last key at or before `key`.
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key);
        match self.item() {
            Some((found, _)) if found == key => {}
            Some(_) => self.prev(),
            // After the last key, or failed: an error must not be taken for the end.
            None => {
                self.status()?;
                self.seek_to_last();
            }
        }
        Ok(())
    }

    fn next(&mut self) {
        debug_assert!(self.valid());
        // SAFETY: as in `seek_to_first`; it is at an entry, because it is called only after `item`.
        unsafe { c::leveldb_iter_next(self.raw.as_ptr()) }
    }

    fn prev(&mut self) {
        debug_assert!(self.valid());
        // SAFETY: as in `next`.
        unsafe { c::leveldb_iter_prev(self.raw.as_ptr()) }
    }

    fn valid(&self) -> bool {
        // SAFETY: `raw` is a live iterator.
        unsafe { c::leveldb_iter_valid(self.raw.as_ptr()) != 0 }
    }

    /// Key and value at the position, borrowed from LevelDB.
    fn item(&self) -> Option<(&[u8], &[u8])> {
        if !self.valid() {
            return None;
        }
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: it is at an entry, and the memory stays valid until the iterator moves, which `&self` excludes.
        unsafe {
            let key = c::leveldb_iter_key(self.raw.as_ptr(), &mut key_len);
            let value = c::leveldb_iter_value(self.raw.as_ptr(), &mut value_len);
            Some((std::slice::from_raw_parts(key, key_len), std::slice::from_raw_parts(value, value_len)))
        }
    }

    /// The error of the iterator, if any.
    fn status(&self) -> Result<()> {
        // SAFETY: `raw` is a live iterator.
        call(|err| unsafe { c::leveldb_iter_get_error(self.raw.as_ptr(), err) })
    }

    /// Visits the entry at the position and the following ones. Returns the error that may have ended the
    /// iteration.
    fn visit_all(mut self, step: impl Fn(&mut Self), visit: &mut Visit<'_>) -> Result<()> {
        while let Some((key, value)) = self.item() {
            if !visit(key, value) {
                return Ok(());
            }
            step(&mut self);
        }
        self.status()
    }
}

/// Fields are dropped in order: the database first, because it uses the others.
struct LevelDb {
    db: Owned<c::Db>,
    read: Owned<c::ReadOptions>,
    write: Owned<c::WriteOptions>,
    write_sync: Owned<c::WriteOptions>,
    _options: DbOptions,
    settings: BTreeMap<String, String>,
}

// SAFETY: LevelDB's database, its cache and its filter policy may be used by all threads without synchronization
// (`db.h`, `cache.h`, `filter_policy.h`), and its options are only read after they are set.
unsafe impl Send for LevelDb {}
// SAFETY: as for `Send`.
unsafe impl Sync for LevelDb {}

/// The options and the objects that they point to, which must outlive the database.
struct DbOptions {
    raw: Owned<c::Options>,
    _cache: Owned<c::Cache>,
    _filter: Owned<c::FilterPolicy>,
}

impl DbOptions {
    fn new(requested: &RequestedSettings) -> DbOptions {
        let bits_per_key = requested.filter_bits_per_key as c_int;
        // SAFETY: the objects are created for the caller, with their destructors; `Owned` keeps them alive during
        // the setup, and `DbOptions` while they are used.
        unsafe {
            let raw = Owned::new(c::leveldb_options_create(), c::leveldb_options_destroy);
            let cache = Owned::new(
                c::leveldb_cache_create_lru(requested.cache_bytes as usize),
                c::leveldb_cache_destroy,
            );
            let filter = Owned::new(
                c::leveldb_filterpolicy_create_bloom(bits_per_key),
                c::leveldb_filterpolicy_destroy,
            );
            c::leveldb_options_set_create_if_missing(raw.as_ptr(), 1);
            c::leveldb_options_set_write_buffer_size(raw.as_ptr(), requested.memtable_bytes as usize);
            c::leveldb_options_set_max_open_files(raw.as_ptr(), max_open_files(requested));
            c::leveldb_options_set_compression(raw.as_ptr(), c::NO_COMPRESSION);
            c::leveldb_options_set_cache(raw.as_ptr(), cache.as_ptr());
            c::leveldb_options_set_filter_policy(raw.as_ptr(), filter.as_ptr());
            DbOptions { raw, _cache: cache, _filter: filter }
        }
    }
}

fn write_options(sync: bool) -> Owned<c::WriteOptions> {
    // SAFETY: an object created for the caller, with its destructor.
    unsafe {
        let options = Owned::new(c::leveldb_writeoptions_create(), c::leveldb_writeoptions_destroy);
        c::leveldb_writeoptions_set_sync(options.as_ptr(), u8::from(sync));
        options
    }
}

/// Enough for all tables, which are many and small: with the default of 1000, a database of a few GiB would open a
/// table for almost every read. LevelDB accepts at most 50,000.
fn max_open_files(requested: &RequestedSettings) -> c_int {
    let tables = 2 * requested.data_bytes_max / MAX_FILE_SIZE;
    tables.clamp(5_000, 50_000) as c_int
}

impl LevelDb {
    fn open(dir: &Path, requested: &RequestedSettings) -> Result<LevelDb> {
        let name = CString::new(dir.as_os_str().as_bytes()).map_err(|e| Error::new(e.to_string()))?;
        let options = DbOptions::new(requested);
        // SAFETY: the options are alive, and the string ends with a zero; LevelDB copies both.
        let db = call(|err| unsafe { c::leveldb_open(options.raw.as_ptr(), name.as_ptr(), err) })?;
        // SAFETY: there was no error, so this is a database, and no other code closes it.
        let db = unsafe { Owned::new(db, c::leveldb_close) };
        // SAFETY: an object created for the caller, with its destructor.
        let read = unsafe { Owned::new(c::leveldb_readoptions_create(), c::leveldb_readoptions_destroy) };
        let leveldb = LevelDb {
            db,
            read,
            write: write_options(false),
            write_sync: write_options(true),
            _options: options,
            settings: settings(requested),
        };
        // Background work caused by the opening must not count for the workload.
        leveldb.settle()?;
        Ok(leveldb)
    }

    fn write_options(&self, sync: bool) -> *const c::WriteOptions {
        if sync { self.write_sync.as_ptr() } else { self.write.as_ptr() }
    }

    fn iter(&self) -> Iter<'_> {
        // SAFETY: the database and the options are alive, and the iterator belongs to the caller; its lifetime is
        // within the database's.
        let raw = unsafe {
            Owned::new(
                c::leveldb_create_iterator(self.db.as_ptr(), self.read.as_ptr()),
                c::leveldb_iter_destroy,
            )
        };
        Iter { raw, _db: PhantomData }
    }

    /// A numeric property.
    fn property(&self, name: &CStr) -> Result<u64> {
        // SAFETY: the database is alive, the name ends with a zero, and so does the returned string, which belongs
        // to the caller.
        let text =
            unsafe { Bytes::from_c_string(c::leveldb_property_value(self.db.as_ptr(), name.as_ptr())) };
        let text = text.map(|text| String::from_utf8_lossy(text.as_slice()).into_owned());
        text.and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| Error::new(format!("LevelDB has no number for {}", name.to_string_lossy())))
    }
}

/// Settings that differ from the defaults, and defaults that matter in a comparison.
fn settings(requested: &RequestedSettings) -> BTreeMap<String, String> {
    [
        ("write_buffer_size", requested.memtable_bytes.to_string()),
        ("block_cache", format!("LRU, {} bytes", requested.cache_bytes)),
        (
            "filter_policy",
            format!(
                "Bloom, {} bits per key; it is in memory beside the cache",
                requested.filter_bits_per_key
            ),
        ),
        ("block_size", "4096 (default)".to_string()),
        ("compression", "none".to_string()),
        ("max_file_size", format!("{MAX_FILE_SIZE} (default)")),
        ("max_open_files", format!("{}: room for all tables (default: 1000)", max_open_files(requested))),
        ("verify_checksums", "false (default): reads do not check what they read".to_string()),
        (
            "CRC32C",
            "as the system's library was built: in software where it is not linked to libcrc32c".to_string(),
        ),
        ("background threads", "1: there is no option for it".to_string()),
        ("get", "copies the value: the C interface has nothing else".to_string()),
        (
            "settle",
            "waits until the process has been idle for half a second, which does not count".to_string(),
        ),
        ("other options", "default".to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_string(), value))
    .collect()
}

impl Engine for LevelDb {
    fn settings(&self) -> BTreeMap<String, String> {
        self.settings.clone()
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        let (db, options) = (self.db.as_ptr(), self.write_options(sync));
        // SAFETY: the database and the options are alive, and key and value have the given lengths.
        call(|err| unsafe {
            c::leveldb_put(db, options, key.as_ptr(), key.len(), value.as_ptr(), value.len(), err);
        })
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        let (db, options) = (self.db.as_ptr(), self.write_options(sync));
        // SAFETY: the database and the options are alive, and the key has the given length.
        call(|err| unsafe { c::leveldb_delete(db, options, key.as_ptr(), key.len(), err) })
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (db, options) = (self.db.as_ptr(), self.read.as_ptr());
        let mut len = 0;
        // SAFETY: the database and the options are alive, and the key has the given length.
        let value =
            call(|err| unsafe { c::leveldb_get(db, options, key.as_ptr(), key.len(), &mut len, err) })?;
        // SAFETY: null if there is no value, otherwise a buffer of `len` bytes that belongs to the caller.
        let value = unsafe { Bytes::new(value, len) };
        Ok(value.inspect(|value| show(value.as_slice())).is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut iter = self.iter();
        match from {
            Some(key) => iter.seek(key),
            None => iter.seek_to_first(),
        }
        iter.visit_all(Iter::next, visit)
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        let mut iter = self.iter();
        match from {
            Some(key) => iter.seek_for_prev(key)?,
            None => iter.seek_to_last(),
        }
        iter.visit_all(Iter::prev, visit)
    }

    fn settle(&self) -> Result<Duration> {
        // LevelDB cannot report that it is done, but what it reports must agree with the observed idleness within a
        // short time.
        for _ in 0..10 {
            let idle_time = idle::wait();
            if self.property(c"leveldb.num-files-at-level0")? < LEVEL_0_TRIGGER {
                return Ok(idle_time);
            }
        }
        Err(Error::new("LevelDB does nothing though tables wait in level 0".to_string()))
    }

    fn close(self: Box<Self>) -> Result<()> {
        // LevelDB closes the database when it is dropped, and reports no error.
        Ok(())
    }
}
