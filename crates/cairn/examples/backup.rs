//! Makes a checkpoint and backups of a database while another thread writes to it, verifies them, and restores each generation.
//!
//! `cargo run -p cairn-kv --example backup`

use cairn::{BackupOptions, Backups, Database, KeyspaceOptions, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Puts between two backups.
const BETWEEN: u64 = 10_000;

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (backup, checkpoint) = (dir.path().join("backup"), dir.path().join("checkpoint"));
    let db = Database::open(dir.path().join("db"))?;
    let numbers = db.keyspace("numbers", KeyspaceOptions::default())?;
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    // What was written before each generation, and before the checkpoint.
    let (before, before_checkpoint) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            for count in 0.. {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                numbers.put(format!("{count:08}"), "written")?;
                written.store(count + 1, Ordering::Release);
            }
            Ok(())
        });
        let copies = || -> Result<(BTreeMap<u64, u64>, u64)> {
            let mut before = BTreeMap::new();
            for n in 1..=5 {
                while written.load(Ordering::Acquire) < n * BETWEEN && !writer.is_finished() {
                    std::thread::yield_now();
                }
                let now = written.load(Ordering::Acquire);
                let generation = db.backup_with(&backup, &BackupOptions::default().keep(3), &mut |_| ())?;
                println!(
                    "generation {}: {} files, {} bytes, {} of them new",
                    generation.number, generation.files, generation.bytes, generation.new_bytes
                );
                before.insert(generation.number, now);
            }
            let now = written.load(Ordering::Acquire);
            let report = db.checkpoint(&checkpoint)?;
            println!(
                "checkpoint: {} files, {} bytes, {} copied",
                report.files, report.bytes, report.copied_bytes
            );
            Ok((before, now))
        };
        let copies = copies();
        stop.store(true, Ordering::Release);
        writer.join().expect("no thread panics")?;
        copies
    })?;
    db.close()?;

    let backups = Backups::open(&backup)?;
    assert!(backups.verify(&mut |_| ())?.is_empty());
    let generations = backups.generations()?;
    assert_eq!(generations.len(), 3);
    for generation in generations {
        let to = dir.path().join(format!("restored {}", generation.number));
        backups.restore(Some(generation.number), &to, &mut |_| ())?;
        println!("generation {}: {} keys", generation.number, count(&to, before[&generation.number])?);
    }
    println!("checkpoint: {} keys", count(&checkpoint, before_checkpoint)?);
    Ok(())
}

/// The number of keys of a copy, which has all that was written before it, and no gap.
fn count(dir: &std::path::Path, before: u64) -> Result<u64> {
    let numbers = Database::open(dir)?.open_keyspace("numbers")?;
    let found = numbers.iter().count() as u64;
    assert!(found >= before, "{found} of {before}");
    assert_eq!(numbers.last()?.expect("it has keys").0, format!("{:08}", found - 1));
    Ok(found)
}
