//! [`ExpiryClock`], by which entries expire.
//!
//! A reader takes the time before its sequence number, and sees what had not expired at that time. So what it sees is a state that was there at
//! one moment, to a millisecond:
//!
//! ```text
//!   reader       now; hold a number; has the clock gone on? then again
//!   compaction   now; list the held numbers; drop what had expired for the oldest of them
//! ```
//!
//! A compaction that does not find the number of a reader in the list has taken a time that the reader finds passed, unless its own is as late.

use crate::sync::{AtomicU64, Ordering};
use base::Time;
use env::Env;
use std::sync::Arc;
use std::time::Duration;

/// Times are whole numbers of so many microseconds: threads share the newest one, and change it seldom.
const STEP: u64 = 1000;

/// New expiries count from the newest time only if it is not further ahead of the wall clock.
const MOST_AHEAD: Duration = Duration::from_secs(60);

/// The time without parts of a step.
pub(crate) fn whole(time: Time) -> Time {
    Time::from_micros(time.micros() - time.micros() % STEP)
}

/// The wall clock, in milliseconds, that does not go back while the database is open.
pub(crate) struct ExpiryClock {
    env: Arc<dyn Env>,
    /// The newest time that was returned, in microseconds.
    newest: AtomicU64,
}

impl ExpiryClock {
    pub(crate) fn new(env: Arc<dyn Env>) -> ExpiryClock {
        ExpiryClock { env, newest: AtomicU64::new(0) }
    }

    /// The present time.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.note(self.env.wall_clock())
    }

    /// From now on it is not before `wall`. Returns the present time.
    #[inline]
    pub(crate) fn note(&self, wall: Time) -> Time {
        // Not `Time::MIN`, which readers have where nothing expires, also if the clock is before the epoch.
        let now = whole(wall).micros().max(STEP);
        let newest = self.newest.load(Ordering::SeqCst);
        match now > newest {
            true => Time::from_micros(self.newest.fetch_max(now, Ordering::SeqCst).max(now)),
            false => Time::from_micros(newest),
        }
    }

    /// Whether it is later than this time.
    #[inline]
    pub(crate) fn has_passed(&self, now: Time) -> bool {
        self.now() > now
    }

    /// The time after this duration; `None` if it never comes. A clock that had been far ahead, and was set back, does not make entries live
    /// longer.
    pub(crate) fn after(&self, duration: Duration) -> Option<Time> {
        let wall = self.env.wall_clock();
        let newest = Time::from_micros(self.newest.load(Ordering::SeqCst));
        let now = newest.min(wall.saturating_add(MOST_AHEAD)).max(wall);
        Some(now.saturating_add(duration)).filter(|expiry| *expiry < Time::MAX)
    }
}
