//! Waits for an engine that cannot say when its background work is done.
//!
//! It is watched from outside instead, by what the kernel says of this process, until nothing has happened for
//! [`QUIET`]: no thread waits for the disk (a compaction that waits for its `fsync` neither writes nor computes, but it
//! shows here), next to nothing is written, and next to no processor time is used. "Next to nothing", because a progress
//! bar may be drawn meanwhile.
//!
//! That a thread is running or ready to run when it is looked at does not count: where others use the machine, a thread
//! that wakes for a moment stays ready for long, and would be taken for work. Work shows in the processor time.
//!
//! Nothing else may be working in this process, or the wait has no end.

use crate::process::KernelIo;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, Instant};

/// How long it must be quiet.
const QUIET: Duration = Duration::from_millis(500);
/// Between two looks.
const POLL: Duration = Duration::from_millis(20);
/// Of processor time in the whole of the quiet time: a twentieth.
const CPU_MAX: Duration = QUIET.checked_div(20).unwrap();
/// Bytes in the whole of the quiet time: less than the buffer (of 64 KiB) through which tables are written.
const WRITTEN_MAX: u64 = 32 << 10;

/// Waits until it has been quiet for [`QUIET`], and returns for how long it was quiet: the end of the wait, in which
/// nothing was done.
pub fn wait() -> Duration {
    let mut start = Counters::now();
    loop {
        std::thread::sleep(POLL);
        let now = Counters::now();
        if a_thread_waits_for_the_disk() || !now.quiet_since(&start) {
            start = now;
            continue;
        }
        let quiet = now.at - start.at;
        if quiet >= QUIET {
            return quiet;
        }
    }
}

/// What the kernel has counted at a time.
struct Counters {
    at: Instant,
    /// Of all threads but this one, whose polling is not the engine's.
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

    fn quiet_since(&self, start: &Counters) -> bool {
        self.cpu.saturating_sub(start.cpu) <= CPU_MAX && self.written - start.written <= WRITTEN_MAX
    }
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Whether a thread is in the sleep that nothing but a device ends.
fn a_thread_waits_for_the_disk() -> bool {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().any(|thread| {
        // A thread that has ended in the meantime waits for nothing.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        state(&stat) == Some('D')
    })
}

/// The state in a line of `stat`: it follows the thread's name, which is in parentheses and may hold some.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_waited_for_and_the_quiet_time_is_told() {
        const BUSY: Duration = Duration::from_millis(300);
        let start = Instant::now();
        let busy = std::thread::spawn(move || while start.elapsed() < BUSY {});
        let quiet = wait();
        assert!(quiet >= QUIET);
        assert!(start.elapsed() - quiet >= BUSY - POLL, "{quiet:?} of {:?} were quiet", start.elapsed());
        busy.join().unwrap();
    }

    #[test]
    fn the_state_stands_behind_the_name() {
        assert_eq!(state("12 (a) b) D 1 2"), Some('D'));
        assert_eq!(state(""), None);
    }
}
