//! A hole between two logs (trap 11): the end of one log is lost, and records of the next one survive.
//!
//! This requires records in the next log before the first log is synced. So flushes fail for a while: memtables and
//! logs are switched, and nothing becomes durable. After a power failure, recovery must not replay records behind the
//! hole.

use super::setup::PATH;
use crate::finding::{Outcome, ensure};
use crate::jobs::Job;
use crate::random::derive;
use cairn::env::{Fault, OpKind, Phase, SimEnv, Survival};
use cairn::{Database, Durability, KeyspaceOptions, Options};
use std::path::Path;

/// Number of power failures of each kind.
const CUTS: u64 = 40;

/// Number of writes. The first `SYNCED` of them are synced.
const WRITES: usize = 300;
const SYNCED: usize = 10;

/// [`run`] as a job, which counts recoveries.
pub fn job(seed: u64) -> Job {
    let replay = format!("cargo run --release -p sim -- hole --seed {seed}");
    Job { name: format!("hole, seed {seed}"), replay, run: Box::new(move || run(seed)) }
}

/// Writes to several logs while flushes fail, cuts the power, and expects a prefix of the writes. Returns the number
/// of recoveries.
pub fn run(seed: u64) -> Outcome<u64> {
    let env = SimEnv::new(seed);
    let options = Options::default().memory_budget(4 << 20).background_threads(0);
    let db = Database::open_in(env.clone(), Path::new(PATH), options.clone())?;
    let keyspace = db.create_keyspace("k", KeyspaceOptions::default().memtable_bytes(8 << 10))?;
    env.set_hook(Some(Box::new(|op| {
        let table = op.kind == OpKind::Create && op.path.extension().is_some_and(|e| e == "tbl");
        match table && op.phase == Phase::Before {
            true => Some(Fault::EIO),
            false => None,
        }
    })));
    let key = |i: usize| format!("{i:06}");
    for i in 0..WRITES {
        let durability = if i < SYNCED { Durability::Sync } else { Durability::Os };
        keyspace.put_with(key(i), [b'v'; 100], durability)?;
    }
    let logs = env.list_files().iter().filter(|f| f.to_string_lossy().ends_with(".log")).count();
    ensure!(logs > 2, "there are {logs} logs only");
    let mut recoveries = 0;
    for kind in Survival::ALL {
        for cut in 0..CUTS {
            let survivor = env.crash_clone(kind, derive(seed, recoveries));
            let db = Database::open_in(survivor, Path::new(PATH), options.clone())?;
            let found = db.open_keyspace("k")?.iter().collect::<cairn::Result<Vec<_>>>()?;
            let prefix = found.iter().enumerate().all(|(i, (found, _))| found == key(i).as_bytes());
            ensure!(
                prefix && (SYNCED..=WRITES).contains(&found.len()),
                "P2: {kind:?}, cut {cut}: {} of {WRITES} writes are there, and they are not the first ones",
                found.len()
            );
            recoveries += 1;
        }
    }
    Ok(recoveries)
}
