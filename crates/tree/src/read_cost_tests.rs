//! What readers have paid for by passing over tombstones, as cases. A table has 1000 bytes.

use crate::pick_tests::{Bench, Drawn, inputs};
use crate::tree::Tree;
use crate::version::COST_OF_JOB;
use crate::version::tests::options;
use crate::{Reason, TreeOptions, VersionEdit};

fn own_shape() -> TreeOptions {
    TreeOptions { guard_bytes: 4000, level0_tables: 8, max_tables_per_guard: 8, ..options() }
}

fn reason(tree: &mut Tree, oldest_snapshot: Option<u64>) -> Option<Reason> {
    tree.pick(oldest_snapshot).map(|plan| plan.reason)
}

#[test]
fn level_0_goes_down_when_it_was_paid_with_all_that_is_older() {
    let mut bench = Bench::new();
    let level0: [Drawn; 3] = [(0, "a", "z", 1, 2), (0, "a", "z", 3, 4), (0, "a", "z", 5, 6)];
    let mut paid = |options: TreeOptions, paid: [u64; 3]| {
        let mut tree = bench.tree(options, &[], &level0);
        let version = tree.version().clone();
        for (table, paid) in version.level0.iter().rev().zip(paid) {
            table.pay(paid);
        }
        tree.pick(None).map(|plan| (plan.reason, inputs(&plan).len()))
    };
    let all = Some((Reason::Seeks, 3));
    assert_eq!(paid(own_shape(), [COST_OF_JOB + 2000, 0, 0]), all, "the oldest alone would do");
    assert_eq!(paid(own_shape(), [COST_OF_JOB + 1999, 0, 0]), None);
    assert_eq!(paid(own_shape(), [0, 0, COST_OF_JOB + 6000]), all);
    assert_eq!(paid(own_shape(), [0, 0, COST_OF_JOB + 5999]), None, "it takes those below along");
    assert_eq!(paid(own_shape(), [2000, COST_OF_JOB, 2000]), None);
    assert_eq!(paid(own_shape(), [2000, COST_OF_JOB, 4000]), all);
    // Not in trees whose shape is another's, nor where seeks ask for nothing.
    let much = [0, 0, 10 * COST_OF_JOB];
    assert_eq!(paid(TreeOptions { guard_bytes: 0, ..own_shape() }, much), None);
    assert_eq!(paid(TreeOptions { max_tables_per_guard: 1, ..own_shape() }, much), None);
    assert_eq!(paid(TreeOptions { seek_cost: 0, ..own_shape() }, much), None);
}

#[test]
fn a_guard_of_one_run_is_compacted_for_its_tombstones_when_that_was_paid() {
    let mut bench = Bench::new();
    let tree = |bench: &mut Bench, tables: &[Drawn], level: usize, tombstones: u64, paid: u64| {
        let mut tree = bench.tree(own_shape(), &[], tables);
        let mut meta = bench.meta((level, "a", "z", 8, 9));
        meta.tombstones = tombstones;
        let edit = VersionEdit { added: vec![(level, meta)], ..VersionEdit::default() };
        tree.apply(&edit, &mut bench.open()).unwrap();
        tree.version().level(level).guards[0].pay(paid);
        tree
    };
    let alone = COST_OF_JOB + 2000;
    assert_eq!(reason(&mut tree(&mut bench, &[], 3, 1, alone), None), Some(Reason::Seeks));
    assert_eq!(reason(&mut tree(&mut bench, &[], 3, 1, alone - 1), None), None);
    assert_eq!(reason(&mut tree(&mut bench, &[], 3, 0, alone), None), None, "there is nothing to drop");
    assert_eq!(
        reason(&mut tree(&mut bench, &[], 3, 1, alone), Some(8)),
        None,
        "a snapshot sees what they hide"
    );
    assert_eq!(reason(&mut tree(&mut bench, &[], 3, 1, alone), Some(9)), Some(Reason::Seeks));
    // Above the last level they go down, and what lies there is merged along, or might be.
    let below = [(3, "b", "c", 1, 2)];
    assert_eq!(reason(&mut tree(&mut bench, &below, 2, 1, alone + 2000), Some(1)), Some(Reason::Seeks));
    assert_eq!(reason(&mut tree(&mut bench, &below, 2, 1, alone + 1999), None), None);

    // What could buy nothing does not buy the next merge.
    let mut tree = tree(&mut bench, &[], 3, 1, 10 * alone);
    let edit = VersionEdit { added: vec![(3, bench.meta((3, "a", "z", 10, 11)))], ..VersionEdit::default() };
    tree.apply(&edit, &mut bench.open()).unwrap();
    assert!(tree.version().level(3).guards[0].runs == 2 && !tree.is_due(Some(1)));

    // Beside it, in the same run, nothing changes.
    let beside: [Drawn; 1] = [(3, "m", "n", 10, 11)];
    let mut tree = bench.tree(own_shape(), &[], &[(3, "a", "c", 1, 2)]);
    tree.version().level(3).guards[0].pay(77);
    let edit = VersionEdit { added: vec![(3, bench.meta(beside[0]))], ..VersionEdit::default() };
    tree.apply(&edit, &mut bench.open()).unwrap();
    let guard = &tree.version().level(3).guards[0];
    assert_eq!((guard.runs, guard.paid()), (1, 77));
}
