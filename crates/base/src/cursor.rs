//! The trait [`Cursor`]: an ordered walk over entries. Memtables, tables and merges of them implement it, so that reads, flushes and
//! compactions treat all of them alike.

use crate::{Error, Result, Seq, Slice, Trailer};

/// A position in a sorted run of entries: a memtable, a table, or a merge of several cursors.
///
/// A new cursor is invalid until a seek positions it. Entries come in the order of [`crate::compare`]: key ascending,
/// and the newest version of a key first. A move past either end makes the cursor invalid. An error makes it invalid
/// too: every later move returns an error until a seek succeeds. So a caller never takes an error for the end.
///
/// Some cursors read forward only: of the moves they have [`Cursor::seek_to_first`] and [`Cursor::next`], and the others, as provided
/// here, return an error.
pub trait Cursor {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry (the oldest version of the largest key).
    fn seek_to_last(&mut self) -> Result<()> {
        forward_only()
    }
    /// Moves to the first entry at or after `key` as of `seq`: the newest version of `key` that is not newer than
    /// `seq`, or the entry after it if there is no such version.
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        let _ = (key, seq);
        forward_only()
    }
    /// Moves to the last entry whose key is smaller than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let _ = key;
        forward_only()
    }
    /// Moves one entry forward. The cursor must be valid.
    fn next(&mut self) -> Result<()>;
    /// Moves one entry back. The cursor must be valid.
    fn prev(&mut self) -> Result<()> {
        forward_only()
    }
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
    fn value_slice(&self) -> Slice {
        Slice::copy_from(self.value())
    }
}

#[cold]
fn forward_only() -> Result<()> {
    Err(Error::invalid("the cursor reads forward only"))
}

/// Implements [`Cursor`] for an enum with one cursor in each variant: each call goes to the cursor of the current
/// variant. `delegate_cursor!(Source { Memtable, Table })` is for `enum Source { Memtable(..), Table(..) }`, and
/// `delegate_cursor!(Source<C> where C { Memtable, Table })` for one with a parameter that is a cursor.
#[macro_export]
macro_rules! delegate_cursor {
    ($type:ty $(where $parameter:ident)? { $($variant:ident),+ }) => {
        impl$(<$parameter: $crate::Cursor>)? $crate::Cursor for $type {
            $crate::delegate_cursor! { @methods self [$($variant),+]
                seek_to_first[&mut self]() -> $crate::Result<()>;
                seek_to_last[&mut self]() -> $crate::Result<()>;
                seek[&mut self](key: &[u8], seq: $crate::Seq) -> $crate::Result<()>;
                seek_before[&mut self](key: &[u8]) -> $crate::Result<()>;
                next[&mut self]() -> $crate::Result<()>;
                prev[&mut self]() -> $crate::Result<()>;
                skip[&mut self](to: Option<&[u8]>, below: $crate::Seq) -> $crate::Result<()>;
                skip_back[&mut self](from: &[u8], below: $crate::Seq) -> $crate::Result<()>;
                set_nonblocking[&mut self](on: bool) -> ();
                would_block[&self]() -> bool;
                valid[&self]() -> bool;
                key[&self]() -> &[u8];
                trailer[&self]() -> $crate::Trailer;
                value[&self]() -> &[u8];
                value_slice[&self]() -> $crate::Slice;
            }
        }
    };
    (@methods $self:ident $variants:tt
        $($name:ident[$($receiver:tt)+]($($arg:ident: $arg_type:ty),*) -> $result:ty;)+) => {$(
        #[inline]
        fn $name($($receiver)+ $(, $arg: $arg_type)*) -> $result {
            $crate::delegate_cursor!(@call $self $variants $name($($arg),*))
        }
    )+};
    (@call $self:ident [$($variant:ident),+] $name:ident $args:tt) => {
        match $self { $(Self::$variant(cursor) => cursor.$name $args),+ }
    };
}
