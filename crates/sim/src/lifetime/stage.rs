//! The state shared by the threads of one opening, and how it ends.

use super::gate::Gate;
use super::ledger::Ledger;
use crate::finding::{Finding, Outcome, ensure};
use crate::random::{Draw, Rng};
use cairn::{Database, Keyspace};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A thread that has not ended this long after it should have hangs.
const HANG: Duration = Duration::from_secs(100);

/// How an opening ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The main thread closes the database while the threads call it.
    Close,
    /// One of the threads closes it.
    CloseInThread,
    /// The main thread and a thread close it at the same time.
    CloseTwice,
    /// All handles are dropped, one after the other.
    DropHandles,
}

impl Ending {
    /// Draws an ending.
    pub fn draw(rng: &mut Rng) -> Ending {
        [Ending::Close, Ending::CloseInThread, Ending::CloseTwice, Ending::DropHandles]
            [rng.weighted(&[3, 2, 1, 2])]
    }

    /// Whether the main thread calls `close`.
    pub fn is_mine(self) -> bool {
        matches!(self, Ending::Close | Ending::CloseTwice)
    }

    /// Whether the first of the threads calls `close`.
    pub fn is_theirs(self) -> bool {
        matches!(self, Ending::CloseInThread | Ending::CloseTwice)
    }
}

/// The state shared by the threads of an opening.
pub struct Stage {
    /// Its access to the disk.
    pub gate: Arc<Gate>,
    /// How it ends.
    pub ending: Ending,
    /// The number of calls of all threads after which it ends.
    pub ends_after: u64,
    /// Number of calls so far.
    pub calls: AtomicU64,
    /// Keyspaces of the next opening, for attempts to use them with objects of this one.
    pub next: Mutex<Option<[Keyspace; 2]>>,
    closing: AtomicBool,
    closed: AtomicBool,
    stop: AtomicBool,
    dropped: AtomicUsize,
    /// For each thread: what it is doing, and its ledger when the database was closed.
    doing: Vec<Mutex<&'static str>>,
    ledgers: Vec<Mutex<Option<Ledger>>>,
}

impl Stage {
    /// The stage for a number of threads.
    pub fn new(gate: Arc<Gate>, ending: Ending, ends_after: u64, threads: usize) -> Arc<Stage> {
        Arc::new(Stage {
            gate,
            ending,
            ends_after,
            calls: AtomicU64::new(0),
            next: Mutex::default(),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            dropped: AtomicUsize::new(0),
            doing: (0..threads).map(|_| Mutex::new("nothing")).collect(),
            ledgers: (0..threads).map(|_| Mutex::default()).collect(),
        })
    }

    /// Whether closing may have started: handles are to be dropped, or a thread may have called `close`.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Whether closing has completed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether the threads should end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Whether the opening should end.
    pub fn is_due(&self) -> bool {
        self.calls.load(Ordering::Relaxed) >= self.ends_after
    }

    /// From now on handles may be dropped, and calls may fail with `Closed`.
    pub fn begin_to_close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    /// From now on every call must fail with `Closed`.
    pub fn note_closed(&self) -> Outcome {
        ensure!(self.gate.is_over(), "the database is closed, and its lock is held");
        self.closed.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Closes the database.
    pub fn close(&self, db: Database) -> Outcome {
        self.begin_to_close();
        db.close().map_err(|e| Finding::from(e).context("closing"))?;
        self.note_closed()
    }

    /// Records that a thread has dropped its handles.
    pub fn note_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether all threads have dropped their handles.
    pub fn all_dropped(&self) -> bool {
        self.dropped.load(Ordering::SeqCst) == self.ledgers.len()
    }

    /// Records what a thread is doing.
    pub fn note(&self, thread: usize, what: &'static str) {
        *self.doing[thread].lock().unwrap_or_else(|e| e.into_inner()) = what;
    }

    /// Records the final ledger of a thread whose calls can no longer succeed.
    pub fn hand_in(&self, ledger: Ledger) {
        let slot = &self.ledgers[ledger.thread];
        *slot.lock().unwrap_or_else(|e| e.into_inner()) = Some(ledger);
    }

    /// The ledgers of all threads, after no call can succeed anymore. `None` if a thread failed.
    pub fn ledgers(&self, failed: impl Fn() -> bool) -> Outcome<Option<Vec<Ledger>>> {
        let begun = Instant::now();
        loop {
            let slots = self.ledgers.iter().map(|l| l.lock().unwrap_or_else(|e| e.into_inner()).clone());
            if let Some(ledgers) = slots.collect::<Option<Vec<_>>>() {
                return Ok(Some(ledgers));
            }
            if failed() {
                return Ok(None);
            }
            ensure!(
                begun.elapsed() < HANG,
                "the database is closed, and threads hang in {:?}",
                self.all_doing()
            );
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// What all threads are doing.
    pub fn all_doing(&self) -> Vec<&'static str> {
        self.doing.iter().map(|doing| *doing.lock().unwrap_or_else(|e| e.into_inner())).collect()
    }

    /// Tells the threads to end.
    pub fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.begin_to_close();
    }
}
