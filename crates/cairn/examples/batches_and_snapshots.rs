//! Money moves between accounts in batches, while a snapshot adds it up: no reader sees half a transfer, and no crash leaves one.
//!
//! `cargo run -p cairn-kv --example batches_and_snapshots`

use cairn::{Database, Durability, Keyspace, KeyspaceOptions, Snapshot};

/// Accounts, each with this much to begin with.
const ACCOUNTS: u64 = 100;
const START: u64 = 1_000;

fn account(n: u64) -> String {
    format!("account/{n:04}")
}

fn decode(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("balances have eight bytes"))
}

/// What all accounts have together as of `snapshot`.
fn total(snapshot: &Snapshot, accounts: &Keyspace) -> cairn::Result<u64> {
    let mut sum = 0;
    for entry in snapshot.prefix(accounts, "account/") {
        sum += decode(&entry?.1);
    }
    Ok(sum)
}

/// The example.
pub fn main() -> cairn::Result<()> {
    let dir = std::env::temp_dir().join(format!("cairn-batches-{}", std::process::id()));
    let db = Database::open(&dir)?;
    let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
    let journal = db.keyspace("journal", KeyspaceOptions::default())?;

    let mut batch = db.batch();
    for n in 0..ACCOUNTS {
        batch.put(&accounts, account(n), START.to_be_bytes());
    }
    db.write(batch, Durability::Sync)?;
    let before = db.snapshot();

    // One writer moves money and notes it in another keyspace, in the same batch. There are no transactions: a read and the write
    // that depends on it belong to one thread, or under a lock of yours.
    std::thread::scope(|scope| -> cairn::Result<()> {
        let writer = scope.spawn(|| -> cairn::Result<()> {
            for i in 0..5_000u64 {
                let (from, to) = (account(i * 7 % ACCOUNTS), account(i * 13 % ACCOUNTS));
                let have = decode(&accounts.get(&from)?.expect("the account exists"));
                if from == to || have == 0 {
                    continue;
                }
                let theirs = decode(&accounts.get(&to)?.expect("the account exists"));
                let mut batch = db.batch();
                batch.put(&accounts, &from, (have - 1).to_be_bytes());
                batch.put(&accounts, &to, (theirs + 1).to_be_bytes());
                batch.put(&journal, i.to_be_bytes(), format!("{from} -> {to}"));
                db.write(batch, Durability::Os)?;
            }
            Ok(())
        });
        for _ in 0..50 {
            assert_eq!(total(&db.snapshot(), &accounts)?, ACCOUNTS * START);
        }
        writer.join().expect("the writer does not panic")
    })?;

    // The old snapshot still shows what was there when it was taken: every account as it began, and an empty journal.
    assert_eq!(decode(&before.get(&accounts, account(7))?.expect("the account exists")), START);
    assert_eq!(before.iter(&journal).count(), 0);
    println!(
        "{} transfers; the total is still {}",
        journal.iter().count(),
        total(&db.snapshot(), &accounts)?
    );

    drop((before, accounts, journal));
    db.close()?;
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    Ok(())
}
