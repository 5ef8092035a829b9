//! Reads: point reads, batched reads, and cursors with what they skip and charge; versions by time.
//!
//! Imports `types`, `wal`, `parts` and `state`. Of the database a read sees a `Reader`: it looks at the status and the visible sequence number,
//! and notes charges and dead ranges. Absent: `DbInner`, writes, flushes, compactions, and waiting for any of them.

mod changed;
mod cursor;
mod deleted_run;
mod entries;
mod estimate;
mod get;
mod hash_log;
mod joined;
mod range;
mod range_at;
mod range_del;
mod read_cost;
mod read_view;
mod values_ahead;
mod versions;

pub use cursor::Cursor;
pub use entries::Entries;
pub use range::{Keys, Range};
pub use range_at::{CursorAt, EntryAt, RangeAt};
pub(crate) use read_view::{HeldSeq, ReadView};
pub(crate) use versions::{AsOf, VersionQuery};
pub use versions::{Version, VersionCursor, Versions};
