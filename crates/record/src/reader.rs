//! Reading a segment back, and telling damage from a torn tail.

use crate::format::{BLOCK_LEN, CHUNK_HEADER_LEN, Identity, RawChunk, SegmentKind, decode_segment_header};
use crate::writer::room;
use base::limits::MAX_BATCH_LEN;
use base::planted::{Bug, planted};
use base::{Error, Result};
use env::{Env, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// What salvage reads apart where a larger read fails. Blocks begin where one does.
const SECTOR: usize = 4 << 10;
const _: () = assert!(BLOCK_LEN.is_multiple_of(SECTOR));

/// Blocks that are read at once.
const BLOCKS_PER_READ: usize = 8;

/// How many checksums of chunks at unlikely places are tried behind a bad chunk. The chance that one of them holds by accident
/// is this by 2³².
const GUESSES: u32 = 1 << 16;

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// With the last byte of a record, which is the last byte of the file or of the length that was expected; or with zeros behind it
    /// up to the end of the file, which a log has while it is written to ([`Env::create_log`]); or, in a segment that is written over
    /// an older one ([`Env::reuse_log`]), with zeros in the place of the next chunk and no chunk of this segment behind them.
    ///
    /// A power cut that takes the end of a log, unsynced, may leave zeros there, too: as when it takes the end of the file with it,
    /// nothing in this segment tells. That something synced lies behind them does.
    Clean,
    /// With bytes that are not a whole record, from `offset` on: the remains of writes that were never synced. The records
    /// before it are all there.
    Torn {
        /// The first byte that no record accounts for.
        offset: u64,
    },
    /// Before its first record: not even its header was synced, as far as its bytes tell.
    TornHeader,
}

/// Where a record lies in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte of its first chunk.
    pub start: u64,
    /// The byte after its last chunk.
    pub end: u64,
}

/// Reads the records of a segment in the order in which they were appended.
///
/// A bad chunk is [`ErrorKind::Corruption`](base::ErrorKind) when an intact chunk behind it proves that it had been synced;
/// otherwise the segment ends there, and [`SegmentReader::tail`] tells. Memory: 256 KiB and the record.
pub struct SegmentReader {
    window: Window,
    id: Identity,
    /// The segment over which this one is written: what is behind the end is its.
    over: Option<Identity>,
    header: Vec<u8>,
    /// The closed length, if it is known.
    expected_len: Option<u64>,
    position: u64,
    valid_len: u64,
    proven_synced: u64,
    end: Option<Result<Tail>>,
}

impl SegmentReader {
    /// Opens a segment that may have been open when the process or the machine stopped.
    ///
    /// Fails with `Corruption` when its header is damaged though it had been synced, or is that of another segment, and with
    /// `Unsupported` when a newer version wrote it. A header that may simply not have reached the disk gives a reader
    /// without records whose tail is [`Tail::TornHeader`].
    pub fn open(env: &Arc<dyn Env>, path: &Path, kind: SegmentKind, number: u64) -> Result<SegmentReader> {
        SegmentReader::open_with(env, path, Identity { kind, number }, None)
    }

    /// Opens a segment that was closed, all synced, with this length. Anything bad below it is corruption; what lies
    /// behind it is not read.
    pub fn open_closed(
        env: &Arc<dyn Env>,
        path: &Path,
        kind: SegmentKind,
        number: u64,
        expected_len: u64,
    ) -> Result<SegmentReader> {
        SegmentReader::open_with(env, path, Identity { kind, number }, Some(expected_len))
    }

    fn open_with(
        env: &Arc<dyn Env>,
        path: &Path,
        id: Identity,
        expected_len: Option<u64>,
    ) -> Result<SegmentReader> {
        let window = Window::open(env.open(path)?, expected_len)?;
        let mut reader = SegmentReader {
            window,
            id,
            over: None,
            header: Vec::new(),
            expected_len,
            position: 0,
            valid_len: 0,
            proven_synced: 0,
            end: None,
        };
        reader.read_header()?;
        Ok(reader)
    }

    fn read_header(&mut self) -> Result<()> {
        let path = self.path().to_owned();
        let front = self.window.rest(0)?;
        let Some(header) = decode_segment_header(front) else {
            let tail = self.classify(0, "the header of the segment is damaged")?;
            debug_assert_eq!(tail, Tail::Torn { offset: 0 });
            self.end = Some(Ok(Tail::TornHeader));
            return Ok(());
        };
        let encoded_len = header.encoded_len() as u64;
        let (caller, over) = header.check(self.id, &path)?;
        self.header = caller.to_vec();
        self.over = over;
        self.position = encoded_len;
        self.valid_len = encoded_len;
        Ok(())
    }

    /// The caller's header; empty after [`Tail::TornHeader`].
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Reads the next record into `record`, which is cleared first, and says where it lies; `None` at the end. An error
    /// or the end stays.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, record: &mut Vec<u8>) -> Result<Option<Span>> {
        record.clear();
        match &self.end {
            Some(Ok(_)) => return Ok(None),
            Some(Err(error)) => return Err(error.clone()),
            None => {}
        }
        let step = self.read_record(record);
        match step {
            Ok(Step::Record(span)) => {
                self.valid_len = span.end;
                Ok(Some(span))
            }
            Ok(Step::End(tail)) => {
                record.clear();
                self.end = Some(Ok(tail));
                Ok(None)
            }
            Err(error) => {
                record.clear();
                self.end = Some(Err(error.clone()));
                Err(error)
            }
        }
    }

    fn read_record(&mut self, record: &mut Vec<u8>) -> Result<Step> {
        let mut start = None;
        loop {
            let offset = match self.next_chunk_offset() {
                Some(offset) => offset,
                None if start.is_none() && self.only_zeros_follow()? => return self.at_end(),
                None => return self.torn(self.position, "a record lacks its end"),
            };
            let rest = self.window.rest(offset)?;
            let counts =
                |id: &Identity| RawChunk::parse(rest).filter(|chunk| chunk.verify(*id, offset, rest));
            let mut chunk = counts(&self.id);
            if planted(Bug::CountOldChunks) {
                chunk = chunk.or_else(|| self.over.as_ref().and_then(counts));
            }
            let Some(chunk) = chunk else {
                if start.is_none() && (self.only_zeros_follow()? || self.ends_over_another(offset)?) {
                    return self.at_end();
                }
                return self.torn(offset, "a chunk is damaged");
            };
            if chunk.kind.begins() != start.is_none() {
                return Err(self.corruption(offset, "an intact chunk does not continue the record before it"));
            }
            if record.len() + chunk.payload_len > MAX_BATCH_LEN {
                return Err(self.corruption(offset, "a record is longer than any that is written"));
            }
            let end = CHUNK_HEADER_LEN + chunk.payload_len;
            record.extend_from_slice(&rest[CHUNK_HEADER_LEN..end]);
            self.proven_synced = self.proven_synced.max(chunk.proves(offset));
            self.position = offset + end as u64;
            let start = *start.get_or_insert(offset);
            if chunk.kind.ends() {
                return Ok(Step::Record(Span { start, end: self.position }));
            }
        }
    }

    /// Where the next chunk begins: here, or in the next block if this one has no room for a chunk. `None` when the file
    /// ends first.
    fn next_chunk_offset(&self) -> Option<u64> {
        let room = room(self.position);
        let offset = self.position + if room < CHUNK_HEADER_LEN { room as u64 } else { 0 };
        (offset < self.window.len).then_some(offset)
    }

    /// Whether there is nothing but zeros from here to the end.
    fn only_zeros_follow(&mut self) -> Result<bool> {
        let mut offset = self.position;
        while offset < self.window.len {
            let rest = self.window.rest(offset)?;
            if rest.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            offset += rest.len() as u64;
        }
        Ok(true)
    }

    /// Whether it is written over another segment, no chunk was begun at `offset`, where the next one would, and none of its own is
    /// anywhere behind.
    fn ends_over_another(&mut self, offset: u64) -> Result<bool> {
        let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
        if self.over.is_none() {
            return Ok(false);
        }
        let filler = (offset - self.position) as usize;
        if filler > 0 && !is_zero(&self.window.rest(self.position)?[..filler]) {
            return Ok(false);
        }
        let rest = self.window.rest(offset)?;
        Ok(is_zero(&rest[..rest.len().min(CHUNK_HEADER_LEN)]) && !self.search(offset)?.any)
    }

    /// The file ends where a record does. A closed segment must not end early.
    fn at_end(&self) -> Result<Step> {
        match self.expected_len {
            Some(expected) if self.position < expected => Err(self.corruption(
                self.position,
                format!("the segment ends here, but was closed with {expected} bytes"),
            )),
            _ => Ok(Step::End(Tail::Clean)),
        }
    }

    fn torn(&mut self, offset: u64, what: &str) -> Result<Step> {
        match self.classify(offset, what)? {
            // The segment ends with its last whole record, which may lie before the bad chunk.
            Tail::Torn { .. } => Ok(Step::End(Tail::Torn { offset: self.valid_len })),
            tail => Ok(Step::End(tail)),
        }
    }

    /// Decides what the bad bytes at `offset` are: corruption if they had been synced, a torn tail otherwise.
    fn classify(&mut self, offset: u64, what: &str) -> Result<Tail> {
        if planted(Bug::DamageIsATornTail) {
            return Ok(Tail::Torn { offset });
        }
        if let Some(expected) = self.expected_len {
            let message = format!("{what}, in a segment that was closed with {expected} bytes");
            return Err(self.corruption(offset, message));
        }
        let found = self.search(offset)?;
        self.proven_synced = found.proven_synced;
        match found.proof {
            Some(proof) => {
                let message = format!(
                    "{what}, though the segment was synced to offset {} before the chunk at offset {} was written",
                    proof.synced, proof.offset
                );
                Err(self.corruption(offset, message))
            }
            None => Ok(Tail::Torn { offset }),
        }
    }

    /// Looks behind the bad chunk at `damage` for an intact one that proves a synced offset beyond it.
    fn search(&mut self, damage: u64) -> Result<Found> {
        let rest = self.window.rest(damage)?;
        let mut search = Search {
            id: self.id,
            over: self.over,
            damage,
            best: self.proven_synced,
            guesses_left: GUESSES,
            has_met: false,
        };
        let (mut offset, mut from) = (damage, search.after_damage(rest));
        let mut proof = None;
        while offset < self.window.len && proof.is_none() {
            let rest = self.window.rest(offset)?;
            proof = search.block(rest, offset, from);
            offset += rest.len() as u64;
            from = From::Chunk(0);
        }
        Ok(Found { proof, proven_synced: search.best, any: search.has_met })
    }

    /// How the segment ends; `None` before [`SegmentReader::next`] has said that it does.
    pub fn tail(&self) -> Option<Tail> {
        self.end.as_ref().and_then(|end| end.as_ref().ok().copied())
    }

    /// Length of the header and the records read so far, in bytes. After the end: of all that is valid.
    pub fn valid_len(&self) -> u64 {
        self.valid_len
    }

    /// The bytes below this offset were synced by the writer, as the intact chunks seen so far prove; after the end, with
    /// those found behind a torn record.
    pub fn proven_synced(&self) -> u64 {
        self.proven_synced
    }

    fn path(&self) -> &Path {
        self.window.file.path()
    }

    fn corruption(&self, offset: u64, what: impl std::fmt::Display) -> Error {
        Error::corruption(self.path(), offset, what)
    }
}

enum Step {
    Record(Span),
    End(Tail),
}

/// What lies behind a bad chunk.
struct Found {
    proof: Option<Proof>,
    /// The furthest offset that is proven to be synced, there or before.
    proven_synced: u64,
    /// Whether there is any intact chunk.
    any: bool,
}

/// An intact chunk that proves how far the segment was synced.
struct Proof {
    synced: u64,
    offset: u64,
}

/// The search for a proof behind a bad chunk.
///
/// Chunks are found where the format says that one begins: at the start of each block, and behind an intact chunk. Where
/// that chain is broken, a chunk may begin at any byte, and each byte is tried that looks like the header of one that would
/// prove something new. Its checksum, bound to its very offset, then decides; but it has 32 bits, so guesses are limited
/// in number, lest one of them be right by chance and a torn tail pass for corruption.
///
/// What is left of another segment, over which this one is written, is known by its own checksums, and passed over from chunk to chunk:
/// otherwise each of its chunks would be such a guess.
struct Search {
    id: Identity,
    over: Option<Identity>,
    damage: u64,
    /// The furthest offset that was proven to be synced.
    best: u64,
    guesses_left: u32,
    /// Whether any intact chunk was met.
    has_met: bool,
}

/// Where in a run of bytes the search goes on.
#[derive(Clone, Copy)]
enum From {
    /// A chunk begins here, if all is well.
    Chunk(usize),
    /// Nobody knows where the next chunk begins; not before this.
    Anywhere(usize),
}

impl Search {
    /// Where to go on behind the bad chunk that `rest` begins with. Its length leads to the next one unless it is damaged.
    fn after_damage(&self, rest: &[u8]) -> From {
        let next = RawChunk::parse(rest).map(|chunk| CHUNK_HEADER_LEN + chunk.payload_len);
        let is_intact = |at: &usize| {
            RawChunk::parse(&rest[*at..])
                .is_some_and(|chunk| chunk.verify(self.id, self.damage + *at as u64, &rest[*at..]))
        };
        next.filter(is_intact).map_or(From::Anywhere(1), From::Chunk)
    }

    /// Searches `rest`, which lies at `offset` and ends with its block or with the segment.
    fn block(&mut self, rest: &[u8], offset: u64, mut from: From) -> Option<Proof> {
        loop {
            let (at, guess) = match from {
                From::Chunk(at) => (at, false),
                From::Anywhere(at) => (at, true),
            };
            if at + CHUNK_HEADER_LEN > rest.len() {
                return None;
            }
            from = From::Anywhere(at + 1);
            let Some(chunk) = RawChunk::parse(&rest[at..]) else { continue };
            let offset = offset + at as u64;
            let synced = chunk.proves(offset);
            if guess {
                if synced <= self.best || self.guesses_left == 0 {
                    continue;
                }
                self.guesses_left -= 1;
            }
            let behind = From::Chunk(at + CHUNK_HEADER_LEN + chunk.payload_len);
            let old = self.over.is_some_and(|over| chunk.verify(over, offset, &rest[at..]));
            if old && !planted(Bug::CountOldChunks) {
                from = behind;
                continue;
            }
            if !old && !chunk.verify(self.id, offset, &rest[at..]) {
                continue;
            }
            self.has_met = true;
            self.best = self.best.max(synced);
            if synced > self.damage {
                return Some(Proof { synced, offset });
            }
            from = behind;
        }
    }
}

/// A few blocks of the file, in memory.
pub(crate) struct Window {
    file: Arc<dyn ReadFile>,
    /// Whether zeros stand for what the system cannot read: no checksum vouches for them.
    zeros_for_unreadable: bool,
    /// Whether they did, anywhere.
    pub(crate) has_unreadable: bool,
    /// Length of the segment, as far as it is read.
    pub(crate) len: u64,
    start: u64,
    data: Vec<u8>,
}

impl Window {
    pub(crate) fn open(file: Arc<dyn ReadFile>, most: Option<u64>) -> Result<Window> {
        let len = file.len()?.min(most.unwrap_or(u64::MAX));
        Ok(Window {
            file,
            zeros_for_unreadable: false,
            has_unreadable: false,
            len,
            start: 0,
            data: Vec::new(),
        })
    }

    /// For salvage: what the system cannot read costs no more than its sectors.
    pub(crate) fn open_to_salvage(file: Arc<dyn ReadFile>) -> Result<Window> {
        let window = Window::open(file, None)?;
        Ok(Window { zeros_for_unreadable: true, ..window })
    }

    /// The bytes from `offset` to the end of its block or of the segment.
    #[inline]
    pub(crate) fn rest(&mut self, offset: u64) -> Result<&[u8]> {
        if offset < self.start || offset >= self.start + self.data.len() as u64 {
            self.load(offset)?;
        }
        let from = (offset - self.start) as usize;
        let to = (from + room(offset)).min(self.data.len());
        Ok(&self.data[from.min(to)..to])
    }

    fn load(&mut self, offset: u64) -> Result<()> {
        let start = offset - offset % BLOCK_LEN as u64;
        let len = self.len.saturating_sub(start).min((BLOCK_LEN * BLOCKS_PER_READ) as u64);
        self.data.resize(len as usize, 0);
        self.start = start;
        if let Err(error) = self.file.read_exact_at(&mut self.data, start) {
            if self.zeros_for_unreadable {
                self.load_sectors();
                return Ok(());
            }
            self.data.clear();
            return Err(error);
        }
        self.file.will_need(start + len, len);
        Ok(())
    }

    /// Reads one sector after the other.
    fn load_sectors(&mut self) {
        let sectors = (self.start..).step_by(SECTOR).zip(self.data.chunks_mut(SECTOR));
        for (offset, sector) in sectors {
            if self.file.read_exact_at(sector, offset).is_err() {
                sector.fill(0);
                self.has_unreadable = true;
            }
        }
    }
}
