//! The directory for databases. It contains one database at a time.
//!
//! The program removes the content of this directory. Therefore it accepts only a directory that it created itself
//! and marked; any other directory that the user names stays unchanged. The mark is locked during a run, so two
//! runs cannot share a directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file that marks a directory of this program.
const MARK: &str = "CAIRN-BENCH";
/// Name of the database of the current engine.
const DATABASE: &str = "db";

/// The directory for databases. Dropping it removes the directory with its content.
pub struct Place {
    dir: PathBuf,
    _lock: File,
}

impl Place {
    /// Creates the directory, or accepts the one of an earlier run. The error says why the directory cannot be
    /// used.
    pub fn take(dir: &Path) -> Result<Place, String> {
        let wrong = |what: &str, e: io::Error| format!("{what} {}: {e}", dir.display());
        let fresh = match fs::read_dir(dir) {
            Ok(mut entries) => entries.next().is_none(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => true,
            Err(e) => return Err(wrong("read", e)),
        };
        let mark = dir.join(MARK);
        if fresh {
            fs::create_dir_all(dir).map_err(|e| wrong("make", e))?;
        } else if !mark.exists() {
            return Err(format!(
                "{} has files that this program did not create, and it would remove them: name another --dir",
                dir.display()
            ));
        }
        let mut file = File::options().create(true).append(true).open(&mark).map_err(|e| wrong("mark", e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(format!("another run uses {}", dir.display())),
            Err(TryLockError::Error(e)) => return Err(wrong("lock", e)),
        }
        if fresh {
            let text = "Created by cairn-bench, which removes this directory at the end of its run.\n";
            file.write_all(text.as_bytes()).map_err(|e| wrong("mark", e))?;
        }
        let place = Place { dir: dir.to_path_buf(), _lock: file };
        place.clear()?;
        Ok(place)
    }

    /// Path of the next database; does not exist.
    pub fn database(&self) -> PathBuf {
        self.dir.join(DATABASE)
    }

    /// Removes the database and waits until the file system has written all dirty data, so that one engine does not
    /// slow down the next.
    pub fn clear(&self) -> Result<(), String> {
        let database = self.database();
        match fs::remove_dir_all(&database) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(format!("remove {}: {e}", database.display()));
            }
            _ => {}
        }
        write_back(&self.dir).map_err(|e| format!("write back {}: {e}", self.dir.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let removed = self.clear().and_then(|()| {
            fs::remove_file(self.dir.join(MARK))
                .and_then(|()| fs::remove_dir(&self.dir))
                .map_err(|e| format!("remove {}: {e}", self.dir.display()))
        });
        if let Err(why) = removed {
            eprintln!("cairn-bench: {why}");
        }
    }
}

/// Waits until the file system of `dir` has written all dirty data.
#[cfg(target_os = "linux")]
fn write_back(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

#[cfg(not(target_os = "linux"))]
fn write_back(_dir: &Path) -> io::Result<()> {
    std::process::Command::new("sync").status().map(drop)
}

/// Free space of the file system of `dir`, or of its nearest existing parent, in bytes.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let here = |dir: &Path| if dir == Path::new("") { PathBuf::from(".") } else { dir.to_path_buf() };
    let stat = dir.ancestors().find_map(|dir| rustix::fs::statvfs(here(dir)).ok())?;
    Some(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_stay() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("thesis.txt"), "years").unwrap();
        let refused = Place::take(root.path()).err().unwrap();
        assert!(refused.contains("did not create"), "{refused}");
        assert!(root.path().join("thesis.txt").exists());
        assert!(Place::take(&root.path().join("thesis.txt")).is_err());
    }

    #[test]
    fn a_place_is_one_runs_and_goes_with_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        let place = Place::take(&dir).unwrap();
        assert!(Place::take(&dir).err().unwrap().contains("another run"));
        fs::create_dir(place.database()).unwrap();
        fs::write(place.database().join("1.tbl"), "x").unwrap();
        place.clear().unwrap();
        assert!(!place.database().exists());
        fs::create_dir(place.database()).unwrap();
        drop(place);
        assert!(!dir.exists() && root.path().join("a").exists());
    }

    #[test]
    fn what_a_killed_run_left_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("d");
        let place = Place::take(&dir).unwrap();
        fs::create_dir(place.database()).unwrap();
        std::mem::forget(place);
        // The lock of an ended process is released, but here it is still held, so a copy is used in place of the
        // directory.
        let copy = root.path().join("copy");
        fs::create_dir_all(copy.join(DATABASE)).unwrap();
        fs::copy(dir.join(MARK), copy.join(MARK)).unwrap();
        let place = Place::take(&copy).unwrap();
        assert!(!place.database().exists());
    }
}
