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
    /// What was the newest before this time may have been forgotten because of its age: late writes from before may be refused.
    pub forgotten_until: Time,
}

/// What a version is.
#[derive(Clone, PartialEq)]
pub enum Written {
    /// A put.
    Value(Vec<u8>),
    /// A delete.
    Deleted,
    /// By a range delete: that is no version where a late delete came before it.
    DeletedByRange,
}

pub(super) fn slice(bytes: &[u8]) -> Slice {
    Slice::copy_from(bytes)
}

impl Model {
    /// A write to a key.
    pub fn write(&mut self, key: &[u8], time: Time, value: Option<Vec<u8>>) {
        let written = value.map_or(Written::Deleted, Written::Value);
        let replaced = self.versions.entry(key.to_vec()).or_default().insert(time, written);
        self.replaced.extend(replaced.map(|replaced| (key.to_vec(), time, replaced)));
        self.last = self.last.max(time);
    }

    /// A range delete: of each key that has a value.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8], time: Time) {
        for (_, versions) in self.versions.range_mut(from.to_vec()..to.to_vec().max(from.to_vec())) {
            if matches!(versions.values().next_back(), Some(Written::Value(_))) {
                versions.insert(time, Written::DeletedByRange);
            }
        }
        self.ranges.push((from.to_vec(), to.to_vec(), time));
        self.last = self.last.max(time);
    }

    /// The versions of a key between two times, the latest first.
    pub fn of_key(&self, key: &[u8], from: Time, to: Time) -> Vec<Version> {
        let (mut versions, mut until) = (Vec::new(), None);
        let all: Vec<(&Time, &Written)> = self.versions.get(key).into_iter().flatten().collect();
        for (i, (time, written)) in all.iter().enumerate().rev() {
            let value = match written {
                Written::Value(value) => Some(slice(value)),
                Written::DeletedByRange if i > 0 && !matches!(all[i - 1].1, Written::Value(_)) => continue,
                Written::Deleted | Written::DeletedByRange => None,
            };
            if (from..=to).contains(*time) {
                versions.push(Version::new(slice(key), **time, until, value));
            }
            until = Some(**time);
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
        self.of_key(key, Time::MIN, time).into_iter().next().filter(|version| version.value.is_some())
    }

    /// The entries of a range of keys as of a time.
    pub fn range_at(&self, keys: (&[u8], Option<&[u8]>), time: Time) -> Vec<EntryAt> {
        let all = self.versions.keys().filter(|k| &k[..] >= keys.0 && keys.1.is_none_or(|to| &k[..] < to));
        let entry = |v: Version| Some(EntryAt::new(v.key, v.time, v.value?));
        all.filter_map(|key| self.at(key, time).and_then(entry)).collect()
    }
}
