//! The sorted runs that a cursor merges: memtables, tables of level 0, and guards.

use super::range_del::RangeDelFilter;
use crate::state::{KeyspaceInner, ReadState};
use crate::types::Bounds;
use base::Seq;
use memtable::MemtableCursor;
use tree::{KeyRange, MergeCursor, TreeSource};

/// A sorted run of a keyspace. The variants are not boxed: a cursor has few sources, and an indirection would slow each step.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Source {
    Memtable(MemtableCursor),
    Tree(TreeSource),
}

base::delegate_cursor!(Source { Memtable, Tree });

pub(crate) type Merged = (MergeCursor<Source>, Option<Box<RangeDelFilter>>);

/// The sorted runs of a read state that may have keys within the bounds, and the filter of range tombstones visible at `seq`.
pub(crate) fn sources(read_state: &ReadState, keyspace: &KeyspaceInner, bounds: &Bounds, seq: Seq) -> Merged {
    let mut sources = Vec::with_capacity(1 + read_state.immutable.len() + read_state.version.max_sources());
    // A memtable without capacity is the shared empty one; a seek in it would cost as much as in any other.
    if read_state.memtable.capacity() > 0 {
        sources.push(Source::Memtable(read_state.memtable.cursor()));
    }
    sources.extend(read_state.immutable.iter().map(|m| Source::Memtable(m.cursor())));
    let range = KeyRange::new(&bounds.from, bounds.to.as_deref());
    sources.extend(read_state.version.sources(&keyspace.charges, &range).map(Source::Tree));
    let range_del = read_state.ranges().map(|ranges| Box::new(RangeDelFilter::new(ranges, seq)));
    (MergeCursor::new(sources, 0), range_del)
}
