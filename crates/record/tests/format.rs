//! The bytes and constants of a segment match those in `docs/format/segment.md`.

use env::{Env, LOG_END, SimEnv};
use record::{
    BLOCK_LEN, CHUNK_HEADER_LEN, FORMAT_VERSION, FORMAT_VERSION_OVER, MAX_HEADER_LEN, SegmentKind,
    SegmentReader, SegmentWriter, Tail,
};
use std::path::Path;
use std::sync::Arc;

const DOC: &str = include_str!("../../../docs/format/segment.md");

/// The bytes of the example: in each line of the block, the text between the colon and the bar.
fn documented() -> Vec<u8> {
    let block =
        DOC.split("```hex\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of hex");
    let mut bytes = Vec::new();
    for line in block.lines() {
        let (offset, rest) = line.split_once(':').expect("an offset");
        assert_eq!(offset.trim().parse::<usize>().unwrap(), bytes.len(), "{line}");
        let hex = rest.split('|').next().unwrap().split_whitespace();
        bytes.extend(hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}

#[test]
fn the_worked_example_is_what_is_written() {
    let sim = SimEnv::new(0);
    let env: Arc<dyn Env> = sim.clone();
    let path = Path::new("/000007.log");
    let mut writer = SegmentWriter::create(&env, path, SegmentKind::Wal, 7, b"prev").unwrap();
    writer.sync().unwrap();
    writer.append(&[b"cai", b"rn"]).unwrap();
    writer.append(&[]).unwrap();
    writer.sync().unwrap();
    writer.append(&[b"stone"]).unwrap();
    writer.sync().unwrap();
    let written = sim.read_file(path);
    let mut dump = String::new();
    for (i, line) in written.chunks(16).enumerate() {
        let hex: Vec<_> = line.iter().map(|b| format!("{b:02x}")).collect();
        dump += &format!("{:4}: {}\n", i * 16, hex.join(" "));
    }
    assert_eq!(written, documented(), "written:\n{dump}");
}

#[test]
fn the_worked_example_is_read() {
    let sim = SimEnv::new(0);
    let path = Path::new("/000007.log");
    sim.write_file(path, documented());
    let env: Arc<dyn Env> = sim;
    let mut reader = SegmentReader::open(&env, path, SegmentKind::Wal, 7, None).unwrap();
    assert_eq!(reader.header(), b"prev");
    let mut record = Vec::new();
    for expected in ["cairn", "", "stone"] {
        reader.next(&mut record).unwrap().expect("a record");
        assert_eq!(record, expected.as_bytes());
    }
    assert!(reader.next(&mut record).unwrap().is_none());
    assert_eq!((reader.tail(), reader.proven_synced()), (Some(Tail::Clean), 59));
}

#[test]
fn the_constants_are_documented() {
    for text in [
        format!("{BLOCK_LEN} bytes"),
        format!("{CHUNK_HEADER_LEN} bytes"),
        format!("at most {MAX_HEADER_LEN}"),
        format!("version {FORMAT_VERSION}"),
        format!("version {FORMAT_VERSION_OVER}"),
        format!("at least {LOG_END} zeros"),
        format!("`{}` write-ahead log", SegmentKind::Wal.code()),
        format!("`{}` manifest", SegmentKind::Manifest.code()),
        format!("`{}` values", SegmentKind::Values.code()),
        format!("{} bytes", base::limits::MAX_BATCH_LEN),
    ] {
        assert!(DOC.contains(&text), "{text}");
    }
}
