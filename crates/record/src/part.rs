//! Reads a part of a record, verified, without what is before it: by the chunk in which the part begins.

use crate::format::{BLOCK_LEN, CHUNK_HEADER_LEN, Identity, RawChunk, SegmentKind};
use crate::payload::payload_offset;
use base::{Error, Result};
use env::ReadFile;

/// A byte of a record in a segment: the offset of its chunk in the file, and its index in the payload of that chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkPlace {
    /// The offset of the header of the chunk.
    pub chunk: u64,
    /// The index of the byte in the payload, less than 32 KiB.
    pub within: u16,
}

/// The place of byte `index` of a record that was appended when the segment was `start` bytes long. The record has this byte.
pub fn chunk_place(start: u64, index: u64) -> ChunkPlace {
    let (block, header) = (BLOCK_LEN as u64, CHUNK_HEADER_LEN as u64);
    let offset = payload_offset(start, index);
    // The first chunk begins at `start`, or behind the rest of a block that is too short for a header; each other one begins its block.
    let chunk = start.max(offset - offset % block);
    ChunkPlace { chunk, within: (offset - chunk - header) as u16 }
}

/// What [`PartsOf::read`] has read.
#[derive(Debug)]
pub struct Part {
    /// The payload of the chunk from its first byte on, and of as many chunks behind it as were needed.
    pub payload: Vec<u8>,
    /// Whether the chunk begins its record.
    pub begins: bool,
}

/// A chunk, and its payload.
type Piece = (RawChunk, Vec<u8>);

/// So many blocks of a record are read at once: 4 MiB.
const MOST_AT_ONCE: usize = 128;

/// A segment of which parts are read.
pub struct PartsOf<'a> {
    /// The open file.
    pub file: &'a dyn ReadFile,
    /// The kind of the segment.
    pub kind: SegmentKind,
    /// Its number.
    pub number: u64,
    /// Its length, in bytes. Nothing behind it is read.
    pub len: u64,
}

impl PartsOf<'_> {
    /// Reads the chunk at offset `chunk`, and those behind it until `missing` returns 0 for their payload. It tells how many bytes are missing
    /// at least, so that these are read together. At first `expected` bytes are read, header included: if the chunk has no more, and
    /// nothing is missing then, it takes one read. `cached`: only what can be read without waiting for the disk; if that is not all, the disk
    /// is asked for it, and the result is `None`.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, if a chunk is not the one that was written there, or the record ends before it is whole; `Io`.
    pub fn read(
        &self,
        chunk: u64,
        expected: usize,
        cached: bool,
        missing: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Result<Option<Part>> {
        let Some((first, mut payload)) = self.read_chunk(chunk, expected, cached)? else { return Ok(None) };
        let (begins, mut ends, mut offset) = (first.kind.begins(), first.kind.ends(), chunk);
        let mut bytes = Vec::new();
        loop {
            let missing = match missing(&payload) {
                0 => return Ok(Some(Part { payload, begins })),
                _ if ends => return Err(self.damage(chunk, "a record ends within an entry")),
                missing => missing,
            };
            // Each further chunk of a record begins a block.
            offset = offset - offset % BLOCK_LEN as u64 + BLOCK_LEN as u64;
            let blocks = missing.div_ceil(BLOCK_LEN - CHUNK_HEADER_LEN).min(MOST_AT_ONCE);
            let len = ((blocks * BLOCK_LEN) as u64).min(self.len.saturating_sub(offset));
            bytes.resize(len as usize, 0);
            if !self.fill(&mut bytes, offset, cached)? {
                return Ok(None);
            }
            ends = self.continue_record(&bytes, &mut offset, &mut payload)?;
        }
    }

    /// Appends the payloads of the chunks in `bytes`, which are at `offset` in the file and continue a record, up to its last. Returns whether that is
    /// among them. `offset` is that of the last chunk then.
    fn continue_record(&self, bytes: &[u8], offset: &mut u64, payload: &mut Vec<u8>) -> Result<bool> {
        let start = *offset;
        if bytes.len() < CHUNK_HEADER_LEN {
            return Err(self.damage(start, "the segment ends before a chunk"));
        }
        for (i, block) in bytes.chunks(BLOCK_LEN).enumerate() {
            *offset = start + (i * BLOCK_LEN) as u64;
            let chunk = RawChunk::parse_header(block, block.len())
                .ok_or_else(|| self.damage(*offset, "no chunk begins here"))?;
            self.verify(&chunk, *offset, block)?;
            if chunk.kind.begins() {
                return Err(self.damage(*offset, "a chunk that continues a record is missing"));
            }
            payload.extend_from_slice(&block[CHUNK_HEADER_LEN..CHUNK_HEADER_LEN + chunk.payload_len]);
            if chunk.kind.ends() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn verify(&self, chunk: &RawChunk, offset: u64, bytes: &[u8]) -> Result<()> {
        let id = Identity { kind: self.kind, number: self.number };
        match chunk.verify(id, offset, bytes) {
            true => Ok(()),
            false => Err(self.damage(offset, "a chunk has a wrong checksum")),
        }
    }

    /// The payload of the record to which the chunk at `chunk` belongs, up to the end of that chunk, and how much of it is before that
    /// chunk. Reads the blocks before it up to the one in which the record begins.
    ///
    /// # Errors
    /// As for [`PartsOf::read`].
    pub fn read_from_start(&self, chunk: u64) -> Result<(Vec<u8>, usize)> {
        let block = BLOCK_LEN as u64;
        let mut pieces = vec![self.chunk_at(chunk)?];
        let mut at = chunk;
        while !pieces.last().expect("one is read").0.kind.begins() {
            // It is the first chunk of its block, so the one before it is the last of the block before.
            let before = match at.is_multiple_of(block) {
                true => self.last_chunk_of((at - 1) / block * block)?,
                false => None,
            };
            let (offset, piece) =
                before.ok_or_else(|| self.damage(at, "the beginning of a record is missing"))?;
            if piece.0.kind.ends() {
                return Err(self.damage(at, "the beginning of a record is missing"));
            }
            at = offset;
            pieces.push(piece);
        }
        let last = pieces[0].1.len();
        let payload = pieces.into_iter().rev().map(|(_, payload)| payload).collect::<Vec<_>>().concat();
        let before = payload.len() - last;
        Ok((payload, before))
    }

    /// The last chunk of the block at `block`, and its offset.
    fn last_chunk_of(&self, block: u64) -> Result<Option<(u64, Piece)>> {
        let (mut at, mut found) = (block, None);
        // The header of the segment is in front of the first chunk.
        if block == 0 {
            at = self.header_len()?;
        }
        while at % BLOCK_LEN as u64 + CHUNK_HEADER_LEN as u64 <= BLOCK_LEN as u64
            && at / BLOCK_LEN as u64 == block / BLOCK_LEN as u64
        {
            let piece = self.chunk_at(at)?;
            let end = at + (CHUNK_HEADER_LEN + piece.1.len()) as u64;
            found = Some((at, piece));
            at = end;
        }
        Ok(found)
    }

    fn header_len(&self) -> Result<u64> {
        let mut front = vec![0; (BLOCK_LEN as u64).min(self.len) as usize];
        self.file.read_exact_at(&mut front, 0)?;
        let header = crate::format::decode_segment_header(&front);
        Ok(header.ok_or_else(|| self.damage(0, "the header of the segment is damaged"))?.encoded_len() as u64)
    }

    fn chunk_at(&self, offset: u64) -> Result<Piece> {
        Ok(self
            .read_chunk(offset, BLOCK_LEN, false)?
            .expect("nothing but a read of what is cached is given up"))
    }

    /// The chunk at `offset`, and its payload.
    fn read_chunk(&self, offset: u64, expected: usize, cached: bool) -> Result<Option<Piece>> {
        let room =
            (BLOCK_LEN as u64 - offset % BLOCK_LEN as u64).min(self.len.saturating_sub(offset)) as usize;
        if room < CHUNK_HEADER_LEN {
            return Err(self.damage(offset, "the segment ends before a chunk"));
        }
        let mut bytes = vec![0; expected.clamp(CHUNK_HEADER_LEN, room)];
        if !self.fill(&mut bytes, offset, cached)? {
            return Ok(None);
        }
        let chunk = RawChunk::parse_header(&bytes, room)
            .ok_or_else(|| self.damage(offset, "no chunk begins here"))?;
        let (have, whole) = (bytes.len(), CHUNK_HEADER_LEN + chunk.payload_len);
        bytes.resize(whole, 0);
        if whole > have && !self.fill(&mut bytes[have..], offset + have as u64, cached)? {
            return Ok(None);
        }
        self.verify(&chunk, offset, &bytes)?;
        bytes.drain(..CHUNK_HEADER_LEN);
        Ok(Some((chunk, bytes)))
    }

    /// Reads; returns whether it did.
    fn fill(&self, bytes: &mut [u8], offset: u64, cached: bool) -> Result<bool> {
        if !cached {
            self.file.read_exact_at(bytes, offset)?;
            return Ok(true);
        }
        let read = self.file.try_read_cached(bytes, offset)?;
        if !read {
            self.file.will_need(offset, bytes.len() as u64);
        }
        Ok(read)
    }

    fn damage(&self, offset: u64, what: &str) -> Error {
        Error::corruption(self.file.path(), offset, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentWriter;
    use base::ErrorKind;
    use env::{Env, Rng, SimEnv};
    use std::path::Path;
    use std::sync::Arc;

    /// Where a record was appended, and the record.
    type Appended = (u64, Vec<u8>);

    /// A segment of records of many lengths, and its length.
    fn segment(path: &Path) -> (Arc<SimEnv>, Vec<Appended>, u64) {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        let mut writer = SegmentWriter::create(&env, path, SegmentKind::Values, 3, b"head").unwrap();
        let (mut rng, mut records) = (Rng::new(5), Vec::new());
        for i in 0..300 {
            let room = BLOCK_LEN as u64 - writer.len() % BLOCK_LEN as u64;
            let len = match i % 4 {
                // Every distance from the end of a block below two headers.
                0 => room.saturating_sub(rng.below(2 * CHUNK_HEADER_LEN as u64) + CHUNK_HEADER_LEN as u64),
                1 => rng.below(5 * BLOCK_LEN as u64),
                _ => rng.below(200),
            };
            let mut record = vec![0; len as usize];
            rng.fill(&mut record);
            records.push((writer.len(), record.clone()));
            writer.append(&[&record]).unwrap();
        }
        writer.flush().unwrap();
        (sim, records, writer.len())
    }

    #[test]
    fn parts_of_records_are_read_from_their_chunk() {
        let path = Path::new("/000003.val");
        let (sim, records, len) = segment(path);
        let file = sim.open(path).unwrap();
        let parts = PartsOf { file: &*file, kind: SegmentKind::Values, number: 3, len };
        let mut rng = Rng::new(6);
        for (start, record) in &records {
            for _ in 0..8.min(record.len()) {
                let at = rng.below(record.len() as u64) as usize;
                let wanted = &record[at..at + 1 + rng.below((record.len() - at) as u64) as usize];
                let place = chunk_place(*start, at as u64);
                let within = usize::from(place.within);
                // What is missing may be known, or only that something is.
                for (expected, most) in [(0, usize::MAX), (100, 1), (BLOCK_LEN, 40_000)] {
                    let mut missing =
                        |payload: &[u8]| (within + wanted.len()).saturating_sub(payload.len()).min(most);
                    let part = parts.read(place.chunk, expected, false, &mut missing).unwrap().unwrap();
                    assert!(part.payload[within..within + wanted.len()] == *wanted, "{at} of {start}");
                    let room = BLOCK_LEN as u64 - start % BLOCK_LEN as u64;
                    let first = if room < CHUNK_HEADER_LEN as u64 { start + room } else { *start };
                    assert_eq!(part.begins, place.chunk == first);
                }
                let (payload, before) = parts.read_from_start(place.chunk).unwrap();
                assert!(before + within == at && record.starts_with(&payload) && payload.len() > at);
            }
            for missing in [1, BLOCK_LEN, 50 * BLOCK_LEN] {
                let chunk = chunk_place(*start, 0).chunk;
                let error = parts.read(chunk, 0, false, &mut |_| missing).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption);
            }
        }
    }

    #[test]
    fn what_is_not_a_chunk_of_the_segment_is_refused() {
        let path = Path::new("/000003.val");
        let (sim, records, len) = segment(path);
        let file = sim.open(path).unwrap();
        let refused = |number: u64, len: u64, chunk: u64| {
            let parts = PartsOf { file: &*file, kind: SegmentKind::Values, number, len };
            let error = parts.read(chunk, 64, false, &mut |_| 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        };
        let (start, _) =
            records.iter().find(|(_, record)| record.len() > 100 && record.len() < 1000).unwrap();
        let chunk = chunk_place(*start, 0).chunk;
        refused(4, len, chunk);
        refused(3, len, chunk + 1);
        refused(3, chunk + 10, chunk);
        refused(3, chunk + 60, chunk);
        refused(3, 0, chunk);
        let mut whole = vec![0; len as usize];
        file.read_exact_at(&mut whole, 0).unwrap();
        for at in [0, 5, 6, 11, 40] {
            let mut damaged = whole.clone();
            damaged[chunk as usize + at] ^= 1;
            let copy = Path::new("/copy");
            let _ = sim.remove(copy);
            let mut writer = sim.create(copy).unwrap();
            writer.append(&damaged).unwrap();
            drop(writer);
            let file = sim.open(copy).unwrap();
            let parts = PartsOf { file: &*file, kind: SegmentKind::Values, number: 3, len };
            assert!(parts.read(chunk, 64, false, &mut |_| 0).is_err(), "byte {at}");
        }
    }
}
