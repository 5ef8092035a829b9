//! The tests of the library as one program: each module is a file beside this one. Linking one program instead of one per file saves most of
//! the build time. The tests run side by side, so a test that depends on the state of the process (limits, memory, the working directory)
//! runs in a child process (`child`), and tests that count allocations are in the program `allocations`.
#![allow(missing_docs)]

mod child;

mod alter;
mod async_calls;
mod clones;
mod compact_beside;
mod copies;
mod cursors;
mod damage;
mod database;
mod dead_ranges;
mod docs;
mod expiry;
mod expiry_history;
mod expiry_model;
mod filters;
mod filters_history;
mod fixtures;
mod full_disk;
mod hash_log;
mod history;
#[cfg(target_os = "linux")]
mod idle;
mod ingest;
mod keyspaces;
mod large;
mod lifetimes;
mod limits;
mod logs;
mod low_space;
mod many;
mod merge;
mod metrics;
mod panics;
mod passing;
mod place;
mod placement;
mod promises;
mod ranges;
mod readers;
mod recovered;
mod rests;
mod salvage;
mod scans;
mod scrub;
mod shapes;
mod sizes;
mod small_files;
mod stalls;
mod transactions;
mod typed;
