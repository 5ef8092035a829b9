//! What a flush or compaction drops is not lost where there is history: an [`EvictionSink`] sees all entries, and [`EvictedTables`] writes
//! what it makes of them as tables of another tree.

use super::job::{JobContext, JobOutput};
use super::output::Output;
use base::{Result, Trailer, hash};

/// Sees the entries of a flush or compaction.
pub trait EvictionSink {
    /// An entry of the merge, in order: keys ascending, and the versions of a key from new to old. `kept`: it is written to a table of the
    /// job. Otherwise no reader sees it any more.
    ///
    /// An error ends the job.
    fn see(&mut self, key: &[u8], trailer: Trailer, value: &[u8], kept: bool) -> Result<()>;
}

/// Writes entries as tables of level 0 of a tree, beside a job of another tree.
pub struct EvictedTables<'a> {
    output: Output<'a>,
    /// A table gets no more entries after so many bytes.
    piece_bytes: u64,
}

impl<'a> EvictedTables<'a> {
    /// `context`: that of the tree to which the tables go.
    pub fn new(context: &'a JobContext<'a>, piece_bytes: u64) -> EvictedTables<'a> {
        EvictedTables { output: Output::new(context, JobOutput::default()), piece_bytes }
    }

    /// Adds an entry, which must come after the last one.
    pub fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if self.output.len() >= self.piece_bytes || self.output.has_many_segments() {
            self.output.finish()?;
        }
        self.output.add(false, key, hash(key), trailer, value)?;
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
