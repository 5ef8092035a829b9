//! The decoders of this crate, for the fuzz targets of `crates/fuzz-targets`. Each function decodes arbitrary bytes, asserts the
//! properties of the result, and returns whether the bytes were accepted.
//!
//! Not part of the public library: only those targets enable the feature `fuzzing`.

use crate::format::compression::{Compression, Compressor};
use crate::format::decode_error::DecodeError;
use crate::format::filter::{self, FilterShape, LINE};
use crate::format::footer::{self, Footer};
use crate::format::frame::{self, HEADER_LEN, Handle, Kind};
use crate::format::node::Layout;
use crate::format::node_builder::NodeBuilder;
use crate::format::properties;
use crate::format::rows::{self, ClassRows, Page, RowBuilder};
use crate::read::entry_cursor::EntryCursor;
use base::checksum::{Place, checksum};
use base::codec::Reader;
use base::limits::MAX_KEY_LEN;
use base::{Trailer, compare};
use std::cmp::Ordering;

/// Maximum number of entries of a node that are checked one by one.
const ENTRIES: usize = 256;

/// Maximum bytes that [`block`] lets a payload expand to.
pub const BLOCK_CAP: usize = 1 << 20;

fn place(file: u64, offset: u64, kind: Kind) -> Place {
    Place { file, offset, kind: kind as u8 }
}

/// A footer: flags, the number of the file, its length, and the 80 bytes. Flag 1 corrects the checksums.
pub fn footer(data: &[u8]) -> bool {
    let mut input = Reader::new(data);
    let (Some(flags), Some(file), Some(size), Some(body)) =
        (input.u8(), input.u64(), input.u64(), input.take(footer::LEN))
    else {
        return false;
    };
    let file_size = footer::LEN as u64 + size % (1 << 62);
    let mut bytes = [0; footer::LEN];
    bytes.copy_from_slice(body);
    if flags & 1 != 0 {
        bytes[..8].copy_from_slice(&file.to_le_bytes());
        bytes[8..16].copy_from_slice(&file_size.to_le_bytes());
        fix_footer(&mut bytes, file, file_size);
    }
    let decoded = match Footer::decode(&bytes, file, file_size) {
        Ok(footer) => footer,
        Err(DecodeError::Unknown(what, version)) => {
            let known = [footer::VERSION, footer::UNPADDED, footer::SIZE_CLASS, footer::TIMED];
            assert!(what == "format version" && !known.contains(&version));
            return false;
        }
        Err(DecodeError::Corrupt(_) | DecodeError::NotBuilt(_)) => return false,
    };
    let start = file_size - footer::LEN as u64;
    assert!(decoded.data_size <= decoded.index_start() && decoded.index_start() <= decoded.root.offset);
    assert!(decoded.root.end() == decoded.properties.offset && decoded.properties.end() == start);
    if let Some(last) = decoded.filter.partitions.checked_sub(1) {
        assert_eq!(decoded.filter.handle(last).end(), decoded.index_start());
    }
    assert_eq!(Footer::decode(&decoded.encode(), file, file_size), Ok(decoded));
    // All bytes have a meaning but the two that are zero.
    bytes[38..40].fill(0);
    assert_eq!(decoded.encode()[..footer::BODY], bytes[..footer::BODY]);
    assert!(Footer::decode(&bytes, file.wrapping_add(1), file_size).is_err(), "another file's footer");
    assert!(Footer::decode(&bytes, file, file_size + 1).is_err(), "the footer of another length");
    true
}

/// A filter: its shape (three numbers and a byte), then a partition. The partition also serves as hashes to build a filter from.
pub fn filter(data: &[u8]) -> bool {
    let mut input = Reader::new(data);
    let (Some(offset), Some(partitions), Some(lines), Some(probes)) =
        (input.u32(), input.u32(), input.u32(), input.u8())
    else {
        return false;
    };
    let partition = input.rest();
    let hashes: Vec<u64> = partition.as_chunks::<8>().0.iter().map(|h| u64::from_le_bytes(*h)).collect();
    let bits = u32::from(probes % 33);
    let built = FilterShape::new(offset.into(), hashes.len() as u64, bits);
    assert!(built.is_valid());
    // Without a filter there is nothing to build.
    let lines_built = if built.probes > 0 { filter::build(&built, &hashes) } else { Vec::new() };
    let contains = |hash: &u64| {
        let (part, line) = built.locate(*hash);
        let part = &lines_built[part as usize * built.partition_len()..][..built.partition_len()];
        filter::may_contain(part, line, *hash, built.probes) == Some(true)
    };
    assert!(built.probes == 0 || hashes.iter().all(contains), "a filter lacks a key");

    let shape = FilterShape { offset: offset.into(), partitions, lines, probes };
    if !shape.is_valid() {
        return false;
    }
    for &hash in hashes.iter().take(ENTRIES).filter(|_| probes > 0) {
        let (part, line) = shape.locate(hash);
        assert!(part < shape.partitions && line < shape.lines as usize);
        assert_eq!(shape.handle(part).size as usize, shape.partition_len() + HEADER_LEN);
        let answer = filter::may_contain(partition, line, hash, probes);
        assert_eq!(answer.is_none(), (line + 1) * LINE > partition.len());
    }
    true
}

/// The payload of a properties block.
pub fn properties(data: &[u8]) -> bool {
    let owner = properties::owner(data);
    let Ok(meta) = properties::decode(data, 7, 8) else { return false };
    assert!(meta.smallest.len() <= MAX_KEY_LEN && meta.largest.len() <= MAX_KEY_LEN);
    let mut out = Vec::new();
    properties::encode(&meta, owner.as_ref(), &mut out);
    assert_eq!((properties::decode(&out, 7, 8), properties::owner(&out)), (Ok(meta), owner));
    assert!(out.len() <= data.len(), "the canonical form is the shortest");
    true
}

/// A node: a byte (odd for an index node), the length of a key, the key, and the node.
pub fn node(data: &[u8]) -> bool {
    let mut input = Reader::new(data);
    let (Some(kind), Some(key)) = (input.u8(), input.bytes(MAX_KEY_LEN)) else { return false };
    let (index, bytes) = (kind & 1 != 0, input.rest());
    let Ok(layout) = Layout::parse(bytes, index, 0) else { return false };
    assert!(layout.count() > 0 && layout.count() <= bytes.len() / 10, "entries take ten bytes and more");
    for trailer in [Trailer(u64::MAX), Trailer(0), Trailer(u64::from(kind) << 8)] {
        if let Ok(i) = layout.lower_bound(bytes, key, trailer) {
            assert!(i <= layout.count());
        }
        if let Ok(i) = layout.child(bytes, key, trailer) {
            assert!(i < layout.count());
        }
        if let Ok(Some(found)) = layout.find(bytes, key, trailer) {
            assert!(found.value_start <= found.value_end && found.value_end <= bytes.len());
        }
    }
    match entries(bytes, &layout) {
        Some(entries) => check_node(bytes, &layout, index, &entries),
        None => return false,
    }
    true
}

/// Key, trailer and value of an entry.
type Entry = (Vec<u8>, Trailer, Vec<u8>);

/// All entries of a node, if all are intact and in order.
fn entries(bytes: &[u8], layout: &Layout) -> Option<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut at = EntryCursor::new();
    at.enter(bytes, layout);
    for i in 0..layout.count().min(ENTRIES) {
        at.move_to(bytes, layout, i).ok()?;
        assert!(at.key().len() <= MAX_KEY_LEN, "a key of {} bytes is let through", at.key().len());
        entries.push((at.key().to_vec(), at.trailer(), at.value(bytes).to_vec()));
    }
    let in_order = |w: &[Entry]| compare(&w[0].0, w[0].1, &w[1].0, w[1].1) == Ordering::Less;
    let complete = entries.len() == layout.count() && layout.check_heads(bytes).is_ok();
    (complete && entries.windows(2).all(in_order)).then_some(entries)
}

/// Asserts that a valid node finds each of its entries, and has the same entries when it is written anew.
fn check_node(bytes: &[u8], layout: &Layout, index: bool, entries: &[Entry]) {
    let mut builder = NodeBuilder::new(index);
    for (i, (key, trailer, value)) in entries.iter().enumerate() {
        assert_eq!(layout.lower_bound(bytes, key, *trailer), Ok(i));
        assert_eq!(layout.child(bytes, key, *trailer), Ok(i));
        let found = layout.find(bytes, key, *trailer).expect("all entries are intact").expect("it is there");
        assert!(found.trailer == *trailer && found.value(bytes) == value);
        let handle = layout.handle(bytes, i);
        assert!(handle.is_err() || Reader::new(value).varint() == handle.map(|h| h.offset).ok());
        builder.add(key, *trailer, value);
    }
    let mut again = Vec::new();
    builder.write_to(&mut again);
    let layout = Layout::parse(&again, index, 0).expect("what was built parses");
    assert_eq!(self::entries(&again, &layout).as_deref(), Some(entries));
}

/// The payload of a page of rows, after the length of a key and the key.
pub fn rows(data: &[u8]) -> bool {
    let mut input = Reader::new(data);
    let Some(key) = input.bytes(MAX_KEY_LEN) else { return false };
    let Ok(page) = Page::parse(input.rest(), 0) else { return false };
    assert!(page.count > 0 && page.count <= page.class.rows_per_page());
    for trailer in [Trailer(u64::MAX), Trailer(0)] {
        if let Ok(i) = page.lower_bound(key, base::head(key), trailer) {
            assert!(i <= page.count);
        }
    }
    let mut builder = RowBuilder::new(page.class);
    let mut last: Option<(Vec<u8>, Trailer)> = None;
    let mut ordered = true;
    for i in 0..page.count {
        let row = page.row(i);
        let (Ok(key), Ok(trailer)) = (row.key(), row.trailer()) else { return false };
        assert!(rows::SizeClass::of(key.len()) == page.class, "a key of another class is let through");
        if row.is_canonical() != Ok(true) {
            return false;
        }
        let value = row.value();
        let at = builder.add(key, trailer, value.start, value.len);
        builder.set_block(at, value.block);
        let before = last.replace((key.to_vec(), trailer));
        ordered &= before.is_none_or(|b| compare(&b.0, b.1, key, trailer) == Ordering::Less);
    }
    if !page.ends_with_zeros() {
        return false;
    }
    let mut again = Vec::new();
    let written = builder.write_pages(|page| {
        again.push(page.to_vec());
        Ok::<(), ()>(())
    });
    assert!(written.is_ok() && again == [page.payload], "a canonical page is written as it was read");
    for i in (0..page.count).filter(|_| ordered) {
        let row = page.row(i);
        let (Ok(key), Ok(trailer)) = (row.key(), row.trailer()) else { return false };
        assert_eq!(page.lower_bound(key, base::head(key), trailer), Ok(i));
    }
    true
}

/// The directory of rows, after a byte for where the rows begin.
pub fn directory(data: &[u8]) -> bool {
    let Some((start, bytes)) = data.split_first() else { return false };
    let start = u64::from(*start) * 4096;
    let Ok(classes) = rows::decode_directory(bytes, start, 0) else { return false };
    let mut end = start;
    for rows in &classes {
        assert!(rows.offset == end && rows.rows > 0 && rows.pages() > 0);
        let last = rows.pages() - 1;
        assert_eq!(rows.first_row(last) + rows.rows_of(last) as u64, rows.rows);
        end = rows.end();
    }
    let mut again = Vec::new();
    rows::encode_directory(&classes, &mut again);
    assert_eq!(rows::decode_directory(&again, start, 0).as_deref(), Ok(&classes[..]));
    assert!(again.len() <= bytes.len(), "the canonical form is the shortest");
    classes
        == classes
            .iter()
            .map(|c: &ClassRows| ClassRows::new(c.class, c.rows, c.offset, 0))
            .collect::<Vec<_>>()
}

/// A block in its frame: flags, a cap, file and offset, and the frame. Flag 1 corrects length and checksum.
pub fn block(data: &[u8]) -> bool {
    let mut input = Reader::new(data);
    let (Some(flags), Some(cap), Some(file), Some(offset)) =
        (input.u8(), input.u32(), input.u64(), input.u64())
    else {
        return false;
    };
    let cap = cap as usize % BLOCK_CAP;
    let place = place(file, offset, Kind::Data);
    let mut frame = input.rest().to_vec();
    if flags & 1 != 0 {
        fix_frame(&mut frame, place);
    }
    let payload = match frame::open(frame.clone(), place, cap) {
        Ok(payload) => payload,
        Err(DecodeError::Unknown(what, code)) => {
            assert!(what == "compression" && code > 2);
            return false;
        }
        Err(DecodeError::Corrupt(_) | DecodeError::NotBuilt(_)) => return false,
    };
    assert!(payload.len() <= cap.max(frame.len() - HEADER_LEN));
    for elsewhere in [Place { file: file ^ 1, ..place }, Place { offset: offset ^ 8, ..place }] {
        assert!(frame::open(frame.clone(), elsewhere, cap).is_err(), "a block is accepted in another place");
    }
    for &compression in Compression::AVAILABLE {
        let mut compressor = Compressor::new(compression).expect("it is available");
        let mut out = Vec::new();
        let start = frame::begin(&mut out);
        out.extend_from_slice(&payload);
        frame::seal(&mut out, start, place, Some(&mut compressor), |_| flags & 2 != 0);
        assert_eq!(frame::open(out, place, payload.len()), Ok(payload.clone()));
    }
    true
}

/// Corrects length and checksum of a frame, if it is long enough for a header.
fn fix_frame(frame: &mut [u8], place: Place) {
    let Some(size) = frame.len().checked_sub(HEADER_LEN) else { return };
    frame[4..8].copy_from_slice(&(size as u32).to_le_bytes());
    let sum = checksum(place, &frame[4..]);
    frame[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Corrects both checksums of a footer.
fn fix_footer(bytes: &mut [u8; footer::LEN], file: u64, file_size: u64) {
    const VERSION: usize = footer::BODY + 4;
    let at = file_size - footer::LEN as u64;
    let sum = checksum(place(file, at, Kind::Footer), &bytes[..footer::BODY]);
    bytes[footer::BODY..VERSION].copy_from_slice(&sum.to_le_bytes());
    let sum = checksum(place(file, at, Kind::Version), &bytes[VERSION..VERSION + 4]);
    bytes[VERSION + 4..VERSION + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Corrects the checksums of a whole table, as far as its footer and the lengths of its blocks lead to them, and the file number and
/// length in the footer, so that hostile bytes pass them.
pub fn fix_table(bytes: &mut [u8], file: u64) {
    let file_size = bytes.len() as u64;
    let Some(end) = bytes.len().checked_sub(footer::LEN) else { return };
    let mut last = [0; footer::LEN];
    last.copy_from_slice(&bytes[end..]);
    last[..8].copy_from_slice(&file.to_le_bytes());
    last[8..16].copy_from_slice(&file_size.to_le_bytes());
    fix_footer(&mut last, file, file_size);
    bytes[end..].copy_from_slice(&last);
    let version = u32::from_le_bytes([last[64], last[65], last[66], last[67]]);
    let footer = Footer::parse(&last[..footer::BODY], version).filter(|footer| footer.data_size <= file_size);
    let Some(footer) = footer else { return };
    fix_run(bytes, file, footer.data_kind(), 0, footer.data_size);
    let (index, root) =
        if footer.is_size_class() { (Kind::Rows, Kind::Directory) } else { (Kind::Index, Kind::Index) };
    if footer.filter.is_valid() {
        for i in 0..footer.filter.partitions.min(64) {
            fix_at(bytes, file, Kind::Filter, footer.filter.handle(i));
        }
        let start = footer.index_start();
        let start = if footer.is_size_class() { rows::pages_start(start) } else { start };
        fix_run(bytes, file, index, start, footer.root.offset);
    }
    fix_at(bytes, file, root, footer.root);
    fix_at(bytes, file, Kind::Properties, footer.properties);
}

/// Corrects the consecutive frames from `start` to `end`.
fn fix_run(bytes: &mut [u8], file: u64, kind: Kind, start: u64, end: u64) {
    let mut at = start;
    while at < end {
        let header = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.first_chunk::<HEADER_LEN>());
        let Some(header) = header else { return };
        let size = frame::claimed_len(header);
        let padded = matches!(kind, Kind::Data | Kind::Values) && header[HEADER_LEN - 1] & frame::PADDED != 0;
        fix_at(bytes, file, kind, Handle { offset: at, size: size.min(u32::MAX.into()) as u32 });
        let next = at.saturating_add(size);
        at = if padded { next.checked_next_multiple_of(frame::PAGE).unwrap_or(next) } else { next };
    }
}

/// Corrects the frame at `handle`, if it lies inside the file.
fn fix_at(bytes: &mut [u8], file: u64, kind: Kind, handle: Handle) {
    let Ok(start) = usize::try_from(handle.offset) else { return };
    let end = start.saturating_add(handle.size as usize);
    if let Some(frame) = bytes.get_mut(start..end) {
        fix_frame(frame, place(file, handle.offset, kind));
    }
}
