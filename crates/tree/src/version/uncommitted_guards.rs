//! Uncommitted guards (PebblesDB, section 3.3): keys selected as guards by their hash that no compaction has made guards yet.

use base::Slice;
use std::collections::BTreeMap;

/// Keys selected as guards that are not yet guards of all their levels, with the shallowest level of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UncommittedGuards(BTreeMap<Slice, u8>);

impl UncommittedGuards {
    /// Adds a key. A key that is in the set keeps the shallower level.
    pub fn add(&mut self, key: Slice, level: usize) {
        let level = level as u8;
        self.0.entry(key).and_modify(|l| *l = (*l).min(level)).or_insert(level);
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    /// The keys in `[from, to)`, ascending; `to` of `None` is the end of all keys.
    pub fn range<'a>(
        &'a self,
        from: &'a [u8],
        to: Option<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Slice, usize)> {
        self.0
            .range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Unbounded))
            .take_while(move |(key, _)| to.is_none_or(|to| &key[..] < to))
            .map(|(key, &level)| (key, level as usize))
    }

    /// The level of a key in the set.
    pub fn get(&self, key: &[u8]) -> Option<usize> {
        self.0.get(key).map(|&level| level as usize)
    }

    /// All keys, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&Slice, usize)> {
        self.0.iter().map(|(key, &level)| (key, level as usize))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncommitted_guards_keep_the_shallowest_level() {
        let mut set = UncommittedGuards::default();
        set.add(Slice::copy_from(b"k"), 3);
        set.add(Slice::copy_from(b"k"), 2);
        set.add(Slice::copy_from(b"k"), 4);
        set.add(Slice::copy_from(b"z"), 1);
        assert_eq!(set.range(b"a", Some(b"z")).map(|(_, l)| l).collect::<Vec<_>>(), [2]);
        assert_eq!(set.range(b"a", None).count(), 2);
    }
}
