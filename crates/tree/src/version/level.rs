//! Levels and guards: which tables a level has, and which guard owns a key.

use super::fences::Fences;
use super::live_table::{LiveTable, ValueSum};
use base::Slice;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A guard: owns the keys from its own key up to the next guard's, and has a stack of tables, newest first.
///
/// Where two tables of a stack share keys, every entry of the upper table is newer than every entry of the lower one.
#[derive(Debug)]
pub struct Guard {
    /// Where its range starts; guard 0 has the empty key.
    pub key: Slice,
    /// Newest first.
    pub tables: Vec<Arc<LiveTable>>,
    /// The number of sorted runs: the largest number of tables that a search for one key may have to read. Tables that
    /// do not overlap form one run.
    pub runs: usize,
    /// The approximate number of bytes that a merge of its tables reads and writes.
    pub merge_cost: u64,
    /// The values outside of the tree to which its tables refer.
    pub(crate) values: ValueSum,
    /// Read charges since the last merge of the guard, in bytes (`read/charge.rs`).
    pub(crate) charges: AtomicU64,
    /// The same for its values outside of the tree.
    pub(crate) value_charges: AtomicU64,
    /// The share of keys among its entries (`compaction/space_amp.rs`), computed at the first use.
    pub(crate) key_share: OnceLock<f64>,
}

/// The largest number of tables that share a key.
pub(crate) fn runs(tables: &[Arc<LiveTable>]) -> usize {
    // The maximum is reached at the first key of some table.
    let at = |key: &[u8]| {
        tables.iter().filter(|t| &t.meta.smallest[..] <= key && key <= &t.meta.largest[..]).count()
    };
    tables.iter().map(|t| at(&t.meta.smallest)).max().unwrap_or(0)
}

impl Guard {
    pub(crate) fn new(key: Slice, tables: Vec<Arc<LiveTable>>) -> Arc<Guard> {
        let merge_cost = 2 * tables.iter().map(|t| t.meta.file_size).sum::<u64>();
        Arc::new(Guard {
            key,
            runs: runs(&tables),
            values: tables.iter().map(|t| t.values).sum(),
            tables,
            merge_cost,
            charges: AtomicU64::new(0),
            value_charges: AtomicU64::new(0),
            key_share: OnceLock::new(),
        })
    }

    /// Total bytes of its tables.
    pub fn bytes(&self) -> u64 {
        self.merge_cost / 2
    }

    /// Takes the charges of the guard that this one replaces, with more tables. But charges of a guard with one run are for its tombstones,
    /// whose price is higher than that of a merge of several runs: where it gets a second run, they are dropped.
    pub(crate) fn inherit_charges(&self, old: &Guard) {
        self.value_charges.store(old.value_charges.load(Ordering::Relaxed), Ordering::Relaxed);
        if old.runs > 1 || self.runs < 2 {
            self.charges.store(old.charges.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// A level: guards in the order of their keys. There is always guard 0.
#[derive(Debug)]
pub struct Level {
    /// In order of their keys; the first key is empty.
    pub guards: Vec<Arc<Guard>>,
    /// The keys of all guards but the first, for the search.
    fences: Fences,
    bytes: u64,
    tables: usize,
}

impl Level {
    pub(crate) fn new(guards: Vec<Arc<Guard>>) -> Level {
        debug_assert!(guards[0].key.is_empty());
        debug_assert!(guards.windows(2).all(|w| w[0].key < w[1].key));
        let fences = Fences::new(guards[1..].iter().map(|g| &g.key[..]));
        let bytes = guards.iter().map(|g| g.bytes()).sum();
        let tables = guards.iter().map(|g| g.tables.len()).sum();
        Level { guards, fences, bytes, tables }
    }

    /// Index of the guard that owns `key`.
    #[inline]
    pub fn find(&self, key: &[u8]) -> usize {
        self.fences.count(key, |i| &self.guards[i + 1].key[..] <= key)
    }

    /// Whether there is a guard with exactly this key.
    pub fn has_guard(&self, key: &[u8]) -> bool {
        self.guards[self.find(key)].key == *key
    }

    /// The end of guard `index`'s range; `None` for the last guard.
    pub fn end_of(&self, index: usize) -> Option<&Slice> {
        self.guards.get(index + 1).map(|g| &g.key)
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of tables.
    pub fn tables(&self) -> usize {
        self.tables
    }

    /// Indices of the guards whose ranges overlap `[from, to)`.
    pub fn overlapping(&self, from: &[u8], to: Option<&[u8]>) -> std::ops::Range<usize> {
        let first = self.find(from);
        let end = match to {
            None => self.guards.len(),
            Some(to) => self.guards.partition_point(|g| &g.key[..] < to).max(first + 1),
        };
        first..end
    }

    /// The tables that may have keys in `[from, to)`.
    pub(crate) fn tables_in<'a>(
        &'a self,
        from: &'a [u8],
        to: Option<&'a [u8]>,
    ) -> impl Iterator<Item = &'a Arc<LiveTable>> {
        let guards = if self.tables == 0 { 0..0 } else { self.overlapping(from, to) };
        self.guards[guards].iter().flat_map(|g| &g.tables).filter(move |t| t.overlaps_range(from, to))
    }

    /// Whether some table has keys on both sides of `key`: smaller ones, and `key` or larger ones.
    pub fn straddled(&self, key: &[u8]) -> bool {
        self.straddled_without(key, &HashSet::new())
    }

    /// Like [`Level::straddled`], for the tables whose numbers are not in `consumed`.
    pub(crate) fn straddled_without(&self, key: &[u8], consumed: &HashSet<u64>) -> bool {
        let straddles = |t: &LiveTable| &t.meta.smallest[..] < key && key <= &t.meta.largest[..];
        let mut tables = self.guards[self.find(key)].tables.iter();
        tables.any(|t| straddles(t) && !consumed.contains(&t.meta.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_finds_the_guard_that_owns_a_key() {
        let keys: [&[u8]; 6] = [b"", b"abcdefgh", b"abcdefghi", b"abcdefghj", b"b", b"b\0"];
        let level = Level::new(keys.iter().map(|k| Guard::new(Slice::copy_from(k), Vec::new())).collect());
        let probes: [&[u8]; 10] = [
            b"",
            b"\0",
            b"abcdefg",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefghi",
            b"abcdefghz",
            b"b",
            b"b\0",
            b"zz",
        ];
        for probe in probes {
            let expected = keys.iter().rposition(|k| *k <= probe).unwrap();
            assert_eq!(level.find(probe), expected, "{probe:?}");
        }
        assert_eq!(level.overlapping(b"abcdefghi", Some(b"b")), 2..4);
        assert_eq!(level.overlapping(b"zz", None), 5..6);
        assert_eq!(level.overlapping(b"", Some(b"b\0")), 0..5);
    }
}
