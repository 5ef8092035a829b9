//! Requested compactions beside a writer: a request covers the entries of its start, and ends.

use crate::test_support::{Fixture, TableSpec, damage, tree_options};
use crate::version::runs;
use crate::{Tree, TreeOptions, VersionEdit};
use base::Seq;
use env::Rng;

const KEYS: [&str; 9] = ["b", "d", "f", "h", "k", "n", "q", "t", "w"];

/// A flush of the keys with indices `from` to `to`.
fn flush(fixture: &mut Fixture, tree: &mut Tree, from: usize, to: usize, seq: Seq) {
    let meta = fixture.meta((0, KEYS[from], KEYS[to], seq, seq));
    let edit = VersionEdit { added: vec![(0, meta)], ..VersionEdit::default() };
    tree.apply(&edit, &mut fixture.open()).unwrap();
}

/// The number of plans that a request needs if `write` runs after each of them; at most `max`.
fn plans(
    fixture: &mut Fixture,
    tree: &mut Tree,
    requested_seq: Seq,
    max: usize,
    mut write: impl FnMut(&mut Fixture, &mut Tree, usize),
) -> usize {
    for n in 0..max {
        let Ok(Some(plan)) = tree.pick_range(b"", None, requested_seq, 0, None) else { return n };
        fixture.execute(tree, &plan);
        write(fixture, tree, n);
    }
    max
}

/// Every covered table is in the last level, and there each key is in at most one covered table.
fn assert_done(tree: &Tree, requested_seq: Seq) {
    let version = tree.version();
    let last = version.last_level();
    assert!(version.tables().all(|(n, t)| n == last || t.meta.min_seq > requested_seq));
    for guard in &version.level(last).guards {
        let requested: Vec<_> =
            guard.tables.iter().filter(|t| t.meta.min_seq <= requested_seq).cloned().collect();
        assert!(runs(&requested) <= 1);
    }
}

const SPECS: [TableSpec; 6] = [
    (0, "a", "z", 20, 20),
    (0, "b", "m", 18, 19),
    (1, "a", "k", 15, 15),
    (2, "n", "z", 12, 12),
    (3, "a", "c", 9, 9),
    (3, "a", "c", 8, 8),
];

#[test]
fn a_request_ends_though_every_plan_is_followed_by_a_flush() {
    // All keys; two keys; one key that a move can place.
    for (from, to) in [(0, 8), (0, 1), (8, 8)] {
        let request = |requested_seq, max| {
            let mut fixture = Fixture::new();
            let mut tree = fixture.tree(tree_options(), &[(3, "m")], &SPECS);
            let count = plans(&mut fixture, &mut tree, requested_seq, max, |fixture, tree, n| {
                flush(fixture, tree, from, to, 21 + n as Seq);
            });
            (tree, count)
        };
        let (tree, count) = request(20, 100);
        assert!(count <= 6, "{count} plans");
        assert_done(&tree, 20);
        assert_eq!(request(Seq::MAX, 100).1, 100, "every flush adds work");
    }
}

#[test]
fn newer_tables_alone_are_not_compacted() {
    let mut fixture = Fixture::new();
    let specs = [(0, "a", "z", 31, 40), (0, "a", "z", 21, 30), (1, "a", "z", 19, 20), (3, "a", "z", 1, 9)];
    let mut tree = fixture.tree(tree_options(), &[], &specs);
    assert!(tree.pick_range(b"", None, 0, 0, None).unwrap().is_none());
    assert_eq!(plans(&mut fixture, &mut tree, 9, 9, |_, _, _| {}), 0, "all of it is in the last level");
    assert_eq!(plans(&mut fixture, &mut tree, 19, 9, |_, _, _| {}), 3, "two moves down, one merge");
    assert_eq!(tree.version().level0.len(), 2);
    assert_done(&tree, 20);
}

/// Any tree and any writer, tables that become unreadable, and background compactions in between.
#[test]
fn a_request_ends_beside_random_writes_damage_and_compactions() {
    let mut done = 0;
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut fixture = Fixture::new();
        let skip_levels = rng.chance(1, 2);
        let guards = [(3, "m"), (2, "m"), (3, "s"), (3, "e")];
        let guards = &guards[..rng.below(5) as usize];
        let options =
            TreeOptions { skip_levels, level0_tables: 2, max_tables_per_guard: 3, ..tree_options() };
        let mut tree = fixture.tree(options, guards, &[]);
        let mut seq = 0;
        let mut write = |rng: &mut Rng, fixture: &mut Fixture, tree: &mut Tree| {
            seq += 1;
            let from = rng.below(9) as usize;
            let to = if rng.chance(1, 3) { from } else { from + rng.below(9 - from as u64) as usize };
            flush(fixture, tree, from, to, seq);
            seq
        };
        let background = |fixture: &mut Fixture, tree: &mut Tree| {
            if let Some(plan) = tree.pick(None) {
                fixture.execute(tree, &plan);
            }
        };
        let mut requested_seq = 0;
        for _ in 0..rng.below(20) {
            requested_seq = write(&mut rng, &mut fixture, &mut tree);
            if rng.chance(1, 2) {
                background(&mut fixture, &mut tree);
            }
        }
        let damaged = rng.chance(1, 2);
        if damaged {
            let numbers: Vec<u64> = tree.version().tables().map(|(_, t)| t.meta.number).collect();
            if !numbers.is_empty() {
                damage(&tree, &[numbers[rng.below(numbers.len() as u64) as usize]]);
            }
        }
        let often = rng.below(4);
        let count = plans(&mut fixture, &mut tree, requested_seq, 300, |fixture, tree, _| {
            for _ in 0..often {
                write(&mut rng, fixture, tree);
            }
            if rng.chance(1, 4) {
                background(fixture, tree);
            }
        });
        assert!(count < 100, "seed {seed}: {count} plans");
        if !damaged {
            assert_done(&tree, requested_seq);
            done += 1;
        }
    }
    assert!(done > 100);
}
