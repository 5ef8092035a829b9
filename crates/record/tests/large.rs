//! Log records that are too large for the buffer: they are written to the file in pieces, completely or not at all.

use base::{ErrorKind, Result};
use env::{Env, Fault, Repeat, SimEnv, Survival};
use record::{LARGE_LEN, SegmentKind, SegmentReader, SegmentWriter, Tail};
use std::path::Path;
use std::sync::Arc;

const LARGE: usize = 2 * LARGE_LEN + 12_345;

fn path() -> &'static Path {
    Path::new("/db/000007.log")
}

fn create() -> (Arc<SimEnv>, SegmentWriter) {
    let sim = SimEnv::new(1);
    sim.create_dir(Path::new("/db")).unwrap();
    let env: Arc<dyn Env> = sim.clone();
    let writer = SegmentWriter::create(&env, path(), SegmentKind::Wal, 7, b"").unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    (sim, writer)
}

/// The first byte and the length of each record.
fn read(env: &Arc<SimEnv>) -> Result<Vec<(u8, usize)>> {
    let env: Arc<dyn Env> = env.clone();
    let mut reader = SegmentReader::open(&env, path(), SegmentKind::Wal, 7, None)?;
    let (mut records, mut record) = (Vec::new(), Vec::new());
    while reader.next(&mut record)?.is_some() {
        assert!(record.iter().all(|byte| *byte == record[0]), "a mixed record");
        records.push((record[0], record.len()));
    }
    Ok(records)
}

/// A synced record, a buffered one, and a large one.
fn script(writer: &mut SegmentWriter) -> Result<()> {
    writer.append(&[&[1; 100]])?;
    writer.sync()?;
    writer.append(&[&[2; 100]])?;
    let bytes = vec![3; LARGE];
    writer.append(&[&bytes[..10], &[], &bytes[10..]])
}

#[test]
fn a_large_record_leaves_the_buffer_while_it_is_appended() {
    let (sim, mut writer) = create();
    script(&mut writer).unwrap();
    assert_eq!((writer.buffered(), writer.flushed_len()), (0, writer.len()));
    writer.append(&[&[4; 100]]).unwrap();
    writer.sync().unwrap();
    assert_eq!(read(&sim).unwrap(), [(1, 100), (2, 100), (3, LARGE), (4, 100)]);
}

#[test]
fn a_large_record_that_fails_midway_leaves_nothing_and_loses_nothing() {
    let (sim, mut writer) = create();
    let first = sim.op_count();
    script(&mut writer).unwrap();
    let appends = sim.op_count() - first;
    assert!(appends > 8, "the record is written in pieces");
    let mut failed = 0;
    // Starts with the append of the buffer.
    for at in 2..appends {
        for fault in [Fault::ENOSPC, Fault::EIO, Fault::ShortWrite(1), Fault::ShortWrite(40_000)] {
            // The cut succeeds, or fails too.
            for failing_cuts in 0..2 {
                let (sim, mut writer) = create();
                let op = sim.op_count() + at;
                sim.fail_op(op, fault, Repeat::Once);
                (0..failing_cuts).for_each(|i| sim.fail_op(op + 1 + i, Fault::EIO, Repeat::Once));
                let error = script(&mut writer).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Io), "{error}");
                failed += 1;
                let kept = writer.len();
                writer.rollback(kept);
                writer.append(&[&[4; 100]]).unwrap();
                writer.append(&[&[5; LARGE]]).unwrap();
                writer.sync().unwrap();
                assert_eq!(read(&sim).unwrap(), [(1, 100), (2, 100), (4, 100), (5, LARGE)], "{at} {fault:?}");
            }
        }
    }
    assert!(failed > 60);
}

#[test]
fn a_large_record_is_taken_back_with_what_came_after_it_and_before_it() {
    for behind in [0, 100] {
        let (sim, mut writer) = create();
        writer.append(&[&[1; 100]]).unwrap();
        let start = writer.len();
        writer.append(&[&[2; 100]]).unwrap();
        writer.append(&[&[3; LARGE]]).unwrap();
        writer.append(&[&[4; 100][..behind]]).unwrap();
        sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
        assert!(writer.flush().is_err());
        writer.rollback(start);
        assert_eq!(writer.len(), start);
        writer.append(&[&[5; 100]]).unwrap();
        writer.sync().unwrap();
        assert_eq!(read(&sim).unwrap(), [(1, 100), (5, 100)]);
    }
}

#[test]
fn what_a_flush_has_confirmed_is_not_taken_back() {
    let (sim, mut writer) = create();
    writer.append(&[&[3; LARGE]]).unwrap();
    writer.flush().unwrap();
    let len = writer.len();
    writer.rollback(0);
    assert_eq!(writer.len(), len);
    writer.sync().unwrap();
    assert_eq!(read(&sim).unwrap(), [(3, LARGE)]);
}

#[test]
fn a_crash_in_the_middle_of_a_large_record_leaves_a_torn_tail() {
    let (sim, mut writer) = create();
    let first = sim.op_count();
    script(&mut writer).unwrap();
    let (end, mut whole, mut torn) = (sim.op_count(), 0, 0);
    for op in first + 2..=end {
        for kind in Survival::ALL {
            let (sim, mut writer) = create();
            sim.crash_at(op);
            let _ = script(&mut writer);
            let records = read(&sim.crash_clone(kind, op)).unwrap();
            let expected = [(1, 100), (2, 100), (3, LARGE)];
            assert!(!records.is_empty() && expected.starts_with(&records), "{op} {kind:?}: {records:?}");
            *if records.len() == 3 { &mut whole } else { &mut torn } += 1;
        }
    }
    assert!(whole > 0 && torn > 10, "{whole} whole, {torn} torn");
}

#[test]
fn a_reader_that_follows_finds_that_a_record_was_taken_back() {
    for other in [None, Some(100), Some(80)] {
        let (sim, mut writer) = create();
        let env: Arc<dyn Env> = sim.clone();
        writer.append(&[&[1; 100]]).unwrap();
        writer.flush().unwrap();
        let start = writer.len();
        writer.append(&[&[2; 100]]).unwrap();
        // It writes what is before it first.
        writer.append(&[&[3; LARGE]]).unwrap();
        let mut reader = SegmentReader::open(&env, path(), SegmentKind::Wal, 7, None).unwrap();
        let mut record = Vec::new();
        let mut seen = Vec::new();
        // Up to the record of the second append, as if that of the third were not whole yet.
        for most in [start, start + 150] {
            reader.go_on(most).unwrap();
            while reader.next(&mut record).unwrap().is_some() {
                seen.push(record[0]);
            }
        }
        assert_eq!(seen, [1, 2]);
        assert!(reader.another().go_on(u64::MAX).is_ok());
        writer.append(&[&[5; 10]]).unwrap();
        sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
        assert!(writer.flush().is_err());
        writer.rollback(start);
        if let Some(len) = other {
            writer.append(&[&vec![4; len]]).unwrap();
        }
        writer.flush().unwrap();
        assert_eq!(reader.another().go_on(u64::MAX).unwrap_err().kind(), ErrorKind::Corruption, "{other:?}");
        assert_eq!(reader.go_on(u64::MAX).unwrap_err().kind(), ErrorKind::Corruption, "{other:?}");
    }
}

/// A log has zeros behind its end, or what an older one has left there, until its writer closes it.
#[test]
fn a_reader_beside_the_writer_goes_on_when_the_file_is_cut_to_its_length() {
    let (sim, mut writer) = create();
    let env: Arc<dyn Env> = sim.clone();
    for record in [1u8, 2] {
        writer.append(&[&vec![record; LARGE]]).unwrap();
    }
    writer.flush().unwrap();
    let end = sim.read_file(path()).len() as u64;
    // The cut meets the reader after its opening, in the middle of the last record, and behind that.
    for records_before in 0..=2 {
        sim.truncate_file(path(), end + (1 << 20));
        let mut reader = SegmentReader::open(&env, path(), SegmentKind::Wal, 7, None).unwrap();
        let mut record = Vec::new();
        for expected in 1..=records_before {
            assert!(reader.next(&mut record).unwrap().is_some());
            assert_eq!(record, vec![expected; LARGE]);
        }
        sim.truncate_file(path(), end);
        for expected in records_before + 1..=2 {
            assert!(reader.next(&mut record).unwrap().is_some());
            assert_eq!(record, vec![expected; LARGE]);
        }
        assert!(reader.next(&mut record).unwrap().is_none());
        assert_eq!(reader.tail(), Some(Tail::Clean));
        reader.go_on(u64::MAX).unwrap();
        assert!(reader.next(&mut record).unwrap().is_none());
    }
}
