//! The files of a database on disk, counted by kind.

use crate::failure::{Failure, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes and number of the files of a database, by kind (file name extension).
pub type Files = BTreeMap<String, (u64, u64)>;

/// Adds up the files in a database directory.
pub fn db_files(dir: &Path) -> Result<Files> {
    let wrong = |e| Failure::file("list", dir, &e);
    let mut files = Files::new();
    for entry in std::fs::read_dir(dir).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        // A compaction may remove files at the same time.
        let Ok(metadata) = entry.metadata() else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = match name.rsplit_once('.') {
            Some((_, extension)) => extension.to_string(),
            None => name.split('-').next().unwrap_or(&name).to_string(),
        };
        let sum = files.entry(kind).or_default();
        sum.0 += metadata.len();
        sum.1 += 1;
    }
    Ok(files)
}
