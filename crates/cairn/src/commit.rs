//! Committing: how writes become durable, ordered and visible.
//!
//! One thread at a time holds the [`Writer`]. While it does, it sets memory aside, gives its batch the next sequence numbers,
//! appends it to the log and takes the log as far as the durability asks. Then it lets go, inserts into the memtable beside
//! the others who do, and makes its batch visible when all older ones are: so the order in the log, the order of sequence
//! numbers and the order of visibility are the same, and a reader sees all of a batch or nothing.
//!
//! A sync takes a thousand times longer than the rest. So `Sync` writes that find the writer taken queue, and the next one of
//! them to get hold of it, the *leader*, commits all that queue as one group, with one sync. Every member inserts its own batch.
//! (Queueing for all writes was tried: putting a thread to sleep and waking it takes ten times as long as a commit without
//! a sync, and two writers together were slower than one alone.)
//!
//! A memtable is switched only by who holds the writer, and only when everything that has a sequence number is inserted. So
//! what is in a memtable that is being flushed is visible.

use crate::Durability;
use crate::batch::{Batch, check_lengths};
use crate::core::Core;
use crate::keyspace::{KeyspaceCore, View};
use crate::log::{Entries, Log, put_batch_head, put_entry_head};
use crate::sync::{Guard, MutexGuard, Ordering, thread_local, yield_now};
use crate::turn::{self, Turn, Waiter};
use base::codec::put_varint;
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, Result, Seq, Trailer};
use env::FileLock;
use memtable::Memtable;
use std::sync::Arc;

/// `Buffered` writes are handed to the operating system when so many bytes have come together.
const BUFFER_LEN: usize = 64 << 10;

/// What whoever commits holds.
pub(crate) struct Writer {
    pub log: Log,
    pub next_seq: Seq,
    /// Held until the database is closed.
    pub lock: Option<Box<dyn FileLock>>,
    scratch: Vec<u8>,
    /// Bytes reserved in active memtables, over all keyspaces.
    pub active_bytes: u64,
    /// Time that writers owe to compaction, in nanoseconds.
    pub owed: u64,
    /// Length of the current log at which to look at the length of all logs again.
    pub check_log_at: u64,
}

/// The writer, and `Sync` batches that queue for it.
pub(crate) type Commit = Turn<Writer, Batch, Result<()>>;

/// A queued batch that the leader has taken.
type Member = turn::Member<Batch, Result<()>>;

thread_local! {
    static WAITER: Arc<Waiter<Batch, Result<()>>> = Arc::default();
}

/// For a database whose log is open.
pub(crate) fn new_commit(log: Log, next_seq: Seq, lock: Box<dyn FileLock>) -> Commit {
    Turn::new(Writer {
        log,
        next_seq,
        lock: Some(lock),
        scratch: Vec::new(),
        active_bytes: 0,
        owed: 0,
        check_log_at: 0,
    })
}

/// The writer; for a `Sync` write only when it is free, and nobody queues for it.
#[inline]
fn take_writer(commit: &Commit, durability: Durability) -> Option<MutexGuard<'_, Writer>> {
    match durability {
        Durability::Sync => commit.try_now(),
        Durability::Buffered | Durability::Os => Some(commit.wait()),
    }
}

impl Writer {
    /// Makes everything that was acknowledged durable. An error ends all writing.
    pub(crate) fn sync_log(&mut self, core: &Core) -> Result<()> {
        core.check_process()?;
        self.log.flush().map_err(|e| core.judge(e))?;
        match self.log.sync() {
            Err(e) if planted(Bug::GoOnAfterFailedSync) => Err(e),
            synced => synced.map_err(|e| core.stop(&e)),
        }
    }

    /// A keyspace is dropped: its memtable no longer counts.
    pub(crate) fn forget(&mut self, keyspace: &KeyspaceCore) {
        let reserved = keyspace.reserved.swap(0, Ordering::Relaxed);
        self.active_bytes = self.active_bytes.saturating_sub(reserved);
    }

    /// Appends a batch to the log's buffer under the next sequence numbers, of which it gives the first.
    fn append(&mut self, batch: &Batch) -> (Seq, Result<()>) {
        let first_seq = self.next_seq;
        self.next_seq += batch.count;
        self.scratch.clear();
        put_batch_head(&mut self.scratch, first_seq, batch.count);
        (first_seq, self.log.append(&[&self.scratch, &batch.entries]))
    }

    fn reserve(&mut self, keyspace: &KeyspaceCore, memtable: &Memtable, bytes: usize) -> bool {
        let fits = memtable.reserve(bytes);
        if fits {
            let reserved = keyspace.reserved.load(Ordering::Relaxed) + bytes as u64;
            keyspace.reserved.store(reserved, Ordering::Relaxed);
            self.active_bytes += bytes as u64;
        }
        fits
    }
}

impl Core {
    /// Commits one put or delete. The record goes from the caller's bytes straight into the log's buffer and the memtable.
    pub(crate) fn write_one(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
        check_lengths(key, value)?;
        let Some(mut writer) = take_writer(&self.commit, durability) else {
            let mut batch = Batch::default();
            batch.push(keyspace, kind, key, value);
            return self.commit_queued(batch);
        };
        let logged = self.log_one(&mut writer, keyspace, kind, key, value, durability);
        drop(writer);
        self.commit.pass_on();
        let (seq, view) = logged?;
        let publishing = Publishing { core: self, first_seq: seq, last_seq: seq };
        if planted(Bug::PublishBeforeInsert) {
            drop(publishing);
            yield_now();
            view.memtable.insert(key, Trailer::new(seq, kind), value);
            return Ok(());
        }
        view.memtable.insert(key, Trailer::new(seq, kind), value);
        drop(publishing);
        Ok(())
    }

    /// Commits a batch.
    pub(crate) fn write_batch(&self, batch: Batch, durability: Durability) -> Result<()> {
        if let Some(error) = batch.error {
            return Err(error);
        }
        if batch.is_empty() {
            return self.check_running();
        }
        if planted(Bug::TearBatch) && batch.count > 1 {
            return self.write_torn(&batch, durability);
        }
        let Some(mut writer) = take_writer(&self.commit, durability) else {
            return self.commit_queued(batch);
        };
        let logged = self.log_batch(&mut writer, &batch, durability);
        drop(writer);
        self.commit.pass_on();
        let first_seq = logged?;
        let _publishing = Publishing { core: self, first_seq, last_seq: first_seq + batch.count - 1 };
        insert(&batch, first_seq);
        Ok(())
    }

    /// [`Bug::TearBatch`].
    #[cold]
    fn write_torn(&self, batch: &Batch, durability: Durability) -> Result<()> {
        let mut entries = Entries::new(&batch.entries);
        while let Some(entry) = entries.next() {
            let keyspace = batch.keyspaces.iter().find(|(keyspace, _)| keyspace.id == entry.keyspace);
            let (keyspace, _) = keyspace.expect("push noted the keyspace");
            self.write_one(keyspace, entry.kind, entry.key, entry.value, durability)?;
        }
        Ok(())
    }

    /// Appends one entry to the log, with memory for it set aside in the memtable of the view that it gives.
    fn log_one(
        &self,
        writer: &mut Writer,
        keyspace: &Arc<KeyspaceCore>,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<(Seq, Guard<Arc<View>>)> {
        self.check_running()?;
        keyspace.check_open()?;
        let user_bytes = (key.len() + value.len()) as u64;
        self.pace(writer, user_bytes);
        self.keep_in_bounds(writer)?;
        let need = Memtable::entry_cost(key.len(), value.len());
        let mut view = keyspace.view.load();
        while !writer.reserve(keyspace, &view.memtable, need) {
            drop(view);
            self.make_room(writer, keyspace, need)?;
            view = keyspace.view.load();
        }
        let seq = writer.next_seq;
        writer.next_seq += 1;
        writer.scratch.clear();
        put_batch_head(&mut writer.scratch, seq, 1);
        put_entry_head(&mut writer.scratch, kind, keyspace.id, key.len());
        let head = writer.scratch.len();
        let start = writer.log.len();
        let appended = match kind {
            EntryKind::Put => {
                put_varint(&mut writer.scratch, value.len() as u64);
                let (head, value_len) = writer.scratch.split_at(head);
                writer.log.append(&[head, key, value_len, value])
            }
            EntryKind::Delete => writer.log.append(&[&writer.scratch, key]),
        };
        let persisted = appended.and_then(|()| self.persist(writer, durability));
        self.settle_log(writer, start, seq, persisted)?;
        self.counters.note_writes(1, user_bytes);
        Ok((seq, view))
    }

    /// Appends a batch to the log, with memory for it set aside. Gives the sequence number of its first entry.
    fn log_batch(&self, writer: &mut Writer, batch: &Batch, durability: Durability) -> Result<Seq> {
        self.check_running()?;
        self.pace(writer, batch.user_bytes);
        self.keep_in_bounds(writer)?;
        while let Some((keyspace, need)) = self.reserve_batch(writer, batch)? {
            self.make_room(writer, &keyspace, need)?;
        }
        let start = writer.log.len();
        let (first_seq, appended) = writer.append(batch);
        let persisted = appended.and_then(|()| self.persist(writer, durability));
        self.settle_log(writer, start, first_seq, persisted)?;
        self.counters.note_writes(batch.count, batch.user_bytes);
        Ok(first_seq)
    }

    /// When what was appended from `start` on could not be persisted, takes it back; its sequence numbers, from `first_seq` on,
    /// are not used again.
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

    /// Takes what was appended as far as the durability asks.
    #[inline]
    fn persist(&self, writer: &mut Writer, durability: Durability) -> Result<()> {
        match durability {
            Durability::Buffered if writer.log.buffered() < BUFFER_LEN => Ok(()),
            Durability::Buffered | Durability::Os => {
                self.check_process()?;
                writer.log.flush().map_err(|e| self.judge(e))
            }
            Durability::Sync if planted(Bug::AcknowledgeBeforeSync) => writer.log.flush(),
            Durability::Sync => writer.sync_log(self),
        }
    }

    /// Queues a `Sync` batch and waits, or leads.
    fn commit_queued(&self, batch: Batch) -> Result<()> {
        if let Some(error) = batch.error {
            return Err(error);
        }
        WAITER.with(|waiter| {
            self.commit.queue(waiter, batch, |writer, members| self.commit_members(writer, members))
        })
    }

    /// Commits everything that was queued, as one group where memory allows.
    fn commit_members(&self, writer: &mut Writer, members: Vec<Member>) {
        let mut ready: Vec<Member> = Vec::new();
        for member in members {
            match self.make_ready(writer, &member.job, &mut ready) {
                Ok(()) => ready.push(member),
                Err(e) => member.done(Err(e)),
            }
        }
        self.commit_group(writer, ready);
    }

    /// Sets memory aside for a batch. Where a memtable has to be switched for it, the group so far is committed first: what it had
    /// set aside is in that memtable.
    fn make_ready(&self, writer: &mut Writer, batch: &Batch, ready: &mut Vec<Member>) -> Result<()> {
        self.check_running()?;
        if ready.is_empty() {
            self.keep_in_bounds(writer)?;
        }
        while let Some((keyspace, need)) = self.reserve_batch(writer, batch)? {
            self.commit_group(writer, std::mem::take(ready));
            self.make_room(writer, &keyspace, need)?;
        }
        Ok(())
    }

    /// Commits the members of a group with one sync, and inserts them: beside the sync that is nothing.
    fn commit_group(&self, writer: &mut Writer, members: Vec<Member>) {
        if members.is_empty() {
            return;
        }
        let (start, first_seq) = (writer.log.len(), writer.next_seq);
        let mut seqs = Vec::with_capacity(members.len());
        let mut logged = Ok(());
        for member in &members {
            let (seq, appended) = writer.append(&member.job);
            seqs.push(seq);
            logged = logged.and(appended);
        }
        let persisted = logged.and_then(|()| self.persist(writer, Durability::Sync));
        let settled = self.settle_log(writer, start, first_seq, persisted);
        if settled.is_ok() {
            let publishing = Publishing { core: self, first_seq, last_seq: writer.next_seq - 1 };
            members.iter().zip(seqs).for_each(|(member, seq)| insert(&member.job, seq));
            drop(publishing);
            let count = members.iter().map(|m| m.job.count).sum();
            self.counters.note_writes(count, members.iter().map(|m| m.job.user_bytes).sum());
        }
        for (i, member) in members.into_iter().enumerate() {
            let told = if i > 0 && planted(Bug::FollowersSucceed) { Ok(()) } else { settled.clone() };
            member.done(told);
        }
    }

    /// Sets memory aside for a batch; when a memtable has none left, says which, and how much is needed.
    fn reserve_batch(
        &self,
        writer: &mut Writer,
        batch: &Batch,
    ) -> Result<Option<(Arc<KeyspaceCore>, usize)>> {
        self.check_running()?;
        batch.keyspaces.iter().try_for_each(|(keyspace, _)| keyspace.check_of(self.identity))?;
        // All or nothing: a part set aside in one memtable would be lost when another one is switched.
        for (keyspace, need) in &batch.keyspaces {
            if *need > memtable::MAX_CAPACITY {
                return Err(Error::invalid(format!(
                    "the batch needs {need} bytes of memory in one keyspace"
                )));
            }
            if !keyspace.view.load().memtable.has_room(*need) {
                return Ok(Some((keyspace.clone(), *need)));
            }
        }
        for (keyspace, need) in &batch.keyspaces {
            let reserved = writer.reserve(keyspace, &keyspace.view.load().memtable, *need);
            debug_assert!(reserved, "only the leader reserves, and there was room");
        }
        Ok(None)
    }
}

/// Publishes a commit when its insertion ends, however it ends: those who come after it wait for it. A panic, which only a bug
/// can cause, ends all writing.
struct Publishing<'a> {
    core: &'a Core,
    first_seq: Seq,
    last_seq: Seq,
}

impl Drop for Publishing<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.core.stop(&Error::new(ErrorKind::ReadOnly, "a writer panicked"));
        }
        self.core.visible.publish(self.first_seq, self.last_seq);
    }
}

/// Inserts a batch whose memory is reserved into the memtables of its keyspaces.
fn insert(batch: &Batch, first_seq: Seq) {
    let mut entries = Entries::new(&batch.entries);
    let views: Vec<_> =
        batch.keyspaces.iter().map(|(keyspace, _)| (keyspace.id, keyspace.view.load())).collect();
    let mut seq = first_seq;
    while !entries.is_empty() {
        let entry = entries.next().expect("a batch is well-formed: it was encoded by push");
        let (_, view) = views.iter().find(|(id, _)| *id == entry.keyspace).expect("push noted the keyspace");
        view.memtable.insert(entry.key, Trailer::new(seq, entry.kind), entry.value);
        seq += 1;
    }
}
