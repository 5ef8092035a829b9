//! Executes flushes and compactions: merges memtables or tables and writes the result as new tables.
//!
//! The library calls [`flush`], [`merge_flushed`] and [`compact`] on its background threads, without locks. They drop entries that no
//! reader can see, and create, sync and on failure remove files. [`Tree`](crate::Tree) turns their results into edits.
//!
//! Imports `compaction` (for [`Plan`](crate::Plan) only), `read`, `guards` and `version`. What is absent: decisions what to compact,
//! and changes of a version or of the manifest.

mod compact;
#[cfg(test)]
mod compact_tests;
mod eviction;
mod filter;
mod filtered_cursor;
mod flush;
mod folded_cursor;
mod ingest;
mod inline_values;
mod job;
mod output;
mod retention;
mod write;

pub use compact::compact;
pub use eviction::{EvictedCuts, EvictedTables, EvictionSink};
pub use filter::{
    CompactionFilter, FilterDecision, FilterEntry, Filtered, JobFilter, StoredVersion, StoredVersions,
};
pub use flush::{flush, merge_flushed};
pub use folded_cursor::FoldedCursor;
pub use ingest::IngestWriter;
pub use job::{JobContext, JobOutput};
pub use write::Kept;
