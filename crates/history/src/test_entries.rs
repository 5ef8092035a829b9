//! Entries in memory, for tests of walks.

use crate::version_key::put_version_key;
use base::{Cursor, Result, Seq, Time, Trailer};

/// A cursor over entries in memory, which counts its seeks and steps.
#[derive(Clone)]
pub(crate) struct Entries {
    entries: Vec<(Vec<u8>, Trailer, Vec<u8>)>,
    at: Option<usize>,
    pub(crate) seeks: usize,
    pub(crate) steps: usize,
}

impl Entries {
    pub(crate) fn new(mut entries: Vec<(Vec<u8>, Trailer, Vec<u8>)>) -> Entries {
        entries.sort_by(|a, b| base::compare(&a.0, a.1, &b.0, b.1));
        Entries { entries, at: None, seeks: 0, steps: 0 }
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
        let target = Trailer::seek(seq);
        let before = |e: &(Vec<u8>, Trailer, Vec<u8>)| base::compare(&e.0, e.1, key, target).is_lt();
        self.to(Some(self.entries.partition_point(before)))
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
