//! Jobs of a primary tree whose dropped entries become tables of the historical one.

use base::{RangeSet, Result, Time};
use history::{Evictions, RetentionSink};
use tree::{EvictedCuts, EvictedTables, EvictionSink, JobContext, JobOutput};

/// Runs a compaction of a primary tree. What it drops is written to tables for the historical tree, of which `historical` is the context,
/// divided at `cuts`, unless it has expired already. `ranges`: the range tombstones that may hide entries of the job, all that are visible,
/// and a time that is not before theirs. Returns what the job has written, and those tables. All are synced on return, but not the directory.
///
/// On an error of the job the tables of the historical tree are removed. If these cannot be written, `discard` is called with the output of
/// the job.
pub(crate) fn with_evictions(
    historical: &JobContext<'_>,
    (ranges, recent, now): (&RangeSet, &RangeSet, Time),
    cuts: EvictedCuts,
    mut retention: RetentionSink,
    job: impl FnOnce(&mut dyn EvictionSink) -> Result<JobOutput>,
    discard: impl FnOnce(&JobOutput),
) -> Result<(JobOutput, JobOutput)> {
    let mut tables = EvictedTables::new(historical, cuts);
    let mut evictions = Evictions::new(ranges, recent, now, |key, trailer, stored| {
        match retention.see(key, trailer, stored, true)? {
            true => tables.add(key, trailer, stored),
            false => Ok(()),
        }
    });
    match job(&mut evictions) {
        Ok(done) => match tables.finish() {
            Ok(evicted) => Ok((done, evicted)),
            Err(e) => {
                discard(&done);
                Err(e)
            }
        },
        Err(e) => {
            tables.abandon();
            Err(e)
        }
    }
}
