//! The writes of each thread of the child, as a function of the thread and the number of the write. So the parent can
//! derive the exact content of the database from the progress of each thread.
//!
//! Write `n` of thread `t` (both in the keys):
//! - puts `t/n` into `main`;
//! - if 3 divides `n`, it is a batch that also puts `t/n` into `side`, puts `n` under `t` into `state`, and deletes
//!   `t/(n - 9)` from `main`, and adds 1 to the count of all batches, by a merge.
//!
//! One more thread creates and drops keyspaces: step `2n - 1` creates `tmp-n`, or clones `main` as `tmp-n`, and writes into it, step `2n` drops it.

use crate::awaiting;
use crate::data::far_expiry;
use crate::random::{Rng, derive};
use crate::sets::PLACEMENTS;
use cairn::{
    Batch, Database, Durability, Engine, IngestOptions, Keyspace, KeyspaceOptions, Merge, Options, Preset,
};
use std::collections::{BTreeMap, BTreeSet};

/// Number of writer threads.
pub const WRITERS: u32 = 4;

/// The number of the thread that creates and drops keyspaces.
pub const CATALOG: u32 = WRITERS;

/// The number of the thread that makes copies, for messages.
pub const COPIER: u32 = 20;

/// The number of the thread that loads in bulk: its n-th load gives each of its keys the value `n`, in all keyspaces of [`LOADED`].
pub const LOADER: u32 = 21;

/// The keyspaces of the loads.
pub const LOADED: [&str; 2] = ["loaded-1", "loaded-2"];

/// The number of keys of a load, in each keyspace.
pub const LOADED_KEYS: u64 = 40;

/// The options of these keyspaces.
pub fn loaded_options() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(16 << 10).block_size(256)
}

/// Makes load `number`.
pub fn load(db: &Database, spaces: &[Keyspace], number: u64) -> cairn::Result<()> {
    let mut load = db.ingest(IngestOptions::default());
    for space in spaces {
        for key in 0..LOADED_KEYS {
            load.put(space, format!("{key:02}"), number.to_string())?;
        }
    }
    load.commit().map(drop)
}

/// What the names of checkpoints begin with. They are beside the database.
pub const CHECKPOINT: &str = "copy-";

/// The name of the backup, which is there, too.
pub const BACKUP: &str = "backup";

/// The keyspaces that always exist.
pub const NAMES: [&str; 3] = ["main", "side", "state"];

/// The keyspace with the count of all batches.
pub const COUNTS: &str = "counts";

/// The key of the count there.
pub const BATCHES: &str = "batches";

/// The options of that keyspace.
pub fn counts_options() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(16 << 10).block_size(256).merge(Merge::U64Add)
}

/// The contents of a keyspace.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Small memtables and a small log, so that a child flushes, compacts and switches logs within 50 ms.
pub fn options(seed: u64) -> (Options, KeyspaceOptions) {
    let mut rng = Rng::new(derive(seed, 11));
    let preset = Preset::ALL[rng.below(Preset::ALL.len() as u64) as usize];
    let placement = PLACEMENTS[rng.below(2) as usize];
    let keyspace = match preset {
        Preset::HashLog => KeyspaceOptions::preset(preset),
        _ => {
            let tree = KeyspaceOptions::preset(preset).top_level_bits(11).bit_decrement(2);
            tree.placement(placement).large_up_to(0.2)
        }
    };
    let options = Options::default().memory_budget(4 << 20).log_cap(256 << 10).manifest_cap(1 << 10);
    (options.background_threads(rng.below(3) as usize), keyspace.memtable_bytes(32 << 10))
}

/// Thread 3 buffers its writes, except for every sixteenth; thread 2 syncs some of its writes.
pub fn durability(thread: u32, number: u64) -> Durability {
    match thread {
        3 if !number.is_multiple_of(16) => Durability::Buffered,
        2 if number.is_multiple_of(32) => Durability::Sync,
        _ => Durability::Os,
    }
}

/// The key of a write. The keys of a thread are ordered by number.
pub fn key(thread: u32, number: u64) -> Vec<u8> {
    format!("{thread}/{number:010}").into_bytes()
}

/// The number in a key of this thread.
pub fn number_of(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key).ok()?.split_once('/')?.1.parse().ok()
}

fn value(thread: u32, number: u64) -> Vec<u8> {
    let mut rng = Rng::new(derive(u64::from(thread), number));
    let len = if rng.chance(1, 200) { rng.below(20_000) } else { rng.below(200) };
    let mut bytes = vec![0; len as usize];
    rng.fill(&mut bytes);
    bytes
}

/// Whether a write is a batch.
pub fn is_batch(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// Makes write `number` of `thread` on `[main, side, state, counts]`.
pub fn write(db: &Database, spaces: &[Keyspace; 4], thread: u32, number: u64) -> cairn::Result<()> {
    let [main, side, state, counts] = spaces;
    let (key, value, durability) = (key(thread, number), value(thread, number), durability(thread, number));
    if !is_batch(number) {
        return main.put_until_with(&key, &value, far_expiry(main, &value), durability);
    }
    let mut batch: Batch = db.batch();
    batch.put_until(main, &key, &value, far_expiry(main, &value));
    batch.put_until(side, &key, &value, far_expiry(side, &value));
    batch.put(state, thread.to_string(), number.to_string());
    batch.merge(counts, BATCHES, 1u64.to_le_bytes());
    if number > 9 {
        batch.delete(main, self::key(thread, number - 9));
    }
    awaiting::write(db, batch, durability, number % 2 == 1)
}

/// The entries of `thread` in the keyspaces of [`NAMES`] after its first `last` writes.
pub fn contents(thread: u32, last: u64) -> [Content; 3] {
    let [mut main, mut side, mut state] = [Content::new(), Content::new(), Content::new()];
    for number in 1..=last {
        let (key, value) = (key(thread, number), value(thread, number));
        if is_batch(number) {
            side.insert(key.clone(), value.clone());
            state.insert(thread.to_string().into(), number.to_string().into());
        }
        if !is_batch(number) || number + 9 > last {
            main.insert(key, value);
        }
    }
    [main, side, state]
}

/// One in so many temporary keyspaces is a clone.
const CLONE_EVERY: u64 = 4;

/// The temporary keyspaces after this many steps.
pub fn temporary(steps: u64) -> BTreeSet<String> {
    if steps.is_multiple_of(2) {
        BTreeSet::new()
    } else {
        BTreeSet::from([format!("tmp-{}", steps.div_ceil(2))])
    }
}

/// Makes step `number` (from 1) of the thread that creates and drops keyspaces.
pub fn change_catalog(db: &Database, options: &KeyspaceOptions, number: u64) -> cairn::Result<()> {
    let name = format!("tmp-{}", number.div_ceil(2));
    if number.is_multiple_of(2) {
        return db.drop_keyspace(&name);
    }
    let is_clone = number.div_ceil(2).is_multiple_of(CLONE_EVERY) && options.engine == Engine::Tree;
    let keyspace = match is_clone {
        true => db.clone_keyspace(NAMES[0], &name)?,
        false => db.create_keyspace(&name, options.clone())?,
    };
    keyspace.put("in", &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_follow_the_script() {
        let [main, side, state] = contents(1, 12);
        assert!(
            !main.contains_key(&key(1, 3)) && main.contains_key(&key(1, 6)) && main.contains_key(&key(1, 1))
        );
        assert_eq!((main.len(), side.len()), (11, 4));
        assert_eq!(state[b"1".as_slice()], b"12");
        assert_eq!(number_of(&key(2, 77)), Some(77));
    }

    #[test]
    fn each_step_changes_the_keyspaces() {
        assert_eq!(temporary(0), BTreeSet::new());
        assert_eq!(temporary(1), BTreeSet::from(["tmp-1".into()]));
        (0..20).for_each(|steps| assert_ne!(temporary(steps), temporary(steps + 1)));
    }
}
