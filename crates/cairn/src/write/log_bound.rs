//! Keeping the log within its cap.
//!
//! A log can be removed when none of its entries is only in a memtable. A keyspace with few writes keeps its oldest log until it is
//! flushed, so many such keyspaces keep all logs. When the logs reach half of the cap, the memtables that hold the oldest part are sealed
//! and flushed together; if no memtable holds anything, the log is switched all the same and the old one removed.
//!
//! ```text
//!   0            1/2            3/4             cap
//!   |-------------|--------------|---------------|
//!                 holders of the oldest part are flushed
//!                                writers are slowed, the more the nearer the cap
//!                                                writers wait for a flush
//! ```
//!
//! The length is checked before each group of writes, when it has grown by 4 KiB or more: so the logs exceed the cap by at most that and
//! one group.
//!
//! Memtables that already wait for a flush do not count when this module decides whether more must be flushed: their logs become free
//! without it.

use crate::parts::Stall;
use crate::state::{DbInner, ReadState, State, Writer};
use base::Result;

/// Wait for a write of 1 KiB at the cap, in nanoseconds; from three quarters on it grows with the square of the excess.
const SLOWDOWN_NANOS: f64 = 32_000.0;

/// The length is checked again after at least this many bytes.
const MIN_STEP: u64 = 4 << 10;

/// And after at most this many.
const MAX_STEP: u64 = 64 << 20;

impl DbInner {
    /// Keeps all logs together within `cap` bytes: flushes, slows or stops writers as the module describes.
    pub(crate) fn bound_log(&self, writer: &mut Writer, cap: u64) -> Result<()> {
        let mut total = self.bytes_with(writer);
        if total > cap / 2 && writer.log.len() >= writer.check_holders_at {
            self.flush_holders(writer, cap)?;
            total = self.bytes_with(writer);
        }
        if total > cap {
            // Closed logs are removed before a flush reports its end.
            self.stall_until(Stall::Log, |state| self.bytes_with(writer) <= cap || !is_freeing_logs(state))?;
            total = self.bytes_with(writer);
        }
        let (begin, left) = (cap / 4 * 3, cap.saturating_sub(total));
        let excess = (total.saturating_sub(begin) as f64 / (cap - begin) as f64).min(1.0);
        writer.log_slowdown = (SLOWDOWN_NANOS * excess * excess) as u64;
        writer.check_log_at = writer.log.len() + (cap / 64).min(left / 4).clamp(MIN_STEP, MAX_STEP);
        Ok(())
    }

    /// Bytes of all logs, buffered ones included.
    fn bytes_with(&self, writer: &Writer) -> u64 {
        self.logs.closed.bytes() + writer.log.len()
    }

    /// Seals the memtables that hold the oldest logs, as many as needed for the others to fit into a quarter of the cap.
    fn flush_holders(&self, writer: &mut Writer, cap: u64) -> Result<()> {
        let len = writer.log.len();
        let oldest = self.state.lock().oldest_active();
        let kept = self.logs.closed.bytes_from(oldest) + len;
        if kept <= cap / 2 {
            writer.check_holders_at = len + (cap / 2 - kept).max(MIN_STEP);
            return Ok(());
        }
        let up_to = self.logs.closed.last_seq_of_first(oldest, (kept - cap / 4).saturating_sub(1));
        let holders: Vec<_> = {
            let state = self.state.lock();
            let holds =
                |read_state: &ReadState| read_state.memtable.min_seq().is_some_and(|seq| seq <= up_to);
            state.dirty().filter(|k| holds(&k.inner.read_state.load())).map(|k| k.inner.clone()).collect()
        };
        match holders.is_empty() {
            true => self.free_logs(writer)?,
            false => self.seal(writer, &holders)?,
        }
        self.run_pending();
        Ok(())
    }
}

/// Whether a flush is freeing logs, or will.
fn is_freeing_logs(state: &State) -> bool {
    state.logs_to_free || state.flushes > 0 || state.waiting().next().is_some()
}
