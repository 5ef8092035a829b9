//! The database of a history: two keyspaces with a few keys each, and values that identify their write.

use super::operation::{ABSENT, Clock, KeyIndex, State, Value};
use crate::finding::{Finding, Outcome, ensure, show};
use crate::random::{Draw, Rng};
use crate::sets::PLACEMENTS;
use cairn::env::Env;
use cairn::{Database, Durability, Keyspace, KeyspaceOptions, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of keyspaces.
pub const KEYSPACES: usize = 2;
/// Keys per keyspace.
pub const KEYS: usize = 4;
/// Number of all keys.
pub const KEY_COUNT: usize = KEYSPACES * KEYS;

/// The names of the keyspaces.
const NAMES: [&str; KEYSPACES] = ["left", "right"];

/// An open database, and the state shared by its threads.
pub struct World {
    /// The database.
    pub db: Database,
    /// Its keyspaces.
    pub spaces: Vec<Keyspace>,
    /// Orders calls and returns.
    pub clock: Arc<Clock>,
    /// The number of the newest write.
    pub values: Arc<AtomicU32>,
    /// Tells the threads to stop.
    pub stop: AtomicBool,
}

/// The location and options of a database.
#[derive(Clone)]
pub struct Site {
    /// The disk.
    pub env: Arc<dyn Env>,
    /// The directory.
    pub path: PathBuf,
    options: Options,
    keyspaces: [KeyspaceOptions; KEYSPACES],
}

impl Site {
    /// Draws small options: a few hundred writes switch memtables and logs, flush and compact.
    pub fn draw(env: Arc<dyn Env>, path: &Path, rng: &mut Rng) -> Site {
        let options = Options::default()
            .memory_budget(1 << 20)
            .log_cap(64 << 10)
            .manifest_cap(2 << 10)
            .value_garbage_percent(5)
            .dead_range_entries(1)
            .background_threads(*rng.pick(&[0, 1, 1, 2]));
        let mut keyspace = || {
            KeyspaceOptions::default()
                .memtable_bytes(*rng.pick(&[4 << 10, 6 << 10, 16 << 10]))
                .block_size(*rng.pick(&[128, 512]))
                .top_level_bits(*rng.pick(&[1, 2, 4]) as u32)
                .bit_decrement(1)
                .levels(rng.between(1, 3))
                .level0_tables(rng.between(1, 3))
                .max_tables_per_guard(rng.between(1, 3))
                .placement(*rng.pick(&PLACEMENTS))
                .large_up_to(*rng.pick(&[0.05, 0.5, 1.0]))
        };
        Site { env, path: path.to_owned(), options, keyspaces: [keyspace(), keyspace()] }
    }

    /// The same directory on another disk, such as the one that survived a crash.
    pub fn on(&self, env: Arc<dyn Env>) -> Site {
        Site { env, ..self.clone() }
    }

    /// Opens the database.
    pub fn open(&self, clock: &Arc<Clock>, values: &Arc<AtomicU32>) -> Outcome<World> {
        let db = Database::open_in(self.env.clone(), &self.path, self.options.clone())?;
        let open = |(name, options): (&&str, &KeyspaceOptions)| db.keyspace(name, options.clone());
        let spaces = NAMES.iter().zip(&self.keyspaces).map(open).collect::<cairn::Result<Vec<_>>>()?;
        let (clock, values) = (clock.clone(), values.clone());
        Ok(World { db, spaces, clock, values, stop: AtomicBool::new(false) })
    }
}

impl World {
    /// A number that no other write has.
    pub fn new_value(&self) -> Value {
        self.values.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether the threads should continue.
    pub fn running(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    /// The present values of all keys. No other thread may write.
    pub fn state(&self) -> Outcome<State> {
        let mut state = vec![ABSENT; KEY_COUNT];
        for (space, keyspace) in self.spaces.iter().enumerate() {
            for entry in keyspace.iter() {
                let (index, value) = parse(space, &entry?)?;
                state[index] = value;
            }
        }
        Ok(state.into())
    }
}

/// The keyspace of a key, and its bytes.
pub fn locate(index: KeyIndex) -> (usize, String) {
    (index / KEYS, format!("key/{}", index % KEYS))
}

/// The encoded value: its number, followed by filler of a length and content that follow from the number.
pub fn bytes_of(value: Value) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(value));
    let mut bytes = format!("{value:08}").into_bytes();
    let filling = rng.below(700) as usize;
    bytes.resize_with(8 + filling, || rng.next_u64() as u8);
    bytes
}

/// Decodes a value.
pub fn value_of(bytes: &[u8]) -> Outcome<Value> {
    let number = bytes.get(..8).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let value = number.filter(|&value| bytes_of(value) == bytes);
    value.ok_or_else(|| Finding::new(format!("{} was never written", show(bytes))))
}

/// The key and the value of an entry of keyspace `space`.
pub fn parse<K: AsRef<[u8]>, V: AsRef<[u8]>>(space: usize, entry: &(K, V)) -> Outcome<(KeyIndex, Value)> {
    let key = entry.0.as_ref();
    let index = (space * KEYS..(space + 1) * KEYS).find(|&index| locate(index).1.as_bytes() == key);
    ensure!(index.is_some(), "there is a key {} that was never written", show(key));
    Ok((index.unwrap_or_default(), value_of(entry.1.as_ref())?))
}

/// A random durability.
pub fn draw_durability(rng: &mut Rng) -> Durability {
    *rng.pick(&[Durability::Buffered, Durability::Os, Durability::Os, Durability::Sync, Durability::Sync])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_the_value_and_other_bytes_are_found() {
        for value in [1, 77, 12_345_678] {
            assert_eq!(value_of(&bytes_of(value)), Ok(value));
            let mut wrong = bytes_of(value);
            wrong.push(0);
            assert!(value_of(&wrong).is_err() && value_of(&wrong[..4]).is_err());
        }
        let (space, key) = locate(KEY_COUNT - 1);
        assert_eq!(parse(space, &(&key, bytes_of(5))), Ok((KEY_COUNT - 1, 5)));
        assert!(parse(space, &("key/x", bytes_of(5))).is_err());
    }
}
