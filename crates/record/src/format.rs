//! The byte layout of segments: constants, the segment header and the chunk header.

use base::checksum::{Place, checksum};
use base::codec::Reader;
use base::{Error, Result};
use std::fmt;
use std::path::Path;

/// Length of a block, in bytes. A chunk never spans two blocks.
pub const BLOCK_LEN: usize = 32 << 10;

/// Length of a chunk header, in bytes: checksum (4), payload length (2), type (1), unsynced (4).
pub const CHUNK_HEADER_LEN: usize = 11;

/// Maximum length of the caller's header in a segment, in bytes.
pub const MAX_HEADER_LEN: usize = 4 << 10;

/// Format version of a segment in a new file.
pub const FORMAT_VERSION: u16 = 1;

/// Format version of a segment in a recycled file: the content of the old segment follows its end. The caller's
/// header begins with the number of the old segment. Used for logs only.
pub const FORMAT_VERSION_OVER: u16 = 2;

/// Length of the number of the old segment.
const OVER_LEN: usize = 8;

// The zeros behind the end of a recycled segment cover the place of the next chunk, even if filler comes first.
const _: () = assert!(env::LOG_END >= 2 * CHUNK_HEADER_LEN);

/// The first bytes of every segment.
const MAGIC: [u8; 8] = *b"CAIRNSEG";

/// Bytes before the caller's header: magic (8), version (2), kind (1), zero (1), length (4), number (8).
const FIXED_LEN: usize = 24;

/// Length of a checksum.
const SUM_LEN: usize = 4;

/// Minimum length of a segment header.
pub(crate) const MIN_SEGMENT_HEADER_LEN: usize = FIXED_LEN + SUM_LEN;

/// The kind in the checksum of a segment header. No segment has this kind.
const HEADER_KIND: u8 = 0;

const _: () = assert!(BLOCK_LEN - CHUNK_HEADER_LEN <= u16::MAX as usize);
const _: () = assert!(MIN_SEGMENT_HEADER_LEN + MAX_HEADER_LEN + CHUNK_HEADER_LEN < BLOCK_LEN);

/// The use of a segment. The codes are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum SegmentKind {
    /// The write-ahead log of a database.
    Wal = 1,
    /// The manifest of a database.
    Manifest = 2,
    /// Values that a collection has copied out of logs.
    Values = 3,
    /// Keys and places of entries of a keyspace without order.
    Hints = 4,
    /// The list of the files of a generation of a backup.
    Backup = 5,
}

impl SegmentKind {
    /// The code in the file.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for SegmentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SegmentKind::Wal => "write-ahead log",
            SegmentKind::Manifest => "manifest",
            SegmentKind::Values => "values",
            SegmentKind::Hints => "hints",
            SegmentKind::Backup => "backup",
        })
    }
}

/// The position of a chunk in its record. Zero is not a type, so zeros are not a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ChunkType {
    Full = 1,
    First = 2,
    Middle = 3,
    Last = 4,
}

impl ChunkType {
    fn from_code(code: u8) -> Option<ChunkType> {
        Some(match code {
            1 => ChunkType::Full,
            2 => ChunkType::First,
            3 => ChunkType::Middle,
            4 => ChunkType::Last,
            _ => return None,
        })
    }

    /// The type of a chunk, given whether it begins and whether it ends its record.
    pub(crate) fn of(begins: bool, ends: bool) -> ChunkType {
        match (begins, ends) {
            (true, true) => ChunkType::Full,
            (true, false) => ChunkType::First,
            (false, false) => ChunkType::Middle,
            (false, true) => ChunkType::Last,
        }
    }

    pub(crate) fn begins(self) -> bool {
        matches!(self, ChunkType::Full | ChunkType::First)
    }

    pub(crate) fn ends(self) -> bool {
        matches!(self, ChunkType::Full | ChunkType::Last)
    }
}

/// The segment that a chunk belongs to. Covered by the chunk's checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) kind: SegmentKind,
    pub(crate) number: u64,
}

impl Identity {
    fn place(self, offset: u64) -> Place {
        Place { file: self.number, offset, kind: self.kind.code() }
    }
}

/// Fills in the header of `chunk`, which has space for the header followed by the payload. `synced`: the length of the
/// segment that is synced.
#[inline]
pub(crate) fn seal(id: Identity, offset: u64, synced: u64, kind: ChunkType, chunk: &mut [u8]) {
    let len = (chunk.len() - CHUNK_HEADER_LEN) as u16;
    let unsynced = u32::try_from(offset - synced).unwrap_or(u32::MAX);
    chunk[4..6].copy_from_slice(&len.to_le_bytes());
    chunk[6] = kind as u8;
    chunk[7..11].copy_from_slice(&unsynced.to_le_bytes());
    let sum = checksum(id.place(offset), &chunk[SUM_LEN..]);
    chunk[..SUM_LEN].copy_from_slice(&sum.to_le_bytes());
}

/// The fields of a chunk header. Not trustworthy before [`RawChunk::verify`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawChunk {
    pub(crate) kind: ChunkType,
    pub(crate) payload_len: usize,
    unsynced: u32,
    pub(crate) sum: u32,
}

impl RawChunk {
    /// Parses the header at the start of `rest`, the bytes up to the end of the block or file. `None` if no chunk can
    /// begin there.
    #[inline]
    pub(crate) fn parse(rest: &[u8]) -> Option<RawChunk> {
        RawChunk::parse_header(rest, rest.len())
    }

    /// The same with less than the payload: `room` bytes are left in the block or file.
    #[inline]
    pub(crate) fn parse_header(rest: &[u8], room: usize) -> Option<RawChunk> {
        let header = rest.first_chunk::<CHUNK_HEADER_LEN>()?;
        let kind = ChunkType::from_code(header[6])?;
        let payload_len = usize::from(u16::from_le_bytes([header[4], header[5]]));
        if payload_len > room - CHUNK_HEADER_LEN {
            return None;
        }
        let unsynced = u32::from_le_bytes([header[7], header[8], header[9], header[10]]);
        let sum = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        Some(RawChunk { kind, payload_len, unsynced, sum })
    }

    /// Whether this chunk was written at this offset of this segment. `rest` is the input of `parse`.
    #[inline]
    pub(crate) fn verify(&self, id: Identity, offset: u64, rest: &[u8]) -> bool {
        checksum(id.place(offset), &rest[SUM_LEN..CHUNK_HEADER_LEN + self.payload_len]) == self.sum
    }

    /// The writer had synced all bytes before the returned offset when it wrote the chunk at `offset`.
    #[inline]
    pub(crate) fn proves(&self, offset: u64) -> u64 {
        offset.saturating_sub(u64::from(self.unsynced))
    }
}

/// Maximum length of the caller's header in a recycled segment.
pub(crate) const MAX_HEADER_LEN_OVER: usize = MAX_HEADER_LEN - OVER_LEN;

/// Encodes the segment header. The caller's `header` has at most [`MAX_HEADER_LEN`] bytes. `over`: the number of the
/// old segment in the file.
pub(crate) fn encode_segment_header(id: Identity, over: Option<u64>, header: &[u8]) -> Vec<u8> {
    let over = over.map(u64::to_le_bytes);
    let version = if over.is_some() { FORMAT_VERSION_OVER } else { FORMAT_VERSION };
    let over = over.as_ref().map_or(&[][..], |number| number);
    let len = over.len() + header.len();
    let mut out = Vec::with_capacity(MIN_SEGMENT_HEADER_LEN + len);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&[id.kind.code(), 0]);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.extend_from_slice(&id.number.to_le_bytes());
    out.extend_from_slice(over);
    out.extend_from_slice(header);
    let sum = checksum(header_place(id.number), &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

fn header_place(number: u64) -> Place {
    Place { file: number, offset: 0, kind: HEADER_KIND }
}

/// A segment header with a valid checksum, of any version, kind and number.
pub(crate) struct SegmentHeader<'a> {
    pub(crate) version: u16,
    pub(crate) kind: u8,
    pub(crate) number: u64,
    pub(crate) caller: &'a [u8],
}

impl SegmentHeader<'_> {
    /// Length of the segment header, in bytes: the offset of the first chunk.
    pub(crate) fn encoded_len(&self) -> usize {
        MIN_SEGMENT_HEADER_LEN + self.caller.len()
    }

    /// Rejects versions that this program does not know, and segments other than `id`. Returns the caller's header
    /// and the old segment of a recycled file.
    pub(crate) fn check(&self, id: Identity, path: &Path) -> Result<(&[u8], Option<Identity>)> {
        let is_log = id.kind == SegmentKind::Wal;
        if self.version != FORMAT_VERSION && !(self.version == FORMAT_VERSION_OVER && is_log) {
            let known = match is_log {
                true => format!("{FORMAT_VERSION} and {FORMAT_VERSION_OVER} are"),
                false => format!("{FORMAT_VERSION} is"),
            };
            let message = format!("segment format version {} is not known; {known}", self.version);
            return Err(Error::unsupported(path, message));
        }
        if self.kind != id.kind.code() || self.number != id.number {
            let what = format!(
                "this is segment {} of kind {}, not segment {} of kind {} ({})",
                self.number,
                self.kind,
                id.number,
                id.kind.code(),
                id.kind
            );
            return Err(Error::corruption(path, 0, what));
        }
        if self.version == FORMAT_VERSION {
            return Ok((self.caller, None));
        }
        let Some((over, caller)) = self.caller.split_first_chunk::<OVER_LEN>() else {
            return Err(Error::corruption(path, 0, "the header lacks the number of the recycled segment"));
        };
        let number = u64::from_le_bytes(*over);
        // An old segment with the same number cannot be told from this one.
        let over = Some(Identity { number, ..id }).filter(|_| number != id.number);
        Ok((caller, over))
    }
}

/// Decodes the header at the start of `bytes`; `None` if it is incomplete or its checksum is wrong. This part of the
/// layout is the same in all versions, so that an unknown version is not taken for damage.
pub(crate) fn decode_segment_header(bytes: &[u8]) -> Option<SegmentHeader<'_>> {
    let mut reader = Reader::new(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return None;
    }
    let version = reader.u16()?;
    let kind = reader.u8()?;
    let _zero = reader.u8()?;
    let len = usize::try_from(reader.u32()?).ok().filter(|&len| len <= MAX_HEADER_LEN)?;
    let number = reader.u64()?;
    let caller = reader.take(len)?;
    let sum = reader.u32()?;
    (sum == checksum(header_place(number), &bytes[..FIXED_LEN + len])).then_some(SegmentHeader {
        version,
        kind,
        number,
        caller,
    })
}
