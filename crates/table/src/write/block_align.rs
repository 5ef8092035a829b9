//! Where blocks are cut, and where zeros go between them, so that reading a block touches few pages.
//!
//! A file comes into memory, and stays there, by pages of 4 KiB. A block that straddles two pages costs two reads and the
//! memory of both, and is found in memory only when both are there. So blocks end where a page ends: the writer fills what is left
//! of the page, and where the next entry does not fit any more, zeros follow up to the next page. That wastes half an entry per
//! page. Zeros are limited to a twenty-fifth of what they lie between: where entries are large, the one that does not fit any
//! more becomes a block of its own that runs on into the next page, whose rest the next block fills. Few reads touch two pages then
//! (one entry in four, for values of 1 KiB), where blocks that hold several entries and lie anywhere nearly all would.
//!
//! ```text
//!     page                       page                       page
//!     | block         |00| block                  | block         | one entry runs |on | block
//! ```
//!
//! How large a compressed block will be is known only once it is, so it is cut by what the blocks before have shrunk to.

use crate::format::frame::PAGE;

/// Most zeros: one byte for so many bytes of blocks.
const BLOCKS_PER_ZERO: u64 = 25;

/// A block's share of its raw size, in these parts.
const WHOLE: u64 = 1024;

/// Decides how long blocks are. Lengths are those of frames.
pub(crate) struct BlockAligner {
    block_size: u64,
    /// Bytes of blocks that no zeros were paid with yet.
    credit: u64,
    /// What the last blocks have shrunk to, in parts of [`WHOLE`].
    shrink: u64,
}

impl BlockAligner {
    /// For blocks of about `block_size` bytes before compression.
    pub(crate) fn new(block_size: usize) -> BlockAligner {
        BlockAligner { block_size: block_size as u64, credit: 0, shrink: WHOLE }
    }

    /// The most bytes, before compression, of a block that begins at `offset`: as many as are asked for, or fewer, so that it ends
    /// where a page does.
    pub(crate) fn limit(&self, offset: u64) -> usize {
        let room = PAGE - offset % PAGE;
        let stored = self.block_size * self.shrink / WHOLE;
        let target = if stored <= room { stored } else { room + (stored - room) / PAGE * PAGE };
        let raw = match self.shrink {
            WHOLE => target,
            // A block that comes out a little larger than expected would go beyond the page.
            shrink => target * WHOLE / shrink / 32 * 31,
        };
        let limit = if stored <= room || (self.shrink < WHOLE && raw < self.block_size / 2) {
            self.block_size
        } else {
            raw
        };
        limit as usize
    }

    /// Told of a block of `raw` bytes that was stored in `stored` and ends at `end`; the entry behind it would make a block of `next`
    /// bytes. Whether zeros are to follow up to the next page.
    pub(crate) fn pad(&mut self, raw: usize, stored: u32, end: u64, next: usize) -> bool {
        self.credit += u64::from(stored);
        let share = (u64::from(stored) * WHOLE / (raw as u64).max(1)).clamp(1, WHOLE);
        self.shrink = if share == WHOLE { WHOLE } else { (3 * self.shrink + share) / 4 };
        let next = match self.shrink {
            WHOLE => next as u64,
            shrink => (next as u64).max(self.block_size / 2) * shrink / WHOLE,
        };
        let rest = end.next_multiple_of(PAGE) - end;
        let price = rest * BLOCKS_PER_ZERO;
        let pad = rest > 0 && next > rest && price <= self.credit;
        if pad {
            self.credit -= price;
        }
        pad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lays out raw entries of `len` bytes each (38 bytes more for one alone in its block) and returns the share of zeros and the mean
    /// number of pages that reading an entry's block touches.
    fn lay_out(block_size: usize, len: usize) -> (f64, f64) {
        const ALONE: usize = 38;
        let mut pages = BlockAligner::new(block_size);
        let (mut at, mut zeros, mut touched, mut entries) = (0u64, 0u64, 0u64, 0u64);
        while at < 4 << 20 {
            let limit = pages.limit(at);
            let many = (limit.saturating_sub(ALONE) / len).max(1);
            let stored = ALONE + many * len;
            let end = at + stored as u64;
            touched += ((end - 1) / PAGE - at / PAGE + 1) * many as u64;
            entries += many as u64;
            at = end;
            if pages.pad(stored, stored as u32, end, ALONE + len) {
                at = end.next_multiple_of(PAGE);
                zeros += at - end;
            }
        }
        (zeros as f64 / at as f64, touched as f64 / entries as f64)
    }

    #[test]
    fn small_entries_lie_in_one_page() {
        for (block_size, len) in [(4096, 20), (4096, 150), (4096, 160), (1024, 60), (512, 30), (3000, 100)] {
            let (zeros, pages) = lay_out(block_size, len);
            assert!(zeros <= 0.04 && pages < 1.02, "{block_size}, {len}: {zeros} zeros, {pages} pages");
        }
    }

    #[test]
    fn large_entries_waste_little_and_touch_few_pages() {
        // Blocks of four KiB that lie anywhere touch two.
        for (len, most) in
            [(300, 1.1), (500, 1.15), (1050, 1.3), (1500, 1.4), (2000, 1.5), (3000, 1.8), (4500, 2.2)]
        {
            let (zeros, pages) = lay_out(4096, len);
            assert!(zeros <= 0.04 && pages < most, "{len}: {zeros} zeros, {pages} pages");
        }
    }

    #[test]
    fn larger_blocks_are_as_large_as_asked_for_and_end_with_a_page() {
        let pages = BlockAligner::new(16 << 10);
        assert_eq!((pages.limit(0), pages.limit(4096)), (16 << 10, 16 << 10));
        assert_eq!(pages.limit(4096 + 96), 4000 + 3 * 4096);
        assert_eq!((BlockAligner::new(4096).limit(8192), BlockAligner::new(4096).limit(3096)), (4096, 1000));
        assert_eq!((BlockAligner::new(64).limit(0), BlockAligner::new(64).limit(4090)), (64, 6));
    }

    #[test]
    fn compressed_blocks_are_cut_by_what_those_before_shrank_to() {
        let mut pages = BlockAligner::new(4096);
        for _ in 0..40 {
            pages.pad(4096, 2150, 2150, 4096);
        }
        // One and nine tenths of them fit into a page: the second is cut a little shorter.
        assert_eq!(pages.limit(0), 4096);
        assert!((3400..3800).contains(&pages.limit(2150)), "{}", pages.limit(2150));
        // Too little is left for half a block.
        assert_eq!(pages.limit(3500), 4096);
    }
}
