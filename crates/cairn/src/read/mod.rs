//! Reads: point reads, batched reads, and cursors with what they skip and charge.
//!
//! Imports `types`, `parts` and `state`. Absent: writes, flushes, compactions and waiting. A read changes nothing but counters, except that
//! a cursor records dead ranges, for which it holds the writer if that is free at the moment.

mod cursor;
mod deleted_run;
mod get;
mod held_seq;
mod multi_get;
mod range;
mod range_del;
mod read_cost;
mod sources;

pub use cursor::Cursor;
pub(crate) use cursor::ReadView;
pub(crate) use held_seq::HeldSeq;
pub use range::Range;
