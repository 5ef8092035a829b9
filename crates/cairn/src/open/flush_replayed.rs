//! Writes full memtables of a replay to tables.

use super::recovery::Recovery;
use super::replayed::{Replayed, Spill};
use crate::sync::Ordering;
use base::{RangeSet, Result, Time};
use memtable::Memtable;
use tree::JobContext;

impl Recovery {
    /// Writes a keyspace's memtable to a table, unless the memtable has to stay in memory. No manifest names the table yet.
    pub(crate) fn flush(&self, keyspace: &mut Replayed, spill: Spill) -> Result<()> {
        let memtable = std::mem::replace(&mut keyspace.memtable, Memtable::empty());
        if memtable.is_empty() {
            return Ok(());
        }
        if spill == Spill::Nowhere {
            keyspace.full.push(memtable);
            return Ok(());
        }
        if let Some(log) = keyspace.hash_log.clone() {
            return self.flush_to_values(keyspace, &log, &memtable);
        }
        let next_number = || self.parts.next_file.fetch_add(1, Ordering::Relaxed);
        let ranges = memtable.ranges().map_or_else(RangeSet::default, |set| RangeSet::clone(&set));
        let options = keyspace.tree.options().clone();
        let operator = keyspace.operator.clone();
        let context = JobContext {
            env: &self.parts.env,
            dir: &self.parts.dir,
            options: &options,
            next_number: &next_number,
            snapshots: &[],
            rate_limiter: &|_| {},
            range_tombstones: &ranges,
            inline_values: false,
            joins_values: true,
            cancelled: &std::sync::atomic::AtomicBool::new(false),
            times: keyspace.times_of(),
            expired_by: Time::MIN,
            late: true,
            filter: None,
            operator: operator.as_deref(),
        };
        keyspace.flush(&memtable, &context, &mut |meta| self.parts.tables.open(meta))?;
        self.remove_merged();
        Ok(())
    }

    /// Removes tables of this opening that were merged into others. Tables of the old manifest are in use until the new one is in force.
    fn remove_merged(&self) {
        for number in self.parts.tables.obsolete.take() {
            self.parts.tables.cache.forget(number);
            let _ = self.parts.env.remove(&self.parts.dir.join(table::table_file_name(number)));
        }
    }
}
