//! Background work: flushing memtables and compacting trees.
//!
//! One thread flushes, `background_threads` others compact. With 0 of them, everything runs in the thread that triggers it
//! ([`DbInner::run_pending`]), in an order that depends only on the calls.

use crate::db_inner::DbInner;
use crate::db_state::{FlushedCounts, KeyspaceState, PickContext, State};
use crate::keyspace::KeyspaceInner;
use crate::read_cost::surplus;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{MutexGuard, Ordering};
use crate::writer::PanicGuard;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;
use tree::{DatabaseEdit, JobContext, PickBlocked, Plan};

/// Pause of a thread after a job failed with an error that may be temporary.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// `Buffered` writes reach the operating system at least this often.
const BUFFER_PAUSE: Duration = Duration::from_millis(100);
/// A spent reserve is tried again after this many idle rounds of the flush thread: about once a second.
const RESERVE_ROUNDS: u32 = 10;
/// Interval at which an idle compaction thread checks whether writers pause.
const REST_PAUSE: Duration = Duration::from_secs(1);
/// Writers pause when they have written less than this in the interval, in bytes of keys and values: what one core compacts in some
/// milliseconds.
const REST_BYTES: u64 = 1 << 20;
/// Slowdown per KiB and unit of debt. At a debt of 1 a write of 1 KiB waits 2 us longer, at 4 it waits 32 us: the square.
const SLOWDOWN_NANOS: f64 = 2_000.0;

/// The last check for a pause: its time, and the bytes of keys and values written until then.
struct Calm {
    since: Duration,
    bytes: u64,
}

/// The threads of a database.
#[derive(Default)]
pub(crate) struct Background(Vec<JoinHandle<()>>);

impl Background {
    pub(crate) fn start(core: &Arc<DbInner>) -> Result<Background> {
        let mut threads = Background::default();
        if core.is_inline() {
            return Ok(threads);
        }
        core.writer().log.expect_rests();
        let mut start = |name: String, work: fn(&DbInner)| -> Result<()> {
            let core = core.clone();
            let body = move || {
                let run = std::panic::AssertUnwindSafe(|| work(&core));
                if std::panic::catch_unwind(run).is_err() {
                    // No thread would flush or compact any more: end writing instead of hanging.
                    core.stop(&Error::new(ErrorKind::ReadOnly, "a background thread panicked"));
                }
            };
            let spawned = thread::Builder::new().name(name).spawn(body);
            threads
                .0
                .push(spawned.map_err(|e| Error::new(ErrorKind::Io, format!("starting a thread: {e}")))?);
            Ok(())
        };
        let compactors = (0..core.options.background_threads)
            .map(|i| (format!("cairn-compact-{i}"), DbInner::compact_loop as fn(&DbInner)));
        let scrub = (core.options.scrub_rate > 0)
            .then(|| ("cairn-scrub".to_owned(), DbInner::scrub_loop as fn(&DbInner)));
        let all = std::iter::once(("cairn-flush".to_owned(), DbInner::flush_loop as fn(&DbInner)))
            .chain(compactors)
            .chain(scrub);
        for (name, work) in all {
            if let Err(e) = start(name, work) {
                core.stop(&e);
                let _ = threads.join();
                return Err(e);
            }
        }
        Ok(threads)
    }

    /// Waits for the threads to end.
    pub(crate) fn join(&mut self) -> Result<()> {
        let ends: Vec<_> = self.0.drain(..).map(JoinHandle::join).collect();
        match ends.iter().any(|end| end.is_err()) {
            true => Err(Error::new(ErrorKind::ReadOnly, "a background thread panicked")),
            false => Ok(()),
        }
    }
}

impl DbInner {
    pub(crate) fn ends(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn flush_loop(&self) {
        let mut rounds = 0u32;
        while !self.ends() {
            // A switch has woken this thread. A temporary failure is retried in the next round.
            let _ = self.establish_log();
            match self.next_flush() {
                Some(job) => {
                    if self.run_flush(job).is_err() && !self.ends() {
                        self.rest();
                        rounds += (RETRY_PAUSE.as_millis() / BUFFER_PAUSE.as_millis()) as u32;
                    }
                }
                None => {
                    let mut state = self.state.lock();
                    if !self.ends() && !state.has_flush_work() {
                        self.flush_work.wait_for(&mut state, BUFFER_PAUSE);
                    }
                    drop(state);
                    self.try_seal_due();
                    if self.trees_due.load(Ordering::Relaxed) {
                        self.compact_work.notify_one();
                    }
                    self.tend_log();
                    rounds += 1;
                }
            }
            if rounds >= RESERVE_ROUNDS {
                rounds = 0;
                self.look_for_space();
            }
        }
    }

    /// Hands waiting `Buffered` writes to the operating system, and lets other processes open the log. Skipped while another thread
    /// writes, which does both.
    fn tend_log(&self) {
        let Some(mut writer) = self.try_writer() else { return };
        if writer.log.buffered() > 0 && !self.ends() {
            // On an error the data stays in the buffer, and the next writer gets the error.
            let _ = self.flush_log(&mut writer);
        }
        writer.log.rest();
    }

    fn rest(&self) {
        let mut state = self.state.lock();
        if !self.ends() {
            self.end.wait_for(&mut state, RETRY_PAUSE);
        }
    }

    fn compact_loop(&self) {
        let mut calm = Calm { since: self.env.monotonic(), bytes: self.counters.user_bytes() };
        while !self.ends() {
            match self.next_compaction() {
                Some((keyspace, plan)) => {
                    if self.run_plan(&keyspace, plan).is_err() && !self.ends() {
                        self.rest();
                    }
                }
                None if self.begins_rest(&mut calm) => {}
                None => {
                    // A dropped iterator may have been the last user of some tables.
                    self.collect_garbage();
                    let mut state = self.state.lock();
                    self.progress.notify_all();
                    if !self.ends() {
                        self.compact_work.wait_for(&mut state, REST_PAUSE);
                    }
                }
            }
        }
    }

    /// Whether writers have (nearly) paused for a while: idle compactions may then run, until writers have written so much again.
    fn begins_rest(&self, calm: &mut Calm) -> bool {
        let (now, bytes) = (self.env.monotonic(), self.counters.user_bytes());
        if now.saturating_sub(calm.since) < REST_PAUSE {
            return false;
        }
        let written = bytes - std::mem::replace(calm, Calm { since: now, bytes }).bytes;
        written < REST_BYTES && self.rest_until.fetch_max(bytes + REST_BYTES, Ordering::Relaxed) <= bytes
    }

    fn is_at_rest(&self) -> bool {
        self.counters.user_bytes() < self.rest_until.load(Ordering::Relaxed)
    }

    /// Flushes and compacts until nothing is due. For databases without threads.
    pub(crate) fn run_pending(&self) {
        while !self.ends() {
            if let Some(job) = self.next_flush() {
                if self.run_flush(job).is_err() {
                    return;
                }
            } else if let Some((keyspace, plan)) = self.next_compaction() {
                if self.run_plan(&keyspace, plan).is_err() {
                    return;
                }
            } else {
                return;
            }
        }
    }

    /// Ends all writing after a job whose sync failed. Runs before any caller that waits for the job learns of its end, so that no later
    /// write or sync of that caller succeeds.
    pub(crate) fn stop_if_sync_failed(&self, result: &Result<()>) {
        if let Err(e) = result
            && e.kind() == ErrorKind::ReadOnly
            && !planted(Bug::StopAfterTelling)
        {
            self.stop(e);
        }
    }

    /// After a job: stores a temporary error for callers that wait, and clears it when a job of the same kind succeeds.
    pub(crate) fn note_outcome(
        &self,
        mut state: MutexGuard<'_, State>,
        result: &Result<()>,
        slot: fn(&mut State) -> &mut Option<Error>,
    ) {
        match result {
            Ok(()) => *slot(&mut state) = None,
            Err(e) if e.kind() == ErrorKind::Closed => {}
            Err(e) => {
                tracing::warn!(error = %e, "background work failed");
                *slot(&mut state) = Some(e.clone());
            }
        }
        self.update_slowdown(&state);
        self.compact_work.notify_all();
        self.progress.notify_all();
        drop(state);
        if let Err(e) = result
            && e.kind() == ErrorKind::ReadOnly
            && planted(Bug::StopAfterTelling)
        {
            self.stop(e);
        }
    }

    /// Applies a durable edit and publishes the new versions to readers. `flushed`: the memtables that they now contain. An edit that
    /// does not fit is a bug, and ends all writing.
    pub(crate) fn apply(&self, trees: &[(u64, tree::VersionEdit)], flushed: &FlushedCounts) -> Result<()> {
        let mut state = self.state.lock();
        for (id, edit) in trees {
            let Some(k) = state.keyspaces.get_mut(id) else { continue };
            let before = k.tree.version().bytes();
            if let Err(e) = k.tree.apply(edit, &mut |meta| self.open_table(meta)) {
                drop(state);
                return Err(self.stop(&e));
            }
            let version = k.tree.version().clone();
            self.disk_reserve.note_tables(before, version.bytes());
            let flushed = state.take_flushed(*id, flushed.get(id).copied().unwrap_or(0));
            let charges = flushed.iter().map(|sealed| surplus(&sealed.memtable)).sum();
            let is_new =
                |t: &&Arc<tree::LiveTable>| edit.added.iter().any(|(_, m)| m.number == t.meta.number);
            if let Some(table) = version.level0.iter().find(is_new) {
                tree::charge(&table.charges, charges);
            }
            if !flushed.is_empty()
                && let Some(k) = state.keyspaces.get(id)
            {
                // After the read state is published without them: a cursor that sees the new generation loads the new read state.
                k.core.generation.advance();
                k.core.readers.look(self.env.monotonic());
                self.retired.add(flushed.iter().map(|sealed| &sealed.memtable));
            }
            state.note_change(*id);
        }
        self.progress.notify_all();
        Ok(())
    }

    /// Removes tables that did not get into the manifest. If that is uncertain, they stay.
    pub(crate) fn discard(&self, tables: &[table::TableMeta]) {
        if self.fatal.get().is_some() {
            return;
        }
        for table in tables {
            self.tables.forget(table.number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(table.number)));
        }
    }

    /// The most urgent compaction of any keyspace. Picking locks the manifest: no other edit may come between the edit of a compaction
    /// and its application.
    fn next_compaction(&self) -> Option<(Arc<KeyspaceInner>, Arc<Plan>)> {
        let _manifest = self.manifest.lock();
        let mut state = self.state.lock();
        self.note_charged_trees(&mut state);
        let (oldest, room) = (self.snapshots.oldest(), self.room_for_plans(&state));
        let context = PickContext { oldest, at_rest: self.is_at_rest(), room };
        let picked = self.pick_due(&mut state, &context);
        match picked.is_none() && self.look_again(&mut state, &context) {
            true => self.pick_due(&mut state, &context),
            false => picked,
        }
    }

    /// Marks the trees whose read charges have made a compaction due.
    fn note_charged_trees(&self, state: &mut State) {
        if !self.trees_due.swap(false, Ordering::Acquire) {
            return;
        }
        let cores = state.keyspaces.values().map(|k| &k.core);
        let charged: Vec<_> = cores.filter(|core| core.charges.take_due()).cloned().collect();
        for core in charged {
            state.note_change(core.id);
        }
    }

    /// Marks keyspaces as possibly due when the context of picking has changed, or when cursors that prevented a compaction are gone.
    /// Returns whether there are any.
    fn look_again(&self, state: &mut State, now: &PickContext) -> bool {
        let outdated = state.look_again(now);
        let released: Vec<u64> = (state.held_by_cursors())
            .filter(|(core, seq)| self.oldest_reader(core) != Some(*seq))
            .map(|(core, _)| core.id)
            .collect();
        released.iter().for_each(|&id| state.note_change(id));
        outdated || !released.is_empty()
    }

    /// A plan of the most urgent keyspace that has one. Keyspaces without one are not looked at again until they change.
    fn pick_due(&self, state: &mut State, context: &PickContext) -> Option<(Arc<KeyspaceInner>, Arc<Plan>)> {
        while let Some(id) = state.next_due() {
            let k = state.keyspaces.get_mut(&id)?;
            k.tree.set_free_space(context.room);
            k.tree.set_idle(context.at_rest);
            let oldest = self.oldest_reader(&k.core);
            if let Some(plan) = k.tree.pick(oldest) {
                let core = k.core.clone();
                state.jobs += 1;
                return Some((core, plan));
            }
            state.not_due(id, context, oldest.filter(|_| oldest != context.oldest));
        }
        None
    }

    /// Bytes that compactions may write when the disk is full; `None` when it is not.
    fn room_for_plans(&self, state: &State) -> Option<u64> {
        let full = |e: &Error| e.kind() == ErrorKind::NoSpace && !e.is_file_too_large();
        match self.disk_reserve.is_spent() || state.compaction_trouble.as_ref().is_some_and(full) {
            true => self.env.free_space(&self.dir),
            false => None,
        }
    }

    /// Runs a picked plan, which is counted in `jobs`, to its end. Afterwards deletes the tables that it replaced, unless readers still
    /// use them.
    fn run_plan(&self, keyspace: &Arc<KeyspaceInner>, plan: Arc<Plan>) -> Result<()> {
        let _watch = PanicGuard::new(self, "a compaction");
        let mut result = self.compact_tables(keyspace, &plan);
        self.stop_if_sync_failed(&result);
        if result.as_ref().is_err_and(|e| self.disk_reserve.release_for(e)) {
            // The next plan is chosen to fit into what is left of the reserve.
            result = Ok(());
        }
        let damaged = plan.inputs.iter().any(|(_, t)| t.is_unreadable());
        let mut state = self.state.lock();
        match state.keyspaces.get_mut(&keyspace.id) {
            // The keyspace was dropped meanwhile: the error concerns no caller any more, unless it is that of a sync.
            None if result.as_ref().is_err_and(|e| e.kind() != ErrorKind::ReadOnly) => result = Ok(()),
            None => {}
            Some(k) => {
                k.tree.done(&plan);
                if let Err(e) = &result
                    && damaged
                    && matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported | ErrorKind::Io)
                {
                    // The unreadable table is marked, and the next plan avoids it: this is progress, and not an error for callers that
                    // wait.
                    tracing::error!(error = %e, keyspace = keyspace.name, "a table cannot be read: it is left alone");
                    result = Ok(());
                }
            }
        }
        state.note_change(keyspace.id);
        drop(state);
        drop(plan);
        self.collect_garbage();
        let mut state = self.state.lock();
        state.jobs -= 1;
        self.note_outcome(state, &result, |state| &mut state.compaction_trouble);
        result
    }

    fn compact_tables(&self, keyspace: &Arc<KeyspaceInner>, plan: &Arc<Plan>) -> Result<()> {
        self.check_place()?;
        let started = self.env.monotonic();
        // Loaded before the readers: a reader that begins later and is not listed sees all of these tombstones.
        let ranges = keyspace.read_state.load().version.range_tombstones.clone();
        let snapshots = self.readers_of(keyspace);
        let next_number = || self.new_number();
        let options = keyspace.options.tree_options(keyspace.id, &keyspace.name);
        let context = JobContext {
            env: &self.env,
            dir: &self.dir,
            table: &options.table,
            next_number: &next_number,
            snapshots: &snapshots,
            rate_limiter: &|bytes| self.rate_limiter.take(&*self.env, bytes, || self.ends()),
            range_tombstones: &ranges,
            cancelled: &self.cancelled,
        };
        // A move writes nothing but the edit.
        let outcome = tree::compact(plan, &context)?;
        if let Err(e) = self.install_compaction(keyspace, plan, &outcome) {
            self.discard(&outcome.added);
            return Err(e);
        }
        let time = self.env.monotonic().saturating_sub(started);
        if !plan.is_move() {
            keyspace.counters.compactions[plan.target].note(outcome.bytes_read, outcome.bytes_written, time);
        }
        *keyspace.counters.reasons.lock().entry(plan.reason).or_default() += 1;
        Ok(())
    }

    fn install_compaction(
        &self,
        keyspace: &KeyspaceInner,
        plan: &Plan,
        outcome: &tree::CompactionOutput,
    ) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let edit = {
            let state = self.state.lock();
            let Some(k) = state.keyspaces.get(&keyspace.id) else {
                drop(state);
                self.discard(&outcome.added);
                return Ok(());
            };
            k.tree.install(plan, outcome, &mut |meta| self.open_table(meta))?
        };
        let mut edit = DatabaseEdit { trees: vec![(keyspace.id, edit)], ..DatabaseEdit::default() };
        self.log_edit(&mut manifest, &mut edit)?;
        self.apply(&edit.trees, &FlushedCounts::default())?;
        if planted(Bug::FreeFileInUse) && !plan.is_move() {
            plan.inputs.iter().for_each(|(_, table)| self.discard(std::slice::from_ref(&table.meta)));
        }
        self.renew_manifest(&mut manifest);
        Ok(())
    }

    /// Sets the slowdown of writers: none up to a debt of 1, then with the square of the excess.
    fn update_slowdown(&self, state: &State) {
        let excess = (state.largest_debt() - 1.0).max(0.0);
        self.slowdown.store((SLOWDOWN_NANOS * excess * excess) as u64, Ordering::Relaxed);
    }

    /// Compacts everything in `[from, to)` that is visible now, in this thread. Later writes are not waited for: with concurrent writers
    /// there is always something new.
    pub(crate) fn compact_keyspace(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<()> {
        let _call = self.begin_call()?;
        let requested_seq = self.visible.newest();
        self.flush_keyspace(keyspace)?;
        // An explicit compaction retries tables that could not be read before.
        let tables = keyspace.read_state.load_full().version.clone();
        tables.tables().filter(|(_, t)| t.overlaps_range(from, to)).for_each(|(_, t)| t.retry_damaged());
        drop(tables);
        loop {
            self.check_running()?;
            let picked = {
                let _manifest = self.manifest.lock();
                let mut state = self.state.lock();
                let oldest = self.oldest_reader(keyspace);
                let room = self.room_for_plans(&state);
                let Some(k) = state.keyspaces.get_mut(&keyspace.id) else { return keyspace.check_open() };
                k.tree.set_free_space(room);
                let picked = k.tree.pick_range(from, to, requested_seq, oldest);
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
                    if let Some(trouble) = state.trouble() {
                        return Err(trouble);
                    }
                    if obstacle == PickBlocked::Damage {
                        let met = state.keyspaces.get(&keyspace.id).and_then(|k| k.damage(from, to));
                        let unknown = || Error::new(ErrorKind::Corruption, "a table cannot be read");
                        return Err(met.unwrap_or_else(unknown));
                    }
                    self.progress.wait_for(&mut state, RETRY_PAUSE);
                }
            }
        }
    }

    /// Waits until nothing is due or running, idle compactions included: they begin at once, without waiting for a pause of the writers.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let _call = self.begin_call()?;
        self.rest_until.fetch_max(self.counters.user_bytes() + 1, Ordering::Relaxed);
        {
            let mut state = self.state.lock();
            state.keyspaces.values_mut().for_each(|k| k.tree.set_idle(true));
            state.note_all();
        }
        self.try_seal_due();
        if self.is_inline() {
            self.run_pending();
        }
        self.compact_work.notify_all();
        self.wait_for(|state| self.is_quiet(state), State::trouble)?;
        self.collect_garbage();
        Ok(())
    }

    /// Whether nothing is due or running. Looks at all keyspaces only when that seems to be the case.
    fn is_quiet(&self, state: &mut State) -> bool {
        // Without background threads no other thread would seal these memtables while this one waits.
        let unsealed = !self.is_inline() && self.memtables_due.load(Ordering::Acquire);
        if state.jobs > 0 || unsealed || state.has_flush_work() {
            return false;
        }
        let is_due = |k: &&KeyspaceState| k.tree.is_due(self.oldest_reader(&k.core));
        let due = state.keyspaces.values().find(|k| !k.flushing.is_empty() || is_due(k));
        let Some(id) = due.map(|k| k.core.id) else { return true };
        state.note_change(id);
        self.compact_work.notify_one();
        false
    }

    /// Waits until `done`, until writing ends, or until `trouble` returns an error.
    pub(crate) fn wait_for(
        &self,
        mut done: impl FnMut(&mut State) -> bool,
        trouble: impl Fn(&State) -> Option<Error>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if done(&mut state) {
                return Ok(());
            }
            if self.ends() {
                return Err(self.stop_reason());
            }
            if let Some(trouble) = trouble(&state) {
                return Err(trouble);
            }
            self.progress.wait_for(&mut state, RETRY_PAUSE);
        }
    }
}
