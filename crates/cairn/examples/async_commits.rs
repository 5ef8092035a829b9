//! Durable writes of many tasks: awaited, beside one blocked thread for each task.
//!
//! `cargo run --release -p cairn-kv --example async_commits -- [TASKS [WRITES [ROUNDS [DIRECTORY [transactions]]]]]` prints the rates of both, in turns, and
//! their medians; with `transactions` of transactions that read a key and write it. The runtime has two threads; with the thread that commits there are three. Blocking takes as many threads as tasks.

use cairn::{Batch, Database, Durability, Keyspace, KeyspaceOptions, Transaction};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Clone, Copy, Debug)]
enum Way {
    Awaited,
    Blocking,
}

fn main() -> Result<()> {
    let argument = |n: usize, default: u32| match std::env::args().nth(n) {
        Some(text) => text.parse(),
        None => Ok(default),
    };
    let (tasks, writes, rounds) = (argument(1, 64)?, argument(2, 50)?, argument(3, 1)?);
    let dir = match std::env::args().nth(4) {
        Some(parent) => tempfile::tempdir_in(parent)?,
        None => tempfile::tempdir()?,
    };
    let in_transactions = std::env::args().nth(5).is_some_and(|what| what == "transactions");
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for way in if round % 2 == 0 { [Way::Awaited, Way::Blocking] } else { [Way::Blocking, Way::Awaited] }
        {
            let path = dir.path().join(format!("{round}-{way:?}"));
            let db = Database::open(&path)?;
            let keyspace = db.keyspace("default", KeyspaceOptions::default())?;
            let rate = run(way, &db, &keyspace, (tasks, writes), in_transactions)?;
            let syncs = db.stats().log.syncs;
            println!("{way:?}: {rate:.0} writes a second, {syncs} syncs for {}", tasks * writes);
            rates[way as usize].push(rate);
            drop(keyspace);
            db.close()?;
            std::fs::remove_dir_all(path)?;
        }
    }
    let [awaited, blocking] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!("medians: awaited {awaited:.0}, blocking {blocking:.0}, ratio {:.2}", awaited / blocking);
    Ok(())
}

/// Runs `tasks` tasks of `writes` durable writes each. Returns how many there were a second.
fn run(
    way: Way,
    db: &Database,
    keyspace: &Keyspace,
    (tasks, writes): (u32, u32),
    in_transactions: bool,
) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(tasks as usize)
        .build()?;
    let batch = move |keyspace: &Keyspace, task: u32, n: u32| {
        let mut batch = Batch::default();
        batch.put(keyspace, (task * writes + n).to_be_bytes(), [7; 100]);
        batch
    };
    let transaction = |db: &Database, keyspace: &Keyspace, task: u32| -> cairn::Result<Transaction> {
        let (mut transaction, key) = (db.begin(), task.to_be_bytes());
        transaction.get(keyspace, key)?;
        transaction.put(keyspace, key, [7; 100])?;
        Ok(transaction)
    };
    let begun = Instant::now();
    runtime.block_on(async {
        let mut running = Vec::new();
        for task in 0..tasks {
            let (db, keyspace) = (db.clone(), keyspace.clone());
            running.push(match way {
                Way::Awaited => tokio::spawn(async move {
                    for n in 0..writes {
                        match in_transactions {
                            true => transaction(&db, &keyspace, task)?.commit_async(Durability::Sync).await?,
                            false => db.write_async(batch(&keyspace, task, n), Durability::Sync).await?,
                        }
                    }
                    Ok::<(), cairn::Error>(())
                }),
                Way::Blocking => tokio::task::spawn_blocking(move || {
                    (0..writes).try_for_each(|n| match in_transactions {
                        true => transaction(&db, &keyspace, task)?.commit_with(Durability::Sync),
                        false => db.write(batch(&keyspace, task, n), Durability::Sync),
                    })
                }),
            });
        }
        for task in running {
            task.await??;
        }
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    Ok(f64::from(tasks * writes) / begun.elapsed().as_secs_f64())
}
