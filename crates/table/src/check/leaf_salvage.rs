//! Reads what is intact in a damaged B+-tree.
//!
//! The file is read as a sequence of blocks from offset 0, without footer and index. After a damaged block the next intact one is searched:
//! where the damaged one claims to end, at the next page boundary, and then byte by byte. The bytes in between are a [`Gap`].

use crate::check::intact_blocks::IntactBlocks;
use crate::check::survey::{FileEnd, Found, Gap, Properties, Survey};
use crate::format::footer::Footer;
use crate::format::frame::Kind;
use crate::format::node::Layout;
use crate::read::entry_cursor::EntryCursor;
use base::{Cursor, Result, Trailer};

/// Reads the intact blocks of one file, in order.
pub(super) struct LeafSalvage {
    blocks: IntactBlocks,
    /// The end of the data if the footer is intact, otherwise the end of the file.
    end: u64,
    footer: Option<Footer>,
    properties: Properties,
    other_damage: bool,
    position: u64,
    layout: Option<Layout>,
    at: EntryCursor,
    /// Kind of the block before.
    last_kind: Kind,
    /// A gap without the key after it yet.
    open_gap: Option<Gap>,
    gaps: Vec<Gap>,
}

impl LeafSalvage {
    pub(super) fn new(blocks: IntactBlocks, end: FileEnd) -> LeafSalvage {
        LeafSalvage {
            end: end.footer.map_or(blocks.len, |footer| footer.data_size),
            blocks,
            footer: end.footer,
            properties: end.properties,
            other_damage: end.damaged,
            position: 0,
            layout: None,
            at: EntryCursor::new(),
            last_kind: Kind::Data,
            open_gap: None,
            gaps: Vec::new(),
        }
    }

    /// What was found out on the way over all entries, of which the survey tells. Fails if there are blocks of another build.
    pub(super) fn finish(mut self, survey: &Survey) -> Result<Found> {
        self.close_gap(None);
        self.note_early_end(survey);
        // All entries that were written were read: the damaged bytes held none.
        if self.properties.promised == Some(survey.entries) {
            self.other_damage |= !self.gaps.is_empty();
            self.gaps.clear();
        }
        let other_damage = self.other_damage || (self.footer.is_some() && self.rest_is_damaged());
        self.blocks.check_readable()?;
        Ok(Found { properties: self.properties, gaps: self.gaps, other_damage })
    }

    /// Adds a gap at the end of a file that was truncated between two blocks, which has no damaged bytes.
    fn note_early_end(&mut self, survey: &Survey) {
        let cut_off = match self.properties.promised {
            Some(promised) => promised > survey.entries && self.gaps.is_empty(),
            None => {
                let reaches_end = self.gaps.last().is_some_and(|gap| gap.offset + gap.len >= self.end);
                // Without an entry it may not even be a B+-tree.
                let entries_may_follow = self.last_kind == Kind::Data || survey.entries == 0;
                self.footer.is_none() && entries_may_follow && !reaches_end
            }
        };
        if cut_off {
            let after = (survey.entries > 0).then(|| survey.largest.clone());
            self.gaps.push(Gap { offset: self.end, len: 0, after, before: None });
        }
    }

    /// Whether a block after the data is damaged.
    fn rest_is_damaged(&mut self) -> bool {
        let Some(footer) = self.footer else { return true };
        let mut offset = footer.data_size;
        while offset < footer.properties.end() {
            match self.blocks.block(offset, &[Kind::Filter, Kind::Index, Kind::Properties]) {
                Some((_, next)) => offset = next,
                None => return true,
            }
        }
        false
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
        match self.at.move_to(&self.blocks.payload, layout, i) {
            Ok(()) => {
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
            self.gaps.push(gap);
        }
    }

    /// Records damaged bytes. After the last data block they cannot have held entries.
    fn bad(&mut self, offset: u64, len: u64) {
        if self.last_kind != Kind::Data {
            self.other_damage = true;
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
            let Some((kind, next)) = self.blocks.block(offset, kinds) else {
                let next = self.blocks.search(offset, self.end, kinds);
                self.bad(offset, next - offset);
                self.position = next;
                continue;
            };
            self.position = next;
            match kind {
                Kind::Data => {
                    let Ok(layout) = Layout::parse(&self.blocks.payload, false, 0) else {
                        self.bad(offset, next - offset);
                        continue;
                    };
                    self.at.enter(&self.blocks.payload, &layout);
                    self.layout = Some(layout);
                    return self.stand(0);
                }
                Kind::Properties => self.properties = Properties::of(&self.blocks),
                _ => {}
            }
            self.last_kind = kind;
        }
    }
}

impl Cursor for LeafSalvage {
    fn seek_to_first(&mut self) -> Result<()> {
        self.position = 0;
        self.last_kind = Kind::Data;
        self.layout = None;
        self.next_block();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.step();
        if !self.valid() {
            self.blocks.free();
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
        self.at.value(&self.blocks.payload)
    }
}
