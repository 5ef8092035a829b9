//! Keyspaces without order: each hint file is read, and each entry that it names is compared with the one in its file.

use crate::types::CheckReport;
use crate::wal::{Placed, read_batches};
use base::{EntryKind, Error, ErrorKind, Result, Seq, hash};
use env::Env;
use hashlog::{Hint, HintFile, HintReader, hint_file_name};
use record::{ChunkPlace, SegmentKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use values::{SegmentFile, Segments};

/// The keyspace whose hint files are checked, and where its entries are.
pub(super) struct HashLogCheck<'a> {
    pub env: &'a Arc<dyn Env>,
    pub segments: &'a Segments,
    pub keyspace: u64,
}

/// What a hint file says of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    at: ChunkPlace,
    seq: Seq,
    is_delete: bool,
    hash: u64,
}

impl HashLogCheck<'_> {
    /// Checks a hint file and the entries that it names. `step` is called with the bytes that were read; its error ends the check.
    pub(super) fn check(
        &self,
        hints: &HintFile,
        report: &mut CheckReport,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let reader = HintReader { env: self.env.clone(), dir: self.segments.dir().to_owned() };
        let mut named: BTreeMap<SegmentFile, Vec<Named>> = BTreeMap::new();
        let read = reader.read(hints, &mut |hint: Hint<'_>| {
            step(hint.key.len() as u64)?;
            let Hint { file, at, seq, is_delete, key } = hint;
            named.entry(file).or_default().push(Named { at, seq, is_delete, hash: hash(key) });
            Ok(())
        });
        match read {
            Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
            Err(e) => report.error(&hint_file_name(hints.number), &e),
            Ok(()) => {}
        }
        for (file, mut named) in named {
            named.sort_unstable();
            match self.compare(file, &named, step) {
                Err(e) if e.kind() == ErrorKind::Closed => return Err(e),
                Err(e) => report.error(&self.segments.file_name(file), &e),
                Ok(()) => report.entries += named.len() as u64,
            }
        }
        report.bytes += hints.len;
        Ok(())
    }

    /// Reads a file from front to back, and compares its entries with those that are named.
    fn compare(
        &self,
        file: SegmentFile,
        named: &[Named],
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let path = self.segments.dir().join(self.segments.file_name(file));
        let (kind, number) = match file {
            SegmentFile::Log(number) => (SegmentKind::Wal, number),
            SegmentFile::Values(number) => (SegmentKind::Values, number),
        };
        if let SegmentFile::Values(number) = file
            && let Some(described) = self.segments.len_of_entries(number)
        {
            let len = self.env.len(&path)?;
            if len != described {
                let what = format!("the file has {len} bytes instead of {described}");
                return Err(Error::corruption(&path, len.min(described), what));
            }
        }
        let (mut left, mut stepped, mut wrong) = (named.iter().peekable(), Ok(()), None);
        let mut visit = |placed: Placed<'_>| {
            stepped = step((placed.entry.key.len() + placed.entry.value.len()) as u64);
            if stepped.is_ok()
                && let Some(named) = left.next_if(|named| named.at == placed.at)
            {
                let entry = &placed.entry;
                let (seq, is_delete, hash) = (placed.seq, entry.kind == EntryKind::Delete, hash(entry.key));
                let found = Named { at: placed.at, seq, is_delete, hash };
                wrong = (found != *named || entry.keyspace != self.keyspace).then_some(placed.at.chunk);
            }
            stepped.is_ok() && wrong.is_none()
        };
        let read = read_batches(self.env, &path, kind, number, &mut visit);
        stepped?;
        read?;
        match wrong.or_else(|| left.next().map(|named| named.at.chunk)) {
            None => Ok(()),
            Some(offset) => {
                Err(Error::corruption(&path, offset, "the entry that a hint file names is not here"))
            }
        }
    }
}
