//! Keys and values that are difficult for an ordered store: shared prefixes, close neighbours, empty ones, 0x00 and
//! 0xff bytes, and a few of maximum length.

use crate::random::{Draw, Rng};
use cairn::limits::MAX_KEY_LEN;
use cairn::{Batch, Keyspace, Merge, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A value in a model. Shared, because it is in several versions of a state.
pub type Value = Arc<[u8]>;

/// The sizes of the data of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of distinct keys. Small, so that overwrites and deletes hit existing keys.
    pub keys: usize,
    /// Whether some keys have the maximum length.
    pub huge_keys: bool,
    /// Maximum length of a normal value, in bytes.
    pub value_bytes_max: usize,
    /// One value in this many is longer than 1 MiB; 0 for none.
    pub huge_value_every: u64,
}

/// Pairs of keys for which the index of a keyspace without order has the same part of their hashes: a test of that index checks it.
const SAME_TAGS: [[u32; 2]; 3] = [[85085, 89441], [25241, 91826], [64679, 92511]];

/// The keys of a run.
pub struct Keys {
    pool: Vec<Vec<u8>>,
}

impl Keys {
    /// Draws the pool.
    pub fn new(rng: &mut Rng, sizes: Sizes) -> Keys {
        let mut keys = BTreeSet::from([Vec::new(), vec![0], vec![0xff], vec![0xff; 9], vec![0; 8]]);
        keys.extend(SAME_TAGS.iter().flatten().map(|number| format!("same tag/{number}").into_bytes()));
        if sizes.huge_keys {
            // Equal except for the last byte: the worst case for prefix comparison.
            let mut long = vec![b'k'; MAX_KEY_LEN];
            keys.insert(long.clone());
            long[MAX_KEY_LEN - 1] = b'l';
            keys.insert(long[..MAX_KEY_LEN - 1].to_vec());
            keys.insert(long);
        }
        while keys.len() < sizes.keys.max(8) {
            let key = match rng.weighted(&[30, 25, 15, 20, 5]) {
                0 => format!("user/{:06}/name", rng.below(sizes.keys as u64 * 2)).into_bytes(),
                1 => alphabet(rng, 1, 7),
                2 => random_bytes(rng, 8),
                3 => neighbour(rng, &keys),
                _ => [b"a long prefix that many keys share/".repeat(4), alphabet(rng, 1, 100)].concat(),
            };
            keys.insert(key);
        }
        let mut pool: Vec<_> = keys.into_iter().collect();
        rng.shuffle(&mut pool);
        Keys { pool }
    }

    /// A key of the pool. Half of the draws come from an eighth of it.
    pub fn draw(&self, rng: &mut Rng) -> &[u8] {
        let span = if rng.chance(1, 2) { self.pool.len().div_ceil(8) } else { self.pool.len() };
        let key = &self.pool[rng.below(span as u64) as usize];
        // Long keys test corner cases. Draw them rarely, so that they do not fill the log.
        if key.len() > 1024 && rng.chance(3, 4) { &self.pool[0] } else { key }
    }

    /// A key to look up: usually one of the pool, sometimes a close neighbour.
    pub fn probe(&self, rng: &mut Rng) -> Vec<u8> {
        let key = self.draw(rng).to_vec();
        match rng.below(8) {
            0 => near(rng, key),
            1 => alphabet(rng, 0, 4),
            _ => key,
        }
    }

    /// A prefix to scan: the start of a key of the pool.
    pub fn prefix(&self, rng: &mut Rng) -> Vec<u8> {
        let key = self.draw(rng);
        let len = rng.between(0, key.len().min(12));
        key[..len].to_vec()
    }
}

fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Bytes from a small alphabet that includes both extremes.
fn alphabet(rng: &mut Rng, low: usize, high: usize) -> Vec<u8> {
    let len = rng.between(low, high);
    (0..len).map(|_| *rng.pick(&[0x00, 0x01, b'a', b'b', 0x7f, 0x80, 0xfe, 0xff])).collect()
}

fn neighbour(rng: &mut Rng, keys: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let index = rng.below(keys.len().min(64) as u64) as usize;
    let key = keys.iter().nth(index).cloned().unwrap_or_default();
    if key.len() > 1024 { alphabet(rng, 0, 3) } else { near(rng, key) }
}

/// Changes `key` as little as possible.
fn near(rng: &mut Rng, mut key: Vec<u8>) -> Vec<u8> {
    match rng.below(5) {
        0 => key.push(0),
        1 => key.push(0xff),
        2 => {
            key.pop();
        }
        3 => {
            if let Some(last) = key.last_mut() {
                *last = last.wrapping_add(1);
            }
        }
        _ => {
            if let Some(last) = key.last_mut() {
                *last = last.wrapping_sub(1);
            }
        }
    }
    key.truncate(MAX_KEY_LEN);
    key
}

/// A value of random length, usually small. Values of eight bytes or more are distinct, which reveals stale ones.
pub fn value(rng: &mut Rng, sizes: Sizes) -> Value {
    let most = sizes.value_bytes_max;
    let len = match rng.weighted(&[4, 50, 30, 12, 3, 1]) {
        0 => 0,
        1 => rng.between(1, 24),
        2 => rng.between(16, 200),
        3 => rng.between(200, 2000),
        4 => rng.between(2000, 20_000),
        _ => most,
    };
    let mut len = len.min(most);
    if sizes.huge_value_every != 0 && rng.chance(1, sizes.huge_value_every) {
        len = rng.between(1 << 20, 3 << 20);
    }
    let mut bytes = vec![b'.'; len];
    if rng.chance(1, 2) {
        rng.fill(&mut bytes);
    } else {
        let unique = rng.next_u64().to_le_bytes();
        let unique_len = len.min(8);
        bytes[..unique_len].copy_from_slice(&unique[..unique_len]);
    }
    bytes.into()
}

/// When an entry with this value expires, in a suite in which no time passes: for some values in a far future, otherwise never.
pub fn far_expiry(keyspace: &Keyspace, value: &[u8]) -> Time {
    // Beside entries that expire, operands would not be entries.
    let may_expire = keyspace.options().merge == Merge::None;
    let sum: usize = value.iter().take(16).map(|byte| usize::from(*byte)).sum();
    match may_expire && (sum + value.len()).is_multiple_of(3) {
        true => Time::from_micros((1 << 60) + sum as u64),
        false => Time::MAX,
    }
}

/// A value for a key that has the value `old`: where the keyspace appends, mostly longer by `more`, so that [`put_or_merge`] merges.
pub fn appended(keyspace: &Keyspace, old: Option<&Value>, more: Value) -> Value {
    match old {
        Some(old)
            if keyspace.options().merge == Merge::Append
                && !more.len().is_multiple_of(4)
                && old.len() < 4 << 10 =>
        {
            [&old[..], &more[..]].concat().into()
        }
        _ => more,
    }
}

/// The operand that makes `new` of `old`, in a keyspace that appends. A key without a value gets one by an operand, too, now and then.
pub fn operand<'a>(keyspace: &Keyspace, old: Option<&Value>, new: &'a [u8]) -> Option<&'a [u8]> {
    if keyspace.options().merge != Merge::Append {
        return None;
    }
    match old {
        Some(old) => new.strip_prefix(&old[..]),
        None => (new.len() % 4 == 1).then_some(new),
    }
}

/// Sets a key with the value `old` to `new`, by a merge where one can do it.
pub fn put_or_merge(batch: &mut Batch, keyspace: &Keyspace, key: &[u8], old: Option<&Value>, new: &[u8]) {
    match operand(keyspace, old, new) {
        Some(operand) => batch.merge(keyspace, key, operand),
        None => batch.put_until(keyspace, key, new, far_expiry(keyspace, new)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_has_the_awkward_keys_and_replays() {
        let sizes = Sizes { keys: 300, huge_keys: true, value_bytes_max: 1000, huge_value_every: 0 };
        let keys = Keys::new(&mut Rng::new(1), sizes);
        assert_eq!(keys.pool.len(), 300);
        assert!(keys.pool.iter().any(Vec::is_empty));
        assert!(keys.pool.iter().any(|k| k.len() == MAX_KEY_LEN));
        assert_eq!(keys.pool, Keys::new(&mut Rng::new(1), sizes).pool);
    }
}
