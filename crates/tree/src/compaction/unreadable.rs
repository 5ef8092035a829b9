//! Compaction around unreadable tables.
//!
//! An unreadable table is no input of any plan and stays where it is: a read that needs it must continue to fail. So no
//! newer data that shares keys with it may get below it. In a stack (level 0, or a guard's) with such tables
//!
//! ```text
//!   newest  C   b......................y      C and B stay above X, and are merged with each other, in place
//!           B        f............p           (tables of like size first, so that their number stays logarithmic in the bytes)
//!           Y  a..c                           Y shares no key with X or with tables that stay: it moves down
//!           X     d......#####......u         unreadable
//!   oldest  A        g......................z  A is older than X: it moves down as usual
//! ```
//!
//! - the tables that lie above no table that stays move down: they are the inputs of an ordinary plan;
//! - the others are merged in place, among the tables between two unreadable ones, without cuts, so that each such plan
//!   leaves fewer tables.
//!
//! Both kinds keep the order of sequence numbers that `check_version` asserts, for the bounds of all tables. Tables of
//! the stack that would break it are left out of the plan. But a table that has moved down past an unreadable one is
//! newer than it and lies deeper from then on, so every later plan that meets it there has to be compared with the
//! tables of all levels (`seqno_order.rs`): a plan to a deeper level is cut for them; one in place is not made
//! (`fits`). In an unordered version nothing lies above anything, and all others are merged and move down.
//!
//! So every plan here shortens the stack or moves tables down, and the sequence of plans ends.

use super::seqno_order::KeySeqBounds;
use crate::version::{LiveTable, Version};
use std::sync::Arc;

type Stack = [Arc<LiveTable>];

pub(crate) fn has_unreadable(stack: &Stack) -> bool {
    stack.iter().any(|t| t.damage.is_unreadable())
}

/// The tables of a stack (newest first) that lie above no unreadable table, nor above one that has to stay because of
/// it. Oldest first.
pub(crate) fn unblocked(version: &Version, stack: &Stack) -> Vec<Arc<LiveTable>> {
    let mut stays: Vec<&Arc<LiveTable>> = Vec::new();
    let mut unblocked = Vec::new();
    for table in stack.iter().rev() {
        let is_above = !version.unordered && stays.iter().any(|below| below.overlaps(table));
        match table.damage.is_unreadable() || is_above {
            true => stays.push(table),
            false => unblocked.push(table.clone()),
        }
    }
    unblocked
}

/// The oldest tables of [`unblocked`], at most `max_tables`, that can be merged and moved below the rest of the stack. Newest
/// first.
pub(crate) fn movable_down(version: &Version, stack: &Stack, max_tables: usize) -> Vec<Arc<LiveTable>> {
    let mut movable = unblocked(version, stack);
    movable.truncate(max_tables);
    while !lies_below_others(version, &movable, stack) {
        movable.pop();
    }
    movable.reverse();
    movable
}

/// Leaves out the newest tables of `movable` until the others fit as one table (`fits`).
pub(crate) fn largest_that_fits(
    version: &Version,
    mut movable: Vec<Arc<LiveTable>>,
    stack: &Stack,
    fits: impl Fn(&Stack) -> bool,
) -> Vec<Arc<LiveTable>> {
    let fit =
        |movable: &Stack| movable.is_empty() || (lies_below_others(version, movable, stack) && fits(movable));
    while !fit(&movable) {
        movable.remove(0);
    }
    movable
}

/// Whether all other tables of the stack that overlap the bounds of `tables` are newer.
fn lies_below_others(version: &Version, tables: &Stack, stack: &Stack) -> bool {
    if version.unordered {
        return true;
    }
    let Some(bounds) = KeySeqBounds::of(tables.iter()) else { return true };
    let mut rest = stack.iter().filter(|t| !tables.iter().any(|one| Arc::ptr_eq(one, t)));
    rest.all(|t| !bounds.overlaps(t) || t.meta.min_seq > bounds.max_seq)
}

/// Tables to merge in place, all between two unreadable ones: the newest `min_tables` or more in a row, each of which is no larger than
/// those before it together (newest first); with `all`, of any size. One table made of them must fit into the tree (`fits`).
pub(crate) fn mergeable_in_place(
    stack: &Stack,
    min_tables: usize,
    all: bool,
    fits: impl Fn(&Stack) -> bool,
) -> Option<Vec<Arc<LiveTable>>> {
    let min_tables = min_tables.max(2);
    let from = |row: &Stack| {
        let mut bytes = 0;
        let worth = |t: &&Arc<LiveTable>| {
            let taken = bytes == 0 || all || t.meta.file_size <= bytes;
            bytes += t.meta.file_size;
            taken
        };
        let mut take = row.iter().take_while(worth).count();
        while take >= min_tables && !fits(&row[..take]) {
            take -= 1;
        }
        (take >= min_tables).then(|| row[..take].to_vec())
    };
    let mut sections = stack.split(|t| t.damage.is_unreadable());
    sections.find_map(|section| (0..section.len()).find_map(|start| from(&section[start..])))
}

/// The number of tables of a stack with unreadable ones that a compaction could include, for the compaction debt.
pub(crate) fn compactable(
    version: &Version,
    stack: &Stack,
    min_tables: usize,
    fits: impl Fn(&Stack) -> bool,
) -> usize {
    unblocked(version, stack)
        .len()
        .max(mergeable_in_place(stack, min_tables, false, fits).map_or(0, |section| section.len()))
}
