//! Makes a checkpoint and backups of a database while another thread writes to it, verifies them, and restores each generation.
//!
//! `cargo run -p cairn --example backup`

use cairn::{BackupOptions, Backups, Database, KeyspaceOptions, Result};
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (backup, checkpoint) = (dir.path().join("backup"), dir.path().join("checkpoint"));
    let db = Database::open(dir.path().join("db"))?;
    let numbers = db.keyspace("numbers", KeyspaceOptions::default())?;
    let stop = AtomicBool::new(false);
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<u64> {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                numbers.put(format!("{count:08}"), "written")?;
                count += 1;
            }
            Ok(count)
        });
        let copy = || -> Result<Vec<u64>> {
            let mut counts = Vec::new();
            for _ in 0..5 {
                std::thread::sleep(std::time::Duration::from_millis(50));
                // What is acknowledged now is in the backup.
                counts.push(numbers.approximate_len::<&str>(..)?);
                let generation = db.backup_with(&backup, &BackupOptions { keep: Some(3) }, &mut |_| ())?;
                println!(
                    "generation {}: {} files, {} bytes, {} of them new",
                    generation.number, generation.files, generation.bytes, generation.new_bytes
                );
            }
            let report = db.checkpoint(&checkpoint)?;
            println!(
                "checkpoint: {} files, {} bytes, {} copied",
                report.files, report.bytes, report.copied_bytes
            );
            Ok(counts)
        };
        let counts = copy();
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("no thread panics")?;
        counts
    })?;
    db.close()?;

    let backups = Backups::open(&backup)?;
    assert!(backups.verify(&mut |_| ())?.is_empty());
    for generation in backups.generations()? {
        let to = dir.path().join(format!("restored {}", generation.number));
        backups.restore(Some(generation.number), &to, &mut |_| ())?;
        let restored = Database::open(to)?.open_keyspace("numbers")?;
        // The keys of a moment have no gap.
        let (found, last) = (restored.iter().count() as u64, restored.last()?.expect("it has keys").0);
        assert_eq!(last, format!("{:08}", found - 1));
        println!("generation {}: {found} keys", generation.number);
    }
    assert_eq!(backups.generations()?.len(), 3);
    let copy = Database::open(checkpoint)?.open_keyspace("numbers")?;
    let found = copy.iter().count() as u64;
    assert!(found > *counts.last().expect("five backups") / 2, "{found}");
    println!("checkpoint: {found} keys");
    Ok(())
}
