//! Sketches: estimate from a few bytes per table how many distinct keys several tables have together.
//!
//! A sketch keeps the smallest hashes of a table's keys ("k minimum values"). In the union of several sketches, all
//! values up to the smallest maximum of them are complete. Hashes are uniformly distributed, so the number of these
//! values gives the number of keys. With 32 values the error is about 18 % for one guard and averages out over many. A
//! sketch costs one comparison for each written key and 128 bytes of the manifest for each table.
//!
//! The use: how much space a merge would free. Without sketches, keys that are inserted for the first time could not be
//! told from keys that are overwritten, and merging the former frees nothing.

/// The number of hashes in a sketch.
const MAX_VALUES: usize = 32;

/// A table with fewer keys has no sketch, because merging it frees little, unless its values are elsewhere and large, or its keys have many versions.
const MIN_VALUES: usize = 8;

/// The smallest hashes of some keys, ascending and distinct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch(Vec<u32>);

impl Sketch {
    /// Adds a key by its hash ([`base::hash`]).
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let value = (hash >> 32) as u32;
        if self.0.len() < MAX_VALUES || self.0.last().is_some_and(|&last| value < last) {
            self.insert(value);
        }
    }

    #[cold]
    fn insert(&mut self, value: u32) {
        if let Err(at) = self.0.binary_search(&value) {
            self.0.insert(at, value);
            self.0.truncate(MAX_VALUES);
        }
    }

    /// The sketch, if there are enough keys for one. `few`: one is enough.
    pub fn finish(self, few: bool) -> Option<Sketch> {
        let enough = if few { 1 } else { MIN_VALUES };
        (self.0.len() >= enough).then_some(self)
    }

    /// The values, four bytes each.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.0.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// Decodes [`Sketch::encode`]; `None` if the bytes are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Sketch> {
        let (values, rest) = bytes.as_chunks::<4>();
        let values: Vec<u32> = values.iter().map(|value| u32::from_le_bytes(*value)).collect();
        let sound = rest.is_empty()
            && (1..=MAX_VALUES).contains(&values.len())
            && values.windows(2).all(|pair| pair[0] < pair[1]);
        sound.then_some(Sketch(values))
    }

    /// The maximal length of an encoded sketch, in bytes.
    pub(crate) const MAX_ENCODED_LEN: usize = 4 * MAX_VALUES;

    /// The approximate number of distinct keys in the tables of these sketches.
    pub(crate) fn distinct<'a>(sketches: impl Iterator<Item = &'a Sketch>) -> f64 {
        let mut values = Vec::new();
        let mut bound = None;
        for sketch in sketches {
            values.extend_from_slice(&sketch.0);
            if sketch.0.len() == MAX_VALUES {
                let last = sketch.0[MAX_VALUES - 1];
                bound = Some(bound.map_or(last, |bound: u32| bound.min(last)));
            }
        }
        values.sort_unstable();
        values.dedup();
        match bound {
            // All sketches are complete.
            None => values.len() as f64,
            Some(bound) => {
                let known = values.partition_point(|&value| value <= bound);
                (known.max(2) - 1) as f64 * (f64::from(u32::MAX) + 1.0) / f64::from(bound.max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::hash;

    fn of(keys: impl Iterator<Item = u32>) -> Sketch {
        let mut sketch = Sketch::default();
        keys.for_each(|key| sketch.add(hash(&key.to_le_bytes())));
        sketch
    }

    /// The mean of the estimates for many pairs of tables is near the true number, and no estimate is far off.
    #[test]
    fn the_distinct_keys_of_tables_that_share_some_are_estimated() {
        for (shared, alone) in [(0, 5000), (5000, 0), (2500, 2500), (4000, 1000)] {
            let mut sum = 0.0;
            for round in 0..200 {
                let base = round * 1_000_000;
                let a = of(base..base + shared + alone);
                let b = of((base..base + shared).chain(base + 500_000..base + 500_000 + alone));
                let estimate = Sketch::distinct([&a, &b].into_iter()) / f64::from(shared + 2 * alone);
                assert!((0.4..2.5).contains(&estimate), "{shared} {alone}: {estimate}");
                sum += estimate;
            }
            assert!((0.95..1.05).contains(&(sum / 200.0)), "{shared} {alone}: {}", sum / 200.0);
        }
    }

    #[test]
    fn few_keys_are_counted_and_repeated_ones_count_once() {
        let (a, b) = (of(0..20), of((10..25).chain(10..25)));
        assert_eq!(Sketch::distinct([&a, &b].into_iter()), 25.0);
        assert!(of(0..7).finish(false).is_none() && of(0..8).finish(false).is_some());
        assert!(of(0..0).finish(true).is_none() && of(0..1).finish(true).is_some());
    }

    #[test]
    fn sketches_survive_encoding_and_malformed_ones_are_refused() {
        for keys in [1, 2, 7, 31, 32, 1000] {
            let sketch = of(0..keys);
            let bytes = sketch.encode();
            assert_eq!(Sketch::decode(&bytes), Some(sketch));
            assert!(Sketch::decode(&bytes[1..]).is_none());
            let swapped: Vec<u8> = bytes.chunks(4).rev().flatten().copied().collect();
            assert!(keys == 1 || Sketch::decode(&swapped).is_none());
        }
        assert!(Sketch::decode(&[]).is_none() && Sketch::decode(&of(0..100).encode().repeat(2)).is_none());
    }
}
