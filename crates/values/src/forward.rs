//! [`Forward`]: from the places where values were first written to those to which a collection has copied them.
//!
//! A map of a segment with *n* live values takes about 4 *n* bytes of memory, and a lookup decodes at most [`STEP`] pairs.

use base::codec::{Reader, put_varint};

/// Number of pairs between two entries of the index.
const STEP: usize = 32;

/// The new places of the live values of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forward {
    /// Of every [`STEP`]th pair: old offset, new offset, and the position of the pairs behind it in `pairs`.
    index: Vec<(u64, u64, u32)>,
    /// The differences of old and new offsets from the pair before, as varints, without the pairs in the index.
    pairs: Vec<u8>,
    count: u64,
    last: (u64, u64),
}

impl Forward {
    /// Adds a value, with larger offsets than those added before.
    pub fn push(&mut self, old: u64, new: u64) {
        debug_assert!(self.count == 0 || (old > self.last.0 && new > self.last.1));
        match self.count as usize % STEP {
            0 => self.index.push((old, new, self.pairs.len() as u32)),
            _ => {
                put_varint(&mut self.pairs, old - self.last.0);
                put_varint(&mut self.pairs, new - self.last.1);
            }
        }
        self.count += 1;
        self.last = (old, new);
    }

    /// The number of values.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.index.capacity() * size_of::<(u64, u64, u32)>() + self.pairs.capacity()
    }

    /// The new offset of the value that was at `old`.
    pub fn get(&self, old: u64) -> Option<u64> {
        let at = self.index.partition_point(|(offset, ..)| *offset <= old).checked_sub(1)?;
        let (mut offset, mut new, start) = self.index[at];
        let mut reader = Reader::new(&self.pairs[start as usize..]);
        for _ in 1..STEP {
            if offset >= old {
                break;
            }
            // Behind the last pair, or at the next entry of the index, which is larger than `old`.
            let (Some(step), Some(new_step)) = (reader.varint(), reader.varint()) else { break };
            (offset, new) = (offset + step, new + new_step);
        }
        (offset == old).then_some(new)
    }

    /// Appends the encoded map: the number of values, then the differences of old and new offsets, as varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        let mut before = (0, 0);
        for (i, &(old, new, start)) in self.index.iter().enumerate() {
            put_varint(out, old - before.0);
            put_varint(out, new - before.1);
            let end = self.index.get(i + 1).map_or(self.pairs.len(), |next| next.2 as usize);
            out.extend_from_slice(&self.pairs[start as usize..end]);
            before = self.pairs_end(i, (old, new));
        }
    }

    /// The last pair of entry `i` of the index, which begins with `pair`.
    fn pairs_end(&self, i: usize, mut pair: (u64, u64)) -> (u64, u64) {
        let start = self.index[i].2 as usize;
        let end = self.index.get(i + 1).map_or(self.pairs.len(), |next| next.2 as usize);
        let mut reader = Reader::new(&self.pairs[start..end]);
        while let (Some(old), Some(new)) = (reader.varint(), reader.varint()) {
            pair = (pair.0 + old, pair.1 + new);
        }
        pair
    }

    /// Decodes a map from the front of `reader`; `None` if it is malformed.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Forward> {
        let count = reader.varint()?;
        let (mut map, mut at) = (Forward::default(), (0u64, 0u64));
        for i in 0..count {
            let (old, new) = (reader.varint()?, reader.varint()?);
            // The first value may be anywhere; two values are never at the same place.
            if i > 0 && (old == 0 || new == 0) {
                return None;
            }
            at = (at.0.checked_add(old)?, at.1.checked_add(new)?);
            map.push(at.0, at.1);
        }
        Some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::Rng;

    #[test]
    fn values_are_found_where_they_are_now_and_others_are_not() {
        let mut rng = Rng::new(3);
        for count in [0, 1, 2, STEP, STEP + 1, 5 * STEP - 1, 10_000] {
            let (mut map, mut pairs, mut at) =
                (Forward::default(), Vec::new(), (rng.below(100), rng.below(100)));
            for _ in 0..count {
                map.push(at.0, at.1);
                pairs.push(at);
                at = (at.0 + 2 + rng.below(5000), at.1 + 1 + rng.below(3000));
            }
            for &(old, new) in &pairs {
                assert_eq!((map.get(old), map.get(old + 1)), (Some(new), None));
            }
            assert_eq!((map.get(at.0), map.len()), (None, count as u64));
            let mut bytes = Vec::new();
            map.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            let decoded = Forward::decode(&mut reader).unwrap();
            assert!(reader.is_empty());
            assert!(pairs.iter().all(|&(old, new)| decoded.get(old) == Some(new)));
            assert!(
                count < 10 || map.pairs.len() + 20 * map.index.len() < 6 * count,
                "{} bytes",
                map.pairs.len()
            );
            for cut in (0..bytes.len()).step_by(1 + bytes.len() / 100) {
                assert!(Forward::decode(&mut Reader::new(&bytes[..cut])).is_none(), "cut at {cut}");
            }
        }
    }
}
