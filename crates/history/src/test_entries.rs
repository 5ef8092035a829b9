//! Entries in memory, for tests of walks.

use crate::version_key::put_version_key;
use base::{Cursor, Result, Seq, Time, Trailer};

type Entry = (Vec<u8>, Trailer, Vec<u8>);

/// A cursor over entries in memory, which counts its seeks and steps.
#[derive(Clone)]
pub(crate) struct Entries {
    entries: Vec<Entry>,
    at: Option<usize>,
    /// Inserted right after the next seek, as by another thread.
    pub(crate) arrives: Option<Entry>,
    pub(crate) seeks: usize,
    pub(crate) steps: usize,
}

impl Entries {
    pub(crate) fn new(mut entries: Vec<Entry>) -> Entries {
        entries.sort_by(|a, b| base::compare(&a.0, a.1, &b.0, b.1));
        Entries { entries, at: None, arrives: None, seeks: 0, steps: 0 }
    }

    /// The index of the first entry at or after (`key`, `target`).
    fn first(&self, key: &[u8], target: Trailer) -> usize {
        self.entries.partition_point(|e| base::compare(&e.0, e.1, key, target).is_lt())
    }

    fn to(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.filter(|at| *at < self.entries.len());
        Ok(())
    }
}

impl Cursor for Entries {
    fn seek_to_first(&mut self) -> Result<()> {
        self.to(Some(0))
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.to(self.entries.len().checked_sub(1))
    }
    fn seek(&mut self, key: &[u8], seq: Seq) -> Result<()> {
        self.seeks += 1;
        self.to(Some(self.first(key, Trailer::seek(seq))))?;
        if let Some(entry) = self.arrives.take() {
            let index = self.first(&entry.0, entry.1);
            self.entries.insert(index, entry);
            self.at = self.at.map(|at| if at >= index { at + 1 } else { at });
        }
        Ok(())
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.to(self.entries.partition_point(|e| &e.0[..] < key).checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.steps += 1;
        self.to(self.at.map(|at| at + 1))
    }
    fn prev(&mut self) -> Result<()> {
        self.to(self.at.and_then(|at| at.checked_sub(1)))
    }
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.entries[self.at.unwrap()].0
    }
    fn trailer(&self) -> Trailer {
        self.entries[self.at.unwrap()].1
    }
    fn value(&self) -> &[u8] {
        &self.entries[self.at.unwrap()].2
    }
}

pub(crate) fn version_key(key: &[u8], micros: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_version_key(&mut out, key, Time::from_micros(micros));
    out
}
