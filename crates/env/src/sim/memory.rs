//! What of a simulated disk passes for being in the operating system's memory. In truth all of it is in memory: so a draw says now and
//! then that it is not, and whoever reads without waiting has to come back.

use crate::Rng;
use std::sync::atomic::{AtomicU64, Ordering};

/// Says, by draw, whether a block is in memory, and counts what is asked for ahead.
pub(super) struct Memory {
    seed: u64,
    draws: AtomicU64,
    /// How many in a hundred are in memory.
    pub(super) percent: AtomicU64,
    /// What [`crate::Env::memory`] says.
    pub(super) size: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) asked_bytes: AtomicU64,
    /// Bytes that somebody said he would not need.
    pub(super) unneeded: AtomicU64,
}

impl Memory {
    pub(super) fn new(seed: u64) -> Memory {
        Memory {
            seed,
            draws: AtomicU64::new(0),
            percent: AtomicU64::new(75),
            size: AtomicU64::new(u64::MAX),
            asked: AtomicU64::new(0),
            asked_bytes: AtomicU64::new(0),
            unneeded: AtomicU64::new(0),
        }
    }

    pub(super) fn has_it(&self) -> bool {
        let draw = self.draws.fetch_add(1, Ordering::SeqCst);
        Rng::new(self.seed ^ draw.rotate_left(32)).below(100) < self.percent.load(Ordering::SeqCst)
    }
}
