//! The write-ahead log: a chain of segments, numbered without gaps, shared by all keyspaces.
//!
//! Each segment's header has the length of the segment before it, so that recovery detects a gap between the two. A segment is synced
//! beyond its header only after all older segments that are still needed; so proof that a segment was synced is proof for its
//! predecessors, too.
//!
//! The record of a batch is described in `docs/format/log.md`.

use super::closed_logs::{ClosedLogs, LogCounters, LogSync};
use super::log_file::{LogHeader, log_file_name};
use super::recycled_log::RecycledLogs;
use crate::sync::{Mutex, Ordering};
use base::{Error, Result, Seq};
use env::{Env, FrontSync};
use record::{SegmentKind, SegmentWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The parts of the log that are shared with other modules.
pub(crate) struct Logs {
    /// Older logs, which must be synced before the current one.
    pub closed: ClosedLogs,
    pub recycled: Arc<RecycledLogs>,
    pub begun: BegunLog,
    pub counters: LogCounters,
}

/// The state of the newest log: begun, and established or not (`establish_log.rs`). No other lock is taken under its lock.
#[derive(Default)]
pub(crate) struct BegunLog(Mutex<Newest>);

#[derive(Default)]
struct Newest {
    /// Number of the newest established log; 0 when there is none.
    established: u64,
    /// The next log, if it is begun, with the sync of its header.
    begun: Option<(u64, FrontSync)>,
}

impl BegunLog {
    /// Records that log `number` is written to from now on.
    pub(crate) fn begin(&self, number: u64, sync_header: FrontSync) {
        self.0.lock().begun = Some((number, sync_header));
    }

    /// Records that log `number`, the newest, is established.
    pub(crate) fn note_established(&self, number: u64) {
        *self.0.lock() = Newest { established: number, begun: None };
    }

    /// The newest log that the manifest may name.
    pub(crate) fn established(&self) -> u64 {
        self.0.lock().established
    }

    /// Closes the file.
    pub(crate) fn forget(&self) {
        self.0.lock().begun = None;
    }

    pub(crate) fn begun(&self) -> Option<(u64, FrontSync)> {
        self.0.lock().begun.clone()
    }
}

/// The log that is written to. One thread at a time holds it.
pub(crate) struct Log {
    env: Arc<dyn Env>,
    dir: PathBuf,
    writer: SegmentWriter,
    logs: Arc<Logs>,
    counted: u64,
    /// End of the mark of the last sync; 0 before the first. A mark needs no sync itself, because it may be lost.
    marked: u64,
    /// Whether [`Log::on_idle`] is called regularly.
    leases: bool,
}

impl Log {
    /// Creates log `number` durably. The caller names it in the manifest before it writes to the log.
    pub(crate) fn create(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        header: LogHeader,
        logs: Arc<Logs>,
    ) -> Result<Log> {
        let mut writer = begin_segment(env, dir, number, header, &logs.recycled)?;
        let synced = writer.sync().and_then(|()| env.sync_dir(dir));
        if let Err(e) = synced {
            drop(writer);
            let _ = env.remove(&dir.join(log_file_name(number)));
            return Err(e.sync_failed());
        }
        logs.begun.note_established(number);
        Ok(Log::new(env, dir, writer, logs))
    }

    fn new(env: &Arc<dyn Env>, dir: &Path, writer: SegmentWriter, logs: Arc<Logs>) -> Log {
        logs.counters.current.store(writer.number(), Ordering::Release);
        let (env, dir) = (env.clone(), dir.to_owned());
        Log { env, dir, writer, logs, counted: 0, marked: 0, leases: false }
    }

    /// A log that refuses every write with `error`, in place of log `number`.
    pub(crate) fn refusing(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        error: Error,
        logs: Arc<Logs>,
    ) -> Log {
        Log::new(env, dir, refusing_segment(dir, number, error), logs)
    }

    /// Closes the file: every later write fails with `error`.
    pub(crate) fn refuse(&mut self, error: Error) {
        self.writer = refusing_segment(&self.dir, self.writer.number(), error);
        self.logs.begun.forget();
    }

    /// Appends a record, in parts, to the buffer.
    #[inline]
    pub(crate) fn append(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.writer.append(parts)
    }

    /// Length including the buffer: the argument for [`Log::rollback`].
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.writer.len()
    }

    /// The number of the current log.
    pub(crate) fn number(&self) -> u64 {
        self.writer.number()
    }

    /// Number and durable length of the current log.
    pub(crate) fn closed_at(&self) -> tree::LogClosed {
        tree::LogClosed { number: self.writer.number(), len: self.writer.synced_len() }
    }

    /// Bytes in the buffer.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        self.writer.buffered()
    }

    /// Removes everything appended after `len`. None of it may be acknowledged.
    pub(crate) fn rollback(&mut self, len: u64) {
        self.writer.rollback(len);
    }

    /// Hands the buffer to the operating system.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<()> {
        let result = self.writer.flush();
        self.count();
        result
    }

    fn count(&mut self) {
        let len = self.writer.flushed_len();
        // Less when a large record was rolled back.
        self.logs.counters.bytes.fetch_add(len.wrapping_sub(self.counted), Ordering::Relaxed);
        self.logs.counters.current_len.store(len, Ordering::Relaxed);
        self.counted = len;
    }

    /// Makes everything appended here and in older logs durable. Then appends, unsynced, an empty record, the mark: it proves that
    /// everything before it was synced, so that damage to the newest record is not taken for a torn tail. Does nothing if only such a
    /// mark was appended since the last sync, and all older logs are synced.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.logs.closed.sync_up_to(Seq::MAX, &self.logs.counters, LogSync::AtOnce)?;
        // A failed append may have left something to roll back.
        self.writer.flush()?;
        if self.writer.len() == self.marked {
            return Ok(());
        }
        let synced = self.writer.synced_len();
        self.writer.sync()?;
        if self.writer.synced_len() > synced {
            self.logs.counters.syncs.fetch_add(1, Ordering::Relaxed);
            let marked = self.writer.append(&[]).and_then(|()| self.writer.flush());
            self.marked = if marked.is_ok() { self.writer.len() } else { 0 };
        }
        self.count();
        Ok(())
    }

    /// Called while nothing is appended: lets other processes open the current log. The first call promises that more follow, ten
    /// times a second: appending may then be cheaper.
    pub(crate) fn on_idle(&mut self) {
        self.leases = true;
        self.writer.on_idle();
    }

    /// Truncates the file of the current log behind its end. Best effort.
    pub(crate) fn trim(&mut self) {
        self.writer.trim();
    }

    /// Closes the current log, which must be established, and begins the next one, without a sync. `last_seq` is the newest assigned
    /// sequence number.
    pub(crate) fn switch(&mut self, last_seq: Seq) -> Result<()> {
        self.flush()?;
        let previous_synced = self.writer.synced_len().min(self.writer.len());
        let header = LogHeader { previous_len: self.writer.len(), last_seq, previous_synced };
        let number = self.writer.number() + 1;
        let mut next = begin_segment(&self.env, &self.dir, number, header, &self.logs.recycled)?;
        self.logs.begun.begin(number, next.front()?);
        if self.leases {
            next.on_idle();
        }
        let mut writer = std::mem::replace(&mut self.writer, next);
        writer.trim();
        (self.counted, self.marked) = (0, 0);
        let len = writer.len();
        let synced = writer.synced_len() == len;
        let unsynced = (!synced).then_some(writer);
        self.logs.closed.push(number - 1, len, last_seq, unsynced);
        self.logs.counters.current.store(self.writer.number(), Ordering::Release);
        self.count();
        // The switch is done; a failed sync ends all writing.
        self.logs.closed.close_old(&self.logs.counters).map_err(|e| e.sync_failed())
    }
}

fn refusing_segment(dir: &Path, number: u64, error: Error) -> SegmentWriter {
    SegmentWriter::refusing(&dir.join(log_file_name(number)), SegmentKind::Wal, number, error)
}

/// Creates the file of a log under its name, with its header; nothing of it is durable. After a crash, a recycled file whose header was
/// not synced has the header of an older log, or a torn one.
fn begin_segment(
    env: &Arc<dyn Env>,
    dir: &Path,
    number: u64,
    header: LogHeader,
    recycled: &RecycledLogs,
) -> Result<SegmentWriter> {
    let (path, header) = (dir.join(log_file_name(number)), header.encode());
    let Some((writer, old_path)) = recycled.begin(&path, number, &header) else {
        return SegmentWriter::create(env, &path, SegmentKind::Wal, number, &header);
    };
    match env.rename(&old_path, &path) {
        Ok(()) => Ok(writer),
        Err(e) => {
            drop(writer);
            for name in [&old_path, &path] {
                let _ = env.remove(name);
            }
            Err(e)
        }
    }
}
