//! The bodies of the fuzz targets: one function for each decoder of the engine and of the command line.
//!
//! ```text
//!   fuzz/fuzz_targets/NAME.rs --+                                +-- decoders that are public
//!                               +--> Target::check --> a body ---+
//!   tests/replay.rs ------------+      |                         +-- `fuzzing` modules of the crates that they test
//!                                      +-- memory: no more than the target says
//! ```
//!
//! A body asserts properties that hold for any input: an accepted input is unchanged after writing it again, an error
//! names its file and offset, a damaged file never gives a wrong answer. If the body returns, nothing panicked, and
//! the allocator of this crate verified that no length was trusted before it was checked. A body returns whether it
//! accepted its input, which reveals a corpus that no longer passes the first check.
//!
//! Fuzzers cannot guess checksums. So targets of checksummed formats take their first byte as flags. One flag makes
//! the checksums right before the input is read, so that the parser behind them is reached. Without it, the checksum
//! is tested.

mod backups;
mod database;
mod hints;
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
mod timed;
mod typed;
mod values;
mod versions;

pub use source::Source;

/// A fuzz target.
pub struct Target {
    /// The name of its binary in `fuzz/fuzz_targets` and of its corpus in `fuzz/corpus`.
    pub name: &'static str,
    body: fn(&[u8]) -> bool,
    /// Maximum memory in bytes, given the length of the input.
    memory: fn(usize) -> usize,
}

impl Target {
    /// Runs the target on `data`. Returns whether its decoder accepted it.
    ///
    /// # Panics
    /// If an assertion fails, or if the target uses more memory than it allows.
    pub fn check(&self, data: &[u8]) -> bool {
        memory::within(self.name, (self.memory)(data.len()), || (self.body)(data))
    }
}

/// Memory limit of a decoder of `len` bytes: copies of the input and a little state.
fn small(len: usize) -> usize {
    (64 << 10) + 64 * len
}

/// Memory limit of a target with a simulated disk and a few open files: a segment reader has a window of 256 KiB.
fn disk(len: usize) -> usize {
    (4 << 20) + 128 * len
}

macro_rules! targets {
    ($($(#[doc = $doc:literal])+ $static:ident $name:literal = $body:path, $memory:expr;)+) => {
        $( $(#[doc = $doc])+ pub static $static: Target = Target { name: $name, body: $body, memory: $memory }; )+

        /// All targets.
        pub static TARGETS: &[&Target] = &[$(&$static),+];
    };
}

targets! {
    /// Arbitrary bytes as a segment: a log or a manifest.
    SEGMENT "segment" = segments::hostile, disk;
    /// Writes records to a segment, cuts or damages it, and reads it back.
    SEGMENT_WRITE "segment_write" = segments::written, |_| 64 << 20;
    /// The list of a generation of a backup.
    BACKUP "backup" = backups::list, disk;
    /// The record of a batch in a log.
    BATCH "batch" = cairn::fuzzing::batch, small;
    /// The header of a log.
    LOG_HEADER "log_header" = cairn::fuzzing::log_header, small;
    /// References to values outside of the tree, value files and their maps.
    VALUES "values" = values::values, small;
    /// Hint files of keyspaces without order, and their descriptions.
    HINTS "hints" = hints::hints, disk;
    /// Keys and values of typed keyspaces. `serde` reserves up to 1 MiB for a list whose length is not checked.
    TYPED "typed" = typed::typed, |len| (4 << 20) + 64 * len;
    /// Keys and values of keyspaces with history, and rules of retention.
    VERSIONS "versions" = versions::versions, small;
    /// Names of files.
    FILE_NAME "file_name" = cairn::fuzzing::file_name, small;
    /// Names of keyspaces.
    KEYSPACE_NAME "keyspace_name" = options::keyspace_name, |len| disk(len) + (8 << 20);
    /// Options as text.
    OPTIONS "options" = options::options, small;
    /// An edit of a manifest. A table in it takes ten times its encoded length in memory.
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
    /// A page of rows of a size-class table.
    ROWS "rows" = table::fuzzing::rows, small;
    /// The directory of a size-class table.
    DIRECTORY "directory" = table::fuzzing::directory, small;
    /// A block in its frame, with its compression.
    BLOCK "block" = table::fuzzing::block, |len| 8 * table::fuzzing::BLOCK_CAP + 64 * len;
    /// Arbitrary bytes as a table.
    TABLE "table" = tables::hostile, |len| (64 << 20) + 64 * len;
    /// Writes entries to a table, reads them back, and reads again after damage.
    TABLE_WRITE "table_write" = tables::written, |len| (16 << 20) + 256 * len;
    /// Inserts entries into a memtable.
    MEMTABLE "memtable" = memtables::memtable, |len| (4 << 20) + 256 * len;
    /// A database whose log contains arbitrary records.
    RECOVERY "recovery" = database::recovery, |len| (16 << 20) + 256 * len;
    /// A database with damaged files.
    DAMAGE "damage" = database::damage, |len| (32 << 20) + 256 * len;
    /// A history of a database, compared with a sorted map.
    HISTORY "history" = history::history, |len| (64 << 20) + 4096 * len;
    /// A keyspace with history, compared with a map from keys to times to values.
    TIMED "timed" = timed::timed, |len| (64 << 20) + 4096 * len;
    /// Text input of `load`.
    LOAD "load" = cli::fuzzing::load, |len| (256 << 10) + 512 * len;
    /// A line of the shell.
    SHELL "shell" = cli::fuzzing::shell, |len| (64 << 10) + 512 * len;
    /// Metrics that a program gives to `cairn top`, and the screen that shows them.
    METRICS "metrics" = cli::fuzzing::metrics, |len| (8 << 20) + 2048 * len;
    /// Escapes, hexadecimal digits and sizes.
    ESCAPES "escapes" = cli::fuzzing::escapes, small;
}
