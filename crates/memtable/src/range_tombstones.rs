//! The range tombstones of a memtable, stored beside its skip list.
//!
//! A memtable without range tombstones costs a reader one load of a flag. Otherwise readers load the present
//! immutable set. A writer builds the next set and replaces the present one. Writers exclude each other; readers
//! never wait.

use arc_swap::ArcSwap;
use base::{RangeSet, RangeTombstone, Seq};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The range tombstones inserted so far.
#[derive(Default)]
pub(crate) struct Ranges {
    any: AtomicBool,
    set: ArcSwap<RangeSet>,
    writing: Mutex<()>,
}

impl Ranges {
    /// The present set, if there are range tombstones. It contains all tombstones inserted before the reader
    /// synchronized with the inserting thread, and may contain more; sequence numbers tell them apart.
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<RangeSet>> {
        match self.any.load(Ordering::Acquire) {
            true => Some(self.set.load_full()),
            false => None,
        }
    }

    /// The newest tombstone that covers `key` and is visible at `seq`; 0 if there is none. Does not write to shared
    /// memory.
    #[inline]
    pub(crate) fn newest(&self, key: &[u8], seq: Seq) -> Seq {
        match self.any.load(Ordering::Acquire) {
            true => self.set.load().newest(key, seq),
            false => 0,
        }
    }

    /// Copies the set of another memtable.
    pub(crate) fn copy_from(&self, from: &Ranges) {
        if let Some(set) = from.get() {
            self.set.store(set);
            self.any.store(true, Ordering::Release);
        }
    }

    pub(crate) fn insert(&self, tombstone: RangeTombstone) {
        let _writing = self.writing.lock();
        let next = self.set.load().with(tombstone);
        self.set.store(Arc::new(next));
        self.any.store(true, Ordering::Release);
    }
}
