//! The model: a map from keys to times to values.

use cairn::{EntryAt, Slice, Time, Version};
use std::collections::BTreeMap;

/// What was written to each key at each time.
#[derive(Clone, Default)]
pub struct Model {
    /// By key and time.
    pub versions: BTreeMap<Vec<u8>, BTreeMap<Time, Written>>,
    /// What a later write to the same key at the same time replaced.
    pub replaced: Vec<(Vec<u8>, Time, Written)>,
    /// The range deletes, whether a key was there or not.
    pub ranges: Vec<(Vec<u8>, Vec<u8>, Time)>,
    /// The latest time of all.
    pub last: Time,
    /// By key: an earlier retention may have removed the version of this time, and those before it.
    pub forgotten: BTreeMap<Vec<u8>, Time>,
    /// Whether puts expire. Then the clock is never behind the last time: as of times after the clock, what will expire has expired.
    pub expires: bool,
    /// The time of a reader that begins now: what expires by then has expired.
    pub now: Time,
    /// What was the newest before this time may have been forgotten because of its age: late writes from before may be refused.
    pub forgotten_until: Time,
}

/// What a version is.
#[derive(Clone, PartialEq)]
pub enum Written {
    /// A put.
    Value(Vec<u8>),
    /// A put that expires at this time. One that had expired when it was written is a delete, once that time has come.
    Expiring(Vec<u8>, Time),
    /// A delete.
    Deleted,
    /// By a range delete: that is no version where a late delete came before it.
    DeletedByRange,
}

pub(super) fn slice(bytes: &[u8]) -> Slice {
    Slice::copy_from(bytes)
}

impl Model {
    /// Sets the clock, of which expiries see whole milliseconds, and that it is not set back.
    pub fn set_clock(&mut self, clock: Time) {
        self.now = self.now.max(Time::from_micros(clock.micros() / 1000 * 1000));
    }

    /// A write to a key.
    pub fn write(&mut self, key: &[u8], time: Time, value: Option<Vec<u8>>) {
        self.write_until(key, time, value, None);
    }

    /// The same with an expiry.
    pub fn write_until(&mut self, key: &[u8], time: Time, value: Option<Vec<u8>>, expiry: Option<Time>) {
        let written = match (value, expiry) {
            (None, _) => Written::Deleted,
            (Some(value), None) => Written::Value(value),
            (Some(value), Some(expiry)) => Written::Expiring(value, expiry),
        };
        let replaced = self.versions.entry(key.to_vec()).or_default().insert(time, written);
        self.replaced.extend(replaced.map(|replaced| (key.to_vec(), time, replaced)));
        self.last = self.last.max(time);
    }

    /// The number of keys whose newest version has just expired.
    pub fn expired(&self) -> u64 {
        let newest = self.versions.values().filter_map(|versions| versions.values().next_back());
        newest.filter(|w| matches!(w, Written::Expiring(_, expiry) if *expiry == self.now)).count() as u64
    }

    /// Whether the newest version of a key in the range has an expiry.
    pub fn has_expiring(&self, from: &[u8], to: &[u8]) -> bool {
        let mut of_range = self.versions.range(from.to_vec()..to.to_vec().max(from.to_vec()));
        of_range.any(|(_, of_key)| matches!(of_key.values().next_back(), Some(Written::Expiring(..))))
    }

    /// A range delete: of each key that has a value.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8], time: Time) {
        for (_, versions) in self.versions.range_mut(from.to_vec()..to.to_vec().max(from.to_vec())) {
            let is_there = match versions.values().next_back() {
                Some(Written::Value(_)) => true,
                Some(Written::Expiring(_, expiry)) => *expiry > time,
                _ => false,
            };
            if is_there {
                versions.insert(time, Written::DeletedByRange);
            }
        }
        self.ranges.push((from.to_vec(), to.to_vec(), time));
        self.last = self.last.max(time);
    }

    /// The versions of a key between two times, the latest first.
    pub fn of_key(&self, key: &[u8], from: Time, to: Time) -> Vec<Version> {
        let (mut versions, mut until) = (Vec::new(), None);
        let mut push = |time: Time, until: Option<Time>, value: Option<&Vec<u8>>, expiry: Option<Time>| {
            if (from..=to).contains(&time) {
                let version = Version::new(slice(key), time, until, value.map(|value| slice(value)));
                versions.push(version.expiring(expiry));
            }
        };
        let all: Vec<(&Time, &Written)> = self.versions.get(key).into_iter().flatten().collect();
        for (i, &(&time, written)) in all.iter().enumerate().rev() {
            match written {
                Written::DeletedByRange => match i.checked_sub(1).map(|before| all[before]) {
                    Some((_, Written::Deleted | Written::DeletedByRange)) => continue,
                    // By a late write.
                    Some((_, Written::Expiring(_, expiry))) if *expiry <= time => continue,
                    _ => push(time, until, None, None),
                },
                Written::Expiring(value, expiry) if *expiry > time.min(self.now) => {
                    let ends = until.is_none_or(|until| *expiry < until);
                    if ends && *expiry > time && *expiry <= self.now {
                        push(*expiry, until, None, None);
                    }
                    push(time, if ends { Some(*expiry) } else { until }, Some(value), Some(*expiry));
                }
                Written::Value(value) => push(time, until, Some(value), None),
                Written::Deleted | Written::Expiring(..) => push(time, until, None, None),
            }
            until = Some(time);
        }
        versions
    }

    /// The versions of a range of keys, by key.
    pub fn changes(&self, keys: (&[u8], Option<&[u8]>), from: Time, to: Time) -> Vec<Version> {
        let all = self.versions.keys().filter(|k| &k[..] >= keys.0 && keys.1.is_none_or(|to| &k[..] < to));
        all.flat_map(|key| self.of_key(key, from, to)).collect()
    }

    /// The version of a key that was the newest, unless it is a delete.
    pub fn at(&self, key: &[u8], time: Time) -> Option<Version> {
        // The newest of all is what is still there.
        let expires_after = if time == Time::MAX { self.now } else { time };
        let newest = self.of_key(key, Time::MIN, time).into_iter().next();
        let exists = |until: Option<Time>| until.is_none_or(|until| until > expires_after);
        newest.filter(|version| version.value.is_some() && exists(version.until))
    }

    /// The entries of a range of keys as of a time.
    pub fn range_at(&self, keys: (&[u8], Option<&[u8]>), time: Time) -> Vec<EntryAt> {
        let all = self.versions.keys().filter(|k| &k[..] >= keys.0 && keys.1.is_none_or(|to| &k[..] < to));
        let entry = |v: Version| Some(EntryAt::new(v.key, v.time, v.value?));
        all.filter_map(|key| self.at(key, time).and_then(entry)).collect()
    }
}
