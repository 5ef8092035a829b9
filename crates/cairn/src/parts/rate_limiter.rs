//! Limits compactions: to `compaction_rate` bytes per second, over all threads, and to a share of the disk while reads wait for it. And the bytes that a
//! backup reads, to its rate.
//!
//! The rate is a token bucket, kept as a point in time: each job reports the bytes that it has written, and waits until the time at which
//! so many may be written. After a pause, jobs may be ahead of the rate by [`BURST`].
//!
//! The share: a job that finds a read waiting for the disk rests for [`REST_FACTOR`] times the time that it has worked since its last
//! report. So a database whose readers always wait leaves them two thirds of the time, one whose readers wait a tenth of the time delays
//! its compactions by a fifth, and one whose reads are all in memory does not delay them (ADR 20). On a disk so slow that a job works for more
//! than 10 ms between two reports, rests are shorter.
//!
//! Flushes are not limited, because writers wait for them.

use crate::sync::Mutex;
use env::Env;
use std::cell::Cell;
use std::time::Duration;

/// How far ahead of the rate compactions may be after a pause.
const BURST: Duration = Duration::from_millis(100);

/// Interval at which a waiting thread checks whether the database is closing.
const SLICE: Duration = Duration::from_millis(50);

/// How long a compaction rests while reads wait, as a multiple of the time that it has worked.
const REST_FACTOR: u32 = 2;

/// Upper bound of a rest: a job that the scheduler kept from working has not used the disk meanwhile.
const MAX_REST: Duration = Duration::from_millis(20);

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

/// The limits of one compaction.
pub(crate) struct Pace<'a> {
    rate_limiter: &'a RateLimiter,
    env: &'a dyn Env,
    /// When the job began, or its last report ended.
    since: Cell<Duration>,
}

impl<'a> Pace<'a> {
    /// For a compaction that begins now.
    pub(crate) fn new(rate_limiter: &'a RateLimiter, env: &'a dyn Env) -> Pace<'a> {
        Pace { rate_limiter, env, since: Cell::new(env.monotonic()) }
    }

    /// Reports that the compaction has written `bytes`. Waits until their time; rests if `reads_wait` then. Does not begin to wait or
    /// rest once the database `ends`.
    pub(crate) fn take(&self, bytes: u64, reads_wait: impl Fn() -> bool, ends: impl Fn() -> bool) {
        let worked = self.env.monotonic().saturating_sub(self.since.get());
        self.rate_limiter.take(self.env, bytes, &ends);
        if !ends() && reads_wait() {
            self.env.sleep((worked * REST_FACTOR).min(MAX_REST));
        }
        self.since.set(self.env.monotonic());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimEnv;

    #[test]
    fn a_compaction_rests_while_reads_wait() {
        let env = SimEnv::new(1);
        let rate_limiter = RateLimiter::new(0);
        let time = |work: Duration, reads_wait: &dyn Fn() -> bool| {
            let before = env.monotonic();
            let pace = Pace::new(&rate_limiter, &*env);
            for _ in 0..100 {
                env.sleep(work);
                pace.take(256 << 10, reads_wait, || false);
            }
            (env.monotonic() - before).as_secs_f64()
        };
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(1));
        let time_of = |work, waits: bool| time(work, &|| waits);
        assert!((0.1..0.11).contains(&time_of(short, false)), "{}", time_of(short, false));
        assert!((0.3..0.31).contains(&time_of(short, true)), "{}", time_of(short, true));
        assert!((102.0..102.1).contains(&time_of(long, true)), "{}", time_of(long, true));
        // A read waits at every second report: work between two reports is not added up for the next rest.
        let waits = Cell::new(false);
        let alternating = time(short, &|| waits.replace(!waits.get()));
        assert!((0.2..0.21).contains(&alternating), "{alternating}");
        let before = env.monotonic();
        Pace { since: Cell::default(), ..Pace::new(&rate_limiter, &*env) }.take(1, || true, || true);
        assert!(env.monotonic() - before < Duration::from_millis(1), "no rest when the database ends");
    }

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
