//! Seats of a theatre, sold by several threads at once: a transaction finds free seats next to each other, and takes them, unless another one was
//! faster. Then a waiting list, with single steps on one key.
//!
//! `cargo run -p cairn-kv --example transactions`

use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Result, TransactionOptions};
use std::sync::atomic::{AtomicU32, Ordering};

const ROWS: u8 = 6;
const SEATS: u8 = 10;

/// Keys are the row and the number of the seat.
fn open_seats(seats: &Keyspace) -> Result<()> {
    for row in 0..ROWS {
        for seat in 0..SEATS {
            seats.put([row, seat], "")?;
        }
    }
    Ok(())
}

/// Takes `count` seats next to each other in one row. Returns the first of them; `None` when there are none.
fn sell(db: &Database, seats: &Keyspace, guest: &str, count: u8) -> Result<Option<[u8; 2]>> {
    // What was sold survives a power cut.
    let options = TransactionOptions::default().durability(Durability::Sync);
    db.transaction_with(&options, |tx| {
        let mut found = None;
        for row in 0..ROWS {
            let mut free = 0;
            for entry in tx.prefix(seats, [row]) {
                let (key, guest) = entry?;
                free = if guest.is_empty() { free + 1 } else { 0 };
                if free == count {
                    found = Some([row, key[1] + 1 - count]);
                    break;
                }
            }
            if found.is_some() {
                break;
            }
        }
        let Some([row, first]) = found else { return Ok(None) };
        for seat in first..first + count {
            tx.put(seats, [row, seat], guest)?;
        }
        Ok(found)
    })
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("cairn-transactions-{}", std::process::id()));
    let db = Database::open(&dir)?;
    let seats = db.keyspace("seats", KeyspaceOptions::default())?;
    open_seats(&seats)?;

    let sold = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let offices: Vec<_> = (0..4)
            .map(|office| {
                let (db, seats, sold) = (&db, &seats, &sold);
                scope.spawn(move || -> Result<()> {
                    let mut number = 0;
                    while sell(db, seats, &format!("guest {office}/{number}"), 3)?.is_some() {
                        number += 1;
                        sold.fetch_add(3, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        offices.into_iter().try_for_each(|office| office.join().expect("no office panics"))
    })?;
    let taken = seats.iter().filter(|entry| entry.as_ref().is_ok_and(|(_, guest)| !guest.is_empty()));
    let taken = taken.count() as u32;
    println!("sold {} of {} seats, three at a time", taken, u32::from(ROWS) * u32::from(SEATS));
    // No seat was sold twice, and three of each ten are left over.
    assert_eq!(taken, sold.into_inner());
    assert_eq!(taken, u32::from(ROWS) * 9);

    // A transaction that the program holds, and commits itself.
    let mut tx = db.begin();
    assert_eq!(tx.get(&seats, [0, 9])?.unwrap(), "");
    seats.put([0, 9], "somebody at the door")?;
    tx.put(&seats, [0, 9], "a friend")?;
    let refused = tx.commit().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    println!("refused: {refused}");

    // Steps on one key need no transaction.
    let waiting = db.keyspace("waiting", KeyspaceOptions::default())?;
    assert!(waiting.put_if_absent("Ada", "1")?.is_none());
    waiting.fetch_update("Ada", |seats| seats.map(|_| "2"))?;
    assert!(waiting.compare_and_swap("Ada", Some("2"), None::<&str>)?.is_ok());
    db.close()?;
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
    Ok(())
}
