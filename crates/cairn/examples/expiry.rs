//! A cache whose entries live for a moment, and a lease that one of several workers holds.
//!
//! `cargo run -p cairn-kv --example expiry`

use cairn::{Database, ErrorKind, Keyspace, KeyspaceOptions, Result, Ttl};
use std::time::Duration;

/// A worker takes the lease or renews it, unless another one holds it: one that has not renewed it in time does not.
fn take_lease(db: &Database, leases: &Keyspace, worker: &str, time: Duration) -> Result<bool> {
    db.transaction(|tx| {
        let is_free = tx.get(leases, "writer")?.is_none_or(|holder| holder == worker.as_bytes());
        if is_free {
            tx.put_with_ttl(leases, "writer", worker, time)?;
        }
        Ok(is_free)
    })
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(dir.path())?;

    let moment = Duration::from_secs(1);
    let cache = db.keyspace("cache", KeyspaceOptions::default().ttl(Ttl::After(moment)))?;
    for page in 0..1000u32 {
        cache.put(page.to_be_bytes(), format!("page {page}"))?;
    }
    cache.put_with_ttl("front", "kept for an hour", Duration::from_secs(3600))?;
    let snapshot = db.snapshot();
    println!("{} pages are cached", cache.iter().count());

    let leases = db.keyspace("leases", KeyspaceOptions::default())?;
    assert!(take_lease(&db, &leases, "first", moment)?);
    assert!(take_lease(&db, &leases, "first", moment)?, "it renews it");
    assert!(!take_lease(&db, &leases, "second", moment)?);
    // Work that must end while the lease is held: the commit says so if it did not.
    let mut late = db.begin();
    assert!(late.get(&leases, "writer")?.is_some());
    late.put(&leases, "done by", "first")?;

    std::thread::sleep(moment + Duration::from_millis(100));
    assert_eq!(late.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert!(take_lease(&db, &leases, "second", moment)?, "the first one was too late");

    println!("{} is left", cache.iter().count());
    println!("the snapshot still shows {}", snapshot.iter(&cache).count());
    drop(snapshot);
    cache.put("another", "")?;
    cache.compact()?;
    println!("{} entries had expired and were removed", cache.stats().expired_entries);
    db.close()
}
