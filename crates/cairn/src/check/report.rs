//! A report of damage under construction: checks and scrubs add the findings of tables, trees and other files.

use crate::open::Files;
use crate::types::{CheckProgress, CheckReport, Problem};
use base::{Error, ErrorKind, Result};
use history::BothTrees;
use std::collections::HashSet;
use std::sync::Arc;
use table::TimesOf;
use tree::{KeyRange, LiveTable, MergeCursor, ReadCharges, Version};
use values::Segments;

/// Most versions of a keyspace that are listed one by one.
const MAX_LISTED: usize = 20;

/// A tree that is checked, and what tells the times of its entries, if they are versions.
pub(super) struct CheckedTree<'a> {
    pub version: &'a Version,
    pub times_of: Option<TimesOf>,
}

/// All tables of the trees, each once, with what tells the times of its entries.
pub(super) fn tables_of<'a>(trees: &[CheckedTree<'a>]) -> Vec<(&'a Arc<LiveTable>, Option<TimesOf>)> {
    let mut seen = HashSet::new();
    let tables = trees.iter().flat_map(|tree| tree.version.tables().map(|(_, table)| (table, tree.times_of)));
    tables.filter(|(table, _)| seen.insert(table.meta.number)).collect()
}

impl CheckReport {
    pub(crate) fn problem(&mut self, file: &str, offset: Option<u64>, what: String) {
        self.problems.push(Problem { file: file.to_owned(), offset, what, unsupported: false });
    }

    /// Records an error, in the file that it names if it names one.
    pub(crate) fn error(&mut self, file: &str, error: &Error) {
        self.problems.push(Problem::of(file, error));
    }

    pub(crate) fn check_invariants(&mut self, keyspace: &str, version: &Version) {
        for problem in tree::check_version(version) {
            self.problem("manifest", None, format!("keyspace {keyspace:?}: {problem}"));
        }
    }

    /// Checks all tables. When `go_on` fails, the caller may no longer read the files: the check ends and records nothing.
    pub(super) fn check_tables(
        &mut self,
        trees: &[CheckedTree<'_>],
        segments: &Segments,
        progress: &mut dyn FnMut(&CheckProgress),
        go_on: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let tables = tables_of(trees);
        let bytes_total = tables.iter().map(|(t, _)| t.meta.file_size).sum();
        let mut done = 0;
        for (table, times_of) in tables {
            let file = table::table_file_name(table.meta.number);
            let mut step = |bytes: u64| {
                let bytes_done = done + bytes.min(table.meta.file_size);
                progress(&CheckProgress { bytes_done, bytes_total, file: file.clone() });
                go_on()
            };
            step(0)?;
            self.verify_table(table, times_of, segments, &mut step)?;
            done += table.meta.file_size;
        }
        progress(&CheckProgress { bytes_done: done, bytes_total, file: String::new() });
        go_on()
    }

    /// Checks that the versions in the two trees of a keyspace with history fit together, unless a table of them is damaged.
    pub(crate) fn check_versions(
        &mut self,
        keyspace: &str,
        primary: &Version,
        historical: &Version,
        go_on: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        if primary.tables().chain(historical.tables()).any(|(_, table)| table.damage.first().is_some()) {
            self.notes
                .push(format!("keyspace {keyspace:?}: its versions are not compared, because of damage"));
            return Ok(());
        }
        let (all, charges) = (KeyRange::new(b"", None), ReadCharges::new(0, Arc::default()));
        let cursor = |version: &Version| MergeCursor::new(version.sources(&charges, &all).collect(), 0);
        let trees = BothTrees {
            primary: cursor(primary),
            historical: cursor(historical),
            ranges: &primary.range_tombstones,
            flushed: primary.flushed_seq,
        };
        let (mut found, mut more) = (Vec::new(), 0u64);
        let mut note = |what| match found.len() < MAX_LISTED {
            true => found.push(what),
            false => more += 1,
        };
        match history::check_versions(trees, &mut || go_on(), &mut note) {
            Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
            Err(e) => self.error("tables", &e),
            Ok(()) => {}
        }
        for what in found {
            self.problem("tables", None, format!("keyspace {keyspace:?}, {what}"));
        }
        if more > 0 {
            self.problem("tables", None, format!("keyspace {keyspace:?}: {more} more versions like these"));
        }
        Ok(())
    }

    /// Verifies one table and the values outside of the tree that it refers to, and records the findings here and in the table. Fails only when `step`, which gets the number of verified
    /// bytes, fails with `Closed`; `step` is called once more before damage is recorded.
    pub(crate) fn verify_table(
        &mut self,
        table: &LiveTable,
        times_of: Option<TimesOf>,
        segments: &Segments,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let file = table::table_file_name(table.meta.number);
        match table.table.verify_with(times_of, step) {
            Ok(found) if table.is_described_by(&found) => {
                table.damage.clear();
                self.entries += found.entries;
                let mut read = table.meta.file_size;
                let wrong = table.verify_values(segments, &mut |bytes| {
                    read += bytes;
                    step(read)
                })?;
                wrong.iter().for_each(|e| self.error(&file, e));
            }
            Ok(found) => {
                let what = format!("the manifest has {:?}, the table is {found:?}", table.meta);
                self.problem(&file, None, what);
            }
            Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
            Err(e) => {
                step(table.meta.file_size)?;
                table.damage.note(&e);
                self.error(&file, &e);
            }
        }
        self.tables += 1;
        self.bytes += table.meta.file_size;
        Ok(())
    }

    /// Tables that no version names are not damage: a crash leaves them behind, and the next opening removes them.
    pub(crate) fn check_unnamed(&mut self, files: &Files, versions: &[&Version]) {
        let named: HashSet<u64> = versions
            .iter()
            .flat_map(|v| v.tables().map(|(_, t)| t.meta.number).collect::<Vec<_>>())
            .collect();
        let unnamed = files.tables.iter().filter(|n| !named.contains(n)).count();
        if unnamed > 0 {
            self.notes.push(format!("{unnamed} tables are not in use; the next opening removes them"));
        }
    }
}
