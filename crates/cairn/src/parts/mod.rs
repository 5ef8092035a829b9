//! Parts of the shared state that can be understood alone, each with its own lock or atomics: the write queue, the visible sequence number,
//! the sequence numbers that readers hold, the clock of expiries, dead ranges, the disk reserve, files kept for readers, counters, latency and limits.
//!
//! Imports `types`, and `wal` because the reserve gives up recycled logs. Absent: keyspaces and the database.

mod active_calls;
mod counters;
mod dead_ranges;
mod disk_reserve;
mod evicted;
mod expiry_clock;
mod held_seqs;
mod kept_files;
mod latency;
mod memtable_limits;
mod moments;
mod rate_limiter;
mod references;
mod snapshots;
mod task_jobs;
mod visible_seq;
mod write_queue;

pub(crate) use active_calls::{ActiveCall, ActiveCalls};
pub(crate) use counters::{Counters, KeyspaceCounters, Scrub, Stall};
pub(crate) use dead_ranges::{DeadRange, DeadRanges, FoundRun};
pub(crate) use disk_reserve::DiskReserve;
pub(crate) use evicted::with_evictions;
pub(crate) use expiry_clock::{ExpiryClock, whole};
pub(crate) use held_seqs::{FlushGeneration, HeldSeqs, RetiredMemtables};
pub(crate) use kept_files::{KeptFiles, Unneeded, parse_replaced_manifest, replaced_manifest_name};
pub(crate) use latency::{Begun, Latency, Measured, Operation, begin};
pub(crate) use memtable_limits::{allocate, capacity_for, is_due, price};
pub(crate) use moments::Moments;
pub(crate) use rate_limiter::{Pace, RateLimiter};
pub(crate) use references::WithReferences;
pub(crate) use snapshots::{HeldCursors, Snapshots};
pub(crate) use task_jobs::{Completion, TaskJobs};
pub(crate) use visible_seq::VisibleSeq;
pub(crate) use write_queue::{Lead, Member, Waiter, Wake, WriteQueue};
