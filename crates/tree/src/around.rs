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
//! sequence numbers): what would break it is left out of the plan. Every plan shortens the stack or moves tables down, so this
//! comes to an end where there is nothing left to gain, and nobody is kept busy.

use crate::version::TableFile;
use std::sync::Arc;

type Stack = [Arc<TableFile>];

/// The range of keys and the newest and oldest sequence number of some tables.
struct Hull<'a> {
    smallest: &'a [u8],
    largest: &'a [u8],
    min_seq: u64,
    max_seq: u64,
}

impl<'a> Hull<'a> {
    fn of(tables: impl Iterator<Item = &'a Arc<TableFile>>) -> Option<Hull<'a>> {
        tables.map(|t| &t.meta).fold(None, |hull, meta| {
            let one = Hull {
                smallest: &meta.smallest,
                largest: &meta.largest,
                min_seq: meta.min_seq,
                max_seq: meta.max_seq,
            };
            Some(match hull {
                None => one,
                Some(hull) => Hull {
                    smallest: hull.smallest.min(one.smallest),
                    largest: hull.largest.max(one.largest),
                    min_seq: hull.min_seq.min(one.min_seq),
                    max_seq: hull.max_seq.max(one.max_seq),
                },
            })
        })
    }

    fn meets(&self, table: &TableFile) -> bool {
        table.overlaps_range(self.smallest, None) && table.meta.smallest[..] <= *self.largest
    }
}

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

/// Whether everything else in the stack that meets the tables' hull is newer than all of them.
fn lies_below_the_rest(tables: &Stack, stack: &Stack) -> bool {
    let Some(hull) = Hull::of(tables.iter()) else { return true };
    let mut rest = stack.iter().filter(|t| !tables.iter().any(|one| Arc::ptr_eq(one, t)));
    rest.all(|t| !hull.meets(t) || t.meta.min_seq > hull.max_seq)
}

/// Whether everything else in the stack that meets the tables' hull is newer than all of them or older than all of them.
fn is_one_stretch(tables: &Stack, stack: &Stack) -> bool {
    let Some(hull) = Hull::of(tables.iter()) else { return false };
    let mut rest = stack.iter().filter(|t| !tables.iter().any(|one| Arc::ptr_eq(one, t)));
    rest.all(|t| !hull.meets(t) || t.meta.min_seq > hull.max_seq || t.meta.max_seq < hull.min_seq)
}

/// Tables to merge in place: of the newest run between unreadable tables where at least `least` are worth it. From the newest
/// on, a table is taken along if it is no larger than all before it together; with `all`, the whole run.
pub(crate) fn merging(stack: &Stack, least: usize, all: bool) -> Option<Vec<Arc<TableFile>>> {
    stack.split(|t| t.is_unreadable()).find_map(|run| {
        let mut bytes = 0;
        let worth = |t: &&Arc<TableFile>| {
            let taken = bytes == 0 || all || t.meta.file_size <= bytes;
            bytes += t.meta.file_size;
            taken
        };
        let mut take = run.iter().take_while(worth).count();
        while take >= 2 && !is_one_stretch(&run[..take], stack) {
            take -= 1;
        }
        (take >= least.max(2)).then(|| run[..take].to_vec())
    })
}

/// How many tables of a stack with unreadable ones a compaction could do something about: what its debt is counted by.
pub(crate) fn waiting(stack: &Stack, least: usize) -> usize {
    free(stack).len().max(merging(stack, least, false).map_or(0, |run| run.len()))
}
