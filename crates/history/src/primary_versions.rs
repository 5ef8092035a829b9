//! [`PrimaryVersions`]: the entries of the primary tree as versions, in the order of the historical tree, to be merged with those there.

use crate::stored::split_primary;
use crate::version_key::{TIME_LEN, put_key_of, put_prefix, split};
use base::expiry::without_expiry;
use base::{Cursor, Error, ErrorKind, MAX_SEQ, Result, Seq, Slice, Time, Trailer, same_key};

/// After so many steps past later versions of a key, a seek searches for the version by its sequence number.
const MAX_STEPS: usize = 16;

/// A cursor over entries of the primary tree that shows version keys in place of their keys. Values and trailers are those of the primary
/// tree.
///
/// For each key the order of sequence numbers must be that of times, as it is in a primary tree.
pub struct PrimaryVersions<C> {
    cursor: C,
    user_key: Vec<u8>,
    /// The version key of the current entry.
    key: Vec<u8>,
    /// The cursor stands on an entry that was read.
    valid: bool,
    /// The time of the current entry.
    time: Time,
}

impl<C: Cursor> PrimaryVersions<C> {
    /// `cursor` is over entries of the primary tree.
    pub fn new(cursor: C) -> Self {
        PrimaryVersions { cursor, user_key: Vec::new(), key: Vec::new(), valid: false, time: Time::MIN }
    }

    /// The cursor over the entries.
    pub(crate) fn inner(&self) -> &C {
        &self.cursor
    }

    /// The key of the entry on which the cursor stands, without the time.
    pub(crate) fn user_key(&self) -> &[u8] {
        self.cursor.key()
    }

    /// Called after each move of the cursor. `forward`: by one entry forward.
    fn arrive(&mut self, forward: bool) -> Result<()> {
        self.valid = false;
        if !self.cursor.valid() {
            return Ok(());
        }
        let time = time_of(&self.cursor)?;
        let key = self.cursor.key();
        let before = std::mem::replace(&mut self.time, time);
        if self.key.is_empty() || !same_key(key, &self.user_key) {
            self.user_key.clear();
            self.user_key.extend_from_slice(key);
            self.key.clear();
            put_prefix(&mut self.key, key);
        } else if forward && time > before {
            // A walk that met a later version after an earlier one would seek back, and meet it again.
            let key = Slice::copy_from(key);
            let what = format!("an entry of key {key:?} has a later time than a newer one");
            return Err(Error::new(ErrorKind::Corruption, what));
        } else {
            self.key.truncate(self.key.len() - TIME_LEN);
        }
        self.key.extend_from_slice(&(!time.micros()).to_be_bytes());
        self.valid = true;
        Ok(())
    }

    /// Moves the inner cursor to the first version of `user_key` at or before `time`, and of those at `time` not after `seq`; or to the entry
    /// behind the key.
    fn seek_version(&mut self, user_key: &[u8], time: Time, seq: Seq) -> Result<()> {
        let cursor = &mut self.cursor;
        let is_later = |cursor: &C| -> Result<bool> {
            if !cursor.valid() || !same_key(cursor.key(), user_key) {
                return Ok(false);
            }
            let at = time_of(cursor)?;
            Ok(at > time || at == time && cursor.trailer().seq() > seq)
        };
        cursor.seek(user_key, MAX_SEQ)?;
        // A seek that was put off leaves the cursor unpositioned: this seek is then put off as a whole.
        for _ in 0..MAX_STEPS {
            if !is_later(cursor)? {
                return Ok(());
            }
            cursor.next()?;
        }
        if !is_later(cursor)? {
            return Ok(());
        }
        // Versions from `later` on are later, and those before `other` are not.
        let (mut other, mut later) = (0, cursor.trailer().seq());
        while other < later {
            let middle = other + (later - other) / 2;
            cursor.seek(user_key, middle)?;
            if cursor.would_block() {
                return Ok(());
            }
            match is_later(cursor)? {
                true => later = cursor.trailer().seq(),
                false => other = middle + 1,
            }
        }
        cursor.seek(user_key, later.saturating_sub(1))
    }

    /// Takes `user_key`, which is then known not to be that of the current version key.
    fn begin_seek(&mut self, version_key: &[u8]) -> Result<(Vec<u8>, Time)> {
        self.valid = false;
        self.key.clear();
        let mut user_key = std::mem::take(&mut self.user_key);
        user_key.clear();
        let split = split(version_key).filter(|(prefix, _)| put_key_of(&mut user_key, prefix));
        let (_, time) = split.ok_or_else(|| Error::invalid("a seek to what is no version key"))?;
        Ok((user_key, time))
    }
}

/// The time of the entry of a primary tree.
fn time_of(cursor: &impl Cursor) -> Result<Time> {
    let stored = without_expiry(cursor.trailer(), cursor.value());
    stored.and_then(|(stored, _)| split_primary(stored)).map(|(_, time)| time).ok_or_else(|| {
        Error::new(
            ErrorKind::Corruption,
            format!("the entry of key {:?} has no time", Slice::copy_from(cursor.key())),
        )
    })
}

impl<C: Cursor> Cursor for PrimaryVersions<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.valid = false;
        self.cursor.seek_to_first()?;
        self.arrive(false)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.valid = false;
        self.cursor.seek_to_last()?;
        self.arrive(false)
    }

    /// Cost: that of a seek in the primary tree, and up to 16 steps past later versions of the key; with more of them, up to 56 seeks.
    fn seek(&mut self, version_key: &[u8], seq: Seq) -> Result<()> {
        let (user_key, time) = self.begin_seek(version_key)?;
        let sought = self.seek_version(&user_key, time, seq);
        self.user_key = user_key;
        sought?;
        self.arrive(false)
    }

    fn seek_before(&mut self, version_key: &[u8]) -> Result<()> {
        let (user_key, time) = self.begin_seek(version_key)?;
        let sought = self.seek_version(&user_key, time, MAX_SEQ);
        self.user_key = user_key;
        sought?;
        match self.cursor.valid() {
            _ if self.cursor.would_block() => return Ok(()),
            true => self.cursor.prev()?,
            // To the last entry with this key or one before.
            false => {
                self.user_key.push(0);
                let sought = self.cursor.seek_before(&self.user_key);
                self.user_key.pop();
                sought?;
            }
        }
        self.arrive(false)?;
        // Other threads may have inserted entries between the one found and this one meanwhile.
        while self.valid && &self.key[..] >= version_key {
            self.prev()?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.valid = false;
        self.cursor.next()?;
        self.arrive(true)
    }

    fn prev(&mut self) -> Result<()> {
        self.valid = false;
        self.cursor.prev()?;
        self.arrive(false)
    }

    fn set_nonblocking(&mut self, on: bool) {
        self.cursor.set_nonblocking(on);
    }

    fn would_block(&self) -> bool {
        self.cursor.would_block()
    }

    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn trailer(&self) -> Trailer {
        self.cursor.trailer()
    }

    fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    fn value_slice(&self) -> Slice {
        self.cursor.value_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primary_suffix;
    use crate::test_entries::{Entries, version_key};
    use base::EntryKind;
    use proptest::prelude::*;
    use tree::MergeCursor;

    fn entry(key: &[u8], seq: Seq, micros: u64) -> (Vec<u8>, Trailer, Vec<u8>) {
        let mut value = seq.to_string().into_bytes();
        value.extend_from_slice(&primary_suffix(Time::from_micros(micros)));
        (key.to_vec(), Trailer::new(seq, EntryKind::Put), value)
    }

    /// Entries whose times grow with their sequence numbers, some of them equal, for few keys; and their version keys with the trailers.
    fn versions(steps: &[(u8, u64)]) -> (Entries, Vec<(Vec<u8>, Trailer)>) {
        let (mut entries, mut time) = (Vec::new(), 10);
        for (i, (key, later)) in steps.iter().enumerate() {
            time += later;
            // Keys with zero bytes and such that begin alike.
            let key = [&b"a"[..], &b"a\0"[..], &b"a\0b"[..], &b"b"[..]][usize::from(*key)];
            entries.push((entry(key, 3 * i as u64 + 1, time), time));
        }
        let mut keys: Vec<_> = entries.iter().map(|(e, time)| (version_key(&e.0, *time), e.1)).collect();
        keys.sort_by(|a, b| base::compare(&a.0, a.1, &b.0, b.1));
        (Entries::new(entries.into_iter().map(|(e, _)| e).collect()), keys)
    }

    fn at(cursor: &PrimaryVersions<Entries>) -> Option<(Vec<u8>, Trailer)> {
        cursor.valid().then(|| (cursor.key().to_vec(), cursor.trailer()))
    }

    proptest! {
        #[test]
        fn walks_and_seeks_follow_the_order_of_versions(
            steps in prop::collection::vec((0u8..4, 0u64..3), 0..120),
            seeks in prop::collection::vec((0u8..4, 0u64..200, 0u64..400, any::<bool>()), 1..20),
        ) {
            let (entries, keys) = versions(&steps);
            let mut cursor = PrimaryVersions::new(entries);
            cursor.seek_to_first().unwrap();
            for key in &keys {
                prop_assert_eq!(at(&cursor), Some(key.clone()));
                cursor.next().unwrap();
            }
            prop_assert_eq!(at(&cursor), None);
            cursor.seek_to_last().unwrap();
            for key in keys.iter().rev() {
                prop_assert_eq!(at(&cursor), Some(key.clone()));
                cursor.prev().unwrap();
            }
            prop_assert_eq!(at(&cursor), None);
            for (key, time, seq, before) in seeks {
                let key = version_key([&b"a"[..], &b"a\0"[..], &b"a\0b"[..], &b"c"[..]][usize::from(key)], time);
                let target = Trailer::seek(if before { MAX_SEQ } else { seq });
                let first = keys.partition_point(|e| base::compare(&e.0, e.1, &key, target).is_lt());
                let expected = match before {
                    true => {
                        cursor.seek_before(&key).unwrap();
                        first.checked_sub(1)
                    }
                    false => {
                        cursor.seek(&key, seq).unwrap();
                        Some(first)
                    }
                };
                prop_assert_eq!(at(&cursor), expected.and_then(|i| keys.get(i)).cloned());
                if cursor.valid() {
                    cursor.next().unwrap();
                    prop_assert_eq!(at(&cursor), expected.and_then(|i| keys.get(i + 1)).cloned());
                }
            }
        }
    }

    #[test]
    fn a_seek_among_many_versions_takes_few_steps() {
        let steps: Vec<_> = (0..100_000).map(|_| (0u8, 1u64)).collect();
        let mut cursor = PrimaryVersions::new(versions(&steps).0);
        for time in [11, 500, 60_000, 99_990] {
            (cursor.cursor.seeks, cursor.cursor.steps) = (0, 0);
            cursor.seek(&version_key(b"a", time), MAX_SEQ).unwrap();
            assert_eq!(cursor.key(), version_key(b"a", time));
            let Entries { seeks, steps, .. } = cursor.cursor;
            assert!(seeks <= 22 && steps <= MAX_STEPS, "{seeks} seeks, {steps} steps");
        }
    }

    /// An entry that another thread inserts between the one that a seek finds and the one before it.
    #[test]
    fn a_seek_backward_ends_before_its_key_also_beside_inserts() {
        for others in [vec![entry(b"b", 7, 70)], Vec::new()] {
            let mut entries = Entries::new([vec![entry(b"a", 4, 40)], others].concat());
            entries.arrives = Some(entry(b"b", 9, 90));
            let mut cursor = PrimaryVersions::new(entries);
            cursor.seek_before(&version_key(b"aa", 30)).unwrap();
            assert_eq!(cursor.key(), version_key(b"a", 40));
        }
    }

    #[test]
    fn a_merge_that_turns_stays_before_its_entry_also_beside_inserts() {
        let here = Entries::new(vec![entry(b"a", 4, 40), entry(b"a", 5, 50)]);
        for others in [vec![entry(b"b", 7, 70)], Vec::new()] {
            let mut other = Entries::new(others);
            // With the seek of the turn.
            other.arrives = Some(entry(b"b", 9, 90));
            let mut merge = MergeCursor::new(vec![here.clone(), other], 0);
            merge.seek_to_first().unwrap();
            merge.next().unwrap();
            assert_eq!((merge.key(), merge.trailer().seq()), (&b"a"[..], 4));
            merge.prev().unwrap();
            assert_eq!((merge.key(), merge.trailer().seq()), (&b"a"[..], 5));
            merge.prev().unwrap();
            assert!(!merge.valid());
        }
    }

    #[test]
    fn an_entry_without_a_time_is_an_error() {
        let bare = (b"b".to_vec(), Trailer::new(5, EntryKind::Put), b"1234567".to_vec());
        let mut cursor = PrimaryVersions::new(Entries::new(vec![entry(b"a", 3, 30), bare]));
        cursor.seek_to_first().unwrap();
        assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Corruption);
        assert!(!cursor.valid());
        assert!(cursor.seek(b"short", 5).is_err() && !cursor.valid());
        cursor.seek(&version_key(b"a", 40), MAX_SEQ).unwrap();
        assert_eq!(cursor.trailer().seq(), 3);
    }
}
