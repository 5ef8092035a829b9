//! Small levels: seeks load their tables into the page cache, and their blocks into the block cache.

use super::LiveTableCursor;
use super::level_size::LevelSize;
use crate::test_support::{TestStack, table_options};
use base::{Cursor, EntryKind, MAX_SEQ, Trailer};
use env::Rng;
use table::{BlockClass, BlockKey, Compression};

fn stack(entries: u64, value: usize, cache_bytes: u64) -> TestStack {
    let entries = (0..entries).map(|i| (key(i), Trailer::new(1, EntryKind::Put), vec![1; value])).collect();
    let stack = TestStack::new(vec![entries], &table_options(4096, Compression::None), cache_bytes);
    stack.sim.set_cached_percent(100);
    stack
}

fn key(i: u64) -> Vec<u8> {
    i.to_be_bytes().to_vec()
}

#[test]
fn seeks_load_a_small_table_piece_by_piece_and_once() {
    let stack = stack(14_000, 200, 0);
    let file = &stack.guard.tables[0];
    assert!((2 << 20..3 << 20).contains(&file.meta.file_size));
    let mut rng = Rng::new(1);
    let mut seek = |small: bool, count: u64| {
        let before = stack.sim.will_need_bytes();
        for _ in 0..count {
            let mut cursor = LiveTableCursor::new(file.clone(), file.table.cursor()).small_level(small);
            cursor.seek(&key(rng.below(14_000)), MAX_SEQ).unwrap();
            assert!(cursor.valid());
        }
        stack.sim.will_need_bytes() - before
    };
    assert_eq!(seek(false, 100), 0, "a large level is not loaded");
    // A seek reads one or two blocks.
    assert_eq!(seek(true, 10), 0, "too few seeks");
    assert_eq!(seek(true, 8), 1 << 20);
    assert_eq!(seek(true, 1000), file.meta.file_size - (1 << 20), "the rest of the file");
    assert_eq!(seek(true, 1000), 0, "the file is loaded once");
}

#[test]
fn reads_of_filters_and_indexes_do_not_count() {
    // Filter and index are a quarter of the file.
    let stack = stack(200_000, 0, 64 << 20);
    let file = &stack.guard.tables[0];
    let mut cursor = LiveTableCursor::new(file.clone(), file.table.cursor()).small_level(true);
    cursor.seek(&key(77_777), MAX_SEQ).unwrap();
    assert!(cursor.valid() && table::bytes_read_by_this_thread() > 128 << 10);
    assert_eq!(stack.sim.will_need_calls(), 0);
}

#[test]
fn blocks_of_a_small_level_are_cached_at_their_first_use_while_there_is_room() {
    const CACHE: u64 = 8 << 20;
    let stack = || stack(7_000, 200, CACHE);
    let size = stack().guard.tables[0].meta.file_size;
    assert!((1 << 20..CACHE / 4).contains(&size));
    // The number of data blocks that second seeks to some keys read, in a level of `bytes` bytes with `below` bytes
    // below it.
    let read_again = |stack: &TestStack, bytes: u64, below: u64| {
        let file = &stack.guard.tables[0];
        let seeks = || {
            let before = table::blocks_read_by_this_thread();
            for i in (0..7_000).step_by(500) {
                let mut cursor = LevelSize::new(bytes, below).cursor(file);
                cursor.seek(&key(i), MAX_SEQ).unwrap();
                assert_eq!(cursor.key(), key(i));
            }
            table::blocks_read_by_this_thread() - before
        };
        assert_eq!(seeks(), 14);
        seeks()
    };
    assert_eq!(read_again(&stack(), size, 4 * size), 0);
    assert_eq!(read_again(&stack(), size, 4 * size - 1), 14, "too large compared to the levels below");
    assert_eq!(read_again(&stack(), CACHE / 4, CACHE), 0);
    assert_eq!(read_again(&stack(), CACHE / 4 + 1, 2 * CACHE), 14, "too large compared to the cache");

    // Blocks of other tables in the cache are not evicted.
    let full = |bytes: u64| {
        let stack = stack();
        let cache = stack.guard.tables[0].table.tables().cache().clone();
        let space = cache.new_space();
        while cache.used_bytes() < bytes {
            let key = BlockKey { space, file: 1, offset: cache.used_bytes() };
            cache.insert(key, BlockClass::Data, vec![0; 4 << 10].into());
        }
        read_again(&stack, size, 4 * size)
    };
    assert_eq!(full(CACHE / 2), 0);
    assert_eq!(full(CACHE / 4 * 3), 14);
}
