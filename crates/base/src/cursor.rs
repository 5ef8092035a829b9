use crate::{Result, Seq, Slice, Trailer};

/// A position in a sorted run of entries: one memtable, one table, or a merge of many.
///
/// A new cursor is invalid until it is positioned. Entries come in the order of [`crate::compare`]: key ascending,
/// and the newest version of a key first. Moving past either end makes the cursor invalid; so does an error, and
/// after an error every further move reports an error until the cursor is positioned anew by a seek that
/// succeeds. An error is never mistaken for the end.
pub trait Cursor {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry (the oldest version of the largest key).
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry at or after `key` as of `seq`: the newest version of `key` that is not newer than
    /// `seq`, or, where there is none, what comes after it.
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()>;
    /// Moves to the last entry whose key is smaller than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves one entry forward. The cursor must be valid.
    fn next(&mut self) -> Result<()>;
    /// Moves forward, past this entry, and perhaps past older versions of its key, which it need not look at: for those who want
    /// the next key, and skip what is left of this one. The cursor must be valid.
    fn next_key(&mut self) -> Result<()> {
        self.next()
    }
    /// Moves one entry back. The cursor must be valid.
    fn prev(&mut self) -> Result<()>;
    /// Moves at least one entry forward. Of the entries before `to` (`None` is the end of all keys) those that are older than
    /// `below` may be passed over without being looked at. The cursor must be valid.
    fn skip(&mut self, to: Option<&[u8]>, below: Seq) -> Result<()> {
        let _ = (to, below);
        self.next()
    }
    /// Moves at least one entry back. Of the entries from `from` on those that are older than `below` may be passed over. The
    /// cursor must be valid.
    fn skip_back(&mut self, from: &[u8], below: Seq) -> Result<()> {
        let _ = (from, below);
        self.prev()
    }
    /// From now on the moves that position the cursor anew do not wait for the disk, as far as it knows how: where one would have to, it asks the
    /// disk to begin, stands nowhere, and says so by [`Cursor::would_block`]. Made again without hurry, it waits. So who positions several
    /// cursors has all their reads under way before the first wait. The other moves wait all the same, and are not for a cursor in a hurry.
    fn set_nonblocking(&mut self, on: bool) {
        let _ = on;
    }
    /// Whether the last move, made in a hurry, was put off.
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
    /// The value as a slice that outlives the cursor, without copying where the entry lies in a cached block.
    fn value_slice(&self) -> Slice;
}

/// Implements [`Cursor`] for an enum whose variants each hold one cursor: every call goes to the one that is there.
/// `delegate_cursor!(Source { Memtable, Table })` is for `enum Source { Memtable(..), Table(..) }`.
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
