//! The kill points at which a child kills itself: before, halfway through, or after an operation on a file.
//!
//! A kill from outside mostly hits an uninteresting point. [`KillPointEnv`] is the real file system with one
//! kill point: when it is reached, the process reports it on standard output and kills itself.

use super::record::{AT_KILL_POINT, Record};
use crate::random::{Draw, Rng};
use cairn::env::{Env, FileLock, FileStamp, FrontSync, ReadFile, RealEnv, WriteFile};
use cairn::{Result, Time};
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

/// A kill point. As text: `before:rename:manifest:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillPoint {
    when: When,
    operation: Operation,
    kind: Kind,
    /// The number of the operation among those of its kind, from 1.
    nth: u64,
}

impl KillPoint {
    /// Draws a kill point. Low numbers are reached while the database is opened, which does each of these operations a
    /// few times.
    pub fn draw(rng: &mut Rng) -> KillPoint {
        let (operation, kind) = *rng.pick(&TARGETS);
        let max_nth = if (operation, kind) == (Operation::Append, Kind::Log) { 300 } else { 12 };
        KillPoint { when: rng.pick(&WHENS).1, operation, kind, nth: 1 + rng.below(max_nth) }
    }

    /// The kind of file.
    pub fn kind(self) -> Kind {
        self.kind
    }
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], item: &T) -> &'static str {
    table.iter().find(|row| row.1 == *item).map_or("?", |row| row.0)
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (when, operation) = (name_of(&WHENS, &self.when), name_of(&OPERATIONS, &self.operation));
        write!(f, "{when}:{operation}:{}:{}", name_of(&KINDS, &self.kind), self.nth)
    }
}

impl FromStr for KillPoint {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<KillPoint, String> {
        fn find<T: Copy>(table: &[(&'static str, T)], name: &str) -> Option<T> {
            table.iter().find(|row| row.0 == name).map(|row| row.1)
        }
        let parse = || {
            let [when, operation, kind, nth] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
            let (when, operation) = (find(&WHENS, when)?, find(&OPERATIONS, operation)?);
            Some(KillPoint { when, operation, kind: find(&KINDS, kind)?, nth: nth.parse().ok()? })
        };
        parse().ok_or_else(|| format!("{text:?} is not a kill point"))
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

/// Counts operations until the kill point is reached.
struct Countdown {
    point: KillPoint,
    reached: AtomicU64,
}

impl Countdown {
    /// Whether the operation that is about to run is the chosen one.
    fn is_now(&self, operation: Operation, kind: Option<Kind>) -> bool {
        self.point.operation == operation
            && Some(self.point.kind) == kind
            && self.reached.fetch_add(1, Ordering::Relaxed) + 1 == self.point.nth
    }

    /// Runs an operation that has no halfway state.
    fn around<T>(&self, operation: Operation, kind: Option<Kind>, act: impl FnOnce() -> T) -> T {
        let now = self.is_now(operation, kind);
        if now && self.point.when == When::Before {
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
    let _ = Record { thread: AT_KILL_POINT, promised: false, number: 0 }.report();
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

/// The real file system until the kill point.
pub struct KillPointEnv {
    real: Arc<dyn Env>,
    countdown: Arc<Countdown>,
}

impl KillPointEnv {
    /// An environment for this process.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(point: KillPoint) -> Arc<dyn Env> {
        Arc::new(KillPointEnv {
            real: RealEnv::new(),
            countdown: Arc::new(Countdown { point, reached: AtomicU64::new(0) }),
        })
    }
}

impl Env for KillPointEnv {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let kind = kind_of(path);
        let file = self.countdown.around(Operation::Create, kind, || self.real.create(path))?;
        Ok(Box::new(MortalFile { file, kind, countdown: self.countdown.clone() }))
    }

    fn create_log(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let kind = kind_of(path);
        let file = self.countdown.around(Operation::Create, kind, || self.real.create_log(path))?;
        Ok(Box::new(MortalFile { file, kind, countdown: self.countdown.clone() }))
    }

    fn reuse_log(&self, old: &Path, path: &Path) -> Result<Option<Box<dyn WriteFile>>> {
        let kind = kind_of(path);
        let file = self.countdown.around(Operation::Create, kind, || self.real.reuse_log(old, path))?;
        Ok(file.map(|file| {
            Box::new(MortalFile { file, kind, countdown: self.countdown.clone() }) as Box<dyn WriteFile>
        }))
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
        self.countdown.around(Operation::Rename, kind_of(to), || self.real.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        self.countdown.around(Operation::Create, kind_of(to), || self.real.link(from, to))
    }

    fn name_count(&self, path: &Path) -> Result<u64> {
        self.real.name_count(path)
    }

    fn stamp(&self, path: &Path) -> Result<Option<FileStamp>> {
        self.real.stamp(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.countdown.around(Operation::Remove, kind_of(path), || self.real.remove(path))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.countdown.around(Operation::Sync, kind_of(path), || self.real.sync_file(path))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.countdown.around(Operation::SyncDir, Some(Kind::Directory), || self.real.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.real.lock(path)
    }

    fn lock_read_only(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.real.lock_read_only(path)
    }

    fn lock_shared(&self, path: &Path, at: u64) -> Result<Box<dyn FileLock>> {
        self.real.lock_shared(path, at)
    }

    fn first_shared_lock(&self, path: &Path) -> Result<Option<u64>> {
        self.real.first_shared_lock(path)
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

    fn wall_clock(&self) -> Time {
        self.real.wall_clock()
    }

    fn sleep(&self, time: Duration) {
        self.real.sleep(time);
    }
}

struct MortalFile {
    file: Box<dyn WriteFile>,
    kind: Option<Kind>,
    countdown: Arc<Countdown>,
}

impl WriteFile for MortalFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        if !self.countdown.is_now(Operation::Append, self.kind) {
            return self.file.append(data);
        }
        let done = match self.countdown.point.when {
            When::Before => 0,
            When::Halfway => data.len() / 2,
            When::After => data.len(),
        };
        let _ = self.file.append(&data[..done]);
        die()
    }

    fn sync(&mut self) -> Result<()> {
        let file = &mut self.file;
        self.countdown.around(Operation::Sync, self.kind, || file.sync())
    }

    fn write_back(&mut self) -> Result<()> {
        let file = &mut self.file;
        self.countdown.around(Operation::Sync, self.kind, || file.write_back())
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }

    fn trim(&mut self) {
        self.file.trim();
    }

    fn on_idle(&mut self) {
        self.file.on_idle();
    }

    fn front(&self, len: u64) -> FrontSync {
        let (sync, kind, countdown) = (self.file.front(len), self.kind, self.countdown.clone());
        Arc::new(move || countdown.around(Operation::Sync, kind, || sync()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kill_points_round_trip_as_text() {
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let point = KillPoint::draw(&mut rng);
            assert_eq!(point.to_string().parse(), Ok(point));
        }
        assert!("before:rename:manifest".parse::<KillPoint>().is_err());
    }

    #[test]
    fn the_nth_operation_of_its_kind_is_the_one() {
        let point = "after:create:table:2".parse().unwrap();
        let countdown = Countdown { point, reached: AtomicU64::new(0) };
        assert!(!countdown.is_now(Operation::Create, Some(Kind::Table)));
        assert!(!countdown.is_now(Operation::Create, Some(Kind::Log)));
        assert!(!countdown.is_now(Operation::Sync, Some(Kind::Table)));
        assert!(countdown.is_now(Operation::Create, Some(Kind::Table)));
        assert!(!countdown.is_now(Operation::Create, Some(Kind::Table)));
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
