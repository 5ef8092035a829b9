//! Finds the keyspaces and tables of a damaged database, and surveys what is intact of them.

use super::report::{Loss, SalvageReport, SalvagedFile};
use crate::open::Files;
use crate::state::Tables;
use crate::types::{KeyspaceOptions, Merge, Options, Preset, Problem, Retention};
use base::{Error, ErrorKind, RangeSet, Result, Seq, Time};
use env::Env;
use hashlog::{HintFile, HintOwner};
use memtable::Memtable;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use table::{SalvageCursor, Survey, TableMeta, table_file_name};
use tree::{KeyspaceDescription, Manifest, SalvagedManifest, manifest_file_name};

/// The intact parts of one keyspace.
#[derive(Default)]
pub(super) struct KeyspaceSource {
    pub name: String,
    pub options: KeyspaceOptions,
    /// The number of the keyspace whose older versions it has, if it is a historical one.
    pub history_of: Option<u64>,
    /// If it has history: late writes from before this time are refused.
    pub kept_since: Time,
    /// Its tables that can be read, at least in part.
    pub tables: Vec<TableSource>,
    /// Its entries in the logs.
    pub memtables: Vec<Arc<Memtable>>,
    /// Its range tombstones in the manifest.
    pub ranges: RangeSet,
    /// Everything up to this number is in tables; 0 when unknown.
    pub flushed: Seq,
    /// The largest sequence number in its tables.
    pub newest: Seq,
    /// Whether parts of its tables are lost.
    pub wounded: bool,
    /// Whether the logs supplied entries that tables also had, or had in newer versions.
    pub old_from_logs: bool,
}

impl KeyspaceSource {
    /// Whether operands up to `seq` must not be taken from the logs: they may be in its tables, joined with others, and would count twice.
    pub fn has_operands_up_to(&self, seq: Seq) -> bool {
        self.options.merge != Merge::None && seq <= self.flushed.max(self.newest)
    }

    /// Whether values have their times behind them.
    pub fn has_times(&self) -> bool {
        self.options.has_history() && self.history_of.is_none()
    }
}

/// What is known of a keyspace.
#[derive(Default)]
struct Known {
    name: String,
    options: KeyspaceOptions,
    history_of: Option<u64>,
    kept_since: Time,
}

/// A table that can be read at least in part, with the result of its survey.
pub(super) struct TableSource {
    pub number: u64,
    pub fingerprint: u64,
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    pub min_seq: Seq,
    /// That of the manifest; 0 if no manifest says it.
    pub seq_shift: u64,
    /// Whether a manifest names it.
    pub is_named: bool,
}

/// A salvage in progress: the damaged database, the inputs of the new one that were found in it, and the report.
pub(super) struct Salvage<'a> {
    pub env: &'a Arc<dyn Env>,
    pub dir: &'a Path,
    pub files: &'a Files,
    pub report: SalvageReport,
    pub keyspaces: BTreeMap<u64, KeyspaceSource>,
    /// The state in an intact manifest.
    pub state: Option<tree::ManifestState>,
    /// The intact parts of a damaged one.
    pub remains: SalvagedManifest,
    /// The hint files of each keyspace without order, if an intact manifest names them.
    pub hints: Option<BTreeMap<u64, Vec<HintFile>>>,
    /// Keyspaces that lack tables which an intact manifest names.
    bereft: BTreeSet<u64>,
}

/// What a manifest says of a table: its keyspaces, more than one if some were cloned, and its metadata. `None` when no manifest names it.
type Named = Option<(BTreeSet<u64>, TableMeta)>;

/// Keyspaces known only from a table get numbers from here downwards.
const UNKNOWN: u64 = u64::MAX;

impl<'a> Salvage<'a> {
    pub(super) fn new(env: &'a Arc<dyn Env>, dir: &'a Path, files: &'a Files) -> Salvage<'a> {
        Salvage {
            env,
            dir,
            files,
            report: SalvageReport::default(),
            keyspaces: BTreeMap::new(),
            state: None,
            remains: SalvagedManifest::default(),
            hints: None,
            bereft: BTreeSet::new(),
        }
    }

    pub(super) fn note(&mut self, what: String) {
        self.report.notes.push(what);
    }

    /// Reads the manifest and surveys the tables.
    pub(super) fn find_sources(&mut self) -> Result<()> {
        self.read_manifests()?;
        let created: Vec<KeyspaceDescription> = match &self.state {
            Some(state) => state.keyspaces.values().map(|k| k.description.clone()).collect(),
            None => {
                let remains = &self.remains;
                let live = |k: &&KeyspaceDescription| !remains.dropped.contains(&k.id);
                remains.keyspaces.values().filter(live).cloned().collect()
            }
        };
        let candidates = self.candidates();
        self.survey(created, candidates)?;
        if self.state.is_none() {
            self.find_hint_owners()?;
        }
        if let Some(state) = &self.state {
            let hints = |(id, k): (&u64, &tree::KeyspaceState)| (*id, k.hints.values().cloned().collect());
            self.hints = Some(state.keyspaces.iter().map(hints).collect());
            for (id, found) in &state.keyspaces {
                if let Some(keyspace) = self.keyspaces.get_mut(id) {
                    keyspace.flushed = found.version.flushed_seq;
                    keyspace.ranges = RangeSet::clone(&found.version.range_tombstones);
                }
            }
        }
        for (id, ranges) in &self.remains.range_tombstones {
            if let Some(keyspace) = self.keyspaces.get_mut(id) {
                keyspace.ranges = ranges.clone();
            }
        }
        Ok(())
    }

    /// Without an intact manifest: hint files name their keyspaces, which have no order.
    fn find_hint_owners(&mut self) -> Result<()> {
        for number in &self.files.hints {
            let Some(HintOwner { keyspace: id, name }) = HintOwner::read(self.env, self.dir, *number)? else {
                continue;
            };
            if self.keyspaces.contains_key(&id) || self.remains.dropped.contains(&id) {
                continue;
            }
            let name = self.free_name(name);
            let options = KeyspaceOptions::preset(Preset::HashLog);
            self.add(id, Known { name, options, ..Known::default() });
        }
        Ok(())
    }

    fn read_manifests(&mut self) -> Result<()> {
        let (env, dir, files, report) = (self.env, self.dir, self.files, &mut self.report);
        let Some(&newest) = files.manifests.last() else {
            let what = "the manifest is missing: every table and log that is there counts, and keyspaces have default options";
            report.losses.push(Loss { older: true, ..Loss::new(manifest_file_name(1), what.to_owned()) });
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
    fn name_keyspaces(&mut self, created: Vec<KeyspaceDescription>, surveys: &[Result<Survey>]) {
        let mut known: BTreeMap<u64, Known> = BTreeMap::new();
        if self.state.is_none() {
            let owners = surveys.iter().filter_map(|survey| survey.as_ref().ok()?.owner.as_ref());
            for owner in owners.filter(|owner| !self.remains.dropped.contains(&owner.number)) {
                let mut options = KeyspaceOptions::default();
                if owner.has_history {
                    options.history = Retention::All;
                }
                if let Some(merge) = owner.merge.as_ref().and_then(|merge| merge.parse().ok()) {
                    options.merge = merge;
                }
                let (name, history_of) = (owner.name.to_string(), owner.history_of);
                if let Some(primary) = history_of.filter(|primary| !self.remains.dropped.contains(primary)) {
                    // It may have no table of its own.
                    let options = KeyspaceOptions::default().history(Retention::All);
                    let of = Known { name: name.clone(), options, ..Known::default() };
                    known.entry(primary).or_insert(of);
                }
                known.insert(owner.number, Known { name, options, history_of, ..Known::default() });
            }
        }
        for created in created {
            let mut options = KeyspaceOptions::default();
            for (name, value) in &created.options {
                if let Err(e) = options.set_kept(name, value) {
                    self.note(format!("keyspace {:?}: {e}; it has the default now", created.name));
                }
            }
            let KeyspaceDescription { id, name, history_of, mut kept_since, .. } = created;
            // The new database does not know as of which times retention has removed versions.
            if let Some((state, age)) = self.state.as_ref().zip(options.history.age()) {
                kept_since = kept_since.max(state.retention_time.saturating_sub(age));
            }
            known.insert(id, Known { name, options, history_of, kept_since });
        }
        let mut older = Vec::new();
        for (id, known) in known.into_iter().rev() {
            match known.history_of.is_none() && self.is_taken(&known.name) {
                true => older.push((id, known)),
                false => self.add(id, known),
            }
        }
        for (id, known) in older {
            let free = self.free_name(format!("keyspace-{id}"));
            self.note(format!(
                "keyspace {id} had the name {:?} of a newer one: it is {free:?} now",
                known.name
            ));
            self.add(id, Known { name: free, ..known });
        }
    }

    fn add(&mut self, id: u64, known: Known) {
        let Known { name, options, history_of, kept_since } = known;
        let source = KeyspaceSource { name, options, history_of, kept_since, ..KeyspaceSource::default() };
        self.keyspaces.insert(id, source);
    }

    fn is_taken(&self, name: &str) -> bool {
        self.keyspaces.values().any(|k| k.history_of.is_none() && k.name == name)
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
    pub(super) fn keyspace(&mut self, id: u64) -> &mut KeyspaceSource {
        if !self.keyspaces.contains_key(&id) {
            match self.primary_before(id) {
                // That of older versions has the number after the other one, and may have no tables yet.
                Some(primary) => {
                    let name = self.keyspaces[&primary].name.clone();
                    self.add(id, Known { name, history_of: Some(primary), ..Known::default() });
                }
                None => {
                    let name = self.free_name(format!("keyspace-{id}"));
                    self.note(format!("the name of keyspace {id} is not known: it is {name:?} now"));
                    self.add(id, Known { name, ..Known::default() });
                }
            }
        }
        self.keyspaces.entry(id).or_default()
    }

    /// The keyspace with history before this number, if no other one is known to have its older versions.
    fn primary_before(&self, id: u64) -> Option<u64> {
        let primary = id.checked_sub(1)?;
        let before = self.keyspaces.get(&primary)?;
        let has_history = before.options.history != Retention::None && before.history_of.is_none();
        let is_first = || self.keyspaces.values().all(|k| k.history_of != Some(primary));
        (has_history && is_first()).then_some(primary)
    }

    /// The candidate tables: those that an intact manifest names, otherwise all except those known to be deleted.
    fn candidates(&mut self) -> BTreeMap<u64, Named> {
        let mut all: BTreeMap<u64, Named> = BTreeMap::new();
        let there = &self.files.tables;
        match &self.state {
            Some(state) => {
                for (id, keyspace) in &state.keyspaces {
                    for (_, table) in keyspace.version.tables() {
                        let named = all.entry(table.meta.number).or_default();
                        let (keyspaces, _) =
                            named.get_or_insert_with(|| (BTreeSet::new(), table.meta.clone()));
                        keyspaces.insert(*id);
                    }
                }
                let missing = all.iter().filter(|(number, _)| there.binary_search(number).is_err());
                self.bereft = missing.flat_map(|(_, named)| ids_of(named)).collect();
            }
            None => {
                all.extend(there.iter().filter(|n| !self.remains.removed.contains(n)).map(|n| (*n, None)));
                all.extend(self.remains.tables.iter().map(|(number, named)| (*number, Some(named.clone()))));
            }
        }
        let unused: Vec<u64> = there.iter().copied().filter(|n| !all.contains_key(n)).collect();
        if !self.bereft.is_empty() {
            all.extend(unused.into_iter().map(|number| (number, None)));
        } else if !unused.is_empty() {
            self.note(format!("{} tables are not in use and were left out", unused.len()));
            if self.state.is_none() {
                unused
                    .iter()
                    .for_each(|number| self.note_left_out(&table_file_name(*number), "it was removed"));
            }
        }
        all
    }

    fn survey(&mut self, created: Vec<KeyspaceDescription>, candidates: BTreeMap<u64, Named>) -> Result<()> {
        let (env, dir, files) = (self.env, self.dir, self.files);
        let mut losses = Vec::new();
        let shift_of = |named: &Named| named.as_ref().map_or(0, |(_, meta)| meta.seq_shift);
        let survey = |(&number, named): (&u64, &Named)| match files.tables.binary_search(&number) {
            Ok(_) => SalvageCursor::open(env, dir, number, shift_of(named)).and_then(SalvageCursor::survey),
            Err(_) => Err(Error::corruption(&dir.join(table_file_name(number)), 0, "the table is missing")),
        };
        let mut surveys = Vec::with_capacity(candidates.len());
        for survey in candidates.iter().map(survey) {
            match survey {
                Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
                survey => surveys.push(survey),
            }
        }
        self.name_keyspaces(created, &surveys);
        for ((number, named), survey) in candidates.into_iter().zip(surveys) {
            let name = table_file_name(number);
            let survey = match survey {
                Ok(survey) => survey,
                Err(e) => {
                    let loss = whole_loss(&name, &named, &e);
                    for id in ids_of(&named) {
                        losses.push((Some(id), loss.clone()));
                        self.keyspaces.entry(id).and_modify(|keyspace| keyspace.wounded = true);
                    }
                    if named.is_none() {
                        losses.push((None, loss));
                    }
                    continue;
                }
            };
            let ids = match &named {
                Some((ids, _)) => ids.clone(),
                None if !self.counts(&name, &survey) => continue,
                None => match self.owner(number, &survey) {
                    Some(id) => BTreeSet::from([id]),
                    None => {
                        self.note(format!("{name} belongs to a keyspace that was dropped, and is left out"));
                        self.note_left_out(&name, "its keyspace was dropped");
                        continue;
                    }
                },
            };
            let meta = named.as_ref().map(|(_, meta)| meta);
            let lost = losses_of(&name, meta, &survey);
            self.report.files.push(SalvagedFile {
                name,
                bytes: survey.file_size,
                read: survey.entries,
                outcome: outcome(&survey, lost.len()),
            });
            let newest = meta.map_or(Seq::MAX, |meta| meta.max_seq);
            for id in ids {
                let keyspace = self.keyspace(id);
                keyspace.wounded |= !lost.is_empty();
                keyspace.newest = keyspace.newest.max(survey.max_seq);
                if survey.entries > 0 {
                    keyspace.tables.push(TableSource {
                        number,
                        fingerprint: survey.fingerprint,
                        smallest: survey.smallest.clone(),
                        largest: survey.largest.clone(),
                        min_seq: survey.min_seq,
                        seq_shift: shift_of(&named),
                        is_named: named.is_some(),
                    });
                }
                losses.extend(lost.iter().map(|loss| (Some(id), (newest, loss.clone()))));
            }
        }
        for (id, (newest, mut loss)) in losses {
            loss.keyspace = id.and_then(|id| self.keyspaces.get(&id)).map(|k| k.name.clone());
            let below = self.keyspaces.iter().filter(|(below, _)| id.is_none_or(|id| id == **below));
            loss.older = below.flat_map(|(_, keyspace)| &keyspace.tables).any(|below| {
                below.min_seq < newest
                    && loss.from.as_ref().is_none_or(|from| below.largest >= *from)
                    && loss.to.as_ref().is_none_or(|to| below.smallest <= *to)
            });
            self.report.losses.push(loss);
        }
        Ok(())
    }

    /// Whether a table that no manifest names is used. Beside an intact manifest it is used while tables of its keyspace are missing: it
    /// may be the output of their compaction, whose edit is lost.
    fn counts(&mut self, name: &str, survey: &Survey) -> bool {
        if self.state.is_none() {
            return true;
        }
        let owner = survey.owner.as_ref().map(|owner| owner.number);
        let counts = owner.is_none_or(|id| self.bereft.contains(&id));
        if !counts {
            self.note(format!("{name} is not in use and was left out"));
        } else if survey.entries > 0 {
            let what = "the manifest does not name it; it counts because tables that it names are missing";
            let mut loss = Loss::new(name.to_owned(), what.to_owned());
            loss.keyspace = owner.and_then(|id| self.keyspaces.get(&id)).map(|k| k.name.clone());
            loss.older = true;
            self.report.losses.push(loss.within(&survey.smallest, &survey.largest));
        }
        counts
    }

    /// A table on disk is left out because of what a damaged manifest says. What is missing of that may be a clone that has it, too.
    fn note_left_out(&mut self, name: &str, says: &str) {
        let what = format!(
            "left out, because the manifest says that {says}: if a clone of the keyspace has it, and what says so is damaged, \
             entries of the clone are missing"
        );
        self.report.losses.push(Loss::new(name.to_owned(), what));
    }

    /// Called after the logs were read: an entry from a log may be older than the lost entry of a table that it replaces.
    pub(super) fn judge_logs(&mut self) {
        let old: Vec<&String> =
            self.keyspaces.values().filter(|k| k.old_from_logs).map(|k| &k.name).collect();
        for loss in &mut self.report.losses {
            loss.older |= loss.keyspace.as_ref().is_some_and(|name| old.contains(&name));
        }
    }

    /// The keyspace of a table that no manifest names, from the table itself. `None` when the keyspace was dropped.
    fn owner(&mut self, number: u64, survey: &Survey) -> Option<u64> {
        let Some(owner) = &survey.owner else {
            let id = UNKNOWN - number;
            let name = self.free_name(format!("unknown-{number:06}"));
            self.add(id, Known { name: name.clone(), ..Known::default() });
            let what = format!("nothing says which keyspace it belongs to: its entries are in {name:?} now");
            let loss = Loss::new(table_file_name(number), what);
            self.report.losses.push(Loss { keyspace: Some(name), ..loss });
            return Some(id);
        };
        (!self.remains.dropped.contains(&owner.number)).then_some(owner.number)
    }
}

impl Loss {
    pub(super) fn new(file: String, what: String) -> Loss {
        Loss { file, what, ..Loss::default() }
    }

    /// The same loss, of keys between these only.
    pub(super) fn within(mut self, smallest: &[u8], largest: &[u8]) -> Loss {
        (self.from, self.to) = (Some(smallest.to_owned()), Some(largest.to_owned()));
        self
    }

    /// The loss that an error describes.
    pub(super) fn of(file: &str, error: &Error) -> Loss {
        let problem = Problem::of(file, error);
        Loss { offset: problem.offset, ..Loss::new(problem.file, problem.what) }
    }
}

/// The keyspaces that have the table, as a manifest says.
fn ids_of(named: &Named) -> impl Iterator<Item = u64> {
    named.iter().flat_map(|(ids, _)| ids.iter().copied())
}

fn whole_loss(name: &str, named: &Named, error: &Error) -> (Seq, Loss) {
    let loss = Loss::of(name, error);
    let Some((_, meta)) = named else { return (Seq::MAX, loss) };
    (meta.max_seq, Loss { bytes: meta.file_size, ..loss.within(&meta.smallest, &meta.largest) })
}

/// The losses in a table that can be read in part.
fn losses_of(name: &str, meta: Option<&TableMeta>, survey: &Survey) -> Vec<Loss> {
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
        let (lost, all) = (meta.entries.saturating_sub(survey.entries), meta.entries);
        let loss = Loss::new(name.to_owned(), format!("{lost} entries of {all} are missing"));
        losses.push(loss.within(&meta.smallest, &meta.largest));
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
