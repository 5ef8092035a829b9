//! The crash part of the demonstration: a ledger whose content is determined by the number of its entries.
//!
//! A separate process writes the ledger. Entry *n* is one batch: a record in the keyspace `ledger` and one in
//! `ledger-index`. After the batch is acknowledged, the writer sends *n* through the pipe on its standard output. The
//! parent kills the writer, reads the pipe to its end, opens the database and verifies:
//!
//! - it has every entry up to the last number in the pipe, with the right bytes, in both keyspaces;
//! - it may have one more entry, written when the process was killed: in both keyspaces or in neither;
//! - it has no other entries.

use super::setup::{Random, open, small_scale};
use crate::failure::{Failure, Result};
use cairn::{Database, Durability};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long to wait for the first acknowledgement.
const FIRST_ACK_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of entries after which the writer stops by itself.
const MAX_ENTRIES: u64 = 2_000_000;

fn key(round: u64, n: u64) -> String {
    format!("{round:04}/{n:012}")
}

/// A value of 16 to 400 bytes, determined by the round and the number.
fn value(round: u64, n: u64) -> Vec<u8> {
    let mut random = Random(round << 40 ^ n);
    let words = 2 + random.below(49);
    (0..words).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// The writer: writes one entry after the other until it is killed or the pipe is closed.
pub fn write_until_killed(dir: &Path, round: u64) -> Result<()> {
    let db = open(dir)?;
    let ledger = db.keyspace("ledger", small_scale())?;
    let index = db.keyspace("ledger-index", small_scale())?;
    let mut acknowledge = std::io::stdout().lock();
    for n in 0..MAX_ENTRIES {
        let key = key(round, n);
        let mut batch = db.batch();
        batch.put(&ledger, &key, value(round, n));
        batch.put(&index, n.to_be_bytes(), &key);
        db.write(batch, Durability::Os)?;
        acknowledge.write_all(&n.to_le_bytes())?;
        acknowledge.flush()?;
    }
    Ok(db.close()?)
}

/// The state of a killed writer.
pub struct Crash {
    /// Its process id.
    pub process: u32,
    /// Number of entries that it acknowledged.
    pub acknowledged: u64,
}

/// Starts a writer and kills it after it has been writing for `delay`.
pub fn crash(dir: &Path, round: u64, delay: Duration) -> Result<Crash> {
    let program =
        std::env::current_exe().map_err(|e| Failure::file("find", Path::new("this program"), &e))?;
    let mut child = Command::new(&program)
        .arg("demo")
        .arg("--db")
        .arg(dir)
        .args(["--writer", &round.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Failure::file("start", &program, &e))?;
    let count = Arc::new(AtomicU64::new(0));
    let reader = {
        let (count, pipe) = (count.clone(), child.stdout.take().expect("the pipe was asked for"));
        std::thread::spawn(move || read_acknowledgements(pipe, &count))
    };
    let waited = wait_for_first(&mut child, &count);
    if waited.is_ok() {
        std::thread::sleep(delay);
    }
    // Kills the child by its handle. The child is not reaped yet, so its process id is still valid.
    let killed = child.kill().and_then(|()| child.wait());
    let in_order = reader.join().map_err(|_| Failure::damage("the reader of acknowledgements panicked"))?;
    waited?;
    killed.map_err(|e| Failure::file("kill", &program, &e))?;
    if !in_order {
        return Err(Failure::damage("acknowledgements came out of order"));
    }
    Ok(Crash { process: child.id(), acknowledged: count.load(Ordering::Acquire) })
}

/// Counts acknowledgements up to the end of the pipe. Returns whether they came in order.
fn read_acknowledgements(mut pipe: impl Read, count: &AtomicU64) -> bool {
    let mut number = [0u8; 8];
    while pipe.read_exact(&mut number).is_ok() {
        if u64::from_le_bytes(number) != count.fetch_add(1, Ordering::AcqRel) {
            return false;
        }
    }
    true
}

fn wait_for_first(child: &mut Child, count: &AtomicU64) -> Result<()> {
    let started = Instant::now();
    while count.load(Ordering::Acquire) == 0 {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(Failure::damage(format!("the writing process ended by itself: {status}")));
        }
        if started.elapsed() > FIRST_ACK_TIMEOUT {
            return Err(Failure::damage("the writing process acknowledged nothing"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Compares the content with the acknowledgements of this round. Returns the number of entries.
pub fn verify(db: &Database, round: u64, acknowledged: u64) -> Result<u64> {
    let (ledger, index) = (db.open_keyspace("ledger")?, db.open_keyspace("ledger-index")?);
    let mut found = 0;
    for entry in ledger.prefix(format!("{round:04}/")) {
        let (stored_key, stored) = entry?;
        let expected = key(round, found);
        if stored_key != expected {
            return Err(Failure::damage(format!("entry {expected} of the ledger is missing")));
        }
        if stored != value(round, found) {
            return Err(Failure::damage(format!("entry {expected} of the ledger has other bytes")));
        }
        if index.get(found.to_be_bytes())?.as_deref() != Some(expected.as_bytes()) {
            return Err(Failure::damage(format!("half of the batch of entry {expected} is missing")));
        }
        found += 1;
    }
    let next = index.get(found.to_be_bytes())?;
    if next.as_deref() == Some(key(round, found).as_bytes()) {
        return Err(Failure::damage(format!("half of the batch of entry {} is there", key(round, found))));
    }
    if found < acknowledged || found > acknowledged + 1 {
        return Err(Failure::damage(format!("{acknowledged} entries were acknowledged, {found} are there")));
    }
    Ok(found)
}
