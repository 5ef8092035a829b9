//! Where the bytes of a record lie in the file: a record is cut into chunks at the ends of blocks, and a part of it can be read without
//! the rest.

use crate::format::{BLOCK_LEN, CHUNK_HEADER_LEN};

/// Payload of a chunk that fills a block.
const BLOCK_PAYLOAD: u64 = (BLOCK_LEN - CHUNK_HEADER_LEN) as u64;

/// Bytes from `offset` to the end of its block.
fn room(offset: u64) -> u64 {
    BLOCK_LEN as u64 - offset % BLOCK_LEN as u64
}

/// The offset in the file of byte `index` of a record that was appended when the segment was `start` bytes long. The record has this byte.
pub fn payload_offset(start: u64, index: u64) -> u64 {
    let header = CHUNK_HEADER_LEN as u64;
    // A rest of a block that is too short for a header is filled with zeros.
    let start = if room(start) < header { start + room(start) } else { start };
    let first = room(start) - header;
    match index.checked_sub(first) {
        None => start + header + index,
        Some(more) => {
            let blocks = more / BLOCK_PAYLOAD;
            start + room(start) + blocks * BLOCK_LEN as u64 + header + more % BLOCK_PAYLOAD
        }
    }
}

/// The number of bytes of the file, from `offset` on, that hold `len` bytes of a record, headers of chunks included. `offset` is that of a
/// byte of the record.
pub fn framed_len(offset: u64, len: u64) -> u64 {
    match len.checked_sub(room(offset)) {
        None | Some(0) => len,
        Some(more) => len + more.div_ceil(BLOCK_PAYLOAD) * CHUNK_HEADER_LEN as u64,
    }
}

/// Removes the headers of chunks from `framed`, the bytes of the file from `offset` on. The inverse of [`framed_len`].
pub fn remove_headers(framed: &mut Vec<u8>, offset: u64) {
    let (mut from, mut to) = (room(offset) as usize, room(offset) as usize);
    while from < framed.len() {
        let piece = from + CHUNK_HEADER_LEN..framed.len().min(from + BLOCK_LEN);
        from = piece.end;
        let len = piece.len();
        framed.copy_within(piece, to);
        to += len;
    }
    framed.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SegmentKind, SegmentWriter};
    use env::{Env, Rng, SimEnv};
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn any_part_of_a_record_is_found_without_the_rest() {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        let path = Path::new("/000001.log");
        let mut log = SegmentWriter::create(&env, path, SegmentKind::Wal, 1, b"").unwrap();
        let (mut rng, mut records) = (Rng::new(7), Vec::new());
        let block = BLOCK_LEN as u64;
        for i in 0..400 {
            // Every distance from the end of a block below two headers, and records of up to four blocks.
            let len = match i % 4 {
                0 => room(log.len())
                    .saturating_sub(rng.below(2 * CHUNK_HEADER_LEN as u64) + CHUNK_HEADER_LEN as u64),
                1 => rng.below(4 * block),
                _ => rng.below(300),
            };
            let mut record = vec![0; len as usize];
            rng.fill(&mut record);
            records.push((log.len(), record.clone()));
            log.append(&[&record]).unwrap();
        }
        log.flush().unwrap();
        let file = env.open(path).unwrap();
        for (start, record) in &records {
            for _ in 0..8 {
                let at = rng.below(record.len() as u64 + 1) as usize;
                let part = &record[at..at + rng.below((record.len() - at) as u64 + 1) as usize];
                if part.is_empty() {
                    continue;
                }
                let offset = payload_offset(*start, at as u64);
                let mut read = vec![0; framed_len(offset, part.len() as u64) as usize];
                file.read_exact_at(&mut read, offset).unwrap();
                remove_headers(&mut read, offset);
                assert!(read == part, "{} bytes at {at} of a record at {start}", part.len());
            }
        }
    }
}
