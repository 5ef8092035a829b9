//! Finds the keyspaces and tables of a damaged database, and surveys what is intact of them.

use super::report::{Loss, SalvageReport, SalvagedFile};
use crate::open::Files;
use crate::state::Tables;
use crate::types::{KeyspaceOptions, Options, Problem};
use base::{Error, ErrorKind, RangeSet, Result, Seq};
use env::Env;
use memtable::Memtable;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use table::{SalvageCursor, Survey, TableMeta, table_file_name};
use tree::{KeyspaceCreated, Manifest, SalvagedManifest, manifest_file_name};

/// The intact parts of one keyspace.
#[derive(Default)]
pub(super) struct KeyspaceSource {
    pub name: String,
    pub options: KeyspaceOptions,
    /// Its tables that can be read, at least in part.
    pub tables: Vec<TableSource>,
    /// Its entries in the logs.
    pub memtables: Vec<Arc<Memtable>>,
    /// Its range tombstones in the manifest.
    pub ranges: RangeSet,
    /// Everything up to this number is in tables; 0 when unknown.
    pub flushed: Seq,
    /// Whether parts of its tables are lost.
    pub wounded: bool,
    /// Whether the logs supplied entries that tables also had, or had in newer versions.
    pub old_from_logs: bool,
}

/// A table that can be read at least in part, with the result of its survey.
pub(super) struct TableSource {
    pub number: u64,
    pub fingerprint: u64,
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
}

/// All inputs of the new database.
#[derive(Default)]
pub(super) struct Sources {
    pub keyspaces: BTreeMap<u64, KeyspaceSource>,
    /// The state in an intact manifest.
    pub state: Option<tree::ManifestState>,
    /// The intact parts of a damaged one.
    pub remains: SalvagedManifest,
    /// Keyspaces that lack tables which an intact manifest names.
    bereft: BTreeSet<u64>,
}

/// A table before its survey.
struct Candidate {
    number: u64,
    keyspace: Option<u64>,
    meta: Option<TableMeta>,
}

/// A table and its key range, to tell which tables lie above and below others.
struct Covered {
    keyspace: u64,
    smallest: Vec<u8>,
    largest: Vec<u8>,
    min_seq: Seq,
}

/// Keyspaces known only from a table get numbers from here downwards.
const UNKNOWN: u64 = u64::MAX;

impl Sources {
    /// Reads the manifest and surveys the tables.
    pub(super) fn find(
        env: &Arc<dyn Env>,
        dir: &Path,
        files: &Files,
        report: &mut SalvageReport,
    ) -> Result<Sources> {
        let mut sources = Sources::default();
        sources.read_manifests(env, dir, files, report)?;
        let created: Vec<KeyspaceCreated> = match &sources.state {
            Some(state) => state.keyspaces.values().map(|k| k.created.clone()).collect(),
            None => {
                let remains = &sources.remains;
                let live = |k: &&KeyspaceCreated| !remains.dropped.contains(&k.id);
                remains.keyspaces.values().filter(live).cloned().collect()
            }
        };
        let candidates = sources.candidates(files, report);
        sources.survey(env, dir, files, created, candidates, report)?;
        if let Some(state) = &sources.state {
            for (id, found) in &state.keyspaces {
                if let Some(keyspace) = sources.keyspaces.get_mut(id) {
                    keyspace.flushed = found.version.flushed_seq;
                    keyspace.ranges = RangeSet::clone(&found.version.range_tombstones);
                }
            }
        }
        for (id, ranges) in &sources.remains.range_tombstones {
            if let Some(keyspace) = sources.keyspaces.get_mut(id) {
                keyspace.ranges = ranges.clone();
            }
        }
        Ok(sources)
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.keyspaces.keys().copied().collect()
    }

    fn read_manifests(
        &mut self,
        env: &Arc<dyn Env>,
        dir: &Path,
        files: &Files,
        report: &mut SalvageReport,
    ) -> Result<()> {
        let Some(&newest) = files.manifests.last() else {
            let what = "the manifest is missing: every table and log that is there counts, and keyspaces have default options";
            report.losses.push(Loss {
                file: manifest_file_name(1),
                older: true,
                what: what.to_owned(),
                ..Loss::default()
            });
            return Ok(());
        };
        let space = Tables::new(env, dir, &Options::default());
        let name = manifest_file_name(newest);
        let bytes = env.len(&dir.join(&name)).unwrap_or(0);
        match Manifest::read(env, dir, newest, &mut |meta| space.open(meta)) {
            Ok(state) => {
                report.files.push(SalvagedFile { name, bytes, read: 1, outcome: "sound".to_owned() });
                self.state = Some(state);
                return Ok(());
            }
            // A newer version may be able to read it.
            Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
            Err(e) => {
                let mut loss = Loss::of(&name, &e);
                loss.older = true;
                loss.what =
                    format!("{}; every table on disk counts but those that it says are gone", loss.what);
                report.losses.push(loss);
            }
        }
        // The newest manifest with intact edits counts; older ones add keyspaces that it does not know.
        for &number in files.manifests.iter().rev() {
            let remains = match SalvagedManifest::read(env, dir, number) {
                Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
                // The damage of the newest one is already reported.
                read => read.unwrap_or_default(),
            };
            report.files.push(SalvagedFile {
                name: manifest_file_name(number),
                bytes: env.len(&dir.join(manifest_file_name(number))).unwrap_or(0),
                read: remains.edits,
                outcome: format!("damaged in {} places", remains.gaps.len().max(1)),
            });
            match self.remains.edits {
                0 => self.remains = remains,
                _ => {
                    for (id, created) in remains.keyspaces {
                        self.remains.keyspaces.entry(id).or_insert(created);
                    }
                }
            }
        }
        Ok(())
    }

    /// Registers the keyspaces that the manifest names, and without an intact manifest those that only tables name. When several
    /// keyspaces had the same name (one was dropped, and the edit that says so is lost), the newest keeps it, and the others get new
    /// names.
    fn name_keyspaces(
        &mut self,
        created: Vec<KeyspaceCreated>,
        surveys: &[Result<Survey>],
        report: &mut SalvageReport,
    ) {
        let mut known = BTreeMap::new();
        if self.state.is_none() {
            let owners = surveys.iter().filter_map(|survey| survey.as_ref().ok()?.owner.as_ref());
            for owner in owners.filter(|owner| !self.remains.dropped.contains(&owner.number)) {
                known.insert(owner.number, (owner.name.to_string(), KeyspaceOptions::default()));
            }
        }
        for created in created {
            let mut options = KeyspaceOptions::default();
            for (name, value) in &created.options {
                if let Err(e) = options.set_kept(name, value) {
                    report.notes.push(format!("keyspace {:?}: {e}; it has the default now", created.name));
                }
            }
            known.insert(created.id, (created.name, options));
        }
        let mut older = Vec::new();
        for (id, (name, options)) in known.into_iter().rev() {
            match self.is_taken(&name) {
                true => older.push((id, name, options)),
                false => self.add(id, name, options),
            }
        }
        for (id, name, options) in older {
            let free = self.free_name(format!("keyspace-{id}"));
            report
                .notes
                .push(format!("keyspace {id} had the name {name:?} of a newer one: it is {free:?} now"));
            self.add(id, free, options);
        }
    }

    fn add(&mut self, id: u64, name: String, options: KeyspaceOptions) {
        self.keyspaces.insert(id, KeyspaceSource { name, options, ..KeyspaceSource::default() });
    }

    fn is_taken(&self, name: &str) -> bool {
        self.keyspaces.values().any(|k| k.name == name)
    }

    /// `wanted`, or a similar name that no keyspace has.
    fn free_name(&self, wanted: String) -> String {
        let mut name = wanted.clone();
        let mut n = 1;
        while self.is_taken(&name) {
            n += 1;
            name = format!("{wanted}-{n}");
        }
        name
    }

    /// The keyspace with this number; an unknown one gets a made-up name.
    pub(super) fn keyspace(&mut self, id: u64, report: &mut SalvageReport) -> &mut KeyspaceSource {
        if !self.keyspaces.contains_key(&id) {
            let name = self.free_name(format!("keyspace-{id}"));
            report.notes.push(format!("the name of keyspace {id} is not known: it is {name:?} now"));
            self.add(id, name, KeyspaceOptions::default());
        }
        self.keyspaces.entry(id).or_default()
    }

    /// The candidate tables: those that an intact manifest names, otherwise all except those known to be deleted.
    fn candidates(&mut self, files: &Files, report: &mut SalvageReport) -> Vec<Candidate> {
        let mut all: BTreeMap<u64, Candidate> = BTreeMap::new();
        let mut add = |number, keyspace, meta| all.insert(number, Candidate { number, keyspace, meta });
        match &self.state {
            Some(state) => {
                for (id, keyspace) in &state.keyspaces {
                    for (_, t) in keyspace.version.tables() {
                        add(t.meta.number, Some(*id), Some(t.meta.clone()));
                    }
                }
            }
            None => {
                for number in files.tables.iter().filter(|n| !self.remains.removed.contains(n)) {
                    add(*number, None, None);
                }
                for (number, (id, meta)) in &self.remains.tables {
                    add(*number, Some(*id), Some(meta.clone()));
                }
            }
        }
        let is_there = |number: &u64| files.tables.binary_search(number).is_ok();
        if self.state.is_some() {
            self.bereft = all.values().filter(|t| !is_there(&t.number)).filter_map(|t| t.keyspace).collect();
        }
        let unused: Vec<u64> = files.tables.iter().copied().filter(|n| !all.contains_key(n)).collect();
        if !self.bereft.is_empty() {
            all.extend(
                unused.into_iter().map(|number| (number, Candidate { number, keyspace: None, meta: None })),
            );
        } else if !unused.is_empty() {
            report.notes.push(format!("{} tables are not in use and were left out", unused.len()));
        }
        all.into_values().collect()
    }

    fn survey(
        &mut self,
        env: &Arc<dyn Env>,
        dir: &Path,
        files: &Files,
        created: Vec<KeyspaceCreated>,
        candidates: Vec<Candidate>,
        report: &mut SalvageReport,
    ) -> Result<()> {
        let mut losses = Vec::new();
        let mut covered = Vec::new();
        let survey = |table: &Candidate| match files.tables.binary_search(&table.number) {
            Ok(_) => SalvageCursor::open(env, dir, table.number).map(SalvageCursor::survey),
            Err(_) => {
                let path = dir.join(table_file_name(table.number));
                Err(Error::corruption(&path, 0, "the table is missing"))
            }
        };
        let surveys: Vec<_> = candidates.iter().map(survey).collect();
        self.name_keyspaces(created, &surveys, report);
        for (table, survey) in candidates.into_iter().zip(surveys) {
            let name = table_file_name(table.number);
            let survey = match survey {
                Ok(survey) => survey,
                Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
                Err(e) => {
                    losses.push((table.keyspace, whole_loss(&name, &table, &e)));
                    if let Some(keyspace) = table.keyspace.and_then(|id| self.keyspaces.get_mut(&id)) {
                        keyspace.wounded = true;
                    }
                    continue;
                }
            };
            if !self.counts(&table, &survey, report) {
                continue;
            }
            let id = self.owner(&table, &survey, report);
            let Some(id) = id else {
                report.notes.push(format!("{name} belongs to a keyspace that was dropped, and is left out"));
                continue;
            };
            let lost = losses_of(&name, &table, &survey);
            report.files.push(SalvagedFile {
                name,
                bytes: survey.file_size,
                read: survey.entries,
                outcome: outcome(&survey, lost.len()),
            });
            let keyspace = self.keyspace(id, report);
            keyspace.wounded |= !lost.is_empty();
            if survey.entries > 0 {
                keyspace.tables.push(TableSource {
                    number: table.number,
                    fingerprint: survey.fingerprint,
                    smallest: survey.smallest.clone(),
                    largest: survey.largest.clone(),
                });
                covered.push(Covered {
                    keyspace: id,
                    smallest: survey.smallest,
                    largest: survey.largest,
                    min_seq: survey.min_seq,
                });
            }
            let newest = table.meta.as_ref().map_or(Seq::MAX, |meta| meta.max_seq);
            losses.extend(lost.into_iter().map(|loss| (Some(id), (newest, loss))));
        }
        for (id, (newest, mut loss)) in losses {
            loss.keyspace = id.and_then(|id| self.keyspaces.get(&id)).map(|k| k.name.clone());
            loss.older = covered.iter().any(|below| {
                id.is_none_or(|id| id == below.keyspace)
                    && below.min_seq < newest
                    && loss.from.as_ref().is_none_or(|from| below.largest >= *from)
                    && loss.to.as_ref().is_none_or(|to| below.smallest <= *to)
            });
            report.losses.push(loss);
        }
        Ok(())
    }

    /// Whether a table is used. A table that an intact manifest does not name is used while tables of its keyspace are missing: it may be
    /// the output of their compaction, whose edit is lost.
    fn counts(&self, table: &Candidate, survey: &Survey, report: &mut SalvageReport) -> bool {
        if self.state.is_none() || table.keyspace.is_some() {
            return true;
        }
        let owner = survey.owner.as_ref().map(|owner| owner.number);
        let (name, counts) =
            (table_file_name(table.number), owner.is_none_or(|id| self.bereft.contains(&id)));
        if !counts {
            report.notes.push(format!("{name} is not in use and was left out"));
        } else if survey.entries > 0 {
            report.losses.push(Loss {
                file: name,
                keyspace: owner.and_then(|id| self.keyspaces.get(&id)).map(|k| k.name.clone()),
                from: Some(survey.smallest.clone()),
                to: Some(survey.largest.clone()),
                older: true,
                what: "the manifest does not name it; it counts because tables that it names are missing"
                    .to_owned(),
                ..Loss::default()
            });
        }
        counts
    }

    /// Called after the logs were read: an entry from a log may be older than the lost entry of a table that it replaces.
    pub(super) fn judge_logs(&self, report: &mut SalvageReport) {
        let old: Vec<&String> =
            self.keyspaces.values().filter(|k| k.old_from_logs).map(|k| &k.name).collect();
        for loss in &mut report.losses {
            loss.older |= loss.keyspace.as_ref().is_some_and(|name| old.contains(&name));
        }
    }

    /// The keyspace of a table: from the manifest, or from the table itself. `None` when the keyspace was dropped.
    fn owner(&mut self, table: &Candidate, survey: &Survey, report: &mut SalvageReport) -> Option<u64> {
        if let Some(id) = table.keyspace {
            return Some(id);
        }
        let Some(owner) = &survey.owner else {
            let id = UNKNOWN - table.number;
            let name = self.free_name(format!("unknown-{:06}", table.number));
            self.add(id, name.clone(), KeyspaceOptions::default());
            report.losses.push(Loss {
                file: table_file_name(table.number),
                keyspace: Some(name.clone()),
                what: format!("nothing says which keyspace it belongs to: its entries are in {name:?} now"),
                ..Loss::default()
            });
            return Some(id);
        };
        if self.remains.dropped.contains(&owner.number) {
            return None;
        }
        Some(owner.number)
    }
}

impl Loss {
    /// The loss that an error describes.
    pub(super) fn of(file: &str, error: &Error) -> Loss {
        let problem = Problem::of(file, error);
        Loss { file: problem.file, offset: problem.offset, what: problem.what, ..Loss::default() }
    }
}

fn whole_loss(name: &str, table: &Candidate, error: &Error) -> (Seq, Loss) {
    let mut loss = Loss::of(name, error);
    let Some(meta) = &table.meta else { return (Seq::MAX, loss) };
    loss.bytes = meta.file_size;
    loss.from = Some(meta.smallest.clone());
    loss.to = Some(meta.largest.clone());
    (meta.max_seq, loss)
}

/// The losses in a table that can be read in part.
fn losses_of(name: &str, table: &Candidate, survey: &Survey) -> Vec<Loss> {
    let meta = table.meta.as_ref();
    // The manifest has the number of entries, even if no part of the table does.
    if meta.is_some_and(|meta| meta.entries == survey.entries) {
        return Vec::new();
    }
    let loss = |gap: &table::Gap| Loss {
        file: name.to_owned(),
        offset: Some(gap.offset),
        bytes: gap.len,
        from: gap.after.clone().or_else(|| meta.map(|m| m.smallest.clone())),
        to: gap.before.clone().or_else(|| meta.map(|m| m.largest.clone())),
        what: "no intact block of the table is here".to_owned(),
        ..Loss::default()
    };
    let mut losses: Vec<Loss> = survey.gaps.iter().map(loss).collect();
    if let Some(meta) = meta
        && losses.is_empty()
    {
        let what = format!(
            "{} entries of {} are missing",
            meta.entries.saturating_sub(survey.entries),
            meta.entries
        );
        let (from, to) = (Some(meta.smallest.clone()), Some(meta.largest.clone()));
        losses.push(Loss { file: name.to_owned(), from, to, what, ..Loss::default() });
    }
    losses
}

fn outcome(survey: &Survey, losses: usize) -> String {
    match (losses, survey.other_damage) {
        (0, false) => "sound".to_owned(),
        (0, true) => "damaged where no entries are: all of them were read".to_owned(),
        (n, _) => format!("damaged: {n} gaps"),
    }
}
