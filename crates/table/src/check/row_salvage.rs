//! Reads what is intact in a damaged size-class table.
//!
//! Pages of rows begin at multiples of 4096 and name their class, so intact ones are found without the directory. An entry can be read if
//! its row and the block with its value are intact. With the directory, a lost page is a [`Gap`] between its neighbours in the class;
//! without it, a lost page may have been one of any class. A lost value block is a gap between the entries around it.

use crate::check::intact_blocks::IntactBlocks;
use crate::check::survey::{FileEnd, Found, Gap, Properties, Survey};
use crate::format::decode_error::DecodeError;
use crate::format::footer::Footer;
use crate::format::frame::{HEADER_LEN, Handle, Kind, PAGE};
use crate::format::properties;
use crate::format::rows::{self, ClassRows, MAX_DIRECTORY, Page, SizeClass, ValuePlace};
use crate::read::row_merge::{RowMerge, RowPages};
use base::{Cursor, Error, Result, Slice, Trailer};
use std::ops::Range;

/// Reads the entries of one file whose rows and values are intact, in order.
pub(super) struct RowSalvage {
    /// Reads value blocks. The last one is the one at `block`.
    values: IntactBlocks,
    block: Option<Handle>,
    /// The last block that could not be read.
    bad: Option<Handle>,
    rows: RowMerge<IntactPages>,
    end: FileEnd,
    lost_pages: Vec<Gap>,
    lost_values: Vec<Gap>,
    /// A gap without the key after it yet.
    open_gap: Option<Gap>,
    key: Vec<u8>,
    trailer: Trailer,
    value: Range<usize>,
    valid: bool,
}

/// The intact pages of a file.
struct IntactPages {
    blocks: IntactBlocks,
    /// The offsets of the pages of each class.
    offsets: Vec<Vec<u64>>,
}

/// The intact pages of one class.
struct FoundClass {
    class: SizeClass,
    rows: u64,
    /// The offsets of the pages.
    pages: Vec<u64>,
    /// The first key of the first page, and the last key of the last one.
    smallest: Vec<u8>,
    largest: Vec<u8>,
    /// What lies between pages that do not follow each other.
    holes: Vec<Gap>,
}

/// First and last key of a page.
struct PageKeys {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl FoundClass {
    fn new(class: SizeClass, count: u64, offset: u64, keys: PageKeys) -> FoundClass {
        FoundClass {
            class,
            rows: count,
            pages: vec![offset],
            smallest: keys.first,
            largest: keys.last,
            holes: Vec::new(),
        }
    }

    /// Where its last page ends.
    fn end(&self) -> u64 {
        self.pages.last().map_or(0, |last| last + self.class.page_len() as u64)
    }

    fn add(&mut self, count: u64, offset: u64, keys: PageKeys) {
        let end = self.end();
        if offset > end {
            let (after, before) = (Some(self.largest.clone()), Some(keys.first));
            self.holes.push(Gap { offset: end, len: offset - end, after, before });
        }
        self.rows += count;
        self.pages.push(offset);
        self.largest = keys.last;
    }

    /// The gaps where pages of this class were not found, of which `expected` tells.
    fn gaps(&self, expected: &ClassRows, gaps: &mut Vec<Gap>) {
        let first = self.pages.first().copied().unwrap_or(expected.end());
        if first > expected.offset {
            let before = Some(self.smallest.clone());
            gaps.push(Gap { offset: expected.offset, len: first - expected.offset, after: None, before });
        }
        gaps.extend(self.holes.iter().cloned());
        if self.end() < expected.end() {
            let after = Some(self.largest.clone());
            gaps.push(Gap { offset: self.end(), len: expected.end() - self.end(), after, before: None });
        }
    }
}

impl RowPages for IntactPages {
    fn load(&mut self, class: usize, rows: &ClassRows, page: u64) -> Result<Slice> {
        let offset = self.offsets[class][page as usize];
        let intact = self.blocks.block(offset, &[Kind::Rows]).is_some();
        match rows.page(&self.blocks.payload, page) {
            Ok(_) if intact => Ok(Slice::copy_from(&self.blocks.payload)),
            _ => Err(self.fault(DecodeError::Corrupt("page of rows is not what it was"), offset)),
        }
    }

    fn fault(&self, fault: DecodeError, offset: u64) -> Error {
        fault.at(&self.blocks.path, offset)
    }
}

/// First and last key of a page, if each row has a key and a known kind.
fn keys_of(page: &Page<'_>) -> std::result::Result<PageKeys, DecodeError> {
    for i in 0..page.count {
        page.row(i).key()?;
        page.row(i).trailer()?;
    }
    Ok(PageKeys { first: page.row(0).key()?.to_vec(), last: page.row(page.count - 1).key()?.to_vec() })
}

/// What lies at a multiple of 4096.
enum At {
    Page(SizeClass, u64, PageKeys),
    Directory(Vec<ClassRows>),
    Nothing,
}

/// Whether a block at `offset` claims to be as long as a page of some class or a directory. Blocks of other lengths are not read: this is asked
/// of each multiple of 4096, whatever lies there.
fn may_be_rows(blocks: &mut IntactBlocks, offset: u64) -> bool {
    let len = blocks.claimed_len(offset);
    len <= (HEADER_LEN + MAX_DIRECTORY) as u64
        || SizeClass::all().iter().any(|class| class.page_len() as u64 == len)
}

fn look_at(blocks: &mut IntactBlocks, offset: u64, footer: Option<&Footer>) -> At {
    if !may_be_rows(blocks, offset) {
        return At::Nothing;
    }
    match blocks.block(offset, &[Kind::Rows, Kind::Directory]) {
        Some((Kind::Rows, _)) => {
            let Ok(page) = Page::parse(&blocks.payload, 0) else { return At::Nothing };
            keys_of(&page).map_or(At::Nothing, |keys| At::Page(page.class, page.count as u64, keys))
        }
        Some(_) => directory(&blocks.payload, offset, footer).map_or(At::Nothing, At::Directory),
        None => At::Nothing,
    }
}

/// The directory at `offset`, after the last page. Its pages begin where the footer says, or else at a distance that it says itself.
fn directory(payload: &[u8], offset: u64, footer: Option<&Footer>) -> Option<Vec<ClassRows>> {
    let total = rows::decode_directory(payload, 0, 0).ok()?.last()?.end();
    let start = offset.checked_sub(total)?;
    let expected = footer.map_or(start, |footer| rows::pages_start(footer.index_start()));
    (start == expected).then(|| rows::decode_directory(payload, start, 0).ok()).flatten()
}

/// The intact pages of the file by class, in order, and the directory, if it is intact.
fn find_pages(
    blocks: &mut IntactBlocks,
    footer: Option<&Footer>,
) -> (Vec<FoundClass>, Option<Vec<ClassRows>>) {
    let mut offset = footer.map_or(0, |footer| rows::pages_start(footer.index_start()));
    let end = footer.map_or(blocks.len, |footer| footer.root.end());
    let (mut classes, mut directory): (Vec<FoundClass>, _) = (Vec::new(), None);
    while offset < end {
        match look_at(blocks, offset, footer) {
            At::Page(class, count, keys) => {
                match classes.last_mut() {
                    // Only the last page of a class is not full.
                    Some(last) if last.class == class && last.rows % class.rows_per_page() as u64 == 0 => {
                        last.add(count, offset, keys);
                    }
                    Some(last) if last.class >= class => {}
                    _ => classes.push(FoundClass::new(class, count, offset, keys)),
                }
                offset += class.page_len() as u64;
            }
            At::Directory(classes) => {
                directory = Some(classes);
                offset += PAGE;
            }
            At::Nothing => offset += PAGE,
        }
    }
    (classes, directory)
}

/// All gaps where pages that the directory has were not found.
fn lost_pages(directory: &[ClassRows], found: &[FoundClass]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for expected in directory {
        match found.iter().find(|found| found.class == expected.class) {
            Some(found) => found.gaps(expected, &mut gaps),
            None => {
                let len = expected.end() - expected.offset;
                gaps.push(Gap { offset: expected.offset, len, after: None, before: None });
            }
        }
    }
    gaps
}

impl RowSalvage {
    /// Whether a file without an intact footer has a page of rows.
    pub(super) fn finds_rows(blocks: &mut IntactBlocks) -> bool {
        let mut offsets = (0..blocks.len).step_by(PAGE as usize);
        offsets.any(|offset| may_be_rows(blocks, offset) && blocks.block(offset, &[Kind::Rows]).is_some())
    }

    pub(super) fn new(mut blocks: IntactBlocks, mut end: FileEnd) -> RowSalvage {
        let (found, directory) = find_pages(&mut blocks, end.footer.as_ref());
        let lost = match &directory {
            Some(directory) => lost_pages(directory, &found),
            // A page of any class may be missing.
            None => vec![Gap { offset: 0, len: blocks.len, after: None, before: None }],
        };
        if end.footer.is_none() {
            let pages_end = found.iter().map(FoundClass::end).max().unwrap_or(0);
            end.properties = Self::properties_after(&mut blocks, pages_end);
        }
        end.damaged |= directory.is_none();
        let classes: Vec<_> =
            found.iter().map(|found| ClassRows::new(found.class, found.rows, 0, 0)).collect();
        let offsets = found.into_iter().map(|found| found.pages).collect();
        let values = blocks.again();
        RowSalvage {
            values,
            block: None,
            bad: None,
            rows: RowMerge::new(IntactPages { blocks, offsets }, &classes),
            end,
            lost_pages: lost,
            lost_values: Vec::new(),
            open_gap: None,
            key: Vec::new(),
            trailer: Trailer(0),
            value: 0..0,
            valid: false,
        }
    }

    /// The properties, which follow the directory and so begin soon after the last page, in a file without an intact footer.
    fn properties_after(blocks: &mut IntactBlocks, pages_end: u64) -> Properties {
        let longest = (HEADER_LEN + properties::MAX_LEN) as u64;
        for offset in (pages_end..blocks.len).take(HEADER_LEN + MAX_DIRECTORY + 1) {
            if blocks.claimed_len(offset) <= longest && blocks.block(offset, &[Kind::Properties]).is_some() {
                return Properties::of(blocks);
            }
        }
        Properties::default()
    }

    /// What was found out on the way over all entries, of which the survey tells. Fails if there are blocks of another build.
    pub(super) fn finish(mut self, survey: &Survey) -> Result<Found> {
        self.close_gap(None);
        let mut gaps = std::mem::take(&mut self.lost_pages);
        gaps.append(&mut self.lost_values);
        // All entries that were written were read: the damaged bytes held none.
        if self.end.properties.promised == Some(survey.entries) {
            self.end.damaged |= !gaps.is_empty();
            gaps.clear();
        }
        let other_damage = self.end.damaged || self.filter_is_damaged();
        self.values.check_readable()?;
        Ok(Found { properties: self.end.properties, gaps, other_damage })
    }

    /// Whether a part of the filter is damaged.
    fn filter_is_damaged(&mut self) -> bool {
        let Some(footer) = self.end.footer else { return true };
        let mut partitions = (0..footer.filter.partitions).map(|i| footer.filter.handle(i).offset);
        partitions.any(|offset| self.values.block(offset, &[Kind::Filter]).is_none())
    }

    fn close_gap(&mut self, before: Option<Vec<u8>>) {
        if let Some(mut gap) = self.open_gap.take() {
            gap.before = before;
            self.lost_values.push(gap);
        }
    }

    /// Stands on the current row, or on the next one whose value can be read. `after`: the last key that was read.
    fn stand(&mut self, mut moved: Result<()>) {
        let after = std::mem::take(&mut self.valid).then(|| self.key.clone());
        loop {
            let row = match moved.and_then(|()| self.rows.row()) {
                Ok(Some(row)) => row,
                Ok(None) => return self.free(),
                // A page can no longer be read: what follows in the order of entries is lost.
                Err(_) => return self.lose(0, self.values.len, after),
            };
            let (Ok(key), Ok(trailer), place) = (row.key(), row.trailer(), row.value()) else {
                return self.lose(0, self.values.len, after);
            };
            self.key.clear();
            self.key.extend_from_slice(key);
            self.trailer = trailer;
            if let Some(value) = self.read(place) {
                self.value = value;
                self.valid = true;
                if self.open_gap.is_some() {
                    let key = self.key.clone();
                    self.close_gap(Some(key));
                }
                return;
            }
            self.lose(place.block.offset, place.block.size.into(), after.clone());
            moved = self.rows.next();
        }
    }

    /// Frees memory for other cursors of a merge.
    fn free(&mut self) {
        self.values.free();
        self.block = None;
        self.rows.release();
        self.rows.pages.blocks.free();
    }

    /// Records bytes with values that cannot be read.
    fn lose(&mut self, offset: u64, len: u64, after: Option<Vec<u8>>) {
        match &mut self.open_gap {
            Some(gap) => gap.len = (offset + len).saturating_sub(gap.offset).max(gap.len),
            None => self.open_gap = Some(Gap { offset, len, after, before: None }),
        }
    }

    /// Reads the block with a value. Returns where the value is in it.
    fn read(&mut self, place: ValuePlace) -> Option<Range<usize>> {
        if place.len == 0 {
            return Some(0..0);
        }
        if self.bad == Some(place.block) {
            return None;
        }
        if self.block != Some(place.block) {
            self.block = None;
            self.bad = Some(place.block);
            self.values.block(place.block.offset, &[Kind::Values])?;
            (self.block, self.bad) = (Some(place.block), None);
        }
        let value = place.of(&self.values.payload).ok()?;
        let start = place.start as usize;
        Some(start..start + value.len())
    }
}

impl Cursor for RowSalvage {
    fn seek_to_first(&mut self) -> Result<()> {
        self.valid = false;
        (self.open_gap, self.block, self.bad) = (None, None, None);
        self.lost_values.clear();
        let moved = self.rows.seek_to_first();
        self.stand(moved);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        let moved = self.rows.next();
        self.stand(moved);
        Ok(())
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn trailer(&self) -> Trailer {
        self.trailer
    }

    fn value(&self) -> &[u8] {
        &self.values.payload[self.value.clone()]
    }
}
