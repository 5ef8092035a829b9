//! Removes files that nothing needs any more: logs whose entries are all in tables, and tables that no version uses. Each is removed only
//! after the edit by which it is not needed is durable.

use crate::state::DbInner;
use crate::wal::log_file_name;

impl DbInner {
    /// Removes the logs that the durable manifest no longer needs.
    pub(crate) fn remove_logs(&self, min_log: u64) {
        let gone = self.closed_logs.release(min_log);
        for log in &gone {
            match self.disk_reserve.is_spent() {
                false => self.recycled.offer(log.number, log.len),
                // Logs that are not removed here are removed by the next opening.
                true => _ = self.env.remove(&self.dir.join(log_file_name(log.number))),
            }
        }
        self.made_room(!gone.is_empty());
    }

    /// Called when files may have been removed: the reserve may shrink, or be made again if it is spent.
    fn made_room(&self, gone: bool) {
        if gone {
            self.disk_reserve.fit(self.log_bytes());
            self.trim_log();
            self.disk_reserve.retake();
        }
    }

    /// Deletes the tables that no version uses any more.
    pub(crate) fn collect_garbage(&self) {
        // One thread at a time: when this returns, everything that was garbage before is deleted.
        let _collecting = self.collecting.lock();
        let gone = self.garbage.take();
        // Tables that are not removed here are removed by the next opening.
        if gone.is_empty() || self.check_place().is_err() {
            return;
        }
        for &number in &gone {
            self.tables.forget(number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(number)));
        }
        self.made_room(!gone.is_empty());
    }

    /// Removes tables that did not get into the manifest. If that is uncertain, they stay.
    pub(crate) fn discard(&self, tables: &[table::TableMeta]) {
        if self.fatal.get().is_some() {
            return;
        }
        for table in tables {
            self.tables.forget(table.number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(table.number)));
        }
    }
}
