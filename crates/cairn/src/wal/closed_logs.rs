//! The logs before the current one, which may still be needed.

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use base::{Result, Seq};
use record::SegmentWriter;
use std::sync::Arc;

/// Maximum number of unsynced closed logs that stay open: the error of a failed sync is reported only to the handle that wrote the file.
pub(crate) const MAX_OPEN_LOGS: usize = 8;

/// How a closed log is synced.
#[derive(Clone, Copy)]
pub(crate) enum LogSync {
    /// For a writer that waits.
    AtOnce,
    /// In the background: reads do not wait behind the whole log.
    InPortions,
}

/// A log that is no longer written to, and may still be needed.
#[derive(Clone)]
struct Closed {
    number: u64,
    len: u64,
    last_seq: Seq,
    /// Locked during its sync; `None`, with the file closed, afterwards.
    writer: Arc<Mutex<Option<SegmentWriter>>>,
    synced: Arc<AtomicBool>,
}

impl Closed {
    /// Syncs the log, unless it is synced.
    fn sync(&self, counters: &LogCounters, sync: LogSync) -> Result<()> {
        let mut writer = self.writer.lock();
        if let Some(segment) = &mut *writer {
            match sync {
                LogSync::AtOnce => segment.sync()?,
                LogSync::InPortions => segment.sync_in_portions()?,
            }
            self.synced.store(true, Ordering::Release);
            counters.syncs.fetch_add(1, Ordering::Relaxed);
            *writer = None;
        }
        Ok(())
    }
}

/// Closed logs of one moment. None of them is recycled while it lives, and those that are not synced stay open, also when nothing else needs them
/// any more.
pub(crate) struct ListedLogs(Vec<Closed>);

impl ListedLogs {
    /// Leaves only the logs from `min_log` on.
    pub(crate) fn keep_from(&mut self, min_log: u64) {
        self.0.retain(|log| log.number >= min_log);
    }

    /// Syncs all of them, oldest first.
    pub(crate) fn sync(&self, counters: &LogCounters) -> Result<()> {
        self.0.iter().try_for_each(|log| log.sync(counters, LogSync::InPortions))
    }

    /// The newest sequence number in them; 0 if there are none.
    pub(crate) fn last_seq(&self) -> Seq {
        self.0.last().map_or(0, |log| log.last_seq)
    }

    /// Their numbers and lengths.
    pub(crate) fn closed(&self) -> Vec<tree::LogClosed> {
        self.0.iter().map(|log| tree::LogClosed { number: log.number, len: log.len }).collect()
    }
}

/// A log that an opening keeps unchanged: closed and synced.
pub(crate) struct KeptLog {
    pub number: u64,
    pub len: u64,
    /// The newest sequence number in this log or an older one.
    pub last_seq: Seq,
}

/// The logs before the current one. The list is locked only briefly, never during I/O, so that a flush can sync logs while writes go on.
#[derive(Default)]
pub(crate) struct ClosedLogs(Mutex<Vec<Closed>>);

impl ClosedLogs {
    /// Starts with these logs, oldest first.
    pub(crate) fn keeping(kept: &[KeptLog]) -> ClosedLogs {
        let logs = ClosedLogs::default();
        kept.iter().for_each(|log| logs.push(log.number, log.len, log.last_seq, None));
        logs
    }

    /// Adds the log that was the current one. `writer`: its file, unless all of it is synced.
    pub(crate) fn push(&self, number: u64, len: u64, last_seq: Seq, writer: Option<SegmentWriter>) {
        let synced = Arc::new(AtomicBool::new(writer.is_none()));
        self.0.lock().push(Closed { number, len, last_seq, writer: Arc::new(Mutex::new(writer)), synced });
    }

    /// Syncs every closed log that begins at or before `seq`, oldest first.
    pub(crate) fn sync_up_to(&self, seq: Seq, counters: &LogCounters, sync: LogSync) -> Result<()> {
        let logs = self.0.lock().clone();
        let mut begins = 0;
        for log in logs {
            if begins > seq {
                break;
            }
            log.sync(counters, sync)?;
            begins = log.last_seq + 1;
        }
        Ok(())
    }

    /// The closed logs of this moment.
    pub(crate) fn list(&self) -> ListedLogs {
        ListedLogs(self.0.lock().clone())
    }

    /// Syncs and closes the oldest open logs, except for the newest few: a keyspace with few writes can keep any number of logs.
    pub(crate) fn close_old(&self, counters: &LogCounters) -> Result<()> {
        let upto = {
            let logs = self.0.lock();
            let open = || logs.iter().filter(|log| !log.synced.load(Ordering::Acquire));
            let many = open().count().checked_sub(MAX_OPEN_LOGS).filter(|&n| n > 0);
            many.and_then(|n| open().nth(n - 1)).map(|log| log.last_seq)
        };
        upto.map_or(Ok(()), |seq| self.sync_up_to(seq, counters, LogSync::AtOnce))
    }

    /// Number of the oldest log with an entry of this sequence number or a newer one; `None` when only the current log has any.
    pub(crate) fn holding(&self, seq: Seq) -> Option<u64> {
        self.0.lock().iter().find(|log| log.last_seq >= seq).map(|log| log.number)
    }

    /// Bytes of the logs from [`ClosedLogs::holding`]`(seq)` on.
    pub(crate) fn bytes_from(&self, seq: Option<Seq>) -> u64 {
        let Some(seq) = seq else { return 0 };
        self.0.lock().iter().filter(|log| log.last_seq >= seq).map(|log| log.len).sum()
    }

    /// The last sequence number of the log at which these logs, counted from the oldest, exceed `bytes` bytes; `Seq::MAX` when they have
    /// fewer together.
    pub(crate) fn last_seq_of_first(&self, seq: Option<Seq>, bytes: u64) -> Seq {
        let Some(seq) = seq else { return Seq::MAX };
        let mut sum = 0;
        let logs = self.0.lock();
        let passes = |log: &&Closed| {
            sum += log.len;
            sum > bytes
        };
        logs.iter().filter(|log| log.last_seq >= seq).find(passes).map_or(Seq::MAX, |log| log.last_seq)
    }

    /// The synced closed logs, with their lengths.
    pub(crate) fn synced(&self) -> Vec<tree::LogClosed> {
        let logs = self.0.lock();
        let synced = logs.iter().filter(|log| log.synced.load(Ordering::Acquire));
        synced.map(|log| tree::LogClosed { number: log.number, len: log.len }).collect()
    }

    /// Removes the logs before `min_log` from the list, and returns their numbers and lengths, and whether a [`ListedLogs`] may have them: its
    /// holder may read them.
    pub(crate) fn release(&self, min_log: u64) -> Vec<(tree::LogClosed, bool)> {
        let released: Vec<Closed> = self.0.lock().extract_if(.., |log| log.number < min_log).collect();
        let of = |log: &Closed| {
            // A sync has a clone for a moment, too.
            (tree::LogClosed { number: log.number, len: log.len }, Arc::strong_count(&log.synced) > 1)
        };
        released.iter().map(of).collect()
    }

    /// Number of the oldest log.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.0.lock().first().map(|log| log.number)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().iter().map(|log| log.len).sum()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// Counters of the log. Written by the holder of the log.
#[derive(Default)]
pub(crate) struct LogCounters {
    /// Bytes of closed logs and of the current one.
    pub bytes: AtomicU64,
    pub syncs: AtomicU64,
    /// Bytes of the current log.
    pub current_len: AtomicU64,
    /// Number of the current log.
    pub current: AtomicU64,
}
