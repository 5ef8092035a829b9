//! [`ExpiryClock`], by which entries expire.
//!
//! A reader takes the time before its sequence number, and sees what had not expired at that time. So what it sees is a state that was there at
//! one moment, unless much happens within a millisecond:
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
        let now = whole(wall).micros();
        let newest = self.newest.load(Ordering::SeqCst);
        match now > newest {
            true => Time::from_micros(self.newest.fetch_max(now, Ordering::SeqCst).max(now)),
            false => Time::from_micros(newest),
        }
    }

    /// Whether a later time was returned to any thread.
    #[inline]
    pub(crate) fn has_passed(&self, now: Time) -> bool {
        self.newest.load(Ordering::SeqCst) > now.micros()
    }

    /// The time after this duration; `None` if it never comes.
    pub(crate) fn after(&self, duration: Duration) -> Option<Time> {
        let wall = self.env.wall_clock().micros();
        let now = Time::from_micros(wall.max(self.newest.load(Ordering::SeqCst)));
        Some(now.saturating_add(duration)).filter(|expiry| *expiry < Time::MAX)
    }
}
