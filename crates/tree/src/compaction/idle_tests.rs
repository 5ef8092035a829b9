//! Idle compaction, as cases. A table has 1000 bytes.

use crate::test_support::{Fixture, TableSpec, inputs, tree_options};
use crate::{Reason, TreeOptions};

fn adaptive() -> TreeOptions {
    TreeOptions {
        guard_bytes: 4000,
        min_piece_bytes: 1000,
        level0_tables: 8,
        max_tables_per_guard: 8,
        space_target: 1.5,
        ..tree_options()
    }
}

/// Tables of level 3 that do not overlap.
fn disjoint(count: usize) -> Vec<TableSpec> {
    const KEYS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    (0..count).map(|i| (3, &KEYS[i..=i], &KEYS[i..=i], 1, 2)).collect()
}

#[test]
fn a_guard_is_compacted_when_idle_if_enough_lies_beside_its_oldest_run() {
    let mut fixture = Fixture::new();
    // Three tables that do not overlap are the oldest run, with 3000 bytes. Above it lie first 1000 bytes, then 2000.
    let mut tables: Vec<TableSpec> =
        vec![(3, "a", "c", 1, 2), (3, "d", "f", 1, 2), (3, "g", "k", 1, 2), (3, "a", "k", 3, 4)];
    let mut tree = fixture.tree(adaptive(), &[], &tables);
    tree.set_idle(true);
    assert!(tree.pick(None).is_none(), "1000 bytes are less than half of 3000");
    tables.push((3, "b", "h", 5, 6));
    let mut tree = fixture.tree(adaptive(), &[], &tables);
    assert!(tree.pick(None).is_none(), "while writes continue, three runs are no trigger");
    tree.set_idle(true);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.target, plan.inputs.len()), (Reason::Idle, 3, 5));
    fixture.execute(&mut tree, &plan);
    assert!(!tree.is_due(None), "the guard is one run");
    let lazy = TreeOptions { space_target: 2.0, ..adaptive() };
    let mut tree = fixture.tree(lazy, &[], &tables);
    tree.set_idle(true);
    assert!(!tree.is_due(None), "2000 bytes are less than 3000");
}

#[test]
fn runs_of_an_upper_level_go_down_when_idle_if_they_make_large_pieces() {
    let mut fixture = Fixture::new();
    let plan = |fixture: &mut Fixture, upper: &[TableSpec], tables: &[TableSpec], idle: bool| {
        let mut tree = fixture.tree(adaptive(), &[], &[upper, tables].concat());
        tree.set_idle(idle);
        tree.pick(None).map(|plan| (plan.reason, plan.source, plan.target, plan.inputs.len()))
    };
    let (one, two) = ([(2, "a", "k", 3, 4)], [(2, "a", "k", 5, 6), (2, "b", "m", 3, 4)]);
    let small = disjoint(4);
    assert_eq!(
        plan(&mut fixture, &two, &small, true),
        Some((Reason::Idle, 2, 3, 2)),
        "beside the pieces, no table is merged"
    );
    assert_eq!(
        plan(&mut fixture, &two, &small, false),
        None,
        "while writes continue, two runs are no trigger"
    );
    assert_eq!(plan(&mut fixture, &one, &small, true), None, "one run would be one more run below");
    // A sixteenth of the bytes below is the least: (1.5 - 1) / 8.
    let (enough, large) = (disjoint(32), disjoint(33));
    assert!(plan(&mut fixture, &two, &enough, true).is_some());
    assert_eq!(
        plan(&mut fixture, &two, &large, true),
        None,
        "2000 bytes are less than a sixteenth of 33,000"
    );
}

#[test]
fn level_0_is_compacted_when_idle_if_its_pieces_have_a_useful_size() {
    let mut fixture = Fixture::new();
    let tables = [(0, "a", "z", 5, 6), (3, "a", "c", 1, 2), (3, "m", "p", 1, 2)];
    let idle = |fixture: &mut Fixture,
                options: TreeOptions,
                guards: &[(usize, &'static str)],
                tables: &[TableSpec]| {
        let mut tree = fixture.tree(options, guards, tables);
        assert!(!tree.is_due(None));
        tree.set_idle(true);
        tree.pick(None).map(|plan| (plan.reason, inputs(&plan)))
    };
    let one = idle(&mut fixture, adaptive(), &[], &[(0, "a", "z", 5, 6), (0, "b", "y", 7, 8)]);
    assert!(matches!(one, Some((Reason::Idle, tables)) if tables.len() == 2));
    // Two guards, each of which would get 500 bytes.
    assert_eq!(idle(&mut fixture, adaptive(), &[(3, "m")], &tables), None);
    let fine = TreeOptions { min_piece_bytes: 500, ..adaptive() };
    assert!(idle(&mut fixture, fine.clone(), &[(3, "m")], &tables).is_some());
    // Not with guards by hash, nor in a leveled tree.
    for options in
        [TreeOptions { guard_bytes: 0, ..fine.clone() }, TreeOptions { max_tables_per_guard: 1, ..fine }]
    {
        assert_eq!(idle(&mut fixture, options, &[(3, "m")], &tables), None);
    }
}

#[test]
fn guards_of_an_unordered_tree_are_left_as_they_are_when_idle() {
    let mut fixture = Fixture::new();
    let tables = [(3, "a", "k", 1, 2), (3, "a", "k", 3, 4)];
    let mut tree = fixture.unordered_tree(adaptive(), &[], &tables);
    tree.set_idle(true);
    assert!(!tree.is_due(None), "merges would drop nothing");
    let mut ordered = fixture.tree(adaptive(), &[], &tables);
    ordered.set_idle(true);
    assert!(ordered.is_due(None));
}
