//! [`InlineValues`]: the entries of a compaction with their values in place of the references to them.

use crate::read::MAX_INLINE_LEN;
use base::expiry::split_expiry;
use base::planted::{Bug, planted};
use base::{Cursor, Error, Reference, Result, Time, Trailer, same_key};
use values::Segments;

/// Maximum number of values in a batch: so many reads are in flight at once.
const BATCH_VALUES: usize = 128;

/// A batch ends after so many bytes of keys and values.
const BATCH_BYTES: usize = 1 << 20;

/// A cursor over the entries of a merge that reads the values to which they refer. Reads forward only.
///
/// Only the newest version of each key gets its value: a compaction drops the others, but for those that a snapshot reads. Values of more
/// than [`MAX_INLINE_LEN`] bytes stay where they are, and so do those that cannot be read: damage of a value does not stop a compaction, and
/// a reader of the entry gets the error.
///
/// Cost: one read of each value, [`BATCH_VALUES`] at once; an entry is copied once.
pub(super) struct InlineValues<'a, C> {
    cursor: C,
    segments: &'a Segments,
    /// Entries that have expired by then get no value: they are dropped, or become tombstones.
    expired_by: Time,
    /// The entries that are shown.
    batch: Batch,
    /// The entry of `batch` that is shown.
    at: usize,
    /// Those behind them, whose values are requested.
    next: Batch,
    /// The value of the entry, if it has been read.
    value: Option<base::Slice>,
    /// The last key that was taken from `cursor`, if one was.
    last_key: Option<Vec<u8>>,
    requests: Vec<Reference>,
    /// Bytes of the values that were read.
    pub(super) read: u64,
    /// The first error of reading a value.
    pub(super) error: Option<Error>,
}

/// Consecutive entries.
#[derive(Default)]
struct Batch {
    /// Keys and values.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

struct Entry {
    trailer: Trailer,
    key_at: usize,
    value_at: usize,
    end: usize,
    /// What the value is to be read from.
    reference: Option<Reference>,
}

impl<'a, C: Cursor> InlineValues<'a, C> {
    pub(super) fn new(cursor: C, segments: &'a Segments, expired_by: Time) -> Self {
        InlineValues {
            cursor,
            segments,
            expired_by,
            batch: Batch::default(),
            at: 0,
            next: Batch::default(),
            value: None,
            last_key: None,
            requests: Vec::new(),
            read: 0,
            error: None,
        }
    }

    /// Takes entries from the cursor into `next`, and requests their values.
    fn take_batch(&mut self) -> Result<()> {
        let Batch { bytes, entries } = &mut self.next;
        bytes.clear();
        entries.clear();
        let mut value_bytes = 0;
        while self.cursor.valid()
            && self.requests.len() < BATCH_VALUES
            && bytes.len() + value_bytes < BATCH_BYTES
        {
            let (key, trailer) = (self.cursor.key(), self.cursor.trailer());
            let is_newest = self.last_key.as_ref().is_none_or(|last| !same_key(key, last));
            let has_expired = trailer.expires()
                && split_expiry(self.cursor.value()).is_some_and(|(_, expiry)| expiry <= self.expired_by);
            let reference = match trailer.is_reference() && is_newest && !has_expired {
                true => Reference::decode(self.cursor.value()).filter(|r| r.len <= MAX_INLINE_LEN),
                false => None,
            };
            if is_newest {
                let last = self.last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
            }
            let key_at = bytes.len();
            bytes.extend_from_slice(key);
            let value_at = bytes.len();
            bytes.extend_from_slice(self.cursor.value());
            entries.push(Entry { trailer, key_at, value_at, end: bytes.len(), reference });
            if let Some(reference) = reference {
                value_bytes += reference.len as usize;
                self.requests.push(reference);
            }
            self.cursor.next()?;
        }
        self.segments.request(&mut self.requests);
        Ok(())
    }

    /// Shows the first entry of the next batch.
    fn advance(&mut self) -> Result<()> {
        std::mem::swap(&mut self.batch, &mut self.next);
        self.at = 0;
        self.take_batch()?;
        self.arrive();
        Ok(())
    }

    /// Reads the value of the entry that is shown.
    fn arrive(&mut self) {
        if !planted(Bug::KeepLastValue) {
            self.value = None;
        }
        let Some(entry) = self.batch.entries.get(self.at) else { return };
        let Some(reference) = entry.reference else { return };
        match self.segments.read(&reference) {
            Ok(value) => {
                self.read += value.len() as u64;
                let stored = Reference::split(&self.batch.bytes[entry.value_at..entry.end]);
                let tail = stored.map_or(&[][..], |(_, tail)| tail);
                self.value = Some(if tail.is_empty() { value } else { [&value, tail].concat().into() });
            }
            Err(error) => _ = self.error.get_or_insert(error),
        }
    }

    fn entry(&self) -> &Entry {
        &self.batch.entries[self.at]
    }
}

impl<C: Cursor> Cursor for InlineValues<'_, C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek_to_first()?;
        self.last_key = None;
        self.take_batch()?;
        self.advance()
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        match self.at < self.batch.entries.len() {
            true => {
                self.arrive();
                Ok(())
            }
            false => self.advance(),
        }
    }

    fn valid(&self) -> bool {
        self.at < self.batch.entries.len()
    }

    fn key(&self) -> &[u8] {
        let Entry { key_at, value_at, .. } = *self.entry();
        &self.batch.bytes[key_at..value_at]
    }

    fn trailer(&self) -> Trailer {
        match self.value {
            Some(_) => self.entry().trailer.with_reference(false),
            None => self.entry().trailer,
        }
    }

    fn value(&self) -> &[u8] {
        let Entry { value_at, end, .. } = *self.entry();
        self.value.as_deref().unwrap_or(&self.batch.bytes[value_at..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::LiveTableCursor;
    use crate::test_support::{TestStack, table_options};
    use base::EntryKind;
    use base::checksum::checksum_of;
    use env::{Env, SimEnv};
    use record::{SegmentKind, SegmentWriter, payload_offset};
    use std::path::Path;
    use std::sync::Arc;
    use table::Compression;

    #[test]
    fn what_is_behind_a_reference_stays_behind_the_value() {
        let value = [7u8; 300];
        let (env, name): (Arc<dyn Env>, fn(u64) -> String) = (SimEnv::new(1), |n| format!("{n}.log"));
        let mut log = SegmentWriter::create(&env, Path::new("/7.log"), SegmentKind::Wal, 7, b"").unwrap();
        let offset = payload_offset(log.len(), 2);
        log.append(&[b"xx", &value]).unwrap();
        log.flush().unwrap();
        let segments = Segments::new(env, "/".into(), name, 4, Arc::default());
        let entry = |key: &str, seq, tail: &[u8]| {
            let mut stored = Vec::new();
            Reference { segment: 7, offset, len: 300, checksum: checksum_of(&value) }.encode(&mut stored);
            stored.extend_from_slice(tail);
            (key.as_bytes().to_vec(), Trailer::new(seq, EntryKind::Reference), stored)
        };
        let plain = (b"c".to_vec(), Trailer::new(3, EntryKind::Put), b"short, time".to_vec());
        let entries = vec![entry("a", 1, b"the time"), entry("b", 2, b""), plain];
        let stack = TestStack::new(vec![entries], &table_options(4096, Compression::None), 1 << 20);
        let live = &stack.guard.tables[0];
        let mut cursor = InlineValues::new(
            LiveTableCursor::new(live.clone(), live.table.scan(), true),
            &segments,
            Time::MIN,
        );
        let mut shown = Vec::new();
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            assert!(!cursor.trailer().is_reference());
            shown.push(cursor.value().to_vec());
            cursor.next().unwrap();
        }
        assert!(cursor.error.is_none(), "{:?}", cursor.error);
        assert_eq!(shown, [[&value[..], b"the time"].concat(), value.to_vec(), b"short, time".to_vec()]);
    }
}
