//! Values outside of the tree: which ones, where they are, and how they are read.
//!
//! A value that is large in relation to its key is written once, to the log. When its memtable is flushed, the table gets a
//! [`base::Reference`] to the value in the log, and the log stays as a *value segment*. Compactions move references, not values. A value
//! segment has the format of a log (`docs/format/log.md`), whether it was one or was written by a flush or a collection. So it can be
//! read without the tree.
//!
//! Source: Parallax, sections 2.1.2 and 3.0.2. Other than there, a segment is shared with the entries that were in its log, and a
//! collection needs no look-ups (`docs/adr`).
//!
//! This crate starts no threads, reads no clock, and knows nothing of trees and versions.

mod forward;
mod pick;
mod placement;
mod read;
mod segments;
mod value_file;
mod walk;

pub use forward::Forward;
pub use pick::{FileUse, SegmentFile, pick, pick_by_count, pick_first, pick_small};
pub use placement::is_large;
pub use read::read_value;
pub use segments::{MAX_ERRORS, Segments};
pub use value_file::{Maps, ValueFile, own_segment, parse_value_file_name, value_file_name};
pub use walk::Walk;
