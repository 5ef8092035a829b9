//! Clones of keyspaces. A clone has the tables of the other keyspace, and not copies of them: tables are immutable, and a file is removed only when no
//! keyspace has it ([`tree::LiveTable::share`]). So a clone is one edit of the manifest, which adds these tables to one more tree.
//!
//! What compactions of either write is its own. A value outside of the tables stays as long as a table of either refers to it: collections read
//! that from the tables, of whatever keyspace they are.

use crate::disk::missing;
use crate::events;
use crate::state::{DbInner, KeyspaceInner, KeyspaceState, Role, Settings, State, check_name};
use crate::sync::Ordering;
use base::planted::{Bug, planted};
use base::{Error, Result};
use memtable::Memtable;
use std::sync::Arc;
use tree::{DatabaseEdit, Tree, Version, VersionEdit};

/// A keyspace, its tables, and the new keyspace that gets them.
struct Pair {
    source: Arc<KeyspaceInner>,
    version: Arc<Version>,
    clone: Arc<KeyspaceInner>,
}

impl DbInner {
    /// See `Database::clone_keyspace`.
    pub(crate) fn clone_keyspace(&self, name: &str, new: &str) -> Result<Arc<KeyspaceInner>> {
        check_name(new)?;
        let _call = self.begin_call()?;
        let source = {
            let state = self.state.lock();
            let source = state.by_name(name).ok_or_else(|| missing(name))?.inner.clone();
            state.check_free(new)?;
            source
        };
        source.check_order()?;
        let forgets = planted(Bug::CloneWithoutFlush);
        // Most of it, while writers go on.
        if !forgets {
            self.flush_keyspace(&source)?;
        }
        let clone = {
            // What was written meanwhile. So the tables have all commits up to this moment and none after it: of two trees, too.
            let mut writer = self.writer();
            self.status.check_running()?;
            source.check_open()?;
            let trees: Vec<_> = [Some(&source), source.historical()].into_iter().flatten().cloned().collect();
            if !forgets {
                self.flush_held(&mut writer, &trees)?;
            }
            self.clone_tables(&source, new)?
        };
        // What is due in the new tree; and tables that compactions have given up, and this call has kept.
        self.run_pending();
        self.collect_obsolete();
        Ok(clone)
    }

    /// Makes the keyspace `new` with the tables that `source` has now. The caller holds the writer, and `source` has nothing in memory.
    fn clone_tables(&self, source: &Arc<KeyspaceInner>, new: &str) -> Result<Arc<KeyspaceInner>> {
        // Edits are made and installed under this lock, so the tables stay those of the moment.
        let mut manifest = self.manifest.lock();
        self.status.check_running()?;
        source.check_open()?;
        self.filters.check(new, &source.options())?;
        let (pairs, next_keyspace) = {
            let state = self.state.lock();
            state.check_free(new)?;
            let id = state.next_keyspace;
            let pair = |source: &Arc<KeyspaceInner>, id, role| {
                let found = state.keyspaces.get(&source.id).ok_or_else(|| missing(&source.name()))?;
                let settings = Settings { name: new.to_owned(), ..(*source.settings.load_full()).clone() };
                let clone = self.new_keyspace(id, settings, role, source.operator.clone(), None);
                Ok::<_, Error>(Pair { source: source.clone(), version: found.tree.version().clone(), clone })
            };
            let historical =
                source.historical().map(|of| pair(of, id + 1, Role::Historical(id))).transpose()?;
            let role = historical.as_ref().map_or(Role::Plain, |pair| Role::Primary(pair.clone.clone()));
            let pairs: Vec<Pair> = [pair(source, id, role)?].into_iter().chain(historical).collect();
            let next_keyspace = id + pairs.len() as u64;
            (pairs, next_keyspace)
        };
        let mut edit = DatabaseEdit {
            created: pairs.iter().map(|pair| pair.clone.description()).collect(),
            trees: pairs.iter().map(|p| (p.clone.id, VersionEdit::snapshot(&p.version))).collect(),
            shares_tables: true,
            next_keyspace,
            ..DatabaseEdit::default()
        };
        self.log_edit(&mut manifest, &mut edit)?;
        let trees: Result<Vec<Tree>> = pairs
            .iter()
            .map(|p| Ok(Tree::new(p.clone.tree_options(), Arc::new(p.version.share()?))))
            .collect();
        // Only a bug could refuse what the manifest has now.
        let trees = trees.map_err(|e| self.stop(&e))?;
        let mut state = self.state.lock();
        state.next_keyspace = next_keyspace;
        pairs.iter().zip(trees).for_each(|(pair, tree)| self.insert_clone(&mut state, pair, tree));
        self.signals.compact_work.notify_one();
        drop(state);
        events::info!(keyspace = source.name(), clone = new, "keyspace cloned");
        self.renew_manifest(&mut manifest);
        Ok(pairs[0].clone.clone())
    }

    fn insert_clone(&self, state: &mut State, Pair { source, clone, .. }: &Pair, tree: Tree) {
        self.disk_reserve.note_tables(0, tree.version().bytes());
        // By the holder of the writer. A snapshot from before does not see the newest of these entries.
        clone.dead.note_ingest(tree.version().flushed_seq);
        if source.may_expire() {
            clone.note_expiries();
        }
        // Readers from before the source got its retention may read the clone, too.
        let retention = *source.retention.lock();
        *clone.retention.lock() = retention;
        clone.newest_time.store(source.newest_time.load(Ordering::Relaxed), Ordering::Relaxed);
        let keyspace = KeyspaceState::new(clone.clone(), tree);
        keyspace.publish(Memtable::empty());
        state.insert(keyspace);
    }
}
