//! The order of sequence numbers with unreadable tables: no sequence of plans breaks it. Every applied edit is verified
//! with [`crate::check_version`] (debug builds do this in [`Tree::apply`]).

use crate::test_support::{Fixture, TableSpec, cuts, damage, inputs, slice, tree_options};
use crate::{JobOutput, Plan, Reason, Tree, TreeOptions, VersionEdit, charge};
use base::ErrorKind;
use std::sync::Arc;

/// T is old and in the last level. X (number 2) becomes unreadable, and the tables ABOVE it stay. The tables BESIDE
/// share keys with no other.
const T: TableSpec = (3, "k000", "k099", 1, 100);
const X: TableSpec = (0, "k050", "k099", 101, 150);
const ABOVE: [TableSpec; 2] = [(0, "k051", "k098", 151, 160), (0, "k051", "k098", 161, 170)];
const BESIDE: [TableSpec; 2] = [(0, "k100", "k199", 201, 210), (0, "k100", "k199", 211, 220)];

fn sound(tree: &Tree) {
    assert_eq!(crate::check_version(tree.version()), Vec::<String>::new());
}

/// The tree after closing and opening, which forgets the marks of unreadable tables.
fn reopen(fixture: &mut Fixture, tree: Tree) -> Tree {
    let empty = tree.version().emptied();
    let version = empty.apply(&VersionEdit::snapshot(tree.version()), &mut fixture.open()).unwrap();
    Tree::new(tree.options().clone(), Arc::new(version))
}

/// Compacts everything on request.
fn exhaust(fixture: &mut Fixture, tree: &mut Tree) {
    for _ in 0..200 {
        match tree.pick_range(b"", None, base::Seq::MAX, 0, None) {
            Ok(Some(plan)) => fixture.execute(tree, &plan),
            Ok(None) | Err(_) => return,
        };
    }
    panic!("the request does not end");
}

/// A tree whose tables BESIDE have moved down into T's guard.
fn sunk(fixture: &mut Fixture, options: TreeOptions) -> (Tree, Vec<Arc<Plan>>) {
    let specs = [&[T, X][..], &ABOVE, &BESIDE].concat();
    let mut tree = fixture.tree(TreeOptions { skip_levels: true, ..options }, &[], &specs);
    damage(&tree, &[2]);
    let mut plans = Vec::new();
    while let Some(plan) = tree.pick(None) {
        assert!(!inputs(&plan).contains(&2) && plans.len() < 20);
        fixture.execute(&mut tree, &plan);
        plans.push(plan);
    }
    assert_eq!(tree.version().level0.len(), 2, "X and the tables above it");
    (tree, plans)
}

#[test]
fn tables_moved_past_an_unreadable_one_are_not_merged_across_it() {
    for reopened in [false, true] {
        let mut fixture = Fixture::new();
        let (mut tree, _) = sunk(&mut fixture, tree_options());
        // Two more tables move down, so that the guard of the last level has several runs to merge.
        let more = [(0, "k100", "k199", 301, 310), (0, "k100", "k199", 311, 320)];
        let added = more.map(|spec| (0, fixture.meta(spec))).to_vec();
        tree.apply(&VersionEdit { added, ..VersionEdit::default() }, &mut fixture.open()).unwrap();
        while let Some(plan) = tree.pick(None) {
            fixture.execute(&mut tree, &plan);
        }
        if reopened {
            tree = reopen(&mut fixture, tree);
            // Prevents that X and the tables above it move down first.
            tree = Tree::new(TreeOptions { level0_tables: 10, ..tree_options() }, tree.version().clone());
        }
        let guard = &tree.version().level(3).guards[0];
        assert!(guard.runs > 1, "{guard:?}");
        charge(&guard.charges, 1 << 20);
        let plan = tree.pick(None).unwrap();
        assert_eq!((plan.reason, plan.target), (Reason::Seeks, 3));
        assert!(inputs(&plan).contains(&1), "T takes part");
        assert_eq!(cuts(&plan), ["k050", "k099\0"]);
        fixture.execute(&mut tree, &plan);
        // X can be read again.
        tree.version().tables().for_each(|(_, t)| t.damage.clear());
        exhaust(&mut fixture, &mut tree);
        sound(&tree);
        assert_eq!(tree.version().level0.len(), 0);
    }
}

#[test]
fn a_plan_to_a_deeper_level_is_cut_for_the_tables_that_it_includes_there() {
    let mut fixture = Fixture::new();
    let (mut tree, plans) = sunk(&mut fixture, TreeOptions { max_tables_per_guard: 1, ..tree_options() });
    let across = plans.iter().find(|plan| inputs(plan).contains(&1)).expect("one plan includes T");
    assert_eq!(cuts(across), ["k050", "k099\0"]);
    tree.version().tables().for_each(|(_, t)| t.damage.clear());
    exhaust(&mut fixture, &mut tree);
    sound(&tree);
}

#[test]
fn tables_that_are_out_of_order_are_not_installed() {
    let mut fixture = Fixture::new();
    let specs = [X, T, (3, "k100", "k199", 201, 210), (3, "k100", "k199", 211, 220)];
    let mut tree = fixture.tree(tree_options(), &[], &specs);
    charge(&tree.version().level(3).guards[0].charges, 1 << 20);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.source, plan.target), (3, 3));
    let whole = JobOutput { added: vec![fixture.meta((3, "k000", "k199", 1, 220))], ..JobOutput::default() };
    let error = tree.install(&plan, &whole, &mut fixture.open()).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Io && error.to_string().contains("out of order with table 1"),
        "{error}"
    );
    fixture.execute(&mut tree, &plan);
}

#[test]
fn plans_in_progress_at_once_stay_in_order() {
    let mut fixture = Fixture::new();
    // A plan merges tables 1 to 3. Tables with sequence numbers between those of its inputs must not move down
    // meanwhile.
    let specs = [
        (3, "k020", "k040", 1, 50),
        (3, "k130", "k140", 51, 300),
        (3, "k030", "k035", 60, 70),
        (2, "k000", "k010", 101, 110),
        (2, "k050", "k060", 400, 410),
        (2, "k100", "k110", 250, 260),
    ];
    let mut tree = fixture.tree(tree_options(), &[], &specs);
    charge(&tree.version().level(3).guards[0].charges, 1 << 20);
    let first = tree.pick(None).unwrap();
    assert_eq!(inputs(&first).len(), 3);
    while let Ok(Some(plan)) = tree.pick_range(b"", None, base::Seq::MAX, 0, None) {
        fixture.execute(&mut tree, &plan);
    }
    fixture.execute(&mut tree, &first);
    exhaust(&mut fixture, &mut tree);
    sound(&tree);
    assert_eq!(tree.version().level(3).guards[0].runs, 1);
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = base::hash(&self.0.to_le_bytes());
        self.0 % end
    }

    fn key(&mut self) -> &'static str {
        const KEYS: &str = "abcdefghijklmnopqrstuvwxyz";
        let at = self.below(26) as usize;
        &KEYS[at..=at]
    }
}

/// Flushes of random ranges, tables that become unreadable and readable again, up to three plans in progress that end
/// in any order, and reopenings. `execute` fails if an outcome is refused, `apply` if it breaks the order.
#[test]
fn nothing_gets_out_of_order_in_random_histories_with_unreadable_tables() {
    let (cut_for_order, done) = random_histories(false);
    assert!(cut_for_order > 50 && done > 2000, "{cut_for_order} plans of {done} were cut for the order");
}

/// There the other invariants stay, and requests end.
#[test]
fn random_histories_of_unordered_trees_stay_sound() {
    let (_, done) = random_histories(true);
    assert!(done > 2000, "{done} plans");
}

/// Returns the number of plans that were cut for the order, and of all that were executed.
fn random_histories(unordered: bool) -> (usize, usize) {
    let (mut cut_for_order, mut done) = (0, 0);
    for seed in 0..300 {
        let mut random = Random(seed);
        let options = TreeOptions {
            max_tables_per_guard: 1 + random.below(3) as usize,
            skip_levels: random.below(2) == 0,
            level_size_percent: [0, 20][random.below(2) as usize],
            space_target: [10.0, 1.05][random.below(2) as usize],
            guard_bytes: [0, 1000, 2000, 16_000][random.below(4) as usize],
            ..tree_options()
        };
        let mut fixture = Fixture::new();
        let mut tree = match unordered {
            false => fixture.tree(options, &[], &[]),
            true => fixture.unordered_tree(options, &[], &[]),
        };
        let mut in_progress: Vec<Arc<Plan>> = Vec::new();
        let mut seq = 0;
        for _ in 0..150 {
            match random.below(10) {
                0..=3 => {
                    let (a, b) = (random.key(), random.key());
                    let min_seq = if unordered { 1 + random.below(seq + 1) } else { seq + 1 };
                    let meta = fixture.meta((0, a.min(b), a.max(b), min_seq, seq + 10));
                    seq += 10;
                    let mut edit = VersionEdit { added: vec![(0, meta)], ..VersionEdit::default() };
                    let chosen = random.key();
                    let known = (1..=3).any(|n| tree.version().level(n).has_guard(chosen.as_bytes()));
                    if random.below(4) == 0
                        && !known
                        && tree.version().uncommitted.get(chosen.as_bytes()).is_none()
                    {
                        edit.uncommitted_added.push((1 + random.below(3) as usize, slice(chosen)));
                    }
                    tree.apply(&edit, &mut fixture.open()).unwrap();
                }
                4 => {
                    let tables: Vec<u64> = tree.version().tables().map(|(_, t)| t.meta.number).collect();
                    if !tables.is_empty() {
                        damage(&tree, &[tables[random.below(tables.len() as u64) as usize]]);
                    }
                }
                5 => {
                    let tables = tree.version().tables().filter(|_| random.below(4) == 0);
                    tables.for_each(|(_, t)| t.damage.clear());
                }
                6 if in_progress.is_empty() => tree = reopen(&mut fixture, tree),
                7 if !in_progress.is_empty() => {
                    let plan = in_progress.swap_remove(random.below(in_progress.len() as u64) as usize);
                    fixture.execute(&mut tree, &plan);
                    done += 1;
                }
                _ if in_progress.len() < 3 => {
                    let level = tree.version().level(1 + random.below(3) as usize);
                    charge(&level.guards[random.below(level.guards.len() as u64) as usize].charges, 1 << 20);
                    let plan = match random.below(3) {
                        0 => tree.pick_range(b"", None, base::Seq::MAX, 0, None).ok().flatten(),
                        _ => tree.pick(None),
                    };
                    cut_for_order +=
                        plan.iter().filter(|p| p.cuts.iter().any(|key| key.ends_with(b"\0"))).count();
                    in_progress.extend(plan);
                }
                _ => {}
            }
        }
        in_progress.iter().for_each(|plan| drop(fixture.execute(&mut tree, plan)));
        exhaust(&mut fixture, &mut tree);
        tree = reopen(&mut fixture, tree);
        exhaust(&mut fixture, &mut tree);
        sound(&tree);
    }
    (cut_for_order, done)
}
