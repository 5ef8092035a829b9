//! The block cache: verified, decompressed blocks by file and offset, within a budget of bytes.
//!
//! It is sharded; a hit takes one shard's read lock for a few dozen nanoseconds. An evicted block stays in memory only while a
//! reader holds a slice of it. The cache holds bytes and does not know tables.
//!
//! A data block enters the cache when it is requested for the third time in recent requests ([`BlockCache::admits`], `read_policy.rs`).
//!
//! Tables *pin* part of the budget for filters and indexes that they keep outside of the cache ([`BlockCache::pin`]): at most half of
//! it. Blocks then have less, so that both together stay within the budget.

use crate::cache::counters::Counters;
use crate::cache::read_policy::Admission;
use base::Slice;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a block is, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockClass {
    /// Entries.
    Data = 0,
    /// Index nodes.
    Index = 1,
    /// Filter partitions.
    Filter = 2,
}

/// Where a cached block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// Number of the file.
    pub file: u64,
    /// Offset of the block in it.
    pub offset: u64,
}

/// Mixes the two words of a [`BlockKey`]. Keys are offsets in our own files: an attacker cannot choose colliding ones.
#[derive(Default)]
struct Mix(u64);

type BuildMix = BuildHasherDefault<Mix>;

impl Hasher for Mix {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Approximate overhead of the cache and the allocator per block, in bytes.
const BLOCK_OVERHEAD: u64 = 128;

#[derive(Clone)]
struct ByBytes;

impl Weighter<BlockKey, Slice> for ByBytes {
    #[inline]
    fn weight(&self, _: &BlockKey, block: &Slice) -> u64 {
        block.len() as u64 + BLOCK_OVERHEAD
    }
}

/// Hits, misses and inserts of one class of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Look-ups that found their block.
    pub hits: u64,
    /// Look-ups that did not find it.
    pub misses: u64,
    /// Blocks that were inserted.
    pub inserts: u64,
}

/// Counters since the cache was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Data blocks.
    pub data: ClassStats,
    /// Index nodes.
    pub index: ClassStats,
    /// Filter partitions.
    pub filter: ClassStats,
}

const HITS: usize = 0;
const MISSES: usize = 3;
const INSERTS: usize = 6;

/// Blocks in memory, shared by all tables of a database.
pub struct BlockCache {
    blocks: Cache<BlockKey, Slice, ByBytes, BuildMix, DefaultLifecycle<BlockKey, Slice>>,
    counters: Counters<9>,
    capacity: u64,
    admission: Admission,
    /// Bytes that are pinned.
    pinned: AtomicU64,
    /// Steps of the budget that are taken from blocks for pins.
    given_up: Mutex<u64>,
}

/// Number of steps of the budget. The capacity for blocks changes by whole steps, because each change visits all
/// shards, and rounds down how much history they keep.
const STEPS: u64 = 64;

/// Part of a cache's budget, for memory that its owner keeps outside of the cache. Returned on drop.
pub struct Pin {
    cache: Arc<BlockCache>,
    bytes: u64,
}

impl Pin {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.cache.pinned.fetch_sub(self.bytes, Ordering::Relaxed);
        self.cache.resize_blocks();
    }
}

impl BlockCache {
    /// A cache of at most `bytes` bytes, bookkeeping included. A cache of 0 bytes keeps nothing.
    pub fn new(bytes: u64) -> BlockCache {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(usize::try_from(bytes / 4096).unwrap_or(usize::MAX).max(1))
            .weight_capacity(bytes)
            .shards(if bytes < 4 << 20 { 1 } else { 16 })
            .build()
            .expect("both capacities are given");
        BlockCache {
            blocks: Cache::with_options(options, ByBytes, BuildMix::default(), DefaultLifecycle::default()),
            counters: Counters::new(),
            capacity: bytes,
            admission: Admission::new(bytes / 4096),
            pinned: AtomicU64::new(0),
            given_up: Mutex::new(0),
        }
    }

    /// Whether `bytes` more could be pinned now.
    #[inline]
    pub fn may_pin(&self, bytes: u64) -> bool {
        self.pinned.load(Ordering::Relaxed).saturating_add(bytes) <= self.capacity / 2
    }

    /// Takes `bytes` of the budget from blocks until the pin is dropped; `None` when more than half of the budget would be pinned.
    pub fn pin(self: &Arc<Self>, bytes: u64) -> Option<Pin> {
        self.pin_within(bytes, self.capacity / 2)
    }

    /// The same for memory without which the database cannot work: up to seven eighths of the budget.
    pub fn pin_needed(self: &Arc<Self>, bytes: u64) -> Option<Pin> {
        self.pin_within(bytes, self.most_needed())
    }

    /// The most that [`BlockCache::pin_needed`] allows to be pinned, in bytes.
    pub fn most_needed(&self) -> u64 {
        self.capacity / 8 * 7
    }

    fn pin_within(self: &Arc<Self>, bytes: u64, most: u64) -> Option<Pin> {
        let more = |pinned: u64| pinned.checked_add(bytes).filter(|sum| *sum <= most);
        self.pinned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        self.resize_blocks();
        Some(Pin { cache: Arc::clone(self), bytes })
    }

    /// Bytes that are pinned.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Sets the capacity for blocks to what pins leave, in steps. It grows only when two steps are free: pins that come and go around
    /// the end of a step do not resize the cache each time.
    fn resize_blocks(&self) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        let need = self.pinned_bytes().div_ceil(self.step());
        if need <= *given_up && *given_up <= need + 1 {
            return;
        }
        *given_up = need;
        self.blocks.set_capacity(self.capacity.saturating_sub(need.saturating_mul(self.step())));
    }

    fn step(&self) -> u64 {
        (self.capacity / STEPS).max(1)
    }

    /// The block, if it is cached.
    #[inline]
    pub fn get(&self, key: BlockKey, class: BlockClass) -> Option<Slice> {
        let found = self.blocks.get(&key);
        let which = if found.is_some() { HITS } else { MISSES };
        self.counters.add(which + class as usize, 1);
        found
    }

    /// The block, if it was inserted since a look-up missed it. Not counted: the miss was.
    pub(crate) fn get_again(&self, key: BlockKey) -> Option<Slice> {
        self.blocks.peek(&key)
    }

    /// Inserts a block, which may evict others. A block larger than a shard's share of the budget is not kept.
    pub fn insert(&self, key: BlockKey, class: BlockClass, block: Slice) {
        self.counters.add(INSERTS + class as usize, 1);
        self.blocks.insert(key, block);
    }

    /// Whether a data block that missed is to be inserted: at its third recent request. Call it once per read of the block, because it
    /// counts the request.
    pub fn admits(&self, key: BlockKey) -> bool {
        self.admission.admits(BuildMix::default().hash_one(key)) && self.capacity > 0
    }

    /// Bytes in use, pinned ones included.
    pub fn used_bytes(&self) -> u64 {
        self.blocks.weight() + self.pinned_bytes()
    }

    /// The budget, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Counters since the cache was created. Not an atomic snapshot: other threads add to them meanwhile.
    pub fn stats(&self) -> CacheStats {
        let class = |class: BlockClass| ClassStats {
            hits: self.counters.sum(HITS + class as usize),
            misses: self.counters.sum(MISSES + class as usize),
            inserts: self.counters.sum(INSERTS + class as usize),
        };
        CacheStats {
            data: class(BlockClass::Data),
            index: class(BlockClass::Index),
            filter: class(BlockClass::Filter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(file: u64, offset: u64) -> BlockKey {
        BlockKey { file, offset }
    }

    #[test]
    fn what_is_pinned_is_taken_from_blocks() {
        let capacity = 1 << 20;
        let cache = Arc::new(BlockCache::new(capacity));
        let fill = || {
            (0..1000u64).for_each(|i| cache.insert(key(1, i << 12), BlockClass::Data, vec![1u8; 4096].into()))
        };
        let left = |taken: u64| {
            fill();
            let blocks = cache.used_bytes() - cache.pinned_bytes();
            assert!(
                blocks <= capacity - taken && blocks >= (capacity - taken) / 10 * 7 - capacity / STEPS,
                "{blocks} beside {taken}"
            );
        };
        let pin = cache.pin(capacity / 2).unwrap();
        left(capacity / 2);
        let more = cache.pin(1 << 10);
        assert!(more.is_none());
        drop(pin);
        left(0);
    }

    #[test]
    fn holds_its_budget() {
        for budget in [0u64, 10_000, 1 << 20, 8 << 20] {
            let cache = BlockCache::new(budget);
            for i in 0..5000u64 {
                cache.insert(key(i % 7, i * 4096), BlockClass::Data, vec![1u8; 4096].into());
                assert!(cache.used_bytes() <= budget + 16);
            }
            assert!(cache.used_bytes() >= budget / 10 * 7, "{} of {budget}", cache.used_bytes());
        }
    }

    #[test]
    fn lets_in_what_is_asked_for_three_times_of_late() {
        let cache = BlockCache::new(1 << 20);
        let read = |i: u64| match cache.get(key(1, i), BlockClass::Data) {
            Some(_) => "cached",
            None if cache.admits(key(1, i)) => {
                cache.insert(key(1, i), BlockClass::Data, vec![1u8; 4000].into());
                "let in"
            }
            None => "left out",
        };
        let thrice = |i| [read(i), read(i), read(i), read(i)];
        assert_eq!(thrice(5000), ["left out", "left out", "let in", "cached"], "room or not");
        (0..200).for_each(|i| _ = thrice(i));
        let cached = || (0..200).filter(|&i| cache.get(key(1, i), BlockClass::Data).is_some()).count();
        let before = cached();
        // Seven equally hot blocks per slot: few are admitted.
        let mut rng = 1u64;
        let let_in = (0..100_000).filter(|_| {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            read(10_000 + (rng >> 33) % 1792) == "let in"
        });
        let let_in = let_in.count();
        assert!(before > 190 && let_in < 3000, "{before}, {let_in}");
        let round = BlockCache::new(1 << 20);
        let cached_in_turn = || {
            let cached = |&i: &u64| round.get(key(2, i), BlockClass::Data).is_some();
            (0..200).filter(cached).count()
        };
        for _ in 0..10 {
            for i in 0..200 {
                if round.get(key(2, i), BlockClass::Data).is_none() && round.admits(key(2, i)) {
                    round.insert(key(2, i), BlockClass::Data, vec![1u8; 4000].into());
                }
            }
        }
        // All but some of those that share a slot with two others.
        assert!(cached_in_turn() > 165, "in turn, {}", cached_in_turn());
        // One of them is hotter.
        (0..5000).for_each(|i| _ = (read(20_000 + i % 1792), i % 16 == 0 && read(30_000) == "let in"));
        assert_eq!(read(30_000), "cached");
        // Requests long ago do not count.
        assert_eq!([read(40_000), read(40_000)], ["left out"; 2]);
        (50_000..52_000).for_each(|i| _ = read(i));
        assert_eq!(read(40_000), "left out");
        assert!((0..9).all(|_| !BlockCache::new(0).admits(key(1, 1))));
    }

    #[test]
    fn what_is_pinned_is_taken_from_blocks_and_given_back() {
        for budget in [10_000u64, 1 << 20, 8 << 20] {
            let cache = Arc::new(BlockCache::new(budget));
            let fill = |file| {
                for i in 0..5000u64 {
                    cache.insert(key(file, i * 4096), BlockClass::Data, vec![1u8; 2048].into());
                    assert!(cache.used_bytes() <= budget + 16, "{} of {budget}", cache.used_bytes());
                }
            };
            fill(1);
            assert!(cache.may_pin(budget / 2) && !cache.may_pin(budget / 2 + 1));
            assert!(cache.pin(budget / 2 + 1).is_none() && cache.pin(u64::MAX).is_none());
            let pins: Vec<Pin> = (0..10).filter_map(|_| cache.pin(budget / 20)).collect();
            assert!(pins.len() == 10 && !cache.may_pin(budget / 20));
            assert!(cache.used_bytes() <= budget + 16 && cache.pinned_bytes() == budget / 20 * 10);
            fill(2);
            drop(pins);
            assert!(cache.pinned_bytes() == 0 && cache.used_bytes() <= budget / 2 + 16);
            fill(3);
            assert!(cache.used_bytes() >= budget / 10 * 6, "{} of {budget}", cache.used_bytes());
        }
    }

    #[test]
    fn hits_are_counted() {
        let cache = BlockCache::new(1 << 20);
        cache.insert(key(1, 0), BlockClass::Filter, Slice::copy_from(b"a"));
        assert!(cache.get(key(2, 0), BlockClass::Filter).is_none());
        assert_eq!(cache.get(key(1, 0), BlockClass::Filter).unwrap(), "a");
        let expected = ClassStats { hits: 1, misses: 1, inserts: 1 };
        assert_eq!(cache.stats(), CacheStats { filter: expected, ..CacheStats::default() });
    }
}
