//! Versions: immutable snapshots of the set of tables of one keyspace, with their levels and guards.
//!
//! Readers and compactions share a version and read it without locks. What changes in place are counters and marks: read charges
//! (`read_charge.rs`), damage (`damage.rs`), and what was read of a small level.

use crate::guards::hash::UncommittedGuards;
use crate::version::damage::Damage;
use crate::version::edit::VersionEdit;
use crate::version::fences::Fences;
use crate::version::sketch::Sketch;
use base::{Error, RangeSet, Result, Seq, Slice, head};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use table::{Table, TableMeta};

/// Numbers of table files that no version uses any more. The library deletes the files.
#[derive(Debug, Default)]
pub struct ObsoleteFiles(Mutex<Vec<u64>>);

impl ObsoleteFiles {
    /// Removes and returns all numbers.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock())
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Adds a number.
    pub fn add(&self, number: u64) {
        self.0.lock().push(number);
    }
}

/// A table shared by versions. When an edit has removed the table and its last holder (version, cursor) is dropped, its
/// number is added to the [`ObsoleteFiles`].
pub struct LiveTable {
    /// Its entry in the manifest.
    pub meta: TableMeta,
    /// Its reader.
    pub table: Arc<Table>,
    /// The heads of its smallest and largest keys.
    heads: (u64, u64),
    obsolete: std::sync::atomic::AtomicBool,
    obsolete_files: Arc<ObsoleteFiles>,
    damage: Damage,
    sketch: OnceLock<Sketch>,
    /// Blocks that seeks have read: see [`LiveTable::note_seek_reads`].
    seek_reads: AtomicU64,
    /// Read charges, in bytes (`read_charge.rs`). Only level 0 uses them.
    pub charges: AtomicU64,
}

/// Seeks that read this many blocks one by one ...
const BLOCKS_PER_LOAD: u64 = 16;

/// ... cause a load of this many bytes of the table.
const LOAD_BYTES: u64 = 1 << 20;

impl LiveTable {
    /// A table that is in use.
    pub fn new(meta: TableMeta, table: Arc<Table>, obsolete_files: Arc<ObsoleteFiles>) -> Arc<LiveTable> {
        let (damage, sketch) = (Damage::default(), OnceLock::new());
        let heads = (head(&meta.smallest), head(&meta.largest));
        let (seek_reads, charges) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(LiveTable {
            meta,
            table,
            heads,
            obsolete: false.into(),
            obsolete_files,
            damage,
            sketch,
            seek_reads,
            charges,
        })
    }

    /// Records that a seek has read `blocks` data blocks of this table, which belongs to a level that is small compared
    /// to the levels below. Every seek searches every level, so all blocks of a small level are needed soon. For every
    /// 16 blocks read one by one, the operating system is asked to load the next MiB of the file into the page cache,
    /// which takes about as long; cached parts are not read again. This ends when the whole file was requested.
    #[inline]
    pub(crate) fn note_seek_reads(&self, blocks: u64) {
        let enough = self.meta.file_size.div_ceil(LOAD_BYTES) * BLOCKS_PER_LOAD;
        if blocks == 0 || self.seek_reads.load(Ordering::Relaxed) >= enough {
            return;
        }
        let before = self.seek_reads.fetch_add(blocks, Ordering::Relaxed);
        let (loaded, wanted) = (before / BLOCKS_PER_LOAD, (before + blocks).min(enough) / BLOCKS_PER_LOAD);
        for piece in loaded..wanted {
            self.table.load(piece * LOAD_BYTES, LOAD_BYTES);
        }
    }

    /// The sketch of its keys, which estimates how many keys it shares with other tables. Small tables and those of old
    /// versions have none.
    pub fn sketch(&self) -> Option<&Sketch> {
        self.sketch.get()
    }

    /// Sets the sketch, from the manifest.
    pub(crate) fn set_sketch(&self, sketch: &Sketch) {
        let _ = self.sketch.set(sketch.clone());
    }

    /// Whether `key`, whose head is `wanted`, lies in the table's key range. For most tables the heads decide.
    #[inline]
    pub(crate) fn may_hold(&self, key: &[u8], wanted: u64) -> bool {
        let (smallest, largest) = self.heads;
        smallest <= wanted
            && wanted <= largest
            && (wanted != smallest || key >= &self.meta.smallest[..])
            && (wanted != largest || key <= &self.meta.largest[..])
    }

    /// Records that the manifest no longer names the table: its file becomes obsolete when the last holder is dropped.
    pub fn set_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The first damage that a read or a check has found in the table.
    pub fn damage(&self) -> Option<Error> {
        self.damage.first()
    }

    /// Records an error of a read or a check, if it concerns the content of the file. See `damage.rs`.
    #[cold]
    pub fn note_damage(&self, error: &Error) {
        self.damage.note(error);
    }

    /// Records an error of a compaction that read the table.
    #[cold]
    pub(crate) fn note_failed_merge(&self, error: &Error) {
        self.damage.note_merge(error);
    }

    /// Removes the damage mark, because a complete verification of the file found no damage.
    pub fn clear_damage(&self) {
        self.damage.clear();
    }

    /// Allows the next compaction to read the table again.
    pub fn retry_damaged(&self) {
        self.damage.retry();
    }

    /// Whether a compaction could not read the table. Later compactions leave it out.
    pub fn is_unreadable(&self) -> bool {
        self.damage.is_unreadable()
    }

    /// Whether the key ranges of two tables overlap.
    pub fn overlaps(&self, other: &LiveTable) -> bool {
        self.meta.smallest <= other.meta.largest && other.meta.smallest <= self.meta.largest
    }

    /// Whether the table may hold keys in `[from, to)`; `to` of `None` is the end of all keys.
    pub fn overlaps_range(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        &self.meta.largest[..] >= from && to.is_none_or(|to| &self.meta.smallest[..] < to)
    }
}

impl Drop for LiveTable {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.obsolete_files.add(self.meta.number);
        }
    }
}

impl std::fmt::Debug for LiveTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {}", self.meta.number)
    }
}

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
    /// Read charges since the last merge of the guard, in bytes (`read_charge.rs`).
    pub(crate) charges: AtomicU64,
    /// The bytes of older versions (`space_amp.rs`), computed at the first use.
    pub(crate) stale_bytes: OnceLock<u64>,
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
            tables,
            merge_cost,
            charges: AtomicU64::new(0),
            stale_bytes: OnceLock::new(),
        })
    }

    /// Total bytes of its tables.
    pub fn bytes(&self) -> u64 {
        self.merge_cost / 2
    }

    /// Whether one of its tables is known to be damaged.
    pub fn is_damaged(&self) -> bool {
        self.tables.iter().any(|t| t.is_unreadable() || t.damage().is_some())
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

    /// Whether some table has keys on both sides of `key`: smaller ones, and `key` or larger ones.
    pub fn straddled(&self, key: &[u8]) -> bool {
        let guard = &self.guards[self.find(key)];
        guard.tables.iter().any(|t| &t.meta.smallest[..] < key && key <= &t.meta.largest[..])
    }
}

/// An immutable list of all tables of a keyspace. Its holder keeps the tables readable.
#[derive(Debug)]
pub struct Version {
    /// Flushed tables, newest first.
    pub level0: Vec<Arc<LiveTable>>,
    /// Levels 1 and deeper; `levels[0]` is level 1.
    pub levels: Vec<Arc<Level>>,
    /// Keys selected as guards that are not yet guards of all their levels.
    pub uncommitted: Arc<UncommittedGuards>,
    /// All entries of the keyspace up to this sequence number are in tables.
    pub flushed_seq: Seq,
    /// The range tombstones that may still hide entries. See `range_tombstones.rs`.
    pub range_tombstones: Arc<RangeSet>,
}

impl Version {
    /// A version without tables.
    pub fn empty(levels: usize) -> Version {
        let level = || Arc::new(Level::new(vec![Guard::new(Slice::default(), Vec::new())]));
        Version {
            level0: Vec::new(),
            levels: (0..levels).map(|_| level()).collect(),
            uncommitted: Arc::default(),
            flushed_seq: 0,
            range_tombstones: Arc::default(),
        }
    }

    /// Level `n`, counted from 1.
    pub fn level(&self, n: usize) -> &Arc<Level> {
        &self.levels[n - 1]
    }

    /// The number of the last level.
    pub fn last_level(&self) -> usize {
        self.levels.len()
    }

    /// All tables, with their levels.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<LiveTable>)> {
        let upper = self.level0.iter().map(|t| (0, t));
        let lower = self.levels.iter().enumerate();
        upper.chain(
            lower.flat_map(|(i, l)| {
                l.guards.iter().flat_map(move |g| g.tables.iter().map(move |t| (i + 1, t)))
            }),
        )
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> u64 {
        self.level0.iter().map(|t| t.meta.file_size).sum::<u64>()
            + self.levels.iter().map(|l| l.bytes()).sum::<u64>()
    }

    /// Applies `edit`. `open` opens the tables that the edit adds.
    pub fn apply(
        &self,
        edit: &VersionEdit,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<Version> {
        crate::version::edit::apply(self, edit, open)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::TreeOptions;

    pub(crate) fn options() -> TreeOptions {
        TreeOptions {
            levels: 3,
            level0_tables: 2,
            max_tables_per_guard: 3,
            top_level_bits: 8,
            bit_decrement: 2,
            guards_by_size: false,
            level_size_percent: 0,
            seek_cost: 400,
            last_level_merge_factor: 25,
            tombstone_percent: 0,
            skip_levels: false,
            min_piece_bytes: 0,
            guard_bytes: 0,
            space_target: 10.0,
            table: table::TableOptions::default(),
        }
    }

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
