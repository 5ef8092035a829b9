//! Aligns data blocks to pages: decides where blocks are cut and where zero padding goes between them, so that reading a block touches
//! few pages.
//!
//! A file is cached by pages of 4 KiB. A block that straddles two pages costs two reads and the memory of both. So blocks end at page
//! boundaries: the writer fills the rest of the page, and pads with zeros to the next page where the next entry does not fit. This
//! wastes half an entry per page. Padding is limited to a twenty-fifth of the blocks: beyond that, an entry that does not fit becomes
//! a block of its own that runs on into the next page, and the next block fills the rest of that page. Few reads touch two pages then
//! (one entry in four, for values of 1 KiB); nearly all would if blocks of several entries were not aligned.
//!
//! ```text
//!     page                       page                       page
//!     | block         |00| block                  | block         | one entry runs |on | block
//! ```
//!
//! The size of a compressed block is not known in advance. It is estimated from the compression ratio of the previous blocks.

use crate::format::frame::PAGE;

/// Bytes of blocks per byte of padding, at least.
const BLOCKS_PER_ZERO: u64 = 25;

/// The compression ratio 1, as an integer.
const WHOLE: u64 = 1024;

/// Decides how long blocks are. All lengths are lengths of frames.
pub(crate) struct BlockAligner {
    block_size: u64,
    /// Bytes of blocks that still allow padding.
    credit: u64,
    /// Mean ratio of stored to raw size of the last blocks, in parts of [`WHOLE`].
    shrink: u64,
}

impl BlockAligner {
    /// For blocks of about `block_size` bytes before compression.
    pub(crate) fn new(block_size: usize) -> BlockAligner {
        BlockAligner { block_size: block_size as u64, credit: 0, shrink: WHOLE }
    }

    /// The maximum bytes, before compression, of a block at `offset`: the block size, or fewer bytes so that the block ends with a
    /// page.
    pub(crate) fn limit(&self, offset: u64) -> usize {
        let room = PAGE - offset % PAGE;
        let stored = self.block_size * self.shrink / WHOLE;
        let target = if stored <= room { stored } else { room + (stored - room) / PAGE * PAGE };
        let raw = match self.shrink {
            WHOLE => target,
            // Leaves a margin: a block slightly larger than estimated would straddle the page.
            shrink => target * WHOLE / shrink / 32 * 31,
        };
        let limit = if stored <= room || (self.shrink < WHOLE && raw < self.block_size / 2) {
            self.block_size
        } else {
            raw
        };
        limit as usize
    }

    /// Accounts for a block of `raw` bytes that takes `stored` bytes and ends at `end`. The next entry alone would make a block of `next`
    /// bytes. Returns whether to pad up to the next page.
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

    /// Lays out raw entries of `len` bytes each (plus 38 bytes per block). Returns the share of padding, and the mean number of pages
    /// that a read of an entry's block touches.
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
        // Unaligned blocks of 4 KiB touch two pages.
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
        // 1.9 blocks fit into a page: the second is cut a little shorter.
        assert_eq!(pages.limit(0), 4096);
        assert!((3400..3800).contains(&pages.limit(2150)), "{}", pages.limit(2150));
        // Too little is left for half a block.
        assert_eq!(pages.limit(3500), 4096);
    }
}
