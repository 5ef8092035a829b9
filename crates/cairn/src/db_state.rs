//! What the one lock of a database guards: its keyspaces, what of them waits to be flushed, and which may be due for a compaction.
//!
//! There may be very many keyspaces, of which most have nothing in memory and nothing to do. So nothing that happens often looks at
//! all of them: those with something in memory, those that wait for a flush, those that may be due, and those whose compaction is
//! behind are noted here as they change.

use crate::keyspace::{KeyspaceInner, ReadState};
use base::{Error, Seq};
use memtable::Memtable;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use tree::Tree;

/// A keyspace as the background work sees it.
pub(crate) struct KeyspaceState {
    pub core: Arc<KeyspaceInner>,
    pub tree: Tree,
    /// Memtables to be flushed, oldest first.
    pub flushing: VecDeque<ImmutableMemtable>,
    /// Whether a flush is running.
    pub busy: bool,
    /// Under which debt it is in [`State::due`], if it is.
    due: Option<Debt>,
}

/// A memtable that is no longer written to.
#[derive(Clone)]
pub(crate) struct ImmutableMemtable {
    pub memtable: Arc<Memtable>,
    /// The newest sequence number that had been given out when it was sealed: other keyspaces may have parts of the same
    /// batches up to here.
    pub last_seq: Seq,
    /// The oldest sequence number in it.
    pub min_seq: Option<Seq>,
    /// Bytes of memory that it takes.
    pub bytes: u64,
}

impl ImmutableMemtable {
    pub(crate) fn new(memtable: Arc<Memtable>, last_seq: Seq) -> ImmutableMemtable {
        let (min_seq, bytes) = (memtable.min_seq(), memtable.used_bytes() as u64 + memtable::BASE_BYTES);
        ImmutableMemtable { memtable, last_seq, min_seq, bytes }
    }
}

/// A tree's debt in thousandths, as the order of [`State::due`] has it: the largest first.
type Debt = std::cmp::Reverse<u64>;

/// How many of the oldest waiting memtables of some keyspaces count as flushed, by the keyspace's number.
pub(crate) type FlushedCounts = HashMap<u64, usize>;

/// In the place of such a number: all of the keyspace counts as flushed, its memtable included.
pub(crate) const FLUSHED_ALL: usize = usize::MAX;

/// What is guarded by the database's one lock. It is held for moments only: never over I/O, never over a merge.
#[derive(Default)]
pub(crate) struct State {
    /// Added to and removed from by [`State::insert`] and [`State::remove`].
    pub keyspaces: BTreeMap<u64, KeyspaceState>,
    names: HashMap<String, u64>,
    pub next_keyspace: u64,
    /// Flushes and compactions that are running.
    pub jobs: usize,
    /// The flushes among them.
    pub flushes: usize,
    /// The newest flush failed in a way that may pass: what writers that wait for it are told.
    pub flush_trouble: Option<Error>,
    /// The same of the newest compaction.
    pub compaction_trouble: Option<Error>,
    /// Keyspaces with a memtable of their own, or with some to be flushed. All others have nothing in memory.
    dirty: BTreeSet<u64>,
    /// Keyspaces with memtables to be flushed.
    waiting: BTreeSet<u64>,
    /// Closed logs are there that no keyspace needs, and no flush is on its way that would free them.
    pub logs_to_free: bool,
    /// Keyspaces that may be due for a compaction, the one with the largest debt first: all that have changed since they were last
    /// found not to be.
    due: BTreeSet<(Debt, u64)>,
    /// Debts that are not zero.
    debts: HashMap<u64, f64>,
    /// Under what some were found not to be due.
    looked: NotDueContext,
    /// Those of which cursors may keep something from being due, with the number at which the oldest of these reads.
    held: HashMap<u64, Seq>,
    /// Bytes of all memtables to be flushed.
    pub waiting_bytes: u64,
}

/// What plans depend on beside the tree: a context at which a keyspace is looked at.
#[derive(Clone, Copy)]
pub(crate) struct PickContext {
    /// The oldest snapshot.
    pub oldest: Option<Seq>,
    /// Whether writes have paused, or nearly so.
    pub at_rest: bool,
    /// Bytes that are left on the disk, when it is nearly full.
    pub room: Option<u64>,
}

/// NotDueContext at which keyspaces were found not to be due, taken together.
struct NotDueContext {
    oldest: Seq,
    /// One at which the database was not at rest.
    busy: bool,
    /// One at which the disk was nearly full.
    tight: bool,
}

impl Default for NotDueContext {
    fn default() -> NotDueContext {
        NotDueContext { oldest: Seq::MAX, busy: false, tight: false }
    }
}

impl NotDueContext {
    fn add(&mut self, context: &PickContext) {
        self.oldest = self.oldest.min(context.oldest.unwrap_or(Seq::MAX));
        self.busy |= !context.at_rest;
        self.tight |= context.room.is_some();
    }

    /// Whether what was not due then may be due now, though nothing of its own has changed.
    fn are_outdated(&self, now: &PickContext) -> bool {
        now.oldest.unwrap_or(Seq::MAX) > self.oldest || (now.at_rest && self.busy) || self.tight
    }
}

impl State {
    pub(crate) fn new(next_keyspace: u64) -> State {
        State { next_keyspace, ..State::default() }
    }

    /// What keeps the background work from being done at present, if anything.
    pub(crate) fn trouble(&self) -> Option<Error> {
        self.flush_trouble.clone().or_else(|| self.compaction_trouble.clone())
    }

    /// The same, or damage that some compaction met and that is still there.
    pub(crate) fn trouble_or_damage(&self) -> Option<Error> {
        self.trouble().or_else(|| self.keyspaces.values().find_map(|k| k.damage(&[], None)))
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&KeyspaceState> {
        self.names.get(name).map(|id| &self.keyspaces[id])
    }

    pub(crate) fn insert(&mut self, keyspace: KeyspaceState) {
        let id = keyspace.core.id;
        self.names.insert(keyspace.core.name.clone(), id);
        if !keyspace.flushing.is_empty() {
            self.waiting_bytes += keyspace.flushing.iter().map(|sealed| sealed.bytes).sum::<u64>();
            self.waiting.insert(id);
            self.dirty.insert(id);
        }
        self.keyspaces.insert(id, keyspace);
        self.note_change(id);
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<KeyspaceState> {
        let keyspace = self.keyspaces.remove(&id)?;
        self.names.remove(&keyspace.core.name);
        self.waiting_bytes -= keyspace.flushing.iter().map(|sealed| sealed.bytes).sum::<u64>();
        self.dirty.remove(&id);
        self.waiting.remove(&id);
        self.debts.remove(&id);
        self.held.remove(&id);
        if let Some(debt) = keyspace.due {
            self.due.remove(&(debt, id));
        }
        Some(keyspace)
    }

    /// Keyspaces that have, or may have, something in memory.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = &KeyspaceState> {
        self.dirty.iter().map(|id| &self.keyspaces[id])
    }

    /// Keyspaces with memtables to be flushed.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &KeyspaceState> {
        self.waiting.iter().map(|id| &self.keyspaces[id])
    }

    /// Whether there is something to flush that no flush has taken yet.
    pub(crate) fn has_flush_work(&self) -> bool {
        self.logs_to_free || self.waiting().any(|k| !k.busy)
    }

    /// The oldest sequence number that is in memtables only, over all keyspaces, with `flushed` left out.
    pub(crate) fn oldest_unflushed(&self, flushed: &FlushedCounts) -> Option<Seq> {
        self.dirty().filter_map(|k| k.oldest_unflushed(flushed.get(&k.core.id).copied().unwrap_or(0))).min()
    }

    /// The oldest sequence number in memtables that are written to.
    pub(crate) fn oldest_active(&self) -> Option<Seq> {
        self.dirty().filter_map(|k| k.core.read_state.load().memtable.min_seq()).min()
    }

    /// Puts another memtable in front of a keyspace's readers. One that is given up with entries in it waits to be flushed.
    pub(crate) fn switch(&mut self, id: u64, memtable: Arc<Memtable>, sealed: Option<ImmutableMemtable>) {
        let Some(k) = self.keyspaces.get_mut(&id) else { return };
        if let Some(sealed) = sealed {
            self.waiting_bytes += sealed.bytes;
            k.flushing.push_back(sealed);
            self.waiting.insert(id);
        }
        match memtable.capacity() == 0 && k.flushing.is_empty() {
            true => self.dirty.remove(&id),
            false => self.dirty.insert(id),
        };
        k.publish(memtable);
    }

    /// Takes memtables off that are flushed, the `count` oldest ones.
    pub(crate) fn take_flushed(&mut self, id: u64, count: usize) -> Vec<ImmutableMemtable> {
        let Some(k) = self.keyspaces.get_mut(&id) else { return Vec::new() };
        let flushed: Vec<ImmutableMemtable> = k.flushing.drain(..count).collect();
        self.waiting_bytes -= flushed.iter().map(|sealed| sealed.bytes).sum::<u64>();
        let active = k.core.read_state.load().memtable.clone();
        if k.flushing.is_empty() {
            self.waiting.remove(&id);
            if active.capacity() == 0 {
                self.dirty.remove(&id);
            }
        }
        k.publish(active);
        flushed
    }

    /// A tree, or what runs on it, or what readers have paid for it, has changed: it may be due.
    pub(crate) fn note_change(&mut self, id: u64) {
        let Some(k) = self.keyspaces.get_mut(&id) else { return };
        self.held.remove(&id);
        let debt = k.tree.debt();
        match debt > 0.0 {
            true => _ = self.debts.insert(id, debt),
            false => _ = self.debts.remove(&id),
        }
        let new = std::cmp::Reverse((debt * 1000.0) as u64);
        // A tree without tables has nothing to compact.
        let wanted = (k.tree.version().tables().next().is_some()).then_some(new);
        if k.due != wanted {
            if let Some(old) = k.due.take() {
                self.due.remove(&(old, id));
            }
            k.due = wanted;
            self.due.extend(wanted.map(|debt| (debt, id)));
        }
    }

    /// The most urgent keyspace that may be due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(_, id)| *id)
    }

    /// Has all keyspaces looked at again, if what their plans depend on has changed since they were last. Whether it has.
    pub(crate) fn look_again(&mut self, now: &PickContext) -> bool {
        let outdated = self.looked.are_outdated(now);
        if outdated {
            self.note_all();
        }
        outdated
    }

    /// All keyspaces may be due.
    pub(crate) fn note_all(&mut self) {
        self.looked = NotDueContext::default();
        let ids: Vec<u64> = self.keyspaces.keys().copied().collect();
        ids.into_iter().for_each(|id| self.note_change(id));
    }

    /// A keyspace is not due, until something changes.
    /// `cursor`: the number at which the oldest cursor reads, where that is older than any snapshot.
    pub(crate) fn not_due(&mut self, id: u64, context: &PickContext, cursor: Option<Seq>) {
        self.looked.add(context);
        self.held.extend(cursor.map(|seq| (id, seq)));
        if let Some(k) = self.keyspaces.get_mut(&id)
            && let Some(debt) = k.due.take()
        {
            self.due.remove(&(debt, id));
        }
    }

    /// Keyspaces that were not due while a cursor read as of a number.
    pub(crate) fn held_by_cursors(&self) -> impl Iterator<Item = (&Arc<KeyspaceInner>, Seq)> {
        self.held.iter().map(|(id, seq)| (&self.keyspaces[id].core, *seq))
    }

    /// The largest debt of any tree.
    pub(crate) fn largest_debt(&self) -> f64 {
        self.debts.values().copied().fold(0.0, f64::max)
    }
}

impl KeyspaceState {
    pub(crate) fn new(core: Arc<KeyspaceInner>, tree: Tree) -> KeyspaceState {
        KeyspaceState { core, tree, flushing: VecDeque::new(), busy: false, due: None }
    }

    /// What some compaction met that could not read a table, which is still there: one with keys in `[from, to)`, or else any that
    /// may be in the way of the others.
    pub(crate) fn damage(&self, from: &[u8], to: Option<&[u8]>) -> Option<Error> {
        let tables = self.tree.version().tables().map(|(_, t)| t);
        let (inside, outside): (Vec<_>, Vec<_>) =
            tables.filter(|t| t.is_unreadable()).partition(|t| t.overlaps_range(from, to));
        inside.iter().chain(&outside).find_map(|t| t.damage())
    }

    /// The oldest sequence number in the memtables, leaving out the `skip` oldest of those to be flushed.
    pub(crate) fn oldest_unflushed(&self, skip: usize) -> Option<Seq> {
        if skip == FLUSHED_ALL {
            return None;
        }
        let read_state = self.core.read_state.load();
        let flushing = self.flushing.iter().skip(skip).filter_map(|s| s.min_seq);
        flushing.chain(read_state.memtable.min_seq()).min()
    }

    /// Puts what the trees and memtables are now in front of the readers.
    pub(crate) fn publish(&self, memtable: Arc<Memtable>) {
        let flushing = self.flushing.iter().rev().map(|s| s.memtable.clone()).collect();
        self.core.read_state.store(Arc::new(ReadState {
            memtable,
            flushing,
            version: self.tree.version().clone(),
        }));
    }
}
