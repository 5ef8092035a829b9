//! The model: sorted maps with versions. The store must be indistinguishable from it.
//!
//! Each commit gets a version number. A keyspace is an *incarnation*: a keyspace that is dropped and created again
//! under the same name is a new one, independent of the first.

use crate::data::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

/// The number of a commit; 0 is before the first.
pub type Version = u64;

/// Distinguishes a keyspace from others of the same name.
pub type Incarnation = u64;

/// One put or delete.
#[derive(Clone, Debug)]
pub struct Write {
    /// The keyspace.
    pub keyspace: Incarnation,
    /// The key.
    pub key: Vec<u8>,
    /// The value; `None` deletes.
    pub value: Option<Value>,
}

#[derive(Clone, Debug)]
struct Entry {
    version: Version,
    value: Option<Value>,
}

/// All keyspaces, with all versions of each key that a reader may still request.
#[derive(Default)]
pub struct Model {
    version: Version,
    incarnations: Incarnation,
    names: BTreeMap<String, Incarnation>,
    /// By incarnation, then by key; the versions of a key oldest first. Dropped keyspaces stay while readers hold
    /// pins.
    maps: BTreeMap<Incarnation, BTreeMap<Vec<u8>, Vec<Entry>>>,
    /// Versions that readers hold, with the number of readers.
    pins: BTreeMap<Version, usize>,
}

impl Model {
    /// The number of the newest commit.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The keyspaces by name.
    pub fn names(&self) -> &BTreeMap<String, Incarnation> {
        &self.names
    }

    /// Creates a keyspace.
    pub fn create(&mut self, name: &str) -> Incarnation {
        self.incarnations += 1;
        let old = self.names.insert(name.to_owned(), self.incarnations);
        assert!(old.is_none(), "keyspace {name} exists");
        self.maps.insert(self.incarnations, BTreeMap::new());
        self.incarnations
    }

    /// Creates a keyspace with what another one has and, for readers from before, has had.
    pub fn clone_keyspace(&mut self, name: &str, new: &str) -> Incarnation {
        let content = self.maps[&self.names[name]].clone();
        let clone = self.create(new);
        self.maps.insert(clone, content);
        clone
    }

    /// Renames a keyspace.
    pub fn rename(&mut self, name: &str, new: &str) {
        let renamed = self.names.remove(name).expect("the keyspace exists");
        let old = self.names.insert(new.to_owned(), renamed);
        assert!(old.is_none(), "keyspace {new} exists");
    }

    /// Drops a keyspace. Readers that hold it can continue.
    pub fn drop_keyspace(&mut self, name: &str) {
        let dropped = self.names.remove(name).expect("the keyspace exists");
        if self.pins.is_empty() {
            self.maps.remove(&dropped);
        }
    }

    /// Whether a keyspace was dropped.
    pub fn is_dropped(&self, keyspace: Incarnation) -> bool {
        !self.names.values().any(|i| *i == keyspace)
    }

    /// Applies the writes of a batch in order, as one commit.
    pub fn commit(&mut self, writes: &[Write]) {
        self.version += 1;
        let version = self.version;
        for Write { keyspace, key, value } in writes {
            let map = self.maps.get_mut(keyspace).expect("the keyspace exists");
            if !map.contains_key(key) {
                map.insert(key.clone(), Vec::new());
            }
            let entries = map.get_mut(key).expect("it was just made sure of");
            entries.retain(|e| e.version != version);
            entries.push(Entry { version, value: value.clone() });
            prune(entries, &self.pins);
            if entries.len() == 1 && entries[0].value.is_none() {
                map.remove(key);
            }
        }
    }

    /// The deletes that a range deletion amounts to after `before`, the writes of the same batch: one per existing
    /// key.
    pub fn deletes(
        &self,
        keyspace: Incarnation,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        before: &[Write],
    ) -> Vec<Write> {
        let there = self.range(keyspace, bounds, self.version).map(|(key, _)| key.to_vec());
        deletes(keyspace, there.collect(), bounds, before)
    }

    /// Keeps the present version readable until [`Model::unpin`].
    pub fn pin(&mut self) -> Version {
        *self.pins.entry(self.version).or_insert(0) += 1;
        self.version
    }

    /// Releases one [`Model::pin`].
    pub fn unpin(&mut self, version: Version) {
        let count = self.pins.get_mut(&version).expect("the version is pinned");
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.pins.remove(&version);
        if self.pins.is_empty() {
            let names = &self.names;
            self.maps.retain(|incarnation, _| names.values().any(|i| i == incarnation));
            for map in self.maps.values_mut() {
                map.retain(|_, entries| {
                    entries.drain(..entries.len() - 1);
                    entries[0].value.is_some()
                });
            }
        }
    }

    /// The value of `key` at `at`.
    pub fn get(&self, keyspace: Incarnation, key: &[u8], at: Version) -> Option<&Value> {
        visible(self.maps.get(&keyspace)?.get(key)?, at)
    }

    /// The entries between the bounds at `at`, in order.
    pub fn range(
        &self,
        keyspace: Incarnation,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at: Version,
    ) -> Box<dyn DoubleEndedIterator<Item = (&[u8], &Value)> + '_> {
        let Some(map) = self.maps.get(&keyspace) else { return Box::new(std::iter::empty()) };
        if is_empty(bounds) {
            return Box::new(std::iter::empty());
        }
        Box::new(map.range::<[u8], _>(bounds).filter_map(move |(k, e)| Some((k.as_slice(), visible(e, at)?))))
    }

    /// All entries of a keyspace at `at`, in order.
    pub fn all(
        &self,
        keyspace: Incarnation,
        at: Version,
    ) -> Box<dyn DoubleEndedIterator<Item = (&[u8], &Value)> + '_> {
        self.range(keyspace, (Bound::Unbounded, Bound::Unbounded), at)
    }
}

fn visible(entries: &[Entry], at: Version) -> Option<&Value> {
    entries.iter().rev().find(|e| e.version <= at)?.value.as_ref()
}

/// Drops versions that neither a pinned reader nor a present read sees.
fn prune(entries: &mut Vec<Entry>, pins: &BTreeMap<Version, usize>) {
    let mut i = 0;
    while i + 1 < entries.len() {
        let (from, until) = (entries[i].version, entries[i + 1].version);
        if pins.range(from..until).next().is_none() {
            entries.remove(i);
        } else {
            i += 1;
        }
    }
}

/// The deletes that a range deletion amounts to. `there` are the existing keys in the range, `before` the writes of
/// the same batch.
pub fn deletes(
    keyspace: Incarnation,
    mut there: BTreeSet<Vec<u8>>,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    before: &[Write],
) -> Vec<Write> {
    let inside = |key: &[u8]| RangeBounds::<[u8]>::contains(&bounds, key);
    let put = before.iter().filter(|w| w.keyspace == keyspace && inside(&w.key));
    there.extend(put.map(|w| w.key.clone()));
    there.into_iter().map(|key| Write { keyspace, key, value: None }).collect()
}

/// Whether the bounds are empty. Includes crossed bounds, for which the standard map would panic.
pub fn is_empty(bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match bounds {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(a), Included(b)) => a > b,
        (Included(a) | Excluded(a), Included(b) | Excluded(b)) => a >= b,
    }
}

/// The exclusive end of the keys that start with `prefix`; `None` if it is the end of all keys.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(keyspace: Incarnation, key: &str, value: Option<&str>) -> Write {
        Write { keyspace, key: key.into(), value: value.map(|v| v.as_bytes().into()) }
    }

    fn dump(model: &Model, keyspace: Incarnation, at: Version) -> String {
        model.all(keyspace, at).map(|(k, v)| format!("{}={} ", k.escape_ascii(), v.escape_ascii())).collect()
    }

    #[test]
    fn pinned_versions_stay_and_others_go() {
        let mut model = Model::default();
        let a = model.create("a");
        model.commit(&[write(a, "x", Some("1")), write(a, "y", Some("1"))]);
        let first = model.pin();
        model.commit(&[write(a, "x", None)]);
        model.commit(&[write(a, "x", Some("3")), write(a, "x", Some("4")), write(a, "y", None)]);
        assert_eq!(dump(&model, a, first), "x=1 y=1 ");
        assert_eq!(dump(&model, a, model.version()), "x=4 ");
        assert_eq!(model.maps[&a][b"x".as_slice()].len(), 2);
        model.unpin(first);
        assert_eq!(model.maps[&a].len(), 1);
    }

    #[test]
    fn a_range_deletes_what_is_there_and_what_the_batch_put_before() {
        let mut model = Model::default();
        let a = model.create("a");
        model.commit(&[write(a, "b", Some("1")), write(a, "d", Some("1"))]);
        let mut batch = vec![write(a, "c", Some("2")), write(a, "x", Some("2"))];
        let range = (Bound::Included(&b"b"[..]), Bound::Excluded(&b"d"[..]));
        batch.extend(model.deletes(a, range, &batch));
        batch.push(write(a, "b", Some("3")));
        model.commit(&batch);
        assert_eq!(dump(&model, a, model.version()), "b=3 d=1 x=2 ");
    }

    #[test]
    fn a_recreated_keyspace_is_another() {
        let mut model = Model::default();
        let old = model.create("a");
        model.commit(&[write(old, "x", Some("1"))]);
        let pin = model.pin();
        model.drop_keyspace("a");
        let new = model.create("a");
        assert_eq!((dump(&model, new, pin), dump(&model, old, pin)), (String::new(), "x=1 ".into()));
    }

    #[test]
    fn prefixes_end_where_the_next_one_starts() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
