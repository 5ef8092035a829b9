//! Locks, atomics and threads of this crate: the real ones, or those of a model checker.
//!
//! Under `--cfg shuttle` every lock, atomic and thread of this crate is shuttle's, which runs one thread at a time and chooses the next
//! one at each operation; under `--cfg loom` they are loom's, for the tests of `parts::write_queue` and `parts::visible_seq`. So a whole
//! database runs under random schedules, which can be replayed (`crates/sim/tests/shuttle`). The crates below keep their real locks: they
//! hold them briefly, or during a sync of the real disk, and call nothing of this module meanwhile.
//!
//! A checker has no time. A wait with a timeout ends there at once, after other threads have run: code must not rely on time passing. Nor
//! does it have [`arc_swap`]: there it is a lock around an `Arc`, and loading and storing are single steps.

#[cfg(any(loom, shuttle))]
pub(crate) use checked::*;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use real::*;

pub(crate) use std::sync::atomic::Ordering;

#[cfg(not(any(loom, shuttle)))]
mod real {
    pub(crate) use arc_swap::{ArcSwap, Guard};
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::thread::{self, yield_now};
    pub(crate) use std::thread_local;
}

#[cfg(any(loom, shuttle))]
mod checked {
    #[cfg(loom)]
    use loom as checker;
    #[cfg(shuttle)]
    use shuttle as checker;

    pub(crate) use checker::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, fence};
    /// Spinning is useless before another thread has run.
    pub(crate) use checker::thread::yield_now as spin_loop;
    pub(crate) use checker::thread::{self, yield_now};
    pub(crate) use checker::thread_local;

    use std::ops::{Deref, DerefMut};
    use std::sync::{Arc, PoisonError, TryLockError};
    use std::time::Duration;

    /// A mutex with the interface of `parking_lot`'s.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(checker::sync::Mutex<T>);

    /// Holds the lock. Empty only inside of a wait.
    pub(crate) struct MutexGuard<'a, T> {
        lock: &'a Mutex<T>,
        held: Option<checker::sync::MutexGuard<'a, T>>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(checker::sync::Mutex::new(value))
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            MutexGuard { lock: self, held: Some(held) }
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let held = match self.0.try_lock() {
                Ok(held) => held,
                Err(TryLockError::Poisoned(e)) => e.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            Some(MutexGuard { lock: self, held: Some(held) })
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.held.as_ref().expect("a guard is empty only inside of a wait")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.held.as_mut().expect("a guard is empty only inside of a wait")
        }
    }

    /// A condition variable with the interface of `parking_lot`'s.
    #[derive(Default)]
    pub(crate) struct Condvar(checker::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar(checker::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.held.take().expect("a guard is empty only inside of a wait");
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }

        /// Lets other threads run once.
        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
            guard.held = None;
            yield_now();
            *guard = guard.lock.lock();
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// An `Arc` that is loaded and stored atomically.
    pub(crate) struct ArcSwap<T>(Mutex<Arc<T>>);

    /// A loaded value.
    pub(crate) struct Guard<T>(T);

    impl<T> Deref for Guard<T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> ArcSwap<T> {
        pub(crate) fn from_pointee(value: T) -> ArcSwap<T> {
            ArcSwap(Mutex::new(Arc::new(value)))
        }

        pub(crate) fn load(&self) -> Guard<Arc<T>> {
            Guard(self.load_full())
        }

        pub(crate) fn load_full(&self) -> Arc<T> {
            self.0.lock().clone()
        }

        pub(crate) fn store(&self, value: Arc<T>) {
            // The old value is dropped after the lock is released.
            let _old = std::mem::replace(&mut *self.0.lock(), value);
        }
    }
}
