//! Large values and batches whose log write fails or is cut off by a crash.

use cairn::env::{Fault, Repeat, SimEnv, Survival};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Result};
use std::sync::Arc;

const LARGE: usize = (2 << 20) + 77;

fn open(sim: &Arc<SimEnv>) -> Result<(Database, Keyspace)> {
    let db = Database::open_in(sim.clone(), "/db", Options::default().background_threads(0))?;
    let options = KeyspaceOptions::default().memtable_bytes(32 << 20);
    let ks = match db.open_keyspace("k") {
        Ok(ks) => ks,
        Err(_) => db.keyspace("k", options)?,
    };
    Ok((db, ks))
}

/// All keys, and the lengths of their values.
fn content(ks: &Keyspace) -> Result<Vec<(Vec<u8>, usize)>> {
    ks.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.len()))).collect()
}

fn begin() -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let sim = SimEnv::new(9);
    let (db, ks) = open(&sim)?;
    ks.put_with("a synced", "1", Durability::Sync)?;
    ks.put_with("b buffered", "2", Durability::Buffered)?;
    Ok((sim, db, ks))
}

fn put_large(db: &Database, ks: &Keyspace, as_batch: bool) -> Result<()> {
    let value = vec![7; LARGE];
    if !as_batch {
        return ks.put_with("large", value, Durability::Os);
    }
    let mut batch = db.batch();
    batch.put(ks, "large", &value[..LARGE / 2]);
    batch.put(ks, "large too", &value[..LARGE / 2]);
    db.write(batch, Durability::Os)
}

#[test]
fn a_large_write_that_fails_midway_leaves_nothing_and_loses_nothing_else() -> Result<()> {
    for as_batch in [false, true] {
        let (sim, db, ks) = begin()?;
        let first = sim.op_count();
        put_large(&db, &ks, as_batch)?;
        let ops = sim.op_count() - first;
        assert!(ops > 8, "it goes in pieces: {ops}");
        for op in 0..ops {
            for (fault, kind) in [
                (Fault::ENOSPC, ErrorKind::NoSpace),
                (Fault::EIO, ErrorKind::Io),
                (Fault::ShortWrite(99), ErrorKind::Io),
            ] {
                let (sim, db, ks) = begin()?;
                sim.fail_op(sim.op_count() + op, fault, Repeat::Once);
                match put_large(&db, &ks, as_batch) {
                    Err(e) => assert_eq!(e.kind(), kind, "{op}: {e}"),
                    Ok(()) => continue, // the write does not need this operation
                }
                ks.put_with("c later", "3", Durability::Sync)?;
                let expected =
                    [("a synced", 1), ("b buffered", 1), ("c later", 1)].map(|(k, n)| (k.into(), n));
                assert_eq!(content(&ks)?, expected, "{op} {fault:?}");
                let (_db, ks) = open(&sim.crash_clone(Survival::Nothing, op))?;
                assert_eq!(content(&ks)?, expected, "{op} {fault:?}, after a power cut");
            }
        }
    }
    Ok(())
}

#[test]
fn a_crash_during_a_large_write_leaves_the_earlier_writes() -> Result<()> {
    let (sim, db, ks) = begin()?;
    let first = sim.op_count();
    put_large(&db, &ks, true)?;
    let ops = sim.op_count() - first;
    let mut cut = 0;
    for op in 0..ops {
        let (sim, db, ks) = begin()?;
        sim.crash_at(sim.op_count() + op);
        let put = put_large(&db, &ks, true);
        for kind in Survival::ALL {
            let (_db, ks) = open(&sim.crash_clone(kind, op))?;
            let found = content(&ks)?;
            assert_eq!(found[0].0, b"a synced");
            assert!(found.len() <= 2 || found.len() == 4 && put.is_ok(), "{op} {kind:?}: {found:?}");
            cut += usize::from(found.len() == 2);
        }
    }
    assert!(cut > 10, "{cut}");
    Ok(())
}
