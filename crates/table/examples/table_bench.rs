//! How fast a table is written, scanned, walked and searched: one million entries of 16 + 128 bytes, in a temporary
//! directory. `cargo run --release -p cairn-table --example table_bench [none|lz4|zstd] [entries]`
#![allow(missing_docs)]

use base::{Cursor, EntryKind, MAX_SEQ, Trailer};
use env::{Env, RealEnv, Rng};
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::{BlockCache, TableCache, TableOptions, TableWriter};

fn main() {
    let mut args = std::env::args().skip(1);
    let compression = args.next().unwrap_or_else(|| "none".into()).parse().expect("compression");
    let count: u64 = args.next().map_or(1_000_000, |n| n.parse().expect("number of entries"));
    let dir = std::env::temp_dir().join(format!("cairn-table-bench-{}", std::process::id()));
    let env: Arc<dyn Env> = RealEnv::new();
    env.create_dir(&dir).expect("temporary directory");
    let options = TableOptions { compression, ..TableOptions::default() };

    // Half of each value is noise, half repeats.
    let rng = &mut Rng::new(1);
    let mut noise = vec![0; 1 << 20];
    rng.fill(&mut noise);
    let mut value = [7; 128];

    let mut writer = TableWriter::create(&env, &dir, 1, &options).expect("create");
    let start = Instant::now();
    for i in 0..count {
        let at = (i * 64 % ((1 << 20) - 64)) as usize;
        value[..64].copy_from_slice(&noise[at..at + 64]);
        writer.add(&key(i), Trailer::new(1 + (i * 7919) % count, EntryKind::Put), &value).expect("add");
    }
    report("add", count, start.elapsed());
    let start = Instant::now();
    let meta = writer.finish().expect("finish");
    println!("{:>12}: {:?}, {} bytes", "finish", start.elapsed(), meta.file_size);

    let cache = Arc::new(BlockCache::new(2 * meta.file_size));
    let tables = TableCache::new(env, dir.clone(), Arc::clone(&cache), 10);
    let table = tables.open(1, meta.file_size).expect("open");
    for _ in 0..3 {
        walk("scan", count, &mut table.scan());
    }
    walk("cursor, cold", count, &mut table.cursor());
    walk("cursor", count, &mut table.cursor());

    let gets = 1_000_000;
    for what in ["get", "get"] {
        let start = Instant::now();
        let mut bytes = 0;
        for _ in 0..gets {
            let key = key(rng.below(count));
            bytes += table.get(&key, base::hash(&key), MAX_SEQ).expect("get").expect("present").1.len();
        }
        assert_eq!(bytes, 128 * gets as usize);
        report(what, gets, start.elapsed());
    }
    let start = Instant::now();
    for _ in 0..gets {
        let key = (1u128 << 64 | u128::from(rng.below(count))).to_be_bytes();
        assert!(table.get(&key, base::hash(&key), MAX_SEQ).expect("get").is_none());
    }
    report("get, absent", gets, start.elapsed());
    let start = Instant::now();
    let mut cursor = table.cursor();
    for _ in 0..gets {
        cursor.seek(&key(rng.below(count)), MAX_SEQ).expect("seek");
        assert!(cursor.valid());
    }
    report("seek", gets, start.elapsed());
    println!("{:?}\n{:?}", tables.stats(), cache.stats());
    std::fs::remove_dir_all(&dir).expect("remove the temporary directory");
}

fn key(i: u64) -> [u8; 16] {
    (u128::from(i) * 3).to_be_bytes()
}

fn walk(what: &str, count: u64, cursor: &mut impl Cursor) {
    let start = Instant::now();
    let (mut seen, mut sum) = (0, 0);
    cursor.seek_to_first().expect("seek");
    while cursor.valid() {
        seen += 1;
        sum += cursor.key().len() + cursor.value().len();
        cursor.next().expect("next");
    }
    assert!(seen == count && sum as u64 == count * 144);
    report(what, count, start.elapsed());
}

fn report(what: &str, count: u64, time: Duration) {
    println!("{what:>12}: {:.1} ns each", time.as_nanos() as f64 / count as f64);
}
