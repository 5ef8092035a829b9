//! Entries that a cursor has to pass over, because they are deleted or overwritten, or too new for it.
//!
//! Compaction would have dropped most of them, so they pay for one: as much as it could have handled in the time that passing over them takes
//! (see ADR 5), to the run where they lie. Whoever has paid what it takes has it done: a memtable is flushed, a table of level 0
//! goes down, a guard is merged. So a range where a million keys were deleted one by one stays slow for some scans at most, though nobody
//! writes any more, and a queue whose consumer looks for the first entry each time goes past few that were taken.
//!
//! And where one key has very many versions, a cursor does not step through them all: it looks now and then whether it still stands on the same
//! key, and then seeks what is behind.

use crate::core::Core;
use crate::cursor::Source;
use crate::keyspace::KeyspaceCore;
use crate::sync::Ordering;
use base::{ErrorKind, Result, same_key};
use memtable::Memtable;
use std::sync::Arc;
use tree::{COST_OF_JOB, MergeCursor};

/// What is paid at once, to the run where the cursor stands at the moment: for 61 entries, with the default of `seek_cost`. That is a prime, so that
/// of runs between which the entries alternate each has its part.
const PAID_AT_ONCE: u64 = 61 * 32;

/// So often a cursor looks whether it still stands on the same key. A seek costs as much as some dozens of steps.
const LOOK: u32 = 64;

/// What a cursor has passed over.
#[derive(Default)]
pub(crate) struct Passing {
    unpaid: u64,
    steps: u32,
    /// The key at the last look.
    pub(crate) key: Vec<u8>,
}

impl Passing {
    /// The cursor passes over the entry on which `merge` stands, which a compaction would have dropped.
    #[inline]
    pub(crate) fn pass(&mut self, merge: &MergeCursor<Source>, keyspace: &KeyspaceCore, core: &Core) {
        self.unpaid += keyspace.notice.cost_of_passed();
        if self.unpaid >= PAID_AT_ONCE {
            pay(std::mem::take(&mut self.unpaid), merge, keyspace, core);
        }
    }

    /// The cursor is about to leave an entry of `key` behind. Whether it has done so many times, as far as it has looked: then it should seek what
    /// is behind all versions of the key.
    #[inline]
    pub(crate) fn lingers(&mut self, key: &[u8]) -> bool {
        self.steps = self.steps.wrapping_add(1);
        self.steps.is_multiple_of(LOOK) && self.look(key)
    }

    #[cold]
    fn look(&mut self, key: &[u8]) -> bool {
        let same = same_key(key, &self.key);
        if !same {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        same
    }
}

#[cold]
fn pay(bytes: u64, merge: &MergeCursor<Source>, keyspace: &KeyspaceCore, core: &Core) {
    match &merge.children()[merge.current()] {
        Source::Tree(source) => source.pay_for_passed(bytes, &keyspace.notice),
        Source::Memtable(cursor) => {
            let memtable = cursor.memtable();
            let price = price(memtable);
            let paid = memtable.pay(bytes);
            if paid >= price && paid - bytes < price {
                core.memtables_paid.store(true, Ordering::Relaxed);
                match core.is_inline() {
                    true => core.run_pending(),
                    false => core.wake_compaction(),
                }
            }
        }
    }
    if keyspace.notice.take() {
        core.seeks_have_paid(keyspace);
    }
}

/// What it takes to flush a memtable, in bytes.
fn price(memtable: &Memtable) -> u64 {
    memtable.used_bytes() as u64 + COST_OF_JOB
}

impl Core {
    /// Switches the memtables whose flush was paid for, so that they are flushed. Leaves that for later while somebody writes: then they
    /// are full before long, too.
    pub(crate) fn switch_paid_memtables(&self) {
        if !self.memtables_paid.load(Ordering::Relaxed) {
            return;
        }
        // Who waits until nothing is to be done sees that it is to be done, or that it is being done.
        let keyspaces: Vec<Arc<KeyspaceCore>> = {
            let mut state = self.state.lock();
            self.memtables_paid.store(false, Ordering::Relaxed);
            state.jobs += 1;
            state.keyspaces.values().map(|k| k.core.clone()).collect()
        };
        let is_paid = |memtable: &Memtable| !memtable.is_empty() && memtable.paid() >= price(memtable);
        for keyspace in keyspaces.iter().filter(|k| is_paid(&k.view.load().memtable)) {
            let switched: Result<bool> = match self.try_writer_briefly() {
                Some(mut writer) if is_paid(&keyspace.view.load().memtable) => {
                    self.switch_memtable(&mut writer, keyspace, 0).map(|()| true)
                }
                Some(_) => Ok(true),
                None => Ok(false),
            };
            match switched {
                Ok(true) => {}
                Ok(false) => self.memtables_paid.store(true, Ordering::Relaxed),
                Err(e) if e.kind() == ErrorKind::Closed => {}
                Err(e) => tracing::warn!(error = %e, keyspace = keyspace.name, "a memtable was not switched"),
            }
        }
        self.state.lock().jobs -= 1;
        self.progress.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Database, KeyspaceOptions, Options};
    use env::SimEnv;

    /// How many entries a scan forward and one back pass over, of those that are no newer than it, when one key of three has many versions.
    #[test]
    fn many_versions_of_a_key_are_not_stepped_through() {
        let options = Options::default().background_threads(0);
        let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
        // Each pass is paid at once.
        let cost = super::PAID_AT_ONCE as u32;
        let keyspace = db.keyspace("k", KeyspaceOptions::default().seek_cost(8 * cost)).unwrap();
        let passed = |expected: usize, run: &dyn Fn() -> usize| {
            let memtable = keyspace.core.view.load().memtable.clone();
            let before = memtable.paid();
            assert_eq!(run(), expected);
            (memtable.paid() - before) / u64::from(cost)
        };
        for key in ["a", "b", "c"] {
            keyspace.put(key, "0").unwrap();
        }
        let early = db.snapshot();
        for i in 0..1_900u32 {
            keyspace.put("b", i.to_be_bytes()).unwrap();
        }
        let all = || keyspace.range::<&str>(..);
        assert!(passed(3, &|| all().count()) < 130);
        assert!(passed(3, &|| all().rev().count()) < 130);
        assert_eq!(keyspace.get("b").unwrap().unwrap(), 1_899u32.to_be_bytes());
        assert_eq!(passed(3, &|| early.range::<&str>(&keyspace, ..).count()), 0);
        assert_eq!(passed(3, &|| early.range::<&str>(&keyspace, ..).rev().count()), 0);
        keyspace.delete("b").unwrap();
        assert!(passed(2, &|| all().count()) < 130);
        assert!(passed(2, &|| all().rev().count()) < 130);
        assert_eq!(keyspace.core.view.load().memtable.entries(), 1_904, "nothing was flushed");
    }
}
