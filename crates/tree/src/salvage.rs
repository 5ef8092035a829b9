//! What a manifest says, as far as it can be read: for salvage. Opening a database reads it with [`Manifest`](crate::Manifest),
//! which takes it whole or not at all.

use crate::manifest::{DatabaseEdit, KeyspaceCreated, manifest_file_name};
use base::{RangeSet, Result, Seq};
use env::Env;
use record::SegmentKind;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use table::TableMeta;

/// The edits of a manifest that are intact, added up. Edits may be missing between them, so nothing here is certain: a table may
/// have gone, another one have come, since.
#[derive(Debug, Default)]
pub struct SalvagedManifest {
    /// Keyspaces that were created, by number.
    pub keyspaces: BTreeMap<u64, KeyspaceCreated>,
    /// Those of them that were dropped.
    pub dropped: BTreeSet<u64>,
    /// Tables that came and did not go, by number, with the number of their keyspace.
    pub tables: BTreeMap<u64, (u64, TableMeta)>,
    /// Numbers of tables that went.
    pub removed: BTreeSet<u64>,
    /// Per keyspace: what is in tables, up to which sequence number.
    pub flushed: BTreeMap<u64, Seq>,
    /// Per keyspace: every range tombstone that came. One that had done its work may be needed again, where tables come back.
    pub ranges: BTreeMap<u64, RangeSet>,
    /// Logs with smaller numbers are not needed.
    pub min_log: u64,
    /// Edits that could be read.
    pub edits: u64,
    /// Bytes that could not, from offset to offset.
    pub gaps: Vec<(u64, u64)>,
}

impl SalvagedManifest {
    /// Reads what is intact of manifest `number`.
    ///
    /// # Errors
    /// `Unsupported` when a newer version wrote it; what `env` says when it cannot be opened.
    pub fn read(env: &Arc<dyn Env>, dir: &Path, number: u64) -> Result<SalvagedManifest> {
        let mut all = SalvagedManifest::default();
        let mut unknown = Vec::new();
        let path = dir.join(manifest_file_name(number));
        let found = record::salvage(env, &path, SegmentKind::Manifest, number, &mut |offset, record| {
            match DatabaseEdit::decode(record) {
                _ if record.is_empty() => {} // a mark
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
        self.keyspaces.extend(edit.created.into_iter().map(|created| (created.id, created)));
        for (id, tree) in edit.trees {
            for (_, number) in &tree.removed {
                self.tables.remove(number);
                self.removed.insert(*number);
            }
            // A compaction may move a table, too: it goes and comes in one edit.
            for (_, meta) in tree.added {
                self.removed.remove(&meta.number);
                self.tables.insert(meta.number, (id, meta));
            }
            let ranges = self.ranges.entry(id).or_default();
            *ranges = tree.ranges_added.into_iter().fold(std::mem::take(ranges), |set, one| set.with(one));
            let flushed = self.flushed.entry(id).or_default();
            *flushed = (*flushed).max(tree.flushed_seq.unwrap_or(0));
        }
        for id in edit.dropped {
            self.dropped.insert(id);
            let gone: Vec<u64> =
                self.tables.iter().filter(|(_, (of, _))| *of == id).map(|(number, _)| *number).collect();
            for number in gone {
                self.tables.remove(&number);
                self.removed.insert(number);
            }
        }
        self.min_log = self.min_log.max(edit.min_log);
    }
}
