//! The invariants of a version. Debug builds assert them after every edit; `cairn check` reports violations.

use crate::version::{LiveTable, Version};
use std::sync::Arc;

/// All violated invariants of `version`; empty if it is sound.
///
/// The invariants: every level has guard 0, and its guards are in ascending order; the guards of a level are guards of
/// the next level; every table lies inside its guard; where two tables share keys, the upper one (in the stack of a
/// guard, in level 0, or in a shallower level) has newer entries only, unless the version is unordered; no table number occurs twice; no range tombstone
/// is newer than the flushed sequence number.
pub fn check_version(version: &Version) -> Vec<String> {
    let mut problems = Vec::new();
    check_guards(version, &mut problems);
    if !version.unordered {
        check_order(version, &mut problems);
    }
    for range in version.range_tombstones.tombstones() {
        if range.is_empty() || range.seq > version.flushed_seq {
            let (from, to, seq) = (&range.from, &range.to, range.seq);
            problems.push(format!(
                "the range tombstone {seq} over {from:?} to {to:?} is empty or newer than the flushed sequence number {}",
                version.flushed_seq
            ));
        }
    }
    let mut numbers: Vec<u64> = version.tables().map(|(_, t)| t.meta.number).collect();
    numbers.sort_unstable();
    for pair in numbers.windows(2).filter(|w| w[0] == w[1]) {
        problems.push(format!("table {} occurs twice", pair[0]));
    }
    problems
}

fn check_guards(version: &Version, problems: &mut Vec<String>) {
    for (i, level) in version.levels.iter().enumerate() {
        let n = i + 1;
        if !level.guards[0].key.is_empty() {
            problems.push(format!("level {n} has no guard with the empty key"));
        }
        for pair in level.guards.windows(2).filter(|w| w[0].key >= w[1].key) {
            problems.push(format!(
                "level {n}: guards {:?} and {:?} are not in ascending order",
                pair[0].key, pair[1].key
            ));
        }
        if let Some(below) = version.levels.get(i + 1) {
            for guard in level.guards.iter().filter(|g| !below.has_guard(&g.key)) {
                problems.push(format!(
                    "guard {:?} of level {n} is not a guard of level {}",
                    guard.key,
                    n + 1
                ));
            }
        }
        for (index, guard) in level.guards.iter().enumerate() {
            for table in &guard.tables {
                let meta = &table.meta;
                let past_end = level.end_of(index).is_some_and(|end| meta.largest[..] >= end[..]);
                if meta.smallest[..] < guard.key[..] || past_end {
                    problems.push(format!(
                        "table {} of level {n} does not lie inside its guard {:?}",
                        meta.number, guard.key
                    ));
                }
            }
        }
    }
}

fn check_order(version: &Version, problems: &mut Vec<String>) {
    let mut complain = |place: String, upper: &Arc<LiveTable>, lower: &Arc<LiveTable>| {
        if upper.overlaps(lower) && upper.meta.min_seq <= lower.meta.max_seq {
            problems.push(format!(
                "{place}: table {} (with sequence numbers from {}) lies above table {} (up to {}) and is not newer",
                upper.meta.number, upper.meta.min_seq, lower.meta.number, lower.meta.max_seq
            ));
        }
    };
    for (i, upper) in version.level0.iter().enumerate() {
        version.level0[i + 1..].iter().for_each(|lower| complain("level 0".into(), upper, lower));
    }
    for (i, level) in version.levels.iter().enumerate() {
        for guard in &level.guards {
            for (j, upper) in guard.tables.iter().enumerate() {
                let place = || format!("level {}, guard {:?}", i + 1, guard.key);
                guard.tables[j + 1..].iter().for_each(|lower| complain(place(), upper, lower));
            }
        }
    }
    // Across levels: every table against the tables of all deeper levels that it overlaps.
    for (n, upper) in version.tables() {
        for (below, level) in version.levels.iter().enumerate().skip(n) {
            if level.tables() == 0 {
                continue;
            }
            let end = level.find(&upper.meta.largest);
            for guard in &level.guards[level.find(&upper.meta.smallest)..=end] {
                for lower in &guard.tables {
                    complain(format!("levels {n} and {}", below + 1), upper, lower);
                }
            }
        }
    }
}
