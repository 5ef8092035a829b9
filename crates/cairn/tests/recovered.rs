//! Opening with little memory: the log becomes few tables, whatever faults the disk has meanwhile.

use cairn::env::{OpKind, Phase, SimEnv, Survival};
use cairn::{Database, Durability, Keyspace, KeyspaceOptions, Options, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The smallest memory budget that is allowed.
const LITTLE: u64 = 1 << 20;

type Model = [BTreeMap<u64, Option<u64>>; 2];

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

fn value(i: u64) -> Vec<u8> {
    i.to_le_bytes().repeat(60)
}

fn options(memory: u64) -> Options {
    Options::default().memory_budget(memory).background_threads(0)
}

/// A database with `puts` entries in each of two keyspaces, all of them in the log only.
fn fill(puts: u64) -> Result<(Arc<SimEnv>, Model)> {
    let sim = SimEnv::new(3);
    let db = Database::open_in(sim.clone(), "/db", options(256 << 20))?;
    let spaces =
        [db.keyspace("a", KeyspaceOptions::default())?, db.keyspace("b", KeyspaceOptions::default())?];
    let mut model = Model::default();
    for i in 0..puts {
        for (ks, model) in spaces.iter().zip(&mut model) {
            let place = i.wrapping_mul(7919) % (puts / 2);
            ks.put_with(key(place), value(i), Durability::Buffered)?;
            model.insert(place, Some(i));
            if i % 10 == 0 {
                ks.delete_with(key(place / 2), Durability::Buffered)?;
                model.insert(place / 2, None);
            }
            if i % 1000 == 0 {
                ks.delete_range(key(place)..key(place + 50))?;
                model.range_mut(place..place + 50).for_each(|(_, value)| *value = None);
            }
        }
    }
    db.sync()?;
    let survivor = sim.crash_clone(Survival::Everything, 1);
    drop(db);
    Ok((survivor, model))
}

fn check(db: &Database, model: &Model) -> Result<()> {
    for (name, model) in ["a", "b"].iter().zip(model) {
        let ks: Keyspace = db.open_keyspace(name)?;
        let mut expected = model.iter().filter_map(|(k, v)| Some((key(*k), value((*v)?))));
        for entry in ks.iter() {
            let (k, v) = entry?;
            let (key, value) = expected.next().expect("more than was put");
            assert!(k == key && v == value, "{name}: {k:?}");
        }
        assert!(expected.next().is_none(), "{name}: some are missing");
    }
    assert!(db.check(&mut |_| {})?.problems.is_empty());
    Ok(())
}

fn tables(db: &Database) -> Vec<u64> {
    db.stats().keyspaces.iter().map(|k| k.levels[0].tables as u64).collect()
}

#[test]
fn an_opening_with_little_memory_leaves_few_tables() -> Result<()> {
    let (sim, model) = fill(16_000)?;
    let db = Database::open_in(sim.clone(), "/db", options(LITTLE))?;
    let few = tables(&db);
    assert!(few.iter().all(|&tables| (2..=30).contains(&tables)), "{few:?} tables");
    let named: u64 = few.iter().sum();
    let found = sim.list_files().iter().filter(|path| path.extension().is_some_and(|e| e == "tbl")).count();
    assert_eq!(found as u64, named, "those that were merged are gone");
    check(&db, &model)?;
    db.close()?;
    let db = Database::open_in(sim, "/db", options(LITTLE))?;
    check(&db, &model)
}

#[test]
fn a_crash_while_tables_are_merged_loses_nothing() -> Result<()> {
    let (sim, model) = fill(5_000)?;
    let whole = sim.crash_clone(Survival::Everything, 1);
    let first = whole.op_count();
    let db = Database::open_in(whole.clone(), "/db", options(LITTLE))?;
    let ops = whole.op_count() - first;
    let few = tables(&db);
    assert!(few.iter().all(|&tables| tables < 16), "{few:?}: nothing was merged");
    check(&db, &model)?;
    for (i, op) in (0..ops).step_by((ops / 60) as usize + 1).enumerate() {
        let crashing = sim.crash_clone(Survival::Everything, 1);
        crashing.crash_at(crashing.op_count() + op);
        // The last operations remove obsolete files, and may fail.
        let opened = Database::open_in(crashing.clone(), "/db", options(LITTLE));
        assert!(opened.is_err() || op + 10 > ops, "{op} of {ops}");
        drop(opened);
        let kind = Survival::ALL[i % Survival::ALL.len()];
        let db = Database::open_in(crashing.crash_clone(kind, op), "/db", options(LITTLE))?;
        check(&db, &model)?;
    }
    Ok(())
}

#[test]
fn where_tables_cannot_be_merged_they_stay() -> Result<()> {
    let (sim, model) = fill(5_000)?;
    let reads = Arc::new(AtomicUsize::new(0));
    let seen = reads.clone();
    sim.set_hook(Some(Box::new(move |op| {
        let of_table = op.path.extension().is_some_and(|e| e == "tbl");
        if op.phase == Phase::Before && op.kind == OpKind::Read && of_table {
            seen.fetch_add(1, Ordering::Relaxed);
            return Some(cairn::env::Fault::EIO);
        }
        None
    })));
    let db = Database::open_in(sim.clone(), "/db", options(LITTLE))?;
    sim.set_hook(None);
    assert!(reads.load(Ordering::Relaxed) > 0, "no merge was tried");
    let many = tables(&db);
    assert!(many.iter().any(|&tables| tables >= 16), "{many:?}");
    check(&db, &model)
}
