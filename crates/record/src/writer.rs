//! Writes segments: encodes records into a buffer, passes it to the operating system, syncs, and cleans up after
//! failures.

use crate::format::{
    BLOCK_LEN, CHUNK_HEADER_LEN, ChunkType, Identity, MAX_HEADER_LEN, MAX_HEADER_LEN_OVER, SegmentKind,
    encode_segment_header, seal,
};
use base::limits::MAX_BATCH_LEN;
use base::{Error, ErrorKind, Result};
use env::{Env, FrontSync, WriteFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A buffer that grew beyond this during one flush is freed, in bytes.
const KEEP_BUFFER_LEN: usize = 4 << 20;

/// A log record longer than this, in bytes, is never completely in the buffer: see [`SegmentWriter::append`].
pub const LARGE_LEN: usize = 1 << 20;

/// A large record is written in pieces of this length, in bytes, plus at most one chunk.
const PIECE_LEN: usize = 256 << 10;

/// Appends records to a new segment.
///
/// ```text
///   0 ........ synced_len ........ flushed_len ........ len
///     survives power cut | survives the process | in memory only
/// ```
///
/// After an error the writer is in one of two states. After a *failed flush*, the file is cut back to its previous
/// length and the records are still in the buffer: the caller drops those that it does not want
/// ([`SegmentWriter::rollback`]) and may continue, for example when the disk has space again. After a *failed sync*,
/// the content of the disk is unknown, and every later call fails with [`ErrorKind::ReadOnly`].
pub struct SegmentWriter {
    /// After a failed sync, the error of every later call.
    file: Result<Box<dyn WriteFile>>,
    path: PathBuf,
    id: Identity,
    buffer: Vec<u8>,
    flushed_len: u64,
    synced_len: u64,
    /// A large record is in the file, and no flush has confirmed it yet: a rollback may still cut it off.
    ahead: bool,
    /// A flush failed, and its remains may still be in the file.
    remains: bool,
}

impl SegmentWriter {
    /// Creates the segment file, which must not exist, and writes its header. The caller's `header` has at most
    /// [`MAX_HEADER_LEN`] bytes. Syncs neither the file nor the directory. Call [`SegmentWriter::sync`] before the
    /// first record if damage to the header must always be distinguishable from a torn tail.
    pub fn create(
        env: &Arc<dyn Env>,
        path: &Path,
        kind: SegmentKind,
        number: u64,
        header: &[u8],
    ) -> Result<SegmentWriter> {
        assert!(header.len() <= MAX_HEADER_LEN, "a header of {} bytes is too long", header.len());
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
        Ok(SegmentWriter::begun(Ok(file), path, id, encoded.len()))
    }

    /// Starts a log in the file of the unneeded log `old`, which has nothing else in it, and writes its header. `None` where
    /// recycling gains nothing ([`Env::reuse_log`]). The caller renames the file to `path`. Until the header is synced, the file may
    /// have the old header after a crash, or none. Otherwise like [`SegmentWriter::create`].
    pub fn create_over(
        env: &Arc<dyn Env>,
        old: &Path,
        old_number: u64,
        path: &Path,
        number: u64,
        header: &[u8],
    ) -> Result<Option<SegmentWriter>> {
        assert!(
            header.len() <= MAX_HEADER_LEN_OVER && number != old_number,
            "cannot be written over segment {old_number}"
        );
        let Some(mut file) = env.reuse_log(old, path)? else { return Ok(None) };
        let id = Identity { kind: SegmentKind::Wal, number };
        let encoded = encode_segment_header(id, Some(old_number), header);
        file.append(&encoded)?;
        Ok(Some(SegmentWriter::begun(Ok(file), path, id, encoded.len())))
    }

    fn begun(file: Result<Box<dyn WriteFile>>, path: &Path, id: Identity, len: usize) -> SegmentWriter {
        SegmentWriter {
            file,
            path: path.to_owned(),
            id,
            buffer: Vec::new(),
            flushed_len: len as u64,
            synced_len: 0,
            ahead: false,
            remains: false,
        }
    }

    /// A writer without a file, for a database that must not write: every call fails with `error`.
    pub fn refusing(path: &Path, kind: SegmentKind, number: u64, error: Error) -> SegmentWriter {
        SegmentWriter::begun(Err(error), path, Identity { kind, number }, 0)
    }

    /// Appends a record, given in parts, to the buffer. Accesses the file only to clean up after a failed flush. A
    /// record has at most [`MAX_BATCH_LEN`] bytes and may be empty. Costs one copy and one checksum.
    ///
    /// A log record longer than [`LARGE_LEN`] is written to the file at once, in pieces, after the content of the
    /// buffer. After an error, no part of it is in the segment, and the earlier content of the buffer is in the file
    /// or still in the buffer. [`SegmentWriter::rollback`] can remove such a record until the next flush.
    #[inline]
    pub fn append(&mut self, record: &[&[u8]]) -> Result<()> {
        let len: usize = record.iter().map(|part| part.len()).sum();
        if len > MAX_BATCH_LEN || self.remains || self.file.is_err() {
            self.check(len)?;
        }
        let offset = self.len();
        if len + CHUNK_HEADER_LEN > room(offset) {
            return match len > LARGE_LEN && self.id.kind != SegmentKind::Manifest {
                true => self.append_large(record, len),
                false => self.append_chunks(record, len, usize::MAX),
            };
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; CHUNK_HEADER_LEN]);
        for part in record {
            self.buffer.extend_from_slice(part);
        }
        seal(self.id, offset, self.synced_len, ChunkType::Full, &mut self.buffer[start..]);
        Ok(())
    }

    /// Checks that a record of `len` bytes may be appended. Cleans up after a failed flush first.
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

    /// Appends a record of `len` bytes in pieces, so that the buffer never holds all of it.
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

    /// Appends the buffer to the file.
    fn hand_over(&mut self) -> Result<()> {
        self.file.as_mut().map_err(|e| e.clone())?.append(&self.buffer)?;
        self.flushed_len += self.buffer.len() as u64;
        self.cut_buffer(0);
        Ok(())
    }

    /// Keeps the first `len` bytes of the buffer.
    fn cut_buffer(&mut self, len: usize) {
        self.buffer.truncate(len);
        if len == 0 && self.buffer.capacity() > KEEP_BUFFER_LEN {
            self.buffer = Vec::new();
        }
    }

    /// Cuts the file back to `len` bytes: now if possible, otherwise before the next write. Clears the buffer.
    fn take_back(&mut self, len: u64) {
        debug_assert!(len >= self.synced_len);
        self.buffer.clear();
        self.flushed_len = len;
        self.remains = true;
        // If it fails, the next call tries again and returns the error.
        let _ = self.clean_up();
    }

    /// Appends a record of `left` bytes that needs several chunks or a new block. Writes the buffer to the file when
    /// it holds `most` bytes.
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
            let kind = ChunkType::of(begins, left == 0);
            seal(self.id, offset, self.synced_len, kind, &mut self.buffer[start..]);
            begins = false;
            if left == 0 {
                return Ok(());
            }
            if self.buffer.len() >= most {
                self.hand_over()?;
            }
        }
    }

    /// Passes the buffer to the operating system with one append.
    ///
    /// If it fails, no record since the last successful flush is in the segment: the file is cut back and the cut is
    /// synced, immediately if possible, otherwise before the next write. The records stay in the buffer for the next
    /// flush, unless they are rolled back. A crash before the cut is durable may restore some of them, like any write
    /// in progress.
    pub fn flush(&mut self) -> Result<()> {
        self.clean_up()?;
        if self.buffer.is_empty() {
            self.ahead = false;
            return Ok(());
        }
        let written = self.hand_over();
        match written {
            Ok(()) => self.ahead = false,
            Err(_) => {
                self.remains = true;
                // If it fails, the next call tries again and returns the error.
                let _ = self.clean_up();
            }
        }
        written
    }

    /// Drops the records at or behind offset `len`, which must be the start of a record. Removes records that were
    /// appended but not flushed. Flushed records stay, unless a large record was appended since the last flush: then
    /// everything at or behind `len` is cut off the file.
    pub fn rollback(&mut self, len: u64) {
        if self.ahead && len < self.flushed_len {
            return self.take_back(len);
        }
        self.cut_buffer(len.saturating_sub(self.flushed_len) as usize);
    }

    /// Flushes, then makes all appended records durable. After a failed sync, every call fails.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        if self.synced_len != self.flushed_len {
            self.sync_file()?;
            self.synced_len = self.flushed_len;
        }
        Ok(())
    }

    /// [`SegmentWriter::sync`] for a long segment, beside reads: the disk gets it in portions.
    pub fn sync_in_portions(&mut self) -> Result<()> {
        self.flush()?;
        if self.synced_len != self.flushed_len {
            self.stop_if_failed(|file| file.write_back())?;
        }
        self.sync()
    }

    fn sync_file(&mut self) -> Result<()> {
        self.stop_if_failed(|file| file.sync())
    }

    fn stop_if_failed(&mut self, sync: impl FnOnce(&mut dyn WriteFile) -> Result<()>) -> Result<()> {
        let synced = sync(&mut **self.file.as_mut().map_err(|e| e.clone())?);
        synced.inspect_err(|error| {
            let stopped = error.context("writing stopped after a failed sync").with_kind(ErrorKind::ReadOnly);
            self.file = Err(stopped);
        })
    }

    /// Fails after a failed sync. Removes what a failed flush left in the file.
    ///
    /// The cut is synced before anything is written over it. Otherwise a crash could keep the new records and lose
    /// the cut. An old record that begins exactly where a new one ends would then reappear behind it.
    fn clean_up(&mut self) -> Result<()> {
        let file = self.file.as_mut().map_err(|e| e.clone())?;
        if self.remains {
            file.truncate(self.flushed_len)?;
            // Not counted in `synced_len`: chunks must claim only syncs that the caller asked for. The caller may
            // attach a meaning to them, for example that the earlier segments are synced too.
            self.sync_file()?;
            self.remains = false;
        }
        Ok(())
    }

    /// No appends follow for now: cuts off the bytes behind the end of a log. Best effort.
    pub fn trim(&mut self) {
        if let Ok(file) = &mut self.file {
            file.trim();
        }
    }

    /// The writer is idle: see [`WriteFile::on_idle`].
    pub fn on_idle(&mut self) {
        if let Ok(file) = &mut self.file {
            file.on_idle();
        }
    }

    /// Length of the segment in bytes, including the buffer: the offset of the next chunk.
    #[inline]
    pub fn len(&self) -> u64 {
        self.flushed_len + self.buffer.len() as u64
    }

    /// Always false: a segment has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Length of the buffer, in bytes.
    #[inline]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Number of bytes that the operating system has.
    #[inline]
    pub fn flushed_len(&self) -> u64 {
        self.flushed_len
    }

    /// Number of durable bytes.
    #[inline]
    pub fn synced_len(&self) -> u64 {
        self.synced_len
    }

    /// The sync of what the operating system holds so far, for a thread that runs it while this one appends. Such a sync does not
    /// count in [`SegmentWriter::synced_len`]: no chunk claims it.
    pub fn front(&self) -> Result<FrontSync> {
        self.file.as_ref().map(|file| file.front(self.flushed_len)).map_err(Error::clone)
    }

    /// The number of the segment.
    pub fn number(&self) -> u64 {
        self.id.number
    }
}

/// Bytes left in the block at `offset`.
#[inline]
pub(crate) fn room(offset: u64) -> usize {
    BLOCK_LEN - (offset % BLOCK_LEN as u64) as usize
}
