//! A durable work queue: jobs in, in order; taken by moving them to another keyspace; done by deleting them. A job that was
//! taken and not done when the process died is put back when it starts again.
//!
//! `cargo run -p cairn-kv --example queue`

use cairn::{Database, Durability, Keyspace, KeyspaceOptions, Result, Slice};
use std::path::Path;

/// A queue for one process; wrap it in a mutex to share it between threads.
struct Queue {
    db: Database,
    waiting: Keyspace,
    taken: Keyspace,
    /// The number of the next job. Keys are these numbers, big-endian: so their order is the order of the jobs.
    next: u64,
}

impl Queue {
    fn open(dir: &Path) -> Result<Queue> {
        let db = Database::open(dir)?;
        // Everything that goes through a queue is deleted again: a small memtable, and tombstones that are compacted away early.
        let options = KeyspaceOptions::default().memtable_bytes(4 << 20).tombstone_percent(25);
        let waiting = db.keyspace("waiting", options.clone())?;
        let taken = db.keyspace("taken", options)?;
        // What was taken and never done goes back, all at once.
        let mut batch = db.batch();
        for entry in taken.iter() {
            let (key, job) = entry?;
            batch.put(&waiting, &key, &job);
            batch.delete(&taken, &key);
        }
        db.write(batch, Durability::Sync)?;
        let newest = waiting.iter().next_back().transpose()?;
        let next = newest
            .map_or(0, |(key, _)| u64::from_be_bytes(key[..].try_into().expect("keys have eight bytes")) + 1);
        Ok(Queue { db, waiting, taken, next })
    }

    /// Adds a job. It survives a power cut when this returns.
    fn push(&mut self, job: &str) -> Result<()> {
        self.waiting.put_with(self.next.to_be_bytes(), job, Durability::Sync)?;
        self.next += 1;
        Ok(())
    }

    /// Takes the oldest job. However many were taken before: what is left of them is passed over once, and then left out.
    fn take(&mut self) -> Result<Option<(Slice, Slice)>> {
        let Some((key, job)) = self.waiting.iter().next().transpose()? else { return Ok(None) };
        let mut batch = self.db.batch();
        batch.delete(&self.waiting, &key);
        batch.put(&self.taken, &key, &job);
        self.db.write(batch, Durability::Os)?;
        Ok(Some((key, job)))
    }

    fn done(&mut self, key: &[u8]) -> Result<()> {
        self.taken.delete_with(key, Durability::Os)
    }
}

/// The example.
pub fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("cairn-queue-{}", std::process::id()));
    {
        let mut queue = Queue::open(&dir)?;
        for n in 0..10 {
            queue.push(&format!("job {n}"))?;
        }
        for _ in 0..3 {
            let (key, job) = queue.take()?.expect("ten are waiting");
            println!("doing {job:?}");
            queue.done(&key)?;
        }
        // Taken, and then the process ends.
        let (_, job) = queue.take()?.expect("seven are waiting");
        assert_eq!(job, "job 3");
    }

    let mut queue = Queue::open(&dir)?;
    let mut left = Vec::new();
    while let Some((key, job)) = queue.take()? {
        left.push(String::from_utf8_lossy(&job).into_owned());
        queue.done(&key)?;
    }
    assert_eq!(left, (3..10).map(|n| format!("job {n}")).collect::<Vec<_>>());
    println!("after the restart: {}", left.join(", "));

    drop(queue);
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    Ok(())
}
