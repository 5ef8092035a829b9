//! Compactions: picks the most urgent one of all keyspaces, runs it, and installs its outcome.

use crate::events;
use crate::parts::{Pace, with_evictions};
use crate::state::{
    AppliedRetention, DbInner, FlushedCounts, KeyspaceInner, PanicGuard, PickContext, Role, State,
};
use crate::sync::Ordering;
use base::RangeSet;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Time};
use history::version_key::prefix_of;
use history::{HistoricalVersion, PrimaryVersion, RetentionSink};
use std::sync::Arc;
use std::time::Duration;
use tree::{DatabaseEdit, EvictedCuts, JobContext, JobFilter, JobOutput, Plan, Reason};

/// Pause of a thread after a job failed with an error that may be temporary.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);

impl DbInner {
    fn is_idle(&self) -> bool {
        self.counters.user_bytes() < self.idle_until.load(Ordering::Relaxed)
    }

    /// The most urgent compaction of any keyspace. Picking locks the manifest: no other edit may come between the edit of a compaction
    /// and its application.
    pub(crate) fn next_compaction(&self) -> Option<(Arc<KeyspaceInner>, Arc<Plan>)> {
        self.note_moment();
        let _manifest = self.manifest.lock();
        let mut state = self.state.lock();
        // Before the readers are listed.
        let now = self.moment();
        self.note_charged_trees(&mut state);
        let (oldest, free_space) = (self.snapshots.oldest(), self.free_space_if_low(&state));
        let context = PickContext { oldest, idle: self.is_idle(), free_space, now };
        let picked = self.pick_due(&mut state, &context);
        match picked.is_none() && state.recheck(&context, |inner| self.oldest_reader(inner)) {
            true => self.pick_due(&mut state, &context),
            false => picked,
        }
    }

    /// Marks the trees whose read charges have made a compaction due.
    pub(super) fn note_charged_trees(&self, state: &mut State) {
        if !self.signals.trees_due.swap(false, Ordering::Acquire) {
            return;
        }
        let inners = state.keyspaces.values().map(|k| &k.inner);
        let charged: Vec<_> = inners.filter(|inner| inner.charges.take_due()).cloned().collect();
        for inner in charged {
            state.note_change(inner.id);
        }
    }

    /// A plan of the most urgent keyspace that has one. Keyspaces without one are not looked at again until they change.
    fn pick_due(&self, state: &mut State, context: &PickContext) -> Option<(Arc<KeyspaceInner>, Arc<Plan>)> {
        while let Some(id) = state.next_due() {
            let k = state.keyspaces.get_mut(&id)?;
            k.tree.set_free_space(context.free_space);
            k.tree.set_idle(context.idle);
            let oldest = self.oldest_reader(&k.inner);
            let unsettled = k.inner.unsettled_ranges(oldest);
            k.tree.set_horizon(self.horizon(&k.inner, context.now, oldest), unsettled);
            let picked = k.tree.pick(oldest).map(|plan| (k.inner.clone(), plan));
            let space = k.tree.space(oldest);
            if picked.is_some() {
                state.note_space(id, space);
                state.jobs += 1;
                return picked;
            }
            // With a reader, its end makes the tree due.
            let age = match k.inner.is_historical() {
                true => k.inner.retention.lock().beside(None).only_age(),
                false => k.inner.may_expire().then_some(Duration::ZERO),
            };
            let age = age.filter(|_| oldest.is_none());
            let expires = k.tree.next_horizon().zip(age).map(|(horizon, age)| horizon.saturating_add(age));
            state.not_due(id, context, oldest.filter(|_| oldest != context.oldest), expires);
            state.note_space(id, space);
        }
        None
    }

    /// Bytes that compactions may write when the disk is full; `None` when it is not.
    pub(crate) fn free_space_if_low(&self, state: &State) -> Option<u64> {
        let full = |e: &Error| e.kind() == ErrorKind::NoSpace && !e.is_file_too_large();
        match self.disk_reserve.is_spent() || state.compaction_error.as_ref().is_some_and(full) {
            true => self.env.free_space(&self.dir),
            false => None,
        }
    }

    /// Runs a picked plan, which is counted in `jobs`, to its end. Afterwards deletes the tables that it replaced, unless readers still
    /// use them.
    pub(crate) fn run_plan(&self, keyspace: &Arc<KeyspaceInner>, plan: Arc<Plan>) -> Result<()> {
        let _watch = PanicGuard::new(self, "a compaction");
        let unreadable = || plan.inputs.iter().filter(|(_, table)| table.damage.is_unreadable()).count();
        let unreadable_before = unreadable();
        let mut result = self.compact_tables(keyspace, &plan);
        self.stop_if_sync_failed(&result);
        if result.as_ref().is_err_and(|e| self.disk_reserve.release_for(e)) {
            // The next plan is chosen to fit into what is left of the reserve.
            result = Ok(());
        }
        let damaged = unreadable() > unreadable_before;
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
                    events::error!(error = %e, keyspace = keyspace.name(), "a table cannot be read: it is left alone");
                    result = Ok(());
                }
            }
        }
        state.note_change(keyspace.id);
        drop(state);
        if plan.inlines_values() {
            self.tables.segments.note_change();
        }
        drop(plan);
        self.collect_obsolete();
        self.note_dead_values();
        let mut state = self.state.lock();
        state.jobs -= 1;
        self.note_outcome(state, &result, |state| &mut state.compaction_error);
        result
    }

    /// The keyspace that readers know: that with the newest versions, if this one has the older ones.
    fn primary_of(&self, keyspace: &Arc<KeyspaceInner>) -> Arc<KeyspaceInner> {
        let primary = match keyspace.role {
            Role::Historical(primary) => self.state.lock().keyspaces.get(&primary).map(|k| k.inner.clone()),
            Role::Plain | Role::Primary(_) => None,
        };
        // It was dropped together with this one.
        debug_assert!(primary.is_some() || !keyspace.is_historical() || keyspace.is_dropped());
        primary.unwrap_or_else(|| keyspace.clone())
    }

    /// Whether a compaction leaves the disk to the reads that wait for it. It does not while compactions are far behind, while the disk is
    /// full, or for a keyspace that is dropped.
    fn rests_now(&self, keyspace: &KeyspaceInner) -> bool {
        self.tables.cache.waiting_reads().any()
            && !(self.is_far_behind() || self.disk_reserve.is_spent() || keyspace.is_dropped())
    }

    /// Whether the disk has room for so many bytes more, and a quarter beside them.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        let needed = bytes.saturating_add(bytes / 4);
        self.env.free_space(&self.dir).is_none_or(|free| needed < free)
    }

    fn compact_tables(&self, keyspace: &Arc<KeyspaceInner>, plan: &Arc<Plan>) -> Result<()> {
        self.check_place()?;
        let started = self.env.monotonic();
        let filter = keyspace.filter.as_ref().filter(|_| !plan.is_unread());
        // Before the readers are listed, and until the end of the installation.
        let filtered = filter.map(|_| self.primary_of(keyspace));
        let _filters = filter.zip(filtered.clone()).map(|(filter, filtered)| filter.jobs.begin(filtered));
        // Loaded before the readers: a reader that begins later and is not listed sees all of these tombstones.
        let ranges = keyspace.read_state.load().version.range_tombstones.clone();
        // The same holds for what had expired by now.
        let now = self.moment();
        let retention = self.note_retention(keyspace, now);
        let snapshots = self.readers_of(keyspace);
        let next_number = || self.new_number();
        let pace = Pace::new(&self.rate_limiter, &*self.env);
        // Without background threads a writer may wait for this compaction, and a move reads and writes no table: they never rest.
        let rests = !self.is_inline() && !plan.is_move();
        let _announced = rests.then(|| self.tables.cache.waiting_reads().begin_job());
        let options = keyspace.tree_options();
        let context = JobContext {
            env: &self.env,
            dir: &self.dir,
            options: &options,
            next_number: &next_number,
            snapshots: &snapshots,
            rate_limiter: &|bytes| {
                pace.take(bytes, || self.rests_now(keyspace), || self.status.ends());
            },
            range_tombstones: &ranges,
            joins_values: !keyspace.has_merges() || self.has_room_for(plan.value_bytes()),
            inline_values: plan.inlines_values() && self.has_room_for(plan.value_bytes()),
            cancelled: &self.status.cancelled,
            times: keyspace.times_of(),
            expired_by: self
                .expired_by(keyspace, now, snapshots.first().copied())
                .max(plan.horizon.filter(|_| !keyspace.is_historical()).unwrap_or(Time::MIN)),
            late: plan.is_late(),
            filter: filter.zip(filtered.as_ref()).map(|(filter, filtered)| JobFilter {
                filter: &*filter.filter,
                versions: match &keyspace.role {
                    Role::Plain => None,
                    Role::Primary(_) => Some(&PrimaryVersion),
                    Role::Historical(_) => Some(&HistoricalVersion),
                },
                operator: filtered.operator.as_deref(),
            }),
            operator: keyspace.operator.as_deref(),
        };
        // A move writes nothing but the edit.
        let (outcome, evicted) = match keyspace.historical().filter(|_| !plan.is_move()) {
            None if keyspace.is_historical() => {
                let mut sink = self.retention_sink(retention, now, &snapshots).from_horizon(plan.horizon);
                (tree::compact(plan, &context, Some(&mut sink))?, JobOutput::default())
            }
            None => (tree::compact(plan, &context, None)?, JobOutput::default()),
            Some(historical) => {
                let options = historical.tree_options();
                let of_historical = JobContext {
                    options: &options,
                    range_tombstones: &RangeSet::default(),
                    times: historical.times_of(),
                    late: false,
                    ..context
                };
                let job = |sink: &mut dyn tree::EvictionSink| tree::compact(plan, &context, Some(sink));
                let (from, to) = (prefix_of(&plan.from), plan.to.as_deref().map(prefix_of));
                let version = historical.read_state.load().version.clone();
                let cuts = EvictedCuts::new(&version, &options, &from, to.as_deref());
                let sink = self.retention_sink(retention, now, &snapshots);
                // After the time at which entries have expired.
                let recent = keyspace.read_state.load().ranges().unwrap_or_default();
                with_evictions(&of_historical, (&ranges, &recent, self.now()), cuts, sink, job, |done| {
                    self.discard(&done.added)
                })?
            }
        };
        let installed = match outcome.added.is_empty() && evicted.added.is_empty() {
            true => Ok(()),
            false => self.env.sync_dir(&self.dir).map_err(|e| e.sync_failed()),
        };
        let installed = installed.and_then(|()| self.install_compaction(keyspace, plan, &outcome, &evicted));
        if let Err(e) = installed {
            self.discard(&outcome.added);
            self.discard(&evicted.added);
            return Err(e);
        }
        let time = self.env.monotonic().saturating_sub(started);
        if let Some(error) = &outcome.value_error {
            events::error!(error = %error, keyspace = keyspace.name(), "a value cannot be read: it stays where it is");
        }
        if let Some(error) = &outcome.filtered.error {
            events::error!(error = %error, keyspace = keyspace.name(), "the compaction filter has not decided: the entry stays as it is");
        }
        events::debug!(
            keyspace = keyspace.name(),
            reason = %plan.reason,
            from_level = plan.source,
            to_level = plan.target,
            tables_read = plan.inputs.len(),
            bytes_read = if plan.is_move() { 0 } else { plan.read_bytes() + outcome.values_read },
            tables_written = outcome.added.len() + evicted.added.len(),
            bytes_written = outcome.bytes() + evicted.bytes(),
            seconds = time.as_secs_f64(),
            "compaction"
        );
        if let Some(filtered) = filtered {
            filtered.counters.filter_dropped.fetch_add(outcome.filtered.dropped, Ordering::Relaxed);
            filtered.counters.filter_replaced.fetch_add(outcome.filtered.replaced, Ordering::Relaxed);
        }
        if !plan.is_move() {
            let read = plan.read_bytes() + outcome.values_read;
            self.counters.compaction.lock().note(read, outcome.bytes() + evicted.bytes(), time);
            keyspace.counters.compactions.lock()[plan.target].note(read, outcome.bytes(), time);
            if let Some(historical) = keyspace.historical().filter(|_| !evicted.added.is_empty()) {
                historical.counters.flush.lock().note(0, evicted.bytes(), time);
            }
        }
        let unread = match plan.reason {
            Reason::ExpiredTables if !keyspace.is_historical() => {
                plan.inputs.iter().filter_map(|(_, table)| table.meta.expiry).map(|e| e.entries).sum()
            }
            _ => 0,
        };
        keyspace.counters.expired.fetch_add(outcome.expired + unread, Ordering::Relaxed);
        *keyspace.counters.reasons.lock().entry(plan.reason).or_default() += 1;
        Ok(())
    }

    /// Drops what `applied` does not keep, for a job that noted it at `now` and then listed the readers `snapshots`.
    fn retention_sink(&self, applied: AppliedRetention, now: Time, snapshots: &[Seq]) -> RetentionSink {
        let retention = applied.beside(snapshots.first().copied());
        let oldest = snapshots.first().map(|&seq| (seq, self.moments.before(seq)));
        let oldest = oldest.filter(|_| !planted(Bug::ExpireDespiteReaders));
        RetentionSink::new(retention, now, oldest)
    }

    fn install_compaction(
        &self,
        keyspace: &KeyspaceInner,
        plan: &Plan,
        outcome: &JobOutput,
        evicted: &JobOutput,
    ) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let trees = {
            let state = self.state.lock();
            let Some(k) = state.keyspaces.get(&keyspace.id) else {
                drop(state);
                self.discard(&outcome.added);
                self.discard(&evicted.added);
                return Ok(());
            };
            // That of the historical keyspace first, because readers load its read state last.
            let historical = keyspace.historical().filter(|_| !evicted.added.is_empty());
            let mut trees: Vec<_> = historical
                .map(|historical| {
                    (historical.id, state.keyspaces[&historical.id].tree.install_evicted(evicted))
                })
                .into_iter()
                .collect();
            trees.push((keyspace.id, k.tree.install(plan, outcome, &mut |meta| self.tables.open(meta))?));
            trees
        };
        let (last_time, retention_time) = (self.last_time(), self.retention_time());
        let mut edit = DatabaseEdit { trees, last_time, retention_time, ..DatabaseEdit::default() };
        self.log_edit(&mut manifest, &mut edit)?;
        self.apply(&edit.trees, &FlushedCounts::default())?;
        if planted(Bug::FreeFileInUse) && !plan.is_move() {
            plan.inputs.iter().for_each(|(_, table)| self.discard(std::slice::from_ref(&table.meta)));
        }
        self.renew_manifest(&mut manifest);
        Ok(())
    }
}
