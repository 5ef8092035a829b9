//! Adaptive guards: guard keys taken from the data during compaction (the option `guard_bytes`).
//!
//! A hash of the keys spreads guards evenly over *keys* and needs their number in advance. Adaptive guards follow the
//! *bytes*, for any keys and any number of them:
//!
//! - **Cut.** A merge into the last level cuts its output between two keys where a piece has reached `guard_bytes`.
//! - **Added.** A guard of the last level is divided at a key that no table lies across if both sides have enough
//!   bytes: at a cut, or between tables that were moved there. This rewrites nothing.
//! - **Levels above.** A level above the last takes its guards from the level below: one for as many bytes there as a
//!   full guard brings down. So the guards of a level are guards of all deeper levels.
//! - **Joined.** A merge of a guard of the last level includes small neighbours and removes the guards between them.
//!   Two neighbours that have both become very small are merged for this purpose alone.
//! - **Removed.** Guards without tables are removed as with every policy (ADR 3).
//!
//! Why joining keeps the order: tables of two guards share no key, so every pair of tables in the joined stack is in
//! order, whatever the sequence numbers. The *output* of a merge of both may not be: its key range and its sequence
//! numbers span the history of both guards. `compaction/seqno_order.rs` compares each plan with all tables outside it and cuts the
//! output where needed. To make such cuts rare, guards are joined only where the levels above have no guard between
//! them: then all data of both has always moved down together, as in one guard.
//!
//! A guard is divided at twice the size below which two guards are joined, so that no guard is divided and joined in
//! turn.

use crate::TreeOptions;
use crate::version::{Guard, LiveTable, Version};
use base::Slice;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// A guard of the last level with this many times `guard_bytes` is merged before it has the maximal number of runs,
/// which bounds the size of one job.
const MAX_GUARD_FACTOR: u64 = 16;

/// A merge for the size of a guard needs this many runs: with fewer it would rewrite much and gain little.
const MIN_RUNS_TO_SPLIT: usize = 4;

/// Whether a guard of the last level is too large.
pub(crate) fn is_too_large(guard: &Guard, guard_bytes: u64) -> bool {
    guard_bytes > 0 && guard.runs >= MIN_RUNS_TO_SPLIT && guard.bytes() >= MAX_GUARD_FACTOR * guard_bytes
}

/// The keys at which a guard can be divided: no table lies across them, and each part has at least half of
/// `guard_bytes`.
pub(crate) fn split_keys(guard: &Guard, guard_bytes: u64) -> Vec<Slice> {
    let min_bytes = guard_bytes / 2;
    let mut left = guard.bytes();
    if guard_bytes == 0 || guard.tables.len() < 2 || left < 2 * min_bytes {
        return Vec::new();
    }
    let mut tables: Vec<&Arc<LiveTable>> = guard.tables.iter().collect();
    tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let (mut keys, mut bytes) = (Vec::new(), 0);
    let mut reached = &tables[0].meta.largest;
    for table in tables {
        if table.meta.smallest > *reached && bytes >= min_bytes && left >= min_bytes {
            keys.push(Slice::copy_from(&table.meta.smallest));
            bytes = 0;
        }
        reached = reached.max(&table.meta.largest);
        bytes += table.meta.file_size;
        left -= table.meta.file_size;
    }
    keys
}

/// The rules of adaptive guards, for a version.
#[derive(Clone, Copy)]
pub(crate) struct AdaptiveGuards<'a> {
    pub version: &'a Version,
    pub options: &'a TreeOptions,
}

impl AdaptiveGuards<'_> {
    /// The size in bytes at which a merge of `input_bytes` into `target` cuts its output, besides the cuts of the plan; 0 for no such
    /// cuts.
    pub(crate) fn piece_bytes(&self, target: usize, input_bytes: u64, has_cuts: bool) -> u64 {
        let wanted = self.options.guard_bytes;
        if wanted == 0 || target != self.version.last_level() {
            return 0;
        }
        match has_cuts {
            true => wanted,
            // Equal parts.
            false => input_bytes.div_ceil(((input_bytes + wanted / 2) / wanted).max(1)).max(wanted),
        }
    }

    /// Guards of the next level at which a merge of `input_bytes` into `target`, a level above the last, cuts its output, so that they
    /// become guards of the target: one for as many bytes below as a full guard brings down. `consumed` are the numbers of the inputs.
    pub(crate) fn cuts_above(
        &self,
        target: usize,
        (from, to): (&[u8], Option<&[u8]>),
        input_bytes: u64,
        consumed: &HashSet<u64>,
    ) -> Vec<Slice> {
        let mut cuts = Vec::new();
        if self.options.guard_bytes == 0 || target == self.version.last_level() {
            return cuts;
        }
        let (level, below) = (self.version.level(target), self.version.level(target + 1));
        let wanted = self.options.guard_bytes * self.options.max_tables_per_guard.max(2) as u64;
        let max_cuts = input_bytes / self.options.min_piece_bytes.max(1);
        let mut bytes = 0;
        for guard in &below.guards[below.overlapping(from, to)] {
            let key = &guard.key;
            if level.has_guard(key) {
                bytes = 0;
            } else if bytes >= wanted
                && &key[..] > from
                && (cuts.len() as u64) < max_cuts
                && !level.straddled_without(key, consumed)
            {
                cuts.push(key.clone());
                bytes = 0;
            }
            bytes += guard.bytes();
        }
        cuts
    }

    /// Whether a guard of the last level takes part in a merge from level 0 that brings it `added` bytes: these are more than the guard
    /// has, and the guard would be too large afterwards. Dividing it is cheap at this moment.
    pub(crate) fn is_outgrown(&self, guard: &Guard, added: u64) -> bool {
        let wanted = self.options.guard_bytes;
        wanted > 0 && 2 * guard.bytes() <= added && guard.bytes() + added > 2 * wanted
    }

    /// The guards of the last level around `index` that are merged together with it, because all of them are small.
    pub(crate) fn small_neighbours(&self, index: usize, busy: &HashSet<u64>) -> Range<usize> {
        let guards = self.last_guards();
        let max_bytes = self.options.guard_bytes / 2;
        let mut range = index..index + 1;
        let mut bytes = guards[index].bytes();
        let free =
            |g: &Guard| g.tables.iter().all(|t| !busy.contains(&t.meta.number) && !t.damage.is_unreadable());
        while let Some(next) = guards.get(range.end)
            && bytes + next.bytes() < max_bytes
            && free(next)
            && self.is_removable(&next.key)
        {
            bytes += next.bytes();
            range.end += 1;
        }
        while range.start > 0
            && bytes + guards[range.start - 1].bytes() < max_bytes
            && free(&guards[range.start - 1])
            && self.is_removable(&guards[range.start].key)
        {
            range.start -= 1;
            bytes += guards[range.start].bytes();
        }
        range
    }

    /// Whether a guard of the last level and the next one are both so small that they should be merged.
    pub(crate) fn should_join_next(&self, index: usize) -> bool {
        let guards = self.last_guards();
        let small = |g: &Guard| !g.tables.is_empty() && g.bytes() < self.options.guard_bytes / 8;
        small(&guards[index])
            && guards.get(index + 1).is_some_and(|next| small(next) && self.is_removable(&next.key))
    }

    fn last_guards(&self) -> &[Arc<Guard>] {
        &self.version.level(self.version.last_level()).guards
    }

    /// Whether a guard of the last level can be removed: no level above has it.
    fn is_removable(&self, key: &[u8]) -> bool {
        (1..self.version.last_level()).all(|n| !self.version.level(n).has_guard(key))
    }
}
