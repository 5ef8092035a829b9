//! The moments at which a child kills itself: before, halfway through, or after an operation on a file.
//!
//! A kill from outside mostly hits an uninteresting moment. [`MortalEnv`] is the real file system with one chosen
//! moment: when it comes, the process reports it on standard output and kills itself.

use super::{MOMENT, Record};
use crate::random::{Draw, Rng};
use cairn::Result;
use cairn::env::{Env, FileFront, FileLock, ReadFile, RealEnv, WriteFile};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The operation at which the child dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A file is created.
    Create,
    /// Bytes are appended. Halfway means after half of them.
    Append,
    /// A file is synced.
    Sync,
    /// A file is renamed to its final name.
    Rename,
    /// A file is removed.
    Remove,
    /// The directory is synced.
    SyncDir,
}

/// The kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The log.
    Log,
    /// The manifest, under its final or temporary name.
    Manifest,
    /// A table of a flush, a compaction or a recovery.
    Table,
    /// The directory.
    Directory,
}

/// Before, halfway through, or after the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Before the operation.
    Before,
    /// After half of an append; after all of any other operation.
    Halfway,
    /// After the operation, but before the caller knows.
    After,
}

const OPERATIONS: [(&str, Operation); 6] = [
    ("create", Operation::Create),
    ("append", Operation::Append),
    ("sync", Operation::Sync),
    ("rename", Operation::Rename),
    ("remove", Operation::Remove),
    ("sync-dir", Operation::SyncDir),
];
const KINDS: [(&str, Kind); 4] = [
    ("log", Kind::Log),
    ("manifest", Kind::Manifest),
    ("table", Kind::Table),
    ("directory", Kind::Directory),
];
const WHENS: [(&str, When); 3] =
    [("before", When::Before), ("halfway", When::Halfway), ("after", When::After)];

/// The operations on files that occur.
const TARGETS: [(Operation, Kind); 12] = [
    (Operation::Create, Kind::Log),
    (Operation::Create, Kind::Manifest),
    (Operation::Create, Kind::Table),
    (Operation::Append, Kind::Log),
    (Operation::Append, Kind::Manifest),
    (Operation::Append, Kind::Table),
    (Operation::Sync, Kind::Manifest),
    (Operation::Sync, Kind::Table),
    (Operation::Rename, Kind::Manifest),
    (Operation::Remove, Kind::Log),
    (Operation::Remove, Kind::Table),
    (Operation::SyncDir, Kind::Directory),
];

/// A moment. As text: `before:rename:manifest:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    when: When,
    operation: Operation,
    kind: Kind,
    /// The number of the operation among those of its kind, from 1.
    nth: u64,
}

impl Moment {
    /// Draws a moment. Low numbers are reached while the database is opened, which does each of these operations a
    /// few times.
    pub fn draw(rng: &mut Rng) -> Moment {
        let (operation, kind) = *rng.pick(&TARGETS);
        let most = if (operation, kind) == (Operation::Append, Kind::Log) { 300 } else { 12 };
        Moment { when: rng.pick(&WHENS).1, operation, kind, nth: 1 + rng.below(most) }
    }

    /// The kind of file.
    pub fn kind(self) -> Kind {
        self.kind
    }
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], item: &T) -> &'static str {
    table.iter().find(|row| row.1 == *item).map_or("?", |row| row.0)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (when, operation) = (name_of(&WHENS, &self.when), name_of(&OPERATIONS, &self.operation));
        write!(f, "{when}:{operation}:{}:{}", name_of(&KINDS, &self.kind), self.nth)
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Moment, String> {
        fn find<T: Copy>(table: &[(&'static str, T)], name: &str) -> Option<T> {
            table.iter().find(|row| row.0 == name).map(|row| row.1)
        }
        let parse = || {
            let [when, operation, kind, nth] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
            let (when, operation) = (find(&WHENS, when)?, find(&OPERATIONS, operation)?);
            Some(Moment { when, operation, kind: find(&KINDS, kind)?, nth: nth.parse().ok()? })
        };
        parse().ok_or_else(|| format!("{text:?} is not a moment"))
    }
}

fn kind_of(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    match name {
        _ if name.starts_with("wal-") => Some(Kind::Log),
        _ if name.starts_with("manifest-") => Some(Kind::Manifest),
        _ if name.starts_with(|c: char| c.is_ascii_digit()) => Some(Kind::Table),
        _ => None,
    }
}

/// Counts operations until the moment comes.
struct Fate {
    moment: Moment,
    met: AtomicU64,
}

impl Fate {
    /// Whether the operation that is about to run is the chosen one.
    fn is_now(&self, operation: Operation, kind: Option<Kind>) -> bool {
        self.moment.operation == operation
            && Some(self.moment.kind) == kind
            && self.met.fetch_add(1, Ordering::Relaxed) + 1 == self.moment.nth
    }

    /// Runs an operation that has no halfway state.
    fn around<T>(&self, operation: Operation, kind: Option<Kind>, act: impl FnOnce() -> T) -> T {
        let now = self.is_now(operation, kind);
        if now && self.moment.when == When::Before {
            die();
        }
        let result = act();
        if now {
            die();
        }
        result
    }
}

fn die() -> ! {
    // Ignore errors: the process dies in any case.
    let _ = Record { thread: MOMENT, promised: false, number: 0 }.report();
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

/// The real file system until the chosen moment.
pub struct MortalEnv {
    real: Arc<dyn Env>,
    fate: Arc<Fate>,
}

impl MortalEnv {
    /// An environment for this process.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(moment: Moment) -> Arc<dyn Env> {
        Arc::new(MortalEnv { real: RealEnv::new(), fate: Arc::new(Fate { moment, met: AtomicU64::new(0) }) })
    }
}

impl Env for MortalEnv {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let kind = kind_of(path);
        let file = self.fate.around(Operation::Create, kind, || self.real.create(path))?;
        Ok(Box::new(MortalFile { file, kind, fate: self.fate.clone() }))
    }

    fn create_log(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let kind = kind_of(path);
        let file = self.fate.around(Operation::Create, kind, || self.real.create_log(path))?;
        Ok(Box::new(MortalFile { file, kind, fate: self.fate.clone() }))
    }

    fn reuse_log(&self, old: &Path, path: &Path) -> Result<Option<Box<dyn WriteFile>>> {
        let kind = kind_of(path);
        let file = self.fate.around(Operation::Create, kind, || self.real.reuse_log(old, path))?;
        Ok(file
            .map(|file| Box::new(MortalFile { file, kind, fate: self.fate.clone() }) as Box<dyn WriteFile>))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.real.open(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.real.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.real.exists(path)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        self.real.len(path)
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.real.create_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.fate.around(Operation::Rename, kind_of(to), || self.real.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.fate.around(Operation::Remove, kind_of(path), || self.real.remove(path))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.fate.around(Operation::Sync, kind_of(path), || self.real.sync_file(path))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.fate.around(Operation::SyncDir, Some(Kind::Directory), || self.real.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.real.lock(path)
    }

    fn lock_read_only(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.real.lock_read_only(path)
    }

    fn free_space(&self, dir: &Path) -> Option<u64> {
        self.real.free_space(dir)
    }

    fn allocate(&self, path: &Path, len: u64) -> Result<()> {
        self.real.allocate(path, len)
    }

    fn max_open_files(&self) -> usize {
        self.real.max_open_files()
    }

    fn max_file_len(&self) -> u64 {
        self.real.max_file_len()
    }

    fn memory(&self) -> u64 {
        self.real.memory()
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic()
    }

    fn sleep(&self, time: Duration) {
        self.real.sleep(time);
    }
}

struct MortalFile {
    file: Box<dyn WriteFile>,
    kind: Option<Kind>,
    fate: Arc<Fate>,
}

struct MortalFront {
    front: Arc<dyn FileFront>,
    kind: Option<Kind>,
    fate: Arc<Fate>,
}

impl FileFront for MortalFront {
    fn sync(&self) -> Result<()> {
        self.fate.around(Operation::Sync, self.kind, || self.front.sync())
    }
}

impl WriteFile for MortalFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        if !self.fate.is_now(Operation::Append, self.kind) {
            return self.file.append(data);
        }
        let done = match self.fate.moment.when {
            When::Before => 0,
            When::Halfway => data.len() / 2,
            When::After => data.len(),
        };
        let _ = self.file.append(&data[..done]);
        die()
    }

    fn sync(&mut self) -> Result<()> {
        let file = &mut self.file;
        self.fate.around(Operation::Sync, self.kind, || file.sync())
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }

    fn trim(&mut self) {
        self.file.trim();
    }

    fn allow_lease(&mut self) {
        self.file.allow_lease();
    }

    fn on_idle(&mut self) {
        self.file.on_idle();
    }

    fn front(&self, len: u64) -> Arc<dyn FileFront> {
        Arc::new(MortalFront { front: self.file.front(len), kind: self.kind, fate: self.fate.clone() })
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn reserve(&mut self, len: u64) {
        self.file.reserve(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_round_trip_as_text() {
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let moment = Moment::draw(&mut rng);
            assert_eq!(moment.to_string().parse(), Ok(moment));
        }
        assert!("before:rename:manifest".parse::<Moment>().is_err());
    }

    #[test]
    fn the_nth_operation_of_its_kind_is_the_one() {
        let moment = "after:create:table:2".parse().unwrap();
        let fate = Fate { moment, met: AtomicU64::new(0) };
        assert!(!fate.is_now(Operation::Create, Some(Kind::Table)));
        assert!(!fate.is_now(Operation::Create, Some(Kind::Log)));
        assert!(!fate.is_now(Operation::Sync, Some(Kind::Table)));
        assert!(fate.is_now(Operation::Create, Some(Kind::Table)));
        assert!(!fate.is_now(Operation::Create, Some(Kind::Table)));
    }

    /// The library uses these file names. A file without a kind would never be chosen.
    #[test]
    fn every_file_of_a_database_has_a_kind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let db = cairn::Database::open(&path).unwrap();
        let keyspace = db.keyspace("k", cairn::KeyspaceOptions::default()).unwrap();
        keyspace.put("a", "1").unwrap();
        keyspace.flush().unwrap();
        drop((db, keyspace));
        let names = RealEnv::new().list(&path).unwrap();
        let kinds: std::collections::BTreeSet<_> = names.iter().map(|n| kind_of(Path::new(n))).collect();
        let all = [None, Some(Kind::Log), Some(Kind::Manifest), Some(Kind::Table)];
        assert_eq!(kinds, all.into_iter().collect(), "{names:?}");
    }
}
