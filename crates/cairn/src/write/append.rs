//! The path of every write from reserved memory to the log: a single put or delete, a batch, and a group of batches take it.
//!
//! [`DbInner::log`] establishes the log if the durability demands it, lets its caller append under the next sequence numbers, and persists
//! what was appended, or rolls it back. Afterwards nothing may fail: the caller inserts into memtables, which have memory reserved.

use crate::state::{Batch, DbInner, KeyspaceInner, Writer};
use crate::types::Durability;
use crate::wal::{BatchHead, Entries, Entry, Log};
use base::codec::put_varint;
use base::planted::{Bug, planted};
use base::{EntryKind, ErrorKind, Result, Seq, Time};
use hashlog::pack;
use memtable::{LogPlace, Memtable};
use record::{LARGE_LEN, chunk_place, payload_offset};

/// `Buffered` writes are handed to the operating system when the buffer has this many bytes.
const BUFFER_LEN: usize = 64 << 10;

impl DbInner {
    /// Appends with `append`, which assigns sequence numbers from `writer.next_seq` on, and persists what it appended. Returns the first of
    /// the numbers. After an error nothing is appended, and the numbers are not used again. `deletes`: there are no puts, so the reserve
    /// may be used.
    #[inline]
    pub(super) fn log(
        &self,
        writer: &mut Writer,
        durability: Durability,
        deletes: bool,
        append: impl FnOnce(&mut Writer) -> Result<()>,
    ) -> Result<Seq> {
        // An acknowledged `Sync` write is durable: the loss of its log must be detected. Established before anything is appended, so that
        // an error leaves nothing to roll back.
        if durability == Durability::Sync && !planted(Bug::AcknowledgeBeforeEstablished) {
            self.establish_log()?;
        }
        let (start, first_seq) = (writer.log.len(), writer.next_seq);
        let appended = append(writer);
        let persisted = appended.and_then(|()| self.persist(writer, durability, deletes));
        if persisted.is_err() {
            writer.log.rollback(start);
            self.visible.publish(first_seq, writer.next_seq - 1);
        }
        persisted.map(|()| first_seq)
    }

    /// Appends one entry under the next sequence number. Its record goes from the caller's bytes directly into the buffer.
    #[inline]
    pub(super) fn append_one(
        &self,
        writer: &mut Writer,
        entry: &Entry<'_>,
        keyspace: &KeyspaceInner,
        memtable: &Memtable,
        time: Option<Time>,
    ) -> Result<()> {
        let (seq, start) = (writer.next_seq, writer.log.len());
        writer.next_seq += 1;
        if entry.kind.gives_value() {
            keyspace.dead.note_put(entry.key, seq);
        }
        writer.scratch.clear();
        let all = entry.expiry.is_some() || entry.kind == EntryKind::Merge;
        BatchHead { ranges: false, all, first_seq: seq, count: 1, time }.put(&mut writer.scratch);
        let entry_at = writer.scratch.len();
        entry.put_head(&mut writer.scratch);
        let head = writer.scratch.len();
        match entry.kind {
            EntryKind::Put | EntryKind::Merge => {
                put_varint(&mut writer.scratch, entry.value.len() as u64);
                let (head, value_len) = writer.scratch.split_at(head);
                let index = head.len() + entry.key.len() + value_len.len();
                self.append_to(&mut writer.log, &[head, entry.key, value_len, entry.value], false)?;
                if keyspace.hash_log.is_some() {
                    let offset = pack(chunk_place(start, entry_at as u64));
                    memtable.note_place(LogPlace { seq, log: writer.log.number(), offset });
                } else if keyspace.notes_place(entry.kind, entry.key.len(), entry.value.len()) {
                    let offset = payload_offset(start, index as u64);
                    memtable.note_place(LogPlace { seq, log: writer.log.number(), offset });
                }
                Ok(())
            }
            EntryKind::Delete => {
                writer.log.append(&[&writer.scratch, entry.key])?;
                if keyspace.hash_log.is_some() {
                    let offset = pack(chunk_place(start, entry_at as u64));
                    memtable.note_place(LogPlace { seq, log: writer.log.number(), offset });
                }
                Ok(())
            }
            _ => unreachable!("a single write is a put, a merge or a delete"),
        }
    }

    /// Appends a batch under the next sequence numbers.
    pub(super) fn append_batch(&self, writer: &mut Writer, batch: &Batch) -> Result<()> {
        let first_seq = writer.next_seq;
        writer.next_seq += batch.numbers();
        batch.note_puts(writer.next_seq - 1);
        writer.scratch.clear();
        let Batch { has_ranges: ranges, count, time, .. } = *batch;
        let all = batch.has_expiries || batch.has_merges;
        let head = BatchHead { ranges, all, first_seq, count, time };
        head.put(&mut writer.scratch);
        let (start, head) = (writer.log.len(), writer.scratch.len());
        let parts: [&[u8]; 2] = [&writer.scratch, &batch.entries];
        self.append_to(&mut writer.log, &parts, !batch.has_puts)?;
        if batch.has_places {
            note_places(batch, first_seq, writer.log.number(), start, head);
        }
        Ok(())
    }

    /// Appends a record to the log. A large record is written to the file at once.
    #[inline]
    fn append_to(&self, log: &mut Log, record: &[&[u8]], deletes: bool) -> Result<()> {
        match record.iter().map(|part| part.len()).sum::<usize>() <= LARGE_LEN {
            true => log.append(record),
            false => self.check_process().and_then(|()| self.with_space(deletes, || log.append(record))),
        }
    }

    /// Persists what was appended as the durability demands. `deletes`: there are no puts, so the reserve may be used.
    #[inline]
    fn persist(&self, writer: &mut Writer, durability: Durability, deletes: bool) -> Result<()> {
        self.check_process()?;
        if deletes {
            self.disk_reserve.note_deletes();
        }
        if durability == Durability::Buffered && writer.log.buffered() < BUFFER_LEN {
            return Ok(());
        }
        self.with_space(deletes, || writer.log.flush())?;
        match durability {
            Durability::Buffered | Durability::Os => Ok(()),
            Durability::Sync if planted(Bug::AcknowledgeBeforeSync) => Ok(()),
            Durability::Sync => self.sync_flushed(writer),
        }
    }

    /// Hands data to the operating system, and retries when space was freed for it. `deletes`: may use the space of the reserve.
    #[inline]
    fn with_space(&self, deletes: bool, mut hand: impl FnMut() -> Result<()>) -> Result<()> {
        let handed = match hand() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.logs.recycled.give_up() => hand(),
            handed => handed,
        };
        let Err(e) = handed else { return Ok(()) };
        // The put is refused, but the released reserve serves deletes and compactions from now on.
        let _ = self.disk_reserve.release_for(&e);
        match deletes && e.kind() == ErrorKind::NoSpace {
            true => hand().map_err(|e| self.poison_on_sync_error(e)),
            false => Err(self.poison_on_sync_error(e)),
        }
    }
}

/// Notes where the log has the large values of a batch, and the entries of keyspaces without order. The record was appended when the log was
/// `start` bytes long, and the entries are behind its first `head` bytes.
#[cold]
fn note_places(batch: &Batch, first_seq: Seq, log: u64, start: u64, head: usize) {
    let mut entries = Entries::new(&batch.entries);
    let (mut seq, mut entry_at) = (first_seq, head);
    while let Some(entry) = entries.next() {
        let keyspace = batch.keyspace_of(&entry);
        let end = head + batch.entries.len() - entries.left();
        if keyspace.notes_place(entry.kind, entry.key.len(), entry.value.len()) {
            let offset = match keyspace.hash_log {
                Some(_) => pack(chunk_place(start, entry_at as u64)),
                None => payload_offset(start, (end - entry.value.len()) as u64),
            };
            keyspace.read_state.load().memtable.note_place(LogPlace { seq, log, offset });
        }
        (seq, entry_at) = (seq + 1, end);
    }
}

/// Inserts a batch whose memory is reserved into the memtables of its keyspaces.
pub(super) fn insert(batch: &Batch, first_seq: Seq) {
    let mut entries = Entries::new(&batch.entries);
    let keyspaces = batch.keyspaces.iter().map(|written| &written.keyspace);
    let places: Vec<_> = keyspaces.map(|k| (k, k.read_state.load(), k.tail(batch.time))).collect();
    let mut seq = first_seq;
    while !entries.is_empty() {
        let entry = entries.next().expect("a batch is well-formed: it was encoded by push");
        let (keyspace, read_state, tail) =
            places.iter().find(|(k, ..)| k.id == entry.keyspace).expect("push noted the keyspace");
        let own = entry.time.map(|_| keyspace.tail(entry.time));
        entry.insert(&read_state.memtable, seq, own.as_ref().unwrap_or(tail));
        seq += 1;
    }
}
