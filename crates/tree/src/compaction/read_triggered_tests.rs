//! Read charges, as cases: when a run is due, and when the scheduler learns of it. A table has 1000 bytes.

use crate::read::{JOB_COST, LEVEL0_CHECK};
use crate::test_support::{Fixture, TableSpec, inputs, tree_options};
use crate::{ReadCharges, Reason, SkipCharge, Tree, TreeOptions, VersionEdit, charge, flush_price};
use base::SegmentShare;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn own_shape() -> TreeOptions {
    TreeOptions { guard_bytes: 4000, level0_tables: 8, max_tables_per_guard: 8, ..tree_options() }
}

fn reason(tree: &mut Tree, oldest_snapshot: Option<u64>) -> Option<Reason> {
    tree.pick(oldest_snapshot).map(|plan| plan.reason)
}

#[test]
fn a_guard_of_several_runs_is_due_at_twice_its_size() {
    let mut fixture = Fixture::new();
    let two_runs: [TableSpec; 2] = [(3, "a", "z", 9, 9), (3, "a", "z", 8, 8)];
    let two_tables: [TableSpec; 2] = [(3, "a", "c", 9, 9), (3, "m", "z", 8, 8)];
    let mut picked = |options: TreeOptions, tables: &[TableSpec], charges: u64| {
        let mut tree = fixture.tree(options, &[], tables);
        charge(&tree.version().level(3).guards[0].charges, charges);
        reason(&mut tree, None)
    };
    let seeks = Some(Reason::Seeks);
    assert_eq!(picked(own_shape(), &two_runs, 4000), seeks);
    assert_eq!(picked(own_shape(), &two_runs, 3999), None);
    assert_eq!(picked(own_shape(), &two_tables, 10 * JOB_COST), None, "one run without tombstones");
    assert_eq!(picked(TreeOptions { seek_cost: 0, ..own_shape() }, &two_runs, 10 * JOB_COST), None);
    assert_eq!(
        picked(TreeOptions { guard_bytes: 0, ..own_shape() }, &two_runs, 4000),
        seeks,
        "with every guard policy"
    );
}

#[test]
fn level_0_is_due_when_a_table_and_all_older_ones_have_their_price() {
    let mut fixture = Fixture::new();
    let level0: [TableSpec; 3] = [(0, "a", "z", 1, 2), (0, "a", "z", 3, 4), (0, "a", "z", 5, 6)];
    let mut picked = |options: TreeOptions, charges: [u64; 3]| {
        let mut tree = fixture.tree(options, &[], &level0);
        let version = tree.version().clone();
        for (table, bytes) in version.level0.iter().rev().zip(charges) {
            charge(&table.charges, bytes);
        }
        tree.pick(None).map(|plan| (plan.reason, inputs(&plan).len()))
    };
    let all = Some((Reason::Seeks, 3));
    assert_eq!(picked(own_shape(), [JOB_COST + 2000, 0, 0]), all, "the price of the oldest table alone");
    assert_eq!(picked(own_shape(), [JOB_COST + 1999, 0, 0]), None);
    assert_eq!(picked(own_shape(), [0, 0, JOB_COST + 6000]), all);
    assert_eq!(picked(own_shape(), [0, 0, JOB_COST + 5999]), None, "the price includes the older tables");
    assert_eq!(picked(own_shape(), [2000, JOB_COST, 2000]), None);
    assert_eq!(picked(own_shape(), [2000, JOB_COST, 4000]), all);
    // Not in a leveled tree, nor with guards by hash, nor without a cost.
    let much = [0, 0, 10 * JOB_COST];
    assert_eq!(picked(TreeOptions { guard_bytes: 0, ..own_shape() }, much), None);
    assert_eq!(picked(TreeOptions { max_tables_per_guard: 1, ..own_shape() }, much), None);
    assert_eq!(picked(TreeOptions { seek_cost: 0, ..own_shape() }, much), None);
}

#[test]
fn a_guard_of_one_run_is_due_where_a_compaction_sheds_its_tombstones() {
    let mut fixture = Fixture::new();
    let tree = |fixture: &mut Fixture, tables: &[TableSpec], level: usize, tombstones: u64, charges: u64| {
        let mut tree = fixture.tree(own_shape(), &[], tables);
        let mut meta = fixture.meta((level, "a", "z", 8, 9));
        meta.tombstones = tombstones;
        let edit = VersionEdit { added: vec![(level, meta)], ..VersionEdit::default() };
        tree.apply(&edit, &mut fixture.open()).unwrap();
        charge(&tree.version().level(level).guards[0].charges, charges);
        tree
    };
    let alone = JOB_COST + 2000;
    assert_eq!(reason(&mut tree(&mut fixture, &[], 3, 1, alone), None), Some(Reason::Seeks));
    assert_eq!(reason(&mut tree(&mut fixture, &[], 3, 1, alone - 1), None), None);
    assert_eq!(reason(&mut tree(&mut fixture, &[], 3, 0, alone), None), None, "there are no tombstones");
    assert_eq!(
        reason(&mut tree(&mut fixture, &[], 3, 1, alone), Some(8)),
        None,
        "a snapshot sees what they hide"
    );
    assert_eq!(reason(&mut tree(&mut fixture, &[], 3, 1, alone), Some(9)), Some(Reason::Seeks));
    // Above the last level they move down, and the guards below may be merged along.
    let below = [(3, "b", "c", 1, 2)];
    assert_eq!(reason(&mut tree(&mut fixture, &below, 2, 1, alone + 2000), Some(1)), Some(Reason::Seeks));
    assert_eq!(reason(&mut tree(&mut fixture, &below, 2, 1, alone + 1999), None), None);

    // Charges for tombstones that cannot be dropped do not count towards a merge of several runs.
    let mut tree = tree(&mut fixture, &[], 3, 1, 10 * alone);
    let edit =
        VersionEdit { added: vec![(3, fixture.meta((3, "a", "z", 10, 11)))], ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    assert!(tree.version().level(3).guards[0].runs == 2 && !tree.is_due(Some(1)));

    // A table that is added to the same run changes nothing.
    let beside: [TableSpec; 1] = [(3, "m", "n", 10, 11)];
    let mut tree = fixture.tree(own_shape(), &[], &[(3, "a", "c", 1, 2)]);
    charge(&tree.version().level(3).guards[0].charges, 77);
    let edit = VersionEdit { added: vec![(3, fixture.meta(beside[0]))], ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    let guard = &tree.version().level(3).guards[0];
    assert_eq!((guard.runs, guard.charges.load(Ordering::Relaxed)), (1, 77));
}

/// A tree of tables that each refer to 10 values of 1000 bytes in all, in a segment of their own.
fn with_values(fixture: &mut Fixture, options: TreeOptions, tables: &[TableSpec]) -> Tree {
    let mut tree = fixture.tree(options, &[], &[]);
    let mut add = |spec: &TableSpec| {
        let mut meta = fixture.meta(*spec);
        meta.segments = vec![SegmentShare { segment: meta.number, count: 10, bytes: 1000 }];
        (spec.0, meta)
    };
    let edit = VersionEdit { added: tables.iter().map(&mut add).collect(), ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    tree
}

/// What 10 values cost that a scan waits for, at the least `seek_cost`.
const TEN: u64 = 10 * 32;

#[test]
fn a_guard_is_due_for_its_values_when_scans_have_waited_for_the_time_of_moving_them() {
    let mut fixture = Fixture::new();
    let options = |seek_cost| TreeOptions { seek_cost, ..own_shape() };
    let mut picked = |seek_cost: u32, tables: &[TableSpec], charges: u64| {
        let mut tree = with_values(&mut fixture, options(seek_cost), tables);
        charge(&tree.version().level(3).guards[0].value_charges, charges);
        tree.pick(None).map(|plan| (plan.reason, plan.inlines_values(), plan.value_bytes()))
    };
    let one: [TableSpec; 1] = [(3, "a", "z", 9, 9)];
    let two: [TableSpec; 2] = [(3, "a", "z", 9, 9), (3, "b", "z", 8, 8)];
    // Tables and values are read and written once, each value with a read of its own.
    let price = JOB_COST + 2000 + 2000 + TEN;
    assert_eq!(picked(1, &one, price), Some((Reason::Scans, true, 1000)), "also with one run");
    assert_eq!(picked(1, &one, price - 1), None);
    assert_eq!(picked(2, &one, price), None, "the price has the charge of each value once");
    assert_eq!(picked(1, &two, price + price - JOB_COST), Some((Reason::Scans, true, 2000)));
    assert_eq!(picked(1, &two, price + price - JOB_COST - 1), None);
    assert_eq!(picked(0, &one, 10 * price), None);

    // Charges stay with a guard that gets a table, and are gone with its merge.
    let mut tree = with_values(&mut fixture, options(1), &one);
    charge(&tree.version().level(3).guards[0].value_charges, price);
    let edit =
        VersionEdit { added: vec![(3, fixture.meta((3, "a", "z", 10, 11)))], ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
    let charges = |tree: &Tree| tree.version().level(3).guards[0].value_charges.load(Ordering::Relaxed);
    assert_eq!((charges(&tree), reason(&mut tree, None)), (price, None), "the price has risen");
    charge(&tree.version().level(3).guards[0].value_charges, 2000);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, inputs(&plan).len()), (Reason::Scans, 2));
    fixture.execute(&mut tree, &plan);
    assert_eq!((charges(&tree), tree.is_due(None)), (0, false));
}

#[test]
fn level_0_is_due_for_its_values_and_does_not_only_move() {
    let mut fixture = Fixture::new();
    let level0: [TableSpec; 3] = [(0, "a", "z", 1, 2), (0, "a", "z", 3, 4), (0, "a", "z", 5, 6)];
    let mut picked = |options: TreeOptions, tables: &[TableSpec], charges: [u64; 3]| {
        let mut tree = with_values(&mut fixture, TreeOptions { seek_cost: 1, ..options }, tables);
        let version = tree.version().clone();
        for (table, bytes) in version.level0.iter().rev().zip(charges) {
            charge(&table.value_charges, bytes);
        }
        tree.pick(None).map(|plan| (plan.reason, inputs(&plan).len(), plan.is_move()))
    };
    let each = 2000 + 2000 + TEN;
    let all = Some((Reason::Scans, 3, false));
    assert_eq!(picked(own_shape(), &level0, [JOB_COST + each, 0, 0]), all);
    assert_eq!(picked(own_shape(), &level0, [JOB_COST + each - 1, 0, 0]), None);
    assert_eq!(picked(own_shape(), &level0, [0, 0, JOB_COST + 3 * each]), all, "with all older ones");
    assert_eq!(picked(own_shape(), &level0, [0, 0, JOB_COST + 3 * each - 1]), None);
    let one = Some((Reason::Scans, 1, false));
    assert_eq!(picked(own_shape(), &level0[..1], [JOB_COST + each, 0, 0]), one);
    let leveled = TreeOptions { max_tables_per_guard: 1, ..own_shape() };
    assert_eq!(picked(leveled, &level0, [10 * JOB_COST; 3]), None);
}

#[test]
fn a_seek_charges_the_runs_after_the_first_and_their_share_of_what_it_reads() {
    let mut fixture = Fixture::new();
    let tables: Vec<TableSpec> = (0..3).map(|i| (3, "a", "z", 9 - i, 9 - i)).collect();
    let guard = |fixture: &mut Fixture, tables: &[TableSpec]| {
        fixture.tree(own_shape(), &[], tables).version().level(3).guards[0].clone()
    };
    let sum = |guard: &crate::Guard| guard.charges.load(Ordering::Relaxed);
    let any_due = Arc::new(AtomicBool::new(false));
    let charges = |seek_cost| ReadCharges::new(seek_cost, any_due.clone());
    let three = guard(&mut fixture, &tables);
    charges(100).charge_seek(&three, 0);
    assert_eq!(sum(&three), 200);
    charges(100).charge_seek(&three, 900);
    assert_eq!(sum(&three), 1000);
    charges(0).charge_seek(&three, 30);
    assert_eq!(sum(&three), 1000);
    let one = guard(&mut fixture, &tables[..1]);
    charges(100).charge_seek(&one, 900);
    assert_eq!(sum(&one), 0);

    // The price is 6000. The charge that reaches it sets the flags, and the flags are set again after each reset.
    let charges = charges(100);
    charges.charge_seek(&three, 7197);
    assert!(!any_due.load(Ordering::Relaxed) && !charges.take_due(), "{:?}", sum(&three));
    charges.charge_seek(&three, 0);
    assert!(any_due.swap(false, Ordering::Relaxed) && charges.take_due() && !charges.take_due());
    charges.charge_seek(&three, 0);
    assert!(any_due.load(Ordering::Relaxed) && charges.take_due(), "until the guard is merged");
}

/// The price of level 0 is that of all its tables, and cursors charge each of them a part.
#[test]
fn the_scheduler_looks_at_level_0_before_the_charges_of_its_tables_reach_their_price() {
    let mut fixture = Fixture::new();
    let tables: Vec<TableSpec> = (0..5).map(|i| (0, "a", "z", 9 - i, 9 - i)).collect();
    let tree = fixture.tree(own_shape(), &[], &tables);
    let charges = ReadCharges::new(256, Arc::default());
    for table in &tree.version().level0 {
        charges.charge(&table.charges, JOB_COST / 4, LEVEL0_CHECK);
    }
    assert!(charges.take_due(), "the charges exceed the price");
}

#[test]
fn skipped_entries_are_charged_in_portions_over_several_cursors() {
    let charges = ReadCharges::new(256, Arc::default());
    let mut cursor = SkipCharge::default();
    let portions: Vec<u64> = (1..=122).filter_map(|_| cursor.skip(&charges)).collect();
    assert_eq!(portions, [61 * 32, 61 * 32]);
    // Cursors that skip ten entries each.
    let mut sum = 0;
    for _ in 0..100 {
        let mut cursor = SkipCharge::default();
        sum += (0..10).filter_map(|_| cursor.skip(&charges)).sum::<u64>();
        cursor.leave(&charges);
    }
    assert!((900 * 32..=1000 * 32).contains(&sum), "{sum}");
    let off = ReadCharges::new(0, Arc::default());
    let mut cursor = SkipCharge::default();
    assert!((0..10_000).all(|_| cursor.skip(&off).is_none()));
    assert_eq!(flush_price(1000), JOB_COST + 1000);
}
