//! Batches: several writes that happen together or not at all.

use crate::cursor::Bounds;
use crate::keyspace::{Keyspace, KeyspaceInner};
use crate::log::{Entries, Entry, MAX_ENTRY_OVERHEAD, put_entry};
use base::limits::{MAX_BATCH_LEN, MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{EntryKind, Error, ErrorKind, Result, Seq};
use memtable::{KeptValue, Memtable};
use std::collections::VecDeque;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A batch of so many bytes, and not a smaller one, grows by a fourth instead of to twice its length.
const GROWS_BY_A_FOURTH: usize = 16 << 20;

/// Writes to any number of keyspaces that [`Database::write`](crate::Database::write) applies as one: after a crash all
/// of them are there or none, and every reader sees all of them or none.
///
/// Later writes to a key win over earlier ones. A batch holds up to 1 GiB. A key or value over its limit is an error when the
/// batch is written.
#[derive(Default)]
pub struct Batch {
    /// The entries as the log has them.
    pub(crate) entries: Vec<u8>,
    pub(crate) count: u64,
    /// Bytes of all keys and values.
    pub(crate) user_bytes: u64,
    /// Whether it has anything but deletes.
    pub(crate) has_puts: bool,
    /// Whether it deletes ranges.
    pub(crate) has_ranges: bool,
    /// Whether it has values that a memtable keeps in allocations of their own.
    has_large: bool,
    /// Copies of those, in their order, once it is being written.
    pub(crate) kept: VecDeque<KeptValue>,
    /// The keyspaces that it puts into: a bit for each of the first 63, and one for all others.
    puts_into: u64,
    /// The keyspaces that are written to, each with the bytes that its memtable must have room for.
    pub(crate) keyspaces: Vec<(Arc<KeyspaceInner>, usize)>,
    /// The first thing that is wrong with it.
    pub(crate) error: Option<Error>,
}

impl Batch {
    /// Sets `key` to `value`.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(&keyspace.core, EntryKind::Put, key.as_ref(), value.as_ref());
    }

    /// Removes `key`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(&keyspace.core, EntryKind::Delete, key.as_ref(), &[]);
    }

    /// Removes all keys that lie in `bounds`: those that are there, and those that were put earlier in this batch. See
    /// [`Keyspace::delete_range`].
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// # let queue = db.keyspace("queue", cairn::KeyspaceOptions::default())?;
    /// # let done = db.keyspace("done", cairn::KeyspaceOptions::default())?;
    /// for job in 0..100u32 {
    ///     queue.put(job.to_be_bytes(), "work")?;
    /// }
    /// let mut batch = db.batch();
    /// batch.delete_range(&queue, ..50u32.to_be_bytes());
    /// batch.put(&done, "up to", "50");
    /// db.write(batch, cairn::Durability::Sync)?;
    /// assert_eq!(queue.iter().count(), 50);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, keyspace: &Keyspace, bounds: impl RangeBounds<K>) {
        self.push_range(keyspace, Bounds::of_deleted(&bounds));
    }

    /// Removes all keys that begin with `prefix`. See [`Batch::delete_range`].
    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) {
        let prefix = prefix.as_ref();
        let bounds = check_lengths(prefix, &[]).map(|()| Some(Bounds::prefix(prefix)));
        self.push_range(keyspace, bounds);
    }

    /// Deletes a range, unless no key can lie in it.
    fn push_range(&mut self, keyspace: &Keyspace, bounds: Result<Option<Bounds>>) {
        match bounds {
            Ok(None) => {}
            Ok(Some(Bounds { from, to })) => {
                let to = to.unwrap_or_default();
                if to.is_empty() || from < to {
                    self.push(&keyspace.core, EntryKind::DeleteRange, &from, &to);
                }
            }
            Err(e) => {
                self.error.get_or_insert(e);
            }
        }
    }

    pub(crate) fn push(&mut self, keyspace: &Arc<KeyspaceInner>, kind: EntryKind, key: &[u8], value: &[u8]) {
        if self.error.is_some() {
            return;
        }
        if let Err(e) = check_lengths(key, value) {
            self.error = Some(e);
            return;
        }
        if self.entries.len() + key.len() + value.len() + 64 > MAX_BATCH_LEN {
            self.error = Some(Error::invalid(format!("a batch may have {MAX_BATCH_LEN} bytes")));
            return;
        }
        let wanted = key.len() + value.len() + MAX_ENTRY_OVERHEAD;
        if self.entries.capacity() - self.entries.len() < wanted && !self.grow(wanted) {
            return;
        }
        let cost = Entry { kind, keyspace: keyspace.id, key, value }.cost();
        let place = match self.keyspaces.iter().position(|(core, _)| Arc::ptr_eq(core, keyspace)) {
            Some(place) => place,
            None => {
                self.keyspaces.push((keyspace.clone(), 0));
                self.keyspaces.len() - 1
            }
        };
        self.keyspaces[place].1 += cost;
        if kind == EntryKind::Put {
            self.puts_into |= bit_of(place);
        }
        put_entry(&mut self.entries, kind, keyspace.id, key, value);
        self.count += 1;
        self.has_puts |= kind == EntryKind::Put;
        self.has_ranges |= kind == EntryKind::DeleteRange;
        self.has_large |= kind == EntryKind::Put && Memtable::lies_outside(value.len());
        self.user_bytes += (key.len() + value.len()) as u64;
    }

    /// Makes room for another `wanted` bytes. Where there is no memory that is what is wrong with the batch.
    #[cold]
    fn grow(&mut self, wanted: usize) -> bool {
        let len = self.entries.len();
        let grown = match len < GROWS_BY_A_FOURTH {
            true => self.entries.try_reserve(wanted),
            false => self.entries.try_reserve_exact(wanted.max(len / 4)),
        };
        if grown.is_err() {
            self.error = Some(no_memory("a batch", len + wanted));
        }
        grown.is_ok()
    }

    /// Makes the copies that memtables keep of large values: before anything is logged, so that it may fail.
    pub(crate) fn keep_values(&mut self) -> Result<()> {
        if !self.has_large {
            return Ok(());
        }
        let mut entries = Entries::new(&self.entries);
        while let Some(entry) = entries.next() {
            if entry.kind == EntryKind::Put {
                self.kept.extend(keep_value(entry.value)?);
            }
        }
        Ok(())
    }

    /// The writer gives it numbers up to `last_seq`: what it puts is cut out of the dead ranges of its keyspaces.
    pub(crate) fn note_puts(&self, last_seq: Seq) {
        if !self.has_puts {
            return;
        }
        let mut cuts = false;
        for (place, (keyspace, _)) in self.keyspaces.iter().enumerate() {
            if self.puts_into & bit_of(place) != 0 {
                cuts |= keyspace.dead.note_batch(last_seq);
            }
        }
        if cuts {
            self.cut_dead_ranges();
        }
    }

    #[cold]
    fn cut_dead_ranges(&self) {
        let mut entries = Entries::new(&self.entries);
        while let Some(entry) = entries.next() {
            let keyspace = self.keyspaces.iter().find(|(keyspace, _)| keyspace.id == entry.keyspace);
            if let (EntryKind::Put, Some((keyspace, _))) = (entry.kind, keyspace) {
                keyspace.dead.cut(entry.key);
            }
        }
    }

    /// How many writes it has.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that it takes in the log.
    pub fn byte_len(&self) -> usize {
        self.entries.len()
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.count = 0;
        self.user_bytes = 0;
        self.has_puts = false;
        self.has_ranges = false;
        self.has_large = false;
        self.kept.clear();
        self.puts_into = 0;
        self.keyspaces.clear();
        self.error = None;
    }
}

/// The copy that a memtable keeps of a value, if it is large.
pub(crate) fn keep_value(value: &[u8]) -> Result<Option<KeptValue>> {
    Memtable::keep(value).map_err(|_| no_memory("a value", value.len()))
}

#[cold]
fn no_memory(what: &str, len: usize) -> Error {
    Error::new(ErrorKind::Io, format!("there is no memory for {what} of {len} bytes"))
}

/// Whether a key and a value are within their limits.
pub(crate) fn check_lengths(key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > MAX_KEY_LEN {
        return Err(Error::invalid(format!(
            "a key may have {MAX_KEY_LEN} bytes; this one has {}",
            key.len()
        )));
    }
    if value.len() > MAX_VALUE_LEN {
        return Err(Error::invalid(format!(
            "a value may have {MAX_VALUE_LEN} bytes; this one has {}",
            value.len()
        )));
    }
    Ok(())
}

/// The bit for the keyspace at `place` of a batch.
fn bit_of(place: usize) -> u64 {
    1 << place.min(63)
}
