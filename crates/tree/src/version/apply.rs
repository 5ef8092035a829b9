//! Applies an edit to a version. Guards that do not change are shared with the old version.
//!
//! An edit that does not fit the version (a missing table, a table across a guard) is an error: the manifest is damaged, or there
//! is a bug.

use super::Version;
use super::edit::VersionEdit;
use super::level::{Guard, Level};
use super::live_table::LiveTable;
use super::sketch::Sketch;
use base::{Error, ErrorKind, Result, Slice};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use table::TableMeta;

impl Version {
    /// Applies `edit`. `open` opens the tables that the edit adds.
    pub fn apply(
        &self,
        edit: &VersionEdit,
        open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
    ) -> Result<Version> {
        let last = self.last_level();
        check_levels(edit, last)?;
        let mut added = added_tables(self, edit, open)?;
        let mut removed: Vec<HashSet<u64>> = vec![HashSet::new(); last + 1];
        for (level, number) in &edit.removed {
            removed[*level].insert(*number);
        }
        let mut levels = self.levels.clone();
        for n in 1..=last {
            let change = LevelChange {
                added: std::mem::take(&mut added[n]),
                removed: &removed[n],
                guards_added: of_level(&edit.guards_added, n),
                guards_removed: of_level(&edit.guards_removed, n),
            };
            if !change.is_empty() {
                levels[n - 1] = Arc::new(change.apply(self.level(n), n)?);
            }
        }
        Ok(Version {
            level0: level0_after(self, &removed[0], std::mem::take(&mut added[0]))?,
            levels,
            uncommitted: uncommitted_after(self, edit),
            flushed_seq: self.flushed_seq.max(edit.flushed_seq.unwrap_or(0)),
            range_tombstones: self.range_tombstones_after(edit),
            unordered: self.unordered,
        })
    }
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corruption, what)
}

/// An error if the edit names a level that the tree does not have.
fn check_levels(edit: &VersionEdit, last: usize) -> Result<()> {
    let tables =
        edit.added.iter().map(|(level, _)| *level).chain(edit.removed.iter().map(|(level, _)| *level));
    let guards = edit.guards_added.iter().chain(&edit.guards_removed).map(|(level, _)| *level);
    match tables.chain(guards).max().filter(|&deepest| deepest > last) {
        Some(deepest) => Err(wrong(format!("an edit names level {deepest}, but the tree has {last} levels"))),
        None => Ok(()),
    }
}

/// The tables that the edit adds, by level, with their sketches.
fn added_tables(
    version: &Version,
    edit: &VersionEdit,
    open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
) -> Result<Vec<Vec<Arc<LiveTable>>>> {
    let mut added: Vec<Vec<Arc<LiveTable>>> = vec![Vec::new(); version.last_level() + 1];
    let mut moved = moved_tables(version, edit);
    for (level, meta) in &edit.added {
        added[*level].push(match moved.remove(&meta.number) {
            Some(table) if table.meta == *meta => table,
            Some(_) => return Err(wrong(format!("an edit moves table {} and changes it", meta.number))),
            None => open(meta)?,
        });
    }
    if !edit.sketches.is_empty() {
        let sketches: HashMap<u64, &Sketch> = edit.sketches.iter().map(|(n, sketch)| (*n, sketch)).collect();
        for table in added.iter().flatten() {
            sketches.get(&table.meta.number).inspect(|sketch| table.set_sketch(sketch));
        }
    }
    Ok(added)
}

/// The tables that an edit removes from one level and adds to another. Their readers and damage marks are kept.
fn moved_tables(version: &Version, edit: &VersionEdit) -> HashMap<u64, Arc<LiveTable>> {
    let added: HashSet<u64> = edit.added.iter().map(|(_, meta)| meta.number).collect();
    let both: HashSet<u64> = edit.removed.iter().map(|(_, n)| *n).filter(|n| added.contains(n)).collect();
    if both.is_empty() {
        return HashMap::new();
    }
    let tables = version.tables().filter(|(_, t)| both.contains(&t.meta.number));
    tables.map(|(_, t)| (t.meta.number, t.clone())).collect()
}

fn level0_after(
    version: &Version,
    removed: &HashSet<u64>,
    added: Vec<Arc<LiveTable>>,
) -> Result<Vec<Arc<LiveTable>>> {
    let mut level0 = version.level0.clone();
    level0.retain(|t| !removed.contains(&t.meta.number));
    if version.level0.len() - level0.len() != removed.len() {
        return Err(wrong("an edit removes a table that level 0 does not have"));
    }
    level0.extend(added);
    level0.sort_by_key(|t| Reverse(t.meta.max_seq));
    Ok(level0)
}

fn uncommitted_after(version: &Version, edit: &VersionEdit) -> Arc<BTreeMap<Slice, usize>> {
    if edit.uncommitted_added.is_empty() && edit.uncommitted_removed.is_empty() {
        return version.uncommitted.clone();
    }
    let mut guards = BTreeMap::clone(&version.uncommitted);
    for (level, key) in &edit.uncommitted_added {
        let shallowest = guards.entry(key.clone()).or_insert(*level);
        *shallowest = (*shallowest).min(*level);
    }
    for key in &edit.uncommitted_removed {
        guards.remove(key);
    }
    Arc::new(guards)
}

/// The keys of level `n` in a list of guards, ascending.
fn of_level(guards: &[(usize, Slice)], n: usize) -> Vec<Slice> {
    let mut keys: Vec<Slice> =
        guards.iter().filter(|(level, _)| *level == n).map(|(_, key)| key.clone()).collect();
    keys.sort_unstable();
    keys
}

/// The part of an edit that concerns one level of guards.
struct LevelChange<'a> {
    added: Vec<Arc<LiveTable>>,
    removed: &'a HashSet<u64>,
    guards_added: Vec<Slice>,
    guards_removed: Vec<Slice>,
}

impl LevelChange<'_> {
    fn is_empty(&self) -> bool {
        self.added.is_empty()
            && self.removed.is_empty()
            && self.guards_added.is_empty()
            && self.guards_removed.is_empty()
    }

    /// The level after the change. It shares unchanged guards with the old level.
    fn apply(mut self, old: &Level, n: usize) -> Result<Level> {
        let keys = self.keys(old, n)?;
        self.added.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        let mut added = self.added.into_iter().peekable();
        let mut guards = Vec::with_capacity(keys.len());
        let mut removed = 0;
        let mut source = 0; // the first old guard that overlaps the new one
        for (i, key) in keys.iter().enumerate() {
            let end = keys.get(i + 1);
            let before_end = |t: &LiveTable| end.is_none_or(|end| t.meta.smallest[..] < end[..]);
            while old.end_of(source).is_some_and(|end| end <= key) {
                source += 1;
            }
            let same = &old.guards[source];
            let same_range = same.key == *key && old.end_of(source) == end;
            let comes = added.peek().is_some_and(|t| before_end(t));
            let goes = same.tables.iter().any(|t| self.removed.contains(&t.meta.number));
            if same_range && !comes && !goes {
                guards.push(same.clone());
                continue;
            }
            let mut tables = Vec::new();
            let overlapped = old.guards[source..].iter().take_while(|g| end.is_none_or(|end| g.key < *end));
            for table in overlapped.flat_map(|g| &g.tables) {
                let inside = table.meta.smallest[..] >= key[..] && before_end(table);
                match (inside, self.removed.contains(&table.meta.number)) {
                    (true, true) => removed += 1,
                    (true, false) => tables.push(table.clone()),
                    (false, _) => {}
                }
            }
            while let Some(table) = added.next_if(|t| before_end(t)) {
                tables.push(table);
            }
            if let Some(table) = tables.iter().find(|t| end.is_some_and(|end| t.meta.largest[..] >= end[..]))
            {
                return Err(wrong(format!(
                    "table {} of level {n} lies across the guard {:?}",
                    table.meta.number,
                    keys[i + 1]
                )));
            }
            tables.sort_by_key(|t| Reverse(t.meta.max_seq));
            let guard = Guard::new(key.clone(), tables);
            if same_range && !goes {
                guard.inherit_charges(same);
            }
            guards.push(guard);
        }
        if removed != self.removed.len() {
            return Err(wrong(format!("an edit removes a table that level {n} does not have")));
        }
        Ok(Level::new(guards))
    }

    fn keys(&self, old: &Level, n: usize) -> Result<Vec<Slice>> {
        let mut keys: Vec<Slice> = old.guards.iter().map(|g| g.key.clone()).collect();
        let before = keys.len();
        keys.retain(|k| self.guards_removed.binary_search(k).is_err() || k.is_empty());
        if before - keys.len() != self.guards_removed.len() {
            return Err(wrong(format!("an edit removes a guard that level {n} does not have")));
        }
        keys.extend(self.guards_added.iter().cloned());
        keys.sort_unstable();
        if keys.windows(2).any(|w| w[0] == w[1]) {
            return Err(wrong(format!("an edit adds a guard that level {n} already has")));
        }
        Ok(keys)
    }
}
