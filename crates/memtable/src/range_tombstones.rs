//! Range tombstones of a memtable, beside its skip list.
//!
//! Whoever never deletes ranges pays one load of a flag for each read. Where there are any, readers take the set as it is and
//! hold it; a writer makes the next one and puts it in its place. Writers wait for each other, readers for nobody.

use arc_swap::ArcSwap;
use base::{RangeSet, RangeTombstone, Seq};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Range tombstones that were inserted so far.
#[derive(Default)]
pub(crate) struct Ranges {
    any: AtomicBool,
    set: ArcSwap<RangeSet>,
    writing: Mutex<()>,
}

impl Ranges {
    /// What a reader sees, if there is anything. It has all that was inserted before the reader synchronized with the inserting
    /// thread, and perhaps more, which sequence numbers tell apart.
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<RangeSet>> {
        match self.any.load(Ordering::Acquire) {
            true => Some(self.set.load_full()),
            false => None,
        }
    }

    /// The newest tombstone over `key` that a reader at `seq` sees; 0 when there is none. Writes to no memory that readers share.
    #[inline]
    pub(crate) fn newest(&self, key: &[u8], seq: Seq) -> Seq {
        match self.any.load(Ordering::Acquire) {
            true => self.set.load().newest(key, seq),
            false => 0,
        }
    }

    /// Takes over what another one has.
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
