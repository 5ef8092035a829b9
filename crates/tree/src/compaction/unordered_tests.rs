//! Trees whose tables are in no order of sequence numbers: what is picked there and not elsewhere.

use crate::test_support::{Fixture, TableSpec, cuts, damage, inputs, slice, tree_options};
use crate::{Reason, TreeOptions, VersionEdit, check_version};

fn skipping() -> TreeOptions {
    TreeOptions { skip_levels: true, guard_bytes: 4000, ..tree_options() }
}

/// The older table of level 0 shares keys with one of level 3, and the newer one with both.
const MIXED: [TableSpec; 3] = [(0, "b", "c", 2, 9), (0, "a", "f", 1, 7), (3, "a", "d", 3, 8)];

#[test]
fn tables_in_no_order_are_sound_there_only() {
    let mut fixture = Fixture::new();
    let tree = fixture.unordered_tree(skipping(), &[], &MIXED);
    assert!(tree.version().unordered && check_version(tree.version()).is_empty());
    let mut ordered = fixture.tree(skipping(), &[], &[]).version().as_ref().emptied();
    assert!(!ordered.unordered);
    let edit = VersionEdit {
        added: MIXED.iter().map(|spec| (spec.0, fixture.meta(*spec))).collect(),
        ..VersionEdit::default()
    };
    ordered = ordered.apply(&edit, &mut fixture.open()).unwrap();
    assert_eq!(check_version(&ordered).len(), 3);
}

#[test]
fn tables_move_into_guards_whose_tables_they_overlap() {
    let mut fixture = Fixture::new();
    let mut tree = fixture.unordered_tree(skipping(), &[], &MIXED);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.target, inputs(&plan).len()), (Reason::Move, 3, 2));
    fixture.execute(&mut tree, &plan);
    let version = tree.version();
    assert_eq!((version.level0.len(), version.level(3).guards[0].runs), (0, 3));
    assert!(version.unordered);
    // A guard between the keys of a table: that one has to be cut, and the other one moves first.
    let mut tree =
        fixture.unordered_tree(skipping(), &[(3, "d")], &[MIXED[0], MIXED[1], (3, "a", "b", 1, 1)]);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, inputs(&plan).len()), (Reason::Move, 1));
    fixture.execute(&mut tree, &plan);
    assert!(tree.pick_range(b"", None, u64::MAX, 0, None).unwrap().unwrap().cuts.contains(&slice("d")));
}

#[test]
fn merges_are_not_cut_for_an_order_and_run_beside_each_other() {
    let mut fixture = Fixture::new();
    let tables = [
        (2, "a", "f", 1, 30),
        (2, "a", "f", 2, 20),
        (2, "b", "e", 3, 40),
        (3, "c", "d", 10, 25),
        (1, "c", "d", 5, 6),
    ];
    // With a guard of level 3 between their keys they cannot move.
    let mut tree = fixture.unordered_tree(tree_options(), &[(3, "c")], &tables);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.source, cuts(&plan)), (Reason::GuardFull, 2, vec!["c".to_string()]));
    fixture.execute(&mut tree, &plan);
    assert_eq!(tree.version().level(3).tables(), 3);
}

#[test]
fn unreadable_tables_hold_nothing_up() {
    let mut fixture = Fixture::new();
    // In an ordered tree nothing could go down past the oldest table.
    let tables = [(0, "a", "f", 8, 9), (0, "a", "f", 6, 7), (0, "a", "f", 1, 2)];
    let options = TreeOptions { guard_bytes: 0, ..tree_options() };
    let mut tree = fixture.unordered_tree(options.clone(), &[(1, "c"), (2, "c"), (3, "c")], &tables);
    let oldest = tree.version().level0.last().unwrap().meta.number;
    damage(&tree, &[oldest]);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.target, inputs(&plan).len()), (Reason::Level0, 1, 2));
    fixture.execute(&mut tree, &plan);
    assert!(tree.version().level0.iter().map(|t| t.meta.number).eq([oldest]));
    // In the last level the others are merged, and after that nothing is due.
    let last = [(3, "a", "f", 8, 9), (3, "a", "f", 6, 7), (3, "a", "f", 1, 2)];
    let mut tree = fixture.unordered_tree(options, &[], &last);
    let oldest = tree.version().level(3).guards[0].tables.last().unwrap().meta.number;
    damage(&tree, &[oldest]);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.source, plan.target, inputs(&plan).len()), (3, 3, 2));
    fixture.execute(&mut tree, &plan);
    assert!(tree.version().level(3).tables() == 2 && tree.pick(None).is_none());
}

#[test]
fn nothing_counts_as_old() {
    let mut fixture = Fixture::new();
    let tables: [TableSpec; 3] = [(1, "a", "f", 8, 9), (2, "a", "f", 6, 7), (3, "a", "f", 1, 2)];
    let options = TreeOptions { space_target: 1.05, ..tree_options() };
    let mut tree = fixture.unordered_tree(options.clone(), &[], &tables);
    let space = tree.space(None);
    assert_eq!((space.live, space.reclaimable), (3000, 0));
    assert_ne!(fixture.tree(options, &[], &tables).space(None).reclaimable, 0);
}
