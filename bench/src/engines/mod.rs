//! The engines: Cairn, and each peer that is built in.
//!
//! Each adapter implements [`crate::engine::Engine`] and imports nothing else of this crate but `process`: an adapter must not
//! know which workload runs on it. `locked` (versions) and `idle` (waiting for background work) are helpers of several.

pub mod cairn;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(any(feature = "leveldb", feature = "fjall"))]
mod idle;
#[cfg(feature = "leveldb")]
mod leveldb;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(any(feature = "fjall", feature = "lmdb", feature = "redb", feature = "rocksdb"))]
mod locked;
#[cfg(feature = "prototypes")]
mod ordered_memory;
#[cfg(feature = "prototypes")]
mod range_merge;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_optimistic;
#[cfg(feature = "rocksdb")]
mod rocksdb_timestamps;

use crate::engine::Kind;

/// All engines that are built in, Cairn first.
pub fn all() -> Vec<Kind> {
    #[allow(unused_mut)]
    let mut kinds = cairn::kinds();
    #[cfg(feature = "rocksdb")]
    kinds.extend(rocksdb::kinds());
    #[cfg(feature = "rocksdb")]
    kinds.extend(rocksdb_timestamps::kinds());
    #[cfg(feature = "rocksdb")]
    kinds.extend(rocksdb_optimistic::kinds());
    #[cfg(feature = "leveldb")]
    kinds.extend(leveldb::kinds());
    #[cfg(feature = "fjall")]
    kinds.extend(fjall::kinds());
    #[cfg(feature = "redb")]
    kinds.extend(redb::kinds());
    #[cfg(feature = "lmdb")]
    kinds.extend(lmdb::kinds());
    #[cfg(feature = "prototypes")]
    kinds.extend(range_merge::kinds());
    #[cfg(feature = "prototypes")]
    kinds.extend(ordered_memory::kinds());
    kinds
}
