//! Flushes and compactions that a thread of the application runs, or requests and waits for.
//!
//! Without background threads everything runs here ([`DbInner::run_pending`]), in an order that depends only on the calls.

use super::compact::RETRY_PAUSE;
use crate::state::{DbInner, KeyspaceInner, KeyspaceState, State};
use crate::sync::Ordering;
use base::{Error, ErrorKind, Result};
use history::version_key::prefix_of;
use std::sync::Arc;
use tree::PickBlocked;

impl DbInner {
    /// Without background threads: flushes and compacts until nothing is due.
    pub(crate) fn run_pending(&self) {
        while self.is_inline() && matches!(self.run_job(), Ok(true)) {}
    }

    /// Runs one flush, or otherwise one compaction, if any is due. Returns whether there was one.
    fn run_job(&self) -> Result<bool> {
        if self.status.ends() {
            return Ok(false);
        }
        if let Some(job) = self.next_flush() {
            // If it fails, `next_compaction` does not get to clear the signal, and each write would try the flush again.
            return self
                .run_flush(job)
                .inspect_err(|_| self.note_charged_trees(&mut self.state.lock()))
                .map(|()| true);
        }
        if let Some((keyspace, plan)) = self.next_compaction() {
            return self.run_plan(&keyspace, plan).map(|()| true);
        }
        match self.next_collection() {
            Some(collection) => self.run_collection(collection).map(|()| true),
            None => Ok(false),
        }
    }

    /// Flushes the memtables of a keyspace, those with its late writes included, and waits. Later writes are not waited for.
    pub(crate) fn flush_keyspace(&self, keyspace: &Arc<KeyspaceInner>) -> Result<()> {
        let _call = self.begin_call()?;
        keyspace.check_open()?;
        let both: Vec<_> = [Some(keyspace), keyspace.historical()].into_iter().flatten().cloned().collect();
        self.flush_keyspaces(&both)
    }

    /// Flushes all keyspaces, with one log switch.
    pub(crate) fn flush_all(&self) -> Result<()> {
        let _call = self.begin_call()?;
        let keyspaces: Vec<_> = self.state.lock().dirty().map(|k| k.inner.clone()).collect();
        self.flush_keyspaces(&keyspaces)
    }

    /// Flushes these keyspaces, and waits.
    pub(crate) fn flush_keyspaces(&self, keyspaces: &[Arc<KeyspaceInner>]) -> Result<()> {
        let newest = {
            let mut writer = self.writer();
            self.seal(&mut writer, keyspaces)?;
            writer.next_seq - 1
        };
        let mut left: Vec<u64> = keyspaces.iter().map(|keyspace| keyspace.id).collect();
        self.wait_for(
            |state| {
                let is_flushed =
                    |k: &KeyspaceState| k.immutable.front().is_none_or(|sealed| sealed.last_seq > newest);
                while left.last().is_some_and(|id| state.keyspaces.get(id).is_none_or(is_flushed)) {
                    left.pop();
                }
                left.is_empty()
            },
            |state| state.flush_error.clone(),
        )
    }

    /// Compacts everything in `[from, to)` that is visible now, in this thread. Later writes are not waited for: with concurrent writers
    /// there is always something new.
    ///
    /// `rewrites`: all tables are written again, also those that are in place already.
    ///
    /// If the keyspace has history, its older versions are compacted, too, also those that this call drops from the primary tree. If it has no order,
    /// its files are collected instead, and all keyspaces are flushed before: recovery may need a log for any of them.
    pub(crate) fn compact_keyspace(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        (from, to): (&[u8], Option<&[u8]>),
        rewrites: bool,
    ) -> Result<()> {
        let _call = self.begin_call()?;
        if let Some(log) = &keyspace.hash_log {
            keyspace.check_open()?;
            if !from.is_empty() || to.is_some() {
                return Err(keyspace.no_order());
            }
            self.flush_all()?;
            return self.collect_keyspace(keyspace, log, rewrites);
        }
        self.compact_tree(keyspace, (from, to), rewrites)?;
        let Some(historical) = keyspace.historical() else { return Ok(()) };
        self.compact_tree(historical, (&prefix_of(from), to.map(prefix_of).as_deref()), rewrites)
    }

    fn compact_tree(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        (from, to): (&[u8], Option<&[u8]>),
        rewrites: bool,
    ) -> Result<()> {
        // What expires during the request need not go.
        let now = self.moment();
        let requested_seq = self.visible.newest();
        self.flush_keyspace(keyspace)?;
        let rewritten_before = match rewrites || keyspace.filter.is_some() {
            false => 0,
            true => self.tables_so_far(keyspace)?,
        };
        // An explicit compaction retries tables that could not be read before.
        let tables = keyspace.read_state.load_full().version.clone();
        tables.tables().filter(|(_, t)| t.overlaps_range(from, to)).for_each(|(_, t)| t.damage.retry());
        drop(tables);
        loop {
            self.status.check_running()?;
            let picked = {
                let _manifest = self.manifest.lock();
                let mut state = self.state.lock();
                let oldest = self.oldest_reader(keyspace);
                let horizon = self.horizon(keyspace, now, oldest);
                let room = self.free_space_if_low(&state);
                let Some(k) = state.keyspaces.get_mut(&keyspace.id) else { return keyspace.check_open() };
                k.tree.set_free_space(room);
                k.tree.set_horizon(horizon, keyspace.unsettled_ranges(oldest));
                let picked = k.tree.pick_range(from, to, requested_seq, rewritten_before, oldest);
                if let Ok(Some(_)) = &picked {
                    state.jobs += 1;
                }
                picked
            };
            match picked {
                Ok(None) => return Ok(()),
                Ok(Some(plan)) => self.run_plan(keyspace, plan)?,
                Err(obstacle) => {
                    let mut state = self.state.lock();
                    if obstacle == PickBlocked::Damage {
                        if let Some(error) = state.background_error() {
                            return Err(error);
                        }
                        let met = state.keyspaces.get(&keyspace.id).and_then(|k| k.damage(from, to));
                        let unknown = || Error::new(ErrorKind::Corruption, "a table cannot be read");
                        return Err(met.unwrap_or_else(unknown));
                    }
                    self.signals.progress.wait_for(&mut state, RETRY_PAUSE);
                }
            }
        }
    }

    /// The number before which all tables are that are to be written again. Compactions that run may have asked a filter before the request, and for
    /// older readers, and have the options of their begin: waits until they have ended, so that their tables have smaller numbers.
    fn tables_so_far(&self, keyspace: &KeyspaceInner) -> Result<u64> {
        let plans_of = |state: &State| {
            let k = state.keyspaces.get(&keyspace.id);
            k.map_or(Vec::new(), |k| k.tree.in_progress().to_vec())
        };
        let running = plans_of(&self.state.lock());
        let runs = |plan: &Arc<tree::Plan>| running.iter().any(|running| Arc::ptr_eq(running, plan));
        self.wait_for(|state| !plans_of(state).iter().any(runs), |_| None)?;
        Ok(self.next_file.load(Ordering::Relaxed))
    }

    /// Waits until nothing is due or running, idle compactions included: they begin at once, without waiting for a pause of the writers.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let _call = self.begin_call()?;
        self.idle_until.fetch_max(self.counters.user_bytes() + 1, Ordering::Relaxed);
        {
            // What has expired by now is to go, too: a thread that picks looks at the clock later than `is_quiet`.
            let now = self.moment();
            let mut state = self.state.lock();
            for k in state.keyspaces.values_mut() {
                let oldest = self.oldest_reader(&k.inner);
                k.tree.set_idle(true);
                k.tree.set_horizon(self.horizon(&k.inner, now, oldest), k.inner.unsettled_ranges(oldest));
            }
            state.note_all();
        }
        self.try_seal_due();
        self.signals.compact_work.notify_all();
        self.wait_for(|state| self.is_quiet(state), State::background_error)?;
        self.collect_obsolete();
        Ok(())
    }

    /// Whether nothing is due or running. Looks at all keyspaces only when that seems to be the case.
    fn is_quiet(&self, state: &mut State) -> bool {
        let unsealed = self.signals.memtables_due.load(Ordering::Acquire);
        if state.jobs > 0 || unsealed || state.has_flush_work() {
            return false;
        }
        let is_due = |k: &&KeyspaceState| k.tree.is_due(self.oldest_reader(&k.inner));
        let due = state.keyspaces.values().find(|k| !k.immutable.is_empty() || is_due(k));
        let Some(id) = due.map(|k| k.inner.id) else {
            let collects = self.collection_is_due();
            if collects {
                self.signals.compact_work.notify_one();
            }
            return !collects;
        };
        state.note_change(id);
        self.signals.compact_work.notify_one();
        false
    }

    /// Waits until `done`, until writing ends, or until `error` returns an error. Without background threads, what is due runs here first,
    /// and then what becomes due meanwhile, by reads of another thread or when a snapshot is dropped: no other thread need make a call that
    /// would run it.
    pub(crate) fn wait_for(
        &self,
        mut done: impl FnMut(&mut State) -> bool,
        error: impl Fn(&State) -> Option<Error>,
    ) -> Result<()> {
        self.run_pending();
        let mut may_run = self.is_inline();
        loop {
            let mut state = self.state.lock();
            if done(&mut state) {
                return Ok(());
            }
            if self.status.ends() {
                return Err(self.status.stop_reason());
            }
            if let Some(error) = error(&state) {
                return Err(error);
            }
            if may_run {
                drop(state);
                self.try_seal_due();
                match self.run_job() {
                    Ok(ran) => may_run = ran,
                    Err(_) => self.pause_after_failure(),
                }
            } else {
                self.signals.progress.wait_for(&mut state, RETRY_PAUSE);
                may_run = self.is_inline();
            }
        }
    }
}
