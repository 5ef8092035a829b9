//! [`Time`]: when a version of a key was written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: microseconds since the Unix epoch, at 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct Time(u64);

impl Time {
    /// The earliest time.
    pub const MIN: Time = Time(0);
    /// The latest time: later than any time of a version.
    pub const MAX: Time = Time(u64::MAX);

    /// A time by its microseconds.
    pub const fn from_micros(micros: u64) -> Time {
        Time(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// As a time of the system. `None` if the system cannot express it, which is so for no time on Linux.
    ///
    /// ```
    /// # use base::Time;
    /// # use std::time::{Duration, UNIX_EPOCH};
    /// assert_eq!(Time::from_micros(1_500_000).to_system_time(), Some(UNIX_EPOCH + Duration::from_millis(1_500)));
    /// ```
    pub fn to_system_time(self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_micros(self.0))
    }

    /// This much later, at most [`Time::MAX`].
    pub const fn saturating_add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(to_micros(duration)))
    }

    /// This much earlier, at least [`Time::MIN`].
    pub const fn saturating_sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(to_micros(duration)))
    }
}

const fn to_micros(duration: Duration) -> u64 {
    let micros = duration.as_micros();
    if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 }
}

/// The whole microseconds; a time before the epoch becomes [`Time::MIN`].
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        Time(time.duration_since(UNIX_EPOCH).map_or(0, to_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_added_within_their_bounds() {
        let (time, second) = (Time::from_micros(5_000_000), Duration::from_secs(1));
        assert_eq!(
            (time.saturating_add(second), time.saturating_sub(second)),
            (Time(6_000_000), Time(4_000_000))
        );
        assert_eq!(
            (Time::MAX.saturating_add(second), Time(5).saturating_sub(second)),
            (Time::MAX, Time::MIN)
        );
        assert_eq!(time.saturating_add(Duration::MAX), Time::MAX);
        assert_eq!(Time::from(UNIX_EPOCH + second), Time(1_000_000));
        assert_eq!(Time::from(UNIX_EPOCH - second), Time::MIN);
        for time in [Time::MIN, time, Time::MAX] {
            assert_eq!(time.to_system_time().map(Time::from), Some(time));
        }
    }
}
