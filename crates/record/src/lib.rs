//! Framed append-only segments: the format of the write-ahead log and of the manifest.
//!
//! A segment is a file of records, each a run of bytes, in append order. Each chunk of a record states how much of
//! the segment was synced when the chunk was written. A reader uses this to tell damage to synced data, which is an
//! error, from the torn tail that a crash leaves, which is the end of the log.
//!
//! ```
//! use env::{Env, SimEnv};
//! use record::{SegmentKind, SegmentReader, SegmentWriter, Tail};
//! use std::{path::Path, sync::Arc};
//!
//! let env: Arc<dyn Env> = SimEnv::new(1);
//! let path = Path::new("/000001.log");
//! let mut log = SegmentWriter::create(&env, path, SegmentKind::Wal, 1, b"")?;
//! log.append(&[b"a record in ", b"two parts"])?; // in memory
//! log.flush()?;                                  // survives the process
//! log.sync()?;                                   // survives the machine
//!
//! let mut reader = SegmentReader::open(&env, path, SegmentKind::Wal, 1, None)?;
//! let mut record = Vec::new();
//! while let Some(span) = reader.next(&mut record)? {
//!     println!("{} bytes at {}", record.len(), span.start);
//! }
//! assert_eq!(reader.tail(), Some(Tail::Clean));
//! # Ok::<(), base::Error>(())
//! ```
//!
//! `docs/format/segment.md` describes the bytes. This crate starts no threads, does not interpret records, and never
//! appends to a segment that it did not create: the records recovered from a torn segment are written to a new one.

mod finder;
mod format;
mod part;
mod payload;
mod reader;
mod salvage;
mod writer;

pub use format::{
    BLOCK_LEN, CHUNK_HEADER_LEN, FORMAT_VERSION, FORMAT_VERSION_OVER, MAX_HEADER_LEN, SegmentKind,
};
pub use part::{ChunkPlace, Part, PartsOf, chunk_place};
pub use payload::{framed_len, payload_offset, remove_headers};
pub use reader::{LastRecord, SegmentReader, Span, Tail};
pub use salvage::{Salvaged, salvage};
pub use writer::{LARGE_LEN, SegmentWriter};
