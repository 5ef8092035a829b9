//! Builds a small, fully synced database, and records its true content.

use crate::damage::layout::Layout;
use crate::data::{Value, appended, put_or_merge};
use crate::finding::{Outcome, ensure};
use crate::model::{Incarnation, Write};
use crate::random::{Draw, Rng, derive};
use crate::sets::tiny_shapes;
use cairn::env::{Fault, OpKind, SimEnv, Survival};
use cairn::{Database, Durability, Keyspace, KeyspaceOptions, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Path of the database on the simulated disk.
pub(super) const PATH: &str = "/db";

/// Maximum number of old versions kept per file.
const VERSIONS: usize = 8;

/// The keyspaces by name.
pub(super) type Catalog = BTreeMap<String, Incarnation>;

/// A file with an earlier content.
pub(super) type Version = (PathBuf, Vec<u8>);

/// The contents of keyspaces.
pub(super) type Contents = BTreeMap<Incarnation, BTreeMap<Vec<u8>, Value>>;

/// Versions by key, the latest first.
pub(super) type Versions = BTreeMap<Vec<u8>, Vec<Option<Value>>>;

/// How the history ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The database was closed.
    Closed,
    /// The process was killed; data in the operating system remains.
    Killed,
    /// The power failed right after a sync: later writes, such as a mark, are lost.
    PowerCut,
}

/// The keyspaces after a number of records of one manifest.
pub(super) struct Noted {
    pub(super) manifest: PathBuf,
    pub(super) records: usize,
    pub(super) catalog: Catalog,
}

/// The database and its true content.
pub(super) struct Fixture {
    name: String,
    ending: Ending,
    pub(super) options: Options,
    /// The disk. Damage is applied to copies of it.
    base: Arc<SimEnv>,
    /// The files on the disk.
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
    /// Removed files that the power failure restored.
    returned: BTreeSet<PathBuf>,
    /// Earlier contents of the files of the database, including removed files.
    pub(super) older: Vec<Version>,
    /// The commits in order, and the contents before the first and after each of them.
    pub(super) commits: Vec<Vec<Write>>,
    states: Vec<Contents>,
    pub(super) catalog: Catalog,
    pub(super) catalogs: Vec<Noted>,
}

pub(super) fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "log")
}

pub(super) fn is_manifest(path: &Path) -> bool {
    file_name(path).starts_with("manifest-")
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Fixture {
    /// Builds the fixture of `seed`: `seed % shapes` and `seed % 3` select the options and the ending.
    pub(super) fn build(seed: u64) -> Outcome<Fixture> {
        let shapes = tiny_shapes();
        let ending = [Ending::Closed, Ending::Killed, Ending::PowerCut][(seed % 3) as usize];
        let (name, options) = &shapes[(seed % shapes.len() as u64) as usize];
        let mut script = Script::new(seed, options.clone());
        script.play()?;
        let fixture = script.finish(ending)?;
        Ok(Fixture { name: (*name).to_owned(), ..fixture })
    }

    /// A copy of the disk.
    pub(super) fn image(&self) -> Arc<SimEnv> {
        self.base.crash_clone(Survival::Everything, 1)
    }

    /// Whether the file has data that must be read: not the lock file, and not a removed file.
    pub(super) fn needs(&self, path: &Path) -> bool {
        file_name(path) != "LOCK" && !self.returned.contains(path)
    }

    /// The contents of all keyspaces after this many commits.
    pub(super) fn state(&self, commits: usize) -> &Contents {
        &self.states[commits]
    }

    /// The versions of each key of a keyspace after this many commits, the latest first; `None` for a delete.
    pub(super) fn versions(&self, commits: usize, keyspace: Incarnation) -> Versions {
        let mut versions = Versions::new();
        for commit in self.commits[..commits].iter().rev() {
            let mut seen = BTreeSet::new();
            for write in commit.iter().rev().filter(|write| write.keyspace == keyspace) {
                // Of several writes of one batch to a key the last is the version.
                if seen.insert(&write.key) {
                    versions.entry(write.key.clone()).or_default().push(write.value.clone());
                }
            }
        }
        versions
    }
}

#[cfg(test)]
impl Fixture {
    /// The same files, with true content that lacks the newest commit.
    pub(super) fn without_last_commit(&self) -> Fixture {
        let mut states = self.states.clone();
        states.pop();
        Fixture {
            name: self.name.clone(),
            ending: self.ending,
            options: self.options.clone(),
            base: self.base.clone(),
            files: self.files.clone(),
            returned: self.returned.clone(),
            older: Vec::new(),
            commits: self.commits[..self.commits.len() - 1].to_vec(),
            states,
            catalog: self.catalog.clone(),
            catalogs: Vec::new(),
        }
    }
}

impl fmt::Display for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fixture { name, ending, files, commits, .. } = self;
        write!(f, "options {name}, {ending:?}, {} commits:", commits.len())?;
        for (path, bytes) in files {
            write!(f, " {} ({})", file_name(path), bytes.len())?;
        }
        Ok(())
    }
}

/// The script that builds a fixture.
struct Script {
    env: Arc<SimEnv>,
    rng: Rng,
    options: Options,
    keyspace_options: KeyspaceOptions,
    db: Option<Database>,
    open: BTreeMap<String, (Keyspace, Incarnation)>,
    incarnations: Incarnation,
    commits: Vec<Vec<Write>>,
    states: Vec<Contents>,
    catalogs: Vec<Noted>,
    older: Arc<Mutex<Vec<Version>>>,
    /// Table creation fails: memtables and logs are switched, and flushed data stays in the logs.
    no_tables: Arc<AtomicBool>,
}

impl Script {
    fn new(seed: u64, keyspace_options: KeyspaceOptions) -> Script {
        Script {
            env: SimEnv::new(derive(seed, 1)),
            rng: Rng::new(seed),
            options: Options::default()
                .memory_budget(1 << 20)
                .log_cap(64 << 10)
                .manifest_cap(1 << 10)
                .background_threads(0),
            keyspace_options,
            db: None,
            open: BTreeMap::new(),
            incarnations: 0,
            commits: Vec::new(),
            states: vec![Contents::new()],
            catalogs: Vec::new(),
            older: Arc::default(),
            no_tables: Arc::default(),
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open but for a moment")
    }

    /// Creates tables on several levels, logs that a keyspace without flushes retains, and edits in the manifest.
    fn play(&mut self) -> Outcome {
        self.keep_versions();
        self.reopen()?;
        self.create("a")?;
        self.create("b")?;
        for _ in 0..self.rng.between(2, 4) {
            self.write_some()?;
            let (flushed, all) = (self.rng.chance(2, 3), self.rng.chance(1, 4));
            match (flushed, all) {
                (true, true) => self.db().flush()?,
                (true, false) => self.open["b"].0.flush()?,
                _ => self.db().sync()?,
            }
            match self.rng.below(8) {
                0 => self.db().compact()?,
                1 => self.reopen()?,
                2 if !self.open.contains_key("c") => self.create("c")?,
                3 if self.open.contains_key("c") => self.drop_keyspace("c")?,
                _ => {}
            }
        }
        if self.rng.chance(2, 3) {
            self.write_some()?;
        }
        if self.rng.chance(1, 3) {
            self.write_without_tables()?;
        }
        Ok(self.db().sync()?)
    }

    /// Creates closed logs that no flush has recorded: only the data written with them proves their existence and
    /// synced length.
    fn write_without_tables(&mut self) -> Outcome {
        self.no_tables.store(true, Ordering::SeqCst);
        for _ in 0..self.rng.between(1, 2) {
            self.commit(1, Durability::Sync)?;
            if self.rng.chance(1, 2) {
                self.commit(1, Durability::Os)?;
            }
            ensure!(self.db().flush().is_err(), "a table was made");
        }
        self.write_some()
    }

    /// Keeps the content of each file at each sync, for damage that restores it.
    fn keep_versions(&self) {
        let (disk, older) = (Arc::downgrade(&self.env), self.older.clone());
        let no_tables = self.no_tables.clone();
        self.env.set_hook(Some(Box::new(move |op| {
            let is_table =
                op.kind == OpKind::Create && op.path.extension().is_some_and(|e| e == "tbl" || e == "hnt");
            if is_table && no_tables.load(Ordering::SeqCst) {
                return Some(Fault::EIO);
            }
            if op.kind == OpKind::Sync
                && let Some(disk) = disk.upgrade()
                && disk.list_files().iter().any(|path| path == op.path)
            {
                let version = (op.path.to_owned(), disk.read_file(op.path));
                let mut older = older.lock().unwrap_or_else(|e| e.into_inner());
                if !older.contains(&version) {
                    older.push(version);
                }
            }
            None
        })));
    }

    fn write_some(&mut self) -> Outcome {
        for _ in 0..self.rng.between(2, 7) {
            let len = self.rng.weighted(&[0, 6, 2, 1]);
            let durability = *self.rng.pick(&[Durability::Buffered, Durability::Os, Durability::Sync]);
            self.commit(len, durability)?;
        }
        Ok(())
    }

    fn commit(&mut self, len: usize, durability: Durability) -> Outcome {
        let mut batch = self.db().batch();
        let (mut writes, mut state) = (Vec::new(), self.states.last().cloned().unwrap_or_default());
        for _ in 0..len {
            let names: Vec<&String> = self.open.keys().collect();
            let (keyspace, incarnation) = self.open[*self.rng.pick(&names)].clone();
            let key = format!("k{:02}", 2 * self.rng.below(12)).into_bytes();
            let content = state.entry(incarnation).or_default();
            let value = (!self.rng.chance(1, 6)).then(|| draw_value(&mut self.rng));
            let value = value.map(|value| appended(&keyspace, content.get(&key), value));
            match &value {
                Some(value) => {
                    put_or_merge(&mut batch, &keyspace, &key, content.get(&key), value);
                    content.insert(key.clone(), value.clone());
                }
                None => {
                    batch.delete(&keyspace, &key);
                    content.remove(&key);
                }
            }
            writes.push(Write { keyspace: incarnation, key, value });
        }
        self.db().write(batch, durability)?;
        self.commits.push(writes);
        self.states.push(state);
        Ok(())
    }

    fn catalog(&self) -> Catalog {
        self.open.iter().map(|(name, (_, incarnation))| (name.clone(), *incarnation)).collect()
    }

    fn create(&mut self, name: &str) -> Outcome {
        let keyspace = self.db().create_keyspace(name, self.keyspace_options.clone())?;
        self.incarnations += 1;
        self.open.insert(name.to_owned(), (keyspace, self.incarnations));
        self.note_catalog();
        Ok(())
    }

    fn drop_keyspace(&mut self, name: &str) -> Outcome {
        self.db().drop_keyspace(name)?;
        self.open.remove(name);
        self.note_catalog();
        Ok(())
    }

    fn note_catalog(&mut self) {
        let manifest = self.env.list_files().into_iter().rfind(|path| is_manifest(path));
        if let Some(manifest) = manifest {
            let records = Layout::of(&self.env.read_file(&manifest)).records_up_to(usize::MAX);
            self.catalogs.push(Noted { manifest, records, catalog: self.catalog() });
        }
    }

    fn reopen(&mut self) -> Outcome {
        let catalog = self.catalog();
        self.open.clear();
        if let Some(db) = self.db.take() {
            db.close()?;
        }
        let db = Database::open_in(self.env.clone(), PATH, self.options.clone())?;
        for (name, incarnation) in catalog {
            self.open.insert(name.clone(), (db.open_keyspace(&name)?, incarnation));
        }
        self.db = Some(db);
        self.note_catalog();
        Ok(())
    }

    fn finish(mut self, ending: Ending) -> Outcome<Fixture> {
        self.env.set_hook(None);
        let catalog = self.catalog();
        let killed = self.env.process_clone();
        let present: BTreeSet<_> = killed.list_files().into_iter().collect();
        let power_cut = self.env.crash_clone(Survival::Nothing, 1);
        self.open.clear();
        if let Some(db) = self.db.take() {
            if self.no_tables.load(Ordering::SeqCst) {
                db.flush()?;
            }
            db.close()?;
        }
        let base = match ending {
            Ending::Closed => self.env.clone(),
            Ending::Killed => killed,
            Ending::PowerCut => power_cut,
        };
        let base = base.crash_clone(Survival::Everything, 1);
        let files: BTreeMap<_, _> =
            base.list_files().into_iter().map(|path| (path.clone(), base.read_file(&path))).collect();
        let returned = files.keys().filter(|path| !present.contains(*path)).cloned().collect();
        let mut older = std::mem::take(&mut *self.older.lock().unwrap_or_else(|e| e.into_inner()));
        older.retain(|(path, bytes)| files.get(path) != Some(bytes));
        let older = older.split_off(older.len().saturating_sub(VERSIONS * files.len()));
        Ok(Fixture {
            name: String::new(),
            ending,
            options: self.options.clone(),
            base,
            files,
            returned,
            older,
            commits: std::mem::take(&mut self.commits),
            states: std::mem::take(&mut self.states),
            catalog,
            catalogs: std::mem::take(&mut self.catalogs),
        })
    }
}

/// Some values are compressible and some are not. Values of eight bytes or more are distinct.
fn draw_value(rng: &mut Rng) -> Value {
    let len = rng.weighted(&[1, 20, 10, 2]) * 16;
    let mut bytes = vec![b'v'; len + rng.between(0, 8)];
    let random = bytes.len().min(if rng.chance(1, 2) { 8 } else { 64 });
    rng.fill(&mut bytes[..random]);
    bytes.into()
}
#[cfg(test)]
mod tests {
    use super::*;

    /// The 24 kinds of fixtures have the promised properties and are small.
    #[test]
    fn fixtures_have_tables_and_logs_and_replay() {
        let (mut tables, mut logs, mut multiple) = (0, 0, 0);
        for seed in 0..24 {
            let fixture = Fixture::build(seed).unwrap();
            assert_eq!(fixture.files, Fixture::build(seed).unwrap().files);
            let content = |bytes: &Vec<u8>| bytes.iter().filter(|byte| **byte != 0).count();
            assert!(fixture.files.values().all(|bytes| content(bytes) < 4 << 10), "{fixture}");
            tables += fixture.files.keys().filter(|p| p.extension().is_some_and(|e| e == "tbl")).count();
            let own_logs = fixture.files.iter().filter(|(path, _)| is_log(path) && fixture.needs(path));
            let records: usize =
                own_logs.clone().map(|(_, bytes)| Layout::of(bytes).records_up_to(usize::MAX)).sum();
            assert!(records <= fixture.commits.len(), "{fixture}");
            logs += usize::from(records > 0);
            multiple += usize::from(own_logs.count() > 1);
        }
        assert!(tables > 48 && logs > 16 && multiple > 8, "{tables} tables, {logs}, {multiple}");
    }
}
