//! The atomics that carry the protocol between threads: the real ones, or loom's under `--cfg loom`, where a model
//! checker tries every interleaving.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
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
