//! The state of a simulated disk, and how an operation runs on it: count it, ask the hook and the rules, then change the state
//! under its lock.

use super::disk::Disk;
use super::fault::{Fault, Faults, OpKind};
use super::handles::Handles;
use super::memory::Memory;
use base::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The value of [`crate::Env::free_space`] while no capacity is set.
pub(super) const UNLIMITED: u64 = 1 << 50;

pub(super) struct Shared {
    pub(super) seed: u64,
    pub(super) state: Mutex<State>,
    pub(super) faults: Faults,
    pub(super) clock_ns: AtomicU64,
    /// The wall clock, in microseconds.
    pub(super) wall_us: AtomicU64,
    pub(super) handles: Arc<Handles>,
    pub(super) memory: Memory,
    pub(super) max_file_len: AtomicU64,
    pub(super) has_links: AtomicBool,
}

pub(super) struct State {
    pub(super) disk: Disk,
    pub(super) locks: BTreeSet<PathBuf>,
    /// The number of holders of each locked byte, by the number of the file.
    pub(super) shared_locks: BTreeMap<(u64, u64), usize>,
    pub(super) capacity: Option<u64>,
}

impl State {
    pub(super) fn check_new(&self, path: &Path, operation: &str) -> Result<()> {
        if self.disk.find(path).is_none() && !self.disk.has_dir(path) {
            return Ok(());
        }
        let cause = io::Error::from_raw_os_error(17);
        Err(Error::io(operation, path, cause).with_kind(ErrorKind::AlreadyExists))
    }

    /// Allocates `len` bytes under a new name. The lock on the disk is held, so no thread sees the file without its
    /// space.
    pub(super) fn allocate(&mut self, path: &Path, len: u64) -> io::Result<()> {
        if self.disk.used() + len > self.capacity.unwrap_or(UNLIMITED) {
            return Err(Fault::ENOSPC.cause());
        }
        found(self.disk.create(path))?.lock().allocate(len);
        Ok(())
    }

    /// How many of `wanted` more bytes fit.
    pub(super) fn fit(&self, wanted: usize) -> usize {
        match self.capacity {
            None => wanted,
            Some(capacity) => wanted.min(capacity.saturating_sub(self.disk.used()) as usize),
        }
    }
}

impl Shared {
    /// Runs one operation under the hook and the rules. `body` receives the fault, if any, so that it can apply the
    /// effects of a failure.
    pub(super) fn op<T>(
        &self,
        kind: OpKind,
        path: &Path,
        body: impl FnOnce(&mut State, Option<Fault>) -> Result<T>,
    ) -> Result<T> {
        let (index, fault) = self.faults.begin(kind, path);
        let result = body(&mut self.state.lock(), fault);
        self.faults.end(index, kind, path, result.is_ok());
        result
    }

    /// Runs an operation that has no effect if it fails.
    pub(super) fn simple<T>(
        &self,
        kind: OpKind,
        name: &str,
        path: &Path,
        body: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> Result<T> {
        self.op(kind, path, |state, fault| match fault {
            Some(fault) => Err(fault.error(name, path)),
            None => body(state).map_err(|e| Error::io(name, path, e)),
        })
    }
}

/// An error for an absent file or directory.
pub(super) fn found<T>(value: Option<T>) -> io::Result<T> {
    value.ok_or_else(|| io::Error::from_raw_os_error(2))
}
