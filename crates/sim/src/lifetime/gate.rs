//! The environment of one opening, which ends with it.
//!
//! Each opening of a database has its own [`Gate`] around the shared disk. When the lock is released, the opening is
//! over: later operations could affect the files of the next opening, so the gate records them. The gate also delays
//! some operations, selected by a seed, so that closing meets operations in progress.

use crate::finding::{Outcome, ensure};
use crate::random::derive;
use cairn::env::{Env, FileLock, FileStamp, FrontSync, ReadFile, WriteFile};
use cairn::{Result, Time};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// State shared by the environment and its files.
struct Watch {
    /// Seed of the delays; `None` for none.
    delays: Option<u64>,
    operations: AtomicU64,
    over: AtomicBool,
    late: Mutex<Vec<String>>,
}

impl Watch {
    /// Called before an operation that changes the disk.
    fn pass(&self, operation: &str, path: &Path) {
        let index = self.operations.fetch_add(1, Ordering::Relaxed);
        match self.delays.map(|seed| derive(seed, index) % 32) {
            Some(0) => std::thread::sleep(Duration::from_micros(200)),
            Some(1..4) => std::thread::sleep(Duration::from_micros(30)),
            Some(4..8) => std::thread::yield_now(),
            _ => {}
        }
        // Check after the delay, which counts as part of the operation.
        if self.over.load(Ordering::SeqCst) {
            let mut late = self.late.lock().unwrap_or_else(|e| e.into_inner());
            late.push(format!("{operation} {}", path.display()));
        }
    }
}

/// The disk as one opening sees it.
pub struct Gate {
    disk: Arc<dyn Env>,
    watch: Arc<Watch>,
    /// The lock of the database, which is taken first. Copies have others.
    lock: OnceLock<PathBuf>,
}

impl Gate {
    /// A gate to `disk`. The seed selects the delays; without it there are none.
    pub fn new(disk: Arc<dyn Env>, delays: Option<u64>) -> Arc<Gate> {
        let (operations, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let watch = Watch { delays, operations, over, late: Mutex::default() };
        Arc::new(Gate { disk, watch: Arc::new(watch), lock: OnceLock::new() })
    }

    /// The disk behind it, which does not end with the opening.
    pub fn disk(&self) -> &Arc<dyn Env> {
        &self.disk
    }

    /// Whether the lock was released.
    pub fn is_over(&self) -> bool {
        self.watch.over.load(Ordering::SeqCst)
    }

    /// Fails if the opening changed the disk after it released the lock.
    pub fn check(&self) -> Outcome {
        let late = self.watch.late.lock().unwrap_or_else(|e| e.into_inner());
        ensure!(
            late.is_empty(),
            "after the lock was released the closed database did {} operations: {:?}",
            late.len(),
            &late[..late.len().min(6)]
        );
        Ok(())
    }

    fn file(&self, file: Box<dyn WriteFile>, path: &Path) -> Box<dyn WriteFile> {
        Box::new(GatedFile { file, path: path.to_owned(), watch: self.watch.clone() })
    }
}

impl Env for Gate {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.watch.pass("create", path);
        self.disk.create(path).map(|file| self.file(file, path))
    }

    fn create_log(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.watch.pass("create", path);
        self.disk.create_log(path).map(|file| self.file(file, path))
    }

    fn reuse_log(&self, old: &Path, path: &Path) -> Result<Option<Box<dyn WriteFile>>> {
        self.watch.pass("reuse", old);
        let file = self.disk.reuse_log(old, path)?;
        Ok(file.map(|file| self.file(file, path)))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.disk.open(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        self.disk.is_empty_dir(dir)
    }

    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        self.disk.canonical(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        self.disk.len(path)
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.watch.pass("create", dir);
        self.disk.create_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.watch.pass("rename to", to);
        self.disk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        self.watch.pass("link to", to);
        self.disk.link(from, to)
    }

    fn name_count(&self, path: &Path) -> Result<u64> {
        self.disk.name_count(path)
    }

    fn stamp(&self, path: &Path) -> Result<Option<FileStamp>> {
        self.disk.stamp(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.watch.pass("remove", path);
        self.disk.remove(path)
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        self.watch.pass("sync", path);
        self.disk.sync_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.watch.pass("sync", dir);
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let lock = self.disk.lock(path)?;
        if self.lock.get_or_init(|| path.to_owned()) != path {
            return Ok(lock);
        }
        Ok(Box::new(GatedLock { lock, watch: self.watch.clone() }))
    }

    fn lock_read_only(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.disk.lock_read_only(path)
    }

    fn lock_shared(&self, path: &Path, at: u64) -> Result<Box<dyn FileLock>> {
        self.disk.lock_shared(path, at)
    }

    fn first_shared_lock(&self, path: &Path) -> Result<Option<u64>> {
        self.disk.first_shared_lock(path)
    }

    fn free_space(&self, dir: &Path) -> Option<u64> {
        self.disk.free_space(dir)
    }

    fn allocate(&self, path: &Path, len: u64) -> Result<()> {
        self.watch.pass("allocate", path);
        self.disk.allocate(path, len)
    }

    fn max_open_files(&self) -> usize {
        self.disk.max_open_files()
    }

    fn max_file_len(&self) -> u64 {
        self.disk.max_file_len()
    }

    fn memory(&self) -> u64 {
        self.disk.memory()
    }

    fn monotonic(&self) -> Duration {
        self.disk.monotonic()
    }

    fn wall_clock(&self) -> Time {
        self.disk.wall_clock()
    }

    fn sleep(&self, time: Duration) {
        self.disk.sleep(time);
    }
}

struct GatedLock {
    lock: Box<dyn FileLock>,
    watch: Arc<Watch>,
}

impl FileLock for GatedLock {
    fn check_place(&self) -> Result<()> {
        self.lock.check_place()
    }
}

impl Drop for GatedLock {
    fn drop(&mut self) {
        // The real lock is released after this, so no operation of the next opening comes earlier.
        self.watch.over.store(true, Ordering::SeqCst);
    }
}

struct GatedFile {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    watch: Arc<Watch>,
}

impl WriteFile for GatedFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.watch.pass("append to", &self.path);
        self.file.append(data)
    }

    fn sync(&mut self) -> Result<()> {
        self.watch.pass("sync", &self.path);
        self.file.sync()
    }

    fn write_back(&mut self) -> Result<()> {
        self.watch.pass("sync", &self.path);
        self.file.write_back()
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.watch.pass("truncate", &self.path);
        self.file.truncate(len)
    }

    fn trim(&mut self) {
        self.watch.pass("trim", &self.path);
        self.file.trim();
    }

    fn front(&self, len: u64) -> FrontSync {
        let (sync, path, watch) = (self.file.front(len), self.path.clone(), self.watch.clone());
        Arc::new(move || {
            watch.pass("sync", &path);
            sync()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn::env::SimEnv;

    #[test]
    fn what_comes_after_the_lock_is_noted() {
        let gate = Gate::new(SimEnv::new(1), None);
        let lock = gate.lock(Path::new("/LOCK")).unwrap();
        let mut file = gate.create(Path::new("/a")).unwrap();
        file.append(b"early").unwrap();
        assert!(!gate.is_over());
        drop(lock);
        assert!(gate.is_over());
        gate.check().unwrap();
        file.append(b"late").unwrap();
        gate.remove(Path::new("/a")).unwrap();
        let finding = gate.check().unwrap_err().to_string();
        assert!(finding.contains("2 operations: [\"append to /a\", \"remove /a\"]"), "{finding}");
    }
}
