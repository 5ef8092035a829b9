//! [`Evictions`]: makes versions of the historical tree of the entries that jobs of the primary tree drop.

use crate::stored::{Ended, put_historical, split_primary};
use crate::version_key::{TIME_LEN, put_prefix};
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, MAX_SEQ, RangeSet, Result, Slice, Time, Trailer, same_key};
use tree::EvictionSink;

/// Passes the entries that a flush or compaction of the primary tree drops to `out`, as entries of the historical tree and in its order:
/// version key, trailer, value and suffix.
///
/// A version ends at the time of the next one that the job has, which is not always the next one that exists, or of a range tombstone before
/// that. Of the writes to a key at one
/// time only the last is a version. A delete that is dropped because nothing older is left is the newest
/// version of its key, and has no end.
pub struct Evictions<'a, F> {
    out: F,
    /// Range tombstones of the tree, those under which the job drops entries among them.
    ranges: &'a RangeSet,
    now: Time,
    key: Vec<u8>,
    /// The part of the version key before the time, and the time of the last version that was passed on.
    version_key: Vec<u8>,
    /// The time of the last version of the key; `None` before the first one of all.
    next: Option<Time>,
    stored: Vec<u8>,
}

impl<'a, F: FnMut(&[u8], Trailer, &[u8]) -> Result<()>> Evictions<'a, F> {
    /// Passes what is evicted to `out`. `ranges`: the range tombstones of the tree that may hide entries of the job. `now`: not before any
    /// of their times.
    pub fn new(ranges: &'a RangeSet, now: Time, out: F) -> Self {
        Evictions {
            out,
            ranges,
            now,
            key: Vec::new(),
            version_key: Vec::new(),
            next: None,
            stored: Vec::new(),
        }
    }

    fn evict(&mut self, trailer: Trailer, value: &[u8], time: Time, end: Option<(Time, bool)>) -> Result<()> {
        self.version_key.truncate(self.version_key.len() - TIME_LEN);
        self.version_key.extend_from_slice(&(!time.micros()).to_be_bytes());
        self.stored.clear();
        self.stored.extend_from_slice(value);
        let ended = match end {
            Some((until, by_range)) => Ended::at(until, trailer.is_delete()).by_range(by_range),
            None => Ended::open(self.now.max(time)),
        };
        put_historical(&mut self.stored, time, ended);
        let kind = if trailer.is_reference() { EntryKind::Reference } else { EntryKind::Put };
        (self.out)(&self.version_key, Trailer::new(trailer.seq(), kind), &self.stored)
    }
}

impl<F: FnMut(&[u8], Trailer, &[u8]) -> Result<()>> EvictionSink for Evictions<'_, F> {
    fn see(&mut self, key: &[u8], trailer: Trailer, stored: &[u8], kept: bool) -> Result<bool> {
        let wrong = |kind, what: &str| {
            let key = Slice::copy_from(key);
            Err(Error::new(kind, format!("the entry {} of key {key:?} {what}", trailer.seq())))
        };
        let Some((value, time)) = split_primary(stored) else {
            return wrong(ErrorKind::Corruption, "has no time");
        };
        if self.next.is_none() || !same_key(key, &self.key) {
            self.next = None;
            self.key.clear();
            self.key.extend_from_slice(key);
            self.version_key.clear();
            put_prefix(&mut self.version_key, key);
            self.version_key.extend_from_slice(&[0; TIME_LEN]);
        }
        if self.next.is_some_and(|next| next < time) {
            return wrong(ErrorKind::Corruption, "has a later time than a newer one");
        }
        let after = match planted(Bug::EndWithNewestRange) {
            true => self.ranges.newest(key, MAX_SEQ).max(trailer.seq() + 1) - 1,
            false => trailer.seq(),
        };
        let range = match kept || trailer.is_delete() || self.ranges.is_empty() {
            true => None,
            false => self.ranges.oldest_after(key, after, MAX_SEQ).map(|range| range.time),
        };
        // A delete may be dropped although a reader sees it, and not the later write at its time: also one by a range tombstone of that time.
        let is_delete = trailer.is_delete() || range == Some(time);
        if !kept && (self.next != Some(time) || is_delete) {
            // A version at the time of a range delete replaces it, but not for a reader that does not see that version.
            let by_range = range.is_some_and(|range| self.next.is_none_or(|next| range <= next));
            let end = self.next.into_iter().chain(range).min().map(|end| (end, by_range));
            // The job goes on without the entry, so that an error must end it rather than lose a version.
            if end.is_none() && !trailer.is_delete() {
                return wrong(ErrorKind::Io, "is the newest and would be dropped");
            }
            if !(planted(Bug::LoseEvictedVersion) && trailer.seq().is_multiple_of(64)) {
                self.evict(trailer, value, time, end)?;
            }
        }
        self.next = Some(time);
        Ok(kept || planted(Bug::KeepEvictedVersion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{primary_suffix, split_historical};
    use crate::version_key::{put_key_of, split};
    use base::{RangeTombstone, Seq};

    /// An entry: key, sequence number, time, kind, and whether it is kept.
    type Seen = (&'static str, Seq, u64, EntryKind, bool);

    /// What is passed on: key, sequence number, time, end, whether it is a delete, whether a range delete ended it, value.
    type Passed = (String, Seq, u64, Option<u64>, bool, bool, String);

    fn passed(entries: &[Seen], ranges: Vec<RangeTombstone>) -> (Vec<Passed>, Option<Error>) {
        let (mut passed, mut last) = (Vec::new(), None::<(Vec<u8>, Trailer)>);
        let out = |key: &[u8], trailer: Trailer, stored: &[u8]| {
            assert!(last.as_ref().is_none_or(|last| base::compare(&last.0, last.1, key, trailer).is_lt()));
            last = Some((key.to_vec(), trailer));
            let (prefix, time) = split(key).unwrap();
            let mut user_key = Vec::new();
            assert!(put_key_of(&mut user_key, prefix) && !trailer.is_delete());
            let (value, ended) = split_historical(stored, time).unwrap();
            assert_eq!(trailer.is_reference(), value.starts_with(b"reference"));
            let until = (ended.until < Time::MAX).then_some(ended.until.micros());
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let Ended { is_delete, by_range, .. } = ended;
            let (key, value) = (text(&user_key), text(value));
            passed.push((key, trailer.seq(), time.micros(), until, is_delete, by_range, value));
            Ok(())
        };
        let ranges: RangeSet = ranges.into_iter().collect();
        let mut evictions = Evictions::new(&ranges, Time::from_micros(1000), out);
        let see = |&(key, seq, micros, kind, kept): &Seen| {
            let value = match kind {
                EntryKind::Delete => String::new(),
                EntryKind::Reference => format!("reference {seq}"),
                _ => format!("value {seq}"),
            };
            let mut stored = value.into_bytes();
            stored.extend_from_slice(&primary_suffix(Time::from_micros(micros)));
            evictions.see(key.as_bytes(), Trailer::new(seq, kind), &stored, kept).err()
        };
        let error = entries.iter().find_map(see);
        (passed, error)
    }

    #[test]
    fn older_versions_are_passed_on_with_their_ends() {
        use EntryKind::{Delete, Put, Reference};
        let entries: [Seen; 8] = [
            ("a", 9, 90, Put, true),
            ("a", 7, 70, Reference, false),
            ("a", 5, 50, Delete, false),
            // Kept for a snapshot: the next one ends there all the same.
            ("a", 4, 40, Put, true),
            ("a", 2, 20, Put, false),
            ("a\0", 8, 80, Delete, false),
            ("a\0", 3, 30, Put, false),
            ("b", 1, 10, Put, true),
        ];
        let version = |key: &str, seq, time, until, is_delete, value: &str| {
            (key.to_owned(), seq, time, until, is_delete, false, value.to_owned())
        };
        let expected = vec![
            version("a", 7, 70, Some(90), false, "reference 7"),
            version("a", 5, 50, Some(70), true, ""),
            version("a", 2, 20, Some(40), false, "value 2"),
            version("a\0", 8, 80, None, true, ""),
            version("a\0", 3, 30, Some(80), false, "value 3"),
        ];
        let (passed, error) = passed(&entries, Vec::new());
        assert!(passed == expected && error.is_none(), "{passed:?} {error:?}");
    }

    #[test]
    fn a_version_under_range_tombstones_ends_with_the_first_of_them() {
        use EntryKind::{Delete, Put};
        let range = |from: &str, to: &str, seq, time| {
            RangeTombstone::new(from.as_bytes(), to.as_bytes(), seq, Time::from_micros(time))
        };
        let ranges = vec![range("a", "c", 6, 60), range("b", "", 8, 80), range("", "", 11, 110)];
        let entries: [Seen; 8] = [
            ("a", 12, 120, Put, true),
            ("a", 7, 70, Put, false),
            ("a", 5, 50, Put, false),
            ("a", 4, 40, Put, false),
            ("b", 10, 100, Delete, false),
            ("b", 7, 70, Put, false),
            ("b", 3, 30, Put, false),
            ("d", 9, 90, Put, false),
        ];
        let (passed, error) = passed(&entries, ranges);
        let ends: Vec<_> = passed.iter().map(|p| (&p.0[..], p.1, p.3, p.5)).collect();
        let expected = [
            ("a", 7, Some(110), true),
            ("a", 5, Some(60), true),
            ("a", 4, Some(50), false),
            ("b", 10, None, false),
            ("b", 7, Some(80), true),
            ("b", 3, Some(60), true),
            ("d", 9, Some(110), true),
        ];
        assert!(ends == expected && error.is_none(), "{ends:?} {error:?}");
    }

    #[test]
    fn of_the_writes_of_one_batch_the_last_is_the_version() {
        use EntryKind::{Delete, Put};
        let (passed, error) = passed(
            &[
                ("", 9, 90, Put, true),
                ("", 8, 90, Delete, false),
                ("", 7, 90, Put, false),
                ("", 6, 60, Delete, false),
                ("", 5, 60, Put, false),
            ],
            Vec::new(),
        );
        let delete = |seq, time| (String::new(), seq, time, Some(90), true, false, String::new());
        assert_eq!(passed, [delete(8, 90), delete(6, 60)], "a delete goes along, below the later write");
        assert!(error.is_none(), "{error:?}");
    }

    #[test]
    fn what_must_not_happen_ends_the_job() {
        use EntryKind::Put;
        let kind = |entries: &[Seen]| passed(entries, Vec::new()).1.map(|e| e.kind());
        assert_eq!(kind(&[("a", 9, 90, Put, true), ("b", 5, 50, Put, false)]), Some(ErrorKind::Io));
        let out_of_order: [Seen; 2] = [("a", 9, 90, Put, true), ("a", 5, 91, Put, false)];
        assert_eq!(kind(&out_of_order), Some(ErrorKind::Corruption));
        let ranges = RangeSet::default();
        let mut evictions = Evictions::new(&ranges, Time::MIN, |_: &[u8], _, _: &[u8]| Ok(()));
        let error = evictions.see(b"k", Trailer::new(1, Put), b"1234567", true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}
