//! Writing a segment: encoding into a buffer, handing it to the operating system, syncing, and what remains after failures.

use crate::format::{
    BLOCK_LEN, CHUNK_HEADER_LEN, ChunkPlace, ChunkType, Identity, MAX_HEADER_LEN, MAX_HEADER_LEN_OVER,
    SegmentKind, encode_segment_header, seal,
};
use base::limits::MAX_BATCH_LEN;
use base::{Error, ErrorKind, Result};
use env::{Env, WriteFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The buffer is given back to the allocator when one flush made it larger than this, in bytes.
const KEEP_BUFFER_LEN: usize = 4 << 20;

/// A record of a log that is longer than this, in bytes, is never whole in the buffer: see [`SegmentWriter::append`].
pub const LARGE_LEN: usize = 1 << 20;

/// Such a record goes to the file in pieces of this length, in bytes, or one chunk more.
const PIECE_LEN: usize = 256 << 10;

/// A segment that nobody needs any more, whose file another one can have. Its file has nothing in it but the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldSegment {
    /// Where it is.
    pub path: PathBuf,
    /// Its number.
    pub number: u64,
}

/// Appends records to a new segment.
///
/// ```text
///   0 ........ synced_len ........ flushed_len ........ len
///     survives power cut | survives the process | in memory only
/// ```
///
/// Errors leave it in one of two states. After a *failed flush* the file is cut back to where it was and the records are still
/// in the buffer: the caller takes back those that he does not want ([`SegmentWriter::rollback`]), and writing can go on
/// (the disk may have been full). After a *failed sync* nobody knows what is on disk, and every later call fails with
/// [`ErrorKind::ReadOnly`].
pub struct SegmentWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    id: Identity,
    buffer: Vec<u8>,
    flushed_len: u64,
    synced_len: u64,
    /// A large record is in the file, and no flush has said since that what is there stays.
    ahead: bool,
    /// A flush failed, and its remains may still be in the file.
    remains: bool,
    poison: Option<Error>,
}

impl SegmentWriter {
    /// Creates the segment's file, which must not exist, and writes its header; `header` is the caller's, at most
    /// [`MAX_HEADER_LEN`] bytes. Neither file nor directory is synced. To have damage to the header told from a torn tail
    /// from the first record on, [`SegmentWriter::sync`] before it.
    pub fn create(
        env: &Arc<dyn Env>,
        path: &Path,
        kind: SegmentKind,
        number: u64,
        header: &[u8],
    ) -> Result<SegmentWriter> {
        if header.len() > MAX_HEADER_LEN {
            let message = format!("{}: a header of {} bytes is too long", path.display(), header.len());
            return Err(Error::invalid(message));
        }
        let id = Identity { kind, number };
        let mut file = match kind {
            SegmentKind::Wal => env.create_log(path)?,
            _ => env.create(path)?,
        };
        let encoded = encode_segment_header(id, None, header);
        if let Err(error) = file.append(&encoded) {
            drop(file);
            let _ = env.remove(path);
            return Err(error);
        }
        Ok(SegmentWriter::begun(file, path, id, encoded.len()))
    }

    /// Begins a log over the log `old`, which nobody needs any more, and writes its header; `None` where that gains nothing
    /// ([`Env::reuse_log`]). The caller renames it to `path` when the header is synced, not before: until then it
    /// may have the header of the old one after a crash, or none. Apart from that as [`SegmentWriter::create`].
    pub fn create_over(
        env: &Arc<dyn Env>,
        old: &OldSegment,
        path: &Path,
        number: u64,
        header: &[u8],
    ) -> Result<Option<SegmentWriter>> {
        if header.len() > MAX_HEADER_LEN_OVER || number == old.number {
            return Err(Error::invalid(format!("{}: not to be written over {}", path.display(), old.number)));
        }
        let Some(mut file) = env.reuse_log(&old.path, path)? else { return Ok(None) };
        let id = Identity { kind: SegmentKind::Wal, number };
        let encoded = encode_segment_header(id, Some(old.number), header);
        file.append(&encoded)?;
        Ok(Some(SegmentWriter::begun(file, path, id, encoded.len())))
    }

    fn begun(file: Box<dyn WriteFile>, path: &Path, id: Identity, len: usize) -> SegmentWriter {
        SegmentWriter {
            file,
            path: path.to_owned(),
            id,
            buffer: Vec::new(),
            flushed_len: len as u64,
            synced_len: 0,
            ahead: false,
            remains: false,
            poison: None,
        }
    }

    /// A segment that there is not, for who must not write: every call fails with `error`.
    pub fn refusing(path: &Path, kind: SegmentKind, number: u64, error: Error) -> SegmentWriter {
        SegmentWriter {
            file: Box::new(NoFile(error.clone())),
            path: path.to_owned(),
            id: Identity { kind, number },
            buffer: Vec::new(),
            flushed_len: 0,
            synced_len: 0,
            ahead: false,
            remains: false,
            poison: Some(error),
        }
    }

    /// Appends one record, given in parts, to the buffer. Touches the file only to clean up after a failed flush. A record is
    /// at most [`MAX_BATCH_LEN`] bytes and may be empty. Costs one copy and one checksum.
    ///
    /// A record of a log that is longer than [`LARGE_LEN`] goes to the file at once, behind all that is buffered, and takes a piece of the buffer only. On
    /// an error nothing of it is in the segment; what was buffered is in the file, or still in the buffer. Until the next flush
    /// [`SegmentWriter::rollback`] takes it back, too.
    #[inline]
    pub fn append(&mut self, record: &[&[u8]]) -> Result<()> {
        let len: usize = record.iter().map(|part| part.len()).sum();
        if len > MAX_BATCH_LEN || self.remains || self.poison.is_some() {
            self.check(len)?;
        }
        let offset = self.len();
        if len + CHUNK_HEADER_LEN > room(offset) {
            return match len > LARGE_LEN && self.id.kind == SegmentKind::Wal {
                true => self.append_large(record, len),
                false => self.append_chunks(record, len, usize::MAX),
            };
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; CHUNK_HEADER_LEN]);
        for part in record {
            self.buffer.extend_from_slice(part);
        }
        let at = ChunkPlace { offset, synced: self.synced_len };
        seal(self.id, at, ChunkType::Full, &mut self.buffer[start..]);
        Ok(())
    }

    /// Whether a record of `len` bytes may be appended, after cleaning up if need be.
    #[cold]
    fn check(&mut self, len: usize) -> Result<()> {
        if len > MAX_BATCH_LEN {
            let message = format!(
                "{}: a record of {len} bytes is too long; {MAX_BATCH_LEN} are allowed",
                self.path.display()
            );
            return Err(Error::invalid(message));
        }
        self.clean_up()
    }

    /// Appends a record of `len` bytes by way of a buffer that does not hold it.
    #[cold]
    fn append_large(&mut self, record: &[&[u8]], len: usize) -> Result<()> {
        self.flush()?;
        let start = self.flushed_len;
        self.ahead = true;
        let written = self.append_chunks(record, len, PIECE_LEN).and_then(|()| self.hand_over());
        if written.is_err() {
            self.take_back(start);
        }
        written
    }

    /// Appends what is buffered to the file.
    fn hand_over(&mut self) -> Result<()> {
        self.file.append(&self.buffer)?;
        self.flushed_len += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Cuts the file back to `len` bytes, at once if possible, otherwise before anything else is written; what is buffered goes, too.
    fn take_back(&mut self, len: u64) {
        debug_assert!(len >= self.synced_len);
        self.buffer.clear();
        self.flushed_len = len;
        self.remains = true;
        // When it fails, the next call tries again and reports that error.
        let _ = self.clean_up();
    }

    /// Appends a record of `left` bytes that needs more than one chunk, or a new block. When `most` bytes are buffered they go to the file.
    fn append_chunks(&mut self, record: &[&[u8]], mut left: usize, most: usize) -> Result<()> {
        let mut parts = record.iter().copied();
        let mut part: &[u8] = &[];
        let mut begins = true;
        loop {
            let mut room_left = room(self.len());
            if room_left < CHUNK_HEADER_LEN {
                self.buffer.resize(self.buffer.len() + room_left, 0);
                room_left = BLOCK_LEN;
            }
            let offset = self.len();
            let start = self.buffer.len();
            let payload = left.min(room_left - CHUNK_HEADER_LEN);
            self.buffer.extend_from_slice(&[0; CHUNK_HEADER_LEN]);
            let mut wanted = payload;
            while wanted > 0 {
                if part.is_empty() {
                    part = parts.next().expect("the parts have `left` bytes together");
                    continue;
                }
                let (taken, rest) = part.split_at(wanted.min(part.len()));
                self.buffer.extend_from_slice(taken);
                wanted -= taken.len();
                part = rest;
            }
            left -= payload;
            let at = ChunkPlace { offset, synced: self.synced_len };
            seal(self.id, at, ChunkType::of(begins, left == 0), &mut self.buffer[start..]);
            begins = false;
            if left == 0 {
                return Ok(());
            }
            if self.buffer.len() >= most {
                self.hand_over()?;
            }
        }
    }

    /// Hands what is buffered to the operating system, with one append.
    ///
    /// When that fails, none of the records since the last successful flush is in the segment: the file is cut back and the
    /// cut synced, at once if possible, otherwise before anything else is written. They stay in the buffer, for the next
    /// flush, unless they are rolled back.
    /// A crash before the cut is durable may still bring some of them back, as it may any write that was under way.
    pub fn flush(&mut self) -> Result<()> {
        self.clean_up()?;
        if self.buffer.is_empty() {
            self.ahead = false;
            return Ok(());
        }
        let written = self.file.append(&self.buffer);
        match written {
            Ok(()) => {
                self.flushed_len += self.buffer.len() as u64;
                self.ahead = false;
                self.clear_buffer();
            }
            Err(_) => {
                self.remains = true;
                // When it fails, the next call tries again and reports that error.
                let _ = self.clean_up();
            }
        }
        written
    }

    fn clear_buffer(&mut self) {
        self.buffer.clear();
        if self.buffer.capacity() > KEEP_BUFFER_LEN {
            self.buffer = Vec::new();
        }
    }

    /// Drops what was appended at or behind offset `len`, which must be where a record begins: takes back records that were
    /// appended and not flushed. What a flush has handed to the operating system stays, unless large records were appended after that: then it is
    /// cut off with them.
    pub fn rollback(&mut self, len: u64) {
        if self.ahead && len < self.flushed_len {
            return self.take_back(len);
        }
        let keep = len.saturating_sub(self.flushed_len) as usize;
        if keep == 0 {
            self.clear_buffer();
        } else {
            self.buffer.truncate(keep);
        }
    }

    /// Flushes, then makes everything appended so far durable. After a failed sync, everything fails.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        if self.synced_len != self.flushed_len {
            self.sync_file()?;
            self.synced_len = self.flushed_len;
        }
        Ok(())
    }

    fn sync_file(&mut self) -> Result<()> {
        if let Err(error) = self.file.sync() {
            let stopped = error.context("writing stopped after a failed sync").with_kind(ErrorKind::ReadOnly);
            self.poison = Some(stopped);
            return Err(error);
        }
        Ok(())
    }

    /// Fails when a sync has failed; takes back what a failed flush left in the file.
    ///
    /// The cut is synced before anything is written over it. Otherwise a crash could keep the new records and lose the cut,
    /// and where an old record of the failed flush begins just where a new one ends, it would come back behind it.
    fn clean_up(&mut self) -> Result<()> {
        if let Some(error) = &self.poison {
            return Err(error.clone());
        }
        if self.remains {
            self.file.truncate(self.flushed_len)?;
            // Not counted in `synced_len`: chunks must claim only what the caller asked to be synced, because he may attach a
            // meaning to it, such as that the segments before this one are synced, too.
            self.sync_file()?;
            self.remains = false;
        }
        Ok(())
    }

    /// Nothing more is appended for the time being: cuts off what a log may have behind its end. Best effort.
    pub fn trim(&mut self) {
        self.file.trim();
    }

    /// A promise that [`SegmentWriter::rest`] is called ten times a second while nothing is appended: see [`WriteFile::expect_rests`].
    pub fn expect_rests(&mut self) {
        self.file.expect_rests();
    }

    /// Nothing is appended at present: lets others open the file.
    pub fn rest(&mut self) {
        self.file.rest();
    }

    /// Hints that the segment will grow to about `len` bytes.
    pub fn reserve(&mut self, len: u64) {
        self.file.reserve(len);
    }

    /// Length of the segment in bytes, with what is buffered: where the next chunk goes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.flushed_len + self.buffer.len() as u64
    }

    /// Never: a segment has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Bytes that the next flush hands over.
    #[inline]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes that the operating system holds.
    #[inline]
    pub fn flushed_len(&self) -> u64 {
        self.flushed_len
    }

    /// Bytes that are durable.
    #[inline]
    pub fn synced_len(&self) -> u64 {
        self.synced_len
    }

    /// The number of the segment.
    pub fn number(&self) -> u64 {
        self.id.number
    }

    /// Where the segment is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What a segment writes to that there is not.
struct NoFile(Error);

impl WriteFile for NoFile {
    fn append(&mut self, _data: &[u8]) -> Result<()> {
        Err(self.0.clone())
    }

    fn sync(&mut self) -> Result<()> {
        Err(self.0.clone())
    }

    fn truncate(&mut self, _len: u64) -> Result<()> {
        Err(self.0.clone())
    }

    fn len(&self) -> u64 {
        0
    }

    fn reserve(&mut self, _len: u64) {}
}

/// Bytes left in the block that `offset` lies in.
#[inline]
pub(crate) fn room(offset: u64) -> usize {
    BLOCK_LEN - (offset % BLOCK_LEN as u64) as usize
}
