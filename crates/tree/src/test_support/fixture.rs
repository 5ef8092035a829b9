//! Trees of tables without files, for tests of plans and edits.

use crate::{
    JobOutput, LiveTable, ObsoleteFiles, Plan, Tree, TreeOptions, Version, VersionEdit, check_version,
};
use base::{Seq, Slice};
use env::{Env, SimEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{BlockCache, TableCache, TableMeta};

/// One table: level, smallest and largest key, smallest and largest sequence number.
pub(crate) type TableSpec = (usize, &'static str, &'static str, Seq, Seq);

/// Makes trees, and installs plans as if they had been executed.
pub(crate) struct Fixture {
    tables: Arc<TableCache>,
    pub(crate) obsolete_files: Arc<ObsoleteFiles>,
    next: u64,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let env: Arc<dyn Env> = SimEnv::new(1);
        Fixture {
            tables: TableCache::new(env, PathBuf::from("/db"), Arc::new(BlockCache::new(1 << 20)), 16),
            obsolete_files: Arc::default(),
            next: 1,
        }
    }

    pub(crate) fn meta(&mut self, spec: TableSpec) -> TableMeta {
        let (_, smallest, largest, min_seq, max_seq) = spec;
        self.next += 1;
        TableMeta {
            number: self.next - 1,
            file_size: 1000,
            entries: 10,
            tombstones: 0,
            smallest: smallest.into(),
            largest: largest.into(),
            min_seq,
            max_seq,
            seq_shift: 0,
            user_bytes: 900,
            cleared_seq: 0,
            shadowed: 0,
            times: None,
            expiry: None,
            segments: Vec::new(),
        }
    }

    pub(crate) fn open(&self) -> impl FnMut(&TableMeta) -> base::Result<Arc<LiveTable>> + use<'_> {
        |meta| {
            let table = self.tables.open(meta)?;
            Ok(LiveTable::new(meta.clone(), table, self.obsolete_files.clone(), None))
        }
    }

    pub(crate) fn tree(
        &mut self,
        options: TreeOptions,
        guards: &[(usize, &str)],
        tables: &[TableSpec],
    ) -> Tree {
        let empty = Version::empty(options.levels);
        self.tree_from(empty, options, guards, tables)
    }

    /// A tree whose tables are in no order.
    pub(crate) fn unordered_tree(
        &mut self,
        options: TreeOptions,
        guards: &[(usize, &str)],
        tables: &[TableSpec],
    ) -> Tree {
        let empty = Version::empty_unordered(options.levels);
        self.tree_from(empty, options, guards, tables)
    }

    fn tree_from(
        &mut self,
        empty: Version,
        options: TreeOptions,
        guards: &[(usize, &str)],
        tables: &[TableSpec],
    ) -> Tree {
        let edit = VersionEdit {
            added: tables.iter().map(|t| (t.0, self.meta(*t))).collect(),
            guards_added: guards.iter().map(|(level, key)| (*level, slice(key))).collect(),
            ..VersionEdit::default()
        };
        let version = empty.apply(&edit, &mut self.open()).unwrap();
        assert_eq!(check_version(&version), Vec::<String>::new());
        Tree::new(options, Arc::new(version))
    }

    /// Installs the plan as if it had been executed, with one output table for each piece that has inputs. Each table
    /// has the largest range of keys and sequence numbers that it could have.
    pub(crate) fn execute(&mut self, tree: &mut Tree, plan: &Plan) -> VersionEdit {
        let mut outcome = JobOutput::default();
        let mut from = plan.from.clone();
        let pieces = if plan.is_move() { 0 } else { plan.cuts.len() + 1 };
        for i in 0..pieces {
            let to = plan.cuts.get(i).or(plan.to.as_ref());
            let end = to.map(|k| &k[..]);
            let inputs = || plan.inputs.iter().map(|(_, t)| t).filter(|t| t.overlaps_range(&from, end));
            if let Some(min_seq) = inputs().map(|t| t.meta.min_seq).min() {
                let max_seq = inputs().map(|t| t.meta.max_seq).max().unwrap();
                let mut meta = self.meta((0, "", "", min_seq, max_seq));
                meta.smallest = inputs().map(|t| t.meta.smallest.clone().max(from.to_vec())).min().unwrap();
                let largest = inputs().map(|t| &t.meta.largest).max().unwrap().clone();
                meta.largest = match end {
                    Some(end) if &largest[..] >= end => before(end).max(meta.smallest.clone()),
                    _ => largest,
                };
                // A possible cut by `piece_bytes`: after the first key.
                if plan.piece_bytes > 0 && meta.smallest < meta.largest {
                    let mut first = self.meta((0, "", "", min_seq, max_seq));
                    first.smallest = meta.smallest.clone();
                    first.largest = meta.smallest.clone();
                    meta.smallest.push(0);
                    outcome.added.push(first);
                }
                outcome.added.push(meta);
            }
            from = to.cloned().unwrap_or_default();
        }
        let edit = tree.install(plan, &outcome, &mut self.open()).unwrap();
        tree.apply(&edit, &mut self.open()).unwrap();
        tree.done(plan);
        edit
    }
}

/// A key slightly smaller than `key`.
fn before(key: &[u8]) -> Vec<u8> {
    match key {
        [shorter @ .., 0] => shorter.to_vec(),
        [shorter @ .., last] => [shorter, &[last - 1, 0xff]].concat(),
        [] => Vec::new(),
    }
}

pub(crate) fn slice(text: &str) -> Slice {
    Slice::copy_from(text.as_bytes())
}

pub(crate) fn cuts(plan: &Plan) -> Vec<String> {
    plan.cuts.iter().map(|k| String::from_utf8_lossy(k).into_owned()).collect()
}

/// Marks tables as unreadable, as a failed compaction does.
pub(crate) fn damage(tree: &Tree, numbers: &[u64]) {
    let wrong = base::Error::corruption(Path::new("/db/table"), 0, "damaged, for the test");
    let tables = tree.version().tables().filter(|(_, t)| numbers.contains(&t.meta.number));
    assert_eq!(tables.map(|(_, t)| t.damage.note_merge(&wrong)).count(), numbers.len());
}

pub(crate) fn inputs(plan: &Plan) -> Vec<u64> {
    plan.numbers().collect()
}
