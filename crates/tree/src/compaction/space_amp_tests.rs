//! Compactions for space, as cases. A table has 1000 bytes and 10 entries.

use super::space_amp::amplification;
use crate::test_support::{Fixture, TableSpec, inputs, tree_options};
use crate::{Reason, Sketch, Tree, TreeOptions, VersionEdit};

/// A tree of these tables. Each table with a number has ten keys, numbered from it on; the others have no sketch.
fn tree(fixture: &mut Fixture, options: TreeOptions, specs: &[(TableSpec, Option<u64>)]) -> Tree {
    let mut tree = fixture.tree(options, &[(3, "m")], &[]);
    let mut edit = VersionEdit::default();
    for (table, keys) in specs {
        let meta = fixture.meta(*table);
        if let Some(first) = keys {
            let mut sketch = Sketch::default();
            (*first..first + 10).for_each(|key| sketch.add(base::hash(&key.to_le_bytes())));
            edit.sketches.push((meta.number, sketch.finish().unwrap()));
        }
        edit.added.push((table.0, meta));
    }
    tree.apply(&edit, &mut fixture.open()).unwrap();
    tree
}

fn space(space_target: f64) -> TreeOptions {
    TreeOptions { space_target, max_tables_per_guard: 8, ..tree_options() }
}

#[test]
fn guards_with_many_older_versions_are_merged_when_the_tree_has_too_many() {
    let mut fixture = Fixture::new();
    // The first guard has the same ten keys three times. The second has ten keys twice, with two of them changed.
    let specs = [
        ((3, "a", "c", 1, 2), Some(0)),
        ((3, "a", "c", 3, 4), Some(0)),
        ((3, "a", "c", 5, 6), Some(0)),
        ((3, "m", "z", 1, 2), Some(100)),
        ((3, "m", "z", 3, 4), Some(102)),
    ];
    let mut tree = tree(&mut fixture, space(1.5), &specs);
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
