//! [`ManifestState`]: the sum of the edits of a manifest.

use super::database_edit::{DatabaseEdit, KeyspaceDescription};
use crate::version::{LiveTable, Version};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Time};
use hashlog::HintFile;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use table::TableMeta;
use values::ValueFile;

/// The state of one keyspace in a manifest.
#[derive(Debug)]
pub struct KeyspaceState {
    /// Its name and options.
    pub description: KeyspaceDescription,
    /// Its tables and guards.
    pub version: Arc<Version>,
    /// Its hint files, by number, if it has no order.
    pub hints: BTreeMap<u64, HintFile>,
}

/// The state of a database: the sum of all edits of a manifest.
#[derive(Debug, Default)]
pub struct ManifestState {
    /// Keyspaces, by number.
    pub keyspaces: BTreeMap<u64, KeyspaceState>,
    /// See [`DatabaseEdit::next_file`].
    pub next_file: u64,
    /// See [`DatabaseEdit::next_keyspace`].
    pub next_keyspace: u64,
    /// See [`DatabaseEdit::last_seq`].
    pub last_seq: Seq,
    /// See [`DatabaseEdit::last_time`].
    pub last_time: Time,
    /// See [`DatabaseEdit::retention_time`].
    pub retention_time: Time,
    /// See [`DatabaseEdit::min_log`].
    pub min_log: u64,
    /// See [`DatabaseEdit::newest_log`].
    pub newest_log: u64,
    /// The length of each closed log that may still be needed, by number.
    pub closed: BTreeMap<u64, u64>,
    /// The value files, by number.
    pub value_files: BTreeMap<u64, ValueFile>,
    /// Whether several trees may have, or have had, the same table.
    pub shares_tables: bool,
}

/// Opens a table, unless another tree has it: then it is one table for both.
fn open_shared(
    opened: &mut HashMap<u64, Arc<LiveTable>>,
    meta: &TableMeta,
    open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
) -> Result<Arc<LiveTable>> {
    match opened.get(&meta.number).filter(|_| !planted(Bug::ForgetSharing)) {
        Some(table) if table.meta == *meta => Ok(table.clone()),
        Some(_) => {
            let what = format!("an edit adds table {}, which another tree has otherwise", meta.number);
            Err(Error::new(ErrorKind::Corruption, what))
        }
        None => {
            let table = open(meta)?;
            opened.insert(meta.number, table.clone());
            Ok(table)
        }
    }
}

impl ManifestState {
    fn all_tables(&self) -> HashMap<u64, Arc<LiveTable>> {
        let tables = self.keyspaces.values().flat_map(|keyspace| keyspace.version.tables());
        tables.map(|(_, table)| (table.meta.number, table.clone())).collect()
    }

    /// Tells each table how many trees have it.
    ///
    /// # Errors
    /// `Corruption` if there are two tables with the same number.
    pub(super) fn count_trees(&self) -> Result<()> {
        /// A table, the number of trees that have it, and the last of them.
        type Found<'a> = (&'a Arc<LiveTable>, usize, u64);
        let mut found: HashMap<u64, Found<'_>> = HashMap::new();
        for (id, keyspace) in &self.keyspaces {
            for (_, table) in keyspace.version.tables() {
                let (first, count, last) = found.entry(table.meta.number).or_insert((table, 0, 0));
                let is_other = !Arc::ptr_eq(first, table) && !planted(Bug::ForgetSharing);
                if is_other || *count > 0 && *last == *id {
                    let what = format!("table {} is there twice", table.meta.number);
                    return Err(Error::new(ErrorKind::Corruption, what));
                }
                (*count, *last) = (*count + 1, *id);
            }
        }
        found.values().for_each(|(table, count, _)| table.set_trees(*count));
        Ok(())
    }

    /// Applies the next edit of the manifest.
    pub(super) fn apply(
        &mut self,
        edit: DatabaseEdit,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<()> {
        let wrong = |what: String| Error::new(ErrorKind::Corruption, what);
        for created in edit.created {
            let version = match created.history_of {
                None => Version::empty(created.levels),
                Some(_) => Version::empty_unordered(created.levels),
            };
            let id = created.id;
            let (version, hints) = (Arc::new(version), BTreeMap::new());
            let state = KeyspaceState { description: created, version, hints };
            if self.keyspaces.insert(id, state).is_some() {
                return Err(wrong(format!("an edit creates keyspace {id}, which exists")));
            }
            self.next_keyspace = self.next_keyspace.max(id.saturating_add(1));
        }
        for altered in edit.altered {
            let id = altered.id;
            let keyspace = self.keyspaces.get_mut(&id);
            let keyspace = keyspace
                .ok_or_else(|| wrong(format!("an edit alters keyspace {id}, which does not exist")))?;
            let KeyspaceDescription { levels, history_of, .. } = keyspace.description;
            if (altered.levels, altered.history_of) != (levels, history_of) {
                return Err(wrong(format!("an edit gives keyspace {id} other levels, or another history")));
            }
            keyspace.description = altered;
        }
        self.shares_tables |= edit.shares_tables;
        let mut opened = edit.shares_tables.then(|| self.all_tables());
        for (id, tree) in edit.trees {
            let keyspace = self
                .keyspaces
                .get_mut(&id)
                .ok_or_else(|| wrong(format!("an edit changes keyspace {id}, which does not exist")))?;
            let mut open = |meta: &TableMeta| match &mut opened {
                Some(opened) => open_shared(opened, meta, open),
                None => open(meta),
            };
            keyspace.version = Arc::new(keyspace.version.apply(&tree, &mut open)?);
            let highest = tree.added.iter().map(|(_, meta)| meta.number.saturating_add(1)).max();
            self.next_file = self.next_file.max(highest.unwrap_or(0));
        }
        for (id, number) in edit.hints_removed {
            // A keyspace may have been dropped since.
            self.keyspaces.get_mut(&id).map(|keyspace| keyspace.hints.remove(&number));
        }
        for (id, hints) in edit.hints {
            let keyspace = self.keyspaces.get_mut(&id);
            let keyspace = keyspace
                .ok_or_else(|| wrong(format!("an edit adds hints to keyspace {id}, which does not exist")))?;
            self.next_file = self.next_file.max(hints.number.saturating_add(1));
            keyspace.hints.insert(hints.number, hints);
        }
        for id in edit.dropped {
            if self.keyspaces.remove(&id).is_none() {
                return Err(wrong(format!("an edit drops keyspace {id}, which does not exist")));
            }
        }
        for number in edit.value_files_removed {
            self.value_files.remove(&number);
        }
        for file in edit.value_files {
            for older in self.value_files.values_mut() {
                older.segments.retain(|segment| file.segments.binary_search(segment).is_err());
            }
            self.value_files.retain(|_, older| !older.segments.is_empty());
            self.next_file = self.next_file.max(file.number.saturating_add(1));
            self.value_files.insert(file.number, file);
        }
        self.next_file = self.next_file.max(edit.next_file);
        self.next_keyspace = self.next_keyspace.max(edit.next_keyspace);
        self.last_seq = self.last_seq.max(edit.last_seq);
        self.last_time = self.last_time.max(edit.last_time);
        self.retention_time = self.retention_time.max(edit.retention_time);
        self.min_log = self.min_log.max(edit.min_log);
        self.newest_log = self.newest_log.max(edit.newest_log);
        self.closed.extend(edit.closed.iter().map(|log| (log.number, log.len)));
        self.closed = self.closed.split_off(&self.min_log);
        Ok(())
    }
}
