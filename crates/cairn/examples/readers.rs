//! One process writes, and two others read: this program starts itself twice more, with the directory as its argument.
//!
//! `cargo run -p cairn-kv --example readers`

use cairn::{Database, Durability, KeyspaceOptions, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Orders that are written.
const ORDERS: u64 = 20_000;

fn main() -> Result<()> {
    match std::env::args().nth(1) {
        None => write(),
        Some(path) => read(&PathBuf::from(path)),
    }
}

/// Writes orders, each with the number of all orders so far.
fn write() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = Database::open(&path)?;
    let orders = db.keyspace("orders", KeyspaceOptions::default())?;
    let totals = db.keyspace("totals", KeyspaceOptions::default())?;
    let this = std::env::current_exe().expect("this program");
    let readers: Vec<_> =
        (0..2).map(|_| Command::new(&this).arg(&path).spawn().expect("a reader starts")).collect();
    for n in 1..=ORDERS {
        let mut batch = db.batch();
        batch.put(&orders, format!("{n:08}"), "two pizzas");
        batch.put(&totals, "orders", n.to_string());
        // Readers see what the operating system has.
        db.write(batch, Durability::Os)?;
        if n % 5_000 == 0 {
            db.flush()?;
        }
    }
    for mut reader in readers {
        assert!(reader.wait().expect("a reader ends").success());
    }
    // What was kept for them goes within about a second, or here.
    db.wait_idle()?;
    assert_eq!(db.stats().files_for_readers, 0);
    db.close()
}

/// Reads until all orders are there. In each moment the number of orders is that of the same commit.
fn read(path: &Path) -> Result<()> {
    let mut moments = 0;
    let begun = Instant::now();
    let refresh = Database::open_read_only(path)?.auto_refresh(Duration::from_millis(20))?;
    loop {
        let moment = refresh.latest();
        let count = moment.open_keyspace("orders")?.iter().count() as u64;
        let total = moment.open_keyspace("totals")?.get("orders")?;
        let total = total.map_or(0, |total| String::from_utf8_lossy(&total).parse().expect("a number"));
        assert_eq!(count, total);
        moments += 1;
        if total == ORDERS {
            println!("a reader has seen all orders after {:?}, in {moments} looks", begun.elapsed());
            return Ok(());
        }
        assert!(refresh.error().is_none(), "{:?}", refresh.error());
        std::thread::sleep(Duration::from_millis(5));
    }
}
