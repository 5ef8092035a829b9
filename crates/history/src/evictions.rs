//! [`Evictions`]: makes versions of the historical tree of the entries that jobs of the primary tree drop.

use crate::stored::{Ended, put_historical, split_primary};
use crate::version_key::{TIME_LEN, put_prefix};
use base::expiry::{expiry_bytes, without_expiry};
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, MAX_SEQ, RangeSet, Result, Slice, Time, Trailer, same_key};
use tree::EvictionSink;

/// Passes the entries that a flush or compaction of the primary tree drops to `out`, as entries of the historical tree and in its order:
/// version key, trailer, value and suffix.
///
/// A version ends at the time of the next one that the job has, which is not always the next one that exists, or of a range tombstone before
/// that. Of the writes to a key at one
/// time only the last is a version. A delete that is dropped because nothing older is left is the newest
/// version of its key, and has no end; nor has a newest version that has expired. Like a delete, such a version goes only when nothing older
/// of its key is left: then what ends there has met it.
pub struct Evictions<'a, F> {
    out: F,
    /// Range tombstones of the tree, those under which the job drops entries among them.
    ranges: &'a RangeSet,
    /// All of the keyspace, those in memtables among them.
    recent: &'a RangeSet,
    now: Time,
    key: Vec<u8>,
    /// The part of the version key before the time, and the time of the last version that was passed on.
    version_key: Vec<u8>,
    /// The time of the last version of the key; `None` before the first one of all.
    next: Option<Time>,
    stored: Vec<u8>,
}

/// A version that is passed on.
struct Evicted<'a> {
    trailer: Trailer,
    value: &'a [u8],
    expiry: Option<Time>,
    time: Time,
    /// When it ended, and whether by a range delete.
    end: Option<(Time, bool)>,
}

impl<'a, F: FnMut(&[u8], Trailer, &[u8]) -> Result<()>> Evictions<'a, F> {
    /// Passes what is evicted to `out`. `ranges`: the range tombstones of the tree that may hide entries of the job. `recent`: all that are
    /// visible, as of a moment after that at which entries were found to have expired. `now`: not before any of their times.
    pub fn new(ranges: &'a RangeSet, recent: &'a RangeSet, now: Time, out: F) -> Self {
        Evictions {
            out,
            ranges,
            recent,
            now,
            key: Vec::new(),
            version_key: Vec::new(),
            next: None,
            stored: Vec::new(),
        }
    }

    fn evict(&mut self, version: Evicted<'_>) -> Result<()> {
        let Evicted { trailer, value, expiry, time, end } = version;
        self.version_key.truncate(self.version_key.len() - TIME_LEN);
        self.version_key.extend_from_slice(&(!time.micros()).to_be_bytes());
        self.stored.clear();
        self.stored.extend_from_slice(value);
        let ended = match end {
            Some((until, by_range)) => Ended::at(until, trailer.is_delete()).by_range(by_range),
            // As of times before its expiry it is there.
            None => Ended::open(self.now.max(time).max(expiry.unwrap_or_default()), trailer.is_delete()),
        };
        put_historical(&mut self.stored, time, ended);
        self.stored.extend_from_slice(expiry.map(expiry_bytes).as_ref().map_or(&[], |bytes| &bytes[..]));
        let kind = match (trailer.is_reference(), expiry.is_some()) {
            (false, false) => EntryKind::Put,
            (true, false) => EntryKind::Reference,
            (false, true) => EntryKind::ExpiringPut,
            (true, true) => EntryKind::ExpiringReference,
        };
        (self.out)(&self.version_key, Trailer::new(trailer.seq(), kind), &self.stored)
    }
}

impl<F: FnMut(&[u8], Trailer, &[u8]) -> Result<()>> EvictionSink for Evictions<'_, F> {
    fn see(&mut self, key: &[u8], trailer: Trailer, stored: &[u8], kept: bool) -> Result<bool> {
        self.see_entry(key, trailer, stored, kept, false)?;
        Ok(kept || planted(Bug::KeepEvictedVersion))
    }

    /// If nothing newer is known of the key: a reader that does not see that, and sees the version as of an earlier time, must see its true end;
    /// and a range delete in a memtable may be lost in a power cut. Such a version goes when no reader sees it, like one without an expiry.
    fn takes_expired(&self, key: &[u8], trailer: Trailer) -> bool {
        let has_newer = self.next.is_some() && same_key(key, &self.key);
        let is_deleted =
            || self.recent.newest(key, MAX_SEQ).max(self.ranges.newest(key, MAX_SEQ)) > trailer.seq();
        !has_newer && !is_deleted()
    }

    fn take_expired(&mut self, key: &[u8], trailer: Trailer, stored: &[u8]) -> Result<()> {
        self.see_entry(key, trailer, stored, false, true)
    }
}

impl<F: FnMut(&[u8], Trailer, &[u8]) -> Result<()>> Evictions<'_, F> {
    /// Passes the entry on if it is not `kept`.
    fn see_entry(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        stored: &[u8],
        kept: bool,
        expired: bool,
    ) -> Result<()> {
        let wrong = |kind, what: &str| {
            let key = Slice::copy_from(key);
            Err(Error::new(kind, format!("the entry {} of key {key:?} {what}", trailer.seq())))
        };
        let parts = without_expiry(trailer, stored)
            .and_then(|(stored, expiry)| split_primary(stored).map(|(value, time)| (value, time, expiry)));
        let Some((value, time, expiry)) = parts else {
            return wrong(ErrorKind::Corruption, "has no time, or no expiry");
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
        // A range delete does nothing to what has expired before.
        let (hidden, range) =
            (range.is_some(), range.filter(|range| expiry.is_none_or(|expiry| *range < expiry)));
        // A delete may be dropped although a reader sees it, and not the later write at its time: also one by a range tombstone of that time.
        let is_delete = trailer.is_delete() || range == Some(time);
        if !kept && (self.next != Some(time) || is_delete) {
            // A version at the time of a range delete replaces it, but not for a reader that does not see that version.
            let by_range = range.is_some_and(|range| self.next.is_none_or(|next| range <= next));
            let end = self.next.into_iter().chain(range).min().map(|end| (end, by_range));
            // The job goes on without the entry, so that an error must end it rather than lose a version.
            if end.is_none() && !trailer.is_delete() && !expired && !hidden {
                return wrong(ErrorKind::Io, "is the newest and would be dropped");
            }
            if !(planted(Bug::LoseEvictedVersion) && trailer.seq().is_multiple_of(64)) {
                self.evict(Evicted { trailer, value, expiry, time, end })?;
            }
        }
        self.next = Some(time);
        Ok(())
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
        let mut evictions = Evictions::new(&ranges, &ranges, Time::from_micros(1000), out);
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

    /// What is passed on of entries with an expiry: trailer, time, how it ended, expiry.
    type PassedExpiring = (Trailer, u64, Ended, u64);

    /// Entries of the key `k`: sequence number, time, expiry, and whether it is kept or, if it is `None`, has expired and is taken.
    fn passed_expiring(
        entries: &[(Seq, u64, Option<u64>, Option<bool>)],
        ranges: &RangeSet,
    ) -> Result<Vec<PassedExpiring>> {
        let mut passed = Vec::new();
        let out = |key: &[u8], trailer: Trailer, stored: &[u8]| {
            let (_, time) = split(key).unwrap();
            let (stored, expiry) = without_expiry(trailer, stored).unwrap();
            let (value, ended) = split_historical(stored, time).unwrap();
            assert_eq!(value, b"value");
            let expiry = expiry.map_or(0, Time::micros);
            passed.push((trailer, time.micros(), ended, expiry));
            Ok(())
        };
        let mut evictions = Evictions::new(ranges, ranges, Time::from_micros(1000), out);
        for &(seq, time, expiry, kept) in entries {
            let mut stored = [&b"value"[..], &primary_suffix(Time::from_micros(time))].concat();
            let kind = match expiry {
                None => EntryKind::Put,
                Some(expiry) => {
                    stored.extend_from_slice(&expiry_bytes(Time::from_micros(expiry)));
                    if seq % 2 == 0 { EntryKind::ExpiringReference } else { EntryKind::ExpiringPut }
                }
            };
            let trailer = Trailer::new(seq, kind);
            match kept {
                Some(kept) => assert_eq!(evictions.see(b"k", trailer, &stored, kept)?, kept),
                None => {
                    assert!(evictions.takes_expired(b"k", trailer));
                    evictions.take_expired(b"k", trailer, &stored)?;
                }
            }
        }
        Ok(passed)
    }

    #[test]
    fn a_version_that_has_expired_goes_without_an_end_and_those_before_it_end_with_it() {
        use EntryKind::{ExpiringPut, ExpiringReference};
        let none = RangeSet::default();
        let at = |micros| Ended::at(Time::from_micros(micros), false);
        let open = Ended::open(Time::from_micros(1000), false);
        let taken = [(9, 90, Some(95), None), (8, 80, Some(85), Some(false)), (5, 50, None, Some(false))];
        let expected = [
            (Trailer::new(9, ExpiringPut), 90, open, 95),
            // After its expiry: queries take the earlier one.
            (Trailer::new(8, ExpiringReference), 80, at(90), 85),
            (Trailer::new(5, EntryKind::Put), 50, at(80), 0),
        ];
        assert_eq!(passed_expiring(&taken, &none).unwrap(), expected);
        // Without being taken it is not dropped: it is the newest.
        let error = passed_expiring(&[(9, 90, Some(95), Some(false))], &none).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
    }

    #[test]
    fn a_range_delete_ends_what_had_not_expired() {
        let delete = |micros| RangeTombstone::new(b"", b"", 9, Time::from_micros(micros));
        let range = |micros| RangeSet::default().with(delete(micros));
        let of = |expiry, range: &RangeSet| {
            let passed = passed_expiring(&[(5, 50, Some(expiry), Some(false))], range).unwrap();
            (passed[0].2.until.micros(), passed[0].2.by_range)
        };
        assert_eq!(of(96, &range(95)), (95, true));
        let open = (Time::MAX.micros(), false);
        assert_eq!((of(95, &range(95)), of(94, &range(95))), (open, open));
        // As of times before its expiry queries find it, and retention keeps it until then.
        let to_come = passed_expiring(&[(5, 50, Some(1500), Some(false))], &range(1600)).unwrap();
        assert_eq!(to_come[0].2.holds.micros(), 1500);
    }

    #[test]
    fn what_has_expired_is_taken_only_where_nothing_newer_is_known() {
        let none = RangeSet::default();
        let covers = |seq| none.with(RangeTombstone::new(b"a", b"b", seq, Time::from_micros(seq)));
        let takes = |ranges: &RangeSet, recent: &RangeSet, before: Option<(&[u8], bool)>| {
            let mut evictions = Evictions::new(ranges, recent, Time::MIN, |_: &[u8], _, _: &[u8]| Ok(()));
            if let Some((key, kept)) = before {
                let stored = primary_suffix(Time::from_micros(90));
                let trailer = Trailer::new(9, if kept { EntryKind::Put } else { EntryKind::Delete });
                evictions.see(key, trailer, &stored, kept).unwrap();
            }
            evictions.takes_expired(b"a1", Trailer::new(5, EntryKind::ExpiringPut))
        };
        assert!(takes(&none, &none, None) && takes(&none, &none, Some((b"a0", true))));
        assert!(!takes(&none, &none, Some((b"a1", true))) && !takes(&none, &none, Some((b"a1", false))));
        assert!(takes(&covers(4), &covers(4), None));
        assert!(!takes(&covers(6), &none, None) && !takes(&none, &covers(6), None));
    }

    #[test]
    fn what_must_not_happen_ends_the_job() {
        use EntryKind::Put;
        let kind = |entries: &[Seen]| passed(entries, Vec::new()).1.map(|e| e.kind());
        assert_eq!(kind(&[("a", 9, 90, Put, true), ("b", 5, 50, Put, false)]), Some(ErrorKind::Io));
        let out_of_order: [Seen; 2] = [("a", 9, 90, Put, true), ("a", 5, 91, Put, false)];
        assert_eq!(kind(&out_of_order), Some(ErrorKind::Corruption));
        let ranges = RangeSet::default();
        let mut evictions = Evictions::new(&ranges, &ranges, Time::MIN, |_: &[u8], _, _: &[u8]| Ok(()));
        let error = evictions.see(b"k", Trailer::new(1, Put), b"1234567", true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}
