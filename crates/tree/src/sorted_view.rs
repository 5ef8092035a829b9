//! Views: the order of all entries of a guard's tables, noted once (after REMIX, FAST 2021).
//!
//! Without one, a seek in a guard searches every run of it, and reads a block of each, though the next key lies in one of them
//! only. A view knows the merged order:
//!
//! ```text
//! selectors   one byte an entry: which table it is in, and whether it has the key of the entry before
//! segments    one for each 64 entries: the key of the first (the anchor), how many entries of each table lie before it, and
//!             a few bytes of each key, behind what all keys of the segment share
//! runs        for each table, its data blocks, and the number of the first entry of each
//! ```
//!
//! A seek is a binary search among the anchors, one among the bytes of keys of a segment, both in memory, and a look at the entries
//! that these bytes cannot tell apart: mostly none, so that the only block that is read is the one with the answer. A step forward
//! or back follows the selectors and compares no keys. All versions are there, in order: whoever reads chooses by sequence number.
//!
//! A view belongs to a [`Guard`](crate::Guard), whose stack of tables never changes, and goes with it. It holds no values and few
//! keys: about five bytes an entry ([`SortedView::bytes`]). What it says is where to look; what is read there has its checksum verified
//! like any block, and fails where it is needed.

use crate::fences::Fences;
use crate::merge::shared_prefix;
use arc_swap::ArcSwapOption;
use base::{Trailer, compare};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use table::BlockPlace;

/// Entries of a segment.
pub(crate) const SEGMENT: usize = 64;
/// Most bytes that are kept of a key, behind what is shared.
pub(crate) const MAX_HEAD: usize = 4;
/// Most tables of a view: the numbers that a selector can hold.
pub(crate) const MAX_RUNS: usize = 0x80;
const SAME_KEY: u8 = 0x80;

/// The merged order of the entries of a guard. See the top of the file.
pub struct SortedView {
    /// In the order of the guard's tables.
    runs: Vec<Run>,
    selectors: Vec<u8>,
    segments: Vec<Segment>,
    /// The keys of the anchors, one behind the other.
    anchors: Vec<u8>,
    /// Those of the anchors, for the search.
    fences: Fences,
    /// For each segment and run, how many entries of the run come before the segment.
    starts: Vec<u32>,
    /// What is kept of the keys, segment after segment.
    heads: Vec<u8>,
    /// Whether a seek has used it since somebody last asked.
    used: AtomicBool,
}

/// Where the entries of one table are.
#[derive(Default)]
struct Run {
    blocks: Vec<BlockPlace>,
    /// For each block, the number of its first entry in the table.
    first: Vec<u32>,
    entries: u32,
}

struct Segment {
    trailer: Trailer,
    /// Where the anchor's key ends.
    key_end: u32,
    /// Where the bytes of the keys begin.
    heads: u32,
    /// What all keys of the segment share at the front, in bytes.
    shared: u32,
    /// Bytes kept of each key.
    width: u8,
}

impl SortedView {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.selectors.len()
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let runs = self.runs.iter().map(|r| r.blocks.len() * (size_of::<BlockPlace>() + 4)).sum::<usize>();
        let segments = size_of_val(&self.segments[..]) + self.fences.bytes() + 4 * self.starts.len();
        (runs + segments + self.selectors.len() + self.anchors.len() + self.heads.len() + 256) as u64
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The table that entry `at` is in.
    #[inline]
    pub(crate) fn run(&self, at: usize) -> usize {
        usize::from(self.selectors[at] & !SAME_KEY)
    }

    /// Whether entry `at` is an older version of the key of the entry before.
    #[inline]
    pub(crate) fn is_older_version(&self, at: usize) -> bool {
        self.selectors[at] & SAME_KEY != 0
    }

    /// A seek uses the view.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }

    fn anchor(&self, segment: usize) -> &[u8] {
        let start = if segment == 0 { 0 } else { self.segments[segment - 1].key_end };
        &self.anchors[start as usize..self.segments[segment].key_end as usize]
    }

    /// Between which entries the first one at or after a target lies, as far as memory tells: all before the range are before the
    /// target, all from its end on are at or after it.
    pub(crate) fn narrow(&self, key: &[u8], trailer: Trailer) -> Range<usize> {
        let after = self.anchors_up_to(key, trailer);
        let Some(segment) = after.checked_sub(1) else { return 0..0 };
        let begin = segment * SEGMENT;
        let end = self.len().min(begin + SEGMENT);
        let Segment { shared, width, heads, .. } = self.segments[segment];
        let (shared, width, heads) = (shared as usize, usize::from(width), heads as usize);
        // The target is not before the anchor. So where it does not have what the segment's keys share, it is behind them all.
        let rest = match key.split_at_checked(shared) {
            Some((start, rest)) if start == &self.anchor(segment)[..shared] => rest,
            _ => return end..end,
        };
        if width == 0 {
            return begin..end;
        }
        let want = short_head(rest, width);
        let heads = self.heads[heads..heads + width * (end - begin)].chunks_exact(width);
        let (mut low, mut high) = (begin, begin);
        // In order, and few: to look at all of them is about as fast as a search.
        for h in heads {
            let h = short_head(h, width);
            low += usize::from(h < want);
            high += usize::from(h <= want);
        }
        low..high
    }

    /// How many anchors are not behind the target.
    fn anchors_up_to(&self, key: &[u8], trailer: Trailer) -> usize {
        let passes =
            |i: usize| compare(self.anchor(i), self.segments[i].trailer, key, trailer) != Ordering::Greater;
        self.fences.count(key, passes)
    }

    /// For each run, how many of its entries come before entry `at`, which may be the end.
    pub(crate) fn entries_before(&self, at: usize, mut set: impl FnMut(usize, u32)) {
        let Some(last) = self.segments.len().checked_sub(1) else { return };
        let segment = (at / SEGMENT).min(last);
        let mut counts = [0u32; MAX_RUNS];
        for &selector in &self.selectors[segment * SEGMENT..at] {
            counts[usize::from(selector & !SAME_KEY)] += 1;
        }
        let starts = &self.starts[segment * self.runs.len()..][..self.runs.len()];
        for (run, (start, more)) in starts.iter().zip(counts).enumerate() {
            set(run, start + more);
        }
    }

    /// The place of an entry by its number in the table. `hint` is the block that was asked for last.
    #[inline]
    pub(crate) fn place(&self, run: usize, entry: u32, hint: &mut usize) -> (BlockPlace, usize) {
        let run = &self.runs[run];
        let end = |block: usize| run.first.get(block + 1).copied().unwrap_or(run.entries);
        let near = [*hint, *hint + 1];
        let known =
            near.into_iter().find(|&b| b < run.first.len() && run.first[b] <= entry && entry < end(b));
        let block = known.unwrap_or_else(|| run.first.partition_point(|&first| first <= entry) - 1);
        *hint = block;
        (run.blocks[block], (entry - run.first[block]) as usize)
    }
}

impl std::fmt::Debug for SortedView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a view of {} entries in {} tables", self.len(), self.runs.len())
    }
}

/// The first `width` bytes, at most four, of what is left of a key, as an integer; short ones padded with zeros. So a smaller one
/// means a smaller key, and equal ones decide nothing.
#[inline]
fn short_head(rest: &[u8], width: usize) -> u32 {
    let mut bytes = [0; MAX_HEAD];
    let len = rest.len().min(width);
    bytes[..len].copy_from_slice(&rest[..len]);
    u32::from_be_bytes(bytes)
}

/// Makes a view of entries that come in order.
pub(crate) struct ViewBuilder {
    view: SortedView,
    /// Entries of each run so far.
    counts: Vec<u32>,
    /// The keys of the segment that is being filled, one behind the other, and where each ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
    /// Trailer of the first of them.
    trailer: Trailer,
    last_key: Vec<u8>,
}

impl ViewBuilder {
    pub(crate) fn new(runs: usize) -> ViewBuilder {
        let view = SortedView {
            runs: (0..runs).map(|_| Run::default()).collect(),
            selectors: Vec::new(),
            segments: Vec::new(),
            anchors: Vec::new(),
            fences: Fences::default(),
            starts: Vec::new(),
            heads: Vec::new(),
            used: AtomicBool::new(true),
        };
        let counts = vec![0; runs];
        let (keys, ends, last_key) = (Vec::new(), Vec::new(), Vec::new());
        ViewBuilder { view, counts, keys, ends, trailer: Trailer(0), last_key }
    }

    /// Bytes of the view so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.view.bytes()
    }

    /// Adds the next entry. `false` when a view cannot hold it: it has too many entries, or too long keys.
    pub(crate) fn add(&mut self, run: usize, key: &[u8], trailer: Trailer, place: BlockPlace) -> bool {
        let entries = &mut self.counts[run];
        let blocks = &mut self.view.runs[run];
        if blocks.blocks.last() != Some(&place) {
            blocks.blocks.push(place);
            blocks.first.push(*entries);
        }
        if self.ends.is_empty() {
            self.trailer = trailer;
        }
        let same = self.view.len() > 0 && self.last_key == key;
        self.view.selectors.push(run as u8 | if same { SAME_KEY } else { 0 });
        if !same {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        *entries += 1;
        let has_room = *entries < u32::MAX && self.view.anchors.len() + key.len() < u32::MAX as usize;
        if self.ends.len() == SEGMENT {
            self.close_segment();
        }
        has_room && self.view.heads.len() < u32::MAX as usize - SEGMENT * MAX_HEAD
    }

    fn close_segment(&mut self) {
        let count = self.ends.len();
        let key = |i: usize| &self.keys[if i == 0 { 0 } else { self.ends[i - 1] }..self.ends[i]];
        let (first, last) = (key(0), key(count - 1));
        let shared = shared_prefix(first, last);
        // As many bytes as tell neighbours apart.
        let different = (1..count).filter(|&i| key(i - 1) != key(i));
        let apart = different.map(|i| shared_prefix(key(i - 1), key(i)) + 1 - shared).max();
        let width = apart.unwrap_or(0).min(MAX_HEAD);
        let view = &mut self.view;
        view.segments.push(Segment {
            trailer: self.trailer,
            key_end: (view.anchors.len() + first.len()) as u32,
            heads: view.heads.len() as u32,
            shared: shared as u32,
            width: width as u8,
        });
        view.anchors.extend_from_slice(first);
        for i in 0..count {
            let head = short_head(&key(i)[shared..], width).to_be_bytes();
            view.heads.extend_from_slice(&head[..width]);
        }
        let segment = view.len() - count;
        for (run, count) in self.counts.iter().enumerate() {
            let inside = view.selectors[segment..].iter().filter(|&&s| usize::from(s & !SAME_KEY) == run);
            view.starts.push(count - inside.count() as u32);
        }
        self.keys.clear();
        self.ends.clear();
    }

    /// The view of all that was added.
    pub(crate) fn finish(mut self) -> SortedView {
        if !self.ends.is_empty() {
            self.close_segment();
        }
        let ViewBuilder { mut view, counts, .. } = self;
        for (run, count) in view.runs.iter_mut().zip(counts) {
            run.entries = count;
            run.blocks.shrink_to_fit();
            run.first.shrink_to_fit();
        }
        view.fences = Fences::new((0..view.segments.len()).map(|segment| view.anchor(segment)));
        view.selectors.shrink_to_fit();
        view.segments.shrink_to_fit();
        view.anchors.shrink_to_fit();
        view.starts.shrink_to_fit();
        view.heads.shrink_to_fit();
        view
    }
}

/// The view of a guard, if it has one, and the charges of seeks towards one.
#[derive(Default)]
pub(crate) struct ViewSlot {
    view: ArcSwapOption<SortedView>,
    pub(crate) charges: AtomicU64,
}

impl ViewSlot {
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<SortedView>> {
        self.view.load_full()
    }

    pub(crate) fn set(&self, view: Option<Arc<SortedView>>) {
        self.view.store(view);
        self.charges.store(0, Relaxed);
    }

    /// Whether the view was used since the last call.
    pub(crate) fn take_used(&self) -> bool {
        self.view.load().as_ref().is_some_and(|view| view.used.swap(false, Relaxed))
    }
}

impl std::fmt::Debug for ViewSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.view.load().as_deref())
    }
}
