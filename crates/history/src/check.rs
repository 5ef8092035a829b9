//! [`check_versions`]: verifies that the entries of both trees are versions that fit together.

use crate::stored::{split_historical, split_primary};
use crate::version_key::{put_key_of, split};
use crate::walk::{PRIMARY, merge_of};
use base::expiry::without_expiry;
use base::{Cursor, MAX_SEQ, RangeSet, Result, Seq, Slice, Time};

/// The cursors over all entries of the tables of a keyspace with history, and what is known of them.
pub struct BothTrees<'a, C> {
    /// Over the primary tree.
    pub primary: C,
    /// Over the historical tree.
    pub historical: C,
    /// The range tombstones of the primary tree.
    pub ranges: &'a RangeSet,
    /// All entries of the primary keyspace up to this sequence number are in tables, or were.
    pub flushed: Seq,
}

/// The versions of one key on the way through both trees: the latest first.
#[derive(Default)]
struct OfKey {
    prefix: Vec<u8>,
    last: Option<(Time, Seq)>,
    /// The latest version in the historical tree that is not later than the flushes of the primary tree.
    older: Option<Time>,
    /// An entry of the primary tree was met.
    has_newest: bool,
}

/// Walks over all entries of both trees, and reports each that breaks an invariant: an entry is a version of a key; no version is there
/// twice; in the primary tree, newer entries of a key have later times; and if it has a value of a key, that is the newest version.
///
/// A delete may stay there under a range tombstone that hid later values, and be left when both are gone from the primary tree.
/// Of a key that a range tombstone hides, the primary tree may still have older versions than the historical tree, because a compaction evicts
/// what it meets. And what is late may be flushed before the newer versions that made it late: only sequence numbers that both trees have
/// flushed are compared.
///
/// # Errors
/// Those of the cursors, and of `go_on`, which is called before each entry.
pub fn check_versions<C: Cursor>(
    trees: BothTrees<'_, C>,
    go_on: &mut dyn FnMut() -> Result<()>,
    problem: &mut dyn FnMut(String),
) -> Result<()> {
    let mut merge = merge_of(trees.primary, trees.historical);
    let (mut of_key, mut user_key) = (OfKey::default(), Vec::new());
    merge.seek_to_first()?;
    while merge.valid() {
        go_on()?;
        let (trailer, is_primary) = (merge.trailer(), merge.current() == PRIMARY);
        let split = split(merge.key()).filter(|(prefix, time)| {
            let Some((stored, expiry)) = without_expiry(trailer, merge.value()) else { return false };
            user_key.clear();
            put_key_of(&mut user_key, prefix)
                && match is_primary {
                    true => split_primary(stored).is_some(),
                    false => split_historical(stored, *time).is_some_and(|(_, ended)| {
                        ended.is_delete || ended.until < Time::MAX || expiry.is_some()
                    }),
                }
        });
        let Some((prefix, time)) = split else {
            problem(format!("the entry {:?} is no version of a key", Slice::copy_from(merge.key())));
            merge.next()?;
            continue;
        };
        if of_key.prefix != prefix {
            of_key.prefix.clear();
            of_key.prefix.extend_from_slice(prefix);
            of_key = OfKey { prefix: of_key.prefix, ..OfKey::default() };
        }
        let named = || format!("key {:?}, version at {} us", Slice::copy_from(&user_key), time.micros());
        let version = (time, trailer.seq());
        if of_key.last.replace(version) == Some(version) {
            problem(format!("{}: it is there twice", named()));
        }
        if !is_primary {
            if trailer.seq() <= trees.flushed {
                of_key.older = of_key.older.or(Some(time));
            }
        } else if !std::mem::replace(&mut of_key.has_newest, true)
            && !trailer.is_delete()
            && let Some(older) = of_key.older.filter(|older| *older > time)
            && trees.ranges.newest(&user_key, MAX_SEQ) <= trailer.seq()
        {
            let older = older.micros();
            problem(format!("{}: it counts as the newest, but there is one at {older} us", named()));
        }
        merge.next()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{Ended, primary_suffix, put_historical};
    use crate::test_entries::{Entries, version_key};
    use base::{EntryKind, RangeTombstone, Trailer};

    type Entry = (Vec<u8>, Trailer, Vec<u8>);

    fn newest(key: &[u8], micros: u64, seq: Seq) -> Entry {
        (key.to_vec(), Trailer::new(seq, EntryKind::Put), primary_suffix(Time::from_micros(micros)).to_vec())
    }

    fn older(key: &[u8], micros: u64, seq: Seq) -> Entry {
        let mut stored = Vec::new();
        let time = Time::from_micros(micros);
        put_historical(&mut stored, time, Ended::at(Time::from_micros(micros + 1), false));
        (version_key(key, micros), Trailer::new(seq, EntryKind::Put), stored)
    }

    fn check(primary: &[Entry], historical: &[Entry], ranges: &RangeSet) -> Vec<String> {
        let mut found = Vec::new();
        let trees = BothTrees {
            primary: Entries::new(primary.to_vec()),
            historical: Entries::new(historical.to_vec()),
            ranges,
            flushed: 10,
        };
        let walked = check_versions(trees, &mut || Ok(()), &mut |what| found.push(what));
        found.extend(walked.err().map(|e| e.to_string()));
        found
    }

    #[test]
    fn what_breaks_an_invariant_is_named() {
        let none = RangeSet::default();
        let sound = [newest(b"a", 5, 3), newest(b"a", 4, 2), newest(b"b", 9, 9), newest(b"\0", 1, 8)];
        let history = [older(b"a", 4, 1), older(b"a", 3, 4), older(b"c", 7, 5), older(b"\0", 1, 7)];
        assert_eq!(check(&sound, &history, &none), Vec::<String>::new());
        let found =
            |entry: &Entry| check(&sound, &[&history[..], std::slice::from_ref(entry)].concat(), &none);
        let later = found(&older(b"a", 6, 10));
        assert!(later.len() == 1 && later[0].contains("at 5 us: it counts as the newest"), "{later:?}");
        assert!(found(&older(b"a", 6, 11)).is_empty(), "the newest may not be flushed yet");
        let twice = found(&older(b"a", 4, 2));
        assert!(twice.len() == 1 && twice[0].contains("at 4 us: it is there twice"), "{twice:?}");
        let twice = found(&history[1]);
        assert!(twice.len() == 1 && twice[0].contains("at 3 us: it is there twice"), "{twice:?}");
        let malformed = found(&(b"x".to_vec(), Trailer::new(1, EntryKind::Put), Vec::new()));
        assert!(malformed.len() == 1 && malformed[0].contains("no version"), "{malformed:?}");
        let order = check(&[newest(b"a", 5, 3), newest(b"a", 6, 2)], &history, &none);
        assert!(order.len() == 1 && order[0].contains("later time"), "{order:?}");
        let no_time = check(&[(b"a".to_vec(), Trailer::new(1, EntryKind::Put), vec![0; 7])], &[], &none);
        assert!(no_time.len() == 1 && no_time[0].contains("no time"), "{no_time:?}");
    }

    #[test]
    fn a_delete_may_be_left_of_what_a_range_tombstone_hid() {
        let none = RangeSet::default();
        for is_delete in [true, false] {
            let mut left = newest(b"a", 3, 1);
            left.1 = if is_delete { Trailer::new(1, EntryKind::Delete) } else { left.1 };
            assert_eq!(check(&[left], &[older(b"a", 6, 5)], &none).is_empty(), is_delete);
        }
    }

    #[test]
    fn hidden_keys_may_have_older_versions_left() {
        let ranges = RangeSet::default().with(RangeTombstone::new(b"a", b"b", 8, Time::from_micros(7)));
        let history = [older(b"a", 6, 5), older(b"b", 6, 5)];
        assert_eq!(check(&[newest(b"a", 3, 1)], &history, &ranges), Vec::<String>::new());
        assert_eq!(check(&[newest(b"a", 3, 9)], &history, &ranges).len(), 1);
        assert_eq!(check(&[newest(b"b", 3, 1)], &history, &ranges).len(), 1);
    }
}
