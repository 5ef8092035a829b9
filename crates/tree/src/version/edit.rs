//! [`VersionEdit`]: the difference between two versions of a keyspace.

use super::Version;
use super::live_table::LiveTable;
use super::sketch::Sketch;
use base::{RangeTombstone, Seq, Slice};
use std::sync::Arc;
use table::TableMeta;

/// The difference between two versions of one keyspace. Applied whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionEdit {
    /// Added tables, with their level. The keys determine the guard, the sequence numbers the place in its stack.
    pub added: Vec<(usize, TableMeta)>,
    /// Removed tables: level and number.
    pub removed: Vec<(usize, u64)>,
    /// Added guards: level and key.
    pub guards_added: Vec<(usize, Slice)>,
    /// Removed guards: level and key.
    pub guards_removed: Vec<(usize, Slice)>,
    /// Uncommitted guards: keys selected as guards that are not yet guards of all their levels, with the shallowest
    /// level.
    pub uncommitted_added: Vec<(usize, Slice)>,
    /// Keys that are no longer uncommitted guards: guards of all their levels by now, or given up.
    pub uncommitted_removed: Vec<Slice>,
    /// All entries up to this sequence number are in tables.
    pub flushed_seq: Option<Seq>,
    /// Sketches of the added tables, by table number.
    pub sketches: Vec<(u64, Sketch)>,
    /// Added range tombstones.
    pub range_tombstones_added: Vec<RangeTombstone>,
    /// Range tombstones that hide no entry any more. Each removes itself and older ones inside its range.
    pub range_tombstones_removed: Vec<RangeTombstone>,
    /// The oldest sequence number at which a reader reads or will read; `None` if there are no readers of old versions.
    /// Range tombstones up to it can be merged. It is not encoded, because there are no readers when a manifest is
    /// read.
    pub oldest_reader: Option<Seq>,
}

impl VersionEdit {
    /// The edit from an empty version to `version`, with which a new manifest starts.
    pub fn snapshot(version: &Version) -> VersionEdit {
        let mut edit = VersionEdit { flushed_seq: Some(version.flushed_seq), ..VersionEdit::default() };
        edit.added = version.tables().map(|(level, t)| (level, t.meta.clone())).collect();
        let sketch = |t: &Arc<LiveTable>| Some((t.meta.number, t.sketch()?.clone()));
        edit.sketches = version.tables().filter_map(|(_, t)| sketch(t)).collect();
        let added = version.guards().filter(|(_, index, _)| *index > 0);
        edit.guards_added = added.map(|(level, _, guard)| (level, guard.key.clone())).collect();
        edit.uncommitted_added =
            version.uncommitted.iter().map(|(key, level)| (*level, key.clone())).collect();
        edit.range_tombstones_added = version.range_tombstones.tombstones();
        edit
    }
}
