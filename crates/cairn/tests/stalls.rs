//! Write stalls: writers slow down before memory runs out, and wait only when it has.

use cairn::env::{OpInfo, OpKind, Phase, SimEnv};
use cairn::{Database, KeyspaceOptions, Options, Result};
use std::sync::{Arc, Condvar, Mutex};

/// Bytes of memory for memtables: half of the budget. A memtable has a quarter of that.
const WRITE_BUDGET: u64 = 512 << 10;

/// Holds flushes from their first table on, until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// A failed test must not wait for a flush that is held.
impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

struct Opens<'a>(&'a Gate);

/// Puts so many KiB, 1 KiB each.
fn put(keyspace: &cairn::Keyspace, kib: u64) -> Result<()> {
    (0..kib).try_for_each(|i| keyspace.put(format!("{i:06}"), [7u8; 1000]))
}

#[test]
fn writers_slow_down_before_they_wait_for_memory() -> Result<()> {
    let env = SimEnv::new(1);
    let options = Options::default().memory_budget(2 * WRITE_BUDGET).background_threads(1);
    let db = Database::open_in(env.clone(), "/db", options)?;
    let keyspace = db.keyspace("k", KeyspaceOptions::default())?;
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    env.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        let is_table = op.path.extension().is_some_and(|extension| extension == "tbl");
        if is_table && op.kind == OpKind::Create && op.phase == Phase::Before {
            held.pass();
        }
        None
    })));
    let _opens = Opens(&gate);
    let stalls = || db.stats().stalls;
    // A flush is due after a quarter of the budget. While it runs, the next memtable fills.
    put(&keyspace, 240)?;
    assert_eq!((stalls().slowdowns, stalls().memtable_waits), (0, 0), "at {} KiB", 240);
    put(&keyspace, 110)?;
    let stats = stalls();
    assert!((1..=20).contains(&stats.slowdowns) && stats.memtable_waits == 0, "{stats:?}");
    assert!(stats.longest_seconds <= 0.021, "{stats:?}");
    assert!(stats.last_reason.is_some_and(|reason| reason.contains("flushes")));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&keyspace, 300));
        while stalls().slowdowns == stats.slowdowns {
            std::thread::yield_now();
        }
        gate.open();
        writer.join().unwrap()
    })?;
    // With nothing to flush, writers are as fast as ever.
    db.wait_idle()?;
    let before = stalls().slowdowns;
    put(&keyspace, 60)?;
    assert_eq!(stalls().slowdowns, before);
    env.set_hook(None);
    Ok(())
}
