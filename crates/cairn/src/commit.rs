//! Commits: how writes become durable, ordered and visible.
//!
//! One thread at a time holds the [`Writer`]. While it does, it reserves memtable memory, assigns the next sequence numbers to its batch,
//! appends the batch to the log and persists the log as the durability demands. Then it releases the writer, inserts into the memtable
//! concurrently with other threads, and publishes its batch when all older ones are inserted. So the order in the log, the order of
//! sequence numbers and the order of visibility are the same, and a reader sees all of a batch or nothing.
//!
//! A thread that does not get the writer within a moment queues its batch, and the next thread to hold the writer, the *leader*, commits
//! the queued batches as one group, with one sync if any of them demands one. A leader that was not queued takes only batches along that
//! demand no sync. The leader also inserts the batches of queued threads, which may be asleep.
//!
//! Only a holder of the writer switches a memtable, and only when everything that has a sequence number is inserted. So an immutable
//! memtable contains only visible entries.

use crate::Durability;
use crate::batch::{Batch, check_lengths, keep_value};
use crate::db_inner::DbInner;
use crate::keyspace::{KeyspaceInner, ReadState};
use crate::log::{Entries, Log, put_batch_head, put_batch_head_of, put_entry_head};
use crate::sync::{Guard, thread_local, yield_now};
use crate::write_queue::{self, Waiter, WriteQueue};
use crate::writer::{PanicGuard, Publishing, Writer, WriterGuard, panicked};
use base::codec::put_varint;
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, Result, Seq, Trailer};
use memtable::Memtable;
use record::LARGE_LEN;
use std::sync::Arc;

/// `Buffered` writes are handed to the operating system when the buffer has this many bytes.
const BUFFER_LEN: usize = 64 << 10;

/// A group of this many bytes is committed before more batches join it.
const MAX_IN_GROUP: u64 = 1 << 20;

/// The writer, and the queue of batches for it.
pub(crate) type Commit = WriteQueue<Writer, Job, Result<()>>;

/// A queued batch.
pub(crate) struct Job {
    batch: Batch,
    durability: Durability,
}

/// A queued batch that the leader has taken.
type Member = write_queue::Member<Job, Result<()>>;

/// The threads to wake when the writer is released.
type Wakes = Vec<write_queue::Wake<Job, Result<()>>>;

thread_local! {
    static WAITER: Arc<Waiter<Job, Result<()>>> = Arc::default();
}

/// For a database whose log is open.
pub(crate) fn new_commit(writer: Writer) -> Commit {
    WriteQueue::new(writer, || Err(panicked("the thread that committed for this one")))
}

impl DbInner {
    /// The writer, if it is free and the queue is empty. Before a write without a sync also waits a moment for it; before a sync it is
    /// better to queue.
    #[inline]
    fn take_writer(&self, durability: Durability) -> Option<WriterGuard<'_>> {
        match durability {
            Durability::Sync => self.try_writer(),
            Durability::Buffered | Durability::Os => self.try_writer_briefly(),
        }
    }

    /// Inserts a commit after releasing the writer, and publishes it. If threads are queued, inserts first, and then commits the queued
    /// batches that demand no sync.
    #[inline]
    fn insert_and_let_go(
        &self,
        mut writer: WriterGuard<'_>,
        first_seq: Seq,
        last_seq: Seq,
        insert: impl FnOnce(),
    ) {
        let publishing = Publishing::new(self, first_seq, last_seq);
        if !self.commit.has_queue() {
            drop(writer);
            insert();
            return drop(publishing);
        }
        insert();
        drop(publishing);
        let members = self.commit.take_while(|job| job.durability != Durability::Sync);
        let wakes = self.commit_members(&mut writer, members);
        drop(writer);
        drop(wakes);
    }

    /// Admits a put, unless the reserve is spent.
    #[inline]
    fn admit(&self) -> Result<()> {
        match self.disk_reserve.is_spent() {
            false => Ok(()),
            // When writing has ended, return that error, not the full disk.
            true => self.check_running().and_then(|()| self.admit_on_full_disk()),
        }
    }

    /// Commits one put or delete. The record goes from the caller's bytes directly into the log's buffer and the memtable.
    pub(crate) fn write_one(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
        check_lengths(key, value)?;
        if kind == EntryKind::Put {
            self.admit()?;
        }
        // After the log append nothing may fail.
        let kept = match Memtable::lies_outside(value.len()) {
            true => keep_value(value)?,
            false => None,
        };
        let taken = match value.len() >= LARGE_LEN {
            // Queueing would copy the large value.
            true => Some(self.writer()),
            false => self.take_writer(durability),
        };
        let Some(mut writer) = taken else {
            let mut batch = Batch::default();
            batch.push(keyspace, kind, key, value);
            batch.kept.extend(kept);
            return self.commit_queued(batch, durability);
        };
        let deletes = kind == EntryKind::Delete;
        let logged = self.retry_after_freeing(deletes, || {
            self.log_one(&mut writer, keyspace, kind, key, value, durability)
        });
        let (seq, read_state) = logged?;
        let insert = || match kept {
            Some(kept) => read_state.memtable.insert_kept(key, Trailer::new(seq, kind), kept),
            None => read_state.memtable.insert(key, Trailer::new(seq, kind), value),
        };
        if planted(Bug::PublishBeforeInsert) {
            drop(writer);
            drop(Publishing::new(self, seq, seq));
            yield_now();
            insert();
            return Ok(());
        }
        self.insert_and_let_go(writer, seq, seq, insert);
        Ok(())
    }

    /// Commits a batch.
    pub(crate) fn write_batch(&self, mut batch: Batch, durability: Durability) -> Result<()> {
        if let Some(error) = batch.error {
            return Err(error);
        }
        if batch.is_empty() {
            return self.barrier(durability);
        }
        if planted(Bug::TearBatch) && batch.count > 1 {
            return self.write_torn(&batch, durability);
        }
        if batch.has_puts {
            self.admit()?;
        }
        batch.keep_values()?;
        let Some(mut writer) = self.take_writer(durability) else {
            return self.commit_queued(batch, durability);
        };
        let logged =
            self.retry_after_freeing(!batch.has_puts, || self.log_batch(&mut writer, &batch, durability));
        let first_seq = logged?;
        let last_seq = first_seq + batch.count - 1;
        self.insert_and_let_go(writer, first_seq, last_seq, || insert(&mut batch, first_seq));
        Ok(())
    }

    /// Gives all writes acknowledged before at least this durability; this is what a write without entries does.
    #[cold]
    pub(crate) fn barrier(&self, durability: Durability) -> Result<()> {
        self.check_running()?;
        self.check_process()?;
        if durability == Durability::Buffered {
            return Ok(());
        }
        let mut writer = self.writer();
        self.check_running()?;
        match durability {
            Durability::Sync => writer.sync_log(self),
            Durability::Buffered | Durability::Os => self.flush_log(&mut writer),
        }
    }

    /// [`Bug::TearBatch`].
    #[cold]
    fn write_torn(&self, batch: &Batch, durability: Durability) -> Result<()> {
        let mut entries = Entries::new(&batch.entries);
        while let Some(entry) = entries.next() {
            let keyspace = batch.keyspaces.iter().find(|(keyspace, _)| keyspace.id == entry.keyspace);
            let (keyspace, _) = keyspace.expect("push noted the keyspace");
            if entry.kind == EntryKind::DeleteRange {
                let mut batch = Batch::default();
                batch.push(keyspace, entry.kind, entry.key, entry.value);
                self.write_batch(batch, durability)?;
                continue;
            }
            self.write_one(keyspace, entry.kind, entry.key, entry.value, durability)?;
        }
        Ok(())
    }

    /// Appends one entry to the log, after reserving memory in the memtable of the returned read state.
    fn log_one(
        &self,
        writer: &mut Writer,
        keyspace: &Arc<KeyspaceInner>,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<(Seq, Guard<Arc<ReadState>>)> {
        self.check_running()?;
        keyspace.check_open()?;
        let user_bytes = (key.len() + value.len()) as u64;
        self.throttle(writer, user_bytes);
        self.keep_in_bounds(writer)?;
        let need = Memtable::entry_cost(key.len(), value.len());
        let mut read_state = keyspace.read_state.load();
        while !writer.reserve(keyspace, &read_state.memtable, need) {
            drop(read_state);
            self.make_room(writer, keyspace, need)?;
            read_state = keyspace.read_state.load();
        }
        self.establish_for(durability)?;
        let seq = writer.next_seq;
        writer.next_seq += 1;
        if kind == EntryKind::Put {
            keyspace.dead.note_put(key, seq);
        }
        writer.scratch.clear();
        put_batch_head(&mut writer.scratch, seq, 1);
        put_entry_head(&mut writer.scratch, kind, keyspace.id, key.len());
        let head = writer.scratch.len();
        let start = writer.log.len();
        let appended = match kind {
            EntryKind::DeleteRange => unreachable!("ranges are deleted by batches"),
            EntryKind::Put => {
                put_varint(&mut writer.scratch, value.len() as u64);
                let (head, value_len) = writer.scratch.split_at(head);
                self.append_to(&mut writer.log, &[head, key, value_len, value], false)
            }
            EntryKind::Delete => writer.log.append(&[&writer.scratch, key]),
        };
        let deletes = kind == EntryKind::Delete;
        let persisted = appended.and_then(|()| self.persist(writer, durability, deletes));
        self.settle_log(writer, start, seq, persisted)?;
        self.counters.note_writes(1, user_bytes);
        Ok((seq, read_state))
    }

    /// Reserves memory for a batch and appends it to the log. Returns the sequence number of its first entry.
    fn log_batch(&self, writer: &mut Writer, batch: &Batch, durability: Durability) -> Result<Seq> {
        self.check_running()?;
        self.throttle(writer, batch.user_bytes);
        self.keep_in_bounds(writer)?;
        while let Some((keyspace, need)) = self.reserve_batch(writer, batch)? {
            self.make_room(writer, &keyspace, need)?;
        }
        self.establish_for(durability)?;
        let start = writer.log.len();
        let (first_seq, appended) = self.append_batch(writer, batch);
        let persisted = appended.and_then(|()| self.persist(writer, durability, !batch.has_puts));
        self.settle_log(writer, start, first_seq, persisted)?;
        self.counters.note_writes(batch.count, batch.user_bytes);
        Ok(first_seq)
    }

    /// Appends a batch to the log under the next sequence numbers; returns the first of them.
    fn append_batch(&self, writer: &mut Writer, batch: &Batch) -> (Seq, Result<()>) {
        let first_seq = writer.next_seq;
        writer.next_seq += batch.count;
        batch.note_puts(writer.next_seq - 1);
        writer.scratch.clear();
        put_batch_head_of(&mut writer.scratch, batch.has_ranges, first_seq, batch.count);
        let parts: [&[u8]; 2] = [&writer.scratch, &batch.entries];
        (first_seq, self.append_to(&mut writer.log, &parts, !batch.has_puts))
    }

    /// Appends a record to the log. A large record is written to the file at once.
    #[inline]
    fn append_to(&self, log: &mut Log, record: &[&[u8]], deletes: bool) -> Result<()> {
        match record.iter().map(|part| part.len()).sum::<usize>() <= LARGE_LEN {
            true => log.append(record),
            false => self.check_process().and_then(|()| self.with_room(deletes, || log.append(record))),
        }
    }

    /// If what was appended from `start` on could not be persisted, rolls it back; its sequence numbers, from `first_seq` on, are not
    /// used again.
    #[inline]
    fn settle_log(
        &self,
        writer: &mut Writer,
        start: u64,
        first_seq: Seq,
        persisted: Result<()>,
    ) -> Result<()> {
        if persisted.is_err() {
            writer.log.rollback(start);
            self.visible.publish(first_seq, writer.next_seq - 1);
        }
        persisted
    }

    /// Before a write that is acknowledged as durable: establishes the log, so that its loss would be detected. Runs before anything is
    /// appended, so that an error leaves nothing to roll back.
    #[inline]
    fn establish_for(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Sync if !planted(Bug::AcknowledgeBeforeEstablished) => self.establish_log(),
            _ => Ok(()),
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
        self.with_room(deletes, || writer.log.flush())?;
        match durability {
            Durability::Buffered | Durability::Os => Ok(()),
            Durability::Sync if planted(Bug::AcknowledgeBeforeSync) => Ok(()),
            Durability::Sync => writer.sync(self),
        }
    }

    /// Hands data to the operating system, and retries when space was freed for it. `deletes`: may use the space of the reserve.
    #[inline]
    fn with_room(&self, deletes: bool, mut hand: impl FnMut() -> Result<()>) -> Result<()> {
        let handed = match hand() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.recycled.give_up() => hand(),
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

    /// Hands acknowledged, buffered log records to the operating system, if necessary with the space of the reserve.
    pub(crate) fn flush_log(&self, writer: &mut Writer) -> Result<()> {
        self.disk_reserve.retry_after_freeing(|| writer.log.flush()).map_err(|e| self.poison_on_sync_error(e))
    }

    /// Queues a batch and waits, or leads.
    fn commit_queued(&self, batch: Batch, durability: Durability) -> Result<()> {
        if let Some(error) = batch.error {
            return Err(error);
        }
        // In the destructor of a caller's thread-local this thread's waiter may already be destroyed.
        let waiter = WAITER.try_with(Arc::clone).unwrap_or_default();
        let job = Job { batch, durability };
        self.commit.queue(&waiter, job, |writer, members| self.commit_members(writer, members))
    }

    /// Commits the queued batches, as one group where memory allows. Returns the wakes of the last group.
    fn commit_members(&self, writer: &mut Writer, members: Vec<Member>) -> Wakes {
        let _watch = PanicGuard::new(self, "a writer");
        let mut ready: Vec<Member> = Vec::new();
        let mut bytes = 0;
        for member in members {
            let batch = &member.job.batch;
            match self.retry_after_freeing(!batch.has_puts, || self.make_ready(writer, batch, &mut ready)) {
                Ok(()) => {
                    bytes = if ready.is_empty() { 0 } else { bytes } + batch.user_bytes;
                    ready.push(member);
                    if bytes >= MAX_IN_GROUP {
                        // Woken now, so that they do not wait for the next group.
                        drop(self.commit_group(writer, std::mem::take(&mut ready)));
                    }
                }
                Err(e) => drop(member.done(Err(e))),
            }
        }
        self.commit_group(writer, ready)
    }

    /// Reserves memory for a batch. If a memtable has to be switched for it, the group so far is committed first: its reservations are in
    /// that memtable.
    fn make_ready(&self, writer: &mut Writer, batch: &Batch, ready: &mut Vec<Member>) -> Result<()> {
        self.check_running()?;
        self.throttle(writer, batch.user_bytes);
        if ready.is_empty() {
            self.keep_in_bounds(writer)?;
        }
        while let Some((keyspace, need)) = self.reserve_batch(writer, batch)? {
            drop(self.commit_group(writer, std::mem::take(ready)));
            self.make_room(writer, &keyspace, need)?;
        }
        Ok(())
    }

    /// Commits the members of a group with the highest durability among them, and inserts them. If the disk is too full for the group,
    /// only the batches without puts are committed.
    fn commit_group(&self, writer: &mut Writer, mut members: Vec<Member>) -> Wakes {
        let deletes = members.iter().all(|m| !m.job.batch.has_puts);
        let committed =
            self.retry_after_freeing(deletes, || self.log_and_insert(writer, &mut members, deletes));
        match committed {
            Err(e) if e.kind() == ErrorKind::NoSpace && !deletes => {
                let (puts, deletes): (Vec<_>, Vec<_>) =
                    members.into_iter().partition(|m| m.job.batch.has_puts);
                puts.into_iter().for_each(|member| drop(member.done(Err(e.clone()))));
                self.commit_group(writer, deletes)
            }
            committed => {
                let tell = |(i, member): (usize, Member)| match i > 0 && planted(Bug::FollowersSucceed) {
                    true => member.done(Ok(())),
                    false => member.done(committed.clone()),
                };
                members.into_iter().enumerate().map(tell).collect()
            }
        }
    }

    fn log_and_insert(&self, writer: &mut Writer, members: &mut [Member], deletes: bool) -> Result<()> {
        if members.is_empty() {
            return Ok(());
        }
        let durability = members.iter().map(|m| m.job.durability).max().unwrap_or(Durability::Os);
        self.establish_for(durability)?;
        let (start, first_seq) = (writer.log.len(), writer.next_seq);
        let mut seqs = Vec::with_capacity(members.len());
        let mut logged = Ok(());
        for member in members.iter() {
            let (seq, appended) = self.append_batch(writer, &member.job.batch);
            seqs.push(seq);
            logged = appended;
            if logged.is_err() {
                break;
            }
        }
        let persisted = logged.and_then(|()| self.persist(writer, durability, deletes));
        self.settle_log(writer, start, first_seq, persisted)?;
        let publishing = Publishing::new(self, first_seq, writer.next_seq - 1);
        members.iter_mut().zip(seqs).for_each(|(member, seq)| insert(&mut member.job.batch, seq));
        drop(publishing);
        let count = members.iter().map(|m| m.job.batch.count).sum();
        self.counters.note_writes(count, members.iter().map(|m| m.job.batch.user_bytes).sum());
        Ok(())
    }

    /// Reserves memory for a batch; if a memtable is full, returns that keyspace and the bytes needed.
    fn reserve_batch(
        &self,
        writer: &mut Writer,
        batch: &Batch,
    ) -> Result<Option<(Arc<KeyspaceInner>, usize)>> {
        self.check_running()?;
        batch.keyspaces.iter().try_for_each(|(keyspace, _)| keyspace.check_of(self.identity))?;
        // All or nothing: a reservation in one memtable would be lost if another one were switched.
        for (keyspace, need) in &batch.keyspaces {
            if *need > memtable::MAX_CAPACITY {
                return Err(Error::invalid(format!(
                    "the batch needs {need} bytes of memory in one keyspace"
                )));
            }
            if !keyspace.read_state.load().memtable.has_room(*need) {
                return Ok(Some((keyspace.clone(), *need)));
            }
        }
        for (keyspace, need) in &batch.keyspaces {
            let reserved = writer.reserve(keyspace, &keyspace.read_state.load().memtable, *need);
            debug_assert!(reserved, "only the leader reserves, and there was room");
        }
        Ok(None)
    }
}

/// Inserts a batch whose memory is reserved into the memtables of its keyspaces.
fn insert(batch: &mut Batch, first_seq: Seq) {
    let mut entries = Entries::new(&batch.entries);
    let views: Vec<_> =
        batch.keyspaces.iter().map(|(keyspace, _)| (keyspace.id, keyspace.read_state.load())).collect();
    let mut seq = first_seq;
    while !entries.is_empty() {
        let entry = entries.next().expect("a batch is well-formed: it was encoded by push");
        let (_, read_state) =
            views.iter().find(|(id, _)| *id == entry.keyspace).expect("push noted the keyspace");
        let outside = entry.kind == EntryKind::Put && Memtable::lies_outside(entry.value.len());
        match if outside { batch.kept.pop_front() } else { None } {
            Some(kept) => read_state.memtable.insert_kept(entry.key, Trailer::new(seq, entry.kind), kept),
            None => entry.insert(&read_state.memtable, seq),
        }
        seq += 1;
    }
}
