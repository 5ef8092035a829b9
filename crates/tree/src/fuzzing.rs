//! The decoder of edits, for the fuzz targets of `crates/fuzz-targets`: it takes arbitrary bytes and checks the
//! properties of an accepted edit. Only those targets enable the feature `fuzzing`; this is not part of the public
//! library.

use crate::DatabaseEdit;
use base::limits::{MAX_KEY_LEN, MAX_KEYSPACE_NAME_LEN, MAX_LEVELS};

/// Decodes an edit of the manifest. Returns whether it was accepted.
pub fn edit(data: &[u8]) -> bool {
    let Some(edit) = DatabaseEdit::decode(data) else { return false };
    for keyspace in edit.created.iter().chain(&edit.altered) {
        assert!(keyspace.name.len() <= MAX_KEYSPACE_NAME_LEN && (1..=MAX_LEVELS).contains(&keyspace.levels));
    }
    for (_, tree) in &edit.trees {
        for (level, meta) in &tree.added {
            assert!(
                *level <= MAX_LEVELS && meta.smallest <= meta.largest && meta.largest.len() <= MAX_KEY_LEN
            );
            assert!(meta.min_seq <= meta.max_seq && meta.max_seq <= base::MAX_SEQ);
            assert!(meta.cleared_seq <= base::MAX_SEQ);
        }
        for range in tree.range_tombstones_added.iter().chain(&tree.range_tombstones_removed) {
            assert!(!range.is_empty() && range.seq <= base::MAX_SEQ && range.from.len() <= MAX_KEY_LEN);
            assert!(range.to.as_ref().is_none_or(|to| to.len() <= MAX_KEY_LEN));
        }
        for (level, key) in tree.guards_added.iter().chain(&tree.guards_removed) {
            assert!((1..=MAX_LEVELS).contains(level) && key.len() <= MAX_KEY_LEN);
        }
    }
    let encoded = edit.encode();
    assert!(encoded.len() <= data.len(), "the canonical encoding is the shortest");
    let again = DatabaseEdit::decode(&encoded).expect("decodes its own encoding");
    assert_eq!(again, edit);
    assert_eq!(again.encode(), encoded);
    true
}
