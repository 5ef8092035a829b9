//! Keys, values, batches, names and keyspaces of maximum size and number, and beyond.

use crate::finding::{Finding, Outcome, ensure};
use crate::ordering::{has_order, sorted_entries};
use crate::random::{Draw, Rng};
use crate::sets::PLACEMENTS;
use cairn::limits::{MAX_KEY_LEN, MAX_KEYSPACE_NAME_LEN, MAX_VALUE_LEN};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Preset};
use std::path::Path;

fn refused<T>(what: &str, result: cairn::Result<T>) -> Outcome {
    match result {
        Err(e) if e.kind() == ErrorKind::InvalidArgument => Ok(()),
        Err(e) => Err(Finding::from(e).context(what)),
        Ok(_) => Err(Finding::new(format!("{what} is not refused"))),
    }
}

fn check(db: &Database) -> Outcome {
    let report = db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "P3: check finds {:?}", report.problems);
    Ok(())
}

/// Many keyspaces, each with a record. Half of them get another record after a reopen, and some are dropped.
pub fn keyspaces(dir: &Path, many: u64) -> Outcome<u64> {
    let name = |number: u64| format!("keyspace-{number:06}");
    let value = |number: u64, version: u64| format!("{number}.{version}");
    let db = Database::open(dir)?;
    for number in 0..many {
        let space = db.create_keyspace(&name(number), KeyspaceOptions::default());
        let space = space.map_err(|e| Finding::from(e).context(format_args!("keyspace {number}")))?;
        space
            .put("key", value(number, 0))
            .map_err(|e| Finding::from(e).context(format_args!("put {number}")))?;
    }
    db.close()?;
    let db = Database::open(dir).map_err(|e| Finding::from(e).context("opening again"))?;
    ensure!(db.keyspaces().len() as u64 == many, "there are {} keyspaces", db.keyspaces().len());
    let verify = |db: &Database| -> Outcome {
        for number in (0..many).filter(|number| number % 10 != 9) {
            let space = db.open_keyspace(&name(number))?;
            let want = value(number, u64::from(number % 2 == 0));
            ensure!(space.get("key")?.is_some_and(|v| v == want), "P1: keyspace {number} lost its record");
            let both = space.iter().count() == 1 && space.iter().rev().count() == 1;
            ensure!(both, "P3: keyspace {number} does not have one record");
        }
        Ok(())
    };
    for number in 0..many {
        match number % 10 {
            9 => db.drop_keyspace(&name(number))?,
            even if even % 2 == 0 => db.open_keyspace(&name(number))?.put("key", value(number, 1))?,
            _ => {}
        }
    }
    verify(&db)?;
    db.flush()?;
    db.compact()?;
    verify(&db)?;
    check(&db)?;
    db.close()?;
    let db = Database::open(dir).map_err(|e| Finding::from(e).context("opening the last time"))?;
    verify(&db)?;
    db.close()?;
    Ok(0)
}

/// A key of maximum length. Such keys differ only in their last bytes.
fn long_key(number: u64) -> Vec<u8> {
    let mut key = vec![b'k'; MAX_KEY_LEN];
    key[MAX_KEY_LEN - 4..].copy_from_slice(&(number as u32).to_be_bytes());
    key
}

/// Keys of maximum length, with memtables and blocks of all sizes.
pub fn keys(dir: &Path, seed: u64) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let mut tried = 0;
    for (number, (memtable, block)) in
        [(4 << 10, 128), (64 << 10, 4096), (64 << 20, 1 << 20)].into_iter().enumerate()
    {
        let options = Options::default().memory_budget(if number == 0 { 1 << 20 } else { 64 << 20 });
        let dir = dir.join(number.to_string());
        let db = Database::open_with(&dir, options.clone())?;
        let keyspace = KeyspaceOptions::default().memtable_bytes(memtable).block_size(block);
        let space = db.keyspace("k", keyspace.clone())?;
        let mut order: Vec<u64> = (0..60).collect();
        rng.shuffle(&mut order);
        for &number in &order {
            space.put(long_key(number), number.to_string())?;
        }
        let longer = vec![b'k'; MAX_KEY_LEN + 1];
        refused("a put of a longer key", space.put(&longer, "1"))?;
        refused("a delete of a longer key", space.delete(&longer))?;
        let mut batch = db.batch();
        batch.put(&space, "short", "1");
        batch.put(&space, &longer, "1");
        refused("a batch with a longer key", db.write(batch, Durability::Os))?;
        ensure!(
            space.get(&longer)?.is_none() && space.get("short")?.is_none(),
            "P2: it was refused, and is there"
        );
        tried += 3;
        verify_keys(&space, 60).map_err(|f| f.context("in memory"))?;
        db.flush()?;
        verify_keys(&space, 60).map_err(|f| f.context("flushed"))?;
        space.delete_range(long_key(50)..=long_key(59))?;
        space.compact()?;
        verify_keys(&space, 50).map_err(|f| f.context("compacted"))?;
        space.compact_range(long_key(10)..long_key(20))?;
        drop(space);
        db.close()?;
        let db = Database::open_with(&dir, options)?;
        verify_keys(&db.open_keyspace("k")?, 50).map_err(|f| f.context("reopened"))?;
        check(&db)?;
    }
    Ok(tried)
}

fn verify_keys(space: &Keyspace, many: u64) -> Outcome {
    let mut cursor = space.cursor();
    for number in 0..many {
        let value = number.to_string();
        ensure!(space.get(long_key(number))?.is_some_and(|v| v == value), "P1: key {number} is not there");
        cursor.seek(long_key(number))?;
        ensure!(cursor.valid() && cursor.value() == value.as_bytes(), "P3: no seek finds key {number}");
    }
    let (forward, backward) = (space.iter().flatten().count(), space.iter().rev().flatten().count());
    ensure!((forward, backward) == (many as usize, many as usize), "P3: scans give {forward} and {backward}");
    Ok(())
}

/// A value of `len` bytes with this memory budget, and a value that is too long.
pub fn value(dir: &Path, seed: u64, len: usize, budget: u64) -> Outcome<u64> {
    let options = Options::default().memory_budget(budget);
    let mut bytes = vec![0; len];
    let mut rng = Rng::new(seed);
    rng.fill(&mut bytes);
    let db = Database::open_with(dir, options.clone())?;
    let keyspace = match rng.below(4) {
        0 => KeyspaceOptions::preset(Preset::SsTable),
        1 => KeyspaceOptions::preset(Preset::HashLog),
        _ => KeyspaceOptions::default().placement(*rng.pick(&PLACEMENTS)),
    };
    let space = db.keyspace("k", keyspace)?;
    for key in ["a", "c"] {
        space.put(key, "small")?;
    }
    space.put("b", &bytes).map_err(|e| Finding::from(e).context("the longest value"))?;
    let verify = |space: &Keyspace, how: &str| -> Outcome {
        ensure!(
            space.get("b")?.is_some_and(|found| found == bytes),
            "P1: the value is not what it was: {how}"
        );
        let lens = |entries: Vec<(cairn::Slice, cairn::Slice)>| {
            entries.iter().map(|e| e.1.len()).collect::<Vec<_>>()
        };
        let right = [5, len, 5];
        ensure!(lens(sorted_entries(space, None)?) == right, "P3: a scan differs: {how}");
        if has_order(space) {
            let backward = space.iter().rev().collect::<cairn::Result<_>>()?;
            ensure!(lens(backward) == right, "P3: a scan in reverse order differs: {how}");
        }
        Ok(())
    };
    verify(&space, "in memory")?;
    // The zeros are never touched, so they take no memory.
    refused("a put of a longer value", space.put("b", vec![0; MAX_VALUE_LEN + 1]))?;
    db.flush()?;
    verify(&space, "flushed")?;
    space.put("c", "small")?;
    space.compact()?;
    verify(&space, "compacted")?;
    space.put("b", &bytes)?;
    drop(space);
    db.close()?;
    let db = Database::open_with(dir, options)?;
    verify(&db.open_keyspace("k")?, "reopened")?;
    check(&db)?;
    db.close()?;
    eprintln!("at most {} KiB of memory", crate::machine::memory::peak_kib()?);
    Ok(1)
}

/// A batch of almost 1 GiB, and a larger one.
pub fn batch(dir: &Path, seed: u64) -> Outcome<u64> {
    const PARTS: usize = 8;
    let mut part = vec![0; (1 << 30) / PARTS - 1024];
    Rng::new(seed).fill(&mut part);
    let options = Options::default().memory_budget(64 << 20);
    let db = Database::open_with(dir, options.clone())?;
    let space = db.keyspace("k", KeyspaceOptions::default())?;
    let mut batch = db.batch();
    for number in 0..PARTS {
        part[0] = number as u8;
        batch.put(&space, number.to_string(), &part);
    }
    db.write(batch, Durability::Os).map_err(|e| Finding::from(e).context("the largest batch"))?;
    let mut batch = db.batch();
    for number in 0..=PARTS {
        batch.put(&space, format!("more {number}"), &part);
    }
    refused("a larger batch", db.write(batch, Durability::Os))?;
    let verify = |space: &Keyspace| -> Outcome {
        for number in 0..PARTS {
            let found = space.get(number.to_string())?;
            let right =
                found.is_some_and(|v| v.len() == part.len() && v[0] == number as u8 && v[1..] == part[1..]);
            ensure!(right, "P1: part {number} of the batch is not what it was");
        }
        ensure!(space.get("more 0")?.is_none(), "P2: part of a batch that was refused is there");
        Ok(())
    };
    verify(&space)?;
    drop(space);
    db.close()?;
    let db = Database::open_with(dir, options)?;
    verify(&db.open_keyspace("k")?)?;
    db.compact()?;
    verify(&db.open_keyspace("k")?)?;
    db.close()?;
    eprintln!("at most {} KiB of memory", crate::machine::memory::peak_kib()?);
    Ok(1)
}

/// Names of maximum length, in several alphabets.
pub fn names(dir: &Path) -> Outcome<u64> {
    let names: Vec<String> = ["n", "\u{e9}", "\u{20ac}", "\u{1f3d4}", "\0", "/", "."]
        .iter()
        .map(|text| text.repeat(MAX_KEYSPACE_NAME_LEN / text.len()))
        .chain(["..".to_owned(), " ".to_owned()])
        .collect();
    let db = Database::open(dir)?;
    for name in &names {
        db.create_keyspace(name, KeyspaceOptions::default())?.put("name", name)?;
    }
    let longer = "n".repeat(MAX_KEYSPACE_NAME_LEN + 1);
    for name in ["", &longer] {
        refused("a name", db.create_keyspace(name, KeyspaceOptions::default()))?;
    }
    db.flush()?;
    db.close()?;
    let db = Database::open(dir)?;
    for name in &names {
        let value = db.open_keyspace(name)?.get("name")?;
        ensure!(value.is_some_and(|v| v == name.as_bytes()), "P1: keyspace {name:?} lost its record");
    }
    check(&db)?;
    Ok(2)
}
