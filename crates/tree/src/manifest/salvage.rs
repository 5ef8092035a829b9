//! Reads all intact edits of a damaged manifest, for salvage. [`Manifest::read`](crate::Manifest::read), which opening
//! uses, accepts a whole manifest only.

use super::database_edit::{DatabaseEdit, KeyspaceDescription};
use super::manifest_file::manifest_file_name;
use base::{RangeSet, Result, Seq};
use env::Env;
use record::SegmentKind;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use table::TableMeta;

/// The sum of the intact edits of a manifest. Edits may be missing, so nothing here is certain: a table may have been
/// removed since, or another added.
#[derive(Debug, Default)]
pub struct SalvagedManifest {
    /// Keyspaces that were created, with the last name and options that are known, by number.
    pub keyspaces: BTreeMap<u64, KeyspaceDescription>,
    /// The keyspaces that were dropped.
    pub dropped: BTreeSet<u64>,
    /// Tables that were added and not removed, by number, with their keyspaces: more than one if some were cloned.
    pub tables: BTreeMap<u64, (BTreeSet<u64>, TableMeta)>,
    /// The numbers of removed tables.
    pub removed: BTreeSet<u64>,
    /// Per keyspace: the sequence number up to which all entries are in tables.
    pub flushed: BTreeMap<u64, Seq>,
    /// Per keyspace: every range tombstone that was added. A removed one may be needed again if salvage brings older
    /// tables back.
    pub range_tombstones: BTreeMap<u64, RangeSet>,
    /// Logs with smaller numbers are not needed.
    pub min_log: u64,
    /// The number of decoded edits.
    pub edits: u64,
    /// Unreadable parts of the file, as pairs of offsets.
    pub gaps: Vec<(u64, u64)>,
}

impl SalvagedManifest {
    /// Reads the intact edits of manifest `number`.
    ///
    /// # Errors
    /// `Unsupported` if a newer version wrote it; the error of `env` if it cannot be opened.
    pub fn read(env: &Arc<dyn Env>, dir: &Path, number: u64) -> Result<SalvagedManifest> {
        let mut all = SalvagedManifest::default();
        let mut unknown = Vec::new();
        let path = dir.join(manifest_file_name(number));
        let found = record::salvage(env, &path, SegmentKind::Manifest, number, &mut |offset, record| {
            match DatabaseEdit::decode(record) {
                _ if record.is_empty() => {} // a sync mark
                Some(edit) => all.add(edit),
                None => unknown.push((offset, offset + record.len() as u64)),
            }
            Ok(())
        })?;
        all.gaps = found.gaps;
        all.gaps.extend(unknown);
        all.gaps.sort_unstable();
        Ok(all)
    }

    fn add(&mut self, edit: DatabaseEdit) {
        self.edits += 1;
        self.keyspaces.extend(edit.created.into_iter().chain(edit.altered).map(|of| (of.id, of)));
        for (id, tree) in edit.trees {
            for (_, number) in &tree.removed {
                self.remove(*number, id);
            }
            // A move removes a table and adds it in one edit.
            for (_, meta) in tree.added {
                self.removed.remove(&meta.number);
                let (keyspaces, _) =
                    self.tables.entry(meta.number).or_insert_with(|| (BTreeSet::new(), meta));
                keyspaces.insert(id);
            }
            let range_tombstones = self.range_tombstones.entry(id).or_default();
            *range_tombstones = tree
                .range_tombstones_added
                .into_iter()
                .fold(std::mem::take(range_tombstones), |set, one| set.with(one));
            let flushed = self.flushed.entry(id).or_default();
            *flushed = (*flushed).max(tree.flushed_seq.unwrap_or(0));
        }
        for id in edit.dropped {
            self.dropped.insert(id);
            let gone: Vec<u64> = self
                .tables
                .iter()
                .filter(|(_, (of, _))| of.contains(&id))
                .map(|(number, _)| *number)
                .collect();
            gone.into_iter().for_each(|number| self.remove(number, id));
        }
        self.min_log = self.min_log.max(edit.min_log);
    }

    /// A keyspace does not have a table any more. One that it is not known to have, because an edit is missing, is gone unless another one has it.
    fn remove(&mut self, number: u64, id: u64) {
        if let Some((keyspaces, _)) = self.tables.get_mut(&number) {
            keyspaces.remove(&id);
            if !keyspaces.is_empty() {
                return;
            }
        }
        self.tables.remove(&number);
        self.removed.insert(number);
    }
}
