//! The report of a salvage.

use std::fmt;

/// The intact parts and the losses of a damaged database.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Every file of the damaged database.
    pub files: Vec<SalvagedFile>,
    /// The keyspaces of the new database.
    pub keyspaces: Vec<SalvagedKeyspace>,
    /// Certain and possible losses: empty when the new database holds everything that the old one held.
    pub losses: Vec<Loss>,
    /// Observations that are not losses.
    pub notes: Vec<String>,
}

/// One file of the damaged database.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SalvagedFile {
    /// File name.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of entries (table), records (log) or edits (manifest) read.
    pub read: u64,
    /// The result for this file, in a few words.
    pub outcome: String,
}

/// One keyspace of the new database.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SalvagedKeyspace {
    /// Its name in the damaged database, or a made-up one if that is lost.
    pub name: String,
    /// Entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// A part of the database that could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Loss {
    /// The file.
    pub file: String,
    /// Offset in the file, if known.
    pub offset: Option<u64>,
    /// Number of unreadable bytes; 0 if unknown.
    pub bytes: u64,
    /// Name of the keyspace, if known.
    pub keyspace: Option<String>,
    /// The smallest key that may be affected; `None` means no lower bound.
    pub from: Option<Vec<u8>>,
    /// The largest key that may be affected, inclusive; `None` means no upper bound.
    pub to: Option<Vec<u8>>,
    /// Whether keys in this range may show an older value, or be present although they were deleted.
    pub older: bool,
    /// What is wrong.
    pub what: String,
}

impl SalvageReport {
    /// Whether anything is lost, or may be.
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty()
    }
}

fn shown(key: &Option<Vec<u8>>, otherwise: &str) -> String {
    match key {
        Some(key) => format!("\"{}\"", key[..key.len().min(100)].escape_ascii()),
        None => otherwise.to_owned(),
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        if self.bytes > 0 {
            write!(f, ", {} bytes", self.bytes)?;
        }
        write!(f, ": {}", self.what)?;
        let keyspace = match &self.keyspace {
            Some(name) => format!("keyspace {name:?}"),
            None => "any keyspace".to_owned(),
        };
        write!(
            f,
            "; keys that may be missing: {keyspace}, from {} to {}",
            shown(&self.from, "the first"),
            shown(&self.to, "the last")
        )?;
        match self.older {
            true => write!(f, "; older versions of them may have come back"),
            false => Ok(()),
        }
    }
}

impl fmt::Display for SalvageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            writeln!(
                f,
                "{:<18} {:>12} bytes {:>10} read  {}",
                file.name, file.bytes, file.read, file.outcome
            )?;
        }
        for keyspace in &self.keyspaces {
            writeln!(
                f,
                "keyspace {:?}: {} entries, {} bytes of keys and values",
                keyspace.name, keyspace.entries, keyspace.bytes
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        for loss in &self.losses {
            writeln!(f, "lost: {loss}")?;
        }
        match self.is_complete() {
            true => writeln!(f, "nothing is lost"),
            false => Ok(()),
        }
    }
}
