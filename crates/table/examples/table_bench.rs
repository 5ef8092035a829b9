//! How fast a table is written, scanned, walked and searched, in a temporary directory: one million entries of 16 + 128 bytes by default.
//! `cargo run --release -p cairn-table --example table_bench [none|lz4|zstd] [btree|size_class] [entries] [bytes of a value] [bytes of a key]`
#![allow(missing_docs)]

use base::{Cursor, EntryKind, MAX_SEQ, Trailer};
use env::{Env, RealEnv, Rng};
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::{BlockCache, TableCache, TableOptions, TableWriter};

fn main() {
    let mut args = std::env::args().skip(1);
    let compression = args.next().unwrap_or_else(|| "none".into()).parse().expect("compression");
    let format = args.next().unwrap_or_else(|| "btree".into()).parse().expect("format");
    let mut number = |default: usize| args.next().map_or(default, |n| n.parse().expect("a number"));
    let (count, value_len, key_len) = (number(1_000_000) as u64, number(128), number(16).max(8));
    // A key is zeros, and at its end a number: a multiple of three if it is in the table.
    let (mut key, number_at) = (vec![0; key_len], key_len - 8);
    let set = |key: &mut [u8], number: u64| key[number_at..].copy_from_slice(&number.to_be_bytes());
    let dir = std::env::temp_dir().join(format!("cairn-table-bench-{}", std::process::id()));
    let env: Arc<dyn Env> = RealEnv::new();
    env.create_dir(&dir).expect("temporary directory");
    let options = TableOptions { format, compression, ..TableOptions::default() };

    // Half of each value is noise, half repeats.
    let rng = &mut Rng::new(1);
    let mut noise = vec![0; 1 << 20];
    rng.fill(&mut noise);
    let (mut value, half) = (vec![7; value_len], value_len / 2);

    let mut writer = TableWriter::create(&env, &dir, 1, &options).expect("create");
    let start = Instant::now();
    for i in 0..count {
        let at = (i as usize * half) % ((1 << 20) - half);
        set(&mut key, 3 * i);
        value[..half].copy_from_slice(&noise[at..at + half]);
        writer.add(&key, Trailer::new(1 + (i * 7919) % count, EntryKind::Put), &value).expect("add");
    }
    report("add", count, start.elapsed());
    let start = Instant::now();
    let meta = writer.finish().expect("finish");
    println!("{:>12}: {:?}, {} bytes", "finish", start.elapsed(), meta.file_size);

    let cache = Arc::new(BlockCache::new(2 * meta.file_size));
    let tables = TableCache::new(env, dir.clone(), Arc::clone(&cache), 10);
    let table = tables.open(&meta).expect("open");
    for _ in 0..3 {
        walk("scan", count, key_len + value_len, &mut table.scan());
    }
    walk("cursor, cold", count, key_len + value_len, &mut table.cursor());
    walk("cursor", count, key_len + value_len, &mut table.cursor());

    let gets = 1_000_000;
    for what in ["get", "get"] {
        let start = Instant::now();
        let mut bytes = 0;
        for _ in 0..gets {
            set(&mut key, 3 * rng.below(count));
            bytes += table.get(&key, base::hash(&key), MAX_SEQ).expect("get").expect("present").1.len();
        }
        assert_eq!(bytes, value_len * gets as usize);
        report(what, gets, start.elapsed());
    }
    let start = Instant::now();
    for _ in 0..gets {
        set(&mut key, 3 * rng.below(count) + 1);
        assert!(table.get(&key, base::hash(&key), MAX_SEQ).expect("get").is_none());
    }
    report("get, absent", gets, start.elapsed());
    let start = Instant::now();
    let mut cursor = table.cursor();
    for _ in 0..gets {
        set(&mut key, 3 * rng.below(count));
        cursor.seek(&key, MAX_SEQ).expect("seek");
        assert!(cursor.valid());
    }
    report("seek", gets, start.elapsed());
    println!("{:?}\n{:?}", tables.stats(), cache.stats());
    std::fs::remove_dir_all(&dir).expect("remove the temporary directory");
}

fn walk(what: &str, count: u64, len: usize, cursor: &mut impl Cursor) {
    let start = Instant::now();
    let (mut seen, mut sum) = (0, 0);
    cursor.seek_to_first().expect("seek");
    while cursor.valid() {
        seen += 1;
        sum += cursor.key().len() + cursor.value().len();
        cursor.next().expect("next");
    }
    assert!(seen == count && sum == count as usize * len);
    report(what, count, start.elapsed());
}

fn report(what: &str, count: u64, time: Duration) {
    println!("{what:>12}: {:.1} ns each", time.as_nanos() as f64 / count as f64);
}
