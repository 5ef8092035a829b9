//! Batches: several writes that are applied atomically. A [`Batch`] is encoded as the log stores it; the room `write` commits it.

use super::keyspace_inner::KeyspaceInner;
use crate::wal::{Entries, Entry, MAX_ENTRY_OVERHEAD};
use base::limits::MAX_BATCH_LEN;
use base::{EntryKind, Error, ErrorKind, Result, Seq, Time};
use std::sync::Arc;

/// What a late write takes beside twice its key and its value: the end and the time of the version key, and what is behind the value.
const LATE_OVERHEAD: usize = 24;

/// From this length on a batch grows by a fourth instead of doubling.
const GROWS_BY_A_FOURTH: usize = 16 << 20;

/// Writes to any number of keyspaces that [`Database::write`](crate::Database::write) applies atomically: after a crash all of them are
/// present or none, and every reader sees all of them or none.
///
/// A later write to a key replaces an earlier one in the same batch, unless these are versions of it with times of their own
/// ([`Batch::put_at`]). A batch holds up to 1 GiB. A key or value over its limit makes
/// [`Database::write`](crate::Database::write) fail.
#[derive(Default)]
pub struct Batch {
    /// The encoded entries, as the log stores them.
    pub(crate) entries: Vec<u8>,
    pub(crate) count: u64,
    /// Bytes of all keys and values.
    pub(crate) user_bytes: u64,
    /// Bytes that `entries` may have in addition when the writes with times of their own become entries of historical keyspaces.
    pub(crate) routed_bytes: usize,
    /// Whether the batch contains a put or a merge.
    pub(crate) has_puts: bool,
    /// Whether the batch contains an entry of which the log shall note where it is.
    pub(crate) has_places: bool,
    /// Whether the batch contains a range tombstone.
    pub(crate) has_ranges: bool,
    /// Whether the batch contains a put that expires.
    pub(crate) has_expiries: bool,
    /// Whether the batch contains an operand.
    pub(crate) has_merges: bool,
    /// Whether the batch writes to a keyspace with history.
    pub(crate) has_history: bool,
    /// Whether an entry of a keyspace with history gets the time of the batch.
    pub(crate) takes_time: bool,
    /// Whether any time is taken as it is, because the versions were in a database before.
    pub(crate) takes_any_time: bool,
    /// Whether the times are those of another database, which may have given later ones than a caller may.
    pub(crate) is_copy: bool,
    /// Whether writes that lie before what retention keeps are left out, instead of refusing the batch.
    pub(crate) skips_expired: bool,
    /// The earliest and the latest of the times that the caller gave to entries.
    pub(crate) earliest: Option<Time>,
    pub(crate) latest: Option<Time>,
    /// The time that the writer gives to a batch with `has_history`.
    pub(crate) time: Option<Time>,
    /// The keyspaces that are written to.
    pub(crate) keyspaces: Vec<Written>,
    /// The first error; [`Database::write`](crate::Database::write) returns it.
    pub(crate) error: Option<Error>,
}

/// The latest time that a caller may give a version: the database always has later ones left.
const MAX_OWN_TIME: Time = Time::from_micros(1 << 63);

/// Checks that an entry may have a time of its own.
#[inline]
pub(crate) fn check_time(keyspace: &KeyspaceInner, time: Option<Time>, is_copy: bool) -> Result<()> {
    match time {
        None => Ok(()),
        Some(time) if time > MAX_OWN_TIME && !is_copy => {
            let (time, most) = (time.micros(), MAX_OWN_TIME.micros());
            Err(Error::invalid(format!("a version may have a time of at most {most} us, not {time}")))
        }
        Some(_) => keyspace.check_history().map(|_| ()),
    }
}

/// What a batch writes to a keyspace.
pub(crate) struct Written {
    pub keyspace: Arc<KeyspaceInner>,
    /// The bytes to reserve in its memtable.
    pub need: usize,
    pub has_puts: bool,
    pub has_expiries: bool,
    pub has_merges: bool,
}

impl Written {
    fn new(keyspace: Arc<KeyspaceInner>) -> Written {
        Written { keyspace, need: 0, has_puts: false, has_expiries: false, has_merges: false }
    }
}

impl Batch {
    /// Adds a write to `keyspace`.
    pub(crate) fn push(&mut self, keyspace: &Arc<KeyspaceInner>, entry: Entry<'_>) {
        let Entry { kind, time, expiry, key, value, .. } = entry;
        if self.error.is_some() {
            return;
        }
        if let Err(e) = keyspace
            .limits
            .check(key, value)
            .and_then(|()| check_time(keyspace, time, self.is_copy))
            .and_then(|()| keyspace.check_kind(kind, value))
            .and_then(|()| keyspace.check_expiry(expiry, value.len()))
        {
            self.error = Some(e);
            return;
        }
        let routed_bytes = self.routed_bytes + time.map_or(0, |_| key.len() + LATE_OVERHEAD);
        if self.entries.len() + key.len() + value.len() + routed_bytes + 64 > MAX_BATCH_LEN {
            self.error = Some(Error::invalid(format!("a batch may have {MAX_BATCH_LEN} bytes")));
            return;
        }
        let wanted = key.len() + value.len() + MAX_ENTRY_OVERHEAD;
        if self.entries.capacity() - self.entries.len() < wanted && !self.grow(wanted) {
            return;
        }
        let entry = Entry { keyspace: keyspace.id, ..entry };
        let cost = keyspace.cost_of(&entry);
        let place = self.keyspaces.iter().position(|written| Arc::ptr_eq(&written.keyspace, keyspace));
        let place = place.unwrap_or_else(|| {
            self.keyspaces.push(Written::new(keyspace.clone()));
            self.keyspaces.len() - 1
        });
        let written = &mut self.keyspaces[place];
        written.need += cost;
        written.has_puts |= kind.gives_value();
        written.has_expiries |= expiry.is_some();
        written.has_merges |= kind == EntryKind::Merge;
        entry.encode(&mut self.entries);
        self.routed_bytes = routed_bytes;
        self.count += 1;
        self.has_puts |= kind.gives_value();
        self.has_merges |= kind == EntryKind::Merge;
        self.has_ranges |= kind == EntryKind::DeleteRange;
        self.has_expiries |= expiry.is_some();
        self.has_places |= keyspace.notes_place(kind, key.len(), value.len());
        if keyspace.tail_len > 0 {
            self.has_history = true;
            self.takes_time |= time.is_none();
            self.latest = self.latest.max(time);
            self.earliest = self.earliest.into_iter().chain(time).min();
        }
        self.user_bytes += (key.len() + value.len()) as u64;
    }

    /// Reserves another `wanted` bytes. A failed allocation becomes the error of the batch.
    #[cold]
    fn grow(&mut self, wanted: usize) -> bool {
        let len = self.entries.len();
        let grown = match len < GROWS_BY_A_FOURTH {
            true => self.entries.try_reserve(wanted),
            false => self.entries.try_reserve_exact(wanted.max(len / 4)),
        };
        if grown.is_err() {
            let message = format!("there is no memory for a batch of {} bytes", len + wanted);
            self.error = Some(Error::new(ErrorKind::Io, message));
        }
        grown.is_ok()
    }

    /// Called by the writer when the batch has sequence numbers up to `last_seq`: cuts its put keys out of the dead ranges of their
    /// keyspaces.
    pub(crate) fn note_puts(&self, last_seq: Seq) {
        if !self.has_puts {
            return;
        }
        let mut cuts = false;
        for written in self.keyspaces.iter().filter(|written| written.has_puts) {
            cuts |= written.keyspace.dead.note_batch(last_seq);
        }
        if cuts {
            self.cut_dead_ranges();
        }
    }

    #[cold]
    fn cut_dead_ranges(&self) {
        let mut entries = Entries::new(&self.entries);
        while let Some(entry) = entries.next() {
            if entry.kind.gives_value() {
                self.keyspace_of(&entry).dead.cut(entry.key);
            }
        }
    }

    /// Called by the writer before the batch is appended: tells keyspaces that their entries may expire, and checks that there are no operands for those
    /// where they may.
    ///
    /// # Errors
    /// `Conflict`.
    pub(crate) fn note_expiries(&self) -> Result<()> {
        if !self.has_expiries && !self.has_merges {
            return Ok(());
        }
        for written in &self.keyspaces {
            if written.has_expiries {
                written.keyspace.note_expiries();
            }
            if written.has_merges {
                written.keyspace.check_no_expiries()?;
            }
        }
        Ok(())
    }

    /// Whether a merge of it reads the value: in its keyspace, or beside a put that expires.
    pub(crate) fn merges_read(&self) -> bool {
        let reads = |written: &Written| {
            written.has_merges && (written.has_expiries || written.keyspace.merges_at_once())
        };
        self.has_merges && self.keyspaces.iter().any(reads)
    }

    /// The position in `keyspaces` of that of one of its entries.
    pub(crate) fn place_of(&self, entry: &Entry<'_>) -> usize {
        let place = self.keyspaces.iter().position(|written| written.keyspace.id == entry.keyspace);
        place.expect("push noted the keyspace")
    }

    /// The keyspace of one of its entries.
    pub(crate) fn keyspace_of(&self, entry: &Entry<'_>) -> &Arc<KeyspaceInner> {
        &self.keyspaces[self.place_of(entry)].keyspace
    }

    /// The sequence numbers that it takes: one also if all its writes were left out.
    pub(crate) fn numbers(&self) -> u64 {
        self.count.max(1)
    }

    /// Whether a time of an entry may lie before what retention keeps.
    pub(crate) fn has_expired(&self, now: Time) -> bool {
        if self.takes_any_time {
            return false;
        }
        let horizon = self.keyspaces.iter().map(|w| w.keyspace.for_writes.kept_from(now)).max();
        self.earliest.zip(horizon).is_some_and(|(earliest, horizon)| earliest < horizon)
    }

    /// Leaves writes out whose times lie before what the retention of their keyspaces keeps, instead of refusing the batch with `Expired`.
    pub fn skip_expired(&mut self) {
        self.skips_expired = true;
    }

    /// Takes writes with any time: also those before what the retention of their keyspaces keeps, and those more than a day after the clock.
    ///
    /// This is for a history that is copied into a new keyspace. Elsewhere a write from before what is kept may become the newest version of a
    /// key although a later version, or a delete, existed and has expired. Versions that a retention by age or number does not keep go with the
    /// next compactions. After a time in the future, writes without a time of their own get later ones.
    pub fn take_any_time(&mut self) {
        self.takes_any_time = true;
    }

    /// Number of writes in the batch.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the batch has no writes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that the batch takes in the log.
    pub fn byte_len(&self) -> usize {
        self.entries.len()
    }

    /// Makes it a new batch, as [`Database::batch`](crate::Database::batch) does; its memory is kept.
    pub fn clear(&mut self) {
        let Batch { mut entries, mut keyspaces, .. } = std::mem::take(self);
        entries.clear();
        keyspaces.clear();
        *self = Batch { entries, keyspaces, ..Batch::default() };
    }
}

crate::types::debug_of! {
    [] Batch, "Batch", writes: |batch| batch.count, bytes: |batch| batch.user_bytes;
}
