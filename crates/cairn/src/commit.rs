//! Committing: how writes become durable, ordered and visible.
//!
//! One thread at a time is the *leader*: it holds the [`Writer`]. A thread that finds it free leads at once; the others queue
//! their batch and wait. The leader takes all that is queued as one *group*: it sets memory aside for each, gives out
//! sequence numbers, appends all to the log with one write (and one sync if any of them asks for it), lets every member
//! insert its own batch into the memtables in parallel, and then makes the whole group visible at once. So the order in the log,
//! the order of sequence numbers and the order of visibility are the same, and a reader sees all of a batch or nothing.
//!
//! A memtable is switched only between groups, by the leader. So what is in a memtable that is being flushed is visible.

use crate::Durability;
use crate::batch::{Batch, check_lengths};
use crate::core::Core;
use crate::keyspace::KeyspaceCore;
use crate::log::{Entries, Log, put_batch_head, put_entry_head};
use base::codec::put_varint;
use base::{EntryKind, Error, ErrorKind, Result, Seq, Trailer};
use env::FileLock;
use memtable::Memtable;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// `Buffered` writes are handed to the operating system when so many bytes have come together.
const BUFFER_LEN: usize = 64 << 10;

/// How often a writer looks whether it may lead before it queues: some microseconds.
const SPINS: u32 = 200;

/// What the leader holds.
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
    Queued(Batch, Durability),
    /// With the leader.
    Taken,
    /// Nobody leads any more: this thread may.
    Lead(Batch, Durability),
    /// In the log: this thread is to insert it.
    Insert(Batch, Seq, Arc<Group>),
    /// Done with.
    Done(Batch, Result<()>),
}

/// A group whose members are inserting.
struct Group {
    left: AtomicUsize,
    leader: std::thread::Thread,
}

struct Member {
    waiter: Arc<Waiter>,
    batch: Batch,
    durability: Durability,
    first_seq: Seq,
}

thread_local! {
    static WAITER: Arc<Waiter> = Arc::new(Waiter { phase: Mutex::new(Phase::Idle), wake: Condvar::new() });
    static SPARE_BATCH: RefCell<Batch> = RefCell::default();
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

    /// Makes the thread at the head of the queue the leader. To be called whenever the writer was let go: whoever queued while it
    /// was held relies on it.
    pub(crate) fn pass_on(&self) {
        // Pairs with the fence in `commit_batch`: either we see who queued, or he sees that the writer is free.
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::SeqCst) == 0 {
            return;
        }
        let queue = self.queue.lock();
        if let Some(waiter) = queue.front() {
            let mut phase = waiter.phase.lock();
            *phase = match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Queued(batch, durability) => Phase::Lead(batch, durability),
                other => other,
            };
            waiter.wake.notify_one();
        }
    }

    /// The writer, if it is free soon and nobody queues for it. A commit takes about a microsecond, going to sleep and being woken
    /// takes many: so it is worth looking a few times.
    #[inline]
    fn try_lead(&self) -> Option<MutexGuard<'_, Writer>> {
        for _ in 0..SPINS {
            if self.queued.load(Ordering::SeqCst) > 0 {
                return None;
            }
            if let Some(writer) = self.writer.try_lock() {
                return Some(writer);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Ends everybody's waiting with an error.
    pub(crate) fn turn_away(&self, error: &Error) {
        for (waiter, batch, _) in self.take_queue() {
            waiter.set(Phase::Done(batch, Err(error.clone())));
        }
    }

    fn take_queue(&self) -> Vec<(Arc<Waiter>, Batch, Durability)> {
        let mut queue = self.queue.lock();
        self.queued.store(0, Ordering::SeqCst);
        let waiters = queue.drain(..);
        waiters
            .filter_map(|waiter| {
                let phase = std::mem::replace(&mut *waiter.phase.lock(), Phase::Taken);
                match phase {
                    Phase::Queued(batch, durability) | Phase::Lead(batch, durability) => {
                        Some((waiter, batch, durability))
                    }
                    _ => None,
                }
            })
            .collect()
    }
}

impl Writer {
    /// Makes everything that was acknowledged durable. An error ends all writing.
    pub(crate) fn sync_log(&mut self, core: &Core) -> Result<()> {
        core.check_process()?;
        self.log.flush().map_err(|e| core.judge(e))?;
        self.log.sync().map_err(|e| core.stop(&e))
    }

    /// A keyspace is dropped: its memtable no longer counts.
    pub(crate) fn forget(&mut self, keyspace: &KeyspaceCore) {
        let reserved = keyspace.reserved.swap(0, Ordering::Relaxed);
        self.active_bytes = self.active_bytes.saturating_sub(reserved);
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
    /// Commits one put or delete. When nobody else writes, the record goes from the caller's bytes straight into the log's
    /// buffer and into the memtable.
    pub(crate) fn write_one(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
        check_lengths(key, value)?;
        if let Some(mut writer) = self.commit.try_lead() {
            let result = self.commit_one(&mut writer, keyspace, kind, key, value, durability);
            drop(writer);
            self.commit.pass_on();
            return result;
        }
        let mut batch = SPARE_BATCH.take();
        batch.push(keyspace, kind, key, value);
        let (mut batch, result) = self.commit_batch(batch, durability);
        if batch.entries.capacity() <= BUFFER_LEN {
            batch.clear();
            SPARE_BATCH.set(batch);
        }
        result
    }

    /// Commits a batch.
    pub(crate) fn write_batch(&self, batch: Batch, durability: Durability) -> Result<()> {
        if let Some(error) = batch.error {
            return Err(error);
        }
        if batch.is_empty() {
            return self.check_running();
        }
        self.commit_batch(batch, durability).1
    }

    fn commit_one(
        &self,
        writer: &mut Writer,
        keyspace: &Arc<KeyspaceCore>,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<()> {
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
        appended
            .and_then(|()| self.persist(writer, durability))
            .inspect_err(|_| writer.log.rollback(start))?;
        view.memtable.insert(key, Trailer::new(seq, kind), value);
        self.visible.store(seq, Ordering::Release);
        self.counters.note_writes(1, user_bytes);
        Ok(())
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
            Durability::Sync => writer.sync_log(self),
        }
    }

    /// Queues a batch and waits, or leads.
    fn commit_batch(&self, batch: Batch, durability: Durability) -> (Batch, Result<()>) {
        WAITER.with(|waiter| {
            *waiter.phase.lock() = Phase::Queued(batch, durability);
            {
                let mut queue = self.commit.queue.lock();
                queue.push_back(waiter.clone());
                self.commit.queued.store(queue.len(), Ordering::SeqCst);
            }
            fence(Ordering::SeqCst);
            if let Some(writer) = self.commit.writer.try_lock() {
                self.lead(writer);
            }
            self.await_commit(waiter)
        })
    }

    fn await_commit(&self, waiter: &Arc<Waiter>) -> (Batch, Result<()>) {
        let mut phase = waiter.phase.lock();
        loop {
            match std::mem::replace(&mut *phase, Phase::Taken) {
                Phase::Done(batch, result) => {
                    *phase = Phase::Idle;
                    return (batch, result);
                }
                Phase::Insert(batch, first_seq, group) => {
                    drop(phase);
                    self.insert(&batch, first_seq);
                    *waiter.phase.lock() = Phase::Queued(batch, Durability::Buffered);
                    if group.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        group.leader.unpark();
                    }
                    phase = waiter.phase.lock();
                }
                Phase::Lead(batch, durability) => {
                    *phase = Phase::Queued(batch, durability);
                    drop(phase);
                    // Where somebody else leads by now, he may have taken this batch already, and then waits for us to
                    // insert it: so never block here. When he lets go he passes the lead on again.
                    if let Some(writer) = self.commit.writer.try_lock() {
                        self.lead(writer);
                    }
                    phase = waiter.phase.lock();
                }
                other => {
                    *phase = other;
                    waiter.wake.wait(&mut phase);
                }
            }
        }
    }

    /// Commits everything that is queued, then lets the next thread lead.
    fn lead(&self, mut writer: MutexGuard<'_, Writer>) {
        let mut ready: Vec<Member> = Vec::new();
        let bounded = self.check_running().and_then(|()| self.keep_in_bounds(&mut writer));
        for (waiter, batch, durability) in self.commit.take_queue() {
            if let Err(e) = &bounded {
                waiter.set(Phase::Done(batch, Err(e.clone())));
                continue;
            }
            loop {
                match self.reserve_batch(&mut writer, &batch) {
                    Ok(None) => {
                        ready.push(Member { waiter, batch, durability, first_seq: 0 });
                        break;
                    }
                    // The group so far goes first: what it reserved is in the memtable that is to be switched.
                    Ok(Some((keyspace, need))) => {
                        self.commit_group(&mut writer, std::mem::take(&mut ready));
                        if let Err(e) = self.make_room(&mut writer, &keyspace, need) {
                            waiter.set(Phase::Done(batch, Err(e)));
                            break;
                        }
                    }
                    Err(e) => {
                        waiter.set(Phase::Done(batch, Err(e)));
                        break;
                    }
                }
            }
        }
        self.commit_group(&mut writer, ready);
        drop(writer);
        self.commit.pass_on();
    }

    /// Sets memory aside for a batch; when a memtable has none left, says which, and how much is needed.
    fn reserve_batch(
        &self,
        writer: &mut Writer,
        batch: &Batch,
    ) -> Result<Option<(Arc<KeyspaceCore>, usize)>> {
        self.check_running()?;
        batch.keyspaces.iter().try_for_each(|(keyspace, _)| keyspace.check_of(self.identity))?;
        self.pace(writer, batch.user_bytes);
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

    fn commit_group(&self, writer: &mut Writer, mut members: Vec<Member>) {
        if members.is_empty() {
            return;
        }
        let start = writer.log.len();
        let mut durability = Durability::Buffered;
        let mut logged = Ok(());
        for member in &mut members {
            member.first_seq = writer.next_seq;
            writer.next_seq += member.batch.count;
            durability = durability.max(member.durability);
            writer.scratch.clear();
            put_batch_head(&mut writer.scratch, member.first_seq, member.batch.count);
            logged = logged.and_then(|()| writer.log.append(&[&writer.scratch, &member.batch.entries]));
        }
        if let Err(e) = logged.and_then(|()| self.persist(writer, durability)) {
            writer.log.rollback(start);
            for member in members {
                member.waiter.set(Phase::Done(member.batch, Err(e.clone())));
            }
            return;
        }
        let count: u64 = members.iter().map(|m| m.batch.count).sum();
        let user_bytes: u64 = members.iter().map(|m| m.batch.user_bytes).sum();
        let waiters = self.insert_group(members);
        self.visible.store(writer.next_seq - 1, Ordering::Release);
        self.counters.note_writes(count, user_bytes);
        for waiter in waiters {
            let mut phase = waiter.phase.lock();
            if let Phase::Queued(batch, _) = std::mem::replace(&mut *phase, Phase::Taken) {
                *phase = Phase::Done(batch, Ok(()));
            }
            waiter.wake.notify_one();
        }
    }

    /// Has every member insert its batch, this thread its own, and waits for all. Every waiter then holds its batch again.
    fn insert_group(&self, members: Vec<Member>) -> Vec<Arc<Waiter>> {
        let group = Arc::new(Group { left: AtomicUsize::new(members.len()), leader: std::thread::current() });
        let mut waiters = Vec::with_capacity(members.len());
        let mut own = None;
        for Member { waiter, batch, first_seq, .. } in members {
            waiters.push(waiter.clone());
            match WAITER.with(|mine| Arc::ptr_eq(mine, &waiter)) {
                true => own = Some((waiter, batch, first_seq)),
                false => waiter.set(Phase::Insert(batch, first_seq, group.clone())),
            }
        }
        if let Some((waiter, batch, first_seq)) = own {
            self.insert(&batch, first_seq);
            *waiter.phase.lock() = Phase::Queued(batch, Durability::Buffered);
            group.left.fetch_sub(1, Ordering::AcqRel);
        }
        while group.left.load(Ordering::Acquire) > 0 {
            std::thread::park();
        }
        waiters
    }
}

impl Core {
    /// Inserts a batch that is in the log. A panic here, which only a bug can cause, must not leave the rest of the group waiting:
    /// it ends all writing.
    fn insert(&self, batch: &Batch, first_seq: Seq) {
        let inserted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| insert(batch, first_seq)));
        if inserted.is_err() {
            self.stop(&Error::new(ErrorKind::ReadOnly, "a writer panicked"));
        }
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
