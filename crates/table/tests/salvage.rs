//! What is left of a damaged table, told in full: no part of a file is missing in silence.

use crate::common::*;
use env::Env;
use std::path::Path;
use std::sync::Arc;
use table::{SalvageCursor, Survey, TableOptions};

fn survey(env: &Arc<dyn Env>) -> Survey {
    SalvageCursor::open(env, Path::new(DIR), 1).unwrap().survey()
}

/// A bad block in the middle, and the file cut off somewhere behind it, be it exactly between two blocks: that the end is missing
/// is told each time, though another gap is known.
#[test]
fn a_table_that_is_cut_behind_a_gap_tells_both() {
    let (sim, env) = sim();
    let mut entries: Vec<Entry> =
        (0..60u64).map(|i| entry(format!("key{i:03}").as_bytes(), 100 + i, &[i as u8; 40])).collect();
    sort(&mut entries);
    write(&env, 1, &TableOptions { block_size: 256, ..TableOptions::default() }, &entries);
    let sound = survey(&env);
    assert_eq!((sound.entries, sound.gaps.len()), (60, 0));
    sim.flip_bit(path(1), 300, 1);
    let whole = survey(&env);
    let (middle, missing) = (whole.gaps[0].clone(), 60 - whole.entries);
    assert!(whole.gaps.len() == 1 && middle.before.is_some() && missing < 10, "{whole:?}");
    let mut between_blocks = 0;
    for cut in middle.offset + middle.len + 1..sound.file_size {
        let damaged = sim.process_clone();
        damaged.truncate_file(path(1), cut);
        let env: Arc<dyn Env> = damaged;
        let found = survey(&env);
        if found.entries == whole.entries {
            break; // All of the data is there.
        }
        let last = found.gaps.last().unwrap();
        assert!(last.before.is_none(), "cut to {cut}: {:?}", found.gaps);
        between_blocks += u64::from(last.offset == cut);
    }
    assert!(between_blocks > 5, "{between_blocks} cuts between two blocks");
}
