//! What the database asks the operating system to load into its page cache, and to drop from it.

use cairn::env::SimEnv;
use cairn::{Compression, Database, Keyspace, KeyspaceOptions, Options, Result};
use std::sync::Arc;

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn database() -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let sim = SimEnv::new(5);
    let options = Options::default().memory_budget(64 << 20).background_threads(0);
    let db = Database::open_in(sim.clone(), "/db", options)?;
    let ks =
        db.keyspace("k", KeyspaceOptions::default().compression(Compression::None).memtable_bytes(1 << 20))?;
    Ok((sim, db, ks))
}

/// Puts a fourth of the keys, `runs` times; four runs put each key once.
fn put(ks: &Keyspace, runs: u64) -> Result<()> {
    for i in 0..runs * 2000 {
        ks.put(key(i * 7919 % 8000), [i as u8; 1000])?;
    }
    ks.flush()
}

#[test]
fn idle_compactions_drop_their_inputs_from_the_page_cache_and_others_do_not() -> Result<()> {
    let (sim, db, ks) = database()?;
    let by_reason = |reason: &str| {
        let reasons = db.stats().keyspaces.remove(0).compactions_by_reason;
        reasons.iter().find(|(r, _)| r == reason).map_or(0, |(_, n)| *n)
    };
    put(&ks, 4)?;
    ks.compact()?;
    assert_eq!((by_reason("idle"), sim.wont_need_bytes()), (0, 0));
    put(&ks, 4)?;
    db.wait_idle()?;
    assert!(by_reason("idle") > 0, "{}", db.stats());
    assert!(sim.wont_need_bytes() > 4_000_000, "{}", sim.wont_need_bytes());
    Ok(())
}
