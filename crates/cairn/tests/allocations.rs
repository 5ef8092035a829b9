//! Bounds on what the database allocates. The global allocator of this program counts, so these tests are a program of their own, and
//! run one at a time.
#![allow(missing_docs, unsafe_code)]

mod peak;
mod pinned;
mod range_memory;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Holds up the other tests until it is dropped.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The allocator of the system, with counters.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes reserved for memtables at present. A reservation takes memory only where the memtable is written.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
/// Bytes of all other allocations at present.
static NOW: AtomicUsize = AtomicUsize::new(0);
/// The largest value of `NOW`.
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Longer allocations fail, reservations included.
static MAX_LEN: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Whether an allocation is the address space of a memtable: these are aligned to huge pages.
fn is_reservation(layout: Layout) -> bool {
    layout.align() >= 2 << 20
}

// SAFETY: every call is passed on to `System`, which is a correct allocator, or fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_LEN.load(Ordering::Relaxed) {
            return std::ptr::null_mut();
        } else if is_reservation(layout) {
            RESERVED.fetch_add(layout.size(), Ordering::Relaxed);
        } else {
            let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
            PEAK.fetch_max(now, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let counter = if is_reservation(layout) { &RESERVED } else { &NOW };
        counter.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `memory` comes from `System.alloc` with the same layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Bytes allocated at present, reservations included.
fn allocated() -> usize {
    NOW.load(Ordering::Relaxed) + RESERVED.load(Ordering::Relaxed)
}

/// Runs `work`. Returns the largest number of bytes allocated meanwhile, without reservations and without what was allocated before, and
/// the result.
fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let done = work();
    (PEAK.load(Ordering::Relaxed) - before, done)
}

/// Runs `work` while allocations longer than `max_len` fail.
fn with_max_len<T>(max_len: usize, work: impl FnOnce() -> T) -> T {
    MAX_LEN.store(max_len, Ordering::Relaxed);
    let done = work();
    MAX_LEN.store(usize::MAX, Ordering::Relaxed);
    done
}
