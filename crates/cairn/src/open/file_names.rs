//! Recognizes the files of a database directory by name.

use crate::parts::{parse_replaced_manifest, replaced_manifest_name};
use crate::wal::{is_recycled_file_name, log_file_name, parse_log_file_name};
use base::planted::{Bug, planted};
use base::{Error, Result};
use env::Env;
use hashlog::{hint_file_name, parse_hint_file_name};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use table::{parse_table_file_name, table_file_name};
use tree::{manifest_file_name, parse_manifest_file_name};
use values::{parse_value_file_name, value_file_name};

/// Name of the lock file.
pub(crate) const LOCK_FILE_NAME: &str = "LOCK";

/// Name of the file that says that a copy of a database was begun in a directory. Beside a manifest it says nothing.
pub(crate) const UNFINISHED: &str = "UNFINISHED";

/// The files of a database directory, by kind, each ascending. Other files are ignored.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub manifests: Vec<u64>,
    pub logs: Vec<u64>,
    pub tables: Vec<u64>,
    /// Value files.
    pub values: Vec<u64>,
    /// Hint files.
    pub hints: Vec<u64>,
    /// Manifests that were replaced, and stay for readers in other processes.
    pub replaced: Vec<u64>,
    /// Half-written manifests.
    pub temporary: Vec<String>,
    /// Recycled logs.
    pub recycled: Vec<String>,
    /// Whether there is the file `UNFINISHED`.
    pub unfinished: bool,
}

impl Files {
    pub(crate) fn list(env: &Arc<dyn Env>, dir: &Path) -> Result<Files> {
        let mut files = Files::default();
        for name in env.list(dir)? {
            if let Some(number) = parse_manifest_file_name(&name) {
                files.manifests.push(number);
            } else if let Some(number) = parse_log_file_name(&name) {
                files.logs.push(number);
            } else if let Some(number) = parse_table_file_name(&name) {
                files.tables.push(number);
            } else if let Some(number) = parse_value_file_name(&name) {
                files.values.push(number);
            } else if let Some(number) = parse_hint_file_name(&name) {
                files.hints.push(number);
            } else if name.strip_suffix(".tmp").is_some_and(|n| parse_manifest_file_name(n).is_some()) {
                files.temporary.push(name);
            } else if let Some(number) = parse_replaced_manifest(&name) {
                files.replaced.push(number);
            } else if is_recycled_file_name(&name) {
                files.recycled.push(name);
            } else if name == UNFINISHED {
                files.unfinished = true;
            }
        }
        files.manifests.sort_unstable();
        files.logs.sort_unstable();
        files.tables.sort_unstable();
        files.values.sort_unstable();
        files.hints.sort_unstable();
        files.replaced.sort_unstable();
        files.temporary.sort_unstable();
        files.recycled.sort_unstable();
        Ok(files)
    }

    /// Whether there are no files of a database: no manifest, log or table.
    pub(crate) fn is_empty(&self) -> bool {
        self.manifests.is_empty() && self.logs.is_empty() && self.tables.is_empty()
    }

    /// The names of all of them, but for `UNFINISHED`.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let numbered = [
            self.manifests.iter().map(|n| manifest_file_name(*n)).collect::<Vec<_>>(),
            self.replaced.iter().map(|n| replaced_manifest_name(*n)).collect(),
            self.logs.iter().map(|n| log_file_name(*n)).collect(),
            self.tables.iter().map(|n| table_file_name(*n)).collect(),
            self.values.iter().map(|n| value_file_name(*n)).collect(),
            self.hints.iter().map(|n| hint_file_name(*n)).collect(),
        ];
        numbered.into_iter().flatten().chain(self.temporary.clone()).chain(self.recycled.clone())
    }

    /// A number larger than every file number in use, on disk or in `state`: numbers are never used again.
    pub(crate) fn next_number(&self, state: &tree::ManifestState) -> u64 {
        let temporary =
            self.temporary.iter().filter_map(|n| parse_manifest_file_name(n.strip_suffix(".tmp")?));
        let used = self
            .manifests
            .iter()
            .chain(&self.replaced)
            .chain(&self.tables)
            .chain(&self.values)
            .chain(&self.hints)
            .copied()
            .chain(temporary)
            .max();
        let used = used.filter(|_| !planted(Bug::ReuseFileNumber));
        state.next_file.max(used.map_or(1, |n| n.saturating_add(1))).max(1)
    }

    /// The logs that recovery needs: from `min_log` on, without a gap.
    pub(crate) fn needed_logs(&self, dir: &Path, state: &tree::ManifestState) -> Result<Vec<u64>> {
        let needed: Vec<u64> = self.logs.iter().copied().filter(|&n| n >= state.min_log).collect();
        let newest = needed.last().copied().unwrap_or(0).max(state.newest_log);
        let mut expected = state.min_log..=newest;
        if let Some(missing) = expected.find(|n| needed.binary_search(n).is_err()) {
            return Err(Error::corruption(
                &dir.join(log_file_name(missing)),
                0,
                "this part of the log is missing, and the writes in it with it",
            ));
        }
        Ok(needed)
    }

    /// The names of all files that a new manifest does not name: all old manifests and logs, and tables not in `named`.
    ///
    /// `lacking`: a table that the old manifest names is missing. Its last edits may then be lost, and files that it does not name may
    /// have the only copy of that table's content: tables and manifests stay, for salvage.
    pub(crate) fn leftovers(&self, named: &HashSet<u64>, lacking: bool) -> Vec<String> {
        let logs = self.logs.iter().map(|n| log_file_name(*n)).chain(self.recycled.iter().cloned());
        let logs = logs.chain(self.unfinished.then(|| UNFINISHED.to_owned()));
        let logs = logs.chain(self.replaced.iter().map(|n| replaced_manifest_name(*n)));
        if lacking {
            return logs.chain(self.temporary.iter().cloned()).collect();
        }
        let tables = self.tables.iter().filter(|n| !named.contains(n)).map(|n| table_file_name(*n));
        let manifests = self.manifests.iter().map(|n| manifest_file_name(*n));
        let values = self.values.iter().map(|n| value_file_name(*n));
        let hints = self.hints.iter().filter(|n| !named.contains(n)).map(|n| hint_file_name(*n));
        tables
            .chain(values)
            .chain(hints)
            .chain(logs)
            .chain(manifests)
            .chain(self.temporary.iter().cloned())
            .collect()
    }
}
