//! The shared state of an open database: [`DbInner`], the keyspaces with their read states and trees, and the writer.
//!
//! Imports `types`, `wal` and `parts`. Absent: threads, I/O on tables and logs, waiting for background work. The methods here take locks,
//! read and change the state, and end all writing after an error; the rooms above define most methods of `DbInner`.

mod db_inner;
mod db_state;
mod filter_jobs;
mod hash_log;
mod keyspace_inner;
mod read_at;
mod read_set;
mod read_state;
mod reader;
mod settings;
mod status;
mod tables;
mod write_batch;
mod writer;
mod writer_guard;

pub(crate) use db_inner::{DbInner, MomentLogs};
pub(crate) use db_state::{FLUSHED_ALL, FlushedCounts, ImmutableMemtable, KeyspaceState, PickContext, State};
pub(crate) use filter_jobs::KeptStates;
pub(crate) use hash_log::{FlushedSlot, HashLog, Moved, segment_of};
pub(crate) use keyspace_inner::{
    AppliedRetention, CLOSED, DROPPED, KeyspaceInner, Role, Tail, check_name, times_of,
};
pub(crate) use read_at::{ReadAt, expiry_of, split_value};
pub(crate) use read_set::{KeyspaceReads, ReadSet};
pub(crate) use read_state::{ReadState, hides, shows};
pub(crate) use reader::Reader;
pub(crate) use settings::Settings;
pub(crate) use status::{Signals, Status};
pub(crate) use tables::{HashLogs, Tables};
pub use write_batch::Batch;
pub(crate) use write_batch::{Written, check_time};
pub(crate) use writer::{Job, TaskJob, Writer, new_commit, panicked, reserved_by};
pub(crate) use writer_guard::{PanicGuard, Publishing, WriterGuard};
