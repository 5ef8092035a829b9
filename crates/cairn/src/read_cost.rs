//! Entries that a cursor has to pass over because they are deleted.
//!
//! A compaction would take tombstones further down, and in the end away, so they pay for one: as much as it could have handled in the time that
//! passing over them takes (see ADR 5), to the run where they lie. Whoever has paid what it takes has it done: a memtable is flushed, level 0 goes
//! down, a guard is merged. (Level 0 is left alone in leveled trees and where guards are chosen by a hash; and without background threads all but
//! the flush waits for the next writer.) So a range where a million keys were deleted one by one is slow for some scans, and then no more, though nobody
//! writes; and a queue whose consumer looks for the first entry each time goes past few that were taken.
//!
//! And where one key has very many versions, a cursor does not step through them all: it looks now and then whether it still stands on the same
//! key, and then seeks what is behind.

use crate::cursor::Source;
use crate::db_inner::DbInner;
use crate::db_state::KeyspaceState;
use crate::keyspace::KeyspaceInner;
use crate::sync::Ordering;
use crate::writer::Writer;
use base::same_key;
use memtable::Memtable;
use std::sync::Arc;
use tree::{COST_OF_JOB, MergeCursor};

/// What is paid at once, to the run where the cursor stands at the moment: for 61 entries, with the default of `seek_cost`. That is a prime, so that
/// of runs between which the entries alternate each has its part.
const PAID_AT_ONCE: u64 = 61 * 32;

/// So often a cursor looks whether it still stands on the same key. A seek of one run costs as much as some dozens of steps.
const LOOK: u32 = 64;

/// What a cursor owes for tombstones that it has passed over, in bytes.
#[derive(Default)]
pub(crate) struct PendingCharge(u64);

impl PendingCharge {
    /// The cursor over `merge` passes over the entry on which it stands, because of a tombstone.
    #[inline]
    pub(crate) fn pass(&mut self, merge: &MergeCursor<Source>, keyspace: &KeyspaceInner, core: &DbInner) {
        // Somebody else's who passed over few: they pay, too, in the long run.
        if self.0 == 0 && keyspace.debt.load(Ordering::Relaxed) > 0 {
            self.0 = keyspace.debt.load(Ordering::Relaxed);
            keyspace.debt.store(0, Ordering::Relaxed);
        }
        self.0 += keyspace.notice.cost_of_passed();
        if self.0 >= PAID_AT_ONCE {
            pay(std::mem::take(&mut self.0), merge, keyspace, core);
        }
    }

    /// The cursor goes. Of what several leave at once the next one takes over what the last one has left: less than is paid at once.
    #[inline]
    pub(crate) fn leave(&self, keyspace: &KeyspaceInner) {
        if self.0 > 0 {
            keyspace.debt.store(self.0, Ordering::Relaxed);
        }
    }
}

#[cold]
fn pay(bytes: u64, merge: &MergeCursor<Source>, keyspace: &KeyspaceInner, core: &DbInner) {
    match &merge.children()[merge.current()] {
        Source::Tree(source) => source.pay_for_passed(bytes, &keyspace.notice),
        Source::Memtable(cursor) => {
            let memtable = cursor.memtable();
            if memtable.pay(bytes) >= price(memtable) {
                core.ask_for_switch(memtable, keyspace);
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

/// What readers have paid for a memtable beyond what its flush takes.
pub(crate) fn left_over(memtable: &Memtable) -> u64 {
    memtable.paid().saturating_sub(price(memtable))
}

/// Where a cursor lingers: on one key, perhaps.
#[derive(Default)]
pub(crate) struct SkipCounter {
    steps: u32,
    /// The key at the last look.
    pub key: Vec<u8>,
}

impl SkipCounter {
    /// The cursor is about to leave an entry of `key` behind. Whether it has done so many times, as far as it has looked: then it should seek what
    /// is behind the versions of the key.
    #[inline]
    pub(crate) fn on(&mut self, key: &[u8]) -> bool {
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

impl DbInner {
    /// Has a memtable switched for which that was paid, unless an older one is being flushed: then whoever pays next asks again.
    fn ask_for_switch(&self, memtable: &Arc<Memtable>, keyspace: &KeyspaceInner) {
        let read_state = keyspace.read_state.load();
        if !Arc::ptr_eq(&read_state.memtable, memtable) || !read_state.flushing.is_empty() || self.ends() {
            return;
        }
        let was_asked = self.memtables_paid.swap(true, Ordering::AcqRel);
        if self.is_inline() {
            self.switch_and_flush();
        } else if !was_asked {
            self.wake_compaction();
        }
    }

    /// Switches the memtables for which that was paid, unless somebody holds the writer: then that is his business ([`DbInner::keep_in_bounds`]), or
    /// that of whoever comes here next.
    pub(crate) fn try_switch_paid(&self) {
        if self.memtables_paid.load(Ordering::Relaxed)
            && let Some(mut writer) = self.try_writer_briefly()
        {
            self.switch_paid(&mut writer);
        }
    }

    /// The same in a reader's thread, where there are no others, with the flush. Compactions are the writers' business.
    fn switch_and_flush(&self) {
        if self.check_process().is_err() || self.state.lock().flush_trouble.is_some() {
            return;
        }
        // Who closes the database waits for the writer.
        let Some(mut writer) = self.try_writer_briefly() else { return };
        self.switch_paid(&mut writer);
        while !self.ends()
            && let Some(job) = self.next_flush()
        {
            if self.run_flush(job).is_err() {
                return;
            }
        }
    }

    /// Switches a memtable for which that was paid, so that it is flushed; but of no keyspace more than one at a time, and none where the budget
    /// for memtables has no room for another one: then whoever pays next asks again.
    #[cold]
    pub(crate) fn switch_paid(&self, writer: &mut Writer) {
        self.switch_deletes(writer);
        let is_paid = |memtable: &Memtable| !memtable.is_empty() && memtable.paid() >= price(memtable);
        let keyspace = {
            let mut state = self.state.lock();
            let due = |k: &&KeyspaceState| {
                k.flushing.is_empty()
                    && is_paid(&k.core.read_state.load().memtable)
                    && !self.is_over_budget(&state, k.core.memtable_bytes)
            };
            let mut due = state.dirty().filter(due).map(|k| k.core.clone());
            let (first, more) = (due.next(), due.next().is_some());
            drop(due);
            // Who waits until nothing is to be done sees that it is to be done, or that it is being done.
            self.memtables_paid.store(more, Ordering::Release);
            let Some(first) = first else { return };
            state.jobs += 1;
            first
        };
        if let Err(e) = self.seal(writer, std::slice::from_ref(&keyspace)) {
            tracing::warn!(error = %e, keyspace = keyspace.name, "a memtable was not switched");
            // To be tried again when as much was paid again.
            keyspace.read_state.load().memtable.forget_paid();
        }
        self.state.lock().jobs -= 1;
        self.progress.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Database, KeyspaceOptions, Options};
    use env::SimEnv;

    /// How many tombstones of a key a scan passes over that has very many of them.
    #[test]
    fn many_versions_of_a_key_are_not_stepped_through() {
        let options = Options::default().background_threads(0);
        let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
        // Each is paid at once.
        let cost = super::PAID_AT_ONCE as u32;
        let keyspace = db.keyspace("k", KeyspaceOptions::default().seek_cost(8 * cost)).unwrap();
        for key in ["a", "b", "c"] {
            keyspace.put(key, "0").unwrap();
        }
        let early = db.snapshot();
        (0..1_900).try_for_each(|_| keyspace.delete("b")).unwrap();
        let memtable = keyspace.core.read_state.load().memtable.clone();
        let passed = |run: &dyn Fn() -> usize| {
            let before = memtable.paid();
            assert_eq!(run(), 2);
            (memtable.paid() - before) / u64::from(cost)
        };
        let all = || keyspace.range::<&str>(..);
        for passed in [passed(&|| all().count()), passed(&|| all().rev().count())] {
            assert!((64..130).contains(&passed), "{passed}");
        }
        assert_eq!(early.range::<&str>(&keyspace, ..).count(), 3);
        assert_eq!(early.range::<&str>(&keyspace, ..).rev().count(), 3);
        assert_eq!(memtable.entries(), 1_903, "nothing was flushed");
    }

    #[test]
    fn a_writer_switches_what_was_paid_while_he_wrote() {
        let options = Options::default().background_threads(0);
        let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().seek_cost(1 << 20)).unwrap();
        (0..100u32).try_for_each(|i| keyspace.delete(i.to_be_bytes())).unwrap();
        let core = &keyspace.handle.core;
        let writer = core.writer();
        assert_eq!(keyspace.range::<&str>(..).count(), 0);
        let entries = || keyspace.core.read_state.load().memtable.entries();
        assert!(core.memtables_paid.load(super::Ordering::Acquire) && entries() == 100);
        drop(writer);
        keyspace.delete("b").unwrap();
        assert!(!core.memtables_paid.load(super::Ordering::Acquire) && entries() == 1);
    }
}
