//! The databases, the keys and the values of the jobs.

use crate::random::Rng;
use cairn::env::SimEnv;
use cairn::{Database, Keyspace, KeyspaceOptions, Options, PlacementPolicy, Preset, Result, Retention};
use std::sync::Arc;

pub(super) const KEYS: u64 = 60;

/// Keys in which zero bytes, and keys that begin like others, are frequent.
pub(super) fn key(i: u64) -> Vec<u8> {
    let mut key = format!("k{}", i / 3).into_bytes();
    key.extend([&b""[..], &[0], &[0, 1]][(i % 3) as usize]);
    key
}

pub(super) fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(8) {
        0 => 0,
        1..7 => rng.below(60),
        _ => 1000 + rng.below(3000),
    };
    let mut value = vec![0; len as usize];
    rng.fill(&mut value);
    value
}

/// Number of shapes of trees.
pub(super) const SHAPES: u64 = 8;

pub(super) fn options(shape: u64) -> KeyspaceOptions {
    let options = match shape % 4 {
        0 => KeyspaceOptions::preset(Preset::Mneme),
        1 => KeyspaceOptions::preset(Preset::PebblesDb),
        2 => KeyspaceOptions::preset(Preset::Leveled),
        // Many small tables on all levels, so that compactions have only some of the versions of a key.
        _ => KeyspaceOptions::default().block_size(128).levels(4).skip_levels(false).level0_tables(1),
    };
    let placement = if shape < 4 { PlacementPolicy::InPlace } else { PlacementPolicy::Hybrid };
    options
        .history(Retention::All)
        .placement(placement)
        .memtable_bytes(if shape % 4 < 3 { 16 << 10 } else { 4 << 10 })
        .top_level_bits(4)
        .bit_decrement(1)
}

pub(super) struct Open {
    pub(super) env: Arc<SimEnv>,
    pub(super) db: Database,
    pub(super) keyspace: Keyspace,
    /// Without history, to be written to in the same batches.
    pub(super) plain: Keyspace,
}

pub(super) fn open(env: Arc<SimEnv>, shape: u64, threads: usize) -> Result<Open> {
    let options_of_db = Options::default()
        .background_threads(threads)
        .memory_budget(1 << 20)
        .manifest_cap(4 << 10)
        .value_garbage_percent(5);
    let db = Database::open_in(env.clone(), "/db", options_of_db)?;
    let keyspace = db.keyspace("k", options(shape))?;
    let plain = db.keyspace("plain", KeyspaceOptions::default())?;
    Ok(Open { env, db, keyspace, plain })
}
