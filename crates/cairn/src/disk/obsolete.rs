//! Removes files that nothing needs any more: logs whose entries are all in tables, and tables that no version uses. Each is removed only
//! after the edit by which it is not needed is durable.

use crate::parts::Unneeded;
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
        let mut unneeded = Vec::new();
        for (log, is_listed) in &removed {
            if self.tables.segments.retire(log.number, log.len) {
                continue;
            }
            if *is_listed {
                // A copy, which is a reader of whole files and began before this call, may want this one.
                self.tables.segments.emptied(vec![log_file_name(log.number)]);
                continue;
            }
            unneeded.push(Unneeded::Log { number: log.number, len: log.len });
        }
        if !removed.is_empty() {
            self.remove_unneeded(unneeded);
            self.after_removal();
        }
    }

    /// Removes files that the durable manifest does not name any more, and others for which readers in other processes were waited, as far as none
    /// of these needs them. Files that are not removed here are removed later, or by the next opening.
    pub(crate) fn remove_unneeded(&self, unneeded: Vec<Unneeded>) {
        for file in self.kept_files.release(unneeded) {
            match file {
                Unneeded::Log { number, len } if !self.disk_reserve.is_spent() => {
                    self.logs.recycled.offer(number, len);
                }
                file => _ = self.env.remove(&self.dir.join(file.name())),
            }
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
        if self.is_moment() {
            return;
        }
        // One thread at a time: when this returns, everything that was obsolete before is deleted.
        let _collecting = self.tables.deleting.lock();
        let removed = self.tables.obsolete.take();
        let segments = self.tables.segments.take_dead(self.oldest_log());
        let is_nothing = removed.is_empty() && segments.is_empty() && self.kept_files.count() == 0;
        if is_nothing || self.check_place().is_err() {
            return;
        }
        removed.iter().for_each(|&number| self.tables.cache.forget(number));
        let tables = removed.iter().map(|&number| table::table_file_name(number));
        self.remove_unneeded(segments.into_iter().chain(tables).map(Unneeded::File).collect());
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
