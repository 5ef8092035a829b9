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
//! (`fits`). So every plan here shortens the stack or moves tables down, and the sequence of plans ends.

use crate::seqno_order::KeySeqBounds;
use crate::version::TableFile;
use std::sync::Arc;

type Stack = [Arc<TableFile>];

pub(crate) fn has_unreadable(stack: &Stack) -> bool {
    stack.iter().any(|t| t.is_unreadable())
}

/// The tables of a stack (newest first) that lie above no unreadable table, nor above one that has to stay because of
/// it. Oldest first.
pub(crate) fn free(stack: &Stack) -> Vec<Arc<TableFile>> {
    let mut stays: Vec<&Arc<TableFile>> = Vec::new();
    let mut free = Vec::new();
    for table in stack.iter().rev() {
        match table.is_unreadable() || stays.iter().any(|below| below.overlaps(table)) {
            true => stays.push(table),
            false => free.push(table.clone()),
        }
    }
    free
}

/// The oldest tables of [`free`], at most `most`, that can be merged and moved below the rest of the stack. Newest
/// first.
pub(crate) fn sinking(stack: &Stack, most: usize) -> Vec<Arc<TableFile>> {
    let mut sinks = free(stack);
    sinks.truncate(most);
    while !lies_below_the_rest(&sinks, stack) {
        sinks.pop();
    }
    sinks.reverse();
    sinks
}

/// Leaves out the newest tables of `sinks` until the others fit as one table (`fits`).
pub(crate) fn without_those_that_do_not_fit(
    mut sinks: Vec<Arc<TableFile>>,
    stack: &Stack,
    fits: impl Fn(&Stack) -> bool,
) -> Vec<Arc<TableFile>> {
    let fit = |sinks: &Stack| sinks.is_empty() || (lies_below_the_rest(sinks, stack) && fits(sinks));
    while !fit(&sinks) {
        sinks.remove(0);
    }
    sinks
}

/// Whether all other tables of the stack that overlap the bounds of `tables` are newer.
fn lies_below_the_rest(tables: &Stack, stack: &Stack) -> bool {
    let Some(hull) = KeySeqBounds::of(tables.iter()) else { return true };
    let mut rest = stack.iter().filter(|t| !tables.iter().any(|one| Arc::ptr_eq(one, t)));
    rest.all(|t| !hull.meets(t) || t.meta.min_seq > hull.max_seq)
}

/// Tables to merge in place, all between two unreadable ones: of the newest such section that has at least `least` of
/// them. From the newest on, a table is included if it is no larger than all before it together; with `all`,
/// unconditionally. One table made of them must fit into the tree (`fits`).
pub(crate) fn merging(
    stack: &Stack,
    least: usize,
    all: bool,
    fits: impl Fn(&Stack) -> bool,
) -> Option<Vec<Arc<TableFile>>> {
    stack.split(|t| t.is_unreadable()).find_map(|run| {
        let mut bytes = 0;
        let worth = |t: &&Arc<TableFile>| {
            let taken = bytes == 0 || all || t.meta.file_size <= bytes;
            bytes += t.meta.file_size;
            taken
        };
        let mut take = run.iter().take_while(worth).count();
        while take >= 2 && !fits(&run[..take]) {
            take -= 1;
        }
        (take >= least.max(2)).then(|| run[..take].to_vec())
    })
}

/// The number of tables of a stack with unreadable ones that a compaction could include, for the compaction debt.
pub(crate) fn waiting(stack: &Stack, least: usize, fits: impl Fn(&Stack) -> bool) -> usize {
    free(stack).len().max(merging(stack, least, false, fits).map_or(0, |run| run.len()))
}
