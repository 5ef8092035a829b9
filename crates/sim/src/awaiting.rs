//! Writes and commits as an asynchronous task makes them, in a thread that waits for their future.

#[cfg(not(shuttle))]
pub use park::wait;

#[cfg(shuttle)]
pub use shuttle::future::block_on as wait;

use cairn::{Batch, Database, Durability, Transaction};

/// Writes a batch: for `as_task` by a future.
pub fn write(db: &Database, batch: Batch, durability: Durability, as_task: bool) -> cairn::Result<()> {
    match as_task {
        true => wait(db.write_async(batch, durability)),
        false => db.write(batch, durability),
    }
}

/// Commits a transaction: for `as_task` by a future.
pub fn commit(transaction: Transaction, durability: Durability, as_task: bool) -> cairn::Result<()> {
    match as_task {
        true => wait(transaction.commit_async(durability)),
        false => transaction.commit_with(durability),
    }
}

#[cfg(not(shuttle))]
mod park {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::Thread;
    use std::time::{Duration, Instant};

    /// A future that is not ready after this waits for ever.
    const PATIENCE: Duration = Duration::from_secs(100);

    struct Unpark(Thread, AtomicBool);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::SeqCst);
            self.0.unpark();
        }
    }

    /// Waits until the waker of the future is called and it is ready.
    ///
    /// # Panics
    /// If that takes longer than any write.
    pub fn wait<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let unpark = Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)));
        let waker = Waker::from(unpark.clone());
        let begun = Instant::now();
        loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return result;
            }
            while !unpark.1.swap(false, Ordering::SeqCst) {
                assert!(begun.elapsed() < PATIENCE, "nothing wakes the task of a write");
                std::thread::park_timeout(PATIENCE);
            }
        }
    }
}
