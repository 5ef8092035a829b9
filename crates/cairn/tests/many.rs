//! Reads of many keys, and seeks over many tables, whose blocks are not in memory: all blocks are requested before the first wait, and
//! the answers are those of single reads.

use cairn::env::{Env, Fault, OpKind, Phase, Repeat, SimEnv};
use cairn::{Compression, Database, ErrorKind, Keyspace, KeyspaceOptions, Options, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Five tables of level 0 over all keys, of which few blocks are cached, and newer entries in the memtable.
fn many_tables(filter_bits: u32) -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let sim = SimEnv::new(3);
    // Without this, tables that fit in memory are prefetched. Here only batches and seeks request blocks.
    sim.set_memory(0);
    let env: Arc<dyn Env> = sim.clone();
    let options = || Options::default().memory_budget(64 << 20).background_threads(0);
    let db = Database::open_in(env.clone(), "/db", options())?;
    let keyspace = KeyspaceOptions::default()
        .level0_tables(64)
        .block_size(1024)
        .filter_bits_per_key(filter_bits)
        .compression(Compression::None);
    let ks = db.keyspace("k", keyspace)?;
    for round in 0..5 {
        for i in (round..3000).step_by(5) {
            ks.put(key(i * 2), format!("{round}/{i}").repeat(20))?;
        }
        // Every table has the first and the last key.
        ks.put(key(0), format!("first of {round}"))?;
        ks.put(key(9000), format!("last of {round}"))?;
        ks.flush()?;
    }
    drop((ks, db));
    let db = Database::open_in(env, "/db", options())?;
    let ks = db.open_keyspace("k")?;
    ks.put(key(1001), "recent")?;
    ks.delete(key(1002))?;
    // Reads the footers, indices and filters, and one data block of each table.
    for key in [key(0), key(9000)] {
        let mut cursor = ks.cursor();
        cursor.seek(key)?;
    }
    ks.multi_get(&(0..40).map(|i| key(i * 2)).collect::<Vec<_>>())?;
    Ok((sim, db, ks))
}

/// Counts blocking reads of tables, and requests of blocks before the first of these reads.
fn watch(sim: &Arc<SimEnv>) -> impl Fn() -> (u64, u64) + use<> {
    let (reads, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (before, watched) = (sim.will_need_calls(), sim.clone());
    let (r, a) = (reads.clone(), asked.clone());
    sim.set_hook(Some(Box::new(move |op| {
        let is_table = op.path.extension().is_some_and(|e| e == "tbl");
        if op.kind == OpKind::Read
            && op.phase == Phase::Before
            && is_table
            && r.fetch_add(1, Ordering::SeqCst) == 0
        {
            a.store(watched.will_need_calls() - before, Ordering::SeqCst);
        }
        None
    })));
    let sim = sim.clone();
    move || {
        sim.set_hook(None);
        (reads.load(Ordering::SeqCst), asked.load(Ordering::SeqCst))
    }
}

#[test]
fn a_batch_requests_its_blocks_before_the_first_wait() -> Result<()> {
    for filter_bits in [10, 0] {
        let (sim, _db, ks) = many_tables(filter_bits)?;
        sim.set_cached_percent(0);
        // Present keys, absent ones, one twice, keys in the memtable; too many for one part of a batch.
        let mut keys: Vec<_> = (100..1100).step_by(3).map(key).collect();
        keys.extend([key(1001), key(1002), key(5002), key(700), key(5002)]);
        let seen = watch(&sim);
        let got = ks.multi_get(&keys)?;
        let (reads, asked) = seen();
        assert!(reads > 100, "{reads}");
        assert!(asked > 60, "{asked} were asked for before the first was waited for");
        assert_eq!(got.len(), keys.len());
        for (key, got) in keys.iter().zip(got) {
            assert_eq!(got, ks.get(key)?, "{}", String::from_utf8_lossy(key));
        }
        assert_eq!(ks.get(key(1001))?.as_deref(), Some(&b"recent"[..]));
        assert!(ks.multi_get::<&[u8]>(&[])?.is_empty());
    }
    Ok(())
}

#[test]
fn a_batch_returns_its_first_error() -> Result<()> {
    let (sim, _db, ks) = many_tables(10)?;
    let keys: Vec<_> = (300..400).map(|i| key(i * 2)).collect();
    // Without and with the blocks in the page cache, one of the first reads fails.
    for percent in [0, 100] {
        for from_here in [0, 3] {
            sim.set_cached_percent(percent);
            sim.fail_op(sim.op_count() + from_here, Fault::EIO, Repeat::Once);
            let error = ks.multi_get(&keys).unwrap_err();
            assert!(error.kind() == ErrorKind::Io && error.to_string().contains(".tbl"), "{error}");
            sim.clear_faults();
        }
    }
    Ok(())
}

/// Damages all tables, other than the cached blocks: a batch returns the error that single reads in the order of the batch return first.
#[test]
fn a_batch_returns_the_same_error_for_damage_as_single_reads() -> Result<()> {
    for percent in [0, 50, 100] {
        let (sim, _db, ks) = many_tables(10)?;
        sim.set_cached_percent(percent);
        let keys: Vec<_> = (300..330).map(|i| key(i * 2)).collect();
        assert_eq!(ks.multi_get(&keys[..10])?.iter().flatten().count(), 10);
        for file in sim.list_files().iter().filter(|f| f.extension().is_some_and(|e| e == "tbl")) {
            let mut bytes = sim.read_file(file);
            let data = bytes.len() * 3 / 4;
            bytes[..data].iter_mut().step_by(64).for_each(|byte| *byte ^= 4);
            sim.write_file(file, bytes);
        }
        let single =
            keys.iter().find_map(|key| ks.get(key).err()).expect("blocks that are not cached are damaged");
        let batch = ks.multi_get(&keys).unwrap_err();
        assert_eq!((batch.kind(), batch.to_string()), (ErrorKind::Corruption, single.to_string()));
    }
    Ok(())
}

#[test]
fn a_seek_over_many_tables_requests_their_blocks_before_the_first_wait() -> Result<()> {
    let (sim, _db, ks) = many_tables(10)?;
    sim.set_cached_percent(0);
    for (at, back) in [(1500, false), (3000, true), (4500, false)] {
        let seen = watch(&sim);
        let mut cursor = ks.cursor();
        match back {
            false => cursor.seek(key(at))?,
            true => cursor.seek_for_prev(key(at))?,
        }
        let (reads, asked) = seen();
        assert_eq!(cursor.key(), key(at));
        assert!((4..=7).contains(&reads) && (4..=5).contains(&asked), "{reads} reads, {asked} asked for");
    }
    Ok(())
}

#[test]
fn a_read_of_one_block_requests_nothing() -> Result<()> {
    let (sim, _db, ks) = many_tables(10)?;
    ks.compact()?;
    ks.get(key(0))?;
    sim.set_cached_percent(0);
    let asked = sim.will_need_calls();
    for i in 0..20 {
        let got = ks.multi_get(&[key(1100 + i * 2)])?;
        assert_eq!(got[0], ks.get(key(1100 + i * 2))?);
        let mut cursor = ks.cursor();
        cursor.seek(key(3000 + i * 100))?;
        assert_eq!(cursor.key(), key(3000 + i * 100));
    }
    assert_eq!(sim.will_need_calls(), asked);
    Ok(())
}

#[test]
fn keys_of_one_block_share_it_once_it_is_cached() -> Result<()> {
    let (sim, db, ks) = many_tables(10)?;
    sim.set_cached_percent(0);
    let keys: Vec<_> = (1500..1600).map(|i| key(i * 2)).collect();
    let before = db.stats();
    let seen = watch(&sim);
    assert!(ks.multi_get(&keys)?.iter().all(Option::is_some));
    let (reads, _) = seen();
    // A hundred adjacent keys lie in five tables, about nine in a block. Each block is read from disk until its third use puts it into the
    // cache. A key that waits counts as one miss, except after false positives of filters.
    assert!((10..60).contains(&reads), "{reads}");
    let missed = db.stats().cache.data_misses - before.cache.data_misses;
    assert!((80..120).contains(&missed), "{missed}");
    Ok(())
}

#[test]
fn few_large_blocks_are_requested_at_once() -> Result<()> {
    let sim = SimEnv::new(4);
    let env: Arc<dyn Env> = sim.clone();
    let options = Options::default().memory_budget(64 << 20).background_threads(0);
    let db = Database::open_in(env, "/db", options)?;
    let ks = db.keyspace("k", KeyspaceOptions::default().compression(Compression::None))?;
    for i in 0..40 {
        ks.put(key(i), vec![i as u8; 1 << 20])?;
    }
    ks.flush()?;
    ks.get(key(0))?;
    sim.set_cached_percent(0);
    let keys: Vec<_> = (0..40).map(key).collect();
    let seen = watch(&sim);
    let values = ks.multi_get(&keys)?;
    let (reads, asked) = seen();
    assert!(values.iter().zip(0..).all(|(v, i)| v.as_ref().is_some_and(|v| v.len() == 1 << 20 && v[0] == i)));
    assert!(reads >= 40 && (4..=6).contains(&asked), "{asked} before the first of {reads}");
    Ok(())
}
