//! Bulk loads: tables that are built beside the tree, and attached to it by one edit of the manifest.
//!
//! ```text
//!   load.rs         Ingest, which applications use: entries in order, or in any order
//!   table_file.rs   tables made elsewhere
//!   sort.rs         sorts entries with bounded memory
//!   attach.rs       the edit, at one moment between two commits
//! ```
//!
//! What is absent: the log. What is loaded never goes through it, nor through a memtable.

mod attach;
mod load;
mod sort;
mod table_file;

pub use load::{Ingest, IngestOptions, Ingested};
pub use table_file::TableBuilder;
