//! Writes the output tables of flushes and compactions.

use super::job::{JobContext, JobOutput};
use crate::version::Sketch;
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Slice, Time, Trailer};
use table::{TableMeta, TableOptions, TableTimes, TableWriter};

/// The number of entries, and their bytes, after which the rate limiter is called and cancellation is checked. With large values, many
/// bytes come before many entries.
const ENTRIES_PER_TICK: u32 = 1024;
const BYTES_PER_TICK: usize = 256 << 10;

/// The number of value segments after which the output of a compaction is cut: their sums must fit into the properties of a table and into an
/// edit. The versions of the last key may add more.
const MAX_SEGMENTS: usize = 4096;

/// Additional filter bits per key of tables above the bottom.
const ADDITIONAL_FILTER_BITS: u32 = 4;

/// The table options for a level. Above the bottom there are several tables, each much smaller than the data below.
/// Each is searched for keys that it does not have, and a false positive of its filter costs a read. So filter bits are
/// worth most and cost least there (Monkey, SIGMOD 2017, section 4).
pub(super) fn filter_options(options: &TableOptions, bottom: bool) -> TableOptions {
    let base = options.filter_bits_per_key;
    let more = if bottom || base == 0 { 0 } else { ADDITIONAL_FILTER_BITS };
    TableOptions { filter_bits_per_key: base + more, ..options.clone() }
}

/// Writes output tables one after the other.
pub(super) struct Output<'a> {
    pub(super) context: &'a JobContext<'a>,
    writer: Option<TableWriter>,
    sketch: Sketch,
    /// The times of the entries of the current table.
    times: Option<TableTimes>,
    /// Entries since the last tick, and the bytes of those that were written.
    entries: u32,
    bytes: usize,
    /// Bytes that the rate limiter knows of.
    reported: u64,
    /// What is finished.
    pub(super) done: JobOutput,
}

impl<'a> Output<'a> {
    /// Adds the finished tables to `done`.
    pub(super) fn new(context: &'a JobContext<'a>, done: JobOutput) -> Output<'a> {
        Output {
            context,
            writer: None,
            sketch: Sketch::default(),
            times: None,
            entries: 0,
            bytes: 0,
            reported: 0,
            done,
        }
    }

    /// Adds an entry to the current table. `bottom`: no older table overlaps its range.
    #[inline]
    pub(super) fn add(
        &mut self,
        bottom: bool,
        key: &[u8],
        hash: u64,
        trailer: Trailer,
        value: &[u8],
    ) -> Result<()> {
        self.sketch.add(hash);
        let times = match self.context.times {
            Some(times_of) => {
                Some(self.note_times(times_of(key, trailer, value).ok_or_else(|| no_version(key))?))
            }
            None => None,
        };
        self.bytes += key.len() + value.len();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let JobContext { env, dir, .. } = self.context;
                let options = filter_options(&self.context.options.table, bottom);
                let number = (self.context.next_number)();
                self.writer.insert(TableWriter::create(env, dir, number, &options)?)
            }
        };
        writer.add_timed(key, hash, trailer, value, times)
    }

    /// Notes the time of an entry and its end for the table. Returns both, the end not before the time.
    fn note_times(&mut self, (time, end): (Time, Time)) -> (Time, Time) {
        let end = end.max(time);
        let times = TableTimes::of_version(time, end, self.context.late);
        self.times = Some(self.times.map_or(times, |all| all.and(times)));
        (time, end)
    }

    /// The approximate size of the current table, in bytes.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.estimated_size())
    }

    /// Whether the entries of the current table refer to so many value segments that it should get no more.
    #[inline]
    pub(super) fn has_many_segments(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.segments() >= MAX_SEGMENTS)
    }

    /// Finishes the current table, if there is one, and syncs it.
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let mut meta = writer.finish()?;
            meta.cleared_seq = self.context.range_tombstones.max_seq();
            if let Some(&oldest) = self.context.snapshots.first()
                && !planted(Bug::FilteredDespiteSnapshot)
            {
                meta.cleared_seq = meta.cleared_seq.min(oldest);
            }
            meta.times = self.times.take();
            // Few keys may have many versions.
            let few = !meta.segments.is_empty() || self.context.options.table.has_times();
            let sketch = std::mem::take(&mut self.sketch).finish(few);
            self.done.sketches.extend(sketch.map(|sketch| (meta.number, sketch)));
            self.done.added.push(meta);
        }
        Ok(())
    }

    /// Called after each entry, written or not. Now and then it calls the rate limiter, and returns an error if the job was cancelled.
    #[inline]
    pub(super) fn tick(&mut self) -> Result<()> {
        self.entries += 1;
        if self.entries < ENTRIES_PER_TICK && self.bytes < BYTES_PER_TICK {
            return Ok(());
        }
        (self.entries, self.bytes) = (0, 0);
        self.context.check_cancelled()?;
        self.call_rate_limiter();
        Ok(())
    }

    #[cold]
    pub(super) fn call_rate_limiter(&mut self) {
        let unreported = (self.done.bytes() + self.len()).saturating_sub(self.reported);
        (self.context.rate_limiter)(unreported);
        self.reported += unreported;
    }

    /// Removes all files. Best effort: the next opening of the database removes files that remain.
    pub(super) fn abandon(&mut self) {
        if let Some(writer) = self.writer.take() {
            let _ = writer.abandon();
        }
        remove_tables(self.context, &self.done.added);
    }
}

#[cold]
fn no_version(key: &[u8]) -> Error {
    let what = format!("the entry {:?} is no version of a key", Slice::copy_from(key));
    Error::new(ErrorKind::Corruption, what)
}

/// Removes the tables of a failed job. Best effort: the next opening of the database removes files that remain.
pub(super) fn remove_tables(context: &JobContext<'_>, tables: &[TableMeta]) {
    for table in tables {
        let _ = context.env.remove(&context.dir.join(table::table_file_name(table.number)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_above_the_bottom_have_more_bits_where_there_are_filters() {
        let bits = |filter_bits_per_key, bottom| {
            let options = TableOptions { filter_bits_per_key, ..TableOptions::default() };
            filter_options(&options, bottom).filter_bits_per_key
        };
        assert_eq!((bits(10, true), bits(10, false)), (10, 14));
        assert_eq!((bits(0, true), bits(0, false)), (0, 0));
    }
}
