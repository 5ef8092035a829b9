//! Salvage of a damaged table reports every missing part of the file.

use crate::common::*;
use env::Env;
use std::path::Path;
use std::sync::Arc;
use table::{SalvageCursor, Survey, TableOptions};

fn survey(env: &Arc<dyn Env>) -> Survey {
    SalvageCursor::open(env, Path::new(DIR), 1, 0).unwrap().survey().unwrap()
}

/// A block in the middle is damaged, and the file is cut anywhere after it, also exactly between two blocks. Each time the missing end is
/// reported in addition to the gap.
#[test]
fn salvage_reports_a_gap_and_a_missing_end() {
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
            break; // No data block is missing.
        }
        let last = found.gaps.last().unwrap();
        assert!(last.before.is_none(), "cut to {cut}: {:?}", found.gaps);
        between_blocks += u64::from(last.offset == cut);
    }
    assert!(between_blocks > 5, "{between_blocks} cuts between two blocks");
}
