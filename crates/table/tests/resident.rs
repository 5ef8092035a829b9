//! Pinned filters and indexes: the reads that they save, their memory, and that damage to a part of them fails only reads that need
//! this part.

use crate::common::*;
use base::{Cursor, ErrorKind, MAX_SEQ, hash};
use table::{Compression, TableOptions};

/// So many entries that there are several partitions of the filter and several index nodes.
fn entries() -> Vec<Entry> {
    (0..80_000u32).map(|i| entry(&(i * 2).to_be_bytes(), 1, &i.to_le_bytes())).collect()
}

fn options(compression: Compression) -> TableOptions {
    TableOptions { block_size: 256, compression, filter_bits_per_key: 20, ..TableOptions::default() }
}

#[test]
fn lookups_read_data_blocks_only() {
    let entries = entries();
    for &compression in Compression::AVAILABLE {
        let (_, env) = sim();
        let meta = write(&env, 1, &options(compression), &entries);
        let table = open(&env, &meta, 64 << 20);
        let (tables, cache) = (table.tables().clone(), table.tables().cache().clone());
        // The third use puts the block into the cache.
        for uses in 0..3 {
            assert_eq!(cache.stats().data.inserts, 0, "after {uses}");
            let (key, value) = (&entries[0].key, &entries[0].value);
            assert_eq!(table.get(key, hash(key), MAX_SEQ).unwrap().unwrap().1, *value);
        }
        let stored: u64 =
            frames(&env_bytes(&env), 1).iter().filter(|f| f.2 == 2 || f.2 == 3).map(|f| f.1 as u64).sum();
        assert!(cache.pinned_bytes() > stored / 2 && cache.used_bytes() > cache.pinned_bytes());
        let before = tables.stats();
        for i in 0..20_000u32 {
            let key = (i * 2 + 1).to_be_bytes();
            assert!(table.get(&key, hash(&key), MAX_SEQ).unwrap().is_none());
        }
        let after = tables.stats();
        assert_eq!(after.filter_probes - before.filter_probes, 20_000);
        assert!(
            after.reads - before.reads <= after.filter_false_positives,
            "only false positives of the filter read blocks"
        );
        for e in entries.iter().step_by(997) {
            assert_eq!(table.get(&e.key, hash(&e.key), MAX_SEQ).unwrap().unwrap().1, e.value);
        }
        let mut cursor = table.cursor();
        for e in entries.iter().step_by(997) {
            cursor.seek(&e.key, MAX_SEQ).unwrap();
            assert_eq!(current(&cursor).as_ref(), Some(e));
        }
        let stats = cache.stats();
        assert_eq!(
            (stats.index, stats.filter),
            Default::default(),
            "neither index nor filter is cached by blocks"
        );
        assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
        drop((cursor, table));
        assert_eq!(cache.pinned_bytes(), 0, "dropping the table releases its pinned memory");
    }
}

#[test]
fn with_a_small_budget_index_and_filter_are_cached_by_blocks() {
    let entries = entries();
    let (_, env) = sim();
    let meta = write(&env, 1, &options(Compression::None), &entries);
    for budget in [0, 100_000, 300_000] {
        let table = open(&env, &meta, budget);
        for e in entries.iter().step_by(97) {
            assert_eq!(table.get(&e.key, hash(&e.key), MAX_SEQ).unwrap().unwrap().1, e.value);
            let absent = [&e.key[..], b"x"].concat();
            assert!(table.get(&absent, hash(&absent), MAX_SEQ).unwrap().is_none());
        }
        let cache = table.tables().cache();
        assert!(cache.pinned_bytes() == 0 && cache.used_bytes() <= budget + 16);
        assert!(cache.stats().filter.misses > 0 && cache.stats().index.misses > 0);
    }
    // Memory that another table releases is used for pinning at the next read.
    let table = open(&env, &meta, 8 << 20);
    let others = table.tables().cache().pin(4 << 20).unwrap();
    let get = || table.get(&entries[5].key, hash(&entries[5].key), MAX_SEQ).unwrap().unwrap().1;
    assert_eq!((get(), table.tables().cache().pinned_bytes()), (entries[5].value.clone().into(), 4 << 20));
    drop(others);
    assert_eq!(get(), entries[5].value);
    assert!(table.tables().cache().pinned_bytes() > 100_000);
}

#[test]
fn damage_to_a_block_of_index_or_filter_fails_only_reads_that_need_it() {
    let entries = entries();
    for &compression in Compression::AVAILABLE {
        let (sim, env) = sim();
        let meta = write(&env, 1, &options(compression), &entries);
        let frames = frames(&env_bytes(&env), 1);
        let middle_of = |kind| {
            let blocks: Vec<_> = frames.iter().filter(|f| f.2 == kind).collect();
            assert!(blocks.len() > 3);
            blocks[1]
        };
        for kind in [2, 3] {
            let (at, len, _) = middle_of(kind);
            sim.flip_bit(path(1), (at + len / 2) as u64, 3);
            let table = open(&env, &meta, 64 << 20);
            let (mut right, mut failed) = (0, 0);
            for e in entries.iter().step_by(61) {
                match table.get(&e.key, hash(&e.key), MAX_SEQ) {
                    Ok(found) => {
                        assert_eq!(found.expect("it is there").1, e.value);
                        right += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corruption);
                        assert_eq!(error.place().unwrap().1, *at as u64);
                        failed += 1;
                    }
                }
            }
            assert!(failed > 0 && right > failed, "kind {kind}: {right} right, {failed} failed");
            assert!(table.verify(&mut |_| Ok(())).is_err());
            sim.flip_bit(path(1), (at + len / 2) as u64, 3);
        }
    }
}

fn env_bytes(env: &std::sync::Arc<dyn env::Env>) -> Vec<u8> {
    let file = env.open(&path(1)).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}
