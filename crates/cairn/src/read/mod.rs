//! Reads: point reads, batched reads, and cursors with what they skip and charge.
//!
//! Imports `types`, `parts` and `state`. Of the database a read sees a `Reader`: it looks at the status and the visible sequence number, and
//! notes charges and dead ranges. Absent: `DbInner`, writes, flushes, compactions, and waiting for any of them.

mod cursor;
mod deleted_run;
mod get;
mod held_seq;
mod range;
mod range_del;
mod read_cost;
mod sources;

pub use cursor::Cursor;
pub(crate) use cursor::ReadView;
pub(crate) use held_seq::HeldSeq;
pub use range::Range;
