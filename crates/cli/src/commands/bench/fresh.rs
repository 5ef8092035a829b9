//! Provides the empty directory that a fill starts with.
//!
//! A directory is emptied only if an earlier `bench` created the database in it, marked by a file called [`MARK`],
//! and if it contains no other files. Any other directory that the user names stays unchanged.

use crate::failure::{Failure, Result};
use cairn::env::RealEnv;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Marks a database made by `bench`. Opening a database ignores unknown files.
const MARK: &str = "BENCH";

/// The lock file. It stays when the directory is emptied.
const LOCK: &str = "LOCK";

/// Makes `dir` an empty directory with the mark.
pub fn empty(dir: &Path) -> Result<()> {
    let wrong = |e| Failure::file("empty", dir, &e);
    let files = match list(dir) {
        Ok(files) => files,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(wrong(e)),
    };
    if let Some(foreign) = files.iter().find(|file| !file.ours) {
        return Err(refuse(dir, &format!("it holds {:?}, which is not part of a database", foreign.name())));
    }
    let marked = files.iter().any(|file| file.name() == MARK);
    if files.iter().any(|file| file.name() != LOCK) && !marked {
        return Err(refuse(dir, "it holds a database that bench did not make"));
    }
    let env = RealEnv::new();
    env.create_dir(dir)?;
    // The lock proves that no process has the database open, and prevents opens while its files are removed.
    let _lock = env.lock(&dir.join(LOCK))?;
    fs::write(dir.join(MARK), "Made by `cairn bench`, which removes it when it fills it anew.\n")
        .map_err(wrong)?;
    files.iter().filter(|file| !file.stays()).try_for_each(|file| fs::remove_file(&file.path)).map_err(wrong)
}

fn refuse(dir: &Path, why: &str) -> Failure {
    Failure::usage(format!(
        "a fill starts with an empty database, but bench must not empty {}: {why}. Name another directory with --db, \
         or fill the existing database with --use-existing",
        dir.display()
    ))
}

/// Whether the directory contains a database.
pub fn holds_database(dir: &Path) -> bool {
    list(dir).is_ok_and(|files| files.iter().any(|file| file.name().starts_with("manifest-")))
}

/// An entry of the directory.
struct Entry {
    path: PathBuf,
    /// Whether this is a file with a name that a database or `bench` uses.
    ours: bool,
}

impl Entry {
    fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    fn stays(&self) -> bool {
        matches!(self.name(), LOCK | MARK)
    }
}

fn list(dir: &Path) -> io::Result<Vec<Entry>> {
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        let ours = entry.file_type()?.is_file() && entry.file_name().to_str().is_some_and(is_our_name);
        Ok(Entry { path: entry.path(), ours })
    };
    fs::read_dir(dir)?.map(entry).collect()
}

/// Whether a database or `bench` uses this file name (`docs/format/`).
fn is_our_name(name: &str) -> bool {
    let manifest = name.strip_suffix(".tmp").unwrap_or(name).strip_prefix("manifest-");
    let log = name.strip_prefix("wal-");
    let log = log.and_then(|rest| rest.strip_suffix(".log").or(rest.strip_suffix(".spare")));
    let number = manifest.or(log).or(name.strip_suffix(".tbl"));
    let is_number = |digits: &str| digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    matches!(name, LOCK | MARK | "RESERVE") || number.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_database() {
        for ours in [
            "LOCK",
            "BENCH",
            "RESERVE",
            "manifest-000001",
            "manifest-000012.tmp",
            "wal-000001.log",
            "wal-000001.spare",
            "1234567.tbl",
        ] {
            assert!(is_our_name(ours), "{ours}");
        }
        for foreign in
            ["", "lock", "manifest-", "manifest-1", "manifest-00000x", "wal-000001", "000001.tbl.bak"]
        {
            assert!(!is_our_name(foreign), "{foreign}");
        }
    }
}
