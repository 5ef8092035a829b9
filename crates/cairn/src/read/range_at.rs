//! The entries of a keyspace with history as of a time: [`RangeAt`] and [`CursorAt`].

use super::versions::{Version, VersionCursor, Versions};
use base::{Result, Slice, Time};

/// An entry as of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EntryAt {
    /// The key.
    pub key: Slice,
    /// When the value was written.
    pub time: Time,
    /// The value.
    pub value: Slice,
}

impl EntryAt {
    /// An entry, to be compared with one that was read.
    pub fn new(key: Slice, time: Time, value: Slice) -> EntryAt {
        EntryAt { key, time, value }
    }

    /// `version` is no delete.
    fn of(version: Version) -> EntryAt {
        EntryAt { key: version.key, time: version.time, value: version.value.unwrap_or_default() }
    }
}

/// A double-ended iterator over the entries of a keyspace with history as of a time, by key; `.rev()` reverses the order. An error is yielded
/// once; then the iterator ends.
///
/// It shows the state at its creation, and holds the same resources as an iterator over entries: see
/// [`Keyspace::range`](crate::Keyspace::range).
pub struct RangeAt(Versions);

impl RangeAt {
    /// `versions` are as of a time.
    pub(crate) fn new(versions: Versions) -> RangeAt {
        RangeAt(versions)
    }

    /// See [`Versions::soonest_expiry`].
    pub(crate) fn soonest_expiry(&self) -> Option<Time> {
        self.0.soonest_expiry()
    }

    /// A cursor over the same entries, which can seek and move in both directions, at no entry yet.
    pub fn cursor(self) -> CursorAt {
        CursorAt(self.0.cursor())
    }
}

impl Iterator for RangeAt {
    type Item = Result<EntryAt>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(EntryAt::of))
    }
}

impl DoubleEndedIterator for RangeAt {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map(EntryAt::of))
    }
}

impl std::iter::FusedIterator for RangeAt {}

/// A position among the entries of a keyspace with history as of a time, in a consistent state.
///
/// A new cursor is invalid until it is positioned. Moving past either end makes it invalid, and so does an error: position it again after
/// one.
///
/// ```
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = cairn::Database::open(dir.path())?;
/// use cairn::{KeyspaceOptions, Preset, Time};
/// let stock = db.keyspace("stock", KeyspaceOptions::preset(Preset::Mneme))?;
/// stock.put_at("pear", "7", Time::from_micros(10))?;
/// stock.put_at("fig", "4", Time::from_micros(20))?;
/// stock.put_at("pear", "5", Time::from_micros(30))?;
/// let mut cursor = stock.range_at::<&str>(Time::from_micros(25), ..)?.cursor();
/// cursor.seek("g")?;
/// assert_eq!((cursor.key(), cursor.value(), cursor.time().micros()), (&b"pear"[..], &b"7"[..], 10));
/// cursor.prev()?;
/// assert_eq!(cursor.key(), b"fig");
/// # Ok(())
/// # }
/// ```
pub struct CursorAt(VersionCursor);

impl CursorAt {
    /// Moves to the first entry.
    ///
    /// # Errors
    /// As for [`Keyspace::get`](crate::Keyspace::get). The cursor is then invalid, and another seek may succeed, except after `Closed`.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.0.seek_to_first()
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// As for [`CursorAt::seek_to_first`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.0.seek_to_last()
    }

    /// Moves to the first entry at or after `key`.
    ///
    /// # Errors
    /// As for [`CursorAt::seek_to_first`].
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.seek(key)
    }

    /// Moves to the last entry at or before `key`.
    ///
    /// # Errors
    /// As for [`CursorAt::seek_to_first`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.0.seek_for_prev(key)
    }

    /// Moves one entry forward. The cursor must be valid.
    ///
    /// # Errors
    /// As for [`CursorAt::seek_to_first`]; `InvalidArgument` when the cursor is not valid. After an error the cursor stays invalid until it is
    /// positioned again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<()> {
        self.0.next()
    }

    /// Moves one entry back. The cursor must be valid.
    ///
    /// # Errors
    /// As for [`CursorAt::next`].
    pub fn prev(&mut self) -> Result<()> {
        self.0.prev()
    }

    /// Whether the cursor is on an entry.
    pub fn valid(&self) -> bool {
        self.0.valid()
    }

    /// The key.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The value.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn value(&self) -> &[u8] {
        self.0.value().unwrap_or_default()
    }

    /// When the value was written.
    ///
    /// # Panics
    /// When the cursor is not valid.
    pub fn time(&self) -> Time {
        self.0.time()
    }
}

crate::types::debug_of! {
    [] RangeAt, "RangeAt";
    [] CursorAt, "CursorAt", key: |cursor| cursor.valid().then(|| Slice::copy_from(cursor.key()));
}
