//! Space amplification: how much of a tree is older versions, and which merges free most space for the bytes they
//! rewrite.
//!
//! The cost model: with `S` bytes of live data, level 0 batches of `B` bytes (in a last level of `g` guards, pieces of
//! `p = B / g` bytes), and up to `T` runs in a guard, a flushed byte costs
//!
//! ```text
//!   log 1 + flush 1 + into the last level d + merging in place (S / g) / (p * (r - 1))
//! ```
//!
//! where `d <= 1` is the part of a batch that is left without its own duplicates, and `r <= T` is the number of runs at
//! which a guard is merged. A merge frees only the space of older versions. So a guard is merged when it has `T` runs,
//! because reads search all of them. Before that it is merged only if the tree as a whole exceeds `space_target` times
//! its live data; then the guards with the largest share of older versions come first. Without overwrites, no guard is
//! merged for space. These rules hold while writes continue; `idle.rs` has the rules for pauses. See
//! `docs/adr/0008-cost-model.md`.
//!
//! Values outside of the tree count with the entries that refer to them: only a merge that meets a newer version shows that a value is
//! dead. The files of values have known dead ones beside that, so the tree gets a part of what `space_target` allows. A merge rewrites
//! references and frees values, so it pays with a smaller share of older versions.

use super::picker::{Candidate, Picker};
use super::plan::Reason;
use crate::TreeOptions;
use crate::version::{Guard, LiveTable, Sketch, ValueSum, Version};
use base::Seq;
use std::sync::Arc;

/// A guard with a smaller share of older versions is not merged for space: the merge would rewrite at least four times
/// the bytes it frees.
const MIN_STALE_SHARE: f64 = 0.2;

/// The same where values are outside of the tree and the merge frees more than it rewrites. The share is an estimate, and a merge in vain
/// rewrites the guard all the same.
const MIN_STALE_SHARE_OF_VALUES: f64 = 0.1;

/// The assumed share of older versions above the last level, where it is not known: what is there may overwrite as much below it.
const STALE_SHARE_ABOVE: f64 = 0.5;

/// Where a merge rewrites at most this part of what it may free, everything that may be old is taken for old: the merge costs little, and
/// only the merge tells.
const CHEAP: f64 = 0.1;

impl Guard {
    /// The approximate number of its keys for each of its entries.
    fn key_share(&self) -> f64 {
        *self.key_share.get_or_init(|| {
            let sketches: Option<Vec<&Sketch>> = self.tables.iter().map(|t| t.sketch()).collect();
            // Without a sketch (a small table, or one of an older Cairn), each entry may be the only one of its key.
            let Some(sketches) = sketches else { return 1.0 };
            (Sketch::distinct(sketches.into_iter()) / self.entries().max(1) as f64).clamp(0.0, 1.0)
        })
    }

    /// The approximate share of its entries that a merge of the guard would drop, in a version that is ordered.
    fn stale_share(&self) -> f64 {
        if self.runs < 2 { 0.0 } else { 1.0 - self.key_share() }
    }

    fn entries(&self) -> u64 {
        self.tables.iter().map(|t| t.meta.entries).sum()
    }

    /// Bytes of its tables and of the values to which they refer.
    fn bytes_with_values(&self) -> f64 {
        self.bytes() as f64 + self.values.bytes as f64
    }

    /// The share of older versions from which on a merge for space pays.
    fn min_stale_share(&self) -> f64 {
        let part_in_tables = self.bytes() as f64 / self.bytes_with_values().max(1.0);
        (MIN_STALE_SHARE * part_in_tables).max(MIN_STALE_SHARE_OF_VALUES)
    }

    /// Bytes of the tables with only entries newer than `seq`.
    fn bytes_after(&self, seq: Seq) -> u64 {
        self.tables.iter().filter(|t| t.meta.min_seq > seq).map(|t| t.meta.file_size).sum()
    }
}

/// How much of a tree compactions could free, in bytes: an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Space {
    /// Bytes of tables, and of the values to which they refer, that would remain.
    pub live: u64,
    /// Bytes that would be freed by merges that pay. In tables that a reader sees in part or whole nothing would.
    pub reclaimable: u64,
    /// `live` times `space_target`.
    pub target: u64,
}

impl Space {
    pub(crate) fn of(picker: &Picker<'_>) -> Space {
        let sizes = Sizes::of(picker.version, &above(picker.version));
        let mut candidates = Vec::new();
        in_last_level(picker, &mut candidates);
        let last = picker.version.level(picker.version.last_level());
        let guards = candidates.iter().map(|candidate| &last.guards[candidate.guard]);
        let in_last: f64 = guards
            .filter(|guard| !guard.tables.iter().any(|table| table.damage.is_unreadable()))
            .map(|guard| {
                guard.stale_share().min(picker.share_for_all(&guard.tables)) * guard.bytes_with_values()
            })
            .sum();
        let tables_above = picker.version.tables().filter(|(n, _)| *n < picker.version.last_level());
        let above = sizes.stale_above * picker.share_for_all(tables_above.map(|(_, table)| table));
        let all = sizes.tables + sizes.values;
        let reclaimable = (in_last + above).min(all);
        let target = (all - reclaimable) * picker.options.space_target;
        Space { live: (all - reclaimable) as u64, reclaimable: reclaimable as u64, target: target as u64 }
    }
}

impl Picker<'_> {
    /// The share of the bytes of these tables whose entries are all newer than what the oldest reader sees.
    fn share_for_all<'t>(&self, tables: impl IntoIterator<Item = &'t Arc<LiveTable>>) -> f64 {
        let Some(oldest) = self.oldest_snapshot else { return 1.0 };
        let (mut all, mut newer) = (0, 0);
        for LiveTable { meta, .. } in tables.into_iter().map(|table| &**table) {
            all += meta.file_size;
            newer += if meta.min_seq > oldest { meta.file_size } else { 0 };
        }
        newer as f64 / all.max(1) as f64
    }
}

/// The sizes of a tree, in bytes.
struct Sizes {
    tables: f64,
    /// Values outside of the tree, dead ones included.
    values: f64,
    /// Older versions, with their values.
    stale: f64,
    /// Those of them that are overwritten by what is above the last level.
    stale_above: f64,
}

impl Sizes {
    fn of(version: &Version, above: &[Above]) -> Sizes {
        let last = version.level(version.last_level());
        let of_level0 = version.level0.iter().map(|table| table.values);
        let values = of_level0.chain(version.guards().map(|(_, _, guard)| guard.values)).sum::<ValueSum>();
        let sizes = Sizes {
            tables: version.bytes() as f64,
            values: values.bytes as f64,
            stale: 0.0,
            stale_above: 0.0,
        };
        if version.unordered {
            // There all versions are wanted.
            return sizes;
        }
        let in_last: f64 = last.guards.iter().map(|g| g.stale_share() * g.bytes_with_values()).sum();
        let tables_above = (version.bytes() - last.bytes()).min(last.bytes()) as f64;
        let values_above: f64 = above.iter().map(|above| above.stale).sum();
        let stale_above = tables_above * STALE_SHARE_ABOVE + values_above;
        Sizes { stale: in_last + stale_above, stale_above, ..sizes }
    }

    /// The approximate size as a multiple of the size of the newest versions.
    fn amplification(&self) -> f64 {
        let all = self.tables + self.values;
        if all == 0.0 { 1.0 } else { all / (all - self.stale).max(1.0) }
    }

    /// The amplification that the tree may have. The files of values also have values that are known to be dead and not collected yet: where
    /// all bytes are in values, each of the two may have the root of `space_target`.
    fn target(&self, options: &TreeOptions) -> f64 {
        let outside = self.values / (self.tables + self.values).max(1.0);
        options.space_target.powf(1.0 - outside / 2.0)
    }
}

/// A guard above the last level that has values outside of the tree in it or below it.
struct Above {
    level: usize,
    guard: usize,
    /// Bytes of tables that its way to the last level rewrites, at most.
    rewritten: f64,
    /// Bytes of older versions below it, with their values, about.
    stale: f64,
}

/// The guards above the last level, where values are concerned.
fn above(version: &Version) -> Vec<Above> {
    if version.guards().all(|(_, _, g)| g.values.bytes == 0) {
        return Vec::new();
    }
    let with_tables = version.guards().filter(|(n, _, g)| *n < version.last_level() && !g.tables.is_empty());
    let above = with_tables.filter_map(|(level, guard, g)| {
        let end = version.level(level).end_of(guard).map(|key| &key[..]);
        let (mut tables, mut values, mut entries) = (0, 0, 0);
        for level in (level + 1..=version.last_level()).map(|n| version.level(n)) {
            for below in &level.guards[level.overlapping(&g.key, end)] {
                tables += below.bytes();
                values += below.values.bytes;
                entries += below.entries();
            }
        }
        if g.values.bytes == 0 && values == 0 {
            return None;
        }
        // Each entry may overwrite or delete one below, of whatever size.
        let overwrites = (g.entries() as f64 / entries.max(1) as f64).min(1.0);
        let may_be_old = overwrites * (tables + values) as f64;
        let rewritten = (g.bytes() + tables) as f64;
        let share = if rewritten <= CHEAP * may_be_old { 1.0 } else { STALE_SHARE_ABOVE };
        Some(Above { level, guard, rewritten, stale: share * may_be_old })
    });
    above.collect()
}

/// The guards to merge if the tree exceeds `space_target`: those of which a merge frees enough for what it rewrites. Above the last level
/// only where there are values outside of the tree: otherwise tables go down before they have many bytes. But a few small tables may refer to
/// many values, or overwrite or delete many.
pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    let above = above(picker.version);
    let sizes = Sizes::of(picker.version, &above);
    if sizes.amplification() <= sizes.target(picker.options) {
        return;
    }
    in_last_level(picker, candidates);
    for Above { level, guard, rewritten, stale } in above {
        let score = stale / rewritten;
        if score >= MIN_STALE_SHARE {
            candidates.push(Candidate { reason: Reason::Space, level, guard, score });
        }
    }
}

fn in_last_level(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    if picker.version.unordered {
        return;
    }
    let last = picker.version.last_level();
    for (guard, g) in picker.version.level(last).guards.iter().enumerate() {
        let (share, min_share) = (g.stale_share(), g.min_stale_share());
        // A merge keeps two versions of a key if the oldest snapshot lies between them. A table with entries on
        // both sides of the snapshot may be full of such pairs. Only newer tables can then make another merge
        // worthwhile.
        let parted = |seq| g.tables.iter().any(|t| t.meta.min_seq <= seq && seq < t.meta.max_seq);
        let in_vain = |seq| parted(seq) && g.bytes_after(seq) as f64 / (g.bytes().max(1) as f64) < min_share;
        if share >= min_share && !picker.oldest_snapshot.is_some_and(in_vain) {
            let score = share * g.bytes_with_values() / g.bytes().max(1) as f64;
            candidates.push(Candidate { reason: Reason::Space, level: last, guard, score });
        }
    }
}

/// The estimated bytes of older versions in a tree, with their values: those that compactions have not met yet, and those that they keep for a
/// reader.
pub fn stale_bytes(version: &Version) -> u64 {
    Sizes::of(version, &above(version)).stale as u64
}

/// The estimated bytes of versions in an unordered tree, with their values, that follow more than `kept` of the same key. Rather too low: keys with fewer
/// versions count as if they had so many.
pub fn bytes_beyond(version: &Version, kept: u64) -> u64 {
    let of_guard =
        |guard: &Guard| (1.0 - kept as f64 * guard.key_share()).max(0.0) * guard.bytes_with_values();
    version.guards().map(|(_, _, guard)| of_guard(guard)).sum::<f64>() as u64
}

#[cfg(test)]
pub(super) fn amplification(version: &Version) -> f64 {
    Sizes::of(version, &above(version)).amplification()
}
