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

/// A clock that is set back by no more than so many microseconds stands still until it has caught up. Otherwise it is followed: it had been
/// wrong, and expiries that count from a wrong time would be, too.
const MOST_BACK: u64 = 60_000_000;

/// The time without parts of a step.
pub(crate) fn whole(time: Time) -> Time {
    Time::from_micros(time.micros() - time.micros() % STEP)
}

/// The wall clock, in milliseconds, that does not go back while the database is open, unless by more than a minute.
pub(crate) struct ExpiryClock {
    env: Arc<dyn Env>,
    /// The time that was returned last, in microseconds.
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

    /// The latest time that it was.
    pub(crate) fn newest(&self) -> Time {
        Time::from_micros(self.newest.load(Ordering::SeqCst))
    }

    /// Takes a reading of the wall clock. Returns the present time.
    #[inline]
    pub(crate) fn note(&self, wall: Time) -> Time {
        // Not `Time::MIN`, which readers have where nothing expires, also if the clock is before the epoch.
        let now = whole(wall).micros().max(STEP);
        let newest = self.newest.load(Ordering::SeqCst);
        match now {
            now if now > newest => Time::from_micros(self.newest.fetch_max(now, Ordering::SeqCst).max(now)),
            now if newest - now > MOST_BACK => self.step_back(newest, now),
            _ => Time::from_micros(newest),
        }
    }

    #[cold]
    fn step_back(&self, newest: u64, now: u64) -> Time {
        let stepped = self.newest.compare_exchange(newest, now, Ordering::SeqCst, Ordering::SeqCst);
        Time::from_micros(stepped.map_or_else(|other| other, |_| now))
    }

    /// Whether it is later than this time.
    #[inline]
    pub(crate) fn has_passed(&self, now: Time) -> bool {
        self.now() > now
    }

    /// The time after this duration, at most [`Time::MAX`].
    pub(crate) fn after(&self, duration: Duration) -> Time {
        let wall = self.env.wall_clock();
        self.note(wall).max(wall).saturating_add(duration)
    }
}
