//! Sorts entries with bounded memory: what does not fit is sorted in parts, the *runs*, which are written as tables and merged.
//!
//! ```text
//!   add --- buffer ---(full)--- run 1, run 2, ...      sorted, of entries with one key the last
//!                 \                   |
//!                  finish ------- merge ----- visit    of entries with one key that of the last run
//! ```
//!
//! Sixteen runs are merged into one of the next *tier*, so few are open at a time, and a byte is written once for each tier.
//!
//! Runs are files of the directory that no manifest names, as tables are that a compaction is writing: if the process ends, the next opening
//! removes them.

use crate::state::DbInner;
use base::{Cursor, EntryKind, Error, ErrorKind, Result, Trailer, head, shared_prefix};
use table::{Compression, ScanCursor, TableFormat, TableMeta, TableOptions, TableWriter};
use tree::MergeCursor;

/// Bytes of the buffer that an entry takes beside key and value: its place.
const OVERHEAD: usize = size_of::<Place>();

/// Each run is read once, as a whole.
const BLOCK_SIZE: usize = 64 << 10;

/// The number of runs of one tier that are merged into one of the next.
const RUNS_PER_TIER: usize = 16;

/// Where an entry is in the buffer.
struct Place {
    /// The first bytes of the key behind what all keys begin with, which decide most comparisons. Set before they are sorted.
    head: u64,
    start: usize,
    key_len: u32,
    stored_len: u32,
    kind: EntryKind,
}

/// Sorts entries.
pub(super) struct Sorter {
    limit: usize,
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// Oldest first, so that tiers do not grow.
    runs: Vec<Run>,
    /// The number of runs that were sorted so far: the sequence number of the entries in the latest. Merges keep it.
    sorted: u64,
    /// Bytes of all runs, those that were merged included.
    run_bytes: u64,
}

struct Run {
    table: TableMeta,
    tier: u32,
}

impl Sorter {
    /// A sorter that holds about `limit` bytes in memory.
    pub(super) fn new(limit: usize) -> Sorter {
        Sorter { limit, bytes: Vec::new(), places: Vec::new(), runs: Vec::new(), sorted: 0, run_bytes: 0 }
    }

    /// Adds an entry. `stored`: the value, and what is behind it.
    pub(super) fn add(&mut self, db: &DbInner, key: &[u8], kind: EntryKind, stored: &[u8]) -> Result<()> {
        let more = key.len() + stored.len() + OVERHEAD;
        if !self.places.is_empty() && self.bytes.len() + self.places.len() * OVERHEAD + more > self.limit {
            self.write_run(db)?;
        }
        self.bytes.try_reserve(more).and_then(|()| self.places.try_reserve(1)).map_err(|_| no_memory())?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(stored);
        let (key_len, stored_len) = (key.len() as u32, stored.len() as u32);
        self.places.push(Place { head: 0, start, key_len, stored_len, kind });
        Ok(())
    }

    /// Sorts the buffer, passes the last entry of each key to `visit`, and empties the buffer.
    fn drain(&mut self, mut visit: impl FnMut(&[u8], EntryKind, &[u8]) -> Result<()>) -> Result<()> {
        let bytes = &self.bytes;
        let key = |place: &Place| &bytes[place.start..][..place.key_len as usize];
        let Some(first) = self.places.first().map(key) else { return Ok(()) };
        let shared = self.places.iter().map(|place| shared_prefix(first, key(place))).min().unwrap_or(0);
        self.places.iter_mut().for_each(|place| place.head = head(&key(place)[shared..]));
        // Of equal keys the last comes first. An entry without a byte has the start of the next one.
        let place_of = |place: &Place| (place.start, place.stored_len);
        self.places.sort_unstable_by(|a, b| {
            (a.head.cmp(&b.head)).then_with(|| key(a).cmp(key(b))).then_with(|| place_of(b).cmp(&place_of(a)))
        });
        let mut before: Option<&[u8]> = None;
        for place in &self.places {
            let key = key(place);
            if before != Some(key) {
                let stored = place.start + place.key_len as usize;
                visit(key, place.kind, &bytes[stored..stored + place.stored_len as usize])?;
            }
            before = Some(key);
        }
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }

    /// Writes a run, and merges the last ones if there are enough of their tier.
    fn write_run(&mut self, db: &DbInner) -> Result<()> {
        self.sorted += 1;
        let seq = self.sorted;
        let table = write_table(db, |writer| {
            self.drain(|key, kind, stored| writer.add(key, Trailer::new(seq, kind), stored))
        })?;
        self.run_bytes += table.file_size;
        self.runs.push(Run { table, tier: 0 });
        loop {
            let tier = self.runs.last().map_or(0, |run| run.tier);
            let first = self.runs.partition_point(|run| run.tier > tier);
            if self.runs.len() - first < RUNS_PER_TIER {
                return Ok(());
            }
            let table = write_table(db, |writer| {
                merge(db, &self.runs[first..], |key, trailer, stored| writer.add(key, trailer, stored))
            })?;
            self.run_bytes += table.file_size;
            let merged: Vec<TableMeta> = self.runs.drain(first..).map(|run| run.table).collect();
            self.runs.push(Run { table, tier: tier + 1 });
            db.discard(&merged);
        }
    }

    /// Passes all entries to `visit`, in the order of their keys. The runs stay.
    pub(super) fn finish(
        &mut self,
        db: &DbInner,
        mut visit: impl FnMut(&[u8], EntryKind, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.runs.is_empty() {
            return self.drain(visit);
        }
        if !self.places.is_empty() {
            self.write_run(db)?;
        }
        (self.bytes, self.places) = (Vec::new(), Vec::new());
        merge(db, &self.runs, |key, trailer, stored| {
            let kind = EntryKind::from_code(trailer.kind_code());
            visit(key, kind.expect("the run was written here, and verified"), stored)
        })
    }

    /// Bytes of all runs, which were written and read once each.
    pub(super) fn run_bytes(&self) -> u64 {
        self.run_bytes
    }

    /// Removes the runs. The caller makes a call that closing waits for.
    pub(super) fn abandon(self, db: &DbInner) {
        self.runs.into_iter().for_each(|run| db.discard(&[run.table]));
    }
}

/// Writes a table of a run. Its entries are those that `fill` adds.
fn write_table(db: &DbInner, fill: impl FnOnce(&mut TableWriter) -> Result<()>) -> Result<TableMeta> {
    let options = TableOptions {
        format: TableFormat::BTree,
        block_size: BLOCK_SIZE,
        compression: Compression::None,
        filter_bits_per_key: 0,
        owner: None,
    };
    let mut writer = TableWriter::create(&db.env, &db.dir, db.new_number(), &options)?;
    match fill(&mut writer) {
        // No one reads it after a crash.
        Ok(()) => writer.finish_unsynced().map(|(table, _)| table),
        Err(error) => {
            let _ = writer.abandon();
            Err(error)
        }
    }
}

/// Passes the newest entry of each key in `runs` to `visit`, in the order of the keys.
fn merge(
    db: &DbInner,
    runs: &[Run],
    mut visit: impl FnMut(&[u8], Trailer, &[u8]) -> Result<()>,
) -> Result<()> {
    let scan = |run: &Run| Ok(db.tables.cache.open(&run.table)?.scan());
    let mut merged = MergeCursor::new(runs.iter().map(scan).collect::<Result<Vec<ScanCursor>>>()?, 0);
    merged.seek_to_first()?;
    let mut before: Option<Vec<u8>> = None;
    while merged.valid() {
        db.status.check_running()?;
        if before.as_deref() != Some(merged.key()) {
            visit(merged.key(), merged.trailer(), merged.value())?;
            let before = before.get_or_insert_default();
            before.clear();
            before.extend_from_slice(merged.key());
        }
        merged.next()?;
    }
    Ok(())
}

fn no_memory() -> Error {
    Error::new(ErrorKind::NoMemory, "there is no memory for sorting the entries of a bulk load")
}
