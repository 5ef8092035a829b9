//! What checkpoints and backups report.

use base::{Seq, Time};
use std::path::PathBuf;

/// Progress of a checkpoint, a backup, or a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// Bytes of files that are done: linked, copied, or found to be there.
    pub bytes_done: u64,
    /// Bytes of all files.
    pub bytes_total: u64,
    /// The file at hand.
    pub file: String,
}

/// What a [checkpoint](crate::Database::checkpoint) has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CheckpointReport {
    /// The newest sequence number in it.
    pub seq: Seq,
    /// Files beside the manifest.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were copied: those of all files where the file system has no hard links, or the directory is on another one; and those of the logs that
    /// an opening replays, if the database was opened for reading only.
    pub copied_bytes: u64,
}

/// How to make a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupOptions {
    /// How many generations to keep, the new one included: older ones are removed once it is whole. `None` keeps all.
    pub keep: Option<usize>,
    /// How many bytes to read in a second, at most; 0 is no limit. Each file that is copied is read twice, so new files of so many bytes take two seconds.
    pub rate: u64,
}

impl BackupOptions {
    /// How many generations to keep, or `None` for all: see [`BackupOptions::keep`](#structfield.keep).
    #[must_use]
    pub fn keep(self, generations: impl Into<Option<usize>>) -> BackupOptions {
        BackupOptions { keep: generations.into(), ..self }
    }

    /// How many bytes to read in a second, at most: see [`BackupOptions::rate`](#structfield.rate).
    #[must_use]
    pub fn rate(self, bytes: u64) -> BackupOptions {
        BackupOptions { rate: bytes, ..self }
    }
}

/// A generation of a backup: what the database had at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupGeneration {
    /// Its number, from 1 on. Later ones have larger numbers.
    pub number: u64,
    /// When it was made.
    pub time: Time,
    /// The newest sequence number in it.
    pub seq: Seq,
    /// The directory of the database.
    pub source: PathBuf,
    /// Its files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of them that were copied for it, because no earlier generation had them.
    pub new_bytes: u64,
}

/// Damage to a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BackupProblem {
    /// The file, below the directory of the backups.
    pub file: String,
    /// What is wrong with it.
    pub what: String,
    /// The generations that need it, ascending.
    pub generations: Vec<u64>,
}
