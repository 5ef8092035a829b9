//! Picking and installing, as cases: each describes a version in a few lines and states what happens to it.

use crate::test_support::{Fixture, cuts, damage, inputs, slice, tree_options};
use crate::{JobOutput, Reason, Tree, TreeOptions, VersionEdit, charge};
use base::Seq;
use table::TableMeta;

#[test]
fn nothing_is_picked_below_every_trigger() {
    let mut fixture = Fixture::new();
    let mut tree =
        fixture.tree(tree_options(), &[], &[(0, "a", "z", 9, 9), (1, "a", "z", 5, 6), (3, "a", "z", 1, 2)]);
    assert!(tree.pick(None).is_none());
}

#[test]
fn level_0_goes_to_level_1_and_is_cut_at_its_guards() {
    let mut fixture = Fixture::new();
    let guards = [(1, "m"), (2, "g"), (2, "m"), (3, "g"), (3, "m")];
    let mut tree = fixture.tree(
        tree_options(),
        &guards,
        &[(0, "a", "z", 8, 9), (0, "b", "y", 6, 7), (1, "a", "c", 1, 2)],
    );
    let plan = tree.pick(None).unwrap();
    assert_eq!(
        (plan.reason, plan.source, plan.target, cuts(&plan)),
        (Reason::Level0, 0, 1, vec!["m".to_string()])
    );
    assert_eq!(plan.bottom, [false, true], "a table of level 1 may hold older versions in the first piece");
    assert!(tree.pick(None).is_none(), "its tables are busy");
    fixture.execute(&mut tree, &plan);
    assert_eq!((tree.version().level0.len(), tree.version().level(1).tables()), (0, 3));
}

#[test]
fn level_0_skips_levels_that_are_empty_but_never_passes_older_data() {
    let mut fixture = Fixture::new();
    let skipping = TreeOptions { skip_levels: true, ..tree_options() };
    let level0 = [(0, "a", "z", 8, 9), (0, "b", "y", 6, 7)];
    let mut tree = fixture.tree(skipping.clone(), &[], &level0);
    assert_eq!(tree.pick(None).unwrap().target, 3);
    let mut tree = fixture.tree(skipping.clone(), &[], &[level0[0], level0[1], (2, "q", "r", 1, 2)]);
    assert_eq!(tree.pick(None).unwrap().target, 2);
    // The pieces are too small for their level, so the target is one level up, where the guards are wider.
    let guards = [(3, "c"), (3, "f"), (3, "k"), (3, "p"), (2, "k")];
    let small = TreeOptions { min_piece_bytes: 600, ..skipping };
    let mut tree = fixture.tree(small, &guards, &level0);
    assert_eq!(tree.pick(None).unwrap().target, 2);
}

#[test]
fn a_full_guard_is_pushed_down_and_attached() {
    let mut fixture = Fixture::new();
    let guards = [(1, "m"), (2, "m"), (2, "t"), (3, "m"), (3, "t")];
    let tables = [
        (1, "m", "z", 9, 9),
        (1, "m", "z", 8, 8),
        (1, "n", "x", 7, 7),
        (2, "m", "s", 3, 4),
        (2, "t", "z", 2, 2),
    ];
    let mut tree = fixture.tree(tree_options(), &guards, &tables);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.source, plan.target, plan.inputs.len()), (Reason::GuardFull, 1, 2, 3));
    assert_eq!((&plan.from[..], plan.to.is_none(), cuts(&plan)), (&b"m"[..], true, vec!["t".to_string()]));
    let edit = fixture.execute(&mut tree, &plan);
    assert!(edit.removed.iter().all(|(level, _)| *level == 1), "nothing in the next level is rewritten");
    assert_eq!(tree.version().level(2).tables(), 4);
}

#[test]
fn tables_that_do_not_overlap_do_not_fill_a_guard() {
    let mut fixture = Fixture::new();
    let tables = [(1, "a", "b", 9, 9), (1, "c", "d", 8, 8), (1, "e", "f", 7, 7), (1, "g", "h", 6, 6)];
    let mut tree = fixture.tree(tree_options(), &[], &tables);
    assert!(tree.pick(None).is_none());
}

#[test]
fn the_last_level_merges_in_place_and_commits_guards() {
    let mut fixture = Fixture::new();
    let tables = [(3, "a", "z", 9, 9), (3, "a", "z", 8, 8), (3, "a", "z", 7, 7)];
    let mut tree = fixture.tree(tree_options(), &[], &tables);
    let candidate = VersionEdit { uncommitted_added: vec![(2, slice("m"))], ..VersionEdit::default() };
    tree.apply(&candidate, &mut fixture.open()).unwrap();
    let plan = tree.pick(None).unwrap();
    assert_eq!(
        (plan.source, plan.target, cuts(&plan), &plan.bottom[..]),
        (3, 3, vec!["m".into()], &[true, true][..])
    );
    let edit = fixture.execute(&mut tree, &plan);
    assert_eq!(edit.guards_added, [(3, slice("m")), (2, slice("m"))]);
    assert_eq!(edit.uncommitted_removed, [slice("m")]);
    assert!(!tree.version().level(1).has_guard(b"m"), "it was chosen for level 2 and deeper");
}

#[test]
fn an_uncommitted_guard_waits_while_a_table_below_lies_across_it() {
    let mut fixture = Fixture::new();
    let tables = [(0, "a", "z", 9, 9), (0, "a", "z", 8, 8), (3, "a", "z", 1, 1)];
    let mut tree = fixture.tree(tree_options(), &[], &tables);
    let candidate = VersionEdit { uncommitted_added: vec![(1, slice("m"))], ..VersionEdit::default() };
    tree.apply(&candidate, &mut fixture.open()).unwrap();
    let plan = tree.pick(None).unwrap();
    assert_eq!(cuts(&plan), Vec::<String>::new());
    let edit = fixture.execute(&mut tree, &plan);
    assert_eq!((edit.guards_added.len(), tree.version().uncommitted.len()), (0, 1));
}

#[test]
fn no_guard_is_added_where_a_plan_in_progress_writes_across() {
    let mut fixture = Fixture::new();
    // A guard of level 3 is merged in place while level 2 is compacted into it.
    let tables = [
        (2, "a", "z", 19, 19),
        (2, "a", "z", 18, 18),
        (2, "a", "z", 17, 17),
        (3, "a", "z", 9, 9),
        (3, "a", "z", 8, 8),
    ];
    let mut tree = fixture.tree(tree_options(), &[], &tables);
    let down = tree.pick(None).unwrap();
    assert_eq!((down.source, down.target), (2, 3));
    charge(&tree.version().level(3).guards[0].charges, 1 << 20);
    let candidate = VersionEdit { uncommitted_added: vec![(3, slice("m"))], ..VersionEdit::default() };
    tree.apply(&candidate, &mut fixture.open()).unwrap();
    let in_place = tree.pick(None).unwrap();
    assert_eq!((in_place.reason, in_place.source, in_place.target), (Reason::Seeks, 3, 3));
    let edit = fixture.execute(&mut tree, &in_place);
    assert_eq!(edit.guards_added, [], "the plan in progress writes across the key");
    let edit = fixture.execute(&mut tree, &down);
    assert!(edit.guards_added.is_empty() || !tree.version().level(3).straddled(b"m"));
    assert_eq!(crate::check_version(tree.version()), Vec::<String>::new());
}

#[test]
fn the_last_level_but_one_is_rewritten_in_place_when_pushing_down_costs_25_times_more() {
    const KEYS: [&str; 26] = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t",
        "u", "v", "w", "x", "y", "z",
    ];
    // Three tables above full guards of three tables: 26 guards have 26 times the bytes, 25 have 25 times.
    for (guards, target, inputs) in [(26, 2, 3), (25, 3, 3 + 75)] {
        let mut fixture = Fixture::new();
        let mut tables = vec![(2, "a", "zz", 99, 99), (2, "a", "zz", 98, 98), (2, "a", "zz", 97, 97)];
        for key in &KEYS[..guards] {
            tables.extend((0..3).map(|i| (3, *key, *key, 10 + i, 10 + i)));
        }
        let keys: Vec<(usize, &str)> = KEYS[1..guards].iter().map(|key| (3, *key)).collect();
        let mut tree = fixture.tree(tree_options(), &keys, &tables);
        let plan = tree.pick(None).unwrap();
        assert_eq!((plan.source, plan.target, plan.inputs.len()), (2, target, inputs));
    }
}

#[test]
fn one_table_per_guard_merges_with_the_next_level() {
    let mut fixture = Fixture::new();
    let leveled = TreeOptions { max_tables_per_guard: 1, level_size_percent: 10, ..tree_options() };
    let guards = [(2, "m"), (3, "m")];
    let tables = [(1, "a", "d", 9, 9), (2, "a", "c", 5, 5), (2, "m", "z", 4, 4)];
    let mut tree = fixture.tree(leveled, &guards, &tables);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.source, plan.target), (Reason::LevelSize, 1, 2));
    let numbers: Vec<usize> = plan.inputs.iter().map(|(level, _)| *level).collect();
    assert_eq!(numbers, [1, 2], "only the guard that the table overlaps takes part");
}

#[test]
fn seeks_and_tombstones_trigger_compactions() {
    let mut fixture = Fixture::new();
    let tables = [(3, "a", "z", 9, 9), (3, "a", "z", 8, 8)];
    let mut tree = fixture.tree(tree_options(), &[], &tables);
    let guard = tree.version().level(3).guards[0].clone();
    assert_eq!(guard.merge_cost, 4000, "two tables of 1000 bytes, read and written");
    charge(&guard.charges, 3999);
    assert!(!tree.is_due(None));
    charge(&guard.charges, 1);
    assert_eq!(tree.pick(None).unwrap().reason, Reason::Seeks);

    let with_tombstones = TreeOptions { tombstone_percent: 50, ..tree_options() };
    let mut tree = fixture.tree(with_tombstones, &[], &[]);
    let mut meta = fixture.meta((3, "a", "z", 5, 8));
    meta.tombstones = 5;
    let edit = VersionEdit { added: vec![(3, meta)], ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    assert!(!tree.is_due(Some(7)), "a snapshot still sees what they hide");
    assert_eq!(tree.pick(Some(8)).unwrap().reason, Reason::Tombstones);
}

#[test]
fn guards_without_tables_are_removed_from_all_levels() {
    let mut fixture = Fixture::new();
    let guards = [(1, "m"), (2, "m"), (3, "m"), (3, "p"), (1, "t"), (2, "t"), (3, "t")];
    let tables = [(3, "a", "c", 9, 9), (3, "a", "c", 8, 8), (3, "b", "c", 7, 7), (2, "t", "z", 12, 12)];
    let mut tree = fixture.tree(tree_options(), &guards, &tables);
    let plan = tree.pick_range(b"m", None, Seq::MAX, 0, None).unwrap().unwrap();
    assert_eq!((plan.source, plan.target, &plan.from[..]), (2, 3, &b"t"[..]));
    assert_eq!(
        fixture.execute(&mut tree, &plan).guards_removed,
        [],
        "the plan owns only the range after them"
    );
    let plan = tree.pick_range(b"", None, Seq::MAX, 0, None).unwrap().unwrap();
    assert_eq!((plan.source, plan.target, &plan.from[..]), (3, 3, &b""[..]));
    fixture.execute(&mut tree, &plan);
    // An edit that owns the whole range.
    let flush = VersionEdit {
        added: vec![(0, fixture.meta((0, "a", "z", 20, 20))), (0, fixture.meta((0, "a", "b", 21, 21)))],
        ..VersionEdit::default()
    };
    tree.apply(&flush, &mut fixture.open()).unwrap();
    let plan = tree.pick(None).unwrap();
    let outcome = JobOutput { added: vec![fixture.meta((1, "a", "b", 20, 21))], ..JobOutput::default() };
    let edit = tree.install(&plan, &outcome, &mut fixture.open()).unwrap();
    assert_eq!(edit.guards_removed, [(1, slice("m")), (2, slice("m")), (3, slice("m")), (3, slice("p"))]);
    tree.apply(&edit, &mut fixture.open()).unwrap();
    assert!(tree.version().level(3).has_guard(b"t"), "it holds a table");
}

#[test]
fn guards_that_were_both_in_use_are_never_joined() {
    let mut fixture = Fixture::new();
    // Nothing lies in [m, p) at any level; but the guard "m" of level 1 reaches up to the end, and has data there.
    let guards = [(1, "m"), (2, "m"), (3, "m"), (3, "p")];
    let tables = [(3, "a", "c", 9, 9), (3, "a", "c", 8, 8), (3, "a", "c", 7, 7), (3, "p", "q", 1, 2)];
    let mut tree = fixture.tree(tree_options(), &guards, &tables);
    let flush = VersionEdit {
        added: vec![(0, fixture.meta((0, "a", "c", 20, 20))), (0, fixture.meta((0, "a", "b", 21, 21)))],
        ..VersionEdit::default()
    };
    tree.apply(&flush, &mut fixture.open()).unwrap();
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.source, plan.from.is_empty(), plan.to.is_none()), (0, true, true));
    assert_eq!(fixture.execute(&mut tree, &plan).guards_removed, []);
}

#[test]
fn a_range_is_compacted_step_by_step_to_one_run_per_guard() {
    let mut fixture = Fixture::new();
    let guards = [(3, "m")];
    let tables = [
        (0, "a", "z", 20, 20),
        (1, "a", "k", 15, 15),
        (2, "n", "z", 12, 12),
        (3, "a", "c", 9, 9),
        (3, "a", "c", 8, 8),
    ];
    let mut tree = fixture.tree(tree_options(), &guards, &tables);
    let mut steps = Vec::new();
    while let Some(plan) = tree.pick_range(b"", None, Seq::MAX, 0, None).unwrap() {
        steps.push((plan.source, plan.target));
        fixture.execute(&mut tree, &plan);
        assert!(steps.len() < 20, "{steps:?}");
    }
    let version = tree.version();
    assert_eq!(
        (version.level0.len(), version.level(1).tables(), version.level(2).tables()),
        (0, 0, 0),
        "{steps:?}"
    );
    assert!(version.level(3).guards.iter().all(|g| g.runs <= 1));
}

#[test]
fn edits_survive_encoding() {
    let mut fixture = Fixture::new();
    let edit = VersionEdit {
        added: vec![(0, fixture.meta((0, "a", "b", 1, 2))), (3, fixture.meta((3, "", "z", 3, 300)))],
        removed: vec![(1, 7), (0, 1 << 40)],
        guards_added: vec![(2, slice("g"))],
        guards_removed: vec![(3, slice(""))],
        uncommitted_added: vec![(4, slice("x"))],
        uncommitted_removed: vec![slice("y")],
        flushed_seq: Some(77),
        sketches: vec![(9, {
            let mut sketch = crate::Sketch::default();
            (0..50u64).for_each(|i| sketch.add(i << 40));
            sketch
        })],
        range_tombstones_added: vec![
            base::RangeTombstone { from: slice(""), to: Some(slice("c")), seq: 7, time: base::Time::MIN },
            base::RangeTombstone { from: slice("x"), to: None, seq: 300, time: base::Time::from_micros(5) },
        ],
        range_tombstones_removed: vec![base::RangeTombstone {
            from: slice("a"),
            to: Some(slice("b")),
            seq: 1 << 50,
            time: base::Time::MIN,
        }],
        oldest_reader: None,
    };
    let mut edit = edit;
    edit.added[1].1.cleared_seq = 299;
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    assert_eq!(VersionEdit::decode(&bytes), Some(edit));
    for len in 0..bytes.len() {
        let _ = VersionEdit::decode(&bytes[..len]); // never panics
    }
}

/// Compacts on request until only the damaged table prevents more, and checks that it is never an input.
fn exhaust(fixture: &mut Fixture, tree: &mut Tree, damaged: u64) {
    for _ in 0..10 {
        match tree.pick_range(b"", None, Seq::MAX, 0, None) {
            Ok(None) => return,
            Ok(Some(plan)) => {
                assert!(!inputs(&plan).contains(&damaged), "{plan:?}");
                fixture.execute(tree, &plan);
            }
            Err(obstacle) => return assert_eq!(obstacle, crate::PickBlocked::Damage),
        }
    }
    panic!("the request does not end");
}

/// The tables have the numbers 1, 2, ... in the order of their specs.
#[test]
fn older_tables_leave_level_0_below_a_damaged_one_and_newer_ones_stay_above_it() {
    let mut fixture = Fixture::new();
    let old = [(0, "a", "m", 1, 2), (0, "b", "n", 3, 4), (0, "e", "k", 5, 6)];
    let specs = [&old[..], &[(0, "a", "z", 7, 8), (0, "x", "y", 9, 10)]].concat();
    let mut tree = fixture.tree(tree_options(), &[], &specs);
    damage(&tree, &[3]);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.target, inputs(&plan)), (1, vec![2, 1]), "5 lies above 4, which has to stay");
    assert!(tree.pick(None).is_none(), "one plan for level 0 at a time");
    fixture.execute(&mut tree, &plan);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.source, plan.target, inputs(&plan)), (0, 0, vec![5, 4]));
    assert_eq!((plan.cuts.len(), &plan.bottom[..]), (0, &[false][..]));
    fixture.execute(&mut tree, &plan);
    assert!(tree.pick(None).is_none(), "no plan would be progress");
    assert_eq!(tree.version().level0.len(), 2);
    exhaust(&mut fixture, &mut tree, 3);
}

/// Tables of like size are merged although a smaller one is newer than they are.
#[test]
fn tables_above_a_damaged_one_are_merged_below_a_small_one() {
    let mut fixture = Fixture::new();
    let mut tree = fixture.tree(tree_options(), &[], &[1, 3, 5].map(|seq| (0, "a", "z", seq, seq + 1)));
    damage(&tree, &[1]);
    let small = TableMeta { file_size: 100, ..fixture.meta((0, "a", "z", 7, 8)) };
    let edit = VersionEdit { added: vec![(0, small)], ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.target, inputs(&plan)), (0, vec![3, 2]));
    fixture.execute(&mut tree, &plan);
    assert!(tree.pick(None).is_none(), "the merged table is larger than the small one");
}

#[test]
fn tables_that_share_no_key_with_a_damaged_one_leave_level_0() {
    let mut fixture = Fixture::new();
    let specs = [(0, "a", "c", 1, 2), (0, "d", "f", 3, 4), (0, "g", "i", 5, 6)];
    let mut tree = fixture.tree(tree_options(), &[], &specs);
    damage(&tree, &[1]);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.target, inputs(&plan)), (Reason::Move, 3, vec![2, 3]));
    // With older keys in the last level, they are merged into the first level.
    let mut fixture = Fixture::new();
    let mut tree = fixture.tree(tree_options(), &[], &[&specs[..], &[(1, "d", "z", 0, 0)]].concat());
    damage(&tree, &[1]);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.target, inputs(&plan)), (1, vec![3, 2]));
}

/// In a guard of the last level, the tables above the damaged one are merged, and those below it, and never both
/// together.
#[test]
fn a_guard_is_compacted_around_a_damaged_table() {
    let mut fixture = Fixture::new();
    let specs = [1, 3, 5, 7, 9].map(|seq| (3, "a", "z", seq, seq + 1));
    let mut tree = fixture.tree(tree_options(), &[], &specs);
    damage(&tree, &[3]);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.target, inputs(&plan)), (3, vec![2, 1]));
    fixture.execute(&mut tree, &plan);
    assert_eq!(tree.pick(None).map(|plan| inputs(&plan)), None, "two tables above it are too few");
    let plan = tree.pick_range(b"", None, Seq::MAX, 0, None).unwrap().unwrap();
    assert_eq!(inputs(&plan), [5, 4], "but enough for a request");
    fixture.execute(&mut tree, &plan);
    exhaust(&mut fixture, &mut tree, 3);
}

#[test]
fn a_damaged_table_is_never_merged_along() {
    let mut fixture = Fixture::new();
    let mut specs = vec![(2, "a", "z", 20, 21), (2, "a", "z", 22, 23), (2, "a", "z", 24, 25)];
    specs.extend([1, 3, 5].map(|seq| (3, "a", "z", seq, seq + 1)));
    let mut tree = fixture.tree(TreeOptions { last_level_merge_factor: 1000, ..tree_options() }, &[], &specs);
    damage(&tree, &[5]);
    exhaust(&mut fixture, &mut tree, 5);
}

#[test]
fn on_a_full_disk_plans_fit_and_free_space_first() {
    let mut fixture = Fixture::new();
    let tables = [
        (0, "a", "z", 9, 9),
        (0, "a", "z", 8, 8),
        (0, "a", "z", 7, 7),
        (3, "a", "p", 3, 4),
        (3, "a", "p", 1, 2),
    ];
    let mut tree = fixture.tree(tree_options(), &[], &tables);
    tree.set_free_space(Some(2600));
    // The guard of the last level is not full, and there is no request for it; but a merge may free space.
    let guard = tree.pick(None).unwrap();
    assert_eq!((guard.source, guard.target, guard.inputs.len()), (3, 3, 2));
    // The oldest table of level 0 only: the output of the plan in progress takes the other space.
    tree.set_free_space(Some(2600));
    let level0 = tree.pick(None).unwrap();
    assert_eq!((level0.source, level0.inputs.len(), level0.inputs[0].1.meta.max_seq), (0, 1, 7));
    fixture.execute(&mut tree, &guard);
    fixture.execute(&mut tree, &level0);
    tree.set_free_space(Some(2600));
    let level0 = tree.pick(None).unwrap();
    assert_eq!((level0.source, level0.inputs.len()), (0, 2));
    fixture.execute(&mut tree, &level0);
    tree.set_free_space(Some(2600));
    assert!(tree.pick(None).is_none(), "no plan frees space");
    assert!(!tree.is_due(None));
}
