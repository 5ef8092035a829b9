//! All reads of keyspaces whose entries expire, against a map, while time passes: over all engines, placements and table formats.

use crate::expiry::{BEGIN, kinds, open, open_in};
use cairn::env::Rng;
use cairn::{Durability, Engine, Keyspace, KeyspaceOptions, Result, Snapshot, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the map knows of a key.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<Time>)>;

fn shown(model: &Model, now: Time) -> Vec<(Vec<u8>, Vec<u8>, Option<Time>)> {
    let seen = model.iter().filter(|(_, (_, expiry))| expiry.is_none_or(|expiry| expiry > now));
    seen.map(|(key, (value, expiry))| (key.clone(), value.clone(), *expiry)).collect()
}

/// Compares all reads with the map.
fn compare(k: &Keyspace, model: &Model, now: Time, rng: &mut Rng, what: &str) -> Result<()> {
    let expected = shown(model, now);
    if k.options().engine == Engine::HashLog {
        let mut entries = k.entries().collect::<Result<Vec<_>>>()?;
        entries.sort_unstable();
        let entries: Vec<_> =
            entries.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        let expected: Vec<_> = expected.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
        assert_eq!(entries, expected, "{what}");
    } else {
        let mut cursor = k.cursor();
        let mut found = Vec::new();
        let entry =
            |cursor: &cairn::Cursor| (cursor.key().to_vec(), cursor.value().to_vec(), cursor.expiry());
        cursor.seek_to_first()?;
        while cursor.valid() {
            found.push(entry(&cursor));
            // Now and then a step back and forth.
            if rng.below(8) == 0 {
                cursor.prev()?;
                assert_eq!(cursor.valid(), found.len() > 1, "{what}");
                match cursor.valid() {
                    true => assert_eq!(Some(&entry(&cursor)), found.get(found.len() - 2), "{what}"),
                    false => cursor.seek_to_first()?,
                }
                if found.len() > 1 {
                    cursor.next()?;
                }
            }
            cursor.next()?;
        }
        assert_eq!(found, expected, "{what}");
        found.clear();
        cursor.seek_to_last()?;
        while cursor.valid() {
            found.push(entry(&cursor));
            cursor.prev()?;
        }
        found.reverse();
        assert_eq!(found, expected, "{what}: back");
    }
    for _ in 0..10 {
        let key = key(rng);
        let expected = expected.iter().find(|entry| entry.0 == key);
        let found = k.get_with_expiry(&key)?.map(|(value, expiry)| (key.clone(), value.to_vec(), expiry));
        assert_eq!(found.as_ref(), expected, "{what}");
        assert_eq!(k.contains(&key)?, expected.is_some(), "{what}");
    }
    let keys: Vec<_> = (0..40).map(|_| key(rng)).collect();
    for (key, found) in keys.iter().zip(k.multi_get(&keys)?) {
        let expected = expected.iter().find(|entry| entry.0 == *key).map(|entry| &entry.1[..]);
        assert_eq!(found.as_deref(), expected, "{what}");
    }
    Ok(())
}

fn compare_snapshot(k: &Keyspace, snapshot: &Snapshot, expected: &[Entry], what: &str) -> Result<()> {
    for (key, value, _) in expected {
        assert_eq!(snapshot.get(k, key)?.as_deref(), Some(&value[..]), "{what}");
    }
    let mut entries = snapshot.entries(k).collect::<Result<Vec<_>>>()?;
    entries.sort_unstable();
    let entries: Vec<_> = entries.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    let expected: Vec<_> = expected.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
    assert_eq!(entries, expected, "{what}");
    Ok(())
}

type Entry = (Vec<u8>, Vec<u8>, Option<Time>);

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("key/{:03}", rng.below(120)).into_bytes()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = [3, 40, 400, 1500][rng.below(4) as usize];
    let mut value = vec![0; len];
    rng.fill(&mut value);
    value
}

#[test]
fn all_reads_agree_with_a_map_while_time_passes() -> Result<()> {
    for (name, options) in kinds() {
        for seed in 0..6 {
            run(name, &options, seed)?;
        }
    }
    Ok(())
}

fn run(name: &str, options: &KeyspaceOptions, seed: u64) -> Result<()> {
    let (mut env, mut db, mut k) = open(options.clone())?;
    let (mut rng, mut model, mut now) = (Rng::new(seed), Model::new(), BEGIN);
    let mut snapshots: Vec<(Snapshot, Vec<Entry>)> = Vec::new();
    let ordered = options.engine == Engine::Tree;
    for step in 0..4000 {
        let what = format!("{name}, seed {seed}, step {step}");
        let key = key(&mut rng);
        match rng.below(100) {
            0..25 => {
                let value = value(&mut rng);
                k.put(&key, &value)?;
                model.insert(key, (value, None));
            }
            25..60 => {
                let (value, ttl) = (value(&mut rng), Duration::from_millis(rng.below(60_000)));
                let expiry = now.saturating_add(ttl);
                match rng.below(3) {
                    0 => k.put_with_ttl(&key, &value, ttl)?,
                    1 => {
                        let mut batch = db.batch();
                        batch.delete(&k, &key);
                        batch.put_with_ttl(&k, &key, &value, ttl);
                        db.write(batch, Durability::Os)?;
                    }
                    _ => db.transaction(|tx| tx.put_until(&k, &key, &value, expiry))?,
                }
                model.insert(key, (value, Some(expiry)));
            }
            60..68 => {
                k.delete(&key)?;
                model.remove(&key);
            }
            68..70 if ordered => {
                let end = [&key[..], b"~"].concat();
                k.delete_range(&key[..]..&end[..])?;
                model.remove(&key);
            }
            70..85 => {
                now = now.saturating_add(Duration::from_millis(rng.below(3000)));
                env.set_wall_clock(now);
            }
            85..90 => k.flush()?,
            90..92 if ordered => k.compact_range(&key[..]..)?,
            92 if ordered => k.compact()?,
            93 | 94 => {
                let expected = shown(&model, now);
                snapshots.push((db.snapshot(), expected));
                if snapshots.len() > 3 {
                    let (snapshot, expected) = snapshots.remove(rng.below(4) as usize);
                    compare_snapshot(&k, &snapshot, &expected, &what)?;
                }
            }
            95 if step % 3 == 0 => {
                for (snapshot, expected) in snapshots.drain(..) {
                    compare_snapshot(&k, &snapshot, &expected, &what)?;
                }
                match rng.chance(1, 2) {
                    true => db.close()?,
                    false => {
                        // The process is killed.
                        env = env.process_clone();
                        env.set_wall_clock(now);
                    }
                }
                db = open_in(&env)?;
                k = db.open_keyspace("k")?;
                compare(&k, &model, now, &mut rng, &what)?;
            }
            96..98 => compare(&k, &model, now, &mut rng, &what)?,
            _ => {
                let found = k.get(&key)?;
                let expected = model.get(&key).filter(|(_, e)| e.is_none_or(|expiry| expiry > now));
                assert_eq!(found.as_deref(), expected.map(|(value, _)| &value[..]), "{what}");
            }
        }
    }
    let report = db.check(&mut |_| {})?;
    assert!(report.problems.is_empty(), "{name}, seed {seed}: {:?}", report.problems);
    Ok(())
}
