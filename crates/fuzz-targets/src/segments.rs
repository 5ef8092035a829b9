//! Segments: arbitrary bytes, and valid segments that were cut or damaged.

use crate::Source;
use base::checksum::{Place, checksum};
use base::{Error, ErrorKind};
use env::{Env, SimEnv};
use record::{
    BLOCK_LEN, CHUNK_HEADER_LEN, FORMAT_VERSION_OVER, SegmentKind, SegmentReader, SegmentWriter, Span, Tail,
};
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "/000007.log";
const NUMBER: u64 = 7;

/// The result of reading a segment.
#[derive(Debug)]
struct Content {
    header: Vec<u8>,
    records: Vec<(Span, Vec<u8>)>,
    /// How the segment ends, or why it is rejected.
    end: Result<Tail, Error>,
    valid_len: u64,
}

/// Reads a segment, closed with a length or not, and checks properties of every result. An error if the header is
/// rejected.
fn read(bytes: &[u8], closed: Option<u64>) -> Result<Content, Error> {
    let sim = SimEnv::new(1);
    sim.write_file(PATH, bytes);
    let env: Arc<dyn Env> = sim;
    let path = Path::new(PATH);
    let mut reader = SegmentReader::open(&env, path, SegmentKind::Wal, NUMBER, closed)
        .inspect_err(|error| check_error(error, bytes.len()))?;
    let mut records: Vec<(Span, Vec<u8>)> = Vec::new();
    let mut record = Vec::new();
    let mut at = reader.valid_len();
    let end = loop {
        match reader.next(&mut record) {
            Ok(Some(span)) => {
                assert!(at <= span.start && span.start < span.end && span.end == reader.valid_len());
                assert!((span.end - span.start) as usize >= record.len() + CHUNK_HEADER_LEN);
                at = span.end;
                records.push((span, record.clone()));
            }
            Ok(None) => break Ok(reader.tail().expect("the end was read")),
            Err(error) => {
                check_error(&error, bytes.len());
                break Err(error);
            }
        }
    };
    // The end and an error are final.
    assert!(record.is_empty() && reader.next(&mut record).ok() == end.as_ref().ok().map(|_| None));
    assert!(reader.valid_len() == at && at <= bytes.len() as u64);
    match end {
        Ok(Tail::Clean) => {
            let end = closed.unwrap_or(u64::MAX).min(bytes.len() as u64);
            let rest = &bytes[at as usize..];
            assert!(
                at == end || closed.is_none() && rest[..end_of_records(bytes, at)].iter().all(|&b| b == 0)
            );
        }
        Ok(Tail::Torn) => assert!(closed.is_none()),
        Ok(Tail::TornHeader) => assert!(closed.is_none() && at == 0 && records.is_empty()),
        Err(_) => {}
    }
    Ok(Content { header: reader.header().to_vec(), records, end, valid_len: at })
}

/// How many bytes behind the last record must be zeros: all of them; in a recycled segment, those up to the end of
/// the next chunk header.
fn end_of_records(bytes: &[u8], at: u64) -> usize {
    let (rest, room) = (bytes.len() - at as usize, BLOCK_LEN - at as usize % BLOCK_LEN);
    match bytes[8..10] == FORMAT_VERSION_OVER.to_le_bytes() {
        true => rest.min(CHUNK_HEADER_LEN + if room < CHUNK_HEADER_LEN { room } else { 0 }),
        false => rest,
    }
}

/// An error of a reader names its file, and an offset inside the file.
fn check_error(error: &Error, len: usize) {
    match error.kind() {
        ErrorKind::Corruption => {
            let (path, offset) = error.place().expect("corruption has a place");
            assert!(path == Path::new(PATH) && offset <= len as u64, "{error}");
        }
        ErrorKind::Unsupported => assert!(error.to_string().contains(PATH), "{error}"),
        _ => panic!("an unexpected error: {error:?}"),
    }
}

/// Arbitrary bytes as a segment. With flag 1, the checksums of header and chunks are made right first.
pub(crate) fn hostile(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let flags = source.u8();
    let mut bytes = source.rest().to_vec();
    if flags & 1 != 0 {
        fix(&mut bytes);
    }
    let Ok(content) = read(&bytes, None) else { return false };
    let accepted = !content.records.is_empty();
    if content.end.is_ok() {
        check_closed(&bytes, &content);
        check_rewritten(&content);
    }
    accepted
}

/// A segment closed with the length of its records reads the same. Closed with a greater length, it is damaged.
fn check_closed(bytes: &[u8], content: &Content) {
    if content.valid_len == 0 {
        assert!(read(bytes, Some(1)).is_err(), "the header of a closed segment is missing");
        return;
    }
    let closed = read(bytes, Some(content.valid_len)).expect("the header was good");
    assert_eq!(closed.end.expect("all of it is there"), Tail::Clean);
    assert_eq!(closed.records, content.records);
    let longer = read(bytes, Some(content.valid_len + 1)).expect("the header was good");
    assert!(longer.end.is_err() && longer.records == content.records);
}

/// Records that were read, written again and read again are unchanged.
fn check_rewritten(content: &Content) {
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    let mut writer = SegmentWriter::create(&env, Path::new(PATH), SegmentKind::Wal, NUMBER, &content.header)
        .expect("a header that was read can be written");
    for (_, record) in &content.records {
        writer.append(&[record]).expect("a record that was read can be written");
    }
    writer.flush().expect("the disk works");
    let again = read(&sim.read_file(PATH), None).expect("what was written");
    assert!(matches!(again.end, Ok(Tail::Clean)), "{:?}", again.end);
    assert_eq!(again.header, content.header);
    let records = |content: &Content| content.records.iter().map(|r| r.1.clone()).collect::<Vec<_>>();
    assert_eq!(records(&again), records(content));
}

/// Makes the checksums of the header and of the chunks right, following their lengths; continues in each next block.
fn fix(bytes: &mut [u8]) {
    const FIXED: usize = 24;
    if bytes.len() < FIXED + 4 {
        return;
    }
    let caller = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    bytes[16..FIXED].copy_from_slice(&NUMBER.to_le_bytes());
    let mut at = 0;
    if let Some(end) = FIXED.checked_add(caller).filter(|end| end + 4 <= bytes.len()) {
        let sum = checksum(Place { file: NUMBER, offset: 0, kind: 0 }, &bytes[..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        at = end + 4;
    }
    while at + CHUNK_HEADER_LEN <= bytes.len() {
        let block_end = (at - at % BLOCK_LEN + BLOCK_LEN).min(bytes.len());
        let len = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        let end = at + CHUNK_HEADER_LEN + len;
        if end > block_end {
            at = at - at % BLOCK_LEN + BLOCK_LEN;
            continue;
        }
        let place = Place { file: NUMBER, offset: at as u64, kind: SegmentKind::Wal.code() };
        let sum = checksum(place, &bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        at = end;
        if block_end - at < CHUNK_HEADER_LEN {
            at = block_end;
        }
    }
}

/// Writes records according to the input, with syncs between them, then cuts the file or damages a byte, and reads it
/// back.
///
/// The result must be a prefix of the written records. A cut gives a torn tail. So does damage, unless a chunk behind
/// it proves that the damaged bytes were synced.
pub(crate) fn written(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    let header = source.bytes();
    let (flags, damage) = (source.u8(), source.u16());
    let cut = flags & 1 != 0;
    let mut writer = match flags & 2 != 0 {
        true => over_another(&env, header),
        false => SegmentWriter::create(&env, Path::new(PATH), SegmentKind::Wal, NUMBER, header)
            .expect("a short header"),
    };
    let mut records: Vec<Vec<u8>> = Vec::new();
    // The end of each record, and the synced length that a later record proves.
    let mut ends = Vec::new();
    let mut proven = 0;
    while !source.is_empty() && records.len() < 64 {
        match source.u8() {
            0..=31 => writer.sync().expect("the disk works"),
            32..=47 => writer.flush().expect("the disk works"),
            48..=63 => {
                let keep = records.iter().zip(&ends).filter(|(_, end)| **end <= writer.flushed_len()).count();
                records.truncate(keep);
                ends.truncate(keep);
                writer.rollback(writer.flushed_len());
            }
            length => {
                // Long records span blocks. Their bytes repeat, so that inputs stay short.
                let len = if length < 80 { source.below(3 * BLOCK_LEN) } else { usize::from(length) };
                let pattern = source.take(8);
                let record: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
                let (left, right) = record.split_at(record.len() / 3);
                writer.append(&[left, b"", right]).expect("the disk works");
                records.push(record);
                ends.push(writer.len());
            }
        }
    }
    writer.flush().expect("the disk works");
    let mut bytes = sim.read_file(PATH);
    check_prefix(&read(&bytes, None).expect("nothing is damaged"), &records, records.len(), true);
    let synced = writer.synced_len();
    let at = usize::from(damage) * 37 % bytes.len();
    if cut {
        bytes.truncate(at);
        let content = read(&bytes, None).expect("a cut is no damage");
        let whole = ends.iter().filter(|end| **end <= at as u64).count();
        check_prefix(&content, &records, whole, true);
        return true;
    }
    bytes[at] ^= 1 << (damage % 8);
    // A record appended after the last sync proves that sync.
    if ends.last().is_some_and(|end| *end > synced) {
        proven = synced;
    }
    let intact = ends.iter().filter(|end| **end <= at as u64).count();
    match read(&bytes, None) {
        Ok(content) => {
            // If the damage hit padding at the end of a block, all records are intact.
            let all = content.records.len() == records.len();
            check_prefix(&content, &records, if all { records.len() } else { intact }, false);
            let lost = content.end.is_ok() && !all;
            assert!(!lost || at as u64 >= proven, "synced data is taken for a torn tail");
        }
        Err(_) => assert!((at as u64) < ends.first().copied().unwrap_or(u64::MAX), "the header is good"),
    }
    true
}

/// Starts a recycled segment. The old segment was synced after every record.
fn over_another(env: &Arc<dyn Env>, header: &[u8]) -> SegmentWriter {
    let (old, old_number) = (Path::new("/old"), NUMBER - 2);
    let mut writer = SegmentWriter::create(env, old, SegmentKind::Wal, old_number, b"").expect("no header");
    for i in 0..900_u16 {
        writer.append(&[&i.to_le_bytes().repeat(usize::from(i % 90))]).expect("the disk works");
        writer.sync().expect("the disk works");
    }
    writer.trim();
    drop(writer);
    let begun = SegmentWriter::create_over(env, old, old_number, Path::new(PATH), NUMBER, header)
        .expect("a short header");
    env.rename(old, Path::new(PATH)).expect("the disk works");
    begun.expect("the simulated disk has it")
}

/// The content must be the first `count` records, without damage if `sound`.
fn check_prefix(content: &Content, records: &[Vec<u8>], count: usize, sound: bool) {
    assert!(content.records.iter().map(|r| &r.1).eq(&records[..count]), "{count} records");
    assert!(!sound || content.end.is_ok(), "{:?}", content.end);
}
