//! Failing disks, and files whose checksums are right but whose content is not.

use crate::common::*;
use base::checksum::{Place, checksum};
use base::{Cursor, ErrorKind, MAX_SEQ};
use env::{Env, Fault, Repeat, Rng, SimEnv};
use std::path::Path;
use std::sync::Arc;
use table::{BlockCache, TableCache, TableFormat, TableMeta, TableOptions, TableWriter};

fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = (0..3000u32)
        .map(|i| entry(format!("{i:07}").as_bytes(), u64::from(i) + 1, &[i as u8; 400]))
        .collect();
    sort(&mut entries);
    entries
}

fn of(format: TableFormat) -> TableOptions {
    TableOptions { format, ..TableOptions::default() }
}

fn try_write(
    env: &Arc<dyn Env>,
    format: TableFormat,
    entries: &[Entry],
    abandon: bool,
) -> base::Result<TableMeta> {
    let mut writer = TableWriter::create(env, Path::new(DIR), 1, &of(format))?;
    for (i, e) in entries.iter().enumerate() {
        if let Err(error) = writer.add(&e.key, e.trailer, &e.value) {
            if abandon {
                writer.abandon()?;
            } else {
                // A writer that failed stays failed, even if the disk works again.
                let later = &entries[i + 1];
                let _ = writer.add(&later.key, later.trailer, &later.value);
                assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
            }
            return Err(error);
        }
    }
    writer.finish()
}

#[test]
fn every_failing_write_is_reported_and_leaves_no_table() {
    FORMATS.into_iter().for_each(fail_writes);
}

fn fail_writes(format: TableFormat) {
    let entries = entries();
    let clean = sim();
    let before = clean.0.op_count();
    try_write(&clean.1, format, &entries, false).unwrap();
    let operations = clean.0.op_count() - before;
    assert!(operations >= 5, "create, some appends, sync: {operations}");
    for k in 0..operations {
        for (fault, kind) in [
            (Fault::EIO, ErrorKind::Io),
            (Fault::ENOSPC, ErrorKind::NoSpace),
            (Fault::ShortWrite(100), ErrorKind::Io),
        ] {
            for abandon in [false, true] {
                let (sim, env) = sim();
                sim.fail_op(sim.op_count() + k, fault, Repeat::Once);
                let error = try_write(&env, format, &entries, abandon).unwrap_err();
                // The last operation is the sync, and its failure is final.
                let kind = if k + 1 == operations { ErrorKind::ReadOnly } else { kind };
                assert_eq!(error.kind(), kind, "operation {k}: {error:?}");
                assert!(error.to_string().contains("000001.tbl"), "{error}");
                assert!(!env.exists(&path(1)).unwrap(), "operation {k}: the file was removed");
            }
        }
    }
}

#[test]
fn a_failing_read_is_an_error_until_a_seek_succeeds() {
    FORMATS.into_iter().for_each(fail_a_walk);
}

fn fail_a_walk(format: TableFormat) {
    let (sim, env) = sim();
    let entries = entries();
    let meta = write(&env, 1, &of(format), &entries);
    let table = open(&env, &meta, 0);
    for scan in [false, true] {
        let mut cursor: Box<dyn Cursor> =
            if scan { Box::new(table.scan()) } else { Box::new(table.cursor()) };
        cursor.seek_to_first().unwrap();
        let mut seen = 0;
        // All reads after the next one fail: if a readahead fails, the cursor retries with the one block that it needs.
        sim.fail_op(sim.op_count() + 1, Fault::EIO, Repeat::SameKind);
        let error = loop {
            assert!(cursor.valid(), "the error is not the end");
            assert_eq!(cursor.key(), &entries[seen].key[..]);
            seen += 1;
            if let Err(error) = cursor.next() {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(!cursor.valid());
        assert!(cursor.next().is_err() && cursor.prev().is_err());
        sim.clear_faults();
        assert!(cursor.next().is_err(), "only a seek repairs the cursor");
        if scan {
            cursor.seek_to_first().unwrap();
            (0..seen).for_each(|_| cursor.next().unwrap());
        } else {
            cursor.seek(&entries[seen].key, MAX_SEQ).unwrap();
        }
        assert_eq!(cursor.value(), &entries[seen].value[..]);
    }
}

#[test]
fn open_files_stay_below_their_limit() {
    let (sim, env) = sim();
    let entries = entries();
    let metas: Vec<TableMeta> =
        (1..=30).map(|number| write(&env, number, &TableOptions::default(), &entries[..10])).collect();
    for limit in [0, 1, 3, 29, 100] {
        let tables = TableCache::new(Arc::clone(&env), DIR.into(), Arc::new(BlockCache::new(0)), limit);
        let operations = [0, 1, 2].map(|round| {
            let before = sim.op_count();
            for meta in &metas {
                let table = tables.open(meta).unwrap();
                assert_eq!(table.meta().unwrap(), *meta, "round {round}");
                let open = sim.open_files().0;
                assert!(open <= limit.max(1), "{open} of {limit}");
            }
            sim.op_count() - before
        });
        if limit == 100 {
            assert!(operations[0] >= operations[1] + 30, "the first round opens the files: {operations:?}");
            assert_eq!(operations[1], operations[2]);
        }
    }
}

#[test]
fn when_no_handle_is_left_others_are_closed_and_it_is_tried_once_more() {
    let (sim, env) = sim();
    let entries = entries();
    let metas: Vec<TableMeta> =
        (1..=30).map(|number| write(&env, number, &TableOptions::default(), &entries[..10])).collect();
    let tables = TableCache::new(Arc::clone(&env), DIR.into(), Arc::new(BlockCache::new(0)), 25);
    // The application has most of the descriptors.
    sim.set_max_open_files(12);
    for meta in metas.iter().chain(&metas) {
        let table = tables.open(meta).unwrap();
        assert_eq!(table.meta().unwrap(), *meta);
    }
    let open = sim.open_files().0;
    assert!((1..=12).contains(&open), "{open} are open");
    drop(tables);
    // The application has all of them: opening is an error that names the file, and works later.
    let tables = TableCache::new(Arc::clone(&env), DIR.into(), Arc::new(BlockCache::new(0)), 25);
    sim.set_max_open_files(1);
    let _held = env.open(&Path::new(DIR).join("000001.tbl")).unwrap();
    let error = tables.open(&metas[2]).unwrap().meta().unwrap_err();
    assert!(error.is_too_many_open_files() && error.to_string().contains("000003.tbl"), "{error}");
    sim.set_max_open_files(100);
    assert_eq!(tables.open(&metas[2]).unwrap().meta().unwrap(), metas[2]);
}

#[test]
fn an_unknown_kind_of_entry_is_refused_by_name_and_others_are_read() {
    FORMATS.into_iter().for_each(refuse_unknown_kind);
}

fn refuse_unknown_kind(format: TableFormat) {
    let (_, env) = sim();
    let mut entries =
        vec![entry(b"a", 1, b"known"), entry(b"b", 1, b"from the future"), entry(b"c", 1, b"known")];
    entries[1].trailer = base::Trailer(1 << 8 | 200);
    let meta = write(&env, 1, &of(format), &entries);
    let table = open(&env, &meta, 0);
    let get = |key: &[u8]| table.get(key, base::hash(key), MAX_SEQ);
    assert!(get(b"a").unwrap().is_some() && get(b"c").unwrap().is_some());
    for scan in [false, true] {
        let mut cursor: Box<dyn Cursor> =
            if scan { Box::new(table.scan()) } else { Box::new(table.cursor()) };
        cursor.seek_to_first().unwrap();
        assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(!cursor.valid());
    }
    for error in [get(b"b").unwrap_err(), table.verify(&mut |_| Ok(())).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("000001.tbl") && error.to_string().contains("200"), "{error}");
    }
}

/// Changes the content of a block, and corrects its checksum.
fn forge(rng: &mut Rng, sim: &SimEnv, whole: &[u8], frames: &[(usize, usize, u8)]) {
    let mut bytes = whole.to_vec();
    // Selects the index, filter or properties half of the time, because most blocks are data blocks.
    let last = frames.len() as u64;
    let pick = if rng.chance(1, 2) { rng.below(last) } else { last - 1 - rng.below(last.min(4)) };
    let (at, len, kind) = frames[pick as usize];
    for _ in 0..1 + rng.below(3) {
        // Half of the changes are near the beginning, where the header of a node is.
        let span = if rng.chance(1, 2) { (len as u64 - 8).min(60) } else { len as u64 - 8 };
        let byte = &mut bytes[at + 8 + rng.below(span) as usize];
        *byte = match rng.below(4) {
            0 => 0,
            1 => 0xff,
            2 => byte.wrapping_add(1),
            _ => rng.next_u64() as u8,
        };
    }
    let sum = checksum(Place { file: 1, offset: at as u64, kind }, &bytes[at + 4..at + len]);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(path(1), bytes);
}

#[test]
fn forged_blocks_never_panic_or_loop() {
    for (format, compression) in formats_and_compressions() {
        let (sim, env) = sim();
        let mut small: Vec<Entry> =
            (0..150u32).map(|i| entry(&(i * i).to_be_bytes(), 7, &[i as u8; 30])).collect();
        small.extend((0..20).map(|seq| entry(&[0, 0, 1, 0, 5, 5, 5, 5, 5, 5, 5, 5], 100 + seq, b"long")));
        sort(&mut small);
        let options = TableOptions { format, block_size: 200, compression, ..TableOptions::default() };
        let meta = write(&env, 1, &options, &small);
        let whole = sim.read_file(path(1));
        let frames = frames(&whole, 1);
        let rng = &mut Rng::new(compression as u64);
        let limit = 100 * small.len();
        for _ in 0..5000 {
            forge(rng, &sim, &whole, &frames);
            let table = open(&env, &meta, if rng.chance(1, 2) { 0 } else { 1 << 20 });
            let key = &small[rng.below(small.len() as u64) as usize].key;
            let _ = table.get(key, base::hash(key), rng.below(200));
            let _ = (table.meta().is_ok(), table.verify(&mut |_| Ok(())).is_ok());
            let cursors: [(Box<dyn Cursor>, bool); 2] =
                [(Box::new(table.cursor()), false), (Box::new(table.scan()), true)];
            for (mut cursor, scan) in cursors {
                let forward = scan || rng.chance(1, 2);
                let moved = match rng.below(4) {
                    _ if scan => cursor.seek_to_first(),
                    0 => cursor.seek(key, rng.below(200)),
                    1 => cursor.seek_before(key),
                    _ if forward => cursor.seek_to_first(),
                    _ => cursor.seek_to_last(),
                };
                let mut steps = 0;
                let mut ok = moved.is_ok();
                while ok && cursor.valid() {
                    let _ = (cursor.key().len(), cursor.value().len(), cursor.value_slice().len());
                    ok = if forward { cursor.next().is_ok() } else { cursor.prev().is_ok() };
                    steps += 1;
                    assert!(steps < limit, "{format}, {compression}: a cursor runs in circles");
                }
            }
        }
    }
}
