//! [`HeldSeq`]: a sequence number that a cursor holds.

use crate::state::{KeyspaceInner, Reader};
use base::Seq;
use std::ops::Deref;
use std::sync::Arc;

/// A keyspace, and a sequence number held in it until this is dropped.
pub(crate) struct HeldSeq {
    keyspace: Arc<KeyspaceInner>,
    pub seq: Seq,
    by: By,
}

enum By {
    Slot(usize),
    Map,
    /// Another `HeldSeq`, which is dropped later.
    Other,
}

impl HeldSeq {
    fn new(keyspace: &Arc<KeyspaceInner>, seq: Seq, slot: Option<usize>) -> HeldSeq {
        HeldSeq { keyspace: keyspace.clone(), seq, by: slot.map_or(By::Map, By::Slot) }
    }

    /// Holds the newest visible sequence number.
    pub(crate) fn newest(keyspace: &Arc<KeyspaceInner>, db: &Reader) -> HeldSeq {
        let (seq, slot) = db.hold_newest(keyspace);
        HeldSeq::new(keyspace, seq, slot)
    }

    /// Holds a number that a snapshot keeps held during this call.
    pub(crate) fn of_snapshot(keyspace: &Arc<KeyspaceInner>, seq: Seq) -> HeldSeq {
        HeldSeq::new(keyspace, seq, keyspace.readers.hold(seq))
    }

    /// The same number for a user that is dropped before `self`.
    pub(crate) fn lend(&self) -> HeldSeq {
        HeldSeq { keyspace: self.keyspace.clone(), seq: self.seq, by: By::Other }
    }
}

impl Deref for HeldSeq {
    type Target = KeyspaceInner;
    #[inline]
    fn deref(&self) -> &KeyspaceInner {
        &self.keyspace
    }
}

impl Drop for HeldSeq {
    #[inline]
    fn drop(&mut self) {
        match self.by {
            By::Slot(number) => self.keyspace.readers.release(self.seq, Some(number)),
            By::Map => self.keyspace.readers.release(self.seq, None),
            By::Other => {}
        }
    }
}
