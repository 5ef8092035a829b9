//! Reads segments, and tells damage from a torn tail.

use crate::finder::{Finder, From};
use crate::format::{BLOCK_LEN, CHUNK_HEADER_LEN, Identity, RawChunk, SegmentKind, decode_segment_header};
use crate::writer::room;
use base::limits::MAX_BATCH_LEN;
use base::planted::{Bug, planted};
use base::{Error, Result};
use env::{Env, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// Number of blocks in one read.
const BLOCKS_PER_READ: usize = 8;

/// How many checksums the search behind a bad chunk tries at offsets where no chunk is expected. One of them matches
/// by accident with probability `GUESSES` / 2³².
const GUESSES: u32 = 1 << 16;

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The last record is complete, and one of these follows: the end of the file or of the expected length; zeros up
    /// to the end of the file, which an open log has ([`Env::create_log`]); or, in a recycled segment
    /// ([`Env::reuse_log`]), zeros in place of the next chunk header and no chunk of this segment behind them.
    ///
    /// A power failure may replace the unsynced end of a log by zeros. This cannot be told from a clean end, as when
    /// the end of the file is lost. If a synced chunk follows the zeros, they are damage.
    Clean,
    /// Bytes that are no complete record follow [`SegmentReader::valid_len`]: the remains of writes that were never
    /// synced. All records before them are intact.
    Torn,
    /// The segment header is not intact, and no chunk proves that it was synced.
    TornHeader,
}

/// The position of a record in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte of its first chunk.
    pub start: u64,
    /// The byte after its last chunk.
    pub end: u64,
}

/// The last complete record that was read: the offset and the checksum of its last chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRecord {
    offset: u64,
    sum: u32,
}

impl LastRecord {
    /// Whether it still is in the file. If not, its writer has taken it back, perhaps with others before it.
    pub fn is_in(self, env: &Arc<dyn Env>, path: &Path) -> Result<bool> {
        self.is_there(&mut Window::open(env.open(path)?, None)?)
    }

    fn is_there(self, window: &mut Window) -> Result<bool> {
        Ok(self.offset < window.len
            && RawChunk::parse(window.rest(self.offset)?).is_some_and(|chunk| chunk.sum == self.sum))
    }
}

/// Reads the records of a segment in append order.
///
/// A bad chunk is [`ErrorKind::Corruption`](base::ErrorKind) if an intact chunk behind it proves that it was synced.
/// Otherwise the segment ends there, and [`SegmentReader::tail`] returns the kind of end. Uses 256 KiB of memory,
/// plus the record.
pub struct SegmentReader {
    window: Window,
    id: Identity,
    /// The old segment in a recycled file. Its chunks follow the end of this segment.
    over: Option<Identity>,
    header: Vec<u8>,
    /// The length at which the segment was closed, if known.
    expected_len: Option<u64>,
    position: u64,
    valid_len: u64,
    last: Option<LastRecord>,
    proven_synced: u64,
    end: Option<Result<Tail>>,
    /// The segment is appended to meanwhile: see [`SegmentReader::go_on`].
    followed: bool,
}

impl SegmentReader {
    /// Opens a segment that was closed at `expected_len` after a sync, or that may have been open when the process or the
    /// machine stopped (`None`). Bad bytes before the expected length are corruption; bytes behind it are not read.
    ///
    /// Fails with `Corruption` if the header is damaged although it was synced, or belongs to another segment; with
    /// `Unsupported` if a newer version wrote it. If the header may never have reached the disk, returns a reader
    /// without records whose tail is [`Tail::TornHeader`]. ([`SegmentReader::is_another`] tells a recycled log that never got its own.)
    pub fn open(
        env: &Arc<dyn Env>,
        path: &Path,
        kind: SegmentKind,
        number: u64,
        expected_len: Option<u64>,
    ) -> Result<SegmentReader> {
        let window = Window::open(env.open(path)?, expected_len)?;
        let mut reader = SegmentReader {
            window,
            id: Identity { kind, number },
            over: None,
            header: Vec::new(),
            expected_len,
            position: 0,
            valid_len: 0,
            last: None,
            proven_synced: 0,
            end: None,
            followed: false,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// Whether the file begins with the intact header of another segment: that of a recycled log whose new header was lost.
    pub fn is_another(env: &Arc<dyn Env>, path: &Path, kind: SegmentKind, number: u64) -> Result<bool> {
        let mut window = Window::open(env.open(path)?, None)?;
        let header = decode_segment_header(window.rest(0)?);
        Ok(header.is_some_and(|header| header.kind == kind.code() && header.number != number))
    }

    /// Whether the file has the header of this segment: one that was just created may have none yet, and a recycled one that of another.
    pub fn has_begun(env: &Arc<dyn Env>, path: &Path, kind: SegmentKind, number: u64) -> Result<bool> {
        let mut window = Window::open(env.open(path)?, None)?;
        let header = decode_segment_header(window.rest(0)?);
        Ok(header.is_some_and(|header| header.kind == kind.code() && header.number == number))
    }

    fn read_header(&mut self) -> Result<()> {
        let path = self.path().to_owned();
        let front = self.window.rest(0)?;
        let Some(header) = decode_segment_header(front) else {
            self.check_torn(0, "the header of the segment is damaged")?;
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

    /// Reads the next record into `record`, after clearing it, and returns its position; `None` at the end. After an
    /// error or the end, every call returns the same.
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

    /// The last complete record that was read, unless there was none.
    pub fn last_record(&self) -> Option<LastRecord> {
        self.last
    }

    /// Another reader of the same file, at the same place.
    pub fn another(&self) -> SegmentReader {
        SegmentReader {
            window: self.window.another(),
            id: self.id,
            over: self.over,
            header: self.header.clone(),
            expected_len: self.expected_len,
            position: self.position,
            valid_len: self.valid_len,
            last: self.last,
            proven_synced: self.proven_synced,
            end: self.end.clone(),
            followed: self.followed,
        }
    }

    /// Goes on behind the last complete record of a segment that its writer still appends to: the next calls of [`SegmentReader::next`] return what was
    /// appended since, up to what the writer has not finished.
    ///
    /// From now on bytes that are no complete record are the end, [`Tail::Torn`], whatever follows them: damage is not told from an append that is
    /// going on. The next segment tells how long this one was to be. Nothing behind the first `most` bytes is read.
    ///
    /// # Errors
    /// `Io`; `Corruption` if the last record is not there any more: the writer has taken it back, perhaps with others before it, and may have written
    /// another one in its place. A segment without an intact header has to be opened anew.
    pub fn go_on(&mut self, most: u64) -> Result<()> {
        if self.tail() == Some(Tail::TornHeader) {
            return Ok(());
        }
        self.window.renew(most.min(self.expected_len.unwrap_or(u64::MAX)))?;
        (self.position, self.end, self.followed) = (self.valid_len, None, true);
        if let Some(last) = self.last
            && !last.is_there(&mut self.window)?
        {
            return Err(self.corruption(last.offset, "a record that was read has been taken back"));
        }
        Ok(())
    }

    fn read_record(&mut self, record: &mut Vec<u8>) -> Result<Step> {
        let mut start = None;
        loop {
            let offset = match self.next_chunk_offset() {
                Some(offset) => offset,
                None if self.followed => return Ok(Step::End(Tail::Torn)),
                None if start.is_none() && self.window.is_zero(self.position, u64::MAX)? => {
                    return self.at_end();
                }
                None => {
                    self.check_torn(self.position, "a record lacks its end")?;
                    return Ok(Step::End(Tail::Torn));
                }
            };
            let rest = self.window.rest(offset)?;
            let counts =
                |id: &Identity| RawChunk::parse(rest).filter(|chunk| chunk.verify(*id, offset, rest));
            let mut chunk = counts(&self.id);
            if planted(Bug::CountOldChunks) {
                chunk = chunk.or_else(|| self.over.as_ref().and_then(counts));
            }
            let Some(chunk) = chunk else {
                if self.followed {
                    return Ok(Step::End(Tail::Torn));
                }
                if start.is_none()
                    && (self.window.is_zero(self.position, u64::MAX)? || self.ends_over_another(offset)?)
                {
                    return self.at_end();
                }
                self.check_torn(offset, "a chunk is damaged")?;
                return Ok(Step::End(Tail::Torn));
            };
            if chunk.kind.begins() != start.is_none() {
                return Err(self.corruption(offset, "an intact chunk does not continue the record before it"));
            }
            if record.len() + chunk.payload_len > MAX_BATCH_LEN {
                return Err(self.corruption(offset, "a record is longer than the maximum"));
            }
            let end = CHUNK_HEADER_LEN + chunk.payload_len;
            record.extend_from_slice(&rest[CHUNK_HEADER_LEN..end]);
            self.proven_synced = self.proven_synced.max(chunk.proves(offset));
            self.position = offset + end as u64;
            let start = *start.get_or_insert(offset);
            if chunk.kind.ends() {
                self.last = Some(LastRecord { offset, sum: chunk.sum });
                return Ok(Step::Record(Span { start, end: self.position }));
            }
        }
    }

    /// The offset of the next chunk: the current position, or the next block if a chunk does not fit in this one.
    /// `None` if the file ends before.
    fn next_chunk_offset(&self) -> Option<u64> {
        let room = room(self.position);
        let offset = self.position + if room < CHUNK_HEADER_LEN { room as u64 } else { 0 };
        (offset < self.window.len).then_some(offset)
    }

    /// Whether this is a recycled segment that ends before `offset`: zeros are in place of the next chunk header, and
    /// no chunk of this segment follows.
    fn ends_over_another(&mut self, offset: u64) -> Result<bool> {
        Ok(self.over.is_some()
            && self.window.is_zero(self.position, offset + CHUNK_HEADER_LEN as u64)?
            && !self.search(offset)?.any)
    }

    /// The file ends after a complete record. A closed segment must not end early.
    fn at_end(&self) -> Result<Step> {
        match self.expected_len {
            Some(expected) if self.position < expected => Err(self.corruption(
                self.position,
                format!("the segment ends here, but was closed with {expected} bytes"),
            )),
            _ => Ok(Step::End(Tail::Clean)),
        }
    }

    /// Fails if the bad bytes at `offset` had been synced. Otherwise they are a torn tail. (The segment then ends after its last
    /// complete record, which may be before them.)
    fn check_torn(&mut self, offset: u64, what: &str) -> Result<()> {
        if planted(Bug::DamageIsATornTail) {
            return Ok(());
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
                    "{what}, although the segment was synced to offset {} before the chunk at offset {} was written",
                    proof.synced, proof.offset
                );
                Err(self.corruption(offset, message))
            }
            None => Ok(()),
        }
    }

    /// Searches behind the bad chunk at `damage` for an intact chunk which proves that the damaged offset was synced.
    fn search(&mut self, damage: u64) -> Result<Found> {
        let mut finder = Finder { id: self.id, over: self.over, guesses_left: GUESSES };
        let mut found = Found { proof: None, proven_synced: self.proven_synced, any: false };
        let (mut offset, mut from) = (damage, finder.after_damage(self.window.rest(damage)?, damage));
        while offset < self.window.len {
            let rest = self.window.rest(offset)?;
            // A chunk that would prove no more than is known is worth no guess.
            while let Some((at, chunk, is_old)) =
                finder.find(rest, offset, from, |synced| synced > found.proven_synced)
            {
                from = From::Chunk(at + CHUNK_HEADER_LEN + chunk.payload_len);
                if is_old {
                    continue;
                }
                let offset = offset + at as u64;
                let synced = chunk.proves(offset);
                found.any = true;
                found.proven_synced = found.proven_synced.max(synced);
                if synced > damage {
                    found.proof = Some(Proof { synced, offset });
                    return Ok(found);
                }
            }
            offset += rest.len() as u64;
            from = From::Chunk(0);
        }
        Ok(found)
    }

    /// How the segment ends; `None` until [`SegmentReader::next`] reports the end.
    pub fn tail(&self) -> Option<Tail> {
        self.end.as_ref().and_then(|end| end.as_ref().ok().copied())
    }

    /// Length of the header and the records read so far, in bytes. After the end: length of all valid data.
    pub fn valid_len(&self) -> u64 {
        self.valid_len
    }

    /// The intact chunks read so far prove that the writer synced all bytes before this offset. After the end, this
    /// includes chunks found behind a torn record.
    pub fn proven_synced(&self) -> u64 {
        self.proven_synced
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
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

/// The result of a search behind a bad chunk.
struct Found {
    proof: Option<Proof>,
    /// The largest offset that is proven to be synced, by chunks found here or before.
    proven_synced: u64,
    /// Whether the search found any intact chunk.
    any: bool,
}

/// An intact chunk that proves how much of the segment was synced.
struct Proof {
    synced: u64,
    offset: u64,
}

/// A few blocks of the file, in memory.
pub(crate) struct Window {
    file: Arc<dyn ReadFile>,
    /// Whether unreadable sectors are replaced by zeros. For salvage; such zeros have no checksum.
    zeros_for_unreadable: bool,
    /// Whether a sector was unreadable.
    pub(crate) has_unreadable: bool,
    /// Length of the part of the segment that may be read.
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

    /// The same window, with nothing in memory.
    fn another(&self) -> Window {
        Window { file: self.file.clone(), data: Vec::new(), ..*self }
    }

    /// Forgets what it has in memory, and how long the file was.
    fn renew(&mut self, most: u64) -> Result<()> {
        self.len = self.file.len()?.min(most);
        self.data.clear();
        Ok(())
    }

    /// Opens a window for salvage: a read error costs only the sectors that cannot be read.
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

    /// Whether all bytes before `to`, as far as the segment has them, are zeros.
    pub(crate) fn is_zero(&mut self, from: u64, to: u64) -> Result<bool> {
        let mut offset = from;
        // A read may find that the file has become shorter.
        while offset < to.min(self.len) {
            let rest = self.rest(offset)?;
            let rest = &rest[..rest.len().min((to - offset) as usize)];
            if rest.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            offset += rest.len() as u64;
        }
        Ok(true)
    }

    fn load(&mut self, offset: u64) -> Result<()> {
        let start = offset - offset % BLOCK_LEN as u64;
        let len = self.len.saturating_sub(start).min((BLOCK_LEN * BLOCKS_PER_READ) as u64);
        self.data.resize(len as usize, 0);
        self.start = start;
        if len == 0 {
            return Ok(());
        }
        if self.zeros_for_unreadable {
            self.has_unreadable |= !self.file.read_readable_at(&mut self.data, start);
        } else if let Err(error) = self.file.read_exact_at(&mut self.data, start) {
            self.data.clear();
            // A log that is read beside its writer is cut to its length when it is closed.
            let len = self.file.len()?;
            if len >= self.len {
                return Err(error);
            }
            self.len = len;
            return self.load(offset);
        }
        self.file.will_need(start + len, len);
        Ok(())
    }
}
