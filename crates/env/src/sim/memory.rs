//! The simulated page cache. All data is in memory; a pseudo-random draw decides whether a non-blocking read finds
//! its block there, so that callers must also handle reads that would wait.

use crate::rng::Rng;
use std::sync::atomic::{AtomicU64, Ordering};

/// Draws whether a block is in the page cache, and counts hints.
pub(super) struct Memory {
    seed: u64,
    draws: AtomicU64,
    /// Percentage of blocks in the page cache.
    pub(super) percent: AtomicU64,
    /// The value of [`crate::Env::memory`].
    pub(super) size: AtomicU64,
    pub(super) will_need_calls: AtomicU64,
    pub(super) will_need_bytes: AtomicU64,
}

impl Memory {
    pub(super) fn new(seed: u64) -> Memory {
        Memory {
            seed,
            draws: AtomicU64::new(0),
            percent: AtomicU64::new(75),
            size: AtomicU64::new(u64::MAX),
            will_need_calls: AtomicU64::new(0),
            will_need_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn draw_cached(&self) -> bool {
        let draw = self.draws.fetch_add(1, Ordering::SeqCst);
        Rng::new(self.seed ^ draw.rotate_left(32)).below(100) < self.percent.load(Ordering::SeqCst)
    }
}
