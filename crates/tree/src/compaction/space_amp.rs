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

use super::picker::{Candidate, Picker};
use super::plan::Reason;
use crate::version::{Guard, Sketch, Version};
use base::Seq;

/// A guard with a smaller share of older versions is not merged for space: the merge would rewrite at least four times
/// the bytes it frees.
const MIN_STALE_SHARE: f64 = 0.2;

/// The assumed share of older versions above the last level, where it is not known.
const STALE_SHARE_ABOVE: f64 = 0.5;

impl Guard {
    /// The approximate number of bytes that a merge of the guard would free.
    fn stale_bytes(&self) -> u64 {
        *self.stale_bytes.get_or_init(|| {
            if self.runs < 2 {
                return 0;
            }
            let sketches: Option<Vec<&Sketch>> = self.tables.iter().map(|t| t.sketch()).collect();
            // Without a sketch (small tables, or tables of old versions), all entries may be live.
            let Some(sketches) = sketches else { return 0 };
            let entries: u64 = self.tables.iter().map(|t| t.meta.entries).sum();
            let live = Sketch::distinct(sketches.into_iter()) / entries.max(1) as f64;
            (self.bytes() as f64 * (1.0 - live).clamp(0.0, 1.0)) as u64
        })
    }

    /// Bytes of the tables with only entries newer than `seq`.
    fn bytes_after(&self, seq: Seq) -> u64 {
        self.tables.iter().filter(|t| t.meta.min_seq > seq).map(|t| t.meta.file_size).sum()
    }
}

/// The approximate size of a tree as a multiple of the size of its newest versions.
pub(super) fn amplification(version: &Version) -> f64 {
    let last = version.level(version.last_level());
    let stale: u64 = last.guards.iter().map(|g| g.stale_bytes()).sum();
    let total = version.bytes();
    let above = (total - last.bytes()).min(last.bytes());
    let live = (total - stale) as f64 - above as f64 * STALE_SHARE_ABOVE;
    if total == 0 { 1.0 } else { total as f64 / live.max(1.0) }
}

/// The guards of the last level to merge if the tree exceeds `space_target`.
pub(super) fn candidates(picker: &Picker<'_>, candidates: &mut Vec<Candidate>) {
    if amplification(picker.version) <= picker.options.space_target {
        return;
    }
    let last = picker.version.last_level();
    for (guard, g) in picker.version.level(last).guards.iter().enumerate() {
        let share = g.stale_bytes() as f64 / g.bytes().max(1) as f64;
        // A merge keeps two versions of a key if the oldest snapshot lies between them. A table with entries on
        // both sides of the snapshot may be full of such pairs. Only newer tables can then make another merge
        // worthwhile.
        let parted = |seq| g.tables.iter().any(|t| t.meta.min_seq <= seq && seq < t.meta.max_seq);
        let in_vain =
            |seq| parted(seq) && g.bytes_after(seq) as f64 / (g.bytes().max(1) as f64) < MIN_STALE_SHARE;
        if share >= MIN_STALE_SHARE && !picker.oldest_snapshot.is_some_and(in_vain) {
            candidates.push(Candidate { reason: Reason::Space, level: last, guard, score: share });
        }
    }
}
