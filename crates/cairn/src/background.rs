//! Background work: flushing memtables and compacting trees.
//!
//! One thread flushes, `background_threads` others compact. With none, everything runs in the thread that caused it
//! ([`DbInner::run_pending`]), in an order that the calls alone determine.

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
use tree::{Context, DatabaseEdit, PickBlocked, Plan};

/// How long a thread rests after a job failed in a way that may pass.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// `Buffered` writes reach the operating system at least this often.
const BUFFER_PAUSE: Duration = Duration::from_millis(100);
/// A reserve that was released is tried again each time that the flush thread has rested so often: about once a second.
const RESERVE_ROUNDS: u32 = 10;
/// A compaction thread that has nothing to do looks so often whether writers pause.
const REST_PAUSE: Duration = Duration::from_secs(1);
/// They do when less than this was written meanwhile, in bytes of keys and values: what one core compacts in some milliseconds.
const REST_BYTES: u64 = 1 << 20;
/// Slowdown per KiB and unit of debt. At a debt of 1 a write of 1 KiB waits 2 us longer, at 4 it waits 32 us: the square.
const SLOWDOWN_NANOS: f64 = 2_000.0;

/// When a compaction thread last looked, and how many bytes of keys and values had been written then.
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
                    // Nobody would flush or compact any more: say so instead of hanging.
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
            // A switch has woken this thread. What fails and may pass, is tried again in the next round.
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

    /// Hands `Buffered` writes that have waited to the operating system, and lets others open the log. While a thread writes, that thread does it.
    fn tend_log(&self) {
        let Some(mut writer) = self.try_writer() else { return };
        if writer.log.buffered() > 0 && !self.ends() {
            // An error stays with the buffer, and with the next writer who tries.
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
                    // An iterator that went may have been the last to hold some tables.
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

    /// Whether nobody, or hardly anybody, has written for a while: then `tree/src/rest.rs` has its turn, until so much is written again.
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

    /// Ends all writing after a job whose sync failed: before any caller that waits for the job learns of its end, so that no
    /// write or sync of that caller succeeds afterwards.
    pub(crate) fn stop_if_sync_failed(&self, result: &Result<()>) {
        if let Err(e) = result
            && e.kind() == ErrorKind::ReadOnly
            && !planted(Bug::StopAfterTelling)
        {
            self.stop(e);
        }
    }

    /// After a job: a failure that may pass is remembered for callers that wait, and forgotten when a job of its kind succeeds.
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

    /// Takes a durable edit over, and puts the new versions in front of the readers. `flushed`: the memtables that are in them now. That
    /// it does not fit can only be a bug: then nothing may be written any more.
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
                |t: &&Arc<tree::TableFile>| edit.added.iter().any(|(_, m)| m.number == t.meta.number);
            if let Some(table) = version.level0.iter().find(is_new) {
                tree::charge(&table.charges, charges);
            }
            if !flushed.is_empty()
                && let Some(k) = state.keyspaces.get(id)
            {
                // After the view is without them: a cursor that sees this finds no old one.
                k.core.generation.advance();
                k.core.readers.look(self.env.monotonic());
                self.retired.add(flushed.iter().map(|sealed| &sealed.memtable));
            }
            state.note_change(*id);
        }
        self.progress.notify_all();
        Ok(())
    }

    /// Removes tables that did not make it into the manifest. When it is not known whether they did, they stay.
    pub(crate) fn discard(&self, tables: &[table::TableMeta]) {
        if self.fatal.get().is_some() {
            return;
        }
        for table in tables {
            self.tables.forget(table.number);
            let _ = self.env.remove(&self.dir.join(table::table_file_name(table.number)));
        }
    }

    /// The most urgent compaction of any keyspace. Picking holds the manifest: no edit may come between an outcome's edit and its
    /// being applied.
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

    /// Has the trees looked at in which a run may be due because of reads.
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

    /// Has keyspaces looked at again for which something has changed that is not theirs, or where cursors have gone. Whether there are
    /// any.
    fn look_again(&self, state: &mut State, now: &PickContext) -> bool {
        let outdated = state.look_again(now);
        let released: Vec<u64> = (state.held_by_cursors())
            .filter(|(core, seq)| self.oldest_reader(core) != Some(*seq))
            .map(|(core, _)| core.id)
            .collect();
        released.iter().for_each(|&id| state.note_change(id));
        outdated || !released.is_empty()
    }

    /// A plan of the most urgent keyspace that has one. Those that have none are not looked at again until they change.
    fn pick_due(&self, state: &mut State, context: &PickContext) -> Option<(Arc<KeyspaceInner>, Arc<Plan>)> {
        while let Some(id) = state.next_due() {
            let k = state.keyspaces.get_mut(&id)?;
            k.tree.set_room(context.room);
            k.tree.set_rest(context.at_rest);
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

    /// Bytes that are left for what a compaction writes, when the disk is full.
    fn room_for_plans(&self, state: &State) -> Option<u64> {
        let full = |e: &Error| e.kind() == ErrorKind::NoSpace && !e.is_file_too_large();
        match self.disk_reserve.is_spent() || state.compaction_trouble.as_ref().is_some_and(full) {
            true => self.env.free_space(&self.dir),
            false => None,
        }
    }

    /// Runs a plan that was picked (and counted in `jobs`) to its end. When the job is no longer counted, the tables that it
    /// replaced are deleted, unless somebody else reads them.
    fn run_plan(&self, keyspace: &Arc<KeyspaceInner>, plan: Arc<Plan>) -> Result<()> {
        let _watch = PanicGuard::new(self, "a compaction");
        let mut result = self.compact_tables(keyspace, &plan);
        self.stop_if_sync_failed(&result);
        if result.as_ref().is_err_and(|e| self.disk_reserve.release_for(e)) {
            // The next plan fits into what the reserve has left.
            result = Ok(());
        }
        let damaged = plan.inputs.iter().any(|(_, t)| t.is_unreadable());
        let mut state = self.state.lock();
        match state.keyspaces.get_mut(&keyspace.id) {
            // Dropped meanwhile: what failed is nobody's trouble any more, unless it was a sync.
            None if result.as_ref().is_err_and(|e| e.kind() != ErrorKind::ReadOnly) => result = Ok(()),
            None => {}
            Some(k) => {
                k.tree.done(&plan);
                if let Err(e) = &result
                    && damaged
                    && matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported | ErrorKind::Io)
                {
                    // The table that could not be read is marked: the next plan goes around it, so this is progress, and no trouble
                    // that somebody would have to wait for.
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
        // Before the readers: who begins to read and is not among them sees all of these.
        let ranges = keyspace.read_state.load().version.ranges.clone();
        let snapshots = self.readers_of(keyspace);
        let next_number = || self.new_number();
        let options = keyspace.options.tree_options(keyspace.id, &keyspace.name);
        let context = Context {
            env: &self.env,
            dir: &self.dir,
            table: &options.table,
            next_number: &next_number,
            snapshots: &snapshots,
            rate_limiter: &|bytes| self.rate_limiter.take(&*self.env, bytes, || self.ends()),
            ranges: &ranges,
            cancelled: &self.cancelled,
        };
        // Of a move there is nothing but the edit.
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
        outcome: &tree::Outcome,
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

    /// Sets how much writers are slowed down: nothing up to a debt of 1, then with the square of what is above it.
    fn update_slowdown(&self, state: &State) {
        let excess = (state.largest_debt() - 1.0).max(0.0);
        self.slowdown.store((SLOWDOWN_NANOS * excess * excess) as u64, Ordering::Relaxed);
    }

    /// Compacts what meets `[from, to)` and is visible now, in this thread. What is written meanwhile is not owed: beside writers there is always
    /// something new.
    pub(crate) fn compact_keyspace(
        &self,
        keyspace: &Arc<KeyspaceInner>,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<()> {
        let _call = self.begin_call()?;
        let owed_seq = self.visible.newest();
        self.flush_keyspace(keyspace)?;
        // Who asks gets another try at what could not be read before.
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
                k.tree.set_room(room);
                let picked = k.tree.pick_range(from, to, owed_seq, oldest);
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

    /// Waits until nothing is due or running, nor worth doing while nobody writes: whoever waits for that is taken at his word.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let _call = self.begin_call()?;
        self.rest_until.fetch_max(self.counters.user_bytes() + 1, Ordering::Relaxed);
        {
            let mut state = self.state.lock();
            state.keyspaces.values_mut().for_each(|k| k.tree.set_rest(true));
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

    /// Whether nothing is due or running. Looks at all keyspaces only where that seems to be so.
    fn is_quiet(&self, state: &mut State) -> bool {
        // Without threads no other thread would seal them while this one waits.
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

    /// Waits until `done`, or until writing stops, or until there is `trouble`.
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
