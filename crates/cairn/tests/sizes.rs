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
    for error in [k.first().unwrap_err(), k.approximate_len::<&[u8]>(..).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    Ok(())
}
