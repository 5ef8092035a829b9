//! Peak memory while a large value or batch is written.

use crate::{alone, peak_of, with_max_len};
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::path::Path;

const LEN: usize = 64 << 20;
/// An allowance for memory that does not depend on the size of the write.
const SMALL: usize = 2 << 20;

#[test]
fn a_large_value_or_batch_is_copied_once() -> cairn::Result<()> {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().background_threads(0).memory_budget(64 << 20);
    let db = Database::open_with(dir.path(), options)?;
    let ks = db.keyspace("k", KeyspaceOptions::default().memtable_bytes(1 << 20))?;
    for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
        ks.put("small", "1")?;
        let value = vec![7; LEN];
        ks.flush()?;
        let (peak, put) = peak_of(|| ks.put_with("large", &value, durability));
        put?;
        // The copy is in the memtable.
        let copied = db.stats().memory.memtables as usize;
        println!("a value of {LEN} bytes: {copied} bytes in the memtable, {peak} bytes beside it");
        assert!(copied + peak <= LEN + SMALL, "a value of {LEN} bytes takes {copied} + {peak} bytes");
        ks.flush()?;
    }
    for len in [100_000, 1000] {
        ks.flush()?;
        let value = vec![7; len];
        let (peak, batch) = peak_of(|| {
            let mut batch = db.batch();
            for i in 0..(LEN / len) as u64 {
                batch.put(&ks, i.to_be_bytes(), &value);
            }
            batch
        });
        println!("a batch of {} bytes: {peak} bytes", batch.byte_len());
        // A batch that grows is copied to a buffer that is larger by a fourth.
        assert!(peak <= 9 * (LEN / 4) + SMALL, "a batch of {LEN} bytes takes {peak} bytes");
        let (peak, written) = peak_of(|| db.write(batch, Durability::Os));
        written?;
        let copied = db.stats().memory.memtables as usize;
        println!("writing it: {copied} bytes in the memtable, {peak} bytes beside it");
        assert!(peak <= SMALL, "writing a batch of {LEN} bytes takes {peak} bytes beside the memtable");
        assert!(copied <= LEN + (LEN / len) * 128 + SMALL, "a batch of {LEN} bytes takes {copied} bytes");
    }
    ks.flush()?;
    assert_eq!(ks.get("large")?.unwrap().len(), LEN);
    drop(ks);
    db.close()?;
    where_there_is_no_memory_nothing_is_written(dir.path())
}

fn where_there_is_no_memory_nothing_is_written(dir: &Path) -> cairn::Result<()> {
    let open = || -> cairn::Result<_> {
        let db = Database::open_with(dir, Options::default().background_threads(0))?;
        Ok((db.open_keyspace("k")?, db))
    };
    let (ks, db) = open()?;
    ks.put("large", "old")?;
    let value = vec![7; 2 << 20];
    let mut batch = db.batch();
    batch.put(&ks, "other", "new");
    batch.put(&ks, "large", &value);
    let mut long = db.batch();
    let refused = with_max_len(1 << 20, || {
        long.put(&ks, "large", &value);
        [ks.put("large", &value), db.write(batch, Durability::Os), db.write(long, Durability::Os)]
    });
    for error in refused.map(Result::unwrap_err) {
        assert!(error.kind() == ErrorKind::Io && error.to_string().contains("memory for a "), "{error}");
    }
    let check = |ks: &Keyspace| -> cairn::Result<()> {
        assert_eq!((&*ks.get("large")?.unwrap(), ks.get("other")?.is_some()), (&b"old"[..], false));
        Ok(())
    };
    check(&ks)?;
    drop(ks);
    db.close()?;
    let (ks, _db) = open()?;
    check(&ks)?;
    ks.put("large", &value)?;
    assert_eq!(ks.get("large")?.unwrap().len(), value.len());
    Ok(())
}
