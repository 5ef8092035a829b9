//! What the fuzz targets do with their bytes: one function for each decoder of the engine and of its program.
//!
//! ```text
//!   fuzz/fuzz_targets/NAME.rs --+                                +-- decoders that are public
//!                               +--> Target::check --> a body ---+
//!   tests/replay.rs ------------+      |                         +-- `fuzzing` modules of the crates that they test
//!                                      +-- memory: no more than the target says
//! ```
//!
//! A body asserts what must hold of any input: what is accepted reads the same when it is written again, an error names its
//! file and offset, a damaged file never gives a wrong answer. That it returns at all shows that nothing panicked, and the
//! allocator of this crate that no length was believed. A body says whether it accepted its input, so that a corpus which no
//! longer gets past the first check is noticed.
//!
//! Fuzzers do not guess checksums. So targets of checksummed formats take their first byte as flags, and with one of them
//! make the checksums right before they read: the parser behind is reached. Without it, the checksum is tested.

mod database;
mod history;
mod history_model;
mod manifests;
mod memory;
mod memtables;
mod options;
pub mod seeds;
mod segments;
mod source;
mod tables;

pub use source::Source;

/// A fuzz target.
pub struct Target {
    /// What it is called: its binary in `fuzz/fuzz_targets`, and its corpus in `fuzz/corpus`.
    pub name: &'static str,
    body: fn(&[u8]) -> bool,
    /// Most bytes that it may hold at once, of an input of a length.
    memory: fn(usize) -> usize,
}

impl Target {
    /// Runs the target on `data`. Returns whether its decoder accepted it.
    ///
    /// # Panics
    /// When something does not hold, or when more memory was taken than the target allows.
    pub fn check(&self, data: &[u8]) -> bool {
        memory::within(self.name, (self.memory)(data.len()), || (self.body)(data))
    }
}

/// What a decoder of `len` bytes in memory may hold: copies of them, and what little it keeps beside.
fn small(len: usize) -> usize {
    (64 << 10) + 64 * len
}

/// What a target with a simulated disk and a few open files may hold: a segment is read through a window of 256 KiB.
fn disk(len: usize) -> usize {
    (4 << 20) + 128 * len
}

macro_rules! targets {
    ($($(#[doc = $doc:literal])+ $static:ident $name:literal = $body:path, $memory:expr;)+) => {
        $( $(#[doc = $doc])+ pub static $static: Target = Target { name: $name, body: $body, memory: $memory }; )+

        /// All of them.
        pub static TARGETS: &[&Target] = &[$(&$static),+];
    };
}

targets! {
    /// A segment: a log or a manifest as any bytes.
    SEGMENT "segment" = segments::hostile, disk;
    /// Records that are written to a segment, which is then cut or damaged, and read back.
    SEGMENT_WRITE "segment_write" = segments::written, |_| 64 << 20;
    /// The record of a batch in a log.
    BATCH "batch" = cairn::fuzzing::batch, small;
    /// The header of a log.
    LOG_HEADER "log_header" = cairn::fuzzing::log_header, small;
    /// Names of files.
    FILE_NAME "file_name" = cairn::fuzzing::file_name, small;
    /// Names of keyspaces.
    KEYSPACE_NAME "keyspace_name" = options::keyspace_name, |len| disk(len) + (8 << 20);
    /// Options as text.
    OPTIONS "options" = options::options, small;
    /// An edit of a manifest: a table of it takes ten times its bytes in memory.
    EDIT "edit" = tree::fuzzing::edit, |len| (64 << 10) + 512 * len;
    /// A whole manifest.
    MANIFEST "manifest" = manifests::manifest, disk;
    /// The footer of a table.
    FOOTER "footer" = table::fuzzing::footer, small;
    /// The filter of a table.
    FILTER "filter" = table::fuzzing::filter, small;
    /// The properties of a table.
    PROPERTIES "properties" = table::fuzzing::properties, small;
    /// A node of a table: a data block or an index node.
    NODE "node" = table::fuzzing::node, small;
    /// A block in its frame, with its compression.
    BLOCK "block" = table::fuzzing::block, |len| 8 * table::fuzzing::BLOCK_CAP + 64 * len;
    /// A table as any bytes.
    TABLE "table" = tables::hostile, |len| (64 << 20) + 64 * len;
    /// Entries that are written to a table, read back, and read again after the table was damaged.
    TABLE_WRITE "table_write" = tables::written, |len| (16 << 20) + 256 * len;
    /// Entries that are inserted into a memtable.
    MEMTABLE "memtable" = memtables::memtable, |len| (4 << 20) + 256 * len;
    /// A database whose log holds any records.
    RECOVERY "recovery" = database::recovery, |len| (16 << 20) + 256 * len;
    /// A database with damaged files.
    DAMAGE "damage" = database::damage, |len| (32 << 20) + 256 * len;
    /// A history of a database beside a sorted map.
    HISTORY "history" = history::history, |len| (64 << 20) + 4096 * len;
    /// Text that is loaded.
    LOAD "load" = cli::fuzzing::load, |len| (256 << 10) + 512 * len;
    /// A line of the shell.
    SHELL "shell" = cli::fuzzing::shell, |len| (64 << 10) + 512 * len;
    /// Escapes, hexadecimal digits and sizes.
    ESCAPES "escapes" = cli::fuzzing::escapes, small;
}
