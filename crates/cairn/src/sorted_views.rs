//! Sorted views of guards: when they are built and dropped, and their share of the memory budget.
//!
//! Seeks in a guard without a view charge it (`tree::ReadCharges`). When a view is due, a compaction thread that has no compaction to run
//! builds it, with no lock held: one sequential read of the guard. A database without threads builds it where it runs other background work
//! ([`DbInner::run_pending`]). A view is dropped with its guard. Where there is no room for a new view, views are dropped that no seek has
//! used since the last time. If all are in use, the new view is not built, and its charges begin at 0 again.
//!
//! Views take up to a quarter of the budget of the block cache, which shrinks accordingly.

use crate::db_inner::DbInner;
use crate::keyspace::KeyspaceInner;
use crate::stats::ViewStats;
use crate::sync::{Mutex, Ordering};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use table::BlockCache;
use tree::{Built, Guard, SortedView};

/// Views may take this fraction of the block cache: one in four.
const SHARE: u64 = 4;
/// About the memory of a view per entry, and per table (its first block and anchor), in bytes.
const ENTRY_BYTES: u64 = 6;
const TABLE_BYTES: u64 = 256;

/// The views of a database.
pub(crate) struct Views {
    cache: Arc<BlockCache>,
    /// Guards with a view, and its memory. No other lock is taken under this one.
    members: Mutex<Vec<Member>>,
    /// Guards for which a view is due.
    due: Mutex<Vec<(Arc<KeyspaceInner>, Weak<Guard>)>>,
    built: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
}

struct Member {
    guard: Weak<Guard>,
    bytes: u64,
}

fn sum(members: &[Member]) -> u64 {
    members.iter().map(|m| m.bytes).sum()
}

impl Views {
    pub(crate) fn new(cache: Arc<BlockCache>) -> Views {
        let (due, built, refused, dropped) = Default::default();
        Views { cache, members: Mutex::new(Vec::new()), due, built, refused, dropped }
    }

    fn max_bytes(&self) -> u64 {
        self.cache.capacity() / SHARE
    }

    /// Notes the guards of a keyspace for which a view is due because of reads.
    pub(crate) fn note_due(&self, keyspace: &Arc<KeyspaceInner>) {
        let due = keyspace.charges.due_views(&keyspace.read_state.load().version);
        let mut all = self.due.lock();
        all.retain(|(other, _)| !Arc::ptr_eq(other, keyspace));
        all.extend(due.iter().map(|guard| (keyspace.clone(), Arc::downgrade(guard))));
    }

    fn next_due(&self) -> Option<(Arc<KeyspaceInner>, Arc<Guard>)> {
        let mut due = self.due.lock();
        std::iter::from_fn(|| due.pop()).find_map(|(keyspace, guard)| Some((keyspace, guard.upgrade()?)))
    }

    /// Bytes that a view of `guard` may take, if that is likely to be enough. May drop other views for it.
    fn room_for(&self, guard: &Guard) -> Option<u64> {
        let expected = guard.tables.iter().map(|t| ENTRY_BYTES * t.meta.entries + TABLE_BYTES).sum::<u64>();
        let mut members = self.members.lock();
        members.retain(|m| m.guard.strong_count() > 0);
        let mut free = self.max_bytes().saturating_sub(sum(&members));
        if free < expected && expected <= self.max_bytes() {
            let idle = |m: &Member| m.guard.upgrade().is_none_or(|guard| !guard.take_view_used());
            let idle: Vec<bool> = members.iter().map(idle).collect();
            let gain: u64 = members.iter().zip(&idle).filter(|(_, idle)| **idle).map(|(m, _)| m.bytes).sum();
            // No view is dropped in vain: it would be built again.
            let enough = free + gain >= expected;
            let mut idle = idle.into_iter();
            members.retain(|m| {
                if idle.next() != Some(true) || !enough || free >= expected {
                    return true;
                }
                if let Some(guard) = m.guard.upgrade() {
                    guard.set_view(None);
                }
                self.dropped.fetch_add(1, Relaxed);
                free += m.bytes;
                false
            });
        }
        self.cache.reserve_budget(sum(&members));
        (free >= expected).then_some(free)
    }

    /// Installs a view that was built, if there is still room for it.
    fn admit(&self, guard: &Arc<Guard>, view: SortedView) {
        let bytes = view.bytes();
        let mut members = self.members.lock();
        if sum(&members) + bytes > self.max_bytes() {
            return self.refuse(guard);
        }
        guard.set_view(Some(Arc::new(view)));
        members.push(Member { guard: Arc::downgrade(guard), bytes });
        self.cache.reserve_budget(sum(&members));
        self.built.fetch_add(1, Relaxed);
    }

    /// There is no room: it is tried again when seeks have charged the guard as much again.
    fn refuse(&self, guard: &Guard) {
        self.refused.fetch_add(1, Relaxed);
        guard.set_view(None);
    }

    /// Returns the memory of views whose guards are gone to the block cache.
    pub(crate) fn prune(&self) {
        let mut members = self.members.lock();
        let before = members.len();
        members.retain(|m| m.guard.strong_count() > 0);
        if members.len() < before {
            self.cache.reserve_budget(sum(&members));
        }
    }

    pub(crate) fn stats(&self) -> ViewStats {
        let members = self.members.lock();
        ViewStats {
            count: members.len(),
            bytes: sum(&members),
            built: self.built.load(Relaxed),
            refused: self.refused.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }
}

/// Whether the guard belongs to the current version of the keyspace.
fn is_current(keyspace: &KeyspaceInner, guard: &Arc<Guard>) -> bool {
    let view = keyspace.read_state.load_full();
    view.version.levels.iter().any(|level| Arc::ptr_eq(&level.guards[level.find(&guard.key)], guard))
}

impl DbInner {
    /// Builds a view that is due. Returns whether one was.
    pub(crate) fn build_next_view(&self) -> bool {
        let (keyspace, guard) = {
            let mut state = self.state.lock();
            let Some(found) = self.views.next_due() else { return false };
            state.jobs += 1;
            found
        };
        self.build_view(&keyspace, &guard);
        drop(guard);
        self.state.lock().jobs -= 1;
        self.progress.notify_all();
        true
    }

    fn build_view(&self, keyspace: &KeyspaceInner, guard: &Arc<Guard>) {
        if guard.view().is_some() || guard.is_damaged() || !is_current(keyspace, guard) {
            return;
        }
        let views = &self.views;
        let mut abandoned = || self.closed.load(Ordering::Acquire) || !is_current(keyspace, guard);
        let built = match views.room_for(guard) {
            Some(room) => tree::build_view(guard, room, &mut abandoned),
            None => Ok(Built::TooLarge),
        };
        match built {
            Ok(Built::SortedView(view)) => views.admit(guard, view),
            Ok(Built::TooLarge) => views.refuse(guard),
            Ok(Built::Abandoned) => {}
            // Only reads that need the damaged block fail.
            Err(e) => {
                guard.set_view(None);
                tracing::warn!(error = %e, keyspace = keyspace.name, "a view was not built");
            }
        }
    }
}
