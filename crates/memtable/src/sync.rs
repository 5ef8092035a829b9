//! The atomics that carry the protocol between threads: the real ones, or loom's under `--cfg loom`, where a model
//! checker tries every interleaving.

#[cfg(loom)]
pub(crate) use checked::AtomicU64;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering;

/// A cache line of its own (and the one that is fetched with it), for what many threads write: what lies beside it is
/// not lost from the caches of those who only read that.
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// Waits a moment for another thread that is inside a few instructions: first on the processor, then (it may
/// have lost its own) by giving ours away.
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

/// Loom looks for a race only with the last access of any thread, so that a thread's own load hides the loads of
/// others from its store. Here all accesses change the value in name, and nothing is hidden: all interleavings are
/// tried. The price is that no load gives an outdated value: the memory orders are left to Miri.
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
