//! The index of a keyspace without order: a hash table in memory over entries that stay in the log.
//!
//! An entry is written once, to the log, and stays where it is. [`HashIndex`] has a slot for each, by a part of the hash of its key. Hint files
//! have keys and places, so that an opening reads neither values nor logs.
//!
//! Source: Pristupin, "High Performance Key-Value Stores" (2023), section 2; and Bitcask (Sheehy and Smith, 2010), whose hint files these are.
//! Other than there, the index has no keys, so that its size does not depend on theirs.
//!
//! This crate starts no threads and reads no clock; it knows nothing of databases, memtables and versions.

mod files;
mod hints;
mod index;
mod leaf;
mod place;
mod resolve;

pub use files::{Added, FileUse};
pub use hints::{
    Hint, HintFile, HintOwner, HintReader, HintShare, HintWriter, MAX_FILES_OF_HINTS, hint_file_name,
    parse_hint_file_name,
};
pub use index::{Candidate, HashIndex, IndexLoader};
pub use leaf::{Change, NewSlot, Slot};
pub use place::{MAX_FILES, MAX_FLUSHED_FILES, MAX_OFFSET, Place, pack, unpack};
pub use resolve::{Resolved, is_seen, resolve};
