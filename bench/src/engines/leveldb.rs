//! LevelDB, as the system has it, through its C interface (`leveldb/c.h`).
//!
//! It is set up with the asked-for memory and filters, no compression, and its own defaults for everything else. It has
//! no knob for threads: one thread flushes and compacts, whatever is asked for.
//!
//! The first part of this file declares the C functions that are used, the second wraps them in types that own what C
//! hands out ([`Owned`], [`Bytes`], [`Iter`]) and turn its messages into errors. The third is the adapter, which has
//! no more to prove than that what it passes is alive.
#![allow(unsafe_code)]

use super::quiet;
use crate::engine::{Asked, Engine, Error, Kind, Result, Visit};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

/// As many tables in level 0 are compacted.
const LEVEL_0_TRIGGER: u64 = 4;
/// A table, unless its level is made of fewer bytes.
const MAX_FILE_SIZE: u64 = 2 << 20;

/// LevelDB as it comes.
pub fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "leveldb",
        title: "LevelDB",
        version,
        open: |dir, asked| Ok(Box::new(LevelDb::open(dir, asked)?)),
    }]
}

fn version() -> String {
    // SAFETY: two functions that return constants.
    let (major, minor) = unsafe { (c::leveldb_major_version(), c::leveldb_minor_version()) };
    format!("{major}.{minor}")
}

/// What of the C interface is used. A `u8` is a truth value; an `err` becomes a message on failure and is left alone on
/// success.
mod c {
    use super::{c_char, c_int, c_void};

    /// Types of which C shows nothing but pointers.
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

/// An object that C made, and the function that takes it back.
struct Owned<T> {
    ptr: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Panics where C returned null for lack of memory.
    ///
    /// # Safety
    /// `ptr` is null or an object that nobody else destroys, and that `destroy` takes.
    unsafe fn new(ptr: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Owned<T> {
        Owned { ptr: NonNull::new(ptr).expect("LevelDB makes its objects"), destroy }
    }

    fn as_ptr(&self) -> *mut T {
        self.ptr.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the promise of `new`; and nobody has it after this.
        unsafe { (self.destroy)(self.ptr.as_ptr()) }
    }
}

/// Bytes that C allocated for us.
struct Bytes {
    ptr: NonNull<u8>,
    len: usize,
}

impl Bytes {
    /// None for null.
    ///
    /// # Safety
    /// `ptr` is null or a buffer of `len` bytes that LevelDB allocated for its caller.
    unsafe fn new(ptr: *mut u8, len: usize) -> Option<Bytes> {
        Some(Bytes { ptr: NonNull::new(ptr)?, len })
    }

    /// The bytes of a string that ends with a zero; the zero is not among them. None for null.
    ///
    /// # Safety
    /// `ptr` is null or a string that LevelDB allocated for its caller.
    unsafe fn from_c_string(ptr: *mut u8) -> Option<Bytes> {
        let ptr = NonNull::new(ptr)?;
        // SAFETY: the promise of this function.
        let len = unsafe { CStr::from_ptr(ptr.as_ptr().cast()) }.count_bytes();
        Some(Bytes { ptr, len })
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: the promise of `new`; the buffer is ours until it is dropped.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: LevelDB allocated it for us; and nobody has it after this.
        unsafe { c::leveldb_free(self.ptr.as_ptr().cast::<c_void>()) }
    }
}

/// Calls a function that tells of errors in its last argument.
#[inline]
fn call<T>(function: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut err = null_mut::<c_char>();
    let result = function(&mut err);
    // SAFETY: LevelDB leaves it null, or makes it a message that the caller is to free.
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
        // SAFETY: `raw` is a live iterator, and `&mut` says that nobody else uses it.
        unsafe { c::leveldb_iter_seek_to_first(self.raw.as_ptr()) }
    }

    fn seek_to_last(&mut self) {
        // SAFETY: as in `seek_to_first`.
        unsafe { c::leveldb_iter_seek_to_last(self.raw.as_ptr()) }
    }

    /// To the first key at or after this one.
    fn seek(&mut self, key: &[u8]) {
        // SAFETY: as in `seek_to_first`; LevelDB copies the key.
        unsafe { c::leveldb_iter_seek(self.raw.as_ptr(), key.as_ptr(), key.len()) }
    }

    /// To the last key at or before this one.
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key);
        match self.item() {
            Some((found, _)) if found == key => {}
            Some(_) => self.prev(),
            // Behind the last key, or failed: an error must not pass for the end.
            None => {
                self.status()?;
                self.seek_to_last();
            }
        }
        Ok(())
    }

    fn next(&mut self) {
        debug_assert!(self.valid());
        // SAFETY: as in `seek_to_first`; it stands on an entry, for it is called behind `item` only.
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

    /// Key and value that it stands on, where they lie.
    fn item(&self) -> Option<(&[u8], &[u8])> {
        if !self.valid() {
            return None;
        }
        let (mut key_len, mut value_len) = (0, 0);
        // SAFETY: it stands on an entry, and what the pointers show stays until it moves, which `&self` excludes.
        unsafe {
            let key = c::leveldb_iter_key(self.raw.as_ptr(), &mut key_len);
            let value = c::leveldb_iter_value(self.raw.as_ptr(), &mut value_len);
            Some((std::slice::from_raw_parts(key, key_len), std::slice::from_raw_parts(value, value_len)))
        }
    }

    /// The error that it met, if any.
    fn status(&self) -> Result<()> {
        // SAFETY: `raw` is a live iterator.
        call(|err| unsafe { c::leveldb_iter_get_error(self.raw.as_ptr(), err) })
    }

    /// Visits what it stands on and what comes after it, and tells of the error that may have ended it.
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

/// Fields are dropped from top to bottom: the database first, for it uses the others.
struct LevelDb {
    db: Owned<c::Db>,
    read: Owned<c::ReadOptions>,
    write: Owned<c::WriteOptions>,
    write_sync: Owned<c::WriteOptions>,
    _options: DbOptions,
    settings: BTreeMap<String, String>,
}

// SAFETY: LevelDB's database, its cache and its filter policy may be used by all threads without synchronization
// (`db.h`, `cache.h`, `filter_policy.h`), and its options are only read once they are set.
unsafe impl Send for LevelDb {}
// SAFETY: as for `Send`.
unsafe impl Sync for LevelDb {}

/// The options and what they point to, which must outlive the database.
struct DbOptions {
    raw: Owned<c::Options>,
    _cache: Owned<c::Cache>,
    _filter: Owned<c::FilterPolicy>,
}

impl DbOptions {
    fn new(asked: &Asked) -> DbOptions {
        let bits_per_key = asked.filter_bits_per_key as c_int;
        // SAFETY: objects that are made for us, with their destructors; `Owned` keeps them alive while they are set up,
        // and `DbOptions` while they are used.
        unsafe {
            let raw = Owned::new(c::leveldb_options_create(), c::leveldb_options_destroy);
            let cache =
                Owned::new(c::leveldb_cache_create_lru(asked.cache_bytes as usize), c::leveldb_cache_destroy);
            let filter = Owned::new(
                c::leveldb_filterpolicy_create_bloom(bits_per_key),
                c::leveldb_filterpolicy_destroy,
            );
            c::leveldb_options_set_create_if_missing(raw.as_ptr(), 1);
            c::leveldb_options_set_write_buffer_size(raw.as_ptr(), asked.memtable_bytes as usize);
            c::leveldb_options_set_max_open_files(raw.as_ptr(), max_open_files(asked));
            c::leveldb_options_set_compression(raw.as_ptr(), c::NO_COMPRESSION);
            c::leveldb_options_set_cache(raw.as_ptr(), cache.as_ptr());
            c::leveldb_options_set_filter_policy(raw.as_ptr(), filter.as_ptr());
            DbOptions { raw, _cache: cache, _filter: filter }
        }
    }
}

fn write_options(sync: bool) -> Owned<c::WriteOptions> {
    // SAFETY: an object that is made for us, with its destructor.
    unsafe {
        let options = Owned::new(c::leveldb_writeoptions_create(), c::leveldb_writeoptions_destroy);
        c::leveldb_writeoptions_set_sync(options.as_ptr(), u8::from(sync));
        options
    }
}

/// Room for all tables, which are many and small: with the default of 1000, a database of a few GiB would open one for
/// nearly every read. LevelDB itself takes 50,000 at most.
fn max_open_files(asked: &Asked) -> c_int {
    let tables = 2 * asked.data_bytes_max / MAX_FILE_SIZE;
    tables.clamp(5_000, 50_000) as c_int
}

impl LevelDb {
    fn open(dir: &Path, asked: &Asked) -> Result<LevelDb> {
        let name = CString::new(dir.as_os_str().as_bytes()).map_err(|e| Error::new(e.to_string()))?;
        let options = DbOptions::new(asked);
        // SAFETY: options that are alive, and a string that ends with a zero; LevelDB copies both.
        let db = call(|err| unsafe { c::leveldb_open(options.raw.as_ptr(), name.as_ptr(), err) })?;
        // SAFETY: there was no error, so this is a database, and nobody else closes it.
        let db = unsafe { Owned::new(db, c::leveldb_close) };
        // SAFETY: an object that is made for us, with its destructor.
        let read = unsafe { Owned::new(c::leveldb_readoptions_create(), c::leveldb_readoptions_destroy) };
        let leveldb = LevelDb {
            db,
            read,
            write: write_options(false),
            write_sync: write_options(true),
            _options: options,
            settings: settings(asked),
        };
        // What opening left to do is not the workload's.
        leveldb.settle()?;
        Ok(leveldb)
    }

    fn write_options(&self, sync: bool) -> *const c::WriteOptions {
        if sync { self.write_sync.as_ptr() } else { self.write.as_ptr() }
    }

    fn iter(&self) -> Iter<'_> {
        // SAFETY: the database and the options are alive, and the iterator is ours; its lifetime is within the database's.
        let raw = unsafe {
            Owned::new(
                c::leveldb_create_iterator(self.db.as_ptr(), self.read.as_ptr()),
                c::leveldb_iter_destroy,
            )
        };
        Iter { raw, _db: PhantomData }
    }

    /// A property that is a number.
    fn property(&self, name: &CStr) -> Result<u64> {
        // SAFETY: the database is alive, the name ends with a zero, and so does the string, which is the caller's.
        let text =
            unsafe { Bytes::from_c_string(c::leveldb_property_value(self.db.as_ptr(), name.as_ptr())) };
        let text = text.map(|text| String::from_utf8_lossy(text.as_slice()).into_owned());
        text.and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| Error::new(format!("LevelDB has no number for {}", name.to_string_lossy())))
    }
}

/// What deviates from the defaults, and defaults that someone who compares will ask for.
fn settings(asked: &Asked) -> BTreeMap<String, String> {
    [
        ("write_buffer_size", asked.memtable_bytes.to_string()),
        ("block_cache", format!("LRU, {} bytes", asked.cache_bytes)),
        (
            "filter_policy",
            format!("Bloom, {} bits per key; it is in memory beside the cache", asked.filter_bits_per_key),
        ),
        ("block_size", "4096 (default)".to_string()),
        ("compression", "none".to_string()),
        ("max_file_size", format!("{MAX_FILE_SIZE} (default)")),
        ("max_open_files", format!("{}: room for all tables (default: 1000)", max_open_files(asked))),
        ("verify_checksums", "false (default): reads do not check what they read".to_string()),
        (
            "CRC32C",
            "as the system's library was built: in software where it is not linked to libcrc32c".to_string(),
        ),
        ("background threads", "1: there is no option for it".to_string()),
        ("get", "copies the value: the C interface has nothing else".to_string()),
        (
            "settle",
            "waits until the process has been quiet for half a second, which does not count".to_string(),
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
        // SAFETY: the database and the options are alive, and key and value are as long as said.
        call(|err| unsafe {
            c::leveldb_put(db, options, key.as_ptr(), key.len(), value.as_ptr(), value.len(), err);
        })
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        let (db, options) = (self.db.as_ptr(), self.write_options(sync));
        // SAFETY: the database and the options are alive, and the key is as long as said.
        call(|err| unsafe { c::leveldb_delete(db, options, key.as_ptr(), key.len(), err) })
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (db, options) = (self.db.as_ptr(), self.read.as_ptr());
        let mut len = 0;
        // SAFETY: the database and the options are alive, and the key is as long as said.
        let value =
            call(|err| unsafe { c::leveldb_get(db, options, key.as_ptr(), key.len(), &mut len, err) })?;
        // SAFETY: null if there is none, else a buffer of `len` bytes that is the caller's.
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
        // LevelDB cannot say whether it is done. What it does say must not contradict the quiet, not for long at least.
        for _ in 0..10 {
            let quiet = quiet::wait();
            if self.property(c"leveldb.num-files-at-level0")? < LEVEL_0_TRIGGER {
                return Ok(quiet);
            }
        }
        Err(Error::new("LevelDB does nothing though tables wait in level 0".to_string()))
    }

    fn close(self: Box<Self>) -> Result<()> {
        // LevelDB closes when it is dropped, and tells of no error then.
        Ok(())
    }
}
