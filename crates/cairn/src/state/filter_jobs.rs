//! Compactions with a filter, and what readers that begin beside one do: they keep the state that they have found.
//!
//! A filter changes entries without a new sequence number. So a compaction asks it only about entries that no reader sees; but readers begin
//! while the compaction runs, and see these entries until it is installed. Such a reader keeps the read state that it has found, memtables
//! included, until it ends, instead of loading newer ones as others do.
//!
//! ```text
//!   reader       hold a number;  then: does a filter run? then keep the read state
//!   compaction   it runs;  then list the readers; ...; install;  it no longer runs
//! ```
//!
//! So the compaction finds the reader in the list, or the reader finds the compaction.

use super::read_state::ReadState;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use base::planted::{Bug, planted};
use std::sync::Arc;
use tree::CompactionFilter;

/// A keyspace with a filter.
pub(crate) trait Filtered: Send + Sync {
    fn id(&self) -> u64;
    /// Its newest read states.
    fn newest(&self) -> KeptStates;
    /// How many compactions of it run with the filter.
    fn running(&self) -> &AtomicUsize;
}

/// The states of a keyspace that a reader keeps.
#[derive(Clone)]
pub(crate) struct KeptStates {
    pub read_state: Arc<ReadState>,
    /// That of the tree of the older versions, if it has history. Loaded last: an edit of both trees publishes it first, so that a version that
    /// moves is in one of them at least. It may be in both, as it was in the first and as a filter has left it in the second: walks take the first.
    pub older: Option<Arc<ReadState>>,
}

/// The filter of a keyspace.
#[derive(Clone)]
pub(crate) struct KeyspaceFilter {
    pub filter: Arc<dyn CompactionFilter>,
    /// Those of the database.
    pub jobs: Arc<FilterJobs>,
    /// How many compactions of the keyspace run with it, of both trees if it has history.
    pub running: Arc<AtomicUsize>,
}

impl KeyspaceFilter {
    pub(crate) fn new(filter: Arc<dyn CompactionFilter>, jobs: Arc<FilterJobs>) -> KeyspaceFilter {
        KeyspaceFilter { filter, jobs, running: Arc::new(AtomicUsize::new(0)) }
    }

    /// Whether one runs. Called by a cursor that holds its number.
    #[inline]
    pub(crate) fn runs(&self) -> bool {
        runs(&self.running)
    }
}

#[inline]
fn runs(count: &AtomicUsize) -> bool {
    count.load(Ordering::SeqCst) > 0 && !planted(Bug::FilterBesideReaders)
}

/// The compactions of a database that run with a filter.
#[derive(Default)]
pub(crate) struct FilterJobs {
    running: AtomicUsize,
    keyspaces: Mutex<Vec<Arc<dyn Filtered>>>,
}

/// A compaction that runs with a filter, until this is dropped.
pub(crate) struct FilterJob<'a> {
    jobs: &'a FilterJobs,
    keyspace: Arc<dyn Filtered>,
}

impl FilterJobs {
    /// Begins one. Called before the readers are listed; the returned value is dropped after the compaction was installed.
    pub(crate) fn begin(&self, keyspace: Arc<dyn Filtered>) -> FilterJob<'_> {
        self.keyspaces.lock().push(keyspace.clone());
        self.running.fetch_add(1, Ordering::SeqCst);
        keyspace.running().fetch_add(1, Ordering::SeqCst);
        FilterJob { jobs: self, keyspace }
    }

    /// The read states, by keyspace, that a snapshot keeps which holds its number.
    pub(crate) fn states_to_keep(&self) -> Vec<(u64, KeptStates)> {
        match runs(&self.running) {
            false => Vec::new(),
            true => self.keyspaces.lock().iter().map(|k| (k.id(), k.newest())).collect(),
        }
    }
}

impl Drop for FilterJob<'_> {
    fn drop(&mut self) {
        let mut keyspaces = self.jobs.keyspaces.lock();
        if let Some(at) = keyspaces.iter().position(|keyspace| keyspace.id() == self.keyspace.id()) {
            keyspaces.swap_remove(at);
        }
        drop(keyspaces);
        self.keyspace.running().fetch_sub(1, Ordering::SeqCst);
        self.jobs.running.fetch_sub(1, Ordering::SeqCst);
    }
}
