//! The search for intact chunks behind damage.

use crate::format::{CHUNK_HEADER_LEN, Identity, RawChunk};
use base::planted::{Bug, planted};

/// Searches a segment for intact chunks.
///
/// It expects chunks where the format puts them: at the start of each block, and behind an intact chunk. Where that
/// chain is broken, a chunk may begin at any byte. Then the search tries each byte that looks like a chunk header. The
/// checksum, which covers the offset, decides. It has 32 bits, so the number of such guesses is limited: otherwise one
/// could match by chance.
///
/// In a recycled file, chunks of the old segment are recognized by their own checksums, so that the search can continue
/// behind them. Otherwise each of them would cost a guess.
pub(crate) struct Finder {
    pub(crate) id: Identity,
    /// The old segment in a recycled file.
    pub(crate) over: Option<Identity>,
    pub(crate) guesses_left: u32,
}

/// Where the search continues in a run of bytes.
#[derive(Clone, Copy)]
pub(crate) enum From {
    /// A chunk is expected at this position.
    Chunk(usize),
    /// The next chunk is at an unknown position, not before this one.
    Anywhere(usize),
}

impl Finder {
    /// The intact chunk at the start of `rest`, at `offset` of the segment, and whether it is one of the old segment.
    pub(crate) fn at(&self, rest: &[u8], offset: u64) -> Option<(RawChunk, bool)> {
        let chunk = RawChunk::parse(rest)?;
        let is_old = self.over.is_some_and(|over| chunk.verify(over, offset, rest));
        let is_intact = is_old || chunk.verify(self.id, offset, rest);
        is_intact.then_some((chunk, is_old && !planted(Bug::CountOldChunks)))
    }

    /// Where to continue behind the bad chunk at the start of `rest`. Its length leads to the next chunk if the
    /// length is intact.
    pub(crate) fn after_damage(&self, rest: &[u8], offset: u64) -> From {
        let next = RawChunk::parse(rest).map(|chunk| CHUNK_HEADER_LEN + chunk.payload_len);
        let is_intact =
            |at: &usize| self.at(&rest[*at..], offset + *at as u64).is_some_and(|(_, is_old)| !is_old);
        next.filter(is_intact).map_or(From::Anywhere(1), From::Chunk)
    }

    /// The next intact chunk in `rest`, the bytes from `offset` to the end of the block or segment: its position, the
    /// chunk, and whether it is one of the old segment. Guesses only chunks that are `worth` it: it gets the length of
    /// the segment that the chunk would prove to be synced.
    pub(crate) fn find(
        &mut self,
        rest: &[u8],
        offset: u64,
        mut from: From,
        worth: impl Fn(u64) -> bool,
    ) -> Option<(usize, RawChunk, bool)> {
        loop {
            let (at, guess) = match from {
                From::Chunk(at) => (at, false),
                From::Anywhere(at) => (at, true),
            };
            if at + CHUNK_HEADER_LEN > rest.len() {
                return None;
            }
            from = From::Anywhere(at + 1);
            let Some(chunk) = RawChunk::parse(&rest[at..]) else { continue };
            let offset = offset + at as u64;
            if guess {
                if !worth(chunk.proves(offset)) || self.guesses_left == 0 {
                    continue;
                }
                self.guesses_left -= 1;
            }
            if let Some((chunk, is_old)) = self.at(&rest[at..], offset) {
                return Some((at, chunk, is_old));
            }
        }
    }
}
