//! The [`Writer`], which a thread holds while it commits, and the guard that holds it.

use crate::db_inner::DbInner;
use crate::keyspace::KeyspaceInner;
use crate::log::Log;
use crate::sync::{MutexGuard, Ordering};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq};
use memtable::Memtable;
use std::ops::{Deref, DerefMut};

/// State of the single writer: the log and the accounting of memtable memory and slowdowns.
pub(crate) struct Writer {
    pub log: Log,
    pub next_seq: Seq,
    pub scratch: Vec<u8>,
    /// Bytes reserved in active memtables, over all keyspaces.
    pub active_bytes: u64,
    /// Slowdown that writers have not yet waited, in nanoseconds.
    pub owed: u64,
    /// Length of the current log at which the length of all logs is checked again.
    pub check_log_at: u64,
    /// Length of the current log from which on keyspaces may have to be flushed to free older logs.
    pub check_holders_at: u64,
    /// Nanoseconds that a writer waits per KiB because the log is near its cap.
    pub log_slowdown: u64,
}

impl Writer {
    pub(crate) fn new(log: Log, next_seq: Seq) -> Writer {
        Writer {
            log,
            next_seq,
            scratch: Vec::new(),
            active_bytes: 0,
            owed: 0,
            check_log_at: 0,
            check_holders_at: 0,
            log_slowdown: 0,
        }
    }

    /// Makes every acknowledged write durable. An error of the sync ends all writing.
    pub(crate) fn sync_log(&mut self, core: &DbInner) -> Result<()> {
        core.check_process()?;
        core.flush_log(self)?;
        let established = core.establish_log();
        // On a full disk the manifest may not take the name of the log; the writes in it need no space to be durable.
        self.sync(core)?;
        established
    }

    /// Syncs what has been handed to the operating system. An error ends all writing.
    pub(crate) fn sync(&mut self, core: &DbInner) -> Result<()> {
        match self.log.sync() {
            Err(e) if planted(Bug::GoOnAfterFailedSync) => Err(e),
            synced => synced.map_err(|e| core.stop(&e)),
        }
    }

    /// Accounts for a new, empty memtable of a keyspace.
    pub(crate) fn note_memtable(&mut self, keyspace: &KeyspaceInner) {
        self.forget(keyspace);
        keyspace.reserved.store(memtable::BASE_BYTES, Ordering::Relaxed);
        self.active_bytes += memtable::BASE_BYTES;
    }

    /// Removes a memtable from the accounting: it is sealed, or its keyspace dropped.
    pub(crate) fn forget(&mut self, keyspace: &KeyspaceInner) {
        let reserved = keyspace.reserved.swap(0, Ordering::Relaxed);
        self.active_bytes = self.active_bytes.saturating_sub(reserved);
    }

    /// Reserves memory in a memtable; returns whether there was room.
    #[inline]
    pub(crate) fn reserve(&mut self, keyspace: &KeyspaceInner, memtable: &Memtable, bytes: usize) -> bool {
        let fits = memtable.reserve(bytes);
        if fits {
            let reserved = keyspace.reserved.load(Ordering::Relaxed) + bytes as u64;
            keyspace.reserved.store(reserved, Ordering::Relaxed);
            self.active_bytes += bytes as u64;
        }
        fits
    }
}

/// Ends all writing when it is dropped by a panic, which only a bug can cause: the thread's operation is half done, and other threads may
/// wait for it.
pub(crate) struct PanicGuard<'a> {
    core: &'a DbInner,
    what: &'static str,
    /// Whether the thread was panicking before, and now unwinds through a destructor that uses the database.
    unwinding: bool,
}

impl<'a> PanicGuard<'a> {
    #[inline]
    pub(crate) fn new(core: &'a DbInner, what: &'static str) -> PanicGuard<'a> {
        PanicGuard { core, what, unwinding: std::thread::panicking() }
    }
}

impl PanicGuard<'_> {
    /// Does the check of `drop`.
    #[inline]
    pub(crate) fn look(&self) {
        if std::thread::panicking() && !self.unwinding {
            self.core.stop(&panicked(self.what));
        }
    }
}

impl Drop for PanicGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.look();
    }
}

/// Publishes a commit when its insertion ends, even by a panic: later commits wait for it. A panic, which only a bug can cause, ends all
/// writing.
pub(crate) struct Publishing<'a> {
    watch: PanicGuard<'a>,
    core: &'a DbInner,
    first_seq: Seq,
    last_seq: Seq,
}

impl<'a> Publishing<'a> {
    #[inline]
    pub(crate) fn new(core: &'a DbInner, first_seq: Seq, last_seq: Seq) -> Publishing<'a> {
        Publishing { watch: PanicGuard::new(core, "a writer"), core, first_seq, last_seq }
    }
}

impl Drop for Publishing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.watch.look();
        self.core.visible.publish(self.first_seq, self.last_seq);
    }
}

/// The error that other threads get after a panic in `what`.
#[cold]
pub(crate) fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::ReadOnly, format!("{what} panicked"))
}

/// The held writer. Dropping it passes the lead on to the queue; a panic while it is held ends all writing before another thread gets it.
pub(crate) struct WriterGuard<'a> {
    // Dropped in this order.
    _watch: PanicGuard<'a>,
    writer: MutexGuard<'a, Writer>,
    _pass_on: LeaderHandoff<'a>,
}

struct LeaderHandoff<'a>(&'a DbInner);

impl Drop for LeaderHandoff<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.commit.pass_on();
    }
}

impl<'a> WriterGuard<'a> {
    #[inline]
    fn new(core: &'a DbInner, writer: MutexGuard<'a, Writer>) -> WriterGuard<'a> {
        WriterGuard { _watch: PanicGuard::new(core, "a writer"), writer, _pass_on: LeaderHandoff(core) }
    }
}

impl Deref for WriterGuard<'_> {
    type Target = Writer;
    #[inline]
    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for WriterGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

impl DbInner {
    /// Waits for the writer.
    #[inline]
    pub(crate) fn writer(&self) -> WriterGuard<'_> {
        WriterGuard::new(self, self.commit.wait())
    }

    /// The writer, if it becomes free within a moment and the queue is empty.
    #[inline]
    pub(crate) fn try_writer_briefly(&self) -> Option<WriterGuard<'_>> {
        Some(WriterGuard::new(self, self.commit.try_briefly()?))
    }

    /// The writer, if it is free and the queue is empty.
    #[inline]
    pub(crate) fn try_writer(&self) -> Option<WriterGuard<'_>> {
        Some(WriterGuard::new(self, self.commit.try_now()?))
    }
}
