//! Immutable sorted tables: a flush writes them, compactions read and write them, and reads search them.
//!
//! A table is a static B+-tree in one file. [`TableWriter`] takes entries in order and writes data blocks (leaves), a
//! partitioned filter, index nodes, properties and a footer; [`Table`] finds a key in it, [`TableCursor`] walks it through
//! the [`BlockCache`], and [`ScanCursor`] streams it past the cache for compaction. [`TableCache`] is a directory of such
//! files: it owns the open handles and the counters. `docs/format/table.md` describes the format byte by byte.
//!
//! ```text
//!   TableWriter --- node_builder --- frame --- file --- frame --- node --- Table, TableCursor, ScanCursor
//!                   filter                     |                  filter
//!                                         BlockCache (checked, decompressed blocks)
//! ```
//!
//! Guarantees: every byte of a file is covered by a checksum that is bound to the file's number, the offset and the
//! kind of block, and is verified before anything in the block is parsed; so a read gives the right answer or an error
//! that names file and offset. Blocks in the cache have been verified.
//!
//! Nothing here starts a thread, reads a clock, sorts, or knows what other tables exist. The crate has no unsafe code.
//!
//! Modules, from below: `format` (bytes), then `cache` (what tables share) and `write`, then `read`, then `check` (verification and
//! salvage). A module imports only from folders below its own.

#![forbid(unsafe_code)]

mod cache;
mod check;
mod format;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod read;
mod write;

pub use cache::block_cache::{BlockCache, BlockClass, BlockKey, CacheStats, ClassStats, Pin};
pub use cache::table_cache::{TableCache, TableStats, bytes_read_by_this_thread};
pub use check::salvage::SalvageCursor;
pub use check::survey::{Gap, Survey};
pub use format::compression::Compression;
pub use format::options::{
    KEY_TIME_LEN, TableExpiry, TableFormat, TableMeta, TableOptions, TableOwner, TableTimes, TimesOf,
    TimesWanted, Wanted, parse_table_file_name, table_file_name,
};
pub use read::cursor::{ScanCursor, TableCursor};
pub use read::nonblocking_read::PendingRead;
pub use read::samples::Sample;
pub use read::table::Table;
pub use write::writer::{TableWriter, UnsyncedTable};
