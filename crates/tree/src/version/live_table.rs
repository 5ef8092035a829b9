//! A table of a version: its metadata, its reader, and the marks that change while versions share it.
//!
//! Versions, cursors and plans hold a table by an `Arc`. The drop of the last one reports the file as obsolete, if an edit has
//! removed the table.

use super::damage::Damage;
use super::obsolete_files::ObsoleteFiles;
use super::sketch::Sketch;
use base::planted::{Bug, planted};
use base::{Cursor, Error, Reference, Result};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use table::{Table, TableMeta, TableTimes};
use values::Segments;

/// A table shared by versions. When edits have removed the table from every tree that has it and its last holder (version, cursor) is
/// dropped, its number is added to the [`ObsoleteFiles`].
pub struct LiveTable {
    /// Its entry in the manifest.
    pub meta: TableMeta,
    /// Its reader.
    pub table: Arc<Table>,
    /// The number of trees that have it: more than one if a keyspace was cloned. 0: it is obsolete.
    trees: AtomicUsize,
    obsolete_files: Arc<ObsoleteFiles>,
    /// Holds the value segments that its entries refer to; `None` if there are none.
    segments: Option<Arc<Segments>>,
    /// What reads and compactions have found wrong with it.
    pub damage: Damage,
    sketch: OnceLock<Sketch>,
    /// Read charges, in bytes (`read/charge.rs`). Only level 0 uses them.
    pub charges: AtomicU64,
    /// The values outside of the tree to which its entries refer.
    pub(crate) values: ValueSum,
    /// Read charges for them.
    pub(crate) value_charges: AtomicU64,
}

/// Values outside of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValueSum {
    pub count: u64,
    pub bytes: u64,
}

impl std::iter::Sum for ValueSum {
    fn sum<I: Iterator<Item = ValueSum>>(sums: I) -> ValueSum {
        sums.fold(ValueSum::default(), |a, b| ValueSum {
            count: a.count.saturating_add(b.count),
            bytes: a.bytes.saturating_add(b.bytes),
        })
    }
}

impl LiveTable {
    /// What its file says of it: that does not record which range tombstones have been applied to it, nor the times of versions.
    pub fn meta_of_file(&self) -> TableMeta {
        TableMeta { cleared_seq: 0, times: None, ..self.meta.clone() }
    }

    /// Whether this was found in its file, where the times may have been found or not. (The manifest has none for some tables of keyspaces
    /// with history that earlier Cairns wrote.)
    pub fn is_described_by(&self, found: &TableMeta) -> bool {
        let times_agree = match (self.meta.times, found.times) {
            (Some(stored), Some(found)) => TableTimes { late: stored.late, ..found } == stored,
            _ => true,
        };
        times_agree && TableMeta { times: None, ..found.clone() } == self.meta_of_file()
    }

    /// A table that is in use, and that holds its value segments in `segments`.
    pub fn new(
        meta: TableMeta,
        table: Arc<Table>,
        obsolete_files: Arc<ObsoleteFiles>,
        segments: Option<&Arc<Segments>>,
    ) -> Arc<LiveTable> {
        let (damage, sketch) = (Damage::default(), OnceLock::new());
        let values = meta.segments.iter().map(|s| ValueSum { count: s.count, bytes: s.bytes }).sum();
        let segments = segments.filter(|_| !meta.segments.is_empty()).cloned();
        segments.iter().for_each(|segments| segments.hold(meta.number, &meta.segments));
        Arc::new(LiveTable {
            meta,
            table,
            trees: AtomicUsize::new(1),
            obsolete_files,
            segments,
            damage,
            sketch,
            charges: AtomicU64::new(0),
            values,
            value_charges: AtomicU64::new(0),
        })
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

    /// The value segments that its entries refer to; `None` if there are none.
    pub(crate) fn segments(&self) -> Option<&Segments> {
        self.segments.as_deref()
    }

    /// Whether `key` lies in the table's key range.
    #[inline]
    pub(crate) fn may_hold(&self, key: &[u8]) -> bool {
        &self.meta.smallest[..] <= key && key <= &self.meta.largest[..]
    }

    /// Whether no tree has the table any more, and only its last holders use it.
    pub fn is_obsolete(&self) -> bool {
        self.trees.load(Ordering::Acquire) == 0
    }

    /// Whether more than one tree has the table.
    pub fn is_shared(&self) -> bool {
        self.trees.load(Ordering::Acquire) > 1
    }

    /// The table for one more tree, from which an edit will remove it, too.
    pub fn share(self: &Arc<Self>) -> Arc<LiveTable> {
        self.trees.fetch_add(1, Ordering::AcqRel);
        self.clone()
    }

    /// Records that so many trees have it, as a manifest says that was read.
    pub(crate) fn set_trees(&self, trees: usize) {
        let trees = if planted(Bug::ForgetSharing) { 1 } else { trees };
        self.trees.store(trees, Ordering::Release);
    }

    /// Records that a tree does not have the table any more, as the manifest says. With the last of them its file becomes obsolete, when the last
    /// holder is dropped.
    pub(crate) fn remove_from_tree(&self) {
        let less_one = |trees: usize| trees.checked_sub(1);
        let before = self.trees.fetch_update(Ordering::AcqRel, Ordering::Acquire, less_one);
        debug_assert!(before.is_ok(), "{self:?} was removed from more trees than have had it");
        if before == Ok(1) {
            self.give_up_segments();
        }
    }

    /// Records that no tree has the table any more.
    pub fn set_obsolete(&self) {
        self.trees.store(0, Ordering::Release);
        self.give_up_segments();
    }

    fn give_up_segments(&self) {
        if let Some(segments) = &self.segments {
            segments.set_obsolete(self.meta.number, &self.meta.segments);
        }
    }

    /// Passes every reference to a value outside of the tree to `visit`, whose error ends this. Reads the whole table, past the cache, if it has any.
    pub fn references(&self, visit: &mut dyn FnMut(Reference) -> Result<()>) -> Result<()> {
        if self.meta.segments.is_empty() {
            return Ok(());
        }
        let mut cursor = self.table.scan();
        cursor.seek_to_first()?;
        while cursor.valid() {
            if cursor.trailer().is_reference() {
                let malformed =
                    || Error::corruption(self.table.path(), 0, "a reference to a value is malformed");
                visit(Reference::decode(cursor.value()).ok_or_else(malformed)?)?;
            }
            cursor.next()?;
        }
        Ok(())
    }

    /// Reads and verifies the values outside of the tree that the table refers to. Returns what is wrong with them, or with the
    /// references. `step` is called with the bytes of each value; its error ends the check.
    pub fn verify_values(
        &self,
        segments: &Segments,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<Error>> {
        if self.meta.segments.is_empty() {
            return Ok(Vec::new());
        }
        let mut references = Vec::new();
        let mut keep = |reference| {
            references.push(reference);
            Ok(())
        };
        match self.references(&mut keep) {
            Ok(()) => segments.verify(references, step),
            Err(e) => Ok(vec![e]),
        }
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
        if *self.trees.get_mut() == 0 {
            self.obsolete_files.add(self.meta.number);
        }
        if let Some(segments) = &self.segments {
            segments.release(self.meta.number, &self.meta.segments);
        }
    }
}

impl std::fmt::Debug for LiveTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {}", self.meta.number)
    }
}

/// The smallest and the largest key of some tables; two empty keys if there are none.
pub(crate) fn key_bounds<'a>(
    tables: impl Iterator<Item = &'a Arc<LiveTable>> + Clone,
) -> (&'a [u8], &'a [u8]) {
    let smallest = tables.clone().map(|t| &t.meta.smallest[..]).min();
    let largest = tables.map(|t| &t.meta.largest[..]).max();
    (smallest.unwrap_or_default(), largest.unwrap_or_default())
}
