//! Estimates of what a range of keys has, without reading data.

use crate::version::{LiveTable, Version};
use base::Result;
use std::ops::AddAssign;
use table::Sample;

/// What a range of keys has, approximately.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Keys with a value. Keys that were put again count several times until these entries are merged; a delete takes one away, also where
    /// the key has no value.
    pub keys: f64,
    /// Bytes of tables, and of the values outside of them.
    pub bytes: f64,
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Estimate) {
        self.keys += other.keys;
        self.bytes += other.bytes;
    }
}

impl Version {
    /// What the tables have in `[from, to)`; `to` of `None` is the end of all keys. Tables that lie in the range as a whole count exactly.
    ///
    /// Cost: two searches in the index of each table at the ends of the range.
    pub fn estimate(&self, from: &[u8], to: Option<&[u8]>) -> Result<Estimate> {
        let mut sum = Estimate::default();
        let level0 = self.level0.iter().filter(|t| t.overlaps_range(from, to));
        for table in level0.chain(self.levels.iter().flat_map(|level| level.tables_in(from, to))) {
            sum += table.estimate(from, to)?;
        }
        Ok(sum)
    }
}

impl Version {
    /// Keys that divide the tables in `[from, to)` into pieces of about equal size, at least `wanted` for all tables together, if their indexes have so
    /// many: in no order. The bytes are those of tables, and of values outside of them.
    ///
    /// Cost: reads of index nodes, as many as have `wanted` entries, and of one in each table.
    pub fn samples(&self, from: &[u8], to: Option<&[u8]>, wanted: usize) -> Result<Vec<Sample>> {
        let level0 = self.level0.iter().filter(|t| t.overlaps_range(from, to));
        let tables: Vec<_> =
            level0.chain(self.levels.iter().flat_map(|level| level.tables_in(from, to))).collect();
        let estimates =
            tables.iter().map(|table| table.estimate(from, to)).collect::<Result<Vec<Estimate>>>()?;
        let all: f64 = estimates.iter().map(|estimate| estimate.bytes).sum();
        let mut samples = Vec::new();
        for (table, Estimate { bytes, .. }) in tables.iter().zip(estimates) {
            let wanted = (wanted as f64 * bytes / all.max(1.0)).ceil() as usize;
            let found = table.table.samples(from, to, wanted)?;
            // The pieces at the ends reach beyond the range, and values may lie outside of the table.
            let times = bytes / found.iter().map(|sample| sample.bytes).sum::<f64>().max(1.0);
            samples.extend(found.into_iter().map(|sample| Sample { bytes: sample.bytes * times, ..sample }));
        }
        Ok(samples)
    }
}

impl LiveTable {
    fn estimate(&self, from: &[u8], to: Option<&[u8]>) -> Result<Estimate> {
        let meta = &self.meta;
        let before = |key: &[u8]| match key {
            key if key <= &meta.smallest[..] => Ok(0.0),
            key if key > &meta.largest[..] => Ok(1.0),
            key => self.table.share_before(key),
        };
        let share = (to.map_or(Ok(1.0), before)? - before(from)?).max(0.0);
        // A tombstone takes itself and an older entry away.
        let keys = meta.entries as f64 - meta.shadowed as f64 - 2.0 * meta.tombstones as f64;
        let outside: u64 = meta.segments.iter().map(|segment| segment.bytes).sum();
        Ok(Estimate { keys: share * keys, bytes: share * (meta.file_size + outside) as f64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{TestStack, table_options};
    use base::{EntryKind, Trailer};
    use table::{Compression, TableFormat};

    #[test]
    fn parts_of_a_table_are_found_in_its_index() {
        for format in [TableFormat::BTree, TableFormat::SizeClass] {
            let options = table::TableOptions { format, ..table_options(256, Compression::None) };
            let entry = |i: u64| {
                // Keys of several size classes.
                let key = [&i.to_be_bytes()[..], &vec![b'k'; (i % 40) as usize]].concat();
                (key, Trailer::new(i + 1, EntryKind::Put), vec![7; 50])
            };
            let stack = TestStack::new(vec![(0..10_000).map(entry).collect()], &options, 1 << 20);
            let table = &stack.guard.tables[0];
            let all = table.estimate(b"", None).unwrap();
            assert_eq!(all, Estimate { keys: 10_000.0, bytes: table.meta.file_size as f64 });
            for (from, to) in [(0u64, 5000u64), (2500, 7500), (9000, 10_000), (100, 400), (4000, 4000)] {
                let found = table.estimate(&from.to_be_bytes(), Some(&to.to_be_bytes())).unwrap();
                let keys = (to - from) as f64;
                assert!((found.keys - keys).abs() < 30.0, "{format:?}: {from} to {to}: {found:?}");
                let bytes = all.bytes * keys / 10_000.0;
                assert!((found.bytes - bytes).abs() < 0.01 * all.bytes, "{format:?}: {found:?}, not {bytes}");
            }
            assert_eq!(table.estimate(&20_000u64.to_be_bytes(), None).unwrap().keys, 0.0, "{format:?}");
        }
    }
}
