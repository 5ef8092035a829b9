//! Plans: what one compaction reads, writes and removes, and why.
//!
//! A plan is data. The policies of this folder make plans, `jobs/compact.rs` executes them, and [`Tree::install`](crate::Tree::install)
//! turns their output into an edit.

use crate::version::{LiveTable, ValueSum};
use base::{Slice, Time};
use std::fmt;
use std::sync::Arc;
use table::TableMeta;

/// The reason for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Tables move down without being rewritten (`trivial_move.rs`).
    Move,
    /// Level 0 has enough tables.
    Level0,
    /// A guard has reached the limit of its runs (PebblesDB, section 3.4).
    GuardFull,
    /// A level is large compared to the next one (section 4.2).
    LevelSize,
    /// The read charges of a run have reached its price (`read_triggered.rs`). The paper counts seeks instead (section
    /// 4.2).
    Seeks,
    /// Scans have waited for values outside of the tree, which move into tables (`read_triggered.rs`).
    Scans,
    /// A large share of the entries of a table are tombstones.
    Tombstones,
    /// The tree has more older versions than `space_target` allows (`space_amp.rs`).
    Space,
    /// Neighbouring guards of the last level have become small.
    SmallGuards,
    /// Writes pause (`idle.rs`).
    Idle,
    /// A caller has requested it.
    Manual,
    /// Range tombstones hide whole tables, which are removed without being read.
    RangeTombstones,
    /// Many older versions in a guard have expired (`expired.rs`).
    Expired,
    /// All versions of whole tables have expired, which are removed without being read.
    ExpiredTables,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Move => "move",
            Reason::Level0 => "level 0",
            Reason::GuardFull => "guard full",
            Reason::LevelSize => "level size",
            Reason::Seeks => "seeks",
            Reason::Scans => "scans",
            Reason::Tombstones => "tombstones",
            Reason::Space => "space",
            Reason::SmallGuards => "small guards",
            Reason::Idle => "idle",
            Reason::Manual => "manual",
            Reason::RangeTombstones => "range tombstones",
            Reason::Expired => "expired versions",
            Reason::ExpiredTables => "expired tables",
        })
    }
}

/// A compaction: merge `inputs`, cut the output at `cuts`, and attach the pieces to `target`. In a move the inputs
/// themselves are the pieces, and nothing is read or written.
#[derive(Debug)]
pub struct Plan {
    /// Its reason.
    pub reason: Reason,
    /// The level of the inputs. (A merge may include tables of the target.)
    pub source: usize,
    /// The level of the output; equal to `source` for a merge in place.
    pub target: usize,
    /// Start of the key range that the plan owns at `target`.
    pub from: Slice,
    /// Its end; `None` is the end of all keys.
    pub to: Option<Slice>,
    /// The input tables, with their levels.
    pub inputs: Vec<(usize, Arc<LiveTable>)>,
    /// Keys at which the output is cut: ascending, inside the range.
    pub cuts: Vec<Slice>,
    /// For each piece between cuts: whether its range has no older data than the inputs, so that tombstones can be
    /// dropped.
    pub bottom: Vec<bool>,
    /// A piece is also cut after this many bytes, between two keys; 0 for no such cuts.
    pub piece_bytes: u64,
    /// Guards of the target inside the range that the plan removes. Their tables are among the inputs.
    pub guards_removed: Vec<Slice>,
    /// The horizon for which it was made: readers that its job finds, and that were not there, began later.
    pub horizon: Option<Time>,
}

impl Plan {
    /// A plan without inputs, from level 0 to level 0, over all keys: the rest is filled in by the caller.
    pub(crate) fn empty(reason: Reason) -> Plan {
        Plan {
            reason,
            source: 0,
            target: 0,
            from: Slice::default(),
            to: None,
            inputs: Vec::new(),
            cuts: Vec::new(),
            bottom: vec![false],
            piece_bytes: 0,
            guards_removed: Vec::new(),
            horizon: None,
        }
    }

    /// The end of its key range; `None` is the end of all keys.
    pub(crate) fn end(&self) -> Option<&[u8]> {
        self.to.as_deref()
    }

    /// The input tables, without their levels.
    pub(crate) fn input_tables(&self) -> impl Iterator<Item = &Arc<LiveTable>> + Clone {
        self.inputs.iter().map(|(_, t)| t)
    }

    /// Whether the input tables move to the target without being rewritten.
    pub fn is_move(&self) -> bool {
        self.reason == Reason::Move
    }

    /// Whether an input table may have late versions.
    pub fn is_late(&self) -> bool {
        self.input_tables().any(|table| table.meta.times.is_some_and(|times| times.late))
    }

    /// Whether the input tables are removed without being read.
    pub(crate) fn removes_unread(&self) -> bool {
        matches!(self.reason, Reason::RangeTombstones | Reason::ExpiredTables)
    }

    /// Whether the input tables are moved or removed without being read.
    pub fn is_unread(&self) -> bool {
        self.is_move() || self.removes_unread()
    }

    /// Whether values outside of the tree move into the output tables.
    pub fn inlines_values(&self) -> bool {
        self.reason == Reason::Scans
    }

    /// Bytes of the values outside of the tree to which the inputs refer.
    pub fn value_bytes(&self) -> u64 {
        self.input_tables().map(|t| t.values).sum::<ValueSum>().bytes
    }

    /// Bytes that its execution reads, without values outside of the tree.
    pub fn read_bytes(&self) -> u64 {
        if self.is_unread() { 0 } else { self.input_bytes() }
    }

    /// Numbers of the input tables.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.input_tables().map(|t| t.meta.number)
    }

    /// Total bytes of the inputs.
    pub fn input_bytes(&self) -> u64 {
        self.input_tables().map(|t| t.meta.file_size).sum()
    }

    /// Whether the plan writes to `level` in a range with `key` strictly inside, and does not cut at `key`.
    pub(crate) fn would_straddle(&self, level: usize, key: &[u8]) -> bool {
        self.target == level
            && &self.from[..] < key
            && self.end().is_none_or(|to| key < to)
            && self.cuts.binary_search_by(|cut| cut[..].cmp(key)).is_err()
    }

    /// Whether the plan's range overlaps the keys of a table.
    pub(crate) fn overlaps_keys(&self, meta: &TableMeta) -> bool {
        self.from[..] <= meta.largest[..] && self.end().is_none_or(|end| meta.smallest[..] < *end)
    }

    /// Whether the plan's range overlaps `[from, to)`.
    pub(crate) fn overlaps(&self, from: &[u8], to: Option<&[u8]>) -> bool {
        to.is_none_or(|to| &self.from[..] < to) && self.end().is_none_or(|end| from < end)
    }
}

/// Why a requested range cannot be compacted further at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickBlocked {
    /// A plan in progress has to end first.
    InProgress,
    /// Tables cannot be read, and everything possible without them is done.
    Damage,
}

/// The smallest key after `key`.
pub(super) fn key_after(key: &[u8]) -> Slice {
    Slice::copy_from(&[key, &[0]].concat())
}
