//! The trait [`Cursor`]: an ordered walk over entries. Memtables, tables and merges of them implement it, so that reads, flushes and
//! compactions treat all of them alike.

use crate::{Result, Seq, Slice, Trailer};

/// A position in a sorted run of entries: a memtable, a table, or a merge of several cursors.
///
/// A new cursor is invalid until a seek positions it. Entries come in the order of [`crate::compare`]: key ascending,
/// and the newest version of a key first. A move past either end makes the cursor invalid. An error makes it invalid
/// too: every later move returns an error until a seek succeeds. So a caller never takes an error for the end.
pub trait Cursor {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry (the oldest version of the largest key).
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after `key` as of `seq`: the newest version of `key` that is not newer than
    /// `seq`, or the entry after it if there is no such version.
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()>;
    /// Moves to the last entry whose key is smaller than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves one entry forward. The cursor must be valid.
    fn next(&mut self) -> Result<()>;
    /// Moves to an entry behind the current one. It may skip older versions of the current key without reading them.
    /// Callers that need only the next key use it. The cursor must be valid.
    fn next_key(&mut self) -> Result<()> {
        self.next()
    }
    /// Moves one entry back. The cursor must be valid.
    fn prev(&mut self) -> Result<()>;
    /// Moves at least one entry forward. It may skip entries before `to` (`None`: the end of all keys) that are older
    /// than `below` without reading them. The cursor must be valid.
    fn skip(&mut self, to: Option<&[u8]>, below: Seq) -> Result<()> {
        let _ = (to, below);
        self.next()
    }
    /// Moves at least one entry back. It may skip entries at or after `from` that are older than `below` without
    /// reading them. The cursor must be valid.
    fn skip_back(&mut self, from: &[u8], below: Seq) -> Result<()> {
        let _ = (from, below);
        self.prev()
    }
    /// Switches non-blocking seeks on or off. While they are on, a seek does not wait for the disk where the cursor
    /// can avoid it: it starts the read, leaves the cursor unpositioned, and [`Cursor::would_block`] returns true. The same
    /// seek, repeated with `set_nonblocking(false)`, waits. A caller that positions several cursors thus starts all their reads
    /// before the first wait. Moves other than seeks still wait; do not use them while this is on.
    fn set_nonblocking(&mut self, on: bool) {
        let _ = on;
    }
    /// Whether the last seek was put off because it would have waited for the disk.
    fn would_block(&self) -> bool {
        false
    }
    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;
    /// The user key of the current entry.
    fn key(&self) -> &[u8];
    /// Sequence number and kind of the current entry.
    fn trailer(&self) -> Trailer;
    /// The value of the current entry; empty for a tombstone.
    fn value(&self) -> &[u8];
    /// The value as a slice that outlives the cursor. Not copied if the entry lies in a cached block.
    fn value_slice(&self) -> Slice;
}

/// Implements [`Cursor`] for an enum with one cursor in each variant: each call goes to the cursor of the current
/// variant. `delegate_cursor!(Source { Memtable, Table })` is for `enum Source { Memtable(..), Table(..) }`.
#[macro_export]
macro_rules! delegate_cursor {
    ($type:ty { $($variant:ident),+ }) => {
        impl $crate::Cursor for $type {
            fn seek_to_first(&mut self) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.seek_to_first()),+ }
            }
            fn seek_to_last(&mut self) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.seek_to_last()),+ }
            }
            fn seek(&mut self, key: &[u8], seq: $crate::Seq) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.seek(key, seq)),+ }
            }
            fn seek_before(&mut self, key: &[u8]) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.seek_before(key)),+ }
            }
            #[inline]
            fn next(&mut self) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.next()),+ }
            }
            #[inline]
            fn next_key(&mut self) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.next_key()),+ }
            }
            #[inline]
            fn prev(&mut self) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.prev()),+ }
            }
            fn skip(&mut self, to: Option<&[u8]>, below: $crate::Seq) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.skip(to, below)),+ }
            }
            fn skip_back(&mut self, from: &[u8], below: $crate::Seq) -> $crate::Result<()> {
                match self { $(Self::$variant(cursor) => cursor.skip_back(from, below)),+ }
            }
            #[inline]
            fn set_nonblocking(&mut self, on: bool) {
                match self { $(Self::$variant(cursor) => cursor.set_nonblocking(on)),+ }
            }
            #[inline]
            fn would_block(&self) -> bool {
                match self { $(Self::$variant(cursor) => cursor.would_block()),+ }
            }
            #[inline]
            fn valid(&self) -> bool {
                match self { $(Self::$variant(cursor) => cursor.valid()),+ }
            }
            #[inline]
            fn key(&self) -> &[u8] {
                match self { $(Self::$variant(cursor) => cursor.key()),+ }
            }
            #[inline]
            fn trailer(&self) -> $crate::Trailer {
                match self { $(Self::$variant(cursor) => cursor.trailer()),+ }
            }
            #[inline]
            fn value(&self) -> &[u8] {
                match self { $(Self::$variant(cursor) => cursor.value()),+ }
            }
            fn value_slice(&self) -> $crate::Slice {
                match self { $(Self::$variant(cursor) => cursor.value_slice()),+ }
            }
        }
    };
}
