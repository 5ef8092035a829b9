//! Creates and drops keyspaces. Each is one edit of the manifest; the log needs none, because recovery skips entries of dropped keyspaces.

use crate::events;
use crate::state::{
    DROPPED, DbInner, FLUSHED_ALL, FlushedCounts, KeyspaceInner, KeyspaceState, Role, Settings, State,
    Writer, check_name,
};
use crate::sync::Ordering;
use crate::types::KeyspaceOptions;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Time};
use hashlog::hint_file_name;
use memtable::Memtable;
use std::sync::Arc;
use tree::{DatabaseEdit, Tree};

impl DbInner {
    pub(crate) fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Arc<KeyspaceInner>> {
        check_name(name)?;
        options.validate()?;
        options.check_together()?;
        self.filters.check(name, &options)?;
        let operator = self.operators.of_new(name, &options.merge)?;
        let late = planted(Bug::CreateAfterClose);
        let _call = if late { self.status.check_running().map(|()| None)? } else { Some(self.begin_call()?) };
        let mut manifest = self.manifest.lock();
        if !late {
            self.status.check_running()?;
        }
        let id = {
            let state = self.state.lock();
            if let Some(existing) = state.by_name(name) {
                let difference = options.difference(&existing.inner.options());
                let with =
                    difference.map(|words| format!(", with other options: {words}")).unwrap_or_default();
                let message = format!("keyspace {name:?} exists already{with}");
                return Err(Error::new(ErrorKind::AlreadyExists, message));
            }
            state.next_keyspace
        };
        let new = |id, settings, role, operator| self.new_keyspace(id, settings, role, operator, None);
        let settings = Settings { name: name.to_owned(), options, kept_since: Time::MIN };
        let historical = settings.options.has_history();
        let historical = historical.then(|| new(id + 1, settings.historical(), Role::Historical(id), None));
        let role = historical.clone().map_or(Role::Plain, Role::Primary);
        let inner = new(id, settings, role, operator);
        let all = || [Some(&inner), historical.as_ref()].into_iter().flatten();
        let next_keyspace = id + all().count() as u64;
        let created = all().map(|inner| inner.description()).collect();
        let mut edit = DatabaseEdit { created, next_keyspace, ..Default::default() };
        self.log_edit(&mut manifest, &mut edit)?;
        let mut state = self.state.lock();
        state.next_keyspace = next_keyspace;
        for inner in all() {
            let version = inner.read_state.load().version.clone();
            let tree = Tree::new(inner.tree_options(), version);
            state.insert(KeyspaceState::new(inner.clone(), tree));
        }
        drop(state);
        events::info!(keyspace = name, "keyspace created");
        self.renew_manifest(&mut manifest);
        Ok(inner)
    }

    /// Drops a keyspace, holding the writer so that no write runs meanwhile. The log may still name the keyspace: recovery skips entries
    /// of dropped keyspaces, and their numbers are not used again.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        let _call = self.begin_call()?;
        let mut writer = self.writer();
        self.status.check_running()?;
        // Batches that have a sequence number may still be inserting into memtables.
        self.visible.wait_for(writer.next_seq - 1);
        // Before the manifest is locked, because this locks it. The log stays the newest while the writer is held.
        self.establish_log()?;
        let mut manifest = self.manifest.lock();
        let inner = self.state.lock().by_name(name).map(|k| k.inner.clone());
        let inner = inner.ok_or_else(|| missing(name))?;
        let dropped: Vec<u64> =
            [Some(&inner), inner.historical()].into_iter().flatten().map(|k| k.id).collect();
        // Older writes to other keyspaces must not be lost if the drop survives.
        self.sync_log(&mut writer)?;
        let min_log = match planted(Bug::DropFreesLogs) {
            true => self.logs.counters.current.load(Ordering::Acquire),
            false => {
                let flushed = dropped.iter().map(|&id| (id, FLUSHED_ALL)).collect::<FlushedCounts>();
                self.min_log(&self.state.lock(), &flushed)
            }
        };
        let mut edit = DatabaseEdit {
            dropped: dropped.clone(),
            last_seq: self.visible.newest(),
            last_time: self.last_time(),
            retention_time: self.retention_time(),
            min_log,
            closed: self.logs.closed.synced(),
            ..Default::default()
        };
        self.log_edit(&mut manifest, &mut edit)?;
        let mut state = self.state.lock();
        dropped.iter().for_each(|&id| self.remove_keyspace(&mut state, &mut writer, id));
        let hints = inner.hash_log.as_ref().map(|log| log.abandon(&self.tables.segments)).unwrap_or_default();
        // The error may have been this keyspace's. An error of another one reappears when its job is retried.
        state.compaction_error = None;
        state.collection_error = None;
        if state.waiting().next().is_none() {
            state.flush_error = None;
        }
        self.signals.progress.notify_all();
        drop(state);
        drop(manifest);
        drop(writer);
        events::info!(keyspace = name, "keyspace dropped");
        self.remove_logs(min_log);
        // Readers of whole files may still read them.
        self.tables.segments.emptied(hints.into_iter().map(hint_file_name).collect());
        self.collect_obsolete();
        Ok(())
    }

    /// Removes a keyspace from the state, which the manifest says is dropped.
    fn remove_keyspace(&self, state: &mut State, writer: &mut Writer, id: u64) {
        let Some(mut keyspace) = state.remove(id) else { return };
        self.disk_reserve.note_tables(keyspace.tree.version().bytes(), 0);
        keyspace.inner.state.store(DROPPED, Ordering::Release);
        writer.forget(&keyspace.inner.read_state.load().memtable);
        keyspace.tree.abandon();
        self.retired
            .add(keyspace.inner.read_state.load().memtables().filter(|memtable| memtable.capacity() > 0));
        keyspace.immutable.clear();
        keyspace.publish(Memtable::empty());
    }
}

pub(crate) fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no keyspace {name:?}"))
}
