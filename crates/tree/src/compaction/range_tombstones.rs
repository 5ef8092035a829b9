//! Compactions because of range tombstones: tables that they hide as a whole are removed unread, and tables with many hidden
//! entries are merged. Range tombstones with times, which are those of keyspaces with history, remove no table unread.
//! `version/range_tombstones.rs` has the design.

use super::picker::Picker;
use super::plan::{Plan, Reason, key_after};
use crate::version::{Guard, LiveTable, key_bounds};
use base::{MAX_SEQ, Slice};
use std::sync::Arc;

/// A table with this many range tombstones over parts of it is due to be merged.
const MAX_UNFILTERED: u64 = 64;

/// Whether a merge of this guard of the last level would drop tombstones, or entries because of range tombstones, as far as can be told
/// without reading.
pub(super) fn would_drop_entries(picker: &Picker<'_>, guard: &Guard) -> bool {
    picker.can_drop_tombstones(guard)
        || !picker.version.range_tombstones.is_empty()
            && guard.tables.iter().any(|t| unfiltered(picker, t).0 > 0)
}

/// Whether that is worth a compaction. A range tombstone over a table's first or last key most likely covers more than this table,
/// so many of its entries. Of those over the middle only their number is known.
pub(super) fn guard_is_due(picker: &Picker<'_>, guard: &Guard) -> bool {
    let percent = u64::from(picker.options.tombstone_percent);
    !picker.version.range_tombstones.is_empty()
        && percent > 0
        && guard.tables.iter().any(|t| {
            let (count, at_edge) = unfiltered(picker, t);
            at_edge || count >= MAX_UNFILTERED || (count > 0 && count * 100 >= t.meta.entries * percent)
        })
}

/// The number of range tombstones over a table that it is not filtered by, and could be; and whether one lies over its first or
/// last key.
fn unfiltered(picker: &Picker<'_>, table: &LiveTable) -> (u64, bool) {
    let (meta, upto) = (&table.meta, picker.oldest_snapshot.unwrap_or(MAX_SEQ).min(picker.requested_seq));
    let filtered_seq = meta.cleared_seq.max(meta.min_seq);
    let (mut count, mut at_edge) = (0, false);
    if picker.version.range_tombstones.max_seq() <= filtered_seq {
        return (count, at_edge);
    }
    let mut key = &meta.smallest[..];
    loop {
        let fragment = picker.version.range_tombstones.at(key, upto);
        let is_last = fragment.to.is_none_or(|to| to > &meta.largest[..]);
        if fragment.seq > filtered_seq {
            count += 1;
            at_edge |= is_last || key == &meta.smallest[..];
        }
        match fragment.to {
            Some(to) if !is_last && count < MAX_UNFILTERED => key = to,
            _ => return (count, at_edge),
        }
    }
}

/// A plan for the tables whose entries range tombstones hide from all readers.
pub(super) fn hidden_tables(picker: &Picker<'_>) -> Option<Plan> {
    let range_tombstones = &picker.version.range_tombstones;
    // Where there is history, what they hide is read and evicted.
    if range_tombstones.is_empty() || range_tombstones.has_times() {
        return None;
    }
    let newest = range_tombstones.max_seq();
    let oldest_reader = picker.oldest_snapshot.unwrap_or(MAX_SEQ);
    let hidden = |t: &LiveTable| {
        let meta = &t.meta;
        meta.max_seq < newest
            && !picker.busy.contains(&meta.number)
            && range_tombstones.covers(&meta.smallest, &meta.largest, meta.max_seq, oldest_reader)
    };
    let tables = picker.version.tables().filter(|(_, t)| hidden(t));
    let inputs: Vec<(usize, Arc<LiveTable>)> = tables.map(|(level, t)| (level, t.clone())).collect();
    let level = inputs.first()?.0;
    // The plan writes nothing to this range, but may remove guards that become empty.
    let (smallest, largest) = key_bounds(inputs.iter().map(|(_, t)| t));
    let (from, to) = (Slice::copy_from(smallest), Some(key_after(largest)));
    Some(Plan { source: level, target: level, from, to, inputs, ..Plan::empty(Reason::RangeTombstones) })
}
