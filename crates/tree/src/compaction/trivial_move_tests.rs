//! Trivial moves, as cases: which tables are moved, how deep, and which are merged. `seqno_order_tests.rs` makes moves
//! in random histories.

use crate::test_support::{Fixture, TableSpec, damage, inputs, tree_options};
use crate::{Reason, Tree, TreeOptions, VersionEdit};

fn skipping() -> TreeOptions {
    TreeOptions { skip_levels: true, ..tree_options() }
}

/// The levels of tables by number.
fn levels(tree: &Tree) -> Vec<(u64, usize)> {
    let mut levels: Vec<_> = tree.version().tables().map(|(n, t)| (t.meta.number, n)).collect();
    levels.sort_unstable();
    levels
}

#[test]
fn disjoint_tables_of_level_0_go_to_the_last_level_by_an_edit_alone() {
    let mut fixture = Fixture::new();
    let mut tree = fixture.tree(skipping(), &[], &[(0, "d", "f", 3, 4), (0, "a", "c", 1, 2)]);
    let before: Vec<_> = tree.version().tables().map(|(_, t)| t.clone()).collect();
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.source, plan.target), (Reason::Move, 0, 3));
    let edit = fixture.execute(&mut tree, &plan);
    let mut moved: Vec<u64> = edit.added.iter().map(|(_, meta)| meta.number).collect();
    moved.sort_unstable();
    assert_eq!((moved, edit.removed.len()), (vec![1, 2], 2));
    assert_eq!(levels(&tree), [(1, 3), (2, 3)]);
    for (_, table) in tree.version().tables() {
        assert!(before.iter().any(|t| std::sync::Arc::ptr_eq(t, table)), "readers and damage marks are kept");
    }
    assert_eq!(tree.version().level(3).guards[0].runs, 1);
    assert!(!tree.is_due(None));
}

#[test]
fn a_moved_table_is_obsolete_only_when_an_edit_removes_it() {
    let mut fixture = Fixture::new();
    let tree = &mut fixture.tree(skipping(), &[], &[(0, "d", "f", 3, 4), (0, "a", "c", 1, 2)]);
    let obsolete_files = fixture.obsolete_files.clone();
    let plan = tree.pick(None).unwrap();
    fixture.execute(tree, &plan);
    drop(plan);
    assert!(obsolete_files.take().is_empty());
    let gone = VersionEdit { removed: vec![(3, 1)], ..VersionEdit::default() };
    tree.apply(&gone, &mut fixture.open()).unwrap();
    assert_eq!(obsolete_files.take(), [1]);
}

#[test]
fn tables_that_share_keys_with_others_on_their_way_are_merged() {
    let ours = [(0, "d", "f", 8, 9), (0, "a", "c", 6, 7)];
    // An older or a newer table of level 0, or one of the last level: "d".."f" cannot be moved past or beside any of
    // them.
    let cases: [(TableSpec, Vec<(u64, usize)>); 4] = [
        ((0, "f", "g", 1, 2), vec![(2, 3)]),
        ((0, "f", "g", 10, 11), vec![(2, 3)]),
        ((3, "f", "g", 1, 2), vec![(2, 3)]),
        ((3, "f", "z", 1, 2), vec![(2, 3)]),
    ];
    for (other, moved) in cases {
        let mut fixture = Fixture::new();
        let mut tree = fixture.tree(skipping(), &[], &[ours[0], ours[1], other]);
        let plan = tree.pick(None).unwrap();
        assert_eq!(plan.reason, Reason::Move);
        fixture.execute(&mut tree, &plan);
        let now: Vec<_> =
            levels(&tree).into_iter().filter(|(number, _)| moved.iter().any(|m| m.0 == *number)).collect();
        assert_eq!(now, moved, "{other:?}");
        assert!(levels(&tree).contains(&(1, 0)), "{other:?}");
    }
    // Moves from level 0 stop above a level with common keys; the table without common keys moves on.
    let mut fixture = Fixture::new();
    let mut tree = fixture.tree(skipping(), &[], &[ours[0], ours[1], (2, "f", "g", 1, 2)]);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.target, inputs(&plan)), (Reason::Move, 3, vec![2]));
}

#[test]
fn a_table_stays_inside_of_one_guard() {
    let mut fixture = Fixture::new();
    let guards = [(2, "p"), (3, "b"), (3, "p")];
    let mut tree = fixture.tree(tree_options(), &guards, &[(0, "d", "f", 8, 9), (0, "a", "c", 6, 7)]);
    let plan = tree.pick(None).unwrap();
    assert_eq!(
        (plan.target, inputs(&plan)),
        (2, vec![2]),
        "the oldest table determines the target, and \"b\" divides it in level 3"
    );
    fixture.execute(&mut tree, &plan);
    // No level above those in use gets its first table: nothing could be moved past it any more.
    let mut fixture = Fixture::new();
    let tables = [(0, "d", "f", 8, 9), (0, "a", "c", 6, 7), (3, "x", "z", 1, 1)];
    let mut tree = fixture.tree(skipping(), &guards, &tables);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.target, inputs(&plan)), (Reason::Move, 3, vec![1]));
}

#[test]
fn tables_with_many_tombstones_are_merged_instead() {
    let mut fixture = Fixture::new();
    let mut tree = fixture.tree(skipping(), &[], &[]);
    let mut metas = [fixture.meta((0, "a", "c", 1, 2)), fixture.meta((0, "d", "f", 3, 4))];
    metas.iter_mut().for_each(|meta| meta.tombstones = 2);
    let edit = VersionEdit { added: metas.map(|meta| (0, meta)).to_vec(), ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.target, &plan.bottom[..]), (Reason::Level0, 3, &[true][..]));
}

#[test]
fn a_range_is_compacted_by_moves_where_that_is_possible() {
    let mut fixture = Fixture::new();
    let tables = [(0, "a", "c", 9, 9), (1, "d", "f", 5, 6), (2, "g", "i", 3, 4), (2, "x", "z", 1, 2)];
    let mut tree = fixture.tree(tree_options(), &[], &tables);
    damage(&tree, &[4]);
    while let Ok(Some(plan)) = tree.pick_range(b"", None, base::Seq::MAX, 0, None) {
        assert!(plan.is_move(), "{plan:?}");
        fixture.execute(&mut tree, &plan);
    }
    assert_eq!(levels(&tree), [(1, 3), (2, 3), (3, 3), (4, 2)]);
}

#[test]
fn plans_in_progress_keep_moves_in_order() {
    let mut fixture = Fixture::new();
    // Level 1 is being merged into level 2, across "h". A table of level 0 may be moved below it if it does not
    // overlap.
    let tables = [(1, "a", "m", 21, 22), (1, "a", "m", 23, 24), (1, "a", "m", 25, 26), (2, "n", "p", 1, 2)];
    let mut tree = fixture.tree(tree_options(), &[(3, "c"), (3, "n")], &tables);
    let down = tree.pick(None).unwrap();
    assert_eq!((down.source, down.target), (1, 2));
    let flush = VersionEdit {
        added: vec![(0, fixture.meta((0, "k", "o", 31, 32))), (0, fixture.meta((0, "q", "r", 33, 34)))],
        ..VersionEdit::default()
    };
    tree.apply(&flush, &mut fixture.open()).unwrap();
    let moved = tree.pick(None).unwrap();
    assert_eq!((moved.reason, moved.target, inputs(&moved)), (Reason::Move, 3, vec![6]));
    assert!(tree.pick(None).is_none(), "one plan from level 0 at a time, also when it is a move");
    // The plans end in either order.
    fixture.execute(&mut tree, &down);
    fixture.execute(&mut tree, &moved);
    assert_eq!(crate::check_version(tree.version()), Vec::<String>::new());
}

#[test]
fn an_edit_that_changes_what_it_moves_is_refused() {
    let mut fixture = Fixture::new();
    let mut tree = fixture.tree(skipping(), &[], &[(0, "a", "c", 1, 2)]);
    let mut meta = tree.version().level0[0].meta.clone();
    meta.largest = b"d".to_vec();
    let edit = VersionEdit { added: vec![(3, meta)], removed: vec![(0, 1)], ..VersionEdit::default() };
    let error = tree.apply(&edit, &mut fixture.open()).unwrap_err();
    assert!(error.to_string().contains("moves table 1"), "{error}");
}
