//! Reads: point reads, batched reads, and cursors with what they skip and charge.
//!
//! Imports `types`, `parts` and `state`. Of `DbInner` a read uses the status, the visible sequence number and the flag that memtables are
//! due; a cursor that records a dead range also takes the writer, if it is free at the moment. Absent: writes, flushes, compactions, and
//! waiting for any of them. (Under one planted bug a dropped cursor calls `disk`.)

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
