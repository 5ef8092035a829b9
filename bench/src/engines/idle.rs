//! Waits for the background work of an engine that cannot report when it is done.
//!
//! Observes the process through the kernel until it has been idle for [`IDLE_TIME`]: no thread waits for the disk (a
//! compaction that waits for its `fsync` neither writes nor computes, but its thread is in disk sleep), almost
//! nothing is written, and almost no processor time is used. "Almost", because a progress bar may be drawn
//! meanwhile.
//!
//! Running or runnable threads do not count: on a busy machine, a thread that wakes for a moment stays runnable for
//! a long time and would be taken for work. Work shows in the processor time.
//!
//! Nothing else may work in this process; otherwise the wait does not end.

use crate::process::KernelIo;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, Instant};

/// Required length of the idle time.
const IDLE_TIME: Duration = Duration::from_millis(500);
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum processor time during the idle time: a twentieth of it.
const MAX_CPU: Duration = IDLE_TIME.checked_div(20).unwrap();
/// Maximum number of bytes written during the idle time: less than the buffer (64 KiB) through which tables are
/// written.
const MAX_WRITTEN: u64 = 32 << 10;

/// Waits until the process has been idle for [`IDLE_TIME`]. Returns the length of the idle time at the end.
pub fn wait() -> Duration {
    let mut start = Counters::now();
    loop {
        std::thread::sleep(POLL_INTERVAL);
        let now = Counters::now();
        if a_thread_waits_for_the_disk() || !now.idle_since(&start) {
            start = now;
            continue;
        }
        let idle = now.at - start.at;
        if idle >= IDLE_TIME {
            return idle;
        }
    }
}

/// The kernel's counters at one time.
struct Counters {
    at: Instant,
    /// Processor time of all threads except this one, which polls.
    cpu: Duration,
    written: u64,
}

impl Counters {
    fn now() -> Counters {
        Counters {
            at: Instant::now(),
            cpu: cpu(ClockId::ProcessCPUTime).saturating_sub(cpu(ClockId::ThreadCPUTime)),
            written: KernelIo::now().unwrap_or_default().wchar,
        }
    }

    fn idle_since(&self, start: &Counters) -> bool {
        self.cpu.saturating_sub(start.cpu) <= MAX_CPU && self.written - start.written <= MAX_WRITTEN
    }
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Whether a thread is in uninterruptible sleep, waiting for a device.
fn a_thread_waits_for_the_disk() -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().any(|thread| {
        // A thread that has ended meanwhile does not wait.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        state(&stat) == Some('D')
    })
}

/// The state in a line of `stat`. It follows the thread's name, which is in parentheses and may contain some.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_waited_for_and_the_idle_time_is_returned() {
        const BUSY: Duration = Duration::from_millis(300);
        let start = Instant::now();
        let busy = std::thread::spawn(move || while start.elapsed() < BUSY {});
        let idle = wait();
        assert!(idle >= IDLE_TIME);
        assert!(
            start.elapsed() - idle >= BUSY - POLL_INTERVAL,
            "{idle:?} of {:?} were idle",
            start.elapsed()
        );
        busy.join().unwrap();
    }

    #[test]
    fn the_state_stands_behind_the_name() {
        assert_eq!(state("12 (a) b) D 1 2"), Some('D'));
        assert_eq!(state(""), None);
    }
}
