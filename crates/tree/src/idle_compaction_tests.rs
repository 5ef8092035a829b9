//! Idle compaction, as cases. A table has 1000 bytes.

use crate::pick_tests::{Bench, Drawn, inputs};
use crate::version::tests::options;
use crate::{Reason, TreeOptions};

fn adaptive() -> TreeOptions {
    TreeOptions {
        guard_bytes: 4000,
        min_piece_bytes: 1000,
        level0_tables: 8,
        max_tables_per_guard: 8,
        space_target: 1.5,
        ..options()
    }
}

#[test]
fn a_guard_becomes_one_run_at_rest_when_enough_lies_beside_its_oldest() {
    let mut bench = Bench::new();
    // Three tables that do not overlap are the oldest run, with 3000 bytes. Above it lie first 1000 bytes, then 2000.
    let mut tables: Vec<Drawn> =
        vec![(3, "a", "c", 1, 2), (3, "d", "f", 1, 2), (3, "g", "k", 1, 2), (3, "a", "k", 3, 4)];
    let mut tree = bench.tree(adaptive(), &[], &tables);
    tree.set_rest(true);
    assert!(tree.pick(None).is_none(), "1000 bytes are less than half of 3000");
    tables.push((3, "b", "h", 5, 6));
    let mut tree = bench.tree(adaptive(), &[], &tables);
    assert!(tree.pick(None).is_none(), "while writes continue, three runs are no trigger");
    tree.set_rest(true);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, plan.target, plan.inputs.len()), (Reason::Rest, 3, 5));
    bench.run(&mut tree, &plan);
    assert!(!tree.is_due(None), "the guard is one run");
    let lazy = TreeOptions { space_target: 2.0, ..adaptive() };
    let mut tree = bench.tree(lazy, &[], &tables);
    tree.set_rest(true);
    assert!(!tree.is_due(None), "2000 bytes are less than 3000");
}

#[test]
fn level_0_goes_down_at_rest_where_its_pieces_have_a_useful_size() {
    let mut bench = Bench::new();
    let tables = [(0, "a", "z", 5, 6), (3, "a", "c", 1, 2), (3, "m", "p", 1, 2)];
    let at_rest =
        |bench: &mut Bench, options: TreeOptions, guards: &[(usize, &'static str)], tables: &[Drawn]| {
            let mut tree = bench.tree(options, guards, tables);
            assert!(!tree.is_due(None));
            tree.set_rest(true);
            tree.pick(None).map(|plan| (plan.reason, inputs(&plan)))
        };
    let one = at_rest(&mut bench, adaptive(), &[], &[(0, "a", "z", 5, 6), (0, "b", "y", 7, 8)]);
    assert!(matches!(one, Some((Reason::Rest, tables)) if tables.len() == 2));
    // Two guards, each of which would get 500 bytes.
    assert_eq!(at_rest(&mut bench, adaptive(), &[(3, "m")], &tables), None);
    let fine = TreeOptions { min_piece_bytes: 500, ..adaptive() };
    assert!(at_rest(&mut bench, fine.clone(), &[(3, "m")], &tables).is_some());
    // Not with guards by hash, nor in a leveled tree.
    for options in
        [TreeOptions { guard_bytes: 0, ..fine.clone() }, TreeOptions { max_tables_per_guard: 1, ..fine }]
    {
        assert_eq!(at_rest(&mut bench, options, &[(3, "m")], &tables), None);
    }
}
