//! The vocabulary of all layers: keys and their order, sequence numbers, byte codecs, checksums, the cursor trait,
//! shared byte slices, errors and limits.
//!
//! This crate uses no files, clocks or threads, and depends on no other crate of Cairn.

pub mod checksum;
pub mod codec;
mod cursor;
pub mod duration;
mod error;
pub mod expiry;
mod key;
pub mod limits;
mod merge;
mod names;
pub mod planted;
mod range_tombstone;
mod reference;
mod slice;
mod time;

pub use cursor::Cursor;
pub use error::{Error, ErrorKind, Result};
pub use key::{EntryKind, MAX_SEQ, Seq, Trailer, compare, compare_keys, hash, head, same_key, shared_prefix};
pub use merge::{MergeOperator, Operands, join};
pub use range_tombstone::{Fragment, RangeSet, RangeTombstone};
pub use reference::{MAX_REFERENCE_LEN, Reference, SegmentShare};
pub use slice::Slice;
pub use time::Time;
