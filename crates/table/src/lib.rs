//! Immutable sorted tables: what a memtable becomes on disk, and what compaction reads and writes.
//!
//! A table is a static B+-tree in one file. [`TableWriter`] takes entries in order and writes data blocks (leaves), a
//! partitioned filter, index nodes, properties and a footer; [`Table`] finds a key in it, [`TableCursor`] walks it through
//! the [`BlockCache`], and [`ScanCursor`] streams it past the cache for compaction. [`TableCache`] is a directory of such
//! files: it owns the open handles and the counters. `docs/format/table.md` tells the format byte by byte.
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

#![forbid(unsafe_code)]

mod block;
mod block_align;
mod buffer_pool;
mod cache;
mod compression;
mod counters;
mod cursor;
mod decode_error;
mod entry_cursor;
mod filter;
mod footer;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod node;
mod node_builder;
mod nonblocking_read;
mod options;
mod pinned_index;
mod prefetch;
mod properties;
mod salvage;
mod scan;
mod table;
mod table_cache;
mod verify;
mod writer;

pub use cache::{BlockCache, BlockClass, BlockKey, CacheStats, ClassStats, Pin};
pub use compression::Compression;
pub use cursor::TableCursor;
pub use nonblocking_read::PendingRead;
pub use options::{TableMeta, TableOptions, TableOwner, parse_table_file_name, table_file_name};
pub use salvage::{Gap, SalvageCursor, Survey};
pub use scan::ScanCursor;
pub use table::Table;
pub use table_cache::{TableCache, TableStats, blocks_read_by_this_thread, bytes_read_by_this_thread};
pub use writer::TableWriter;
