//! The rows of a size-class table: fixed-width pairs of a key and the place of its value.
//!
//! Keys are divided into classes by their length: the *width* of a class is a power of two from 8 to 65,536, and it has the keys that are
//! longer than half of it (the first class has the shorter ones, too). A row has its key padded with zeros to the width of its class, so
//! all rows of a class have one length, and row *i* is found without an index. Rows lie in pages of one length per class:
//!
//! ```text
//! page := width:u32  count:u32  row * count  zeros up to the length of the page
//! row  := key  0 *  trailer:u64  block_offset:u48  padding:u16  block_size:u32  start:u32  len:u32      width + 28 bytes
//! ```
//!
//! `padding` is the number of zeros after the key. The value has the `len` bytes from `start` on of the payload of the value block at
//! `block_offset`; an empty value has no block, and zeros instead. All pages of a class but the last are full.

use crate::format::decode_error::DecodeError;
use crate::format::frame::{self, Handle, Kind, PAGE};
use base::checksum::Place;
use base::codec::{Reader, put_varint};
use base::limits::MAX_KEY_LEN;
use base::{EntryKind, Trailer, compare_keys};
use std::cmp::Ordering;

/// The number of classes.
pub(crate) const CLASSES: usize = 14;
/// Bytes of the narrowest keys of a row.
const MIN_WIDTH: usize = 8;
const _: () = assert!(MIN_WIDTH << (CLASSES - 1) == MAX_KEY_LEN);

/// Bytes of a row beside its key.
const ROW_TAIL: usize = 28;
/// Bytes before the first row of a page's payload.
const PAGE_HEADER: usize = 8;
/// Minimum number of rows in a full page.
const MIN_ROWS: usize = 4;

/// Offsets of value blocks must be below this.
pub(crate) const MAX_BLOCK_OFFSET: u64 = 1 << 48;

/// Maximum bytes of a directory: a width and a number of rows for each class.
pub(crate) const MAX_DIRECTORY: usize = CLASSES * 20;

/// A class of keys by their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    /// The class of keys of this length.
    #[inline]
    pub(crate) fn of(key_len: usize) -> SizeClass {
        let width = key_len.next_power_of_two().max(MIN_WIDTH);
        SizeClass((width.trailing_zeros() - MIN_WIDTH.trailing_zeros()) as u8)
    }

    /// The class with this width, if there is one.
    pub(crate) fn with_width(width: u64) -> Option<SizeClass> {
        let width = usize::try_from(width).ok().filter(|w| w.is_power_of_two())?;
        (MIN_WIDTH..=MAX_KEY_LEN).contains(&width).then(|| SizeClass::of(width))
    }

    /// All classes, in order.
    pub(crate) fn all() -> [SizeClass; CLASSES] {
        std::array::from_fn(|number| SizeClass(number as u8))
    }

    /// Its number: 0 for the shortest keys.
    #[inline]
    pub(crate) fn number(self) -> usize {
        self.0.into()
    }

    /// Bytes of a key with its padding.
    #[inline]
    pub(crate) fn width(self) -> usize {
        MIN_WIDTH << self.0
    }

    #[inline]
    pub(crate) fn row_len(self) -> usize {
        self.width() + ROW_TAIL
    }

    /// Bytes of a page with its frame: whole pages of the page cache.
    pub(crate) fn page_len(self) -> usize {
        (frame::HEADER_LEN + PAGE_HEADER + MIN_ROWS * self.row_len()).next_multiple_of(PAGE as usize)
    }

    /// Rows of a full page.
    pub(crate) fn rows_per_page(self) -> usize {
        (self.page_len() - frame::HEADER_LEN - PAGE_HEADER) / self.row_len()
    }
}

/// The rows of one class in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassRows {
    pub class: SizeClass,
    /// At least one.
    pub rows: u64,
    /// The offset of the first page in the file.
    pub offset: u64,
    /// What is added to the sequence numbers in the rows.
    pub seq_shift: u64,
    page_len: u64,
    rows_per_page: u64,
}

impl ClassRows {
    pub(crate) fn new(class: SizeClass, rows: u64, offset: u64, seq_shift: u64) -> ClassRows {
        let (page_len, rows_per_page) = (class.page_len() as u64, class.rows_per_page() as u64);
        ClassRows { class, rows, offset, seq_shift, page_len, rows_per_page }
    }

    pub(crate) fn pages(&self) -> u64 {
        self.rows.div_ceil(self.rows_per_page)
    }

    /// The offset after the last page.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.pages().saturating_mul(self.page_len))
    }

    /// The page of row `row`, and the row's number in it.
    #[inline]
    pub(crate) fn place(&self, row: u64) -> (u64, usize) {
        (row / self.rows_per_page, (row % self.rows_per_page) as usize)
    }

    /// The number of the first row of page `page`.
    #[inline]
    pub(crate) fn first_row(&self, page: u64) -> u64 {
        page * self.rows_per_page
    }

    /// Rows of page `page`.
    #[inline]
    pub(crate) fn rows_of(&self, page: u64) -> usize {
        self.rows_per_page.min(self.rows - self.first_row(page)) as usize
    }

    /// The block that page `page` is.
    #[inline]
    pub(crate) fn handle(&self, page: u64) -> Handle {
        Handle { offset: self.offset + page * self.page_len, size: self.page_len as u32 }
    }

    /// Verifies the frame of page `page` in table `file`, and returns the page.
    pub(crate) fn open<'a>(&self, frame: &'a [u8], file: u64, page: u64) -> Result<Page<'a>, DecodeError> {
        let place = Place { file, offset: self.handle(page).offset, kind: Kind::Rows as u8 };
        self.page(frame::check(frame, place)?.1, page)
    }

    /// Checks that `payload` is that of page `page`.
    #[inline]
    pub(crate) fn page<'a>(&self, payload: &'a [u8], page: u64) -> Result<Page<'a>, DecodeError> {
        let parsed = Page::parse(payload, self.seq_shift)?;
        match parsed.class == self.class && parsed.count == self.rows_of(page) {
            true => Ok(parsed),
            false => Err(DecodeError::Corrupt("page of rows does not match the directory")),
        }
    }
}

/// The payload of a page, with its structure checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    pub payload: &'a [u8],
    pub class: SizeClass,
    pub count: usize,
    seq_shift: u64,
}

impl<'a> Page<'a> {
    /// Checks the structure of a page. `seq_shift` is added to its sequence numbers.
    #[inline]
    pub(crate) fn parse(payload: &'a [u8], seq_shift: u64) -> Result<Page<'a>, DecodeError> {
        const BAD: DecodeError = DecodeError::Corrupt("page of rows has a wrong length");
        let header: &[u8; PAGE_HEADER] = payload.first_chunk().ok_or(BAD)?;
        let width = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let class = SizeClass::with_width(width.into())
            .ok_or(DecodeError::Corrupt("page of rows with an unknown width of keys"))?;
        let fits = payload.len() + frame::HEADER_LEN == class.page_len();
        if !fits || count == 0 || count > class.rows_per_page() {
            return Err(BAD);
        }
        Ok(Page { payload, class, count, seq_shift })
    }

    /// Row `i`, which must be below the count.
    #[inline]
    pub(crate) fn row(&self, i: usize) -> Row<'a> {
        let len = self.class.row_len();
        let start = PAGE_HEADER + i * len;
        let (bytes, width) = (&self.payload[start..start + len], self.class.width());
        Row { bytes, width, seq_shift: self.seq_shift }
    }

    /// The first row at or after (`key`, `trailer`); the count if there is none. `first_head`: that of `key`.
    #[inline]
    pub(crate) fn lower_bound(
        &self,
        key: &[u8],
        first_head: u64,
        trailer: Trailer,
    ) -> Result<usize, DecodeError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.row(middle).compare(key, first_head, trailer)? {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Whether the bytes after the last row are zeros.
    pub(crate) fn ends_with_zeros(&self) -> bool {
        self.payload[PAGE_HEADER + self.count * self.class.row_len()..].iter().all(|byte| *byte == 0)
    }
}

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValuePlace {
    /// The value block; of no meaning if the value is empty.
    pub block: Handle,
    /// Where the value begins in the payload of the block, and its length.
    pub start: u32,
    pub len: u32,
}

impl ValuePlace {
    /// The value in the payload of its block.
    #[inline]
    pub(crate) fn of<'a>(&self, payload: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let (start, len) = (self.start as usize, self.len as usize);
        let value = payload.get(start..).and_then(|rest| rest.get(..len));
        value.ok_or(DecodeError::Corrupt("value does not fit into its block"))
    }
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    bytes: &'a [u8],
    width: usize,
    seq_shift: u64,
}

impl<'a> Row<'a> {
    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        let bytes = &self.bytes[self.width + at..][..4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    #[inline]
    fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) | u64::from(self.u32_at(at + 4)) << 32
    }

    #[inline]
    pub(crate) fn key(&self) -> Result<&'a [u8], DecodeError> {
        let padding = (self.u64_at(8) >> 48) as usize;
        // Keys of half the width and less belong to another class.
        let most = if self.width == MIN_WIDTH { self.width } else { self.width / 2 - 1 };
        match padding <= most {
            true => Ok(&self.bytes[..self.width - padding]),
            false => Err(DecodeError::Corrupt("key does not belong to its class")),
        }
    }

    #[inline]
    pub(crate) fn trailer(&self) -> Result<Trailer, DecodeError> {
        let trailer = Trailer(self.u64_at(0));
        let shifted = trailer.shifted(self.seq_shift);
        let trailer = shifted.ok_or(DecodeError::Corrupt("sequence number is too large"))?;
        match EntryKind::from_code(trailer.kind_code()) {
            Some(_) => Ok(trailer),
            None => Err(DecodeError::Unknown("kind of entry", trailer.kind_code().into())),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> ValuePlace {
        let block = Handle { offset: self.u64_at(8) & (MAX_BLOCK_OFFSET - 1), size: self.u32_at(16) };
        ValuePlace { block, start: self.u32_at(20), len: self.u32_at(24) }
    }

    /// Compares this row with (`key`, `trailer`) in the order of entries. `first_head`: that of `key`.
    #[inline]
    pub(crate) fn compare(
        &self,
        key: &[u8],
        first_head: u64,
        trailer: Trailer,
    ) -> Result<Ordering, DecodeError> {
        let own_head = self.bytes.first_chunk::<8>().map_or(0, |head| u64::from_be_bytes(*head));
        if own_head != first_head {
            return Ok(own_head.cmp(&first_head));
        }
        match compare_keys(self.key()?, key) {
            Ordering::Equal => Ok(trailer.cmp(&self.trailer()?)),
            order => Ok(order),
        }
    }

    /// Whether the bytes after the key are zeros, and the place of an empty value, too.
    pub(crate) fn is_canonical(&self) -> Result<bool, DecodeError> {
        let zeros = self.bytes[self.key()?.len()..self.width].iter().all(|byte| *byte == 0);
        let place = self.value();
        let none = ValuePlace { block: Handle { offset: 0, size: 0 }, start: 0, len: 0 };
        Ok(zeros && (place.len > 0 || place == none))
    }
}

/// The rows of one class while a table is written.
pub(crate) struct RowBuilder {
    class: SizeClass,
    bytes: Vec<u8>,
}

impl RowBuilder {
    pub(crate) fn new(class: SizeClass) -> RowBuilder {
        RowBuilder { class, bytes: Vec::new() }
    }

    /// Adds a row. The place of its block is [set](RowBuilder::set_block) later. Returns the row's place in this builder.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, start: u32, len: u32) -> usize {
        let at = self.bytes.len();
        self.bytes.reserve(self.class.row_len());
        self.bytes.extend_from_slice(key);
        let padding = self.class.width() - key.len();
        self.bytes.resize(at + self.class.width(), 0);
        self.bytes.extend_from_slice(&trailer.0.to_le_bytes());
        self.bytes.extend_from_slice(&((padding as u64) << 48).to_le_bytes());
        for number in [0, start, len] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        at
    }

    /// Sets the block of the row at `at`.
    #[inline]
    pub(crate) fn set_block(&mut self, at: usize, block: Handle) {
        let at = at + self.class.width() + 8;
        self.bytes[at..at + 6].copy_from_slice(&block.offset.to_le_bytes()[..6]);
        self.bytes[at + 8..at + 12].copy_from_slice(&block.size.to_le_bytes());
    }

    /// Its number of rows.
    pub(crate) fn rows(&self) -> u64 {
        (self.bytes.len() / self.class.row_len()) as u64
    }

    /// Bytes of its pages in the file, approximately, which is also its memory.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The payloads of its pages, one after another.
    pub(crate) fn write_pages<E>(&self, mut page: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut payload = Vec::with_capacity(self.class.page_len());
        for rows in self.bytes.chunks(self.class.rows_per_page() * self.class.row_len()) {
            payload.clear();
            payload.extend_from_slice(&(self.class.width() as u32).to_le_bytes());
            payload.extend_from_slice(&((rows.len() / self.class.row_len()) as u32).to_le_bytes());
            payload.extend_from_slice(rows);
            payload.resize(self.class.page_len() - frame::HEADER_LEN, 0);
            page(&payload)?;
        }
        Ok(())
    }
}

/// Where the pages of the first class begin, after the filter, which ends at `offset`.
pub(crate) fn pages_start(offset: u64) -> u64 {
    offset.next_multiple_of(PAGE)
}

/// Appends a directory: the classes that have rows, in order.
///
/// ```text
/// directory := (width:varint  rows:varint) *
/// ```
pub(crate) fn encode_directory(classes: &[ClassRows], out: &mut Vec<u8>) {
    for class in classes {
        put_varint(out, class.class.width() as u64);
        put_varint(out, class.rows);
    }
}

/// Decodes a directory. The pages begin at `start`.
pub(crate) fn decode_directory(
    bytes: &[u8],
    start: u64,
    seq_shift: u64,
) -> Result<Vec<ClassRows>, DecodeError> {
    const BAD: DecodeError = DecodeError::Corrupt("directory of rows is malformed");
    let mut classes: Vec<ClassRows> = Vec::new();
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let class = SizeClass::with_width(reader.varint().ok_or(BAD)?).ok_or(BAD)?;
        let rows = reader.varint().filter(|rows| (1..1 << 56).contains(rows)).ok_or(BAD)?;
        let offset = match classes.last() {
            Some(before) if before.class >= class => return Err(BAD),
            Some(before) => before.end(),
            None => start,
        };
        classes.push(ClassRows::new(class, rows, offset, seq_shift));
    }
    if classes.is_empty() { Err(BAD) } else { Ok(classes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::head;

    #[test]
    fn a_key_belongs_to_the_smallest_width_that_holds_it() {
        for (len, width) in [
            (0, 8),
            (1, 8),
            (8, 8),
            (9, 16),
            (16, 16),
            (17, 32),
            (1000, 1024),
            (1024, 1024),
            (1025, 2048),
            (MAX_KEY_LEN, MAX_KEY_LEN),
        ] {
            assert_eq!(SizeClass::of(len).width(), width, "{len}");
        }
        for (number, class) in SizeClass::all().into_iter().enumerate() {
            assert_eq!((SizeClass::with_width(class.width() as u64), class.number()), (Some(class), number));
            assert!(class.rows_per_page() >= MIN_ROWS && class.page_len() % 4096 == 0);
            let used = class.rows_per_page() * class.row_len();
            assert!(used * 5 > class.page_len() * 4, "{}: {used} of {}", class.width(), class.page_len());
        }
        for width in [0, 4, 9, 24, 131_072, u64::MAX] {
            assert_eq!(SizeClass::with_width(width), None);
        }
    }

    #[test]
    fn rows_keep_what_was_added_and_are_in_the_order_of_entries() {
        let keys: [&[u8]; 6] = [b"", b"a", b"a\0", b"a\0\0\0\0\0\0\0", b"ab", b"b"];
        let class = SizeClass::of(8);
        let mut rows = RowBuilder::new(class);
        let place = |i: usize| ValuePlace {
            block: Handle { offset: (1 << 47) + i as u64, size: 5000 },
            start: i as u32 * 10,
            len: 10,
        };
        for (i, key) in keys.iter().enumerate() {
            let at = rows.add(key, Trailer::new(9, EntryKind::Put), place(i).start, place(i).len);
            rows.set_block(at, place(i).block);
        }
        let mut pages = Vec::new();
        rows.write_pages(|page| {
            pages.push(page.to_vec());
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!((pages.len(), rows.rows()), (1, 6));
        let page = ClassRows::new(class, 6, 4096, 0).page(&pages[0], 0).unwrap();
        assert!(page.ends_with_zeros());
        for (i, key) in keys.iter().enumerate() {
            let row = page.row(i);
            assert_eq!((row.key().unwrap(), row.value()), (*key, place(i)));
            assert!(row.is_canonical().unwrap());
            for (trailer, at) in [(Trailer(u64::MAX), i), (row.trailer().unwrap(), i), (Trailer(0), i + 1)] {
                assert_eq!(page.lower_bound(key, head(key), trailer), Ok(at), "{key:?}");
            }
        }
        assert!(ClassRows::new(class, 7, 4096, 0).page(&pages[0], 0).is_err());
        assert!(ClassRows::new(SizeClass::of(9), 6, 4096, 0).page(&pages[0], 0).is_err());
    }

    #[test]
    fn a_directory_round_trips_and_refuses_what_no_writer_writes() {
        let first = ClassRows::new(SizeClass::of(3), 1000, 8192, 0);
        let classes = [first, ClassRows::new(SizeClass::of(100), 1, first.end(), 0)];
        let mut out = Vec::new();
        encode_directory(&classes, &mut out);
        assert_eq!(decode_directory(&out, 8192, 0), Ok(classes.to_vec()));
        for len in 0..out.len() {
            let cut = decode_directory(&out[..len], 8192, 0);
            assert!(cut.is_err() || cut == Ok(vec![first]), "{len}");
        }
        for bad in [&[8, 0][..], &[9, 1], &[16, 1, 8, 1], &[8, 1, 8, 1]] {
            assert!(decode_directory(bad, 0, 0).is_err(), "{bad:?}");
        }
    }
}
