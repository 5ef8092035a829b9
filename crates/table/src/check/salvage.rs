//! Reads what is intact in a damaged table file.
//!
//! The file is read as a sequence of blocks from offset 0, without footer and index. Each block contains its length, and a checksum
//! that is bound to this file and this offset, so a block that verifies was written at this place. After a damaged block the next
//! intact one is searched: where the damaged one claims to end, at the next page boundary, and then byte by byte. The bytes in between
//! are a [`Gap`].
//!
//! Entries come in the order of the table. A gap names the keys between which entries may be missing.

use crate::format::compression;
use crate::format::decode_error::DecodeError;
use crate::format::footer::{self, Footer};
use crate::format::frame::{self, HEADER_LEN, Kind};
use crate::format::node::Layout;
use crate::format::options::{TableOwner, table_file_name};
use crate::format::properties;
use crate::read::entry_cursor::EntryCursor;
use base::checksum::Place;
use base::{Cursor, Result, Seq, Trailer};
use env::Env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes per read.
const READ: usize = 64 << 10;
/// Maximum size of a block that the search byte by byte finds. Larger ones are found only after an intact block.
const SEARCHED_BLOCK: u64 = 8 << 20;
/// Minimum bytes of a block's payload: the header of a node.
const MIN_PAYLOAD: u64 = 16;

/// Bytes of a table file that are not part of an intact block, and may have held entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The last key before the gap: missing entries have this key (in an older version) or a larger one. `None` at the beginning.
    pub after: Option<Vec<u8>>,
    /// The first key after the gap; `None` at the end.
    pub before: Option<Vec<u8>>,
}

/// The readable content of a table file, in numbers.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Length of the file, in bytes.
    pub file_size: u64,
    /// Entries that can be read.
    pub entries: u64,
    /// Their [`SalvageCursor::fingerprint`].
    pub fingerprint: u64,
    /// Number of entries that were written, if the properties can be read.
    pub promised: Option<u64>,
    /// Smallest key that can be read.
    pub smallest: Vec<u8>,
    /// Largest key that can be read.
    pub largest: Vec<u8>,
    /// Smallest sequence number that can be read.
    pub min_seq: Seq,
    /// Places where entries may be missing.
    pub gaps: Vec<Gap>,
    /// Whether a part without entries is damaged: footer, index, filter or properties.
    pub other_damage: bool,
    /// The owner of the table, if the properties can be read and name it.
    pub owner: Option<TableOwner>,
}

/// Reads the intact blocks of one table file, in order. As a [`Cursor`] it goes forward only.
///
/// The file is opened for each read, so that many tables can be read at once. Memory: a block, and a buffer of 64 KiB.
pub struct SalvageCursor {
    env: Arc<dyn Env>,
    path: PathBuf,
    number: u64,
    len: u64,
    /// The end of the data if the footer is intact, otherwise the end of the file.
    end: u64,
    footer: Option<Footer>,
    position: u64,
    window: Window,
    payload: Vec<u8>,
    layout: Option<Layout>,
    at: EntryCursor,
    /// Kind of the block before.
    last_kind: Kind,
    /// A gap without the key after it yet.
    open_gap: Option<Gap>,
    fingerprint: u64,
    survey: Survey,
}

#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    offset: u64,
}

impl SalvageCursor {
    /// Opens table `number` in `dir`, and reads footer and properties.
    ///
    /// # Errors
    /// `Unsupported` if a newer version wrote the table; the error of `env` if the file cannot be opened.
    pub fn open(env: &Arc<dyn Env>, dir: &Path, number: u64) -> Result<SalvageCursor> {
        let path = dir.join(table_file_name(number));
        let len = env.open(&path)?.len()?;
        let mut cursor = SalvageCursor {
            env: env.clone(),
            path,
            number,
            len,
            end: len,
            footer: None,
            position: 0,
            window: Window::default(),
            payload: Vec::new(),
            layout: None,
            at: EntryCursor::new(),
            last_kind: Kind::Data,
            open_gap: None,
            fingerprint: 0,
            survey: Survey { file_size: len, min_seq: base::MAX_SEQ, ..Survey::default() },
        };
        cursor.read_end()?;
        Ok(cursor)
    }

    /// Reads footer and properties, as far as they are intact.
    fn read_end(&mut self) -> Result<()> {
        self.survey.other_damage = true;
        let Some(start) = self.len.checked_sub(footer::LEN as u64) else { return Ok(()) };
        let mut bytes = [0; footer::LEN];
        self.read(start, footer::LEN as u64);
        bytes.copy_from_slice(self.bytes(start, footer::LEN as u64));
        match Footer::decode(&bytes, self.number, self.len) {
            Ok(footer) => {
                self.end = footer.data_size;
                self.footer = Some(footer);
                let properties = footer.properties;
                if self.block(properties.offset, &[Kind::Properties]).is_some() {
                    self.note_properties();
                    self.survey.other_damage = false;
                }
                Ok(())
            }
            Err(unknown @ DecodeError::Unknown(..)) => Err(unknown.at(&self.path, start)),
            Err(_) => Ok(()),
        }
    }

    fn note_properties(&mut self) {
        let meta = properties::decode(&self.payload, self.number, self.len).ok();
        self.survey.promised = meta.map(|meta| meta.entries);
        self.survey.owner = properties::owner(&self.payload);
    }

    /// Reads the whole file and summarizes it. Call it on a new cursor.
    pub fn survey(mut self) -> Survey {
        let mut last = Vec::new();
        let survey = |cursor: &mut SalvageCursor, last: &mut Vec<u8>| {
            let (key, seq) = (cursor.key(), cursor.trailer().seq());
            last.clear();
            last.extend_from_slice(key);
            let first = (cursor.survey.entries == 0).then(|| key.to_vec());
            let survey = &mut cursor.survey;
            if let Some(first) = first {
                survey.smallest = first;
            }
            survey.entries += 1;
            survey.min_seq = survey.min_seq.min(seq);
        };
        self.rewind();
        while self.valid() {
            survey(&mut self, &mut last);
            self.step();
        }
        self.survey.largest = last;
        self.survey.fingerprint = self.fingerprint;
        self.close_gap(None);
        self.note_early_end();
        // All entries that were written were read: the damaged bytes held none.
        if self.survey.promised == Some(self.survey.entries) {
            self.survey.other_damage |= !self.survey.gaps.is_empty();
            self.survey.gaps.clear();
        }
        if self.footer.is_some() && !self.survey.other_damage {
            self.survey.other_damage = self.rest_is_damaged();
        }
        self.survey
    }

    /// Adds a gap at the end of a file that was truncated between two blocks, which has no damaged bytes.
    fn note_early_end(&mut self) {
        let survey = &mut self.survey;
        let cut_off = match survey.promised {
            Some(promised) => promised > survey.entries && survey.gaps.is_empty(),
            None => {
                let reaches_end = survey.gaps.last().is_some_and(|gap| gap.offset + gap.len >= self.end);
                self.footer.is_none() && self.last_kind == Kind::Data && !reaches_end
            }
        };
        if cut_off {
            let after = (survey.entries > 0).then(|| survey.largest.clone());
            survey.gaps.push(Gap { offset: self.end, len: 0, after, before: None });
        }
    }

    /// Whether a block after the data is damaged.
    fn rest_is_damaged(&mut self) -> bool {
        let Some(footer) = self.footer else { return true };
        let mut offset = footer.data_size;
        while offset < footer.properties.end() {
            match self.block(offset, &[Kind::Filter, Kind::Index, Kind::Properties]) {
                Some((_, next)) => offset = next,
                None => return true,
            }
        }
        false
    }

    /// Number of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A sum over the entries that the cursor has visited since the beginning. Two passes over a file with equal fingerprints gave the same
    /// entries; a failing disk may give different ones.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn rewind(&mut self) {
        self.position = 0;
        self.fingerprint = 0;
        self.last_kind = Kind::Data;
        self.layout = None;
        self.next_block();
    }

    /// Moves to the next entry that can be read.
    fn step(&mut self) {
        let next = self.at.index() + 1;
        match &self.layout {
            Some(layout) if next < layout.count() => self.stand(next),
            _ => self.next_block(),
        }
    }

    /// Moves to entry `i` of the current block; if that is malformed, to the first entry after the block.
    fn stand(&mut self, i: usize) {
        let Some(layout) = &self.layout else { return self.next_block() };
        match self.at.move_to(&self.payload, layout, i) {
            Ok(()) => {
                let entry =
                    base::hash(self.at.key()) ^ self.at.trailer().0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.fingerprint = self.fingerprint.wrapping_add(entry);
                if self.open_gap.is_some() {
                    let key = self.at.key().to_vec();
                    self.close_gap(Some(key));
                }
            }
            Err(_) => {
                // The key is not trusted, so the gap has no lower bound.
                self.layout = None;
                self.bad(self.position, 0);
                self.next_block();
            }
        }
    }

    fn close_gap(&mut self, before: Option<Vec<u8>>) {
        if let Some(mut gap) = self.open_gap.take() {
            gap.before = before;
            self.survey.gaps.push(gap);
        }
    }

    /// Records damaged bytes. After the last data block they cannot have held entries.
    fn bad(&mut self, offset: u64, len: u64) {
        if self.last_kind != Kind::Data {
            self.survey.other_damage = true;
            return;
        }
        match &mut self.open_gap {
            Some(gap) => gap.len = offset + len - gap.offset,
            None => {
                let after = self.layout.is_some().then(|| self.at.key().to_vec());
                self.open_gap = Some(Gap { offset, len, after, before: None });
            }
        }
    }

    /// Moves to the first entry of the next intact data block.
    fn next_block(&mut self) {
        self.at.leave();
        while self.position < self.end {
            let offset = self.position;
            let kinds = match self.footer {
                Some(_) => &[Kind::Data][..],
                None => &[Kind::Data, Kind::Filter, Kind::Index, Kind::Properties][..],
            };
            let Some((kind, next)) = self.block(offset, kinds) else {
                let next = self.search(offset, kinds);
                self.bad(offset, next - offset);
                self.position = next;
                continue;
            };
            self.position = next;
            match kind {
                Kind::Data => {
                    let Ok(layout) = Layout::parse(&self.payload, false) else {
                        self.bad(offset, next - offset);
                        continue;
                    };
                    self.at.enter(&self.payload, &layout);
                    self.layout = Some(layout);
                    return self.stand(0);
                }
                Kind::Properties => self.note_properties(),
                _ => {}
            }
            self.last_kind = kind;
        }
    }

    /// Reads the block at `offset`, if it is intact and of one of these kinds, into `payload`. Returns its kind, and the offset of the
    /// next block.
    fn block(&mut self, offset: u64, kinds: &[Kind]) -> Option<(Kind, u64)> {
        let end = self.len;
        if offset + HEADER_LEN as u64 > end {
            return None;
        }
        self.read(offset, HEADER_LEN as u64);
        let header = *self.bytes(offset, HEADER_LEN as u64).first_chunk::<HEADER_LEN>()?;
        let len = frame::claimed_len(&header);
        if len > end - offset || len > (frame::MAX_PAYLOAD + HEADER_LEN) as u64 {
            return None;
        }
        self.read(offset, len);
        let number = self.number;
        let place = |kind: Kind| Place { file: number, offset, kind: kind as u8 };
        let start = (offset - self.window.offset) as usize;
        let bytes = &self.window.bytes[start..start + len as usize];
        for &kind in kinds {
            let Ok((codec, payload)) = frame::check(bytes, place(kind)) else { continue };
            let next = if kind == Kind::Data { frame::next_offset(offset, bytes) } else { offset + len };
            if compression::is_raw(codec) {
                self.payload.clear();
                self.payload.extend_from_slice(payload);
            } else {
                compression::decompress(codec, payload, frame::MAX_PAYLOAD, &mut self.payload).ok()?;
            }
            return Some((kind, next));
        }
        None
    }

    /// The offset of the next intact block after a damaged one; the end of the blocks if there is none.
    fn search(&mut self, bad: u64, kinds: &[Kind]) -> u64 {
        let claimed = self.claimed_len(bad);
        let next = bad.saturating_add(claimed);
        // Directly after it, or after padding.
        for next in [next, next.checked_next_multiple_of(frame::PAGE).unwrap_or(next)] {
            if next == self.end || (next < self.end && self.block(next, kinds).is_some()) {
                return next;
            }
        }
        (bad + 1..self.end)
            .find(|&offset| self.may_begin(offset) && self.block(offset, kinds).is_some())
            .unwrap_or(self.end)
    }

    fn claimed_len(&mut self, offset: u64) -> u64 {
        if offset + HEADER_LEN as u64 > self.len {
            return u64::MAX;
        }
        self.read(offset, HEADER_LEN as u64);
        self.bytes(offset, HEADER_LEN as u64).first_chunk::<HEADER_LEN>().map_or(u64::MAX, frame::claimed_len)
    }

    /// Whether the bytes at `offset` look like the header of a block, so that few checksums are computed.
    fn may_begin(&mut self, offset: u64) -> bool {
        let len = self.claimed_len(offset);
        let codec = match len <= SEARCHED_BLOCK && offset.saturating_add(len) <= self.end {
            true => self.bytes(offset, HEADER_LEN as u64)[HEADER_LEN - 1] & !frame::PADDED,
            false => return false,
        };
        len >= MIN_PAYLOAD + HEADER_LEN as u64 && codec <= compression::LAST_CODE
    }

    /// Bytes that [`SalvageCursor::read`] has put into the window.
    fn bytes(&self, offset: u64, len: u64) -> &[u8] {
        let start = (offset - self.window.offset) as usize;
        &self.window.bytes[start..start + len as usize]
    }

    /// Puts bytes of the file into the window; they must lie inside the file. Unreadable bytes become zeros, which fail their
    /// checksum.
    fn read(&mut self, offset: u64, len: u64) {
        let filled = self.window.offset + self.window.bytes.len() as u64;
        if offset >= self.window.offset && offset + len <= filled {
            return;
        }
        let want = len.max(READ as u64).min(self.len - offset) as usize;
        self.window.bytes.clear();
        self.window.bytes.resize(want, 0);
        self.window.offset = offset;
        let Ok(file) = self.env.open(&self.path) else { return };
        file.read_readable_at(&mut self.window.bytes, offset);
    }
}

impl Cursor for SalvageCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.rewind();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.step();
        if !self.valid() {
            // The end: frees memory for other cursors of a merge.
            self.window = Window::default();
            self.payload = Vec::new();
        }
        Ok(())
    }

    fn valid(&self) -> bool {
        self.at.valid()
    }

    fn key(&self) -> &[u8] {
        self.at.key()
    }

    fn trailer(&self) -> Trailer {
        self.at.trailer()
    }

    fn value(&self) -> &[u8] {
        self.at.value(&self.payload)
    }
}
