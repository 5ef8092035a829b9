//! The atomics of the protocol between threads: those of std, or those of loom under `--cfg loom`, where a model
//! checker explores all interleavings.

#[cfg(loom)]
pub(crate) use checked::AtomicU64;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering;

/// A value in its own pair of cache lines, for values that many threads write: readers of neighbouring fields do not
/// lose their cache line.
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// Waits briefly for another thread inside a few instructions: spins first, then yields, since that thread may be
/// descheduled.
#[cold]
pub(crate) fn pause(rounds: &mut u32) {
    *rounds += 1;
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    if *rounds < 64 && !cfg!(miri) {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Loom looks for races only with the last access of a thread, so a thread's own load hides the loads of other
/// threads from its store. Here all accesses are read-modify-write operations, so nothing is hidden and all
/// interleavings are explored. The price: no load returns an outdated value, so memory orders are tested by Miri
/// only.
#[cfg(loom)]
mod checked {
    use super::Ordering;

    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> AtomicU64 {
            AtomicU64(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            let _ = order;
            self.0.fetch_add(0, Ordering::AcqRel)
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            let _ = order;
            self.0.swap(value, Ordering::AcqRel);
        }

        pub(crate) fn compare_exchange(
            &self,
            old: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            let _ = (success, failure);
            self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        }
    }
}
