//! Removes files that nothing needs any more: logs whose entries are all in tables, and tables that no version uses. Each is removed only
//! after the edit by which it is not needed is durable.

use crate::state::{DbInner, FlushedCounts, State};
use crate::sync::Ordering;
use crate::wal::log_file_name;
use base::planted::{Bug, planted};
use hashlog::{HintFile, hint_file_name};

impl DbInner {
    /// Number of the oldest log that is needed once `flushed` is in tables.
    pub(crate) fn min_log(&self, state: &State, flushed: &FlushedCounts) -> u64 {
        // Read first: concurrent writes go to this log or a newer one.
        let current = self.logs.counters.current.load(Ordering::Acquire);
        if planted(Bug::FreeLogEarly) {
            return current;
        }
        let oldest = state.oldest_unflushed(flushed);
        oldest.and_then(|seq| self.logs.closed.holding(seq)).unwrap_or(current).min(current)
    }

    /// Number of the oldest log that recovery needs, or of an older one: it may advance meanwhile.
    pub(crate) fn oldest_log(&self) -> u64 {
        // Read first: a log that is closed meanwhile is in the list then.
        let current = self.logs.counters.current.load(Ordering::Acquire);
        self.logs.closed.oldest().unwrap_or(current)
    }

    /// Bytes of all needed logs.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.logs.closed.bytes() + self.logs.counters.current_len.load(Ordering::Relaxed)
    }

    /// Removes the logs that the durable manifest no longer needs.
    pub(crate) fn remove_logs(&self, min_log: u64) {
        let removed = self.logs.closed.release(min_log);
        for (log, is_listed) in &removed {
            if self.tables.segments.retire(log.number, log.len) {
                continue;
            }
            if *is_listed {
                // A copy, which is a reader of whole files and began before this call, may want this one.
                self.tables.segments.emptied(vec![log_file_name(log.number)]);
                continue;
            }
            match self.disk_reserve.is_spent() {
                false => self.logs.recycled.offer(log.number, log.len),
                // Logs that are not removed here are removed by the next opening.
                true => _ = self.env.remove(&self.dir.join(log_file_name(log.number))),
            }
        }
        if !removed.is_empty() {
            self.after_removal();
        }
    }

    /// Called when files were removed: the reserve may shrink, or be made again if it is spent.
    fn after_removal(&self) {
        self.disk_reserve.fit(self.log_bytes());
        self.trim_log();
        self.disk_reserve.retake();
    }

    /// Deletes the tables that no version uses any more.
    pub(crate) fn collect_obsolete(&self) {
        // One thread at a time: when this returns, everything that was obsolete before is deleted.
        let _collecting = self.tables.deleting.lock();
        let removed = self.tables.obsolete.take();
        let segments = self.tables.segments.take_dead(self.oldest_log());
        // Files that are not removed here are removed by the next opening.
        if (removed.is_empty() && segments.is_empty()) || self.check_place().is_err() {
            return;
        }
        for name in &segments {
            let _ = self.env.remove(&self.dir.join(name));
        }
        for &number in &removed {
            self.tables.cache.forget(number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(number)));
        }
        self.after_removal();
    }

    /// Removes hint files that did not get into the manifest. If that is uncertain, they stay.
    pub(crate) fn discard_hints(&self, hints: &[HintFile]) {
        if self.status.fatal.get().is_none() {
            self.remove_hints(hints.iter().map(|file| file.number));
        }
    }

    /// Removes hint files that no durable manifest has named.
    pub(crate) fn remove_hints(&self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let _ = self.env.remove(&self.dir.join(hint_file_name(number)));
        }
    }

    /// Removes tables that did not get into the manifest. If that is uncertain, they stay.
    pub(crate) fn discard(&self, tables: &[table::TableMeta]) {
        if self.status.fatal.get().is_some() {
            return;
        }
        for table in tables {
            self.tables.cache.forget(table.number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(table.number)));
        }
    }
}
