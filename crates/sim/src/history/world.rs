//! The database of a history: two keyspaces with a few keys each, the second of which may have no order, one with history, and values that identify
//! their write.

use super::operation::{ABSENT, Clock, DELETED, KeyIndex, State, Value};
use crate::finding::{Finding, Outcome, ensure, show};
use crate::random::{Draw, Rng};
use crate::sets::PLACEMENTS;
use cairn::env::Env;
use cairn::{Database, Durability, Keyspace, KeyspaceOptions, Options, Preset, Retention, Time, Version};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of keyspaces.
pub const KEYSPACES: usize = 2;
/// Keys per keyspace.
pub const KEYS: usize = 4;
/// Number of all keys of keyspaces without history.
pub const KEY_COUNT: usize = KEYSPACES * KEYS;
/// Keys in the keyspace with history.
pub const TIMED_KEYS: usize = 2;
/// Times of their versions.
pub const TIMES: usize = 8;
/// Number of all keys, and of all versions in the keyspace with history, which follow them.
pub const ALL_COUNT: usize = KEY_COUNT + TIMED_KEYS * TIMES;

/// The names of the keyspaces.
const NAMES: [&str; KEYSPACES] = ["left", "right"];

/// An open database, and the state shared by its threads.
pub struct World {
    /// The database.
    pub db: Database,
    /// Its keyspaces.
    pub spaces: Vec<Keyspace>,
    /// Its keyspace with history.
    pub timed: Keyspace,
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
    timed: KeyspaceOptions,
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
        let timed = keyspace().history(Retention::All);
        let keyspaces = [keyspace(), keyspace()];
        let [ordered, second] = keyspaces;
        let memtable_bytes = second.memtable_bytes;
        let second = match rng.chance(1, 3) {
            true => KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(memtable_bytes),
            false => second,
        };
        Site { env, path: path.to_owned(), options, keyspaces: [ordered, second], timed }
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
        let timed = db.keyspace("timed", self.timed.clone())?;
        let (clock, values) = (clock.clone(), values.clone());
        Ok(World { db, spaces, timed, clock, values, stop: AtomicBool::new(false) })
    }
}

impl World {
    /// A number that no other write has.
    pub fn new_value(&self) -> Value {
        self.values.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A number that no other write has, and that tells the time of a version.
    pub fn new_value_at(&self, index: KeyIndex) -> Value {
        loop {
            let value = self.new_value();
            if value as usize % TIMES == locate_timed(index).1 {
                return value;
            }
        }
    }

    /// Whether the threads should continue.
    pub fn running(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    /// The present values of all keys. No other thread may write.
    pub fn state(&self) -> Outcome<State> {
        let mut state = vec![ABSENT; ALL_COUNT];
        for (space, keyspace) in self.spaces.iter().enumerate() {
            for entry in keyspace.entries() {
                let (index, value) = parse(space, &entry?)?;
                state[index] = value;
            }
        }
        for version in self.timed.changes::<&[u8]>(.., ..)? {
            let (index, value) = parse_version(&version?)?;
            state[index] = value;
        }
        Ok(state.into())
    }
}

/// The key of a version, and the number of its time.
pub fn locate_timed(index: KeyIndex) -> (String, usize) {
    let index = index - KEY_COUNT;
    (format!("key/{}", index / TIMES), index % TIMES)
}

/// All versions that a key may have.
pub fn versions_of(key: usize) -> Range<KeyIndex> {
    KEY_COUNT + key * TIMES..KEY_COUNT + (key + 1) * TIMES
}

/// The time with this number.
pub fn time_of(number: usize) -> Time {
    Time::from_micros(1_000_000 * (number as u64 + 1))
}

/// The place and the value of a version.
pub fn parse_version(version: &Version) -> Outcome<(KeyIndex, Value)> {
    let index = (KEY_COUNT..ALL_COUNT).find(|&index| {
        let (key, time) = locate_timed(index);
        key.as_bytes() == &version.key[..] && time_of(time) == version.time
    });
    ensure!(index.is_some(), "there is a version {version:?} that was never written");
    let index = index.unwrap_or_default();
    let value = version.value.as_ref().map_or(Ok(DELETED), |bytes| value_of(bytes))?;
    let tells = value == DELETED || value as usize % TIMES == locate_timed(index).1;
    ensure!(tells, "the version {version:?} has the value of another time");
    Ok((index, value))
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
