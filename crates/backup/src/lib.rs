//! Generations of copies of immutable files: a store that has each content once.
//!
//! A *generation* is a list of files of one moment, by name, with what their contents are. The contents are files of their own, named by their
//! digest, so generations share what they have in common, and what has the wrong content is found.
//!
//! ```text
//!   DIR/BACKUP              says that the directory is a store
//!       LOCK
//!       generation-000001      names, lengths, digests; the state that belongs to them
//!       generation-000002
//!       files/0f3a...      contents
//! ```
//!
//! A generation is there when its list is: it is written, synced and renamed after all that it names. A content is removed after all lists that
//! name it. So what is cut off at any point leaves the other generations whole; what it leaves behind is removed by the next one.
//!
//! This crate starts no threads and reads no clock; it knows nothing of databases.

mod copy;
mod generation;
mod store;

pub use copy::{Digest, copy_file, digest_file};
pub use generation::{Generation, StoredFile};
pub use store::{Added, Damage, NewGeneration, SourceFile, Store};
