//! Adaptive guards, as cases: where guards are divided, which are removed, and what waits. A table has 1000 bytes.

use super::split_keys;
use crate::test_support::{Fixture, TableSpec, cuts, damage, inputs, slice, tree_options};
use crate::{JobOutput, Reason, Tree, TreeOptions, VersionEdit, charge};
use base::Slice;

fn adaptive(guard_bytes: u64) -> TreeOptions {
    TreeOptions { skip_levels: true, guard_bytes, level0_tables: 1, ..tree_options() }
}

fn guards(tree: &Tree, n: usize) -> Vec<String> {
    let keys = tree.version().level(n).guards.iter().map(|g| String::from_utf8_lossy(&g.key).into_owned());
    keys.collect()
}

#[test]
fn a_guard_is_split_where_no_table_lies_across_and_both_parts_are_large_enough() {
    let mut fixture = Fixture::new();
    let places = |fixture: &mut Fixture, specs: &[TableSpec], guard_bytes| -> Vec<Slice> {
        let tree = fixture.tree(tree_options(), &[], specs);
        split_keys(&tree.version().level(3).guards[0], guard_bytes)
    };
    let disjoint = [(3, "a", "b", 1, 2), (3, "c", "d", 3, 4), (3, "e", "f", 5, 6), (3, "g", "h", 7, 8)];
    assert_eq!(places(&mut fixture, &disjoint, 2000), [slice("c"), slice("e"), slice("g")]);
    assert_eq!(places(&mut fixture, &disjoint, 3000), [slice("e")], "half of 3000 bytes needs two tables");
    assert_eq!(places(&mut fixture, &disjoint, 4000), [slice("e")]);
    assert_eq!(places(&mut fixture, &disjoint, 4002), Vec::<Slice>::new());
    let across = [disjoint[0], disjoint[1], disjoint[2], disjoint[3], (3, "d", "e", 9, 9)];
    assert_eq!(places(&mut fixture, &across, 2000), [slice("c"), slice("g")]);
    let touching = [(3, "a", "c", 1, 2), (3, "c", "d", 3, 4)];
    assert_eq!(places(&mut fixture, &touching, 1000), Vec::<Slice>::new());
}

#[test]
fn moved_tables_get_guards_of_their_own_unless_a_plan_in_progress_writes_across() {
    let mut fixture = Fixture::new();
    let mut tree = fixture.tree(adaptive(1500), &[], &[(0, "d", "f", 3, 4), (0, "a", "c", 1, 2)]);
    let plan = tree.pick(None).unwrap();
    assert!(plan.is_move());
    let edit = fixture.execute(&mut tree, &plan);
    assert_eq!(edit.guards_added, [(3, slice("d"))]);

    let tables = [
        (0, "a", "z", 8, 9),
        (0, "a", "z", 6, 7),
        (3, "a", "c", 1, 2),
        (3, "d", "f", 3, 4),
        (3, "b", "e", 5, 5),
    ];
    let mut tree = fixture.tree(TreeOptions { seek_cost: 1, ..adaptive(1500) }, &[], &tables);
    let across = tree.pick(None).unwrap();
    assert_eq!((across.reason, across.target, across.cuts.len()), (Reason::Level0, 3, 0));
    charge(&tree.version().level(3).guards[0].charges, 1 << 20);
    let in_place = tree.pick(None).unwrap();
    assert_eq!((in_place.reason, in_place.piece_bytes), (Reason::Seeks, 1500));
    let edit = fixture.execute(&mut tree, &in_place);
    assert_eq!(
        (edit.added.len(), edit.guards_added.len()),
        (2, 0),
        "the plan in progress writes across the key"
    );
    fixture.execute(&mut tree, &across);
    assert_eq!(guards(&tree, 3), ["", "a\0"], "the fixture cuts its output behind the first key");
}

#[test]
fn a_level_above_the_last_takes_its_guards_from_below() {
    let mut fixture = Fixture::new();
    let below = [(3, "c"), (3, "f"), (3, "k"), (3, "p"), (3, "t")];
    // Each guard below has 2000 bytes; a full guard of three tables brings down 3 * 1200.
    let mut specs = Vec::new();
    for (i, from) in ["a", "c", "f", "k", "p", "t"].into_iter().enumerate() {
        specs.extend([(3, from, from, i as u64, i as u64), (3, from, from, 10 + i as u64, 10 + i as u64)]);
    }
    specs.extend([(2, "q", "q", 20, 20), (0, "a", "z", 30, 31), (0, "a", "z", 32, 33)]);
    let mut tree = fixture.tree(adaptive(1200), &below, &specs);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.target, plan.piece_bytes), (2, 0));
    assert_eq!(cuts(&plan), ["f", "p"], "for each 3600 bytes below");
    let edit = fixture.execute(&mut tree, &plan);
    assert_eq!(edit.guards_added, [(2, slice("f")), (2, slice("p"))]);
    assert_eq!(guards(&tree, 2), ["", "f", "p"]);
}

#[test]
fn small_neighbours_are_merged_and_the_guards_between_them_are_removed() {
    let mut fixture = Fixture::new();
    let keys = [(3, "c"), (3, "f"), (2, "k"), (3, "k"), (3, "p")];
    let tables = [
        (3, "a", "b", 1, 2),
        (3, "c", "d", 3, 4),
        (3, "g", "h", 5, 6),
        (3, "k", "l", 7, 8),
        (3, "q", "r", 9, 9),
    ];
    let mut tree = fixture.tree(adaptive(10_000), &keys, &tables);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, inputs(&plan), plan.cuts.len()), (Reason::SmallGuards, vec![1, 2, 3], 0));
    assert_eq!(plan.guards_removed, [slice("c"), slice("f")], "\"k\" divides level 2");
    let edit = fixture.execute(&mut tree, &plan);
    assert_eq!(edit.guards_removed, [(3, slice("c")), (3, slice("f"))]);
    let plan = tree.pick(None).unwrap();
    assert_eq!(plan.guards_removed, [slice("p")]);
    fixture.execute(&mut tree, &plan);
    assert_eq!(guards(&tree, 3), ["", "k"]);
    assert!(tree.pick(None).is_none());
}

#[test]
fn a_small_guard_waits_for_a_neighbour_that_cannot_be_read() {
    let mut fixture = Fixture::new();
    let tables = [(3, "a", "b", 1, 2), (3, "c", "d", 3, 4)];
    let mut tree = fixture.tree(adaptive(10_000), &[(3, "c")], &tables);
    damage(&tree, &[2]);
    assert!(tree.pick(None).is_none(), "alone it would stay small");
}

#[test]
fn joined_guards_are_not_split_again() {
    let mut fixture = Fixture::new();
    for guard_bytes in [1000, 1999, 2000, 4000, 7999, 8001, 16_001, 20_000, 100_000] {
        let keys = [(3, "b"), (3, "c"), (3, "d"), (3, "e"), (3, "f"), (3, "g")];
        let tables = ["a", "b", "c", "d", "e", "f", "g"].map(|key| (3, key, key, 1, 1));
        let mut tree = fixture.tree(adaptive(guard_bytes), &keys, &tables);
        let mut rounds = 0;
        while let Some(plan) = tree.pick(None) {
            let edit = fixture.execute(&mut tree, &plan);
            assert!(edit.guards_added.is_empty() && rounds < 7, "{guard_bytes}: {edit:?}");
            rounds += 1;
        }
    }
}

/// The keys stay from a time when guards were chosen by hash. A cut at one of them would bring back the guard that a plan has removed.
#[test]
fn guards_that_a_hash_has_chosen_and_are_not_committed_are_given_up() {
    let mut fixture = Fixture::new();
    let by_hash = TreeOptions { guard_bytes: 0, ..adaptive(100_000) };
    let tables = [(2, "a", "z", 10, 11), (3, "a", "l", 1, 2), (3, "m", "z", 3, 4)];
    let mut tree = fixture.tree(by_hash, &[(3, "m")], &tables);
    let keys = ["m", "s"].map(|key| (1, slice(key)));
    let edit = VersionEdit { uncommitted_added: keys.to_vec(), ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    assert!(tree.pick(None).is_none());
    tree.set_options(adaptive(100_000));
    let mut rounds = 0;
    while let Some(plan) = tree.pick(None) {
        let edit = fixture.execute(&mut tree, &plan);
        assert!(edit.guards_added.is_empty() && rounds < 5, "round {rounds}: {edit:?}");
        rounds += 1;
    }
    assert_eq!((rounds, guards(&tree, 3)), (1, vec![String::new()]));
    assert!(tree.version().uncommitted.is_empty());
    // A flush that began before the change brings others.
    let flushed = JobOutput { uncommitted: vec![(1, slice("t"))], ..JobOutput::default() };
    assert!(tree.install_flush(&flushed, 12).uncommitted_added.is_empty());
}

#[test]
fn a_guard_added_to_an_upper_level_meanwhile_is_removed_there_too() {
    let mut fixture = Fixture::new();
    let tables = [(3, "a", "b", 1, 2), (3, "c", "d", 3, 4)];
    let mut tree = fixture.tree(adaptive(10_000), &[(3, "c")], &tables);
    let plan = tree.pick(None).unwrap();
    assert_eq!(plan.guards_removed, [slice("c")]);
    let edit = VersionEdit { guards_added: vec![(2, slice("c"))], ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    fixture.execute(&mut tree, &plan);
    assert_eq!((guards(&tree, 2), guards(&tree, 3)), (vec![String::new()], vec![String::new()]));
}
