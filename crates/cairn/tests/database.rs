//! The public library on the real file system.

use cairn::{Database, Durability, ErrorKind, KeyspaceOptions, Options, Preset};
use std::collections::BTreeMap;

fn small() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(32 << 10)
        .top_level_bits(12)
        .bit_decrement(2)
        .levels(3)
        .block_size(512)
}

/// The pseudo-random key of `i`; some numbers share a key.
fn key(i: u64) -> String {
    format!("key{:06}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & 0x3fff)
}

#[test]
fn what_was_written_is_read_through_flushes_compactions_and_reopening() {
    for preset in Preset::ALL {
        for threads in [0, 2] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options::default().background_threads(threads).memory_budget(4 << 20);
            let mut model = BTreeMap::new();
            for round in 0..3u64 {
                let db = Database::open_with(dir.path(), options.clone()).unwrap();
                let per_guard = KeyspaceOptions::preset(preset).max_tables_per_guard;
                let ks = db.keyspace("main", small().max_tables_per_guard(per_guard)).unwrap();
                for i in 0..4_000u64 {
                    let n = round * 4_000 + i;
                    if n % 5 == 4 {
                        ks.delete(key(n / 3)).unwrap();
                        model.remove(&key(n / 3));
                    } else {
                        let value = format!("value {n} {}", "x".repeat((n % 50) as usize));
                        ks.put(key(n), &value).unwrap();
                        model.insert(key(n), value);
                    }
                }
                if round == 1 {
                    ks.compact().unwrap();
                }
                db.wait_idle().unwrap();
                let found: Vec<_> = ks.iter().map(|e| e.unwrap()).collect();
                assert_eq!(found.len(), model.len());
                for ((k, v), (mk, mv)) in found.iter().zip(&model) {
                    assert_eq!((&k[..], &v[..]), (mk.as_bytes(), mv.as_bytes()));
                }
                for ((k, v), (mk, mv)) in ks.iter().rev().map(|e| e.unwrap()).zip(model.iter().rev()) {
                    assert_eq!((&k[..], &v[..]), (mk.as_bytes(), mv.as_bytes()));
                }
                for i in 0..12_000 {
                    let k = key(i);
                    assert_eq!(
                        ks.get(&k).unwrap().map(|v| v.to_vec()),
                        model.get(&k).map(|v| v.clone().into_bytes())
                    );
                }
                assert!(db.check(&mut |_| ()).unwrap().problems.is_empty());
                db.close().unwrap();
                let report = cairn::check(dir.path(), &mut |_| ()).unwrap();
                assert!(report.problems.is_empty(), "{:?}", report.problems);
            }
        }
    }
}

#[test]
fn two_openings_at_once_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    assert_eq!(Database::open(dir.path()).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(cairn::check(dir.path(), &mut |_| ()).unwrap_err().kind(), ErrorKind::Locked);
    db.close().unwrap();
    Database::open(dir.path()).unwrap();
}

#[test]
fn threads_write_together_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path(), Options::default().memory_budget(4 << 20)).unwrap();
    let a = db.keyspace("a", small()).unwrap();
    let b = db.keyspace("b", small()).unwrap();
    std::thread::scope(|scope| {
        for t in 0..4u32 {
            let (db, a, b) = (&db, &a, &b);
            scope.spawn(move || {
                for i in 0..5_000u32 {
                    match i % 10 {
                        0 => {
                            let mut batch = db.batch();
                            batch.put(a, format!("{t}-{i}"), "batch");
                            batch.put(b, format!("{t}-{i}"), "batch");
                            db.write(batch, Durability::Os).unwrap();
                        }
                        _ => a.put(format!("{t}-{i}"), i.to_string()).unwrap(),
                    }
                }
            });
        }
    });
    assert_eq!((a.iter().count(), b.iter().count()), (20_000, 2_000));
    db.close().unwrap();
    let db = Database::open(dir.path()).unwrap();
    assert_eq!(db.open_keyspace("a").unwrap().iter().count(), 20_000);
    assert_eq!(db.open_keyspace("b").unwrap().iter().count(), 2_000);
}

#[test]
fn limits_are_errors_and_large_values_work() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let ks = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let key = vec![7u8; cairn::limits::MAX_KEY_LEN];
    let value = vec![3u8; 100 << 20];
    ks.put(&key, &value).unwrap();
    assert_eq!(ks.put(vec![0u8; key.len() + 1], "").unwrap_err().kind(), ErrorKind::InvalidArgument);
    ks.flush().unwrap();
    ks.put("", "empty key").unwrap();
    assert!(ks.get(&key).unwrap().unwrap() == value);
    db.close().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let ks = db.open_keyspace("k").unwrap();
    assert!(ks.get(&key).unwrap().unwrap() == value);
    assert_eq!(ks.get("").unwrap().unwrap(), "empty key");
}

#[test]
fn dropped_keyspaces_give_their_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path(), Options::default().memory_budget(4 << 20)).unwrap();
    let ks = db.keyspace("k", small()).unwrap();
    (0..20_000).for_each(|i| ks.put(key(i), "x".repeat(100)).unwrap());
    db.flush().unwrap();
    let iter = ks.iter();
    db.drop_keyspace("k").unwrap();
    assert_eq!(ks.put("a", "b").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(ks.get("a").unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(db.drop_keyspace("k").unwrap_err().kind(), ErrorKind::NotFound);
    drop(iter);
    db.wait_idle().unwrap();
    let tables = std::fs::read_dir(dir.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tbl"));
    assert_eq!(tables.count(), 0);
    let ks = db.keyspace("k", small()).unwrap();
    assert_eq!(ks.iter().count(), 0);
}
