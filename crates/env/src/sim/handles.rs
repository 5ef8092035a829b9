//! Counts the open files of a simulated disk.

use super::fault::Fault;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The open files of one disk.
#[derive(Default)]
pub(super) struct Handles {
    open: AtomicUsize,
    max_open: AtomicUsize,
    /// 0: no limit is enforced.
    limit: AtomicUsize,
}

/// An open file. Dropping the value closes it.
pub(super) struct Handle(Arc<Handles>);

impl Handles {
    pub(super) fn set_limit(&self, files: usize) {
        self.limit.store(files, Ordering::SeqCst);
    }

    pub(super) fn max(&self) -> usize {
        match self.limit.load(Ordering::SeqCst) {
            0 => 1024,
            limit => limit,
        }
    }

    pub(super) fn open(&self) -> (usize, usize) {
        (self.open.load(Ordering::SeqCst), self.max_open.load(Ordering::SeqCst))
    }

    pub(super) fn take(self: &Arc<Self>) -> io::Result<Handle> {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        let handle = Handle(self.clone());
        let limit = self.limit.load(Ordering::SeqCst);
        if limit != 0 && open > limit {
            return Err(Fault::EMFILE.cause());
        }
        self.max_open.fetch_max(open, Ordering::SeqCst);
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}
