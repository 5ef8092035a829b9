//! Keyspaces that change: other options, other names, and clones, with what each call takes.
//!
//! `cargo run --release -p cairn-kv --example keyspaces` (an argument: the number of entries)

use cairn::{Compression, Database, KeyspaceOptions, Result};
use std::path::Path;
use std::time::Instant;

/// Runs a step, and says how long it took and how much disk space the database takes then.
fn step<T>(dir: &Path, what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let done = run()?;
    let elapsed = begun.elapsed();
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    println!("{what:<44} {elapsed:>12.1?}   {:>8.1} MiB", bytes as f64 / (1 << 20) as f64);
    Ok(done)
}

/// The example.
pub fn main() -> Result<()> {
    let entries = std::env::args().nth(1).map_or(100_000, |n| n.parse().expect("a number of entries"));
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let dir = temporary.path().join("db");
    let db = Database::open(&dir)?;
    let plain = KeyspaceOptions::default().compression(Compression::None);
    let orders = db.keyspace("orders", plain)?;
    let put = |n: u64| {
        orders.put(format!("order/{n:09}"), format!("two pizzas, number {n}, {}", "to go ".repeat(10)))
    };
    step(&dir, "puts, and a flush", || (0..entries).try_for_each(put).and_then(|()| db.flush()))?;

    let trial = step(&dir, "a clone", || db.clone_keyspace("orders", "trial"))?;
    step(&dir, "half of the clone deleted", || trial.delete_range(format!("order/{:09}", entries / 2)..))?;
    assert_eq!((trial.iter().count() as u64, orders.iter().count() as u64), (entries / 2, entries));
    step(&dir, "the clone compacted", || trial.compact())?;
    step(&dir, "the clone dropped", || db.drop_keyspace("trial"))?;

    step(&dir, "other options", || orders.alter(|options| options.compression(Compression::Zstd)))?;
    step(&dir, "the tables written anew", || orders.rewrite())?;
    step(&dir, "another name", || db.rename_keyspace("orders", "archive"))?;
    assert_eq!(db.keyspaces(), ["archive"]);
    db.close()
}
