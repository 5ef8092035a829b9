//! Compactions for space, as cases. A table has 1000 bytes and 10 entries.

use super::space_amp::{amplification, bytes_beyond};
use crate::test_support::{Fixture, TableSpec, inputs, tree_options};
use crate::{Reason, Sketch, Tree, TreeOptions, VersionEdit};
use base::SegmentShare;

/// A tree of these tables. Each table with a number has ten keys, numbered from it on; the others have no sketch.
fn tree(fixture: &mut Fixture, options: TreeOptions, specs: &[(TableSpec, Option<u64>)]) -> Tree {
    with_values(fixture, options, specs, |_| 0)
}

/// The same with so many bytes of values outside of the tree for each table of a level.
fn with_values(
    fixture: &mut Fixture,
    options: TreeOptions,
    specs: &[(TableSpec, Option<u64>)],
    value_bytes: impl Fn(usize) -> u64,
) -> Tree {
    let tree = fixture.tree(options, &[(3, "m")], &[]);
    filled(fixture, tree, specs, value_bytes)
}

fn filled(
    fixture: &mut Fixture,
    mut tree: Tree,
    specs: &[(TableSpec, Option<u64>)],
    value_bytes: impl Fn(usize) -> u64,
) -> Tree {
    let mut edit = VersionEdit::default();
    for (table, keys) in specs {
        let mut meta = fixture.meta(*table);
        if value_bytes(table.0) > 0 {
            meta.segments = vec![SegmentShare { segment: 1, count: 10, bytes: value_bytes(table.0) }];
        }
        if let Some(first) = keys {
            let mut sketch = Sketch::default();
            (*first..first + 10).for_each(|key| sketch.add(base::hash(&key.to_le_bytes())));
            edit.sketches.push((meta.number, sketch.finish(false).unwrap()));
        }
        edit.added.push((table.0, meta));
    }
    tree.apply(&edit, &mut fixture.open()).unwrap();
    tree
}

fn space(space_target: f64) -> TreeOptions {
    TreeOptions { space_target, max_tables_per_guard: 8, ..tree_options() }
}

/// The first guard has the same ten keys three times. The second has ten keys twice, with two of them changed.
const OVERWRITTEN: [(TableSpec, Option<u64>); 5] = [
    ((3, "a", "c", 1, 2), Some(0)),
    ((3, "a", "c", 3, 4), Some(0)),
    ((3, "a", "c", 5, 6), Some(0)),
    ((3, "m", "z", 1, 2), Some(100)),
    ((3, "m", "z", 3, 4), Some(102)),
];

#[test]
fn guards_with_many_older_versions_are_merged_when_the_tree_has_too_many() {
    let mut fixture = Fixture::new();
    let mut tree = tree(&mut fixture, space(1.5), &OVERWRITTEN);
    // 5000 bytes; 2000 in the first guard and 800 in the second are older versions.
    assert!((amplification(tree.version()) - 5000.0 / 2200.0).abs() < 0.01);
    let plan = tree.pick(None).unwrap();
    assert_eq!((plan.reason, inputs(&plan)), (Reason::Space, vec![3, 2, 1]));
    fixture.execute(&mut tree, &plan);
    // 3000 bytes over 2200 are within the target.
    assert!(tree.pick(None).is_none());
    let stricter = Tree::new(space(1.3), tree.version().clone());
    assert!(stricter.is_due(None));
}

/// They are told, and no reason to merge.
#[test]
fn in_an_unordered_tree_versions_beyond_their_number_are_estimated() {
    let mut fixture = Fixture::new();
    let options = TreeOptions { counts_versions: true, ..space(1.2) };
    let tree = fixture.unordered_tree(options, &[(3, "m")], &[]);
    let mut tree = filled(&mut fixture, tree, &OVERWRITTEN, |_| 0);
    // Of each of ten keys three, and of eight of twelve keys two.
    for (kept, bytes) in [(1, 2800), (2, 1000), (3, 0)] {
        assert!(bytes_beyond(tree.version(), kept).abs_diff(bytes) <= 20, "{kept}");
    }
    assert!(tree.pick(None).is_none() && tree.space(None).reclaimable == 0);
}

#[test]
fn what_compactions_could_free_is_without_what_readers_keep() {
    let mut tree = tree(&mut Fixture::new(), space(1.5), &OVERWRITTEN);
    let mut of = |oldest| {
        let space = tree.space(oldest);
        assert_eq!((space.live + space.reclaimable).div_ceil(10), 500);
        assert!(space.target.abs_diff(space.live * 3 / 2) <= 2);
        space.reclaimable.div_ceil(10) * 10
    };
    // 2,000 bytes in the first guard and 800 in the second.
    assert!(of(None).abs_diff(2800) <= 20);
    // A reader keeps a version of each key in the two older tables of the first guard; in the second guard a merge does not pay.
    assert!(of(Some(3)).abs_diff(1000) <= 20);
    // Half of what is above the last level counts as old.
    let specs = [((0, "a", "c", 3, 4), Some(0)), ((3, "a", "c", 1, 2), Some(0))];
    let mut tree = self::tree(&mut Fixture::new(), space(1.5), &specs);
    assert_eq!(tree.space(None).reclaimable, 500);
}

/// Two tables in one guard, of whose twenty entries three are old.
#[test]
fn values_outside_of_the_tree_count_and_leave_room_for_what_is_known_to_be_dead() {
    let specs = [((3, "a", "c", 1, 2), Some(0)), ((3, "a", "c", 3, 4), Some(7))];
    let old = 20.0 / 17.0;
    let due = |space_target, value_bytes| {
        let mut fixture = Fixture::new();
        let tree = with_values(&mut fixture, space(space_target), &specs, |_| value_bytes);
        assert!((amplification(tree.version()) - old).abs() < 0.01);
        tree.is_due(None)
    };
    assert!(!due(1.05, 0), "in place the merge would rewrite nearly seven bytes for each that it frees");
    assert!(due(1.05, 19_000), "it frees three times what it rewrites");
    assert!(!due(1.05, 200), "it rewrites nearly six bytes for each that it frees");
    assert!(!due(old * old, 19_000), "the tree is within its half of the target");
    assert!(due(old + 0.1, 19_000), "it has more than its half, and dead values are not collected at once");
    // Values in level 0 do not count as old: they go down soon.
    let mut fixture = Fixture::new();
    let specs = [((3, "a", "c", 1, 2), Some(0)), ((0, "a", "c", 3, 4), Some(8))];
    let tree = with_values(&mut fixture, space(1.5), &specs, |_| 9_000);
    assert!((amplification(tree.version()) - 20.0 / 19.5).abs() < 0.01);
}

/// A table of level 1 has the same keys as one of level 3, which has values outside.
#[test]
fn guards_above_the_last_level_are_merged_down_for_their_values() {
    let specs = [((3, "a", "c", 1, 2), Some(0)), ((1, "a", "c", 3, 4), Some(0))];
    let due = |above: u64, value_bytes: u64, space_target| {
        let mut fixture = Fixture::new();
        let values = |level| if level == 3 { value_bytes } else { above };
        let mut tree = with_values(&mut fixture, space(space_target), &specs, values);
        let plan = tree.pick(None)?;
        assert_eq!((plan.reason, plan.source, plan.target), (Reason::Space, 1, 2));
        fixture.execute(&mut tree, &plan);
        Some(())
    };
    // All that is below may be old: twice the live data.
    assert!(due(20_000, 20_000, 3.5).is_some());
    assert!(due(20_000, 20_000, 4.5).is_none(), "dead values that are known need their half of the target");
    assert!(due(0, 0, 1.05).is_none(), "without values the tables go down when their guard is full");
    // Of 9,000 bytes that may be old, 2,000 are rewritten: half of them are taken for old.
    assert!(due(8_000, 8_000, 1.7).is_some());
    assert!(due(8_000, 8_000, 1.9).is_none());
    // Tombstones, or small values, over values: all of these may be old.
    assert!(due(0, 20_000, 3.0).is_some());
    // References over values in tables.
    assert!(due(8_000, 0, 1.1).is_some());
    assert!(due(8_000, 0, 1.3).is_none());
}

#[test]
fn versions_that_a_snapshot_keeps_apart_are_not_merged_for_space_again_and_again() {
    let mut fixture = Fixture::new();
    // The lower tables are the output of a merge that kept two versions of each key for the snapshot at 4.
    let mut specs: Vec<_> = ["a", "b", "c", "d", "e"].map(|key| ((3, key, key, 1, 6), Some(0))).to_vec();
    specs.push(((3, "a", "e", 7, 8), Some(0)));
    let one_more = tree(&mut fixture, space(1.5), &specs);
    assert!(!one_more.is_due(Some(4)), "one sixth is newer than the snapshot");
    assert!(one_more.is_due(Some(6)) && one_more.is_due(None));
    specs.push(((3, "a", "e", 9, 10), Some(0)));
    assert!(
        tree(&mut fixture, space(1.5), &specs).is_due(Some(4)),
        "two sevenths are newer than the snapshot"
    );
}

#[test]
fn guards_without_old_versions_are_not_merged_for_space() {
    let mut fixture = Fixture::new();
    // Distinct keys; and tables without sketches.
    for keys in [[Some(0), Some(10), Some(20)], [None, None, None], [Some(0), Some(0), None]] {
        let specs: Vec<_> =
            keys.into_iter().zip(0..).map(|(keys, i)| ((3, "a", "c", 10 * i, 10 * i + 5), keys)).collect();
        let mut tree = tree(&mut fixture, space(1.05), &specs);
        assert!(tree.pick(None).is_none(), "{keys:?}");
    }
}
