//! The state behind the database lock: the keyspaces, their memtables that wait for a flush, and the trees that may be due for a
//! compaction.
//!
//! A database may have very many keyspaces, most of them with empty memtables and no work due. So frequent operations never scan all of
//! them: the keyspaces with data in memory, with waiting flushes, with possible compactions and with compaction debt are kept in sets
//! that are updated when they change.

use super::keyspace_inner::KeyspaceInner;
use super::read_state::ReadState;
use super::settings::Settings;
use crate::sync::{AtomicU64, Ordering};
use crate::types::Options;
use base::{Error, ErrorKind, Result, Seq, Time};
use memtable::Memtable;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use tree::{Space, Tree};

/// A keyspace and its background work.
pub(crate) struct KeyspaceState {
    pub inner: Arc<KeyspaceInner>,
    pub tree: Tree,
    /// Memtables to be flushed, oldest first.
    pub immutable: VecDeque<ImmutableMemtable>,
    /// Whether a flush of this keyspace is running.
    pub flushing: bool,
    /// The number of the last flush of this keyspace.
    pub flush_number: u64,
    /// The key under which the keyspace is in [`State::due`], if it is.
    due: Option<Debt>,
    /// The same for [`State::expires`].
    expires: Option<Time>,
}

/// A memtable that no longer accepts writes.
#[derive(Clone)]
pub(crate) struct ImmutableMemtable {
    pub memtable: Arc<Memtable>,
    /// The newest sequence number given out when the memtable was sealed: batches up to it may have entries in other keyspaces, too.
    pub last_seq: Seq,
}

impl ImmutableMemtable {
    /// Memory that it uses, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.memtable.memory()
    }
}

fn bytes_of<'a>(memtables: impl IntoIterator<Item = &'a ImmutableMemtable>) -> u64 {
    memtables.into_iter().map(ImmutableMemtable::bytes).sum()
}

fn used(space: Space) -> u128 {
    u128::from(space.live) + u128::from(space.reclaimable)
}

/// The sums of [`Space`] over all trees.
#[derive(Clone, Copy, Default)]
struct SpaceSum {
    used: u128,
    target: u128,
}

/// The debt of space when `used` bytes would be `target` or less if compactions and collections kept up: 1, where writers begin to be slowed,
/// at twice the target; 3 at two and a half times. At most 4: then writers get 18 us for each KiB, and compactions still rest for reads.
fn space_debt(used: u128, target: u128) -> f64 {
    (1.0 + 4.0 * (used as f64 / target.max(1) as f64 - 2.0)).clamp(0.0, 4.0)
}

/// Compaction debt in thousandths, in the order of [`State::due`]: largest first.
type Debt = std::cmp::Reverse<u64>;

/// By keyspace number: how many of its oldest waiting memtables count as flushed.
pub(crate) type FlushedCounts = HashMap<u64, usize>;

/// Instead of such a count: everything in the keyspace counts as flushed, the active memtable included.
pub(crate) const FLUSHED_ALL: usize = usize::MAX;

/// The state behind the database lock. The lock is held briefly: never during I/O or a merge.
#[derive(Default)]
pub(crate) struct State {
    /// Changed only by [`State::insert`] and [`State::remove`].
    pub keyspaces: BTreeMap<u64, KeyspaceState>,
    names: HashMap<String, u64>,
    pub next_keyspace: u64,
    /// Running flushes and compactions.
    pub jobs: usize,
    /// A collection is running.
    pub collecting: bool,
    /// The number of the last collection.
    pub collection_number: u64,
    /// Running flushes.
    pub flushes: usize,
    /// The number of the last flush.
    pub flush_number: u64,
    /// The error of the newest flush, if it may be temporary: writers that wait for a flush get it.
    pub flush_error: Option<Error>,
    /// The same for the newest compaction.
    pub compaction_error: Option<Error>,
    /// The same for the newest collection.
    pub collection_error: Option<Error>,
    /// Keyspaces that have a memtable of their own, or immutable ones. All others have nothing in memory.
    dirty: BTreeSet<u64>,
    /// Keyspaces with immutable memtables.
    waiting: BTreeSet<u64>,
    /// Closed logs exist that no keyspace needs, and no running flush will remove them.
    pub logs_to_free: bool,
    /// Keyspaces that may be due for a compaction, largest debt first: all that have changed since they were last found not due.
    due: BTreeSet<(Debt, u64)>,
    /// Nonzero debts.
    debts: HashMap<u64, f64>,
    /// How much compactions of each tree could free, when it was last looked at, and the sums over all.
    spaces: HashMap<u64, Space>,
    space: SpaceSum,
    not_due_context: NotDueContext,
    /// When versions of keyspaces expire that are not due before.
    expires: BTreeSet<(Time, u64)>,
    /// Keyspaces in which cursors may prevent a compaction, with the oldest sequence number that these read at.
    held: HashMap<u64, Seq>,
    /// Bytes of all immutable memtables. Changed only under the lock of this state.
    pub waiting_bytes: Arc<AtomicU64>,
}

/// The inputs of compaction picking that are not part of the tree.
#[derive(Clone, Copy)]
pub(crate) struct PickContext {
    /// The oldest snapshot.
    pub oldest: Option<Seq>,
    /// Whether writes have nearly or entirely paused.
    pub idle: bool,
    /// Free bytes on the disk, when it is nearly full.
    pub free_space: Option<u64>,
    /// The present time.
    pub now: Time,
}

/// What may have kept keyspaces from being due, beside cursors: the union over all that were found not due.
#[derive(Default)]
struct NotDueContext {
    /// The oldest snapshot.
    oldest: Option<Seq>,
    /// Some keyspace was looked at while the database was not idle.
    not_idle: bool,
    /// Some keyspace was looked at while the disk was nearly full.
    low_space: bool,
}

impl State {
    pub(crate) fn new(next_keyspace: u64, waiting_bytes: Arc<AtomicU64>) -> State {
        State { next_keyspace, waiting_bytes, ..State::default() }
    }

    /// The error that prevents background work at present, if any.
    pub(crate) fn background_error(&self) -> Option<Error> {
        let errors = [&self.flush_error, &self.compaction_error, &self.collection_error];
        errors.into_iter().flatten().next().cloned()
    }

    /// [`State::background_error`], or damage that a compaction found and that is still present.
    pub(crate) fn error_or_damage(&self) -> Option<Error> {
        self.background_error().or_else(|| self.keyspaces.values().find_map(|k| k.damage(&[], None)))
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&KeyspaceState> {
        self.names.get(name).map(|id| &self.keyspaces[id])
    }

    /// An error if a keyspace has this name.
    pub(crate) fn check_free(&self, name: &str) -> Result<()> {
        match self.by_name(name) {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::AlreadyExists, format!("keyspace {name:?} exists already"))),
        }
    }

    pub(crate) fn insert(&mut self, keyspace: KeyspaceState) {
        let id = keyspace.inner.id;
        if !keyspace.inner.is_historical() {
            self.names.insert(keyspace.inner.name(), id);
        }
        if !keyspace.immutable.is_empty() {
            self.waiting_bytes.fetch_add(bytes_of(&keyspace.immutable), Ordering::Relaxed);
            self.waiting.insert(id);
            self.dirty.insert(id);
        }
        self.keyspaces.insert(id, keyspace);
        self.note_change(id);
    }

    /// Gives a keyspace other settings, and its tree their options: a name that no other keyspace has.
    pub(crate) fn alter(&mut self, database: &Options, keyspace: &KeyspaceInner, settings: Settings) {
        let id = keyspace.id;
        if !keyspace.is_historical() {
            self.names.remove(&keyspace.name());
            self.names.insert(settings.name.clone(), id);
        }
        keyspace.set_settings(database, settings);
        if let Some(state) = self.keyspaces.get_mut(&id) {
            state.tree.set_options(keyspace.tree_options());
        }
        self.note_change(id);
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<KeyspaceState> {
        let keyspace = self.keyspaces.remove(&id)?;
        if !keyspace.inner.is_historical() {
            self.names.remove(&keyspace.inner.name());
        }
        self.waiting_bytes.fetch_sub(bytes_of(&keyspace.immutable), Ordering::Relaxed);
        self.dirty.remove(&id);
        self.waiting.remove(&id);
        self.debts.remove(&id);
        self.note_space(id, Space::default());
        self.spaces.remove(&id);
        self.held.remove(&id);
        if let Some(time) = keyspace.expires {
            self.expires.remove(&(time, id));
        }
        if let Some(debt) = keyspace.due {
            self.due.remove(&(debt, id));
        }
        Some(keyspace)
    }

    /// Keyspaces that have, or may have, data in memory.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = &KeyspaceState> {
        self.dirty.iter().map(|id| &self.keyspaces[id])
    }

    /// Keyspaces with immutable memtables.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &KeyspaceState> {
        self.waiting.iter().map(|id| &self.keyspaces[id])
    }

    /// Whether there is flush work that no flush has taken yet.
    pub(crate) fn has_flush_work(&self) -> bool {
        self.logs_to_free || self.waiting().any(|k| !k.flushing)
    }

    /// The oldest sequence number that is only in memtables, over all keyspaces, without those in `flushed`.
    pub(crate) fn oldest_unflushed(&self, flushed: &FlushedCounts) -> Option<Seq> {
        self.dirty().filter_map(|k| k.oldest_unflushed(flushed.get(&k.inner.id).copied().unwrap_or(0))).min()
    }

    /// The oldest sequence number in active memtables.
    pub(crate) fn oldest_active(&self) -> Option<Seq> {
        self.dirty().filter_map(|k| k.inner.read_state.load().memtable.min_seq()).min()
    }

    /// Replaces the active memtable of a keyspace. `sealed`: the old one, if it has entries; it waits for a flush.
    pub(crate) fn replace_memtable(
        &mut self,
        id: u64,
        memtable: Arc<Memtable>,
        sealed: Option<ImmutableMemtable>,
    ) {
        let Some(k) = self.keyspaces.get_mut(&id) else { return };
        if let Some(sealed) = sealed {
            self.waiting_bytes.fetch_add(sealed.bytes(), Ordering::Relaxed);
            k.immutable.push_back(sealed);
            self.waiting.insert(id);
        }
        match memtable.capacity() == 0 && k.immutable.is_empty() {
            true => self.dirty.remove(&id),
            false => self.dirty.insert(id),
        };
        k.publish(memtable);
    }

    /// Removes the `count` oldest immutable memtables, which are flushed.
    pub(crate) fn take_flushed(&mut self, id: u64, count: usize) -> Vec<ImmutableMemtable> {
        let Some(k) = self.keyspaces.get_mut(&id) else { return Vec::new() };
        let flushed: Vec<ImmutableMemtable> = k.immutable.drain(..count).collect();
        self.waiting_bytes.fetch_sub(bytes_of(&flushed), Ordering::Relaxed);
        let active = k.inner.read_state.load().memtable.clone();
        if k.immutable.is_empty() {
            self.waiting.remove(&id);
            if active.capacity() == 0 {
                self.dirty.remove(&id);
            }
        }
        k.publish(active);
        flushed
    }

    /// Called when a tree, its running compactions or its read charges have changed: the tree may be due.
    pub(crate) fn note_change(&mut self, id: u64) {
        let Some(k) = self.keyspaces.get_mut(&id) else { return };
        self.held.remove(&id);
        if let Some(time) = k.expires.take() {
            self.expires.remove(&(time, id));
        }
        let debt = k.tree.debt();
        match debt > 0.0 {
            true => _ = self.debts.insert(id, debt),
            false => _ = self.debts.remove(&id),
        }
        let new = std::cmp::Reverse((debt * 1000.0) as u64);
        let is_empty = k.tree.version().tables().next().is_none();
        // An empty tree has nothing to compact.
        let wanted = (!is_empty).then_some(new);
        if k.due != wanted {
            if let Some(old) = k.due.take() {
                self.due.remove(&(old, id));
            }
            k.due = wanted;
            self.due.extend(wanted.map(|debt| (debt, id)));
        }
        if is_empty {
            self.note_space(id, Space::default());
        }
    }

    /// The keyspace with the largest debt among those that may be due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(_, id)| *id)
    }

    /// Marks keyspaces as possibly due that may be due in the context `now` without a change of their own: all if snapshots, writes or disk
    /// space kept some from being due and no longer do, or if the disk is full, when other plans are due; otherwise those whose cursors did,
    /// and those of which versions expire. Returns whether there are any.
    pub(crate) fn recheck(
        &mut self,
        now: &PickContext,
        oldest_reader: impl Fn(&KeyspaceInner) -> Option<Seq>,
    ) -> bool {
        let NotDueContext { oldest, not_idle, low_space } = self.not_due_context;
        let released = oldest.is_some_and(|seq| now.oldest.is_none_or(|now| now > seq));
        if released || (now.idle && not_idle) || low_space || now.free_space.is_some() {
            self.note_all();
            return true;
        }
        let is_released = |(id, seq): &(&u64, &Seq)| oldest_reader(&self.keyspaces[id].inner) != Some(**seq);
        let released = self.held.iter().filter(is_released).map(|(id, _)| *id);
        let expired = self.expires.iter().take_while(|(time, _)| *time <= now.now).map(|(_, id)| *id);
        let due: Vec<u64> = released.chain(expired).collect();
        due.iter().for_each(|&id| self.note_change(id));
        !due.is_empty()
    }

    /// Marks all keyspaces as possibly due.
    pub(crate) fn note_all(&mut self) {
        self.not_due_context = NotDueContext::default();
        let ids: Vec<u64> = self.keyspaces.keys().copied().collect();
        ids.into_iter().for_each(|id| self.note_change(id));
    }

    /// Marks a keyspace as not due until something changes. `cursor`: the sequence number of the oldest cursor, if that is older than
    /// every snapshot. `expires`: the time at which versions expire.
    pub(crate) fn not_due(
        &mut self,
        id: u64,
        context: &PickContext,
        cursor: Option<Seq>,
        expires: Option<Time>,
    ) {
        let all = &mut self.not_due_context;
        all.oldest = all.oldest.into_iter().chain(context.oldest).min();
        all.not_idle |= !context.idle;
        all.low_space |= context.free_space.is_some();
        self.held.extend(cursor.map(|seq| (id, seq)));
        let Some(k) = self.keyspaces.get_mut(&id) else { return };
        if let Some(debt) = k.due.take() {
            self.due.remove(&(debt, id));
        }
        if let Some(time) = std::mem::replace(&mut k.expires, expires) {
            self.expires.remove(&(time, id));
        }
        self.expires.extend(expires.map(|time| (time, id)));
    }

    /// Notes how much compactions of a tree could free.
    pub(crate) fn note_space(&mut self, id: u64, space: Space) {
        let before = self.spaces.insert(id, space).unwrap_or_default();
        let sum = &mut self.space;
        sum.used = sum.used - used(before) + used(space);
        sum.target = sum.target - u128::from(before.target) + u128::from(space.target);
    }

    /// The largest [`HashLog::pressure`](super::HashLog::pressure) of all keyspaces without order.
    pub(crate) fn index_pressure(&self) -> f64 {
        let logs = self.keyspaces.values().filter_map(|k| k.inner.hash_log.as_ref());
        logs.map(|log| log.pressure()).fold(0.0, f64::max)
    }

    /// The largest compaction debt of all trees, or the debt of space of all of them together. `dead_values`: bytes of values that collections
    /// could free. `spare`: bytes beyond the target that are no reason to slow writers, however small the database is.
    pub(crate) fn largest_debt(&self, dead_values: u64, spare: u64) -> f64 {
        // Not before all trees are known: the dead values may belong to the others.
        let of_space = match self.spaces.len() < self.keyspaces.len() {
            true => 0.0,
            false => {
                let SpaceSum { used, target } = self.space;
                space_debt(used + u128::from(dead_values), target + u128::from(spare))
            }
        };
        self.debts.values().copied().fold(of_space, f64::max)
    }
}

impl KeyspaceState {
    pub(crate) fn new(inner: Arc<KeyspaceInner>, tree: Tree) -> KeyspaceState {
        KeyspaceState {
            inner,
            tree,
            immutable: VecDeque::new(),
            flushing: false,
            flush_number: 0,
            due: None,
            expires: None,
        }
    }

    /// The error of a table that a compaction could not read and that is still in use: first one with keys in `[from, to)`, otherwise any
    /// that may obstruct other compactions.
    pub(crate) fn damage(&self, from: &[u8], to: Option<&[u8]>) -> Option<Error> {
        let tables = self.tree.version().tables().map(|(_, t)| t);
        let (inside, outside): (Vec<_>, Vec<_>) =
            tables.filter(|t| t.damage.is_unreadable()).partition(|t| t.overlaps_range(from, to));
        inside.iter().chain(&outside).find_map(|t| t.damage.first())
    }

    /// The oldest sequence number in the memtables, without the `skip` oldest immutable ones.
    pub(crate) fn oldest_unflushed(&self, skip: usize) -> Option<Seq> {
        if skip == FLUSHED_ALL {
            return None;
        }
        let read_state = self.inner.read_state.load();
        let immutable = self.immutable.iter().skip(skip).filter_map(|s| s.memtable.min_seq());
        immutable.chain(read_state.memtable.min_seq()).min()
    }

    /// Publishes the present tree and memtables as the read state.
    pub(crate) fn publish(&self, memtable: Arc<Memtable>) {
        let immutable = self.immutable.iter().rev().map(|s| s.memtable.clone()).collect();
        self.inner.read_state.store(Arc::new(ReadState {
            memtable,
            immutable,
            version: self.tree.version().clone(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_its_end_make_keyspaces_due_that_were_not() {
        let mut state = State::new(1, Arc::default());
        let with = |free_space| PickContext { oldest: None, idle: true, free_space, now: Time::MIN };
        assert!(!state.recheck(&with(None), |_| None));
        assert!(state.recheck(&with(Some(1 << 20)), |_| None), "other plans are due now");
        state.not_due(1, &with(Some(1 << 20)), None, None);
        assert!(state.recheck(&with(None), |_| None), "plans that did not fit may fit");
        assert!(!state.recheck(&with(None), |_| None));
    }

    #[test]
    fn space_beyond_twice_the_target_is_debt_of_all_trees_together() {
        assert_eq!([0, 150, 200, 250, 1000].map(|used| space_debt(used, 100)), [0.0, 0.0, 1.0, 3.0, 4.0]);
        let mut state = State::new(1, Arc::default());
        let space = |live, reclaimable| Space { live, reclaimable, target: 2 * live };
        state.note_space(1, space(100, 450));
        assert_eq!((state.largest_debt(0, 0), state.largest_debt(50, 0)), (4.0, 4.0));
        // Another tree has room: 1,050 bytes of a target of 400.
        state.note_space(2, space(100, 400));
        assert_eq!((state.largest_debt(0, 0), state.largest_debt(0, 325)), (3.5, 0.0));
        state.note_space(1, space(100, 0));
        assert_eq!((state.largest_debt(0, 0), state.largest_debt(300, 0)), (0.0, 2.0));
        // Everything is deleted, and the files of the values are not yet removed.
        state.note_space(1, Space::default());
        state.note_space(2, Space::default());
        assert_eq!((state.largest_debt(500, 0), state.largest_debt(500, 250)), (4.0, 1.0));
    }
}
