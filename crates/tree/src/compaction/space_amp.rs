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
//! dead, and the files of values may have `value_garbage_percent` of known dead ones beside it. So the tree gets what is left of
//! `space_target`. A merge rewrites references and frees values, so it pays with a smaller share of older versions.

use super::picker::{Candidate, Picker};
use super::plan::Reason;
use crate::TreeOptions;
use crate::version::{Guard, Sketch, ValueSum, Version};
use base::Seq;
use std::sync::Arc;

/// A guard with a smaller share of older versions is not merged for space: the merge would rewrite at least four times
/// the bytes it frees.
const MIN_STALE_SHARE: f64 = 0.2;

/// The same where values are outside of the tree and the merge frees more than it rewrites. The share is an estimate, and a merge in vain
/// rewrites the guard all the same.
const MIN_STALE_SHARE_OF_VALUES: f64 = 0.1;

/// Guards above the last level are merged down for space if they refer to so many times the bytes that the merge rewrites.
const MIN_VALUES_ABOVE: f64 = 10.0;

/// The lowest target of a tree with values outside of it.
const MIN_TARGET: f64 = 1.05;

/// The assumed share of older versions above the last level, where it is not known.
const STALE_SHARE_ABOVE: f64 = 0.5;

impl Guard {
    /// The approximate share of its entries that a merge of the guard would drop.
    fn stale_share(&self) -> f64 {
        *self.stale_share.get_or_init(|| {
            if self.runs < 2 {
                return 0.0;
            }
            let sketches: Option<Vec<&Sketch>> = self.tables.iter().map(|t| t.sketch()).collect();
            // Without a sketch (small tables, or tables of old versions), all entries may be live.
            let Some(sketches) = sketches else { return 0.0 };
            let entries: u64 = self.tables.iter().map(|t| t.meta.entries).sum();
            (1.0 - Sketch::distinct(sketches.into_iter()) / entries.max(1) as f64).clamp(0.0, 1.0)
        })
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

/// The sizes of a tree, in bytes.
struct Sizes {
    tables: f64,
    /// Values outside of the tree, dead ones included.
    values: f64,
    /// The newest versions, with their values.
    live: f64,
}

impl Sizes {
    fn of(version: &Version) -> Sizes {
        let tables = version.bytes() as f64;
        let of_level0 = version.level0.iter().map(|table| table.values);
        let values =
            of_level0.chain(version.guards().map(|(_, _, guard)| guard.values)).sum::<ValueSum>().bytes
                as f64;
        let (mut last, mut stale) = (0.0, 0.0);
        for guard in &version.level(version.last_level()).guards {
            last += guard.bytes_with_values();
            stale += guard.stale_share() * guard.bytes_with_values();
        }
        let above = (tables + values - last).min(last);
        Sizes { tables, values, live: tables + values - stale - above * STALE_SHARE_ABOVE }
    }

    /// The approximate size as a multiple of the size of the newest versions.
    fn amplification(&self) -> f64 {
        let all = self.tables + self.values;
        if all == 0.0 { 1.0 } else { all / self.live.max(1.0) }
    }

    /// The amplification that the tree may have, so that it does not exceed `space_target` together with the dead values of which the files
    /// of values may be full.
    fn target(&self, options: &TreeOptions) -> f64 {
        let outside = self.values / (self.tables + self.values).max(1.0);
        let garbage = f64::from(options.value_garbage_percent) / 100.0;
        (options.space_target * (1.0 - garbage * outside)).max(MIN_TARGET)
    }
}

/// The guards to merge if the tree exceeds `space_target`.
pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    let sizes = Sizes::of(picker.version);
    let target = sizes.target(picker.options);
    if sizes.amplification() > target {
        in_last_level(picker, candidates);
    }
    above_last_level(picker, &sizes, target, candidates);
}

fn in_last_level(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    let last = picker.version.last_level();
    for (guard, g) in picker.version.level(last).guards.iter().enumerate() {
        let (share, min_share) = (g.stale_share(), g.min_stale_share());
        // A merge keeps two versions of a key if the oldest snapshot lies between them. A table with entries on
        // both sides of the snapshot may be full of such pairs. Only newer tables can then make another merge
        // worthwhile.
        let parted = |seq| g.tables.iter().any(|t| t.meta.min_seq <= seq && seq < t.meta.max_seq);
        let in_vain = |seq| parted(seq) && g.bytes_after(seq) as f64 / (g.bytes().max(1) as f64) < min_share;
        if share >= min_share && !picker.oldest_snapshot.is_some_and(in_vain) {
            candidates.push(Candidate { reason: Reason::Space, level: last, guard, score: share });
        }
    }
}

/// Guards above the last level whose values are many times what their merge into the next level rewrites, if these values together are more
/// than what the target leaves, should there be a newer or an older version of each. Tables there soon go down when most bytes are in them.
/// But a few small tables may refer to more bytes than the whole last level.
fn above_last_level(picker: &Picker<'_>, sizes: &Sizes, target: f64, candidates: &mut Vec<Candidate>) {
    let last = picker.version.last_level();
    let guards = picker.version.guards().filter(|(level, _, g)| *level < last && g.values.bytes > 0);
    let worth = |(level, guard, g): (usize, usize, &Arc<Guard>)| {
        let rewritten = g.bytes() + picker.bytes_below(level, guard);
        let score = g.values.bytes as f64 / rewritten.max(1) as f64;
        (score >= MIN_VALUES_ABOVE)
            .then_some((g.values.bytes, Candidate { reason: Reason::Space, level, guard, score }))
    };
    let (values, due): (Vec<u64>, Vec<Candidate>) = guards.filter_map(worth).unzip();
    let waiting = values.into_iter().sum::<u64>() as f64;
    if waiting > (target - 1.0) * (sizes.tables + sizes.values - waiting) {
        candidates.extend(due);
    }
}

#[cfg(test)]
pub(super) fn amplification(version: &Version) -> f64 {
    Sizes::of(version).amplification()
}
