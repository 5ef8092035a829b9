//! Costs of a cursor for entries that it does not show.
//!
//! Deleted entries: the cursor charges them to the run that contains them (`tree::ReadCharges` has the cost model), until a flush or a
//! compaction removes them. Charging is all that the cursor does: the flush thread or the next writer seals a memtable that is due
//! (`DbInner::seal_due`), and a compaction thread compacts a guard or level 0 that is due.
//!
//! Keys with very many versions: the cursor does not step through all of them. It checks from time to time whether it still stands on the
//! same key, and then seeks past its versions.

use super::read_view::Source;
use crate::parts::price;
use crate::state::{KeyspaceInner, Reader};
use base::same_key;
use memtable::Memtable;
use std::sync::Arc;
use tree::{MergeCursor, charge};

/// A cursor compares keys after this many steps. A seek in one run takes as long as some dozens of steps.
const SAME_KEY_STEPS: u32 = 64;

/// The cursor over `merge` has skipped deleted entries: charges the run where it stands.
#[cold]
pub(crate) fn charge_skipped(bytes: u64, merge: &MergeCursor<Source>, keyspace: &KeyspaceInner, db: &Reader) {
    match &merge.children()[merge.current()] {
        Source::Tree(source) => source.charge_skipped(bytes, &keyspace.charges),
        Source::Memtable(cursor) => {
            let memtable = cursor.memtable();
            if charge(memtable.charges(), bytes) >= price(memtable) && may_be_sealed(memtable, keyspace) {
                db.note_due_memtable();
            }
        }
    }
}

/// Whether the memtable is the active one of its keyspace, and no older one waits for its flush.
pub(super) fn may_be_sealed(memtable: &Arc<Memtable>, keyspace: &KeyspaceInner) -> bool {
    let read_state = keyspace.read_state.load();
    Arc::ptr_eq(&read_state.memtable, memtable) && read_state.immutable.is_empty()
}

/// Detects that a cursor steps through many versions of one key.
#[derive(Default)]
pub(crate) struct SkipCounter {
    steps: u32,
    /// The key at the last comparison.
    pub key: Vec<u8>,
}

impl SkipCounter {
    /// The cursor is about to step past an entry of `key`. Returns true when it should rather seek past all versions of the key: it stood
    /// on the same key at the last comparison, 64 steps ago.
    #[inline]
    pub(crate) fn on(&mut self, key: &[u8]) -> bool {
        self.steps = self.steps.wrapping_add(1);
        self.steps.is_multiple_of(SAME_KEY_STEPS) && self.is_same(key)
    }

    #[cold]
    fn is_same(&mut self, key: &[u8]) -> bool {
        let same = same_key(key, &self.key);
        if !same {
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        same
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::sync::Ordering;
    use crate::{Database, KeyspaceOptions, Options};
    use env::SimEnv;

    /// The number of tombstones that a scan skips one by one, of a key that has very many of them.
    #[test]
    fn many_versions_of_a_key_are_not_stepped_through() {
        let options = Options::default().background_threads(0);
        let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
        // Each skipped entry is charged at once.
        let cost = 2_000;
        let keyspace = db.keyspace("k", KeyspaceOptions::default().seek_cost(8 * cost)).unwrap();
        for key in ["a", "b", "c"] {
            keyspace.put(key, "0").unwrap();
        }
        let early = db.snapshot();
        (0..1_900).try_for_each(|_| keyspace.delete("b")).unwrap();
        let memtable = keyspace.inner.read_state.load().memtable.clone();
        let charges = || memtable.charges().load(Ordering::Relaxed);
        let skipped = |run: &dyn Fn() -> usize| {
            let before = charges();
            assert_eq!(run(), 2);
            (charges() - before) / u64::from(cost)
        };
        let all = || keyspace.range::<&str>(..);
        for skipped in [skipped(&|| all().count()), skipped(&|| all().rev().count())] {
            assert!((64..130).contains(&skipped), "{skipped}");
        }
        assert_eq!(early.range::<&str>(&keyspace, ..).count(), 3);
        assert_eq!(early.range::<&str>(&keyspace, ..).rev().count(), 3);
        assert_eq!(memtable.entries(), 1_903, "nothing was flushed");
    }

    #[test]
    fn a_scan_only_charges_and_the_next_write_seals_the_memtable() {
        let options = Options::default().background_threads(0);
        let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().seek_cost(1 << 20)).unwrap();
        (0..100u32).try_for_each(|i| keyspace.delete(i.to_be_bytes())).unwrap();
        assert_eq!(keyspace.range::<&str>(..).count(), 0);
        let inner = &keyspace.handle.db;
        let entries = || keyspace.inner.read_state.load().memtable.entries();
        assert!(inner.signals.memtables_due.load(Ordering::Relaxed) && entries() == 100);
        assert_eq!(db.stats().flush.jobs, 0);
        keyspace.delete("b").unwrap();
        assert!(!inner.signals.memtables_due.load(Ordering::Relaxed) && entries() == 1);
        assert_eq!(db.stats().flush.jobs, 1);
    }

    #[test]
    fn without_threads_the_next_write_compacts_a_tree_that_is_due() {
        let options = Options::default().background_threads(0).dead_range_entries(0);
        let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().seek_cost(1 << 20)).unwrap();
        let early = db.snapshot();
        (0..100u32).try_for_each(|i| keyspace.put(i.to_be_bytes(), "1")).unwrap();
        keyspace.flush().unwrap();
        (0..100u32).try_for_each(|i| keyspace.delete(i.to_be_bytes())).unwrap();
        keyspace.flush().unwrap();
        assert_eq!(keyspace.range::<&str>(..).count(), 0);
        let inner = &keyspace.handle.db;
        let before = db.stats().compaction.jobs;
        assert!(inner.signals.trees_due.load(Ordering::Relaxed));
        keyspace.put("b", "1").unwrap();
        assert!(!inner.signals.trees_due.load(Ordering::Relaxed) && db.stats().compaction.jobs > before);
        drop(early);
    }

    #[test]
    fn all_memtables_that_are_due_are_sealed_at_once() {
        let options = Options::default().background_threads(0);
        let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
        let open = |name| db.keyspace(name, KeyspaceOptions::default().seek_cost(1 << 20)).unwrap();
        let keyspaces = ["a", "b", "c"].map(open);
        for keyspace in &keyspaces {
            (0..100u32).try_for_each(|i| keyspace.delete(i.to_be_bytes())).unwrap();
        }
        let logs = db.stats().log.segments;
        for keyspace in &keyspaces {
            assert_eq!(keyspace.range::<&str>(..).count(), 0);
        }
        db.wait_idle().unwrap();
        assert!(keyspaces.iter().all(|k| k.inner.read_state.load().memtable.entries() == 0));
        assert_eq!((db.stats().flush.jobs, logs), (3, 1));
    }

    /// With threads, and without any write after the scan.
    #[test]
    fn the_flush_thread_seals_a_memtable_that_is_due() {
        let options = Options::default().background_threads(1);
        let db = Database::open_in(SimEnv::new(1), "/db", options).unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().seek_cost(1 << 20)).unwrap();
        (0..100u32).try_for_each(|i| keyspace.delete(i.to_be_bytes())).unwrap();
        assert_eq!(keyspace.range::<&str>(..).count(), 0);
        let begun = std::time::Instant::now();
        while keyspace.inner.read_state.load().memtable.entries() > 0 {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it was not sealed");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
