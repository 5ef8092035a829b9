//! Space: how much of a tree is older versions, and which merges give most back for what they rewrite.
//!
//! The cost model. With live data of `S` bytes, level 0 batches of `B` bytes (in a last level of `g` guards, pieces of `p = B / g`), and up to `T` runs in
//! a guard, a byte that is flushed costs
//!
//! ```text
//!   log 1 + flush 1 + into the last level d + merging in place (S / g) / (p * (r - 1))
//! ```
//!
//! where `d <= 1` is what is left of a batch after its own duplicates are gone, and `r <= T` the runs at which a guard is merged. A merge gives back
//! only what is older versions. So a guard is merged when it has `T` runs, because reads look through them all; and before that
//! only when the tree as a whole has outgrown `space_target` times its live data, those guards first that give back most of
//! what they have. Where nothing is overwritten, nothing is merged for space. All of this is while writers are at work; what else is worth merging when they
//! pause is in `idle_compaction.rs`. Docs: `docs/adr/0008-cost-model.md`.

use crate::pick::{Candidate, Picker, Reason};
use crate::sketch::Sketch;
use crate::version::{Guard, Version};
use base::Seq;

/// A guard of which so small a share is older versions is not merged for space: it would rewrite four times what it gives back.
const MIN_SHARE: f64 = 0.2;

/// What is taken for older versions of what lies above the last level: there is no knowing before it gets there.
const SHARE_ABOVE: f64 = 0.5;

impl Guard {
    /// About how many bytes a merge of the guard would give back.
    pub(crate) fn stale_bytes(&self) -> u64 {
        *self.stale_bytes.get_or_init(|| {
            if self.runs < 2 {
                return 0;
            }
            let sketches: Option<Vec<&Sketch>> = self.tables.iter().map(|t| t.sketch()).collect();
            // Tables that say nothing of their keys, because they are small or old, may all be alive.
            let Some(sketches) = sketches else { return 0 };
            let entries: u64 = self.tables.iter().map(|t| t.meta.entries).sum();
            let live = Sketch::distinct(sketches.into_iter()) / entries.max(1) as f64;
            (self.bytes() as f64 * (1.0 - live).clamp(0.0, 1.0)) as u64
        })
    }

    /// Bytes of tables that are newer than `seq` as a whole.
    fn bytes_after(&self, seq: Seq) -> u64 {
        self.tables.iter().filter(|t| t.meta.min_seq > seq).map(|t| t.meta.file_size).sum()
    }
}

/// About how many times the bytes of its newest versions a tree has.
pub(crate) fn amplification(version: &Version) -> f64 {
    let last = version.level(version.last_level());
    let stale: u64 = last.guards.iter().map(|g| g.stale_bytes()).sum();
    let total = version.bytes();
    let above = (total - last.bytes()).min(last.bytes());
    let live = (total - stale) as f64 - above as f64 * SHARE_ABOVE;
    if total == 0 { 1.0 } else { total as f64 / live.max(1.0) }
}

impl Picker<'_> {
    /// Guards of the last level whose merge gives back what the tree has too much.
    pub(crate) fn candidates_for_space(&self, candidates: &mut Vec<Candidate>) {
        if amplification(self.version) <= self.options.space_target {
            return;
        }
        let last = self.version.last_level();
        for (guard, g) in self.version.level(last).guards.iter().enumerate() {
            let share = g.stale_bytes() as f64 / g.bytes().max(1) as f64;
            // Of two versions that a snapshot lies between, a merge gives back neither: what came out of one since the snapshot may be full of
            // such, and then it is for newer tables to be worth another.
            let parted = |seq| g.tables.iter().any(|t| t.meta.min_seq <= seq && seq < t.meta.max_seq);
            let in_vain =
                |seq| parted(seq) && g.bytes_after(seq) as f64 / (g.bytes().max(1) as f64) < MIN_SHARE;
            if share >= MIN_SHARE && !self.oldest_snapshot.is_some_and(in_vain) {
                candidates.push(Candidate { reason: Reason::Space, level: last, guard, score: share });
            }
        }
    }
}
