//! The recycled log: the file of a log that is no longer needed, kept for a while to be overwritten by the next log. There is at most
//! one: with it a sequential fill creates a new file only when a flush is late, and a second one would double the number of dirty pages.
//!
//! The pages of a recently written log are in memory, most of them not on disk yet. Removing the log and creating another makes the
//! kernel free those pages, allocate new ones and new blocks, and write these out; overwriting the old log avoids all that
//! (`docs/adr/0011-recycled-logs.md`).
//!
//! ```text
//!   wal-000007.log --- the edit by which it is not needed is durable ---> wal-000007.spare
//!   wal-000007.spare --- the header of log 9 is in it ---> wal-000009.log
//! ```
//!
//! Until log 9 is established (`establish_log.rs` in the room `disk`), a power cut may leave the header of log 7, or half of one, under the
//! name of log 9. From the moment of its renaming a recycled log holds no needed data: an opening removes one that an earlier process left,
//! and so does any operation that finds the disk full.

use super::log_file::{log_file_name, parse_log_file_name};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use base::Result;
use base::planted::{Bug, planted};
use env::Env;
use record::SegmentWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum age of a recycled log: a database that needs a new log so rarely gains nothing from it, and gets the space back.
const PATIENCE: Duration = Duration::from_secs(5);

/// File name suffix of a recycled log, in place of `.log`.
const SUFFIX: &str = ".spare";

/// File name of log `number` after it was recycled.
fn recycled_file_name(number: u64) -> String {
    log_file_name(number).replace(".log", SUFFIX)
}

/// Whether a file name is that of a recycled log.
pub(crate) fn is_recycled_file_name(name: &str) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(|stem| parse_log_file_name(&format!("{stem}.log")).is_some())
}

struct RecycledLog {
    path: PathBuf,
    number: u64,
    len: u64,
    since: Duration,
}

/// The recycled log of a database. Its lock may be taken under any other one, and takes none.
pub(crate) struct RecycledLogs {
    env: Arc<dyn Env>,
    dir: PathBuf,
    /// Maximum length of a recycled log.
    longest: u64,
    kept: Mutex<Option<RecycledLog>>,
    /// Set when the system reports that recycling gains nothing here.
    useless: AtomicBool,
    /// Length of the newest log's file when it was recycled: the file may still have it. 0 when it was not recycled, or was truncated.
    taken: AtomicU64,
}

impl RecycledLogs {
    pub(crate) fn new(env: &Arc<dyn Env>, dir: &Path, longest: u64) -> RecycledLogs {
        let (kept, useless) = (Mutex::new(None), AtomicBool::new(false));
        RecycledLogs {
            env: env.clone(),
            dir: dir.to_owned(),
            longest,
            kept,
            useless,
            taken: AtomicU64::new(0),
        }
    }

    /// Recycles the file of a log of `len` bytes that is durably no longer needed, or removes it if it is unsuitable. Of the new and the
    /// present recycled log the longer one is kept.
    pub(crate) fn offer(&self, number: u64, len: u64) {
        let (path, name) = (self.dir.join(log_file_name(number)), self.dir.join(recycled_file_name(number)));
        let wanted =
            len <= self.longest.min(self.env.max_file_len()) && !self.useless.load(Ordering::Relaxed);
        // A file that was not truncated is longer than its log. One that has another name is a part of a copy of the database.
        let fits = wanted
            && self.env.len(&path).is_ok_and(|found| found == len)
            && (self.env.name_count(&path).is_ok_and(|names| names == 1) || planted(Bug::RecycleLinkedLog));
        if !fits || self.env.rename(&path, &name).is_err() {
            self.remove(&path);
            return;
        }
        let new = RecycledLog { path: name, number, len, since: self.env.monotonic() };
        // The longer one saves more in the next log.
        let surplus = {
            let mut kept = self.kept.lock();
            match kept.as_ref().is_some_and(|log| log.len > len) {
                true => Some(new),
                false => kept.replace(new),
            }
        };
        surplus.iter().for_each(|log| self.remove(&log.path));
    }

    /// Begins log `number` in the recycled file: writes its header, without a sync. Returns the writer and the present name of the file;
    /// `None` when there is no recycled log, or it cannot be used.
    pub(crate) fn begin(&self, path: &Path, number: u64, header: &[u8]) -> Option<(SegmentWriter, PathBuf)> {
        self.taken.store(0, Ordering::Relaxed);
        let log = self.kept.lock().take()?;
        let begun = SegmentWriter::create_over(&self.env, &log.path, log.number, path, number, header);
        if let Ok(None) = begun {
            self.useless.store(true, Ordering::Relaxed);
        }
        match begun {
            Ok(Some(writer)) => {
                self.taken.store(log.len, Ordering::Relaxed);
                Some((writer, log.path))
            }
            _ => {
                self.remove(&log.path);
                None
            }
        }
    }

    /// Removes the recycled log if it is too old.
    pub(crate) fn forget_old(&self) {
        let now = self.env.monotonic();
        self.forget(|log| now.saturating_sub(log.since) >= PATIENCE);
    }

    /// Length that the newest log's file may have from its recycling.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Records that the newest log's file was truncated behind its end.
    pub(crate) fn note_trimmed(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    /// Removes the recycled log if it is longer than `than`.
    pub(crate) fn forget_longer(&self, than: u64) {
        self.forget(|log| log.len > than);
    }

    /// Removes the recycled log, because its space is needed. Returns whether there was one.
    pub(crate) fn give_up(&self) -> bool {
        self.forget(|_| true)
    }

    fn forget(&self, which: impl FnOnce(&mut RecycledLog) -> bool) -> bool {
        let removed = self.kept.lock().take_if(which);
        removed.iter().for_each(|log| self.remove(&log.path));
        removed.is_some()
    }

    /// A file that is not removed here is removed by the next opening.
    fn remove(&self, path: &Path) {
        let _: Result<()> = self.env.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{SimEnv, WriteFile};

    const DIR: &str = "/db";

    fn recycled(sim: &Arc<SimEnv>) -> RecycledLogs {
        sim.create_dir(Path::new(DIR)).unwrap();
        let env: Arc<dyn Env> = sim.clone();
        RecycledLogs::new(&env, Path::new(DIR), 1000)
    }

    /// A log of this many bytes that is no longer needed.
    fn offer(sim: &SimEnv, recycled: &RecycledLogs, number: u64, len: usize) {
        let path = Path::new(DIR).join(log_file_name(number));
        sim.write_file(path, vec![1; len]);
        recycled.offer(number, len as u64);
    }

    fn names(sim: &SimEnv) -> Vec<String> {
        let names = sim.list_files().into_iter();
        names.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_longest_is_kept_and_only_one_that_has_nothing_else_in_it() {
        let sim = SimEnv::new(1);
        let recycled = recycled(&sim);
        for (number, len) in [(1, 100), (2, 1001), (3, 300), (4, 200)] {
            offer(&sim, &recycled, number, len);
        }
        // This file was not truncated.
        sim.write_file("/db/wal-000005.log", [1; 500]);
        recycled.offer(5, 499);
        assert_eq!(names(&sim), ["wal-000003.spare"]);
        assert!(names(&sim).iter().all(|name| is_recycled_file_name(name)));
        let (path, number) = (Path::new("/db/wal-000006.log"), 6);
        let (mut log, name) = recycled.begin(path, number, b"header").unwrap();
        assert!(name.ends_with("wal-000003.spare") && log.number() == number);
        log.sync().unwrap();
        assert_eq!(sim.read_file(&name).len(), 300);
        // The recycled log was removed by another program.
        offer(&sim, &recycled, 8, 100);
        sim.remove_file("/db/wal-000008.spare");
        assert!(recycled.begin(Path::new("/db/wal-000007.log"), 7, b"").is_none());
        assert!(!recycled.give_up());
    }

    #[test]
    fn one_with_another_name_is_not_overwritten() {
        let sim = SimEnv::new(1);
        let recycled = recycled(&sim);
        sim.create_dir(Path::new("/copy")).unwrap();
        sim.write_file("/db/wal-000001.log", [1; 100]);
        assert!(sim.link(Path::new("/db/wal-000001.log"), Path::new("/copy/wal-000001.log")).unwrap());
        recycled.offer(1, 100);
        assert!(!recycled.give_up());
        assert_eq!(sim.list_files(), [Path::new("/copy/wal-000001.log")]);
    }

    #[test]
    fn it_goes_when_nobody_takes_it_or_space_is_needed() {
        let sim = SimEnv::new(1);
        let recycled = recycled(&sim);
        offer(&sim, &recycled, 1, 100);
        sim.sleep(PATIENCE / 2);
        recycled.forget_old();
        assert_eq!(names(&sim), ["wal-000001.spare"]);
        sim.sleep(PATIENCE / 2);
        recycled.forget_old();
        assert!(names(&sim).is_empty());
        offer(&sim, &recycled, 2, 100);
        assert!(recycled.give_up() && !recycled.give_up() && names(&sim).is_empty());
    }

    /// An environment in which recycling gains nothing.
    struct Plain(Arc<SimEnv>);

    impl Env for Plain {
        fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
            self.0.create(path)
        }
        fn open(&self, path: &Path) -> Result<Arc<dyn env::ReadFile>> {
            self.0.open(path)
        }
        fn list(&self, dir: &Path) -> Result<Vec<String>> {
            self.0.list(dir)
        }
        fn exists(&self, path: &Path) -> Result<bool> {
            self.0.exists(path)
        }
        fn len(&self, path: &Path) -> Result<u64> {
            self.0.len(path)
        }
        fn create_dir(&self, dir: &Path) -> Result<()> {
            self.0.create_dir(dir)
        }
        fn rename(&self, from: &Path, to: &Path) -> Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&self, path: &Path) -> Result<()> {
            self.0.remove(path)
        }
        fn sync_file(&self, path: &Path) -> Result<()> {
            self.0.sync_file(path)
        }
        fn sync_dir(&self, dir: &Path) -> Result<()> {
            self.0.sync_dir(dir)
        }
        fn lock(&self, path: &Path) -> Result<Box<dyn env::FileLock>> {
            self.0.lock(path)
        }
        fn free_space(&self, dir: &Path) -> Option<u64> {
            self.0.free_space(dir)
        }
        fn allocate(&self, path: &Path, len: u64) -> Result<()> {
            self.0.allocate(path, len)
        }
        fn max_open_files(&self) -> usize {
            self.0.max_open_files()
        }
        fn monotonic(&self) -> Duration {
            self.0.monotonic()
        }
        fn wall_clock(&self) -> base::Time {
            self.0.wall_clock()
        }
        fn sleep(&self, time: Duration) {
            self.0.sleep(time);
        }
    }

    #[test]
    fn none_is_kept_where_it_gains_nothing() {
        let sim = SimEnv::new(1);
        sim.create_dir(Path::new(DIR)).unwrap();
        let env: Arc<dyn Env> = Arc::new(Plain(sim.clone()));
        let recycled = RecycledLogs::new(&env, Path::new(DIR), 1000);
        offer(&sim, &recycled, 1, 100);
        assert!(recycled.begin(Path::new("/db/wal-000003.log"), 3, b"").is_none());
        offer(&sim, &recycled, 2, 100);
        assert!(names(&sim).is_empty());
    }
}
