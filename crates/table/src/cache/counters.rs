//! Counters that many threads add to: one copy per few threads, each on its own cache lines, summed when read. The engine only
//! writes them; it never branches on them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const COPIES: usize = 16;

#[repr(align(128))]
struct Copy<const N: usize>([AtomicU64; N]);

/// `N` counters.
pub(crate) struct Counters<const N: usize>(Box<[Copy<N>]>);

thread_local! {
    static COPY: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed) % COPIES
    };
}

impl<const N: usize> Counters<N> {
    pub(crate) fn new() -> Self {
        Counters((0..COPIES).map(|_| Copy(std::array::from_fn(|_| AtomicU64::new(0)))).collect())
    }

    /// Adds `n` to counter `which`.
    #[inline]
    pub(crate) fn add(&self, which: usize, n: u64) {
        let copy = COPY.with(|c| *c);
        self.0[copy].0[which].fetch_add(n, Relaxed);
    }

    /// The sum of counter `which`.
    pub(crate) fn sum(&self, which: usize) -> u64 {
        self.0.iter().map(|copy| copy.0[which].load(Relaxed)).sum()
    }
}
