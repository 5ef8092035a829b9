//! What is compacted while nobody writes.
//!
//! While writers are at work, a byte is rewritten as seldom as space and the number of runs allow (`space_amp.rs`). That leaves several runs in
//! a guard and some tables in level 0, which every read has to look through, and older versions, which take room in the page cache. When the writers
//! pause, processor and disk have nothing better to do than to mend that:
//!
//! - Level 0 goes down where its pieces still have a useful size.
//! - A guard of the last level becomes one run when what lies beside its oldest run has reached `space_target - 1` of that run.
//!
//! The second rule is what bounds the cost, however the pauses fall: between two merges of a guard the share of `space_target - 1` of it was
//! written, so a byte costs at most 1 + 1 / (`space_target` - 1) more: 3 at the default of 1.5. A larger `space_target` rests more and rewrites less; none
//! of this begins while writes come.

use crate::pick::{Candidate, Picker, Reason};
use crate::version::{Guard, TableFile};
use std::sync::Arc;

impl Guard {
    /// Bytes of the oldest run: the lowest tables of the stack, as far as no two of them overlap.
    fn oldest_run(&self) -> u64 {
        let mut run: Vec<&Arc<TableFile>> = Vec::new();
        for table in self.tables.iter().rev() {
            if !run.iter().any(|t| t.overlaps(table)) {
                run.push(table);
            }
        }
        run.iter().map(|t| t.meta.file_size).sum()
    }
}

impl Picker<'_> {
    /// Whether level 0 may go down before it has enough tables: in a leveled tree it takes all along that it meets, and guards by a hash follow the
    /// paper, which has no such rule.
    pub(crate) fn allows_early_level0(&self) -> bool {
        self.options.guard_bytes > 0 && self.options.max_tables_per_guard > 1
    }

    /// Whether level 0 should go down because there is time for it.
    pub(crate) fn level0_rests(&self) -> bool {
        let version = self.version;
        if !self.at_rest || version.level0.is_empty() || !self.allows_early_level0() {
            return false;
        }
        let bytes: u64 = version.level0.iter().map(|t| t.meta.file_size).sum();
        let guards = version.level(version.last_level()).guards.len() as u64;
        bytes >= guards * self.options.min_piece_bytes
    }

    /// Guards of the last level that should become one run because there is time for it.
    pub(crate) fn candidates_when_idle(&self, candidates: &mut Vec<Candidate>) {
        if !self.at_rest {
            return;
        }
        let last = self.version.last_level();
        for (guard, g) in self.version.level(last).guards.iter().enumerate().filter(|(_, g)| g.runs > 1) {
            let oldest = g.oldest_run();
            let beside = (g.bytes() - oldest) as f64 / oldest.max(1) as f64;
            if beside >= self.options.space_target - 1.0 {
                candidates.push(Candidate { reason: Reason::Rest, level: last, guard, score: beside });
            }
        }
    }
}
