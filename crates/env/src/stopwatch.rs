//! Measuring how long something takes.

use std::time::{Duration, Instant};

/// A clock for measurements on which nothing depends: that of the machine, also in a simulation, whose own clock moves when it is read. What
/// the engine decides by comes from [`Env::monotonic`](crate::Env::monotonic).
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    #[inline]
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// The time since the start.
    #[inline]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
