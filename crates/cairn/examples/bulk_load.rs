//! Loading much at once: in order, in any order, from several threads and from files made elsewhere, and what that costs.
//!
//! `cargo run --release -p cairn-kv --example bulk_load`

use cairn::{Database, Ingest, IngestOptions, KeyspaceOptions, Result, TableBuilder};

const THREADS: u64 = 4;
const RECORDS: u64 = 400_000;

/// Numbers that look random and never repeat.
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ n >> 29
}

/// The example.
pub fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("cairn-bulk-{}", std::process::id()));
    let db = Database::open(dir.join("db"))?;
    let records = db.keyspace("records", KeyspaceOptions::default())?;
    let by_name = db.keyspace("by-name", KeyspaceOptions::default())?;

    // Keys that ascend: four threads, each with its range, and one commit.
    let load_range = |thread: u64| -> Result<Ingest> {
        let mut load = db.ingest(IngestOptions::default());
        for n in RECORDS / THREADS * thread..RECORDS / THREADS * (thread + 1) {
            load.put(&records, n.to_be_bytes(), [n as u8; 100])?;
        }
        Ok(load)
    };
    let mut load = db.ingest(IngestOptions::default());
    std::thread::scope(|scope| {
        let load_range = &load_range;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || load_range(thread))).collect();
        threads.into_iter().try_for_each(|thread| load.join(thread.join().expect("no thread panics")?))
    })?;
    assert!(records.is_empty()?, "nothing is visible before the commit");
    let done = load.commit()?;
    println!("{} records in {} tables, {} bytes", done.entries, done.tables, done.bytes);

    // Keys in any order, sorted with 8 MiB of memory: an index over what was just loaded.
    let mut load = db.ingest(IngestOptions::default().unsorted(8 << 20));
    for n in 0..RECORDS {
        load.put(&by_name, format!("{:016x}", mix(n)), n.to_be_bytes())?;
    }
    load.commit()?;

    // A file that another process could have made, on another machine.
    let file = dir.join("more.tbl");
    let mut table = TableBuilder::create(&file)?;
    for n in RECORDS..RECORDS + 1_000 {
        table.put(n.to_be_bytes(), "from a file")?;
    }
    table.finish()?;
    let mut load = db.ingest(IngestOptions::default());
    load.put_table(&records, &file)?;
    load.commit()?;

    assert_eq!(records.iter().count() as u64, RECORDS + 1_000);
    let n = by_name.get(format!("{:016x}", mix(4711)))?.expect("it was loaded");
    assert_eq!(records.get(n)?.expect("the index says so")[..], [4711_u64 as u8; 100]);

    // All of it lies at the last level, and nothing went through the log.
    let stats = db.stats();
    println!("{stats}");
    assert!(stats.flush.bytes_written == 0 && stats.compaction.bytes_written == 0);

    drop((records, by_name));
    db.close()?;
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    Ok(())
}
