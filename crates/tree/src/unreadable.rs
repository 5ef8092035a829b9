//! Compacting around tables that cannot be read.
//!
//! An unreadable table is no input of any plan, and it stays where it is: a read that needs it must go on failing. So nothing
//! newer may get below it, where the two share keys. Of a stack (level 0, or a guard's) that holds such tables
//!
//! ```text
//!   newest  C   b......................y      C and B stay above X, and are merged among themselves, in place
//!           B        f............p           (like sizes first, so that their number grows with the logarithm of the bytes)
//!           Y  a..c                           Y shares no key with X or with what stays: it sinks
//!           X     d......#####......u         unreadable
//!   oldest  A        g......................z  A is older: it sinks as ever
//! ```
//!
//! - those that lie above nothing that stays *sink*: they are the inputs of an ordinary plan;
//! - the others are merged in *runs* between unreadable tables, without cuts, so that each such plan leaves fewer tables.
//!
//! Both kinds keep the order of sequence numbers that `check_version` asserts, as whole boxes (range of keys by range of
//! sequence numbers). Within the stack, what would break it is left out of the plan. But what has sunk past an unreadable table
//! is newer than that and lies deeper, for good, so every later plan that meets it down there has to look at the tables of
//! all levels: see `seqno_order.rs`. A plan that goes down is cut for it, one in place is not made (`fits`). So every plan here shortens
//! the stack or moves tables down, and this comes to an end where there is nothing left to gain: nobody is kept busy.

use crate::seqno_order::KeySeqBounds;
use crate::version::TableFile;
use std::sync::Arc;

type Stack = [Arc<TableFile>];

pub(crate) fn has_unreadable(stack: &Stack) -> bool {
    stack.iter().any(|t| t.is_unreadable())
}

/// The tables of a stack (newest first) that lie above no unreadable table, nor above one that has to stay because of it. Oldest
/// first.
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

/// Of [`free`], at most `most` of the oldest: what can be merged and put below the rest of the stack, newest first.
pub(crate) fn sinking(stack: &Stack, most: usize) -> Vec<Arc<TableFile>> {
    let mut sinks = free(stack);
    sinks.truncate(most);
    while !lies_below_the_rest(&sinks, stack) {
        sinks.pop();
    }
    sinks.reverse();
    sinks
}

/// The newest tables of `sinks` are left out until what remains `fits` as one table.
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

/// Whether everything else in the stack that meets the tables' hull is newer than all of them.
fn lies_below_the_rest(tables: &Stack, stack: &Stack) -> bool {
    let Some(hull) = KeySeqBounds::of(tables.iter()) else { return true };
    let mut rest = stack.iter().filter(|t| !tables.iter().any(|one| Arc::ptr_eq(one, t)));
    rest.all(|t| !hull.meets(t) || t.meta.min_seq > hull.max_seq)
}

/// Tables to merge in place: of the newest run between unreadable tables where at least `least` are worth it. From the newest
/// on, a table is taken along if it is no larger than all before it together; with `all`, the whole run. What they make together
/// has to fit into the tree as one table: that is asked of `fits`.
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

/// How many tables of a stack with unreadable ones a compaction could do something about: what its debt is counted by.
pub(crate) fn waiting(stack: &Stack, least: usize, fits: impl Fn(&Stack) -> bool) -> usize {
    free(stack).len().max(merging(stack, least, false, fits).map_or(0, |run| run.len()))
}
