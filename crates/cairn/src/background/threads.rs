//! The background threads: one flushes, `background_threads` others compact, and one scrubs if `scrub_rate` is set. With
//! `background_threads` 0 there are none, and everything runs in the thread that triggers it (`requests.rs`).

use super::compact::RETRY_PAUSE;
use crate::state::{DbInner, PanicGuard};
use crate::sync::{Ordering, thread, thread::JoinHandle};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// `Buffered` writes reach the operating system at least this often.
const BUFFER_PAUSE: Duration = Duration::from_millis(100);

/// A spent reserve is tried again after this many idle rounds of the flush thread: about once a second.
const RESERVE_ROUNDS: u32 = 10;

/// Interval at which an idle compaction thread checks whether writers pause.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

/// Writers pause when they have written less than this in the interval, in bytes of keys and values: what one core compacts in some
/// milliseconds.
const IDLE_BYTES: u64 = 1 << 20;

/// The last check for a pause: its time, and the bytes of keys and values written until then.
struct Calm {
    since: Duration,
    bytes: u64,
}

/// What a thread runs until the database ends.
type Work = fn(&DbInner);

/// The threads of a database.
#[derive(Default)]
pub(crate) struct Background(Vec<JoinHandle<()>>);

impl Background {
    pub(crate) fn start(db: &Arc<DbInner>) -> Result<Background> {
        let mut threads = Background::default();
        if db.is_inline() {
            return Ok(threads);
        }
        db.writer().log.on_idle();
        let mut works: Vec<(String, Work)> = vec![("cairn-flush".to_owned(), DbInner::flush_loop)];
        let compact = |i| (format!("cairn-compact-{i}"), DbInner::compact_loop as Work);
        works.extend((0..db.options.background_threads).map(compact));
        if db.options.scrub_rate > 0 {
            works.push(("cairn-scrub".to_owned(), DbInner::scrub_loop));
        }
        for (name, work) in works {
            let of_thread = db.clone();
            let body = move || {
                // After a panic no thread would flush or compact any more: writing ends, instead of hanging.
                let _watch = PanicGuard::new(&of_thread, "a background thread");
                work(&of_thread);
            };
            match thread::Builder::new().name(name).spawn(body) {
                Ok(thread) => threads.0.push(thread),
                Err(e) => {
                    let e = Error::new(ErrorKind::Io, format!("starting a thread: {e}"));
                    db.stop(&e);
                    let _ = threads.join();
                    return Err(e);
                }
            }
        }
        Ok(threads)
    }

    /// Waits for the threads to end.
    pub(crate) fn join(&mut self) -> Result<()> {
        let ends: Vec<_> = self.0.drain(..).map(JoinHandle::join).collect();
        match ends.iter().any(|end| end.is_err()) {
            true => Err(Error::new(ErrorKind::ReadOnly, "a background thread panicked")),
            false => Ok(()),
        }
    }
}

impl DbInner {
    fn flush_loop(&self) {
        let mut rounds = 0u32;
        while !self.status.ends() {
            // A switch has woken this thread. A temporary failure is retried in the next round.
            let _ = self.establish_log();
            match self.next_flush() {
                Some(job) => {
                    if self.run_flush(job).is_err() && !self.status.ends() {
                        self.pause_after_failure();
                        rounds += (RETRY_PAUSE.as_millis() / BUFFER_PAUSE.as_millis()) as u32;
                    }
                }
                None => {
                    let mut state = self.state.lock();
                    if !self.status.ends() && !state.has_flush_work() {
                        self.signals.flush_work.wait_for(&mut state, BUFFER_PAUSE);
                    }
                    drop(state);
                    self.try_seal_due();
                    if self.signals.trees_due.load(Ordering::Relaxed) {
                        self.signals.compact_work.notify_one();
                    }
                    self.tend_log();
                    rounds += 1;
                }
            }
            if rounds >= RESERVE_ROUNDS {
                rounds = 0;
                self.look_for_space();
            }
        }
    }

    /// Hands waiting `Buffered` writes to the operating system, and lets other processes open the log. Skipped while another thread
    /// writes, which does both.
    fn tend_log(&self) {
        let Some(mut writer) = self.try_writer() else { return };
        if writer.log.buffered() > 0 && !self.status.ends() {
            // On an error the data stays in the buffer, and the next writer gets the error.
            let _ = self.flush_log(&mut writer);
        }
        writer.log.on_idle();
    }

    /// Periodic work of the flush thread: removes an old recycled log and trims a long one; frees spare memory; while the reserve is spent, makes it again if
    /// there is room, and otherwise seals memtables with tombstones.
    fn look_for_space(&self) {
        if self.check_place().is_err() {
            return;
        }
        self.logs.recycled.forget_old();
        if self.kept_files.count() > 0 {
            self.collect_obsolete();
        }
        self.spare_memory.age();
        self.trim_log();
        if !self.disk_reserve.retake() {
            // If another thread holds the writer, the next group commit leader seals them.
            self.signals.memtables_due.store(true, Ordering::Release);
            self.try_seal_due();
        }
    }

    pub(super) fn pause_after_failure(&self) {
        let mut state = self.state.lock();
        if !self.status.ends() {
            self.signals.end.wait_for(&mut state, RETRY_PAUSE);
        }
    }

    fn compact_loop(&self) {
        let mut calm = Calm { since: self.env.monotonic(), bytes: self.counters.user_bytes() };
        while !self.status.ends() {
            if self.an_index_is_full() && self.collect_if_due() {
                continue;
            }
            match self.next_compaction() {
                Some((keyspace, plan)) => {
                    if self.run_plan(&keyspace, plan).is_err() && !self.status.ends() {
                        self.pause_after_failure();
                    }
                }
                None if self.collect_if_due() => {}
                None if self.begins_idle(&mut calm) => {}
                None => {
                    // A dropped iterator may have been the last user of some tables.
                    self.collect_obsolete();
                    // What was estimated before the last jobs no longer holds.
                    self.note_dead_values();
                    let mut state = self.state.lock();
                    self.update_slowdown(&state);
                    self.signals.progress.notify_all();
                    if !self.status.ends() {
                        self.signals.compact_work.wait_for(&mut state, IDLE_PAUSE);
                    }
                }
            }
        }
    }

    /// Runs a collection if one is due. Returns whether there was one.
    fn collect_if_due(&self) -> bool {
        let Some(collection) = self.next_collection() else { return false };
        if self.run_collection(collection).is_err() && !self.status.ends() {
            self.pause_after_failure();
        }
        true
    }

    /// Whether writers have (nearly) paused for a while: idle compactions may then run, until writers have written so much again.
    fn begins_idle(&self, calm: &mut Calm) -> bool {
        let (now, bytes) = (self.env.monotonic(), self.counters.user_bytes());
        if now.saturating_sub(calm.since) < IDLE_PAUSE {
            return false;
        }
        let written = bytes - std::mem::replace(calm, Calm { since: now, bytes }).bytes;
        written < IDLE_BYTES && self.idle_until.fetch_max(bytes + IDLE_BYTES, Ordering::Relaxed) <= bytes
    }
}
