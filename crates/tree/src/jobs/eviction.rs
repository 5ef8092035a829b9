//! What a compaction drops is not lost where there is history: an [`EvictionSink`] sees all entries, and [`EvictedTables`] writes what it
//! makes of them as tables of another tree. There, another sink drops versions that have expired.

use super::job::{JobContext, JobOutput};
use super::output::Output;
use crate::TreeOptions;
use crate::version::Version;
use base::{Result, Slice, Trailer};

/// Sees the entries of a compaction, and may drop more of them.
pub trait EvictionSink {
    /// An entry of the merge, in order: keys ascending, and the versions of a key from new to old. `kept`: it is written to a table of the
    /// job. Otherwise no reader sees it any more. Returns whether it is kept after all; one that is not kept stays so.
    ///
    /// An error ends the job.
    fn see(&mut self, key: &[u8], trailer: Trailer, value: &[u8], kept: bool) -> Result<bool>;

    /// Whether an entry that has expired for all readers, and is all that is left of its key in the tree, is dropped as such. Otherwise it is
    /// an entry like others.
    fn takes_expired(&self, key: &[u8], trailer: Trailer) -> bool;

    /// Sees such an entry, in its place among the others.
    fn take_expired(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()>;
}

/// Where [`EvictedTables`] divides its tables: at the guards of the last level, if the pieces are large enough. A smaller piece goes on over
/// the next guard.
#[derive(Debug)]
pub struct EvictedCuts {
    /// Ascending.
    pub(super) keys: Vec<Slice>,
    /// A table is not cut at one of the keys before it has so many bytes.
    pub(super) min_bytes: u64,
    /// It gets no more entries after so many bytes.
    pub(super) max_bytes: u64,
}

impl EvictedCuts {
    /// For entries with keys in `[from, to)` that go to a tree with this version; `to` of `None` is the end of all keys.
    pub fn new(version: &Version, options: &TreeOptions, from: &[u8], to: Option<&[u8]>) -> EvictedCuts {
        let last = version.level(version.last_level());
        let guards = last.overlapping(from, to).skip(1);
        EvictedCuts {
            keys: guards.map(|index| last.guards[index].key.clone()).collect(),
            min_bytes: options.min_piece_bytes,
            max_bytes: options.guard_bytes,
        }
    }
}

/// Writes entries as tables of an unordered tree, beside a job of another tree.
pub struct EvictedTables<'a> {
    output: Output<'a>,
    cuts: EvictedCuts,
    /// Those of the cuts that are behind.
    passed: usize,
}

impl<'a> EvictedTables<'a> {
    /// `context`: that of the tree to which the tables go.
    pub fn new(context: &'a JobContext<'a>, cuts: EvictedCuts) -> EvictedTables<'a> {
        EvictedTables { output: Output::new(context, JobOutput::default()), cuts, passed: 0 }
    }

    /// Adds an entry, which must come after the last one.
    pub fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let len = self.output.len();
        let ahead = &self.cuts.keys[self.passed..];
        let passed = ahead.iter().take_while(|cut| &cut[..] <= key).count();
        self.passed += passed;
        let ends = passed > 0 && len >= self.cuts.min_bytes || len >= self.cuts.max_bytes;
        if ends || self.output.has_many_segments() {
            self.output.finish()?;
        }
        let hash = self.output.context.options.table.filter_hash(key);
        self.output.add(false, key, hash, trailer, value)?;
        self.output.tick()
    }

    /// The tables, which are durable; their directory entries are not. On an error the files are removed.
    pub fn finish(mut self) -> Result<JobOutput> {
        match self.output.finish() {
            Ok(()) => {
                self.output.call_rate_limiter();
                Ok(self.output.done)
            }
            Err(e) => {
                self.output.abandon();
                Err(e)
            }
        }
    }

    /// Removes the files, because the job has failed.
    pub fn abandon(mut self) {
        self.output.abandon();
    }
}
