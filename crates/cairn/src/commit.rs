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
use crate::sync::{
    AtomicUsize, Condvar, Guard, Mutex, MutexGuard, Ordering, fence, spin_loop, thread_local, yield_now,
};
use base::codec::put_varint;
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, Result, Seq, Trailer};
use env::FileLock;
use memtable::Memtable;
use std::collections::VecDeque;
use std::sync::Arc;

/// `Buffered` writes are handed to the operating system when so many bytes have come together.
const BUFFER_LEN: usize = 64 << 10;

/// A model checker needs few looks: what matters is who looks when.
const CHECKED: bool = cfg!(any(loom, shuttle));

/// How often a writer looks whether it is its turn before it lets other threads run between looks: some microseconds.
const SPINS: u32 = if CHECKED { 1 } else { 200 };
/// How often it looks before it sleeps.
const LOOKS: u32 = if CHECKED { 2 } else { 400 };

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

/// The queue behind the leader.
pub(crate) struct Commit {
    pub writer: Mutex<Writer>,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
    queued: AtomicUsize,
}

/// A thread that waits for a leader to commit its batch.
struct Waiter {
    phase: Mutex<Phase>,
    wake: Condvar,
}

/// Where a waiting thread's batch is.
enum Phase {
    /// With nobody: this thread is not waiting.
    Idle,
    /// In the queue.
    Queued(Batch),
    /// In the queue, and nobody commits any more: this thread may lead.
    Lead(Batch),
    /// With the leader.
    Taken,
    /// Done with.
    Done(Result<()>),
}

/// A queued batch that the leader has taken.
struct Member {
    waiter: Arc<Waiter>,
    batch: Batch,
    first_seq: Seq,
}

thread_local! {
    static WAITER: Arc<Waiter> = Arc::new(Waiter { phase: Mutex::new(Phase::Idle), wake: Condvar::new() });
}

impl Waiter {
    fn set(&self, phase: Phase) {
        *self.phase.lock() = phase;
        self.wake.notify_one();
    }
}

impl Commit {
    pub(crate) fn new(log: Log, next_seq: Seq, lock: Box<dyn FileLock>) -> Commit {
        let writer = Writer {
            log,
            next_seq,
            lock: Some(lock),
            scratch: Vec::new(),
            active_bytes: 0,
            owed: 0,
            check_log_at: 0,
        };
        Commit { writer: Mutex::new(writer), queue: Mutex::default(), queued: AtomicUsize::new(0) }
    }

    /// The writer; for a `Sync` write only when it is free, and nobody queues for it.
    #[inline]
    fn take_writer(&self, durability: Durability) -> Option<MutexGuard<'_, Writer>> {
        match durability {
            Durability::Sync if self.queued.load(Ordering::SeqCst) > 0 => None,
            Durability::Sync => self.writer.try_lock(),
            Durability::Buffered | Durability::Os => Some(self.await_writer()),
        }
    }

    /// The writer. Whoever holds it commits in a microsecond, unless he syncs or makes room; to sleep and be woken takes many. So
    /// a writer looks again for a while, then lets other threads run between looks, and only then sleeps.
    #[inline]
    fn await_writer(&self) -> MutexGuard<'_, Writer> {
        for look in 0..LOOKS {
            if let Some(writer) = self.writer.try_lock() {
                return writer;
            }
            match look < SPINS {
                true => spin_loop(),
                false => yield_now(),
            }
        }
        self.writer.lock()
    }

    /// Makes the thread at the head of the queue the leader. To be called whenever the writer was let go: whoever queued while it
    /// was held relies on it.
    pub(crate) fn pass_on(&self) {
        // Pairs with the fence in `commit_queued`: either we see who queued, or he sees that the writer is free.
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::SeqCst) == 0 || planted(Bug::ForgetToPassOn) {
            return;
        }
        let queue = self.queue.lock();
        if let Some(waiter) = queue.front() {
            let mut phase = waiter.phase.lock();
            *phase = match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Queued(batch) => Phase::Lead(batch),
                other => other,
            };
            waiter.wake.notify_one();
        }
    }

    /// Ends everybody's waiting with an error.
    pub(crate) fn turn_away(&self, error: &Error) {
        if planted(Bug::CloseWithoutTurningAway) {
            return;
        }
        for member in self.take_queue() {
            member.waiter.set(Phase::Done(Err(error.clone())));
        }
    }

    fn take_queue(&self) -> Vec<Member> {
        let mut queue = self.queue.lock();
        self.queued.store(0, Ordering::SeqCst);
        let take = |waiter: Arc<Waiter>| {
            let phase = std::mem::replace(&mut *waiter.phase.lock(), Phase::Taken);
            match phase {
                Phase::Queued(batch) | Phase::Lead(batch) => Some(Member { waiter, batch, first_seq: 0 }),
                _ => None,
            }
        };
        queue.drain(..).filter_map(take).collect()
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
        let Some(mut writer) = self.commit.take_writer(durability) else {
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
        let Some(mut writer) = self.commit.take_writer(durability) else {
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
            self.publish(first_seq, writer.next_seq - 1);
        }
        persisted
    }

    /// Makes the commit with these sequence numbers visible, as soon as all older ones are.
    #[inline]
    fn publish(&self, first_seq: Seq, last_seq: Seq) {
        if !planted(Bug::PublishOutOfOrder) {
            self.await_visible(first_seq - 1);
        }
        self.visible.store(last_seq, Ordering::Release);
    }

    /// Waits until everything up to `seq` is visible. Those who have older sequence numbers are inserting: it takes
    /// microseconds.
    #[inline]
    pub(crate) fn await_visible(&self, seq: Seq) {
        let mut looks = 0;
        while self.visible.load(Ordering::Acquire) < seq {
            looks += 1;
            match looks < SPINS {
                true => spin_loop(),
                false => yield_now(),
            }
        }
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
            *waiter.phase.lock() = Phase::Queued(batch);
            {
                let mut queue = self.commit.queue.lock();
                queue.push_back(waiter.clone());
                self.commit.queued.store(queue.len(), Ordering::SeqCst);
            }
            fence(Ordering::SeqCst);
            self.try_to_lead();
            self.await_commit(waiter)
        })
    }

    fn await_commit(&self, waiter: &Waiter) -> Result<()> {
        let mut phase = waiter.phase.lock();
        loop {
            match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Done(result) => {
                    *phase = Phase::Idle;
                    return result;
                }
                Phase::Lead(batch) => {
                    *phase = Phase::Queued(batch);
                    drop(phase);
                    self.try_to_lead();
                    phase = waiter.phase.lock();
                }
                other => {
                    *phase = other;
                    waiter.wake.wait(&mut phase);
                }
            }
        }
    }

    /// Commits everything that is queued, if nobody else is committing: otherwise he passes the lead on when he lets go.
    fn try_to_lead(&self) {
        let Some(mut writer) = self.commit.writer.try_lock() else { return };
        let mut ready: Vec<Member> = Vec::new();
        for member in self.commit.take_queue() {
            match self.make_ready(&mut writer, &member.batch, &mut ready) {
                Ok(()) => ready.push(member),
                Err(e) => member.waiter.set(Phase::Done(Err(e))),
            }
        }
        self.commit_group(&mut writer, ready);
        drop(writer);
        self.commit.pass_on();
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
    fn commit_group(&self, writer: &mut Writer, mut members: Vec<Member>) {
        let Some(last) = members.len().checked_sub(1) else { return };
        let start = writer.log.len();
        let mut logged = Ok(());
        for member in &mut members {
            let (first_seq, appended) = writer.append(&member.batch);
            member.first_seq = first_seq;
            logged = logged.and(appended);
        }
        let persisted = logged.and_then(|()| self.persist(writer, Durability::Sync));
        let settled = self.settle_log(writer, start, members[0].first_seq, persisted);
        if settled.is_ok() {
            let last_seq = members[last].first_seq + members[last].batch.count - 1;
            let publishing = Publishing { core: self, first_seq: members[0].first_seq, last_seq };
            members.iter().for_each(|m| insert(&m.batch, m.first_seq));
            drop(publishing);
            let count = members.iter().map(|m| m.batch.count).sum();
            self.counters.note_writes(count, members.iter().map(|m| m.batch.user_bytes).sum());
        }
        for (i, member) in members.into_iter().enumerate() {
            let told = if i > 0 && planted(Bug::FollowersSucceed) { Ok(()) } else { settled.clone() };
            member.waiter.set(Phase::Done(told));
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
        self.core.publish(self.first_seq, self.last_seq);
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
