//! Write stalls: writers are slowed while compactions are behind or the log is near its cap, and deletes on a full disk wait for background
//! jobs that free space.

use crate::background::RETRY_PAUSE;
use crate::state::{DbInner, Writer};
use crate::sync::Ordering;
use base::{ErrorKind, Result};
use std::time::Duration;

/// Maximum number of times that a delete waits for background work when the disk is full.
const ROUNDS_FOR_SPACE: u32 = 5;
/// Maximum wait for a running job, each time.
const LONGEST_JOB: Duration = Duration::from_secs(1);

/// Slowdowns below this are accumulated: shorter sleeps are not worthwhile.
const MIN_SLEEP: Duration = Duration::from_millis(1);
/// Maximum sleep of a single write because compaction is behind.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

impl DbInner {
    /// Makes a writer wait for its share of the slowdown.
    #[inline]
    pub(crate) fn throttle(&self, writer: &mut Writer, bytes: u64) {
        let slowdown = self.slowdown.load(Ordering::Relaxed) + writer.log_slowdown;
        if slowdown > 0 {
            self.delay(writer, slowdown * bytes / 1024);
        }
    }

    #[cold]
    fn delay(&self, writer: &mut Writer, nanos: u64) {
        writer.delay_nanos += nanos;
        if writer.delay_nanos >= MIN_SLEEP.as_nanos() as u64 {
            let before = self.env.monotonic();
            self.env.sleep(Duration::from_nanos(writer.delay_nanos).min(LONGEST_SLEEP));
            let slept = self.env.monotonic().saturating_sub(before);
            // A long sleep is not carried over: it reflects an earlier state.
            writer.delay_nanos = writer
                .delay_nanos
                .saturating_sub(slept.as_nanos() as u64)
                .min(LONGEST_SLEEP.as_nanos() as u64);
            self.counters.note_slowdown(slept);
        }
    }

    /// Runs `work`, which may need disk space. Work that only deletes is retried when the disk is full because background jobs use all of
    /// the reserve at the moment.
    #[inline]
    pub(crate) fn retry_after_freeing<T>(
        &self,
        deletes: bool,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut done = work();
        if deletes {
            for _ in 0..ROUNDS_FOR_SPACE {
                match &done {
                    Err(e) if e.kind() == ErrorKind::NoSpace && self.await_background() => done = work(),
                    _ => break,
                }
            }
        }
        done
    }

    /// Waits until a background job ends or is retried; returns whether there is any.
    #[cold]
    fn await_background(&self) -> bool {
        let mut state = self.state.lock();
        if self.is_inline() || self.status.stopped.load(Ordering::Acquire) {
            return false;
        }
        let patience = match (state.jobs, state.background_error()) {
            (0, None) => return false,
            (0, Some(_)) => RETRY_PAUSE,
            _ => LONGEST_JOB,
        };
        self.signals.progress.wait_for(&mut state, patience);
        true
    }
}
