//! The [`Ledger`]: all commits of a history in order, their acknowledgements, and the verdict on a recovered state.
//!
//! A recovered state is right if it is the state after the first *p* commits (P2). *p* is at least the number of
//! commits that must survive this kind of cut (P1), and at most one more than the number of commits that returned.
//! Keyspaces are created and dropped durably, independent of commits: the catalog is the last acknowledged one, or
//! the next one while a creation or drop is in flight. The older versions in keyspaces with history are those of the same prefix.

use crate::data::Value;
use crate::finding::{Finding, Outcome, ensure, first_difference};
use crate::model::{self, Incarnation, Write};
use crate::random::hash_entry;
use cairn::{Durability, Slice};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The keyspaces by name.
pub type Catalog = BTreeMap<String, Incarnation>;

/// The content of a recovered database: that of each keyspace.
pub type Recovered = BTreeMap<String, Content>;

/// The content of a keyspace.
#[derive(Default)]
pub struct Content {
    /// The newest versions, in the order of keys.
    pub entries: Vec<(Slice, Slice)>,
    /// All versions of a keyspace with history.
    pub versions: Option<Versions>,
}

/// What a keyspace with history shows of the past.
pub struct Versions {
    /// Whether retention keeps all versions.
    pub all: bool,
    /// The versions of each key, the oldest first; `None` for a delete.
    pub by_key: Histories<Slice>,
}

/// The versions of keys, the oldest first. Of deletes only those that hide something.
pub type Histories<V> = BTreeMap<Vec<u8>, Vec<Option<V>>>;

/// Adds a version of a key, after its older ones.
pub fn add_version<V>(histories: &mut Histories<V>, key: &[u8], value: Option<V>) {
    let hides = |versions: &Vec<Option<V>>| matches!(versions.last(), Some(Some(_)));
    if value.is_some() || histories.get(key).is_some_and(hides) {
        histories.entry(key.to_vec()).or_default().push(value);
    }
}

type Contents = BTreeMap<Incarnation, BTreeMap<Vec<u8>, Value>>;

/// How a history is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Power failure: unsynced data may be lost.
    Power,
    /// Process kill: the operating system keeps the data that it has.
    Process,
}

/// The states that are allowed after a cut at one moment.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Number of commits that must survive a power failure.
    pub power_floor: usize,
    /// Number of commits that must survive a process kill.
    pub process_floor: usize,
    /// Number of commits started.
    pub ceiling: usize,
    /// The allowed catalogs.
    pub catalogs: Vec<Catalog>,
}

impl Expectation {
    /// Number of commits that must survive this cut.
    pub fn floor(&self, cut: Cut) -> usize {
        match cut {
            Cut::Power => self.power_floor,
            Cut::Process => self.process_floor,
        }
    }
}

/// Records commits and acknowledgements, and judges recovered states.
pub struct Ledger {
    commits: Vec<Vec<Write>>,
    /// For each number of commits, the hash of each keyspace that was ever written.
    prefixes: Vec<BTreeMap<Incarnation, u64>>,
    /// The contents after all commits.
    contents: Contents,
    incarnations: Incarnation,
    catalog: Catalog,
    /// The catalog after the creation or drop in flight.
    changing: Option<Catalog>,
    power_floor: usize,
    process_floor: usize,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            commits: Vec::new(),
            prefixes: vec![BTreeMap::new()],
            contents: Contents::new(),
            incarnations: 0,
            catalog: Catalog::new(),
            changing: None,
            power_floor: 0,
            process_floor: 0,
        }
    }
}

impl Ledger {
    /// The keyspaces that were created and not dropped. A drop in flight is not applied yet.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Number of commits started.
    pub fn commits(&self) -> usize {
        self.commits.len()
    }

    /// The value of a key after the writes `before` of the same batch.
    pub fn value(&self, keyspace: Incarnation, key: &[u8], before: &[Write]) -> Option<Value> {
        match before.iter().rev().find(|write| write.keyspace == keyspace && write.key == key) {
            Some(write) => write.value.clone(),
            None => self.contents.get(&keyspace)?.get(key).cloned(),
        }
    }

    /// The deletes that a range deletion amounts to, after the writes `before` of the same batch.
    pub fn deletes(
        &self,
        keyspace: Incarnation,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        before: &[Write],
    ) -> Vec<Write> {
        let there = self.contents.get(&keyspace).into_iter().flat_map(|map| map.range::<[u8], _>(bounds));
        model::deletes(keyspace, there.map(|(key, _)| key.clone()).collect(), bounds, before)
    }

    /// Records that a commit starts.
    pub fn begin_commit(&mut self, writes: Vec<Write>) {
        let mut hashes = self.prefixes.last().cloned().unwrap_or_default();
        for write in &writes {
            let hash = hashes.entry(write.keyspace).or_insert(0);
            let content = self.contents.entry(write.keyspace).or_default();
            let old = match &write.value {
                Some(value) => content.insert(write.key.clone(), value.clone()),
                None => content.remove(&write.key),
            };
            if let Some(old) = old {
                *hash = hash.wrapping_sub(hash_entry(&write.key, &old));
            }
            if let Some(value) = &write.value {
                *hash = hash.wrapping_add(hash_entry(&write.key, value));
            }
        }
        self.prefixes.push(hashes);
        self.commits.push(writes);
    }

    /// Records that the commit returned. Its guarantee covers all earlier commits, since recovery returns a prefix.
    pub fn end_commit(&mut self, durability: Durability) {
        match durability {
            Durability::Buffered => {}
            Durability::Os => self.process_floor = self.commits.len(),
            Durability::Sync => self.all_durable(),
        }
    }

    /// Records that a call returned which makes all commits durable: a sync, a flush of the database, a close.
    pub fn all_durable(&mut self) {
        self.power_floor = self.commits.len();
        self.process_floor = self.commits.len();
    }

    /// Records that a flush of one keyspace returned: its commits are durable, and thus all commits before its last
    /// one.
    pub fn keyspace_durable(&mut self, keyspace: Incarnation) {
        let last = self.commits.iter().rposition(|c| c.iter().any(|w| w.keyspace == keyspace));
        let floor = last.map_or(0, |i| i + 1);
        self.power_floor = self.power_floor.max(floor);
        self.process_floor = self.process_floor.max(floor);
    }

    /// Records that a keyspace creation starts. Returns the incarnation of the keyspace.
    pub fn begin_create(&mut self, name: &str) -> Incarnation {
        self.incarnations += 1;
        let mut after = self.catalog.clone();
        after.insert(name.to_owned(), self.incarnations);
        self.changing = Some(after);
        self.incarnations
    }

    /// Records that a clone of a keyspace starts. All that was written to the one counts as written to the clone, too. Returns the incarnation of the clone.
    pub fn begin_clone(&mut self, source: Incarnation, name: &str) -> Incarnation {
        let clone = self.begin_create(name);
        for commit in &mut self.commits {
            let same = commit.iter().filter(|write| write.keyspace == source);
            let same: Vec<Write> = same.map(|write| Write { keyspace: clone, ..write.clone() }).collect();
            commit.extend(same);
        }
        for state in &mut self.prefixes {
            state.get(&source).copied().map(|hash| state.insert(clone, hash));
        }
        let content = self.contents.get(&source).cloned();
        content.map(|content| self.contents.insert(clone, content));
        clone
    }

    /// Records that a keyspace drop starts.
    pub fn begin_drop(&mut self, name: &str) {
        let mut after = self.catalog.clone();
        after.remove(name);
        self.changing = Some(after);
    }

    /// Records that the creation or drop returned.
    pub fn end_change(&mut self) {
        if let Some(after) = self.changing.take() {
            self.catalog = after;
        }
    }

    /// The states that are allowed after a cut now.
    pub fn expectation(&self) -> Expectation {
        Expectation {
            power_floor: self.power_floor,
            process_floor: self.process_floor,
            ceiling: self.commits.len(),
            catalogs: std::iter::once(&self.catalog).chain(&self.changing).cloned().collect(),
        }
    }

    /// Judges the state recovered after a cut. Returns the largest number of commits that it matches.
    pub fn judge(&self, recovered: &Recovered, expectation: &Expectation, cut: Cut) -> Outcome<usize> {
        let names: Vec<&String> = recovered.keys().collect();
        let catalogs: Vec<_> =
            expectation.catalogs.iter().filter(|c| c.keys().collect::<Vec<_>>() == names).collect();
        ensure!(
            !catalogs.is_empty(),
            "P2: the keyspaces are {names:?}, which is none of {:?}",
            expectation.catalogs.iter().map(|c| c.keys().collect::<Vec<_>>()).collect::<Vec<_>>()
        );
        let hashes: BTreeMap<&String, u64> =
            recovered.iter().map(|(name, c)| (name, hash_all(&c.entries))).collect();
        let floor = expectation.floor(cut);
        let fits = |catalog: &Catalog, prefix: usize| {
            let state = &self.prefixes[prefix];
            catalog.iter().all(|(name, keyspace)| state.get(keyspace).copied().unwrap_or(0) == hashes[name])
        };
        let mut other_versions = None;
        for prefix in (floor..=expectation.ceiling).rev() {
            for catalog in catalogs.iter().filter(|c| fits(c, prefix)) {
                match self.other_versions(recovered, catalog, prefix) {
                    None => return Ok(prefix),
                    difference => other_versions = difference,
                }
            }
        }
        if let Some(difference) = other_versions {
            return Err(Finding::new(format!(
                "P2: the newest versions are those of a prefix, but {difference}"
            )));
        }
        for prefix in (0..floor).rev() {
            if catalogs.iter().any(|c| fits(c, prefix)) {
                return Err(Finding::new(format!(
                    "P1: only the first {prefix} of {} commits are there, and the first {floor} were promised to survive \
                     the end of the {}. Compared with these {floor}: {}",
                    self.commits.len(),
                    if cut == Cut::Power { "power" } else { "process" },
                    self.difference(recovered, catalogs[0], floor).0
                )));
            }
        }
        Err(self.no_prefix(recovered, catalogs[0], floor, expectation.ceiling))
    }

    /// The first difference between the older versions and those after `prefix` commits.
    fn other_versions(&self, recovered: &Recovered, catalog: &Catalog, prefix: usize) -> Option<String> {
        let with_history =
            |(name, id): (_, &Incarnation)| Some((name, *id, recovered[name].versions.as_ref()?));
        for (name, keyspace, found) in catalog.iter().filter_map(with_history) {
            let mut expected = Histories::new();
            for commit in &self.commits[..prefix] {
                let writes = commit.iter().filter(|w| w.keyspace == keyspace).map(|w| (&w.key[..], &w.value));
                // Of the writes of one key in one batch the last one counts. If it has expired, a range delete before it shows.
                let last: BTreeMap<&[u8], &Option<Value>> = writes.clone().collect();
                match found.all {
                    true => last.into_iter().for_each(|(k, v)| add_version(&mut expected, k, v.as_ref())),
                    false => writes.for_each(|(k, v)| add_version(&mut expected, k, v.as_ref())),
                }
            }
            let is_same = |found: &Option<Slice>, expected: &Option<&Value>| {
                found.as_deref() == expected.map(|value| &value[..])
            };
            for key in expected.keys().chain(found.by_key.keys()) {
                let all = expected.get(key).map_or(&[][..], |versions| versions);
                let there = found.by_key.get(key).map_or(&[][..], |versions| versions);
                // Those that retention has removed need not be the oldest.
                let mut rest = all.iter();
                let is_part = there.iter().all(|found| rest.any(|expected| is_same(found, expected)));
                if !is_part || (found.all && there.len() < all.len()) {
                    let (key, there, all) = (key.escape_ascii(), lengths(there), lengths(all));
                    return Some(format!(
                        "keyspace {name}, key {key}: versions of {there:?} bytes, not of {all:?}"
                    ));
                }
            }
        }
        None
    }

    /// The finding for a state that matches no prefix: its difference from the closest prefix.
    fn no_prefix(&self, recovered: &Recovered, catalog: &Catalog, floor: usize, ceiling: usize) -> Finding {
        let nearest = (0..=ceiling).min_by_key(|&p| self.difference(recovered, catalog, p).1).unwrap_or(0);
        Finding::new(format!(
            "P2: the state is that of no prefix of the {} commits ({floor} to {ceiling} would do). Compared with the first \
             {nearest}: {}. Compared with the first {ceiling}: {}",
            self.commits.len(),
            self.difference(recovered, catalog, nearest).0,
            self.difference(recovered, catalog, ceiling).0,
        ))
    }

    /// The difference between the state and the one after `prefix` commits: as text, and as a number of entries.
    fn difference(&self, recovered: &Recovered, catalog: &Catalog, prefix: usize) -> (String, usize) {
        let mut contents = Contents::new();
        for write in self.commits[..prefix].iter().flatten() {
            let content = contents.entry(write.keyspace).or_default();
            match &write.value {
                Some(value) => content.insert(write.key.clone(), value.clone()),
                None => content.remove(&write.key),
            };
        }
        let empty = BTreeMap::new();
        let (mut words, mut count) = (Vec::new(), 0);
        for (name, keyspace) in catalog {
            let want = contents.get(keyspace).unwrap_or(&empty);
            let got: BTreeMap<&[u8], &[u8]> =
                recovered[name].entries.iter().map(|(k, v)| (&k[..], &v[..])).collect();
            count += want.iter().filter(|(k, v)| got.get(&k[..]) != Some(&&v[..])).count();
            count += got.keys().filter(|k| !want.contains_key(**k)).count();
            let want = want.iter().map(|(k, v)| (&k[..], &v[..]));
            words.extend(first_difference(got.into_iter(), want).map(|d| format!("keyspace {name}: {d}")));
        }
        (format!("{count} entries differ ({})", words.join("; ")), count)
    }
}

fn lengths<V: AsRef<[u8]>>(versions: &[Option<V>]) -> Vec<Option<usize>> {
    versions.iter().map(|value| value.as_ref().map(|value| value.as_ref().len())).collect()
}

fn hash_all(entries: &[(Slice, Slice)]) -> u64 {
    entries.iter().fold(0, |sum, (key, value)| sum.wrapping_add(hash_entry(key, value)))
}
