//! What is picked because entries have expired.

use crate::test_support::{Fixture, TableSpec, inputs, tree_options};
use crate::{Reason, Tree, TreeOptions, VersionEdit, expired_bytes};
use base::{RangeSet, RangeTombstone, Time};
use std::sync::Arc;
use table::{TableExpiry, TableTimes};

fn at(micros: u64) -> Time {
    Time::from_micros(micros)
}

/// A table of ten entries: its place, how many have an expiry, and the first and the last of these.
type Expiring = (TableSpec, u64, (u64, u64));

/// `moves`: versions move from it to another tree.
fn tree(fixture: &mut Fixture, moves: bool, tables: &[Expiring]) -> Tree {
    let options = TreeOptions { seek_cost: 0, ..tree_options() };
    let mut meta = |(spec, entries, (first, last)): &Expiring| {
        let mut meta = fixture.meta(*spec);
        let expiry = TableExpiry { entries: *entries, first: at(*first), last: at(*last) };
        meta.expiry = Some(expiry).filter(|_| *entries > 0);
        meta.times = moves.then(|| TableTimes::of_newest(at(1)));
        (spec.0, meta)
    };
    let added = tables.iter().map(&mut meta).collect();
    let empty = fixture.tree(options.clone(), &[], &[]).version().emptied();
    let edit = VersionEdit { added, ..VersionEdit::default() };
    Tree::new(options, Arc::new(empty.apply(&edit, &mut fixture.open()).unwrap()))
}

/// What is picked at a horizon: the reason, the levels, and the number of inputs.
fn picked(tree: &mut Tree, horizon: u64, oldest: Option<u64>) -> Option<(Reason, usize, usize, usize)> {
    tree.set_horizon(Some(at(horizon)), RangeSet::default());
    let plan = tree.pick(oldest)?;
    tree.done(&plan);
    Some((plan.reason, plan.source, plan.target, inputs(&plan).len()))
}

const LAST: TableSpec = (3, "a", "f", 1, 9);
const ABOVE: TableSpec = (2, "a", "f", 11, 19);

#[test]
fn a_guard_is_merged_when_half_of_it_has_expired_and_a_table_goes_when_all_has() {
    let mut fixture = Fixture::new();
    for (spec, target) in [(LAST, 3), (ABOVE, 3)] {
        let tree = &mut tree(&mut fixture, false, &[(spec, 10, (100, 199))]);
        assert_eq!(picked(tree, 148, None), None);
        assert_eq!(picked(tree, 149, None), Some((Reason::Expired, spec.0, target, 1)));
        assert_eq!(picked(tree, 198, Some(5)), Some((Reason::Expired, spec.0, target, 1)));
        assert_eq!(picked(tree, 199, None), Some((Reason::ExpiredTables, spec.0, spec.0, 1)));
        tree.set_horizon(Some(at(120)), RangeSet::default());
        assert_eq!(tree.next_horizon(), Some(at(149)));
        tree.set_horizon(Some(at(149)), RangeSet::default());
        assert_eq!(tree.next_horizon(), Some(at(199)));
        tree.set_horizon(Some(at(199)), RangeSet::default());
        assert_eq!(tree.next_horizon(), None);
    }
    // Of its entries only some expire.
    let tree = &mut tree(&mut fixture, false, &[(LAST, 4, (100, 199))]);
    assert_eq!(picked(tree, 1000, None), None);
    assert_eq!(expired_bytes(tree.version(), at(1000)), 400);
}

#[test]
fn a_table_that_hides_older_ones_is_merged_with_them() {
    let mut fixture = Fixture::new();
    let tree = &mut tree(&mut fixture, false, &[(ABOVE, 10, (100, 199)), (LAST, 0, (0, 0))]);
    assert_eq!(picked(tree, 199, None), Some((Reason::Expired, 2, 3, 1)));
}

#[test]
fn where_versions_move_no_table_goes_unread_and_none_is_merged_for_what_a_reader_keeps() {
    let mut fixture = Fixture::new();
    for spec in [LAST, ABOVE] {
        let tree = &mut tree(&mut fixture, true, &[(spec, 10, (100, 199))]);
        let due = Some((Reason::Expired, spec.0, 3, 1));
        assert_eq!(picked(tree, 148, None), None);
        assert_eq!(picked(tree, 149, None), due);
        assert_eq!(picked(tree, 1000, None), due);
        assert_eq!(picked(tree, 1000, Some(spec.4)), due);
        assert_eq!(picked(tree, 1000, Some(spec.4 - 1)), None);
    }
    // Nor for what a range tombstone keeps there.
    let mut over = tree(&mut fixture, true, &[(LAST, 10, (100, 199))]);
    for (from, to, is_due) in
        [(&b"b"[..], &b"c"[..], false), (b"", b"a", true), (b"f", b"", false), (b"f0", b"", true)]
    {
        let unsettled = RangeSet::default().with(RangeTombstone::new(from, to, 20, at(50)));
        over.set_horizon(Some(at(1000)), unsettled);
        let plan = over.pick(None);
        assert_eq!(plan.is_some(), is_due, "{from:?} to {to:?}");
        plan.iter().for_each(|plan| over.done(plan));
    }
    // What a request covers.
    let mut tree = tree(&mut fixture, true, &[(LAST, 10, (100, 199))]);
    tree.set_horizon(Some(at(100)), RangeSet::default());
    let request = |tree: &mut Tree, seq, oldest| {
        let plan = tree.pick_range(b"", None, seq, 0, oldest).unwrap()?;
        tree.done(&plan);
        Some(plan.reason)
    };
    assert_eq!(request(&mut tree, 9, None), Some(Reason::Manual));
    assert_eq!((request(&mut tree, 8, None), request(&mut tree, 9, Some(8))), (None, None));
    tree.set_horizon(Some(at(99)), RangeSet::default());
    assert_eq!(request(&mut tree, 9, None), None);
    tree.set_horizon(None, RangeSet::default());
    assert_eq!(request(&mut tree, 9, None), None);
}
