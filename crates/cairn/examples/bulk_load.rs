//! Loading much at once, from several threads, and watching what it costs.
//!
//! `cargo run --release -p cairn --example bulk_load`

use cairn::{Database, Durability, KeyspaceOptions, Options, Result};

const THREADS: u64 = 4;
const RECORDS: u64 = 400_000;
const BATCH: u64 = 500;

/// Numbers that look random and never repeat.
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ n >> 29
}

/// The example.
pub fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("cairn-bulk-{}", std::process::id()));
    // A crash in the middle of a load means doing it again, so the log need not reach the disk write by write. Batches save the
    // trip through the commit queue for each record.
    let options = Options::default().durability(Durability::Buffered).memory_budget(128 << 20);
    let db = Database::open_with(&dir, options)?;
    let records = db.keyspace("records", KeyspaceOptions::default())?;

    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (db, records) = (&db, &records);
                scope.spawn(move || -> Result<()> {
                    let mut numbers = (t..RECORDS).step_by(THREADS as usize).peekable();
                    while numbers.peek().is_some() {
                        let mut batch = db.batch();
                        for n in numbers.by_ref().take(BATCH as usize) {
                            batch.put(records, mix(n).to_be_bytes(), [n as u8; 100]);
                        }
                        db.write(batch, Durability::Buffered)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|t| t.join().expect("no thread panics"))
    })?;

    // Now make it last, and wait for compaction, so that what follows reads a settled tree.
    db.sync()?;
    db.flush()?;
    db.wait_idle()?;
    assert_eq!(records.iter().count() as u64, RECORDS);
    assert!(records.get(mix(4711).to_be_bytes())?.is_some());

    let stats = db.stats();
    println!("{stats}");
    assert!(stats.write_amplification >= 1.0);

    drop(records);
    db.close()?;
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    Ok(())
}
