//! Limits the write rate of compactions to `compaction_rate` bytes per second, over all threads.
//!
//! A token bucket, kept as a point in time: each job reports the bytes that it has written, and waits until the time at which so many may
//! be written. After a pause, jobs may be ahead of the rate by [`BURST`]. Flushes are not limited, because writers wait for them.

use crate::sync::Mutex;
use env::Env;
use std::time::Duration;

/// How far ahead of the rate compactions may be after a pause.
const BURST: Duration = Duration::from_millis(100);

/// Interval at which a waiting thread checks whether the database is closing.
const SLICE: Duration = Duration::from_millis(50);

pub(crate) struct RateLimiter {
    /// Bytes per second; 0 is no limit.
    rate: u64,
    /// The time at which everything reported so far may have been written.
    due: Mutex<Duration>,
}

impl RateLimiter {
    pub(crate) fn new(rate: u64) -> RateLimiter {
        RateLimiter { rate, due: Mutex::new(Duration::ZERO) }
    }

    /// Reports that `bytes` were written, and waits until their time, or until `ends`.
    pub(crate) fn take(&self, env: &dyn Env, bytes: u64, ends: impl Fn() -> bool) {
        if self.rate == 0 || bytes == 0 {
            return;
        }
        let due = {
            let mut due = self.due.lock();
            let start = (*due).max(env.monotonic().saturating_sub(BURST));
            *due = start + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
            *due
        };
        while !ends() {
            let left = due.saturating_sub(env.monotonic());
            if left.is_zero() {
                return;
            }
            env.sleep(left.min(SLICE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimEnv;

    #[test]
    fn bytes_take_their_time_and_idle_time_is_not_saved_up() {
        let env = SimEnv::new(1);
        let rate_limiter = RateLimiter::new(1 << 20);
        let time = |bytes, times: u32| {
            let before = env.monotonic();
            (0..times).for_each(|_| rate_limiter.take(&*env, bytes, || false));
            (env.monotonic() - before).as_secs_f64()
        };
        let first = time(64 << 10, 160);
        assert!((9.8..10.1).contains(&first), "{first}");
        env.sleep(Duration::from_secs(100));
        let after_a_pause = time(64 << 10, 160);
        assert!((9.8..10.1).contains(&after_a_pause), "{after_a_pause}");
        let before = env.monotonic();
        rate_limiter.take(&*env, 1 << 30, || true);
        RateLimiter::new(0).take(&*env, 1 << 40, || false);
        assert!(
            env.monotonic() - before < Duration::from_secs(1),
            "no wait when the database ends, or without a limit"
        );
    }
}
