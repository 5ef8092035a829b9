//! Round trips, tails and failures of segments on a simulated disk.

use base::ErrorKind;
use env::{Env, Fault, Repeat, Rng, SimEnv, Survival};
use record::{
    BLOCK_LEN, CHUNK_HEADER_LEN, MAX_HEADER_LEN, SegmentKind, SegmentReader, SegmentWriter, Span, Tail,
};
use std::path::Path;
use std::sync::Arc;

const NUMBER: u64 = 7;

fn path() -> &'static Path {
    Path::new("/db/000007.log")
}

fn disk() -> (Arc<SimEnv>, Arc<dyn Env>) {
    let sim = SimEnv::new(1);
    sim.create_dir(Path::new("/db")).unwrap();
    (sim.clone(), sim)
}

fn create(env: &Arc<dyn Env>, header: &[u8]) -> SegmentWriter {
    SegmentWriter::create(env, path(), SegmentKind::Wal, NUMBER, header).unwrap()
}

/// Creates a recycled segment. The old one has `len` bytes, and each of its chunks would prove a sync.
fn create_over(env: &Arc<dyn Env>, header: &[u8], len: u64) -> SegmentWriter {
    let (old, old_number) = (Path::new("/db/old"), NUMBER - 1);
    let mut writer = SegmentWriter::create(env, old, SegmentKind::Wal, old_number, b"").unwrap();
    let mut rng = Rng::new(len);
    while writer.len() < len {
        let bytes = record(&mut rng, (writer.len() % 300) as usize);
        writer.append(&[&bytes]).unwrap();
        writer.sync().unwrap();
    }
    writer.trim();
    env.sync_dir(Path::new("/db")).unwrap();
    let mut writer =
        SegmentWriter::create_over(env, old, old_number, path(), NUMBER, header).unwrap().unwrap();
    writer.sync().unwrap();
    env.rename(old, path()).unwrap();
    writer
}

fn open(env: &Arc<dyn Env>) -> base::Result<SegmentReader> {
    SegmentReader::open(env, path(), SegmentKind::Wal, NUMBER, None)
}

struct Content {
    records: Vec<Vec<u8>>,
    spans: Vec<Span>,
    tail: Tail,
    valid_len: u64,
    proven_synced: u64,
}

fn drain(mut reader: SegmentReader) -> base::Result<Content> {
    let (mut records, mut spans, mut buf) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(span) = reader.next(&mut buf)? {
        records.push(buf.clone());
        spans.push(span);
    }
    assert!(reader.next(&mut buf)?.is_none(), "the end stays");
    let tail = reader.tail().expect("it ended");
    Ok(Content { records, spans, tail, valid_len: reader.valid_len(), proven_synced: reader.proven_synced() })
}

fn read(env: &Arc<dyn Env>) -> base::Result<Content> {
    open(env).and_then(drain)
}

fn record(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Lengths at and around the ends of blocks and chunks.
fn edge_lengths() -> Vec<usize> {
    let payload = BLOCK_LEN - CHUNK_HEADER_LEN;
    let mut lengths = vec![0, 1, 2, 10, 160, 1000];
    for base in [payload, 2 * payload, BLOCK_LEN, 3 * BLOCK_LEN] {
        lengths.extend(base - 13..=base + 13);
    }
    lengths
}

#[test]
fn records_of_all_lengths_come_back_in_order() {
    let lengths = edge_lengths();
    for seed in 0..40 {
        let (_, env) = disk();
        let mut rng = Rng::new(seed);
        let header_len = rng.below(MAX_HEADER_LEN as u64 + 1) as usize;
        let header = record(&mut rng, header_len);
        let mut writer = create(&env, &header);
        let (mut records, mut spans) = (Vec::new(), Vec::new());
        for _ in 0..30 {
            let len = match rng.below(3) {
                0 => lengths[rng.below(lengths.len() as u64) as usize],
                1 => rng.below(300) as usize,
                _ => rng.below(40_000) as usize,
            };
            let bytes = record(&mut rng, len);
            let (a, b) = bytes.split_at(rng.below(len as u64 + 1) as usize);
            writer.append(&[a, &[], b]).unwrap();
            spans.push(writer.len());
            records.push(bytes);
            match rng.below(4) {
                0 => writer.flush().unwrap(),
                1 => writer.sync().unwrap(),
                _ => {}
            }
        }
        writer.sync().unwrap();
        assert_eq!((writer.buffered(), writer.synced_len()), (0, writer.len()));
        assert_eq!(env.len(path()).unwrap(), writer.len());

        let reader = open(&env).unwrap();
        assert_eq!(reader.header(), header);
        let content = drain(reader).unwrap();
        assert_eq!(content.records, records);
        assert_eq!(content.spans.iter().map(|s| s.end).collect::<Vec<_>>(), spans);
        assert!(content.spans.windows(2).all(|w| w[0].end <= w[1].start));
        assert_eq!((content.tail, content.valid_len), (Tail::Clean, writer.len()));
        let closed = SegmentReader::open(&env, path(), SegmentKind::Wal, NUMBER, Some(writer.len()));
        assert_eq!(closed.and_then(drain).unwrap().records, records);
    }
}

#[test]
fn each_distance_to_the_end_of_a_block_works() {
    for distance in 0..40 {
        let (_, env) = disk();
        let mut writer = create(&env, b"");
        let filler = BLOCK_LEN - writer.len() as usize - CHUNK_HEADER_LEN - distance;
        let records = [vec![1; filler], vec![2; 5], vec![], vec![3; 20]];
        records.iter().for_each(|r| writer.append(&[r]).unwrap());
        writer.sync().unwrap();
        assert_eq!(read(&env).unwrap().records, records, "distance {distance}");
    }
}

#[test]
#[should_panic(expected = "too long")]
fn a_header_that_is_too_long_is_refused() {
    create(&disk().1, &[0; MAX_HEADER_LEN + 1]);
}

#[test]
fn what_is_too_long_is_refused() {
    let (_, env) = disk();
    let mut writer = create(&env, b"");
    let part = vec![0; 1 << 20];
    let parts = vec![&part[..]; 1025];
    assert_eq!(writer.append(&parts).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(writer.buffered(), 0);
}

#[test]
fn a_closed_segment_must_be_whole() {
    let (sim, env) = disk();
    let mut writer = create(&env, b"");
    let mut ends = Vec::new();
    for i in 0..4u8 {
        writer.append(&[&[i; 100]]).unwrap();
        ends.push(writer.len());
    }
    writer.sync().unwrap();
    let closed = |len| SegmentReader::open(&env, path(), SegmentKind::Wal, NUMBER, Some(len)).and_then(drain);
    assert_eq!(closed(ends[3]).unwrap().records.len(), 4);
    // Bytes behind the closed length are not read.
    assert_eq!(closed(ends[1]).unwrap().records.len(), 2);
    for wrong in [ends[3] + 1, ends[2] + 1, ends[2] + 50, 5] {
        assert_eq!(closed(wrong).err().unwrap().kind(), ErrorKind::Corruption, "{wrong}");
    }
    for len in 0..ends[3] {
        sim.truncate_file(path(), len);
        let error = closed(ends[3]).err().unwrap_or_else(|| panic!("cut at {len}"));
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("/db/000007.log, offset "), "{error}");
        sim.truncate_file(path(), 0);
        let mut bytes = Vec::new();
        rewrite(&mut bytes);
        sim.write_file(path(), bytes);
    }
    fn rewrite(bytes: &mut Vec<u8>) {
        let (sim, env) = disk();
        let mut writer = create(&env, b"");
        (0..4u8).for_each(|i| writer.append(&[&[i; 100]]).unwrap());
        writer.sync().unwrap();
        *bytes = sim.read_file(path());
    }
}

#[test]
fn garbage_and_old_segments_behind_the_end_are_a_torn_tail_and_zeros_are_none() {
    let (sim, env) = disk();
    let mut writer = create(&env, b"");
    (0..3u8).for_each(|i| writer.append(&[&[i; 100]]).unwrap());
    writer.sync().unwrap();
    writer.trim();
    let bytes = sim.read_file(path());

    let (old_sim, old_env) = disk();
    let mut old = SegmentWriter::create(&old_env, path(), SegmentKind::Wal, NUMBER - 1, b"").unwrap();
    for i in 0..900u32 {
        old.append(&[&[i as u8; 100]]).unwrap();
        old.sync().unwrap();
    }
    let recycled = old_sim.read_file(path());
    let mut garbage = vec![0; 100_000];
    Rng::new(3).fill(&mut garbage);

    // Each offset looks like a chunk that proves a sync, near the start of the segment or far behind: many checksums
    // to try.
    let ones = vec![1; 20 << 20];
    for tail in [&ones[..], &[0; 1], &[0; 11], &[0; 100_000], &garbage, &recycled[bytes.len()..]] {
        sim.write_file(path(), [&bytes[..], tail].concat());
        let content = read(&env).unwrap();
        assert_eq!(content.records.len(), 3);
        let end = bytes.len() as u64;
        let zeros = tail.iter().all(|&byte| byte == 0);
        assert_eq!((content.tail, content.valid_len), (if zeros { Tail::Clean } else { Tail::Torn }, end));
    }
}

#[test]
fn another_segment_under_this_name_is_corruption() {
    let (sim, env) = disk();
    let mut writer = create(&env, b"");
    writer.append(&[b"record"]).unwrap();
    writer.sync().unwrap();
    for (kind, number) in [(SegmentKind::Manifest, NUMBER), (SegmentKind::Wal, NUMBER + 1)] {
        let error = SegmentReader::open(&env, path(), kind, number, None).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
    // A newer version with an intact header is rejected as unsupported.
    let mut bytes = sim.read_file(path());
    bytes[8] = 9;
    let place = base::checksum::Place { file: NUMBER, offset: 0, kind: 0 };
    let sum = base::checksum::checksum(place, &bytes[..24]);
    bytes[24..28].copy_from_slice(&sum.to_le_bytes());
    sim.write_file(path(), bytes);
    let error = open(&env).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("version 9"), "{error}");
}

/// A segment on a disk: its records, the offset of each synced group, and the end of the last one.
type Fixture = (Arc<SimEnv>, Arc<dyn Env>, Vec<Vec<u8>>, Vec<u64>);

/// A segment of three synced groups, one of whose records crosses a block.
fn three_groups(sync_header: bool) -> Fixture {
    let (sim, env) = disk();
    let mut writer = create(&env, b"header");
    if sync_header {
        writer.sync().unwrap();
    }
    let mut rng = Rng::new(5);
    let (mut records, mut groups) = (Vec::new(), Vec::new());
    for group in [&[30, 0, 12][..], &[BLOCK_LEN - 100, 90], &[25, 1]] {
        groups.push(writer.len());
        for &len in group {
            let bytes = record(&mut rng, len);
            writer.append(&[&bytes]).unwrap();
            records.push(bytes);
        }
        writer.sync().unwrap();
    }
    groups.push(writer.len());
    (sim, env, records, groups)
}

#[test]
fn every_flipped_bit_is_an_error_or_harmless_but_for_the_last_group() {
    for sync_header in [false, true] {
        let (sim, env, records, groups) = three_groups(sync_header);
        let bytes = sim.read_file(path());
        let last = groups[2];
        let (mut corrupt, mut torn, mut harmless) = (0, 0, 0);
        // The payload of the long record is uniform: test every 97th byte of it.
        let positions = (0..bytes.len()).filter(|&p| !(400..BLOCK_LEN - 200).contains(&p) || p % 97 == 0);
        for position in positions {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[position] ^= 1 << bit;
                sim.write_file(path(), damaged);
                match read(&env) {
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corruption);
                        assert!((position as u64) < last, "no proof of the last group: {position}");
                        corrupt += 1;
                    }
                    Ok(content) if content.tail == Tail::Clean => {
                        assert_eq!(content.records, records, "silently wrong: {position}");
                        harmless += 1;
                    }
                    Ok(content) => {
                        assert!(position as u64 >= last, "silently missing: {position}");
                        assert_eq!(content.records[..], records[..content.records.len()]);
                        assert!(content.records.len() >= 5, "all groups but the last are there");
                        assert_eq!(content.proven_synced, last);
                        torn += 1;
                    }
                }
            }
        }
        assert_eq!(harmless, 0, "no byte of this segment is outside a checksum");
        assert_eq!(torn, 8 * (groups[3] - last));
        assert!(corrupt > 0);
    }
}

#[test]
fn a_synced_header_is_told_from_a_torn_one_by_any_chunk() {
    for (sync_header, expected) in [(false, None), (true, Some(ErrorKind::Corruption))] {
        let (sim, env) = disk();
        let mut writer = create(&env, b"header");
        if sync_header {
            writer.sync().unwrap();
        }
        writer.append(&[b"first"]).unwrap();
        writer.sync().unwrap();
        sim.flip_bit(path(), 25, 3);
        let content = read(&env);
        assert_eq!(content.as_ref().err().map(|e| e.kind()), expected);
        if let Ok(content) = content {
            assert_eq!((content.tail, content.valid_len), (Tail::TornHeader, 0));
            assert!(content.records.is_empty());
        }
    }
    let (sim, env) = disk();
    for len in [0, 1, 27, 28, 5_000, 70_000] {
        sim.write_file(path(), vec![0; len]);
        assert_eq!(read(&env).unwrap().tail, Tail::TornHeader, "{len} zeros");
    }
}

/// Writes records with random syncs. After each step, calls `check` with the disk, the records appended so far, and
/// the numbers of synced and of flushed records.
fn random_history(seed: u64, mut check: impl FnMut(&SimEnv, &[Vec<u8>], usize, usize)) {
    let (sim, env) = disk();
    let mut rng = Rng::new(seed);
    let mut writer = match seed % 3 {
        0 => create_over(&env, b"h", rng.below(300_000)),
        _ => create(&env, b"h"),
    };
    sim.sync_dir(Path::new("/db")).unwrap();
    let (mut records, mut synced, mut flushed) = (Vec::new(), 0, 0);
    for _ in 0..12 {
        for _ in 0..rng.below(6) {
            let most = if rng.chance(1, 6) { 70_000 } else { 600 };
            let len = rng.below(most) as usize;
            let bytes = record(&mut rng, len);
            writer.append(&[&bytes]).unwrap();
            records.push(bytes);
        }
        match rng.below(3) {
            0 => {
                writer.sync().unwrap();
                (synced, flushed) = (records.len(), records.len());
            }
            1 => {
                writer.flush().unwrap();
                flushed = records.len();
            }
            _ => {}
        }
        check(&sim, &records, synced, flushed);
    }
}

#[test]
fn a_crash_leaves_a_prefix_with_all_that_was_synced() {
    let mut torn = 0;
    for seed in 0..60 {
        random_history(seed, |sim, records, synced, flushed| {
            for kind in Survival::ALL {
                for draw in 0..4 {
                    let clone: Arc<dyn Env> = sim.crash_clone(kind, seed << 8 | draw);
                    let content =
                        read(&clone).unwrap_or_else(|e| panic!("{kind:?} seed {seed} draw {draw}: {e}"));
                    let count = content.records.len();
                    assert!(
                        (synced..=flushed).contains(&count),
                        "{kind:?}: {synced} <= {count} <= {flushed}"
                    );
                    assert_eq!(content.records[..], records[..count]);
                    torn += u32::from(content.tail != Tail::Clean);
                    if kind == Survival::Everything {
                        assert_eq!((count, content.tail), (flushed, Tail::Clean));
                    }
                }
            }
            let killed: Arc<dyn Env> = sim.process_clone();
            assert_eq!(read(&killed).unwrap().records[..], records[..flushed]);
        });
    }
    assert!(torn > 500, "torn tails were met: {torn}");
}

#[test]
fn damage_below_a_later_sync_is_corruption_after_a_crash_too() {
    let mut found = 0;
    for seed in 0..30 {
        random_history(seed, |sim, _, synced, _| {
            if synced == 0 {
                return;
            }
            let crashed = sim.crash_clone(Survival::RandomSectors, seed);
            let env: Arc<dyn Env> = crashed.clone();
            let before = read(&env).unwrap();
            if before.proven_synced == 0 {
                return;
            }
            let position = Rng::new(seed).below(before.proven_synced);
            crashed.flip_bit(path(), position, (seed % 8) as u32);
            match read(&env) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    found += 1;
                }
                Ok(after) => assert_eq!(after.records, before.records, "the flip hit filler"),
            }
        });
    }
    assert!(found > 20, "{found}");
}

#[test]
fn after_a_failed_flush_its_records_are_kept_or_taken_back_and_writing_goes_on() {
    for fault in
        [Fault::ENOSPC, Fault::EIO, Fault::ShortWrite(1), Fault::ShortWrite(130), Fault::ShortWrite(40_000)]
    {
        // The cut succeeds, or fails once or twice.
        for failing_cuts in 0..3 {
            let (sim, env) = disk();
            let mut writer = create(&env, b"");
            writer.append(&[&[1; 100]]).unwrap();
            writer.flush().unwrap();
            let good = writer.len();
            let op = sim.op_count();
            sim.fail_op(op, fault, Repeat::Once);
            (0..failing_cuts).for_each(|i| sim.fail_op(op + 1 + i, Fault::EIO, Repeat::Once));
            writer.append(&[&[7; 10]]).unwrap();
            let wanted = writer.len();
            (0..2).for_each(|_| writer.append(&[&[2; 30_000]]).unwrap());
            assert!(writer.flush().is_err());
            writer.rollback(wanted);
            assert_eq!((writer.len(), writer.flushed_len()), (wanted, good));
            for _ in 1..failing_cuts {
                assert!(writer.append(&[b"refused"]).is_err(), "the remains are still there");
            }
            writer.append(&[&[3; 100]]).unwrap();
            assert_eq!(writer.synced_len(), 0, "the sync of the cut is not counted");
            writer.append(&[&[4; 100]]).unwrap();
            writer.sync().unwrap();
            let content = read(&env).unwrap();
            assert_eq!(content.records, [(1, 100), (7, 10), (3, 100), (4, 100)].map(|(b, n)| vec![b; n]));
            assert_eq!(content.tail, Tail::Clean);
        }
    }
}

#[test]
fn records_of_a_failed_flush_never_follow_newer_ones() {
    // The failed records have the length of the new ones, so that old chunks would fit behind new ones.
    for seed in 0..200 {
        let (sim, env) = disk();
        let mut writer = create(&env, b"");
        sim.sync_dir(Path::new("/db")).unwrap();
        writer.sync().unwrap();
        sim.fail_op(sim.op_count(), Fault::ShortWrite(3 * 611), Repeat::Once);
        (0..4).for_each(|_| writer.append(&[&[b'x'; 600]]).unwrap());
        assert!(writer.flush().is_err());
        writer.rollback(writer.flushed_len());
        writer.append(&[&[b'y'; 600]]).unwrap();
        writer.flush().unwrap();
        for kind in Survival::ALL {
            let crashed: Arc<dyn Env> = sim.crash_clone(kind, seed);
            let records = read(&crashed).unwrap().records;
            assert!(records.len() <= 1 && records.iter().all(|r| r[0] == b'y'), "{kind:?} {}", records.len());
        }
    }
}

#[test]
fn a_failed_sync_is_final() {
    let (sim, env) = disk();
    let mut writer = create(&env, b"");
    writer.append(&[b"one"]).unwrap();
    writer.sync().unwrap();
    writer.append(&[b"two"]).unwrap();
    writer.flush().unwrap();
    sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
    assert_eq!(writer.sync().unwrap_err().kind(), ErrorKind::Io);
    let ops = sim.op_count();
    assert_eq!(writer.append(&[b"three"]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(writer.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(sim.op_count(), ops, "the file is never touched again");
    let crashed: Arc<dyn Env> = sim.crash_clone(Survival::Everything, 0);
    assert!(!crashed.exists(path()).unwrap() || read(&crashed).unwrap().records == [b"one"]);
}

#[test]
fn a_read_error_is_not_an_end() {
    let (sim, env, records, _) = three_groups(true);
    let mut failures = 0;
    for k in 0..20 {
        sim.clear_faults();
        sim.fail_op(sim.op_count() + k, Fault::EIO, Repeat::Once);
        match read(&env) {
            Ok(content) => assert_eq!(content.records, records),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io);
                failures += 1;
            }
        }
    }
    assert!(failures >= 3);
}

#[test]
fn hostile_bytes_never_panic() {
    let (sim, env, _, _) = three_groups(true);
    let bytes = sim.read_file(path());
    let mut rng = Rng::new(11);
    for _ in 0..2_000 {
        let mut damaged = bytes.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(damaged.len() as u64) as usize;
            let len = (rng.below(64) as usize).min(damaged.len() - at);
            match rng.below(3) {
                0 => rng.fill(&mut damaged[at..at + len]),
                1 => damaged[at..at + len].fill(rng.below(5) as u8),
                _ => damaged.truncate(at.max(1)),
            }
        }
        sim.write_file(path(), damaged);
        let _ = read(&env);
    }
}

#[test]
fn a_header_past_its_limit_is_no_header() {
    for (len, tail) in [(MAX_HEADER_LEN, Tail::Clean), (MAX_HEADER_LEN + 1, Tail::TornHeader)] {
        let (sim, env) = disk();
        create(&env, &[]);
        let mut bytes = sim.read_file(path());
        bytes.truncate(24);
        bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
        bytes.resize(24 + len, 7);
        let place = base::checksum::Place { file: NUMBER, offset: 0, kind: 0 };
        bytes.extend(base::checksum::checksum(place, &bytes).to_le_bytes());
        sim.write_file(path(), bytes);
        assert_eq!(read(&env).unwrap().tail, tail);
    }
}

/// Changes the type of the chunk at `offset` and fixes its checksum.
fn retype(bytes: &mut [u8], offset: usize, kind: u8) {
    bytes[offset + 6] = kind;
    let len = usize::from(u16::from_le_bytes([bytes[offset + 4], bytes[offset + 5]]));
    let place = base::checksum::Place { file: NUMBER, offset: offset as u64, kind: SegmentKind::Wal.code() };
    let sum = base::checksum::checksum(place, &bytes[offset + 4..offset + CHUNK_HEADER_LEN + len]);
    bytes[offset..offset + 4].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn intact_chunks_that_make_no_record_are_corruption() {
    let (sim, env) = disk();
    let mut writer = create(&env, b"");
    let mut starts = Vec::new();
    for _ in 0..2 {
        starts.push(writer.len() as usize);
        writer.append(&[b"record"]).unwrap();
    }
    writer.sync().unwrap();
    let bytes = sim.read_file(path());
    let (full, first, middle, last) = (1, 2, 3, 4);
    for (types, good) in [
        ([full, full], true),
        ([first, last], true),
        ([middle, full], false),
        ([last, full], false),
        ([first, full], false),
        ([first, first], false),
        ([full, middle], false),
        ([full, last], false),
    ] {
        let mut changed = bytes.clone();
        starts.iter().zip(types).for_each(|(&start, kind)| retype(&mut changed, start, kind));
        sim.write_file(path(), changed);
        let kind = read(&env).err().map(|e| e.kind());
        assert_eq!(kind, (!good).then_some(ErrorKind::Corruption), "{types:?}");
    }
}

#[test]
fn a_record_without_its_end_is_torn_where_it_begins() {
    let (sim, env) = disk();
    let mut writer = create(&env, b"");
    writer.append(&[b"whole"]).unwrap();
    let start = writer.len();
    writer.append(&[&[7; 3 * BLOCK_LEN]]).unwrap();
    writer.sync().unwrap();
    let bytes = sim.read_file(path());
    for len in [start as usize + 11, BLOCK_LEN, BLOCK_LEN + 5, 2 * BLOCK_LEN, bytes.len() - 1] {
        sim.write_file(path(), &bytes[..len]);
        let content = read(&env).unwrap();
        assert_eq!((content.records.len(), content.tail), (1, Tail::Torn), "{len}");
        assert_eq!(content.valid_len, start);
        let closed =
            SegmentReader::open(&env, path(), SegmentKind::Wal, NUMBER, Some(len as u64)).and_then(drain);
        assert_eq!(closed.err().unwrap().kind(), ErrorKind::Corruption, "{len}");
    }
}

#[test]
fn zeros_behind_a_whole_record_are_the_end_and_zeros_before_anything_are_not() {
    let (sim, env) = disk();
    let mut writer = create(&env, b"header");
    // Only filler fits behind the second record in its block: it lies between the record and the zeros.
    writer.append(&[b"first"]).unwrap();
    let filled = BLOCK_LEN - writer.len() as usize - CHUNK_HEADER_LEN - 4;
    let mut ends = vec![writer.len()];
    writer.append(&[&vec![9; filled]]).unwrap();
    ends.push(writer.len());
    writer.append(&[b"third"]).unwrap();
    writer.sync().unwrap();
    ends.push(writer.len());
    writer.append(&[b"fourth, not synced"]).unwrap();
    writer.flush().unwrap();
    ends.push(writer.len());
    writer.append(&[b"proof that the fourth was synced"]).and_then(|()| writer.sync()).unwrap();
    writer.append(&[]).and_then(|()| writer.flush()).unwrap();
    writer.trim();
    let bytes = sim.read_file(path());
    for (i, &end) in ends.iter().enumerate() {
        for zeros in [1, 10, 11, 4096, 3 * BLOCK_LEN, 300_000] {
            let mut cut = bytes[..end as usize].to_vec();
            cut.resize(end as usize + zeros, 0);
            let len = cut.len() as u64;
            sim.write_file(path(), cut.clone());
            let content = read(&env).unwrap();
            assert_eq!((content.records.len(), content.tail, content.valid_len), (i + 1, Tail::Clean, end));
            // The expected length shows that data is missing.
            let closed =
                SegmentReader::open(&env, path(), SegmentKind::Wal, NUMBER, Some(len)).and_then(drain);
            assert_eq!(closed.err().map(|e| e.kind()), Some(ErrorKind::Corruption), "{zeros} zeros, closed");
            let closed =
                SegmentReader::open(&env, path(), SegmentKind::Wal, NUMBER, Some(end)).and_then(drain);
            assert_eq!(closed.unwrap().records.len(), i + 1);
            // A nonzero byte behind the zeros makes a torn tail. No record is lost.
            *cut.last_mut().unwrap() = 1;
            sim.write_file(path(), cut);
            let content = read(&env).unwrap();
            let found = (content.records.len(), content.tail, content.valid_len);
            assert_eq!(found, (i + 1, Tail::Torn, end), "{zeros} zeros");
        }
    }
    // Zeros in place of a synced record. An intact chunk behind them proves the sync.
    for range in [ends[0] as usize..ends[1] as usize, ends[2] as usize..ends[3] as usize] {
        let mut hole = bytes.clone();
        hole[range.clone()].fill(0);
        sim.write_file(path(), hole);
        let error = read(&env).err().expect("the proof lies behind the hole");
        assert_eq!(
            (error.kind(), error.place().map(|p| p.1)),
            (ErrorKind::Corruption, Some(range.start as u64))
        );
    }
}

#[test]
fn a_segment_over_an_older_one_ends_where_its_records_do() {
    for seed in 0..9 {
        let sim = SimEnv::new(seed);
        let env: Arc<dyn Env> = sim.clone();
        sim.create_dir(Path::new("/db")).unwrap();
        let old_len = 150_000;
        let mut writer = create_over(&env, b"header", old_len);
        let (mut rng, mut records) = (Rng::new(seed), Vec::new());
        while writer.len() < 2 * old_len {
            let content = read(&env).unwrap();
            assert_eq!((&content.records, content.tail), (&records, Tail::Clean), "at {}", writer.len());
            assert_eq!(content.valid_len, writer.len());
            assert_eq!(open(&env).unwrap().header(), b"header");
            let len = if rng.chance(1, 9) { rng.below(70_000) } else { rng.below(900) } as usize;
            records.push(record(&mut rng, len));
            writer.append(&[&records[records.len() - 1]]).unwrap();
            match rng.chance(1, 3) {
                true => writer.sync().unwrap(),
                false => writer.flush().unwrap(),
            }
            if writer.len() < old_len {
                assert!(env.len(path()).unwrap() >= old_len);
                // Without the zeros, the end is still found, as a torn tail.
                let bytes = sim.read_file(path());
                let mut unmarked = bytes.clone();
                unmarked[writer.len() as usize..][..40].fill(0xa5);
                sim.write_file(path(), unmarked);
                let content = read(&env).unwrap();
                let found = (&content.records, content.tail, content.valid_len);
                assert_eq!(found, (&records, Tail::Torn, writer.len()));
                sim.write_file(path(), bytes);
            }
        }
        let mut writer = create_over_again(&env);
        writer.append(&[b"short"]).and_then(|()| writer.flush()).unwrap();
        writer.trim();
        assert_eq!((env.len(path()).unwrap(), read(&env).unwrap().tail), (writer.len(), Tail::Clean));
    }
}

/// Removes the segment and creates a short recycled one.
fn create_over_again(env: &Arc<dyn Env>) -> SegmentWriter {
    env.remove(path()).unwrap();
    create_over(env, b"h", 5000)
}

#[test]
fn damage_is_told_from_the_end_of_a_segment_over_an_older_one() {
    let (sim, env) = disk();
    let mut writer = create_over(&env, b"header", 100_000);
    let old = sim.read_file(path());
    let mut ends = vec![writer.len()];
    for len in [30, 0, 20_000, 90, 25] {
        writer.append(&[&vec![7; len]]).and_then(|()| writer.sync()).unwrap();
        ends.push(writer.len());
    }
    writer.append(&[]).and_then(|()| writer.flush()).unwrap();
    let bytes = sim.read_file(path());
    assert!(bytes.len() == old.len() && read(&env).unwrap().tail == Tail::Clean);
    for (from, to) in ends.iter().zip(&ends[1..]).map(|(from, to)| (*from as usize, *to as usize)) {
        // The old content, zeros, and garbage.
        for wound in [old[from..to].to_vec(), vec![0; to - from], vec![0x17; to - from]] {
            let mut wounded = bytes.clone();
            wounded[from..to].copy_from_slice(&wound);
            sim.write_file(path(), wounded);
            let error = read(&env).err().expect("the mark proves what was synced");
            assert_eq!(
                (error.kind(), error.place().map(|p| p.1)),
                (ErrorKind::Corruption, Some(from as u64))
            );
        }
    }
    // Bytes behind the end do not matter.
    for at in (writer.len() as usize + 40..bytes.len()).step_by(977) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        sim.write_file(path(), changed);
        let content = read(&env).unwrap();
        assert_eq!((content.records.len(), content.tail), (6, Tail::Clean), "{at}");
    }
}

#[test]
fn a_header_over_an_older_segment_says_which_or_is_refused() {
    let (sim, env) = disk();
    let old = Path::new("/db/old");
    sim.write_file(old, [1; 100]);
    let begin = |header: &'static [u8], number| {
        let (env, over) = (env.clone(), NUMBER);
        std::thread::spawn(move || SegmentWriter::create_over(&env, old, over, path(), number, header)).join()
    };
    assert!(begin(b"", NUMBER).is_err(), "the same number: its chunks would count");
    assert!(begin(&[0; MAX_HEADER_LEN - 7], 9).is_err());
    assert!(begin(&[0; MAX_HEADER_LEN - 8], 9).unwrap().unwrap().is_some());
    let mut bytes = Vec::from(*b"CAIRNSEG\x02\0\x01\0");
    bytes.extend([7, 0, 0, 0]);
    bytes.extend(NUMBER.to_le_bytes());
    bytes.extend([5; 7]);
    let place = base::checksum::Place { file: NUMBER, offset: 0, kind: 0 };
    bytes.extend(base::checksum::checksum(place, &bytes).to_le_bytes());
    sim.write_file(path(), bytes);
    let error = open(&env).err().unwrap();
    assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("recycled"), "{error}");
}

/// A failed write-back is a failed sync: nothing is written or synced after it.
#[test]
fn a_segment_that_is_synced_in_portions_is_durable_or_stops() {
    for fails in [false, true] {
        let (sim, env) = disk();
        let mut writer = create(&env, b"");
        env.sync_dir(Path::new("/db")).unwrap();
        writer.append(&[&[7; 100_000]]).unwrap();
        if fails {
            sim.fail_op(sim.op_count() + 1, Fault::EIO, Repeat::Once);
        }
        let synced = writer.sync_in_portions();
        assert_eq!(synced.is_err(), fails, "{synced:?}");
        assert_eq!(writer.synced_len() == writer.len(), !fails);
        if fails {
            assert_eq!(synced.unwrap_err().kind(), ErrorKind::ReadOnly);
            assert!(
                writer.sync().is_err() && writer.append(&[b"more"]).and_then(|()| writer.flush()).is_err()
            );
        }
        let disk: Arc<dyn Env> = sim.crash_clone(Survival::Nothing, 1);
        let there = disk.open(path()).and_then(|file| file.len()).unwrap_or(0);
        assert_eq!(there >= 100_000, !fails, "{there} bytes are durable");
    }
}
