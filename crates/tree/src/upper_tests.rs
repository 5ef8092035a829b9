//! Tables above the last level: seeks have them loaded.

use crate::cursor::FileCursor;
use crate::view_tests::{Stack, options};
use base::{Cursor, EntryKind, MAX_SEQ, Trailer};
use env::Rng;
use table::Compression;

#[test]
fn seeks_have_a_table_above_the_last_level_loaded_once() {
    let key = |i: u64| i.to_be_bytes().to_vec();
    let entries = (0..4000).map(|i| (key(i), Trailer::new(1, EntryKind::Put), vec![1; 200])).collect();
    let stack = Stack::new(vec![entries], &options(4096, Compression::None), 0);
    stack.sim.set_in_memory(100);
    let file = &stack.guard.tables[0];
    let mut rng = Rng::new(1);
    let mut seek = |upper: bool, count: u64| {
        let before = stack.sim.asked_ahead();
        for _ in 0..count {
            let mut cursor = FileCursor::new(file.clone(), file.table.cursor()).of_upper(upper);
            cursor.seek(&key(rng.below(4000)), MAX_SEQ).unwrap();
            assert!(cursor.valid());
        }
        stack.sim.asked_ahead() - before
    };
    // A block of 4 KiB each: a sixteenth of 900 KiB is reached with the fourteenth, or so; the index comes first.
    assert_eq!(seek(false, 100), 0, "the last level is too large for that");
    assert_eq!(seek(true, 10), 0, "few seeks say nothing");
    assert_eq!(seek(true, 10), 1);
    assert_eq!(seek(true, 1000), 0, "it has been loaded");
}
