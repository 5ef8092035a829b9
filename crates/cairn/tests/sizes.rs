//! The ends of a keyspace, and estimates of what a range has.

use cairn::env::SimEnv;
use cairn::{
    Compression, Database, Engine, ErrorKind, Keyspace, KeyspaceOptions, Options, PlacementPolicy, Result,
    TableFormat,
};

fn open(options: KeyspaceOptions) -> Result<(Database, Keyspace)> {
    let of_db = Options::default().background_threads(0).memory_budget(64 << 20).disk_reserve(0);
    let db = Database::open_in(SimEnv::new(1), "/db", of_db)?;
    let keyspace = db.keyspace("k", options)?;
    Ok((db, keyspace))
}

fn kinds() -> [(&'static str, KeyspaceOptions); 4] {
    let plain = KeyspaceOptions::default().compression(Compression::None).block_size(1024);
    [
        ("memory", plain.clone().memtable_bytes(32 << 20)),
        ("tree", plain.clone().memtable_bytes(256 << 10)),
        ("size_class", plain.clone().memtable_bytes(256 << 10).table_format(TableFormat::SizeClass)),
        ("hybrid", plain.memtable_bytes(256 << 10).placement(PlacementPolicy::Hybrid).large_up_to(0.5)),
    ]
}

const KEYS: u32 = 20_000;

#[test]
fn estimates_are_near() -> Result<()> {
    for (name, options) in kinds() {
        let (_db, k) = open(options)?;
        // In an order that spreads over all tables.
        for i in 0..KEYS {
            let key = (u64::from(i) * 7919 % u64::from(KEYS)) as u32;
            k.put(key.to_be_bytes(), [7; 100])?;
        }
        if name != "memory" {
            k.compact()?;
            assert_eq!(k.approximate_len::<&[u8]>(..)?, u64::from(KEYS), "{name}");
        }
        let all = k.approximate_bytes::<&[u8]>(..)?;
        let user = u64::from(KEYS) * 104;
        assert!((user..user * 3 / 2).contains(&all), "{name}: {all} bytes for {user}");
        for (from, to) in [(0u32, KEYS), (5000, 15_000), (10_000, KEYS), (0, 4000), (100, 600), (7, 7)] {
            let (ends, keys) = (from.to_be_bytes()..to.to_be_bytes(), u64::from(to - from));
            // In memory a range of more than a thousand entries is estimated from a sample.
            let within = if name == "memory" && keys > 1000 { keys / 8 } else { 40 };
            let found = k.approximate_len(ends.clone())?;
            assert!(found.abs_diff(keys) <= within, "{name}: {from} to {to}: {found}");
            let (bytes, share) = (k.approximate_bytes(ends)?, all * keys / u64::from(KEYS));
            let within = if name == "memory" { share / 8 } else { all / 100 };
            assert!(bytes.abs_diff(share) <= within, "{name}: {from} to {to}: {bytes} bytes, not {share}");
        }
        assert_eq!(k.approximate_len(9u32.to_be_bytes()..3u32.to_be_bytes())?, 0, "{name}");
    }
    Ok(())
}

#[test]
fn deletes_and_overwrites_count_once_they_are_merged() -> Result<()> {
    let (_db, k) = open(kinds()[1].1.clone())?;
    for round in 0..3 {
        for i in 0..4000u32 {
            k.put(i.to_be_bytes(), [round; 100])?;
        }
        k.flush()?;
    }
    for i in 0..1000u32 {
        k.delete(i.to_be_bytes())?;
    }
    k.delete_range(3000u32.to_be_bytes()..)?;
    assert!(k.approximate_len::<&[u8]>(..)? >= 2000);
    k.compact()?;
    assert_eq!(k.approximate_len::<&[u8]>(..)?, 2000);
    assert_eq!(k.approximate_len(..1500u32.to_be_bytes())?.abs_diff(500) / 30, 0);
    Ok(())
}

/// The parts have about the same bytes, whether their entries are in tables, in memory, in both, or differ in size, and in parts of the keys.
#[test]
fn split_points_divide_a_range_evenly() -> Result<()> {
    for (name, options) in kinds() {
        let (_db, k) = open(options)?;
        // An index says nothing of the lengths of values outside of its table.
        let len = |i: u32| if name == "hybrid" || i < 5_000 { 30 } else { 90 };
        let put = |range: std::ops::Range<u32>| -> Result<()> {
            let mut rng = cairn::env::Rng::new(1);
            range.map(|i| i.wrapping_mul(7919) % 20_000).try_for_each(|i| {
                let mut value = vec![0; len(i) as usize];
                rng.fill(&mut value);
                k.put(i.to_be_bytes(), value)
            })
        };
        put(0..15_000)?;
        for stage in ["in tables", "in both"] {
            if stage == "in tables" {
                k.flush()?;
            } else {
                put(15_000..20_000)?;
            }
            for (from, to) in [(0u32, 20_000u32), (2_000, 12_000), (7_000, 8_000)] {
                let bytes = |from: u32, to: u32| -> Result<u64> {
                    let entries = k.range(from.to_be_bytes()..to.to_be_bytes());
                    entries.map(|entry| entry.map(|(key, value)| (key.len() + value.len()) as u64)).sum()
                };
                let all = bytes(from, to)?;
                for parts in [1, 2, 3, 8, 32] {
                    let points = k.split_points(from.to_be_bytes()..to.to_be_bytes(), parts)?;
                    // 32 parts of the small range are less than a block each.
                    if (to - from) / parts as u32 > 100 {
                        assert_eq!(points.len(), parts - 1, "{name}, {stage}, {from} to {to}");
                    } else {
                        assert!(
                            points.len() < parts && points.is_sorted(),
                            "{name}, {stage}, {from} to {to}"
                        );
                        continue;
                    }
                    let points: Vec<u32> = points
                        .iter()
                        .map(|key| {
                            // Keys of an index may be shorter than those of entries.
                            let mut whole = [0; 4];
                            whole[..key.len()].copy_from_slice(key);
                            u32::from_be_bytes(whole)
                        })
                        .collect();
                    let ends = points.iter().copied().chain([to]);
                    let begins = [from].into_iter().chain(points.iter().copied());
                    for (from, to) in begins.zip(ends) {
                        let (found, wanted) = (bytes(from, to)? as f64, all as f64 / parts as f64);
                        let near = (0.5 * wanted - 3_000.0..1.5 * wanted + 3_000.0).contains(&found);
                        assert!(
                            near,
                            "{name}, {stage}, {parts} parts: {from} to {to} has {found} bytes, not {wanted}"
                        );
                    }
                }
            }
        }
        assert!(k.split_points(30_000u32.to_be_bytes().., 4)?.is_empty());
        assert!(k.split_points::<&[u8]>(.., 0)?.is_empty());
        assert!(k.split_points(&b"b"[..]..&b"a"[..], 4)?.is_empty());
    }
    let (_db, k) = open(KeyspaceOptions::default())?;
    assert!(k.split_points::<&[u8]>(.., 4)?.is_empty());
    for i in 0..10u32 {
        k.put(i.to_be_bytes(), "1")?;
    }
    assert!(k.split_points::<&[u8]>(.., 4)?.len() <= 3);
    Ok(())
}

#[test]
fn ends() -> Result<()> {
    for (name, options) in kinds() {
        let (db, k) = open(options)?;
        assert!(k.is_empty()? && k.first()?.is_none() && k.last()?.is_none(), "{name}");
        assert_eq!((k.approximate_len::<&[u8]>(..)?, k.approximate_bytes::<&[u8]>(..)?), (0, 0), "{name}");
        for key in ["b", "a", "c"] {
            k.put(key, key)?;
        }
        k.flush()?;
        k.delete("c")?;
        let (first, last) = (k.first()?.unwrap(), k.last()?.unwrap());
        assert_eq!((&first.0[..], &last.0[..]), (&b"a"[..], &b"b"[..]), "{name}");
        assert!(!k.is_empty()?, "{name}");
        k.delete_range::<&str>(..)?;
        assert!(k.is_empty()? && k.first()?.is_none() && k.last()?.is_none(), "{name}");
        db.close()?;
        assert_eq!(k.is_empty().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(k.approximate_len::<&[u8]>(..).unwrap_err().kind(), ErrorKind::Closed);
    }
    let (_db, k) = open(KeyspaceOptions::default().engine(Engine::HashLog))?;
    assert!(k.is_empty()?);
    k.put("a", "")?;
    assert!(!k.is_empty()?);
    assert_eq!(k.approximate_len::<&[u8]>(..)?, 1);
    k.flush()?;
    k.put("b", "")?;
    assert_eq!(k.approximate_len::<&[u8]>(..)?, 2);
    k.put("a", "again")?;
    assert_eq!(k.approximate_len::<&[u8]>(..)?, 3, "until it is flushed");
    k.flush()?;
    assert_eq!(k.approximate_len::<&[u8]>(..)?, 2);
    for error in [
        k.first().unwrap_err(),
        k.approximate_len("a"..).unwrap_err(),
        k.approximate_bytes::<&[u8]>(..).unwrap_err(),
        k.split_points::<&[u8]>(.., 2).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    Ok(())
}
