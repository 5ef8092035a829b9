//! The file that a table is written to: blocks are built in a buffer, which is appended once it is large.

use crate::format::compression::Compressor;
use crate::format::frame::{self, Handle, Kind};
use crate::format::options::TableOptions;
use crate::write::block_align::BlockAligner;
use base::checksum::Place;
use base::{Error, Result, Trailer};
use env::{Env, WriteFile};
use std::cmp::Ordering;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes gathered before they are appended to the file.
const OUTPUT: usize = 512 << 10;

/// The same, for a writer that nothing waits for: the disk has more to do at once, and reads wait longer behind it.
const LARGE_OUTPUT: usize = 4 << 20;

/// The file of a table, and the bytes that were built and not yet appended to it.
pub(super) struct Output {
    pub(super) path: PathBuf,
    file: Box<dyn WriteFile>,
    number: u64,
    bytes: Vec<u8>,
    /// How many of them are appended at once.
    piece: usize,
    /// Offset in the file of the first of `bytes`.
    offset: u64,
    compressor: Compressor,
    /// Whether an append has failed.
    pub(super) failed: bool,
}

impl Output {
    /// Creates the file `path` for table `number`; it must not exist.
    pub(super) fn create(
        env: &Arc<dyn Env>,
        path: PathBuf,
        number: u64,
        options: &TableOptions,
    ) -> Result<Output> {
        let compressor = Compressor::new(options.compression)?;
        let file = env.create(&path)?;
        let (bytes, piece) = (Vec::new(), OUTPUT);
        Ok(Output { path, file, number, bytes, piece, offset: 0, compressor, failed: false })
    }

    /// Where the next block begins in the file.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Builds a block in place.
    pub(super) fn block(&mut self, kind: Kind, compress: bool, payload: impl FnOnce(&mut Vec<u8>)) -> Handle {
        let offset = self.end();
        let start = frame::begin(&mut self.bytes);
        payload(&mut self.bytes);
        let place = Place { file: self.number, offset, kind: kind as u8 };
        let compressor = compress.then_some(&mut self.compressor);
        let size = frame::seal(&mut self.bytes, start, place, compressor, |_| false);
        Handle { offset, size }
    }

    /// Builds a data or value block in place, with the padding that follows it. A block with the next entry alone would have `next` bytes
    /// of payload; 0: there is no next entry.
    pub(super) fn aligned_block(
        &mut self,
        kind: Kind,
        pages: &mut BlockAligner,
        next: usize,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> Handle {
        let offset = self.end();
        let start = frame::begin(&mut self.bytes);
        payload(&mut self.bytes);
        let raw = self.bytes.len() - start;
        let place = Place { file: self.number, offset, kind: kind as u8 };
        let mut padded = false;
        let size = frame::seal(&mut self.bytes, start, place, Some(&mut self.compressor), |stored| {
            let end = offset + u64::from(stored);
            padded = next > 0 && pages.pad(raw, stored, end, next + frame::HEADER_LEN);
            padded
        });
        if padded {
            self.zeros_to(frame::next_offset(offset, &self.bytes[start..]));
        }
        Handle { offset, size }
    }

    /// Appends zeros up to this offset in the file.
    pub(super) fn zeros_to(&mut self, end: u64) {
        self.bytes.resize((end - self.offset) as usize, 0);
    }

    /// Bytes that belong to no block.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends larger pieces from now on.
    pub(super) fn append_large_pieces(&mut self) {
        self.piece = LARGE_OUTPUT;
    }

    /// Frees the memory for bytes that are to come.
    pub(super) fn free(&mut self) {
        self.bytes = Vec::new();
        self.compressor.shrink(0);
    }

    /// Appends to the file once enough bytes have gathered.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.bytes.len() < self.piece { Ok(()) } else { self.append() }
    }

    /// Appends what has gathered to the file.
    pub(super) fn append(&mut self) -> Result<()> {
        let appended = self.file.append(&self.bytes);
        self.failed |= appended.is_err();
        appended?;
        self.offset += self.bytes.len() as u64;
        self.bytes.clear();
        self.bytes.shrink_to(4 * self.piece);
        self.compressor.shrink(4 * OUTPUT);
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(|e| e.sync_failed())
    }

    /// Whether two entries in a row have the same key; an error if they are out of order.
    #[inline]
    pub(super) fn check_order(&self, last: (&[u8], Trailer), next: (&[u8], Trailer)) -> Result<bool> {
        match base::compare_keys(last.0, next.0) {
            Ordering::Less => Ok(false),
            Ordering::Equal if last.1 > next.1 => Ok(true),
            _ => Err(self.out_of_order(next.0)),
        }
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let key = &key[..key.len().min(100)];
        self.invalid(&format!("key {:?} is not after the one before it", key.escape_ascii().to_string()))
    }

    /// The error of a caller that writes what a table cannot have.
    #[cold]
    pub(super) fn invalid(&self, what: &str) -> Error {
        Error::invalid(format!("{}: {what}", self.path.display()))
    }
}
