//! Framed append-only segments: the write-ahead log and the manifest are written with them.
//!
//! A segment is a file that holds records, each a run of bytes, in the order in which they were appended. What sets it apart
//! from a plain log is what it knows when it is read back: every intact chunk says how much of the segment had been synced
//! when it was written. So damage to synced data is told from the torn tail that a crash leaves, and is an error; a torn
//! tail is where the log ends.
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
//! let mut reader = SegmentReader::open(&env, path, SegmentKind::Wal, 1)?;
//! let mut record = Vec::new();
//! while let Some(span) = reader.next(&mut record)? {
//!     println!("{} bytes at {}", record.len(), span.start);
//! }
//! assert_eq!(reader.tail(), Some(Tail::Clean));
//! # Ok::<(), base::Error>(())
//! ```
//!
//! The bytes are described in `docs/format/segment.md`. This crate starts no thread, knows nothing of what records mean, and
//! appends to no segment that it did not create: what is recovered from a torn segment is written to a new one.

mod format;
mod reader;
mod salvage;
mod writer;

pub use format::{
    BLOCK_LEN, CHUNK_HEADER_LEN, FORMAT_VERSION, FORMAT_VERSION_OVER, MAX_HEADER_LEN, SegmentKind,
};
pub use reader::{SegmentReader, Span, Tail};
pub use salvage::{Salvaged, salvage};
pub use writer::{LARGE_LEN, OldSegment, SegmentWriter};
