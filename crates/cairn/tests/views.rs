//! Views of guards: when they are built, what memory they take, when they are dropped, and that reads show the same with them.

use cairn::env::SimEnv;
use cairn::{Database, KeyspaceOptions, Options, Result};
use std::collections::BTreeMap;

fn open(memory_budget: u64) -> Result<Database> {
    let options = Options::default().memory_budget(memory_budget).background_threads(0);
    Database::open_in(SimEnv::new(1), "/db", options)
}

/// Guards of many small tables. A view is due after the first seeks in a guard; without threads `flush` builds it.
fn many_runs() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(16 << 10)
        .block_size(512)
        .top_level_bits(9)
        .bit_decrement(1)
        .max_tables_per_guard(16)
        .seek_cost(0)
        .views(1)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn fill(keyspace: &cairn::Keyspace, model: &mut Model, round: u64) -> Result<()> {
    for i in 0..6000u64 {
        let key = format!("key{:06}", (i * 7919 + round * 13) % 10_000).into_bytes();
        match i % 11 {
            0 => {
                keyspace.delete(&key)?;
                model.remove(&key);
            }
            _ => {
                let value = format!("{round}/{i}").repeat(3).into_bytes();
                keyspace.put(&key, &value)?;
                model.insert(key, value);
            }
        }
    }
    keyspace.flush()
}

/// Everything, forward and back, and short scans from many places.
fn compare(keyspace: &cairn::Keyspace, model: &Model) -> Result<()> {
    let forward: Vec<_> = keyspace.range::<&[u8]>(..).collect::<Result<_>>()?;
    assert!(forward.iter().map(|(k, v)| (&k[..], &v[..])).eq(model.iter().map(|(k, v)| (&k[..], &v[..]))));
    let back: Vec<_> = keyspace.range::<&[u8]>(..).rev().collect::<Result<_>>()?;
    assert!(back.iter().rev().eq(forward.iter()));
    for i in (0..10_000u64).step_by(37) {
        let from = format!("key{i:06}").into_bytes();
        let mut cursor = keyspace.cursor();
        cursor.seek(&from)?;
        for (key, value) in model.range(from.clone()..).take(20) {
            assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            cursor.next()?;
        }
        cursor.seek_for_prev(&from)?;
        assert_eq!(
            cursor.valid().then(|| cursor.key()),
            model.range(..=from).next_back().map(|(k, _)| &k[..])
        );
    }
    Ok(())
}

#[test]
fn views_come_with_seeks_go_with_their_guards_and_show_what_is_there() -> Result<()> {
    let db = open(8 << 20)?;
    let (with, without) = (db.keyspace("with", many_runs())?, db.keyspace("without", many_runs().views(0))?);
    let (mut model, mut other) = (Model::new(), Model::new());
    let mut built = 0;
    for round in 0..5 {
        fill(&with, &mut model, round)?;
        fill(&without, &mut other, round)?;
        compare(&without, &other)?;
        assert_eq!(db.stats().views.built, built, "no seek has charged");
        compare(&with, &model)?;
        assert_eq!(db.stats().views.built, built, "a read builds nothing");
        with.flush()?;
        let stats = db.stats();
        assert!(
            stats.views.count > 0 && stats.views.built > built && stats.views.refused == 0,
            "{:?}",
            stats.views
        );
        assert_eq!(stats.memory.views, stats.views.bytes);
        assert!(stats.views.bytes > 0 && stats.views.bytes < 1 << 20);
        assert!(stats.to_string().contains("views "));
        built = stats.views.built;
        compare(&with, &model)?;
        with.flush()?;
        assert!(db.stats().views.built < built + 3, "they are there");
        built = db.stats().views.built;
    }
    db.compact()?;
    assert_eq!((db.stats().views.count, db.stats().views.bytes), (0, 0), "one run needs none");
    compare(&with, &model)?;
    db.close()
}

#[test]
fn views_stay_within_their_share_of_the_cache() -> Result<()> {
    // A cache of 512 KiB: 128 KiB for views.
    let db = open(1 << 20)?;
    let keyspaces: Vec<_> =
        (0..6).map(|i| db.keyspace(&format!("k{i}"), many_runs())).collect::<Result<_>>()?;
    let mut models = vec![Model::new(); keyspaces.len()];
    for round in 0..3 {
        for (keyspace, model) in keyspaces.iter().zip(&mut models) {
            fill(keyspace, model, round)?;
        }
    }
    for (keyspace, model) in keyspaces.iter().zip(&models) {
        compare(keyspace, model)?;
        keyspace.flush()?;
        let stats = db.stats();
        assert!(stats.views.bytes <= 128 << 10, "{:?}", stats.views);
        assert!(stats.cache.used_bytes + stats.views.bytes <= (512 << 10) + 4096, "{:?}", stats.cache);
    }
    let views = db.stats().views;
    assert!(views.refused > 0 && views.dropped > 0 && views.count > 0, "{views:?}");
    db.close()
}

#[test]
fn a_cursor_that_was_made_before_the_view_uses_it_at_its_next_seek_and_keeps_what_it_shows() -> Result<()> {
    let db = open(8 << 20)?;
    let keyspace = db.keyspace("k", many_runs())?;
    let mut model = Model::new();
    (0..3).try_for_each(|round| fill(&keyspace, &mut model, round))?;
    let mut cursor = keyspace.cursor();
    let keys: Vec<_> = model.keys().cloned().collect();
    cursor.seek(&keys[100])?;
    keyspace.flush()?;
    assert!(db.stats().views.count > 0);
    // In the middle of a merge: nothing changes under it.
    for key in &keys[100..200] {
        assert_eq!(cursor.key(), &key[..]);
        cursor.next()?;
    }
    let bytes = db.stats().cache.bytes_read;
    for key in keys.iter().step_by(50) {
        cursor.seek(key)?;
        assert_eq!((cursor.key(), cursor.value()), (&key[..], &model[key][..]));
    }
    assert!(db.stats().cache.bytes_read > bytes);
    // The guards change, and their views go; the cursor has both still.
    let old = model.clone();
    fill(&keyspace, &mut model, 7)?;
    keyspace.compact()?;
    for key in keys.iter().rev().step_by(50) {
        cursor.seek(key)?;
        assert_eq!((cursor.key(), cursor.value()), (&key[..], &old[key][..]));
    }
    compare(&keyspace, &model)?;
    drop(cursor);
    db.close()
}
