//! Building a view: one sequential read of a guard's tables, past the cache.

use crate::cursor::FileCursor;
use crate::merge::{MergeCursor, shared_prefix};
use crate::sorted_view::{MAX_RUNS, SEGMENT, SortedView, ViewBuilder};
use crate::version::{Guard, TableFile};
use base::planted::{Bug, planted};
use base::{Cursor, Result};
use std::sync::Arc;
use table::ScanCursor;

/// How building a view ended.
#[derive(Debug)]
pub enum Built {
    /// Here it is.
    SortedView(SortedView),
    /// It would take more memory than there is for it.
    TooLarge,
    /// The caller has no use for it any more.
    Abandoned,
}

/// Entries between two looks at whether the view is still wanted.
const INTERVAL: usize = 16 * SEGMENT;

/// Merges the tables of `guard` and notes the order, in at most `most_bytes` of memory. `abandoned` is asked now and then, and ends it.
/// An error is that of a table, which has a note of it from then on.
pub fn build_view(guard: &Guard, most_bytes: u64, abandoned: &mut dyn FnMut() -> bool) -> Result<Built> {
    let tables = &guard.tables;
    if tables.len() > MAX_RUNS {
        return Ok(Built::TooLarge);
    }
    let smallest = tables.iter().map(|t| &t.meta.smallest[..]).min().unwrap_or(&[]);
    let largest = tables.iter().map(|t| &t.meta.largest[..]).max().unwrap_or(&[]);
    let scan = |t: &Arc<TableFile>| FileCursor::new(t.clone(), t.table.scan());
    let mut merge = MergeCursor::new(tables.iter().map(scan).collect(), shared_prefix(smallest, largest));
    let mut builder = ViewBuilder::new(tables.len());
    merge.seek_to_first()?;
    let mut count = 0usize;
    while merge.valid() {
        if count.is_multiple_of(INTERVAL) {
            if abandoned() {
                return Ok(Built::Abandoned);
            }
            if builder.bytes() > most_bytes {
                return Ok(Built::TooLarge);
            }
        }
        count += 1;
        let mut run = merge.current();
        let child: &FileCursor<ScanCursor> = &merge.children()[run];
        let Some((block, _)) = child.inner().place() else { return Ok(Built::Abandoned) };
        if planted(Bug::ViewSelectsWrongRun) && count.is_multiple_of(50) {
            run = (run + 1) % tables.len();
        }
        if !builder.add(run, merge.key(), merge.trailer(), block) {
            return Ok(Built::TooLarge);
        }
        merge.next()?;
    }
    let view = builder.finish();
    Ok(if view.bytes() > most_bytes { Built::TooLarge } else { Built::SortedView(view) })
}
