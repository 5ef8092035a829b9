//! The memtables of Pristupin's report (section 4.3), to be measured beside Cairn's: a binary search tree and a red-black tree, and the B-tree
//! of the standard library. Each is behind a log that is written for each operation and never read: a prototype, no store.

use crate::engine::{Engine, Kind, RequestedSettings, Result, Visit};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

pub(super) fn kinds() -> Vec<Kind> {
    let kind = |name, title, open| Kind { name, title, version: || "0".to_string(), open };
    vec![
        kind("memory-bst", "Binary search tree in memory (prototype)", |dir, requested| {
            open::<SearchTree<Plain>>(dir, requested)
        }),
        kind("memory-red-black", "Red-black tree in memory (prototype)", |dir, requested| {
            open::<SearchTree<RedBlack>>(dir, requested)
        }),
        kind("memory-btree", "B-tree in memory (prototype)", |dir, requested| {
            open::<BTreeMap<Vec<u8>, Value>>(dir, requested)
        }),
    ]
}

/// A value; `None` after a delete.
type Value = Option<Vec<u8>>;

/// An ordered map in memory. Entries are never taken out of it: a delete is a value.
trait Ordered: Default + Send {
    fn insert(&mut self, key: &[u8], value: Value);
    fn find(&self, key: &[u8]) -> Option<&Value>;
    /// Visits the entries at or after `from`, or backward those at or before it, until `visit` returns false.
    fn walk(&self, from: Option<&[u8]>, back: bool, visit: &mut dyn FnMut(&[u8], &Value) -> bool);
}

impl Ordered for BTreeMap<Vec<u8>, Value> {
    fn insert(&mut self, key: &[u8], value: Value) {
        BTreeMap::insert(self, key.to_vec(), value);
    }

    fn find(&self, key: &[u8]) -> Option<&Value> {
        self.get(key)
    }

    fn walk(&self, from: Option<&[u8]>, back: bool, visit: &mut dyn FnMut(&[u8], &Value) -> bool) {
        let bound = from.map_or(Bound::Unbounded, Bound::Included);
        match back {
            false => _ = self.range::<[u8], _>((bound, Bound::Unbounded)).all(|(k, v)| visit(k, v)),
            true => _ = self.range::<[u8], _>((Bound::Unbounded, bound)).rev().all(|(k, v)| visit(k, v)),
        }
    }
}

/// The number of no node.
const NONE: u32 = u32::MAX;

/// A node of a tree: children by number, in an array of nodes.
struct Node {
    key: Vec<u8>,
    value: Value,
    children: [u32; 2],
    red: bool,
}

/// A binary search tree that is kept balanced, or not, as `B` says.
struct SearchTree<B> {
    nodes: Vec<Node>,
    root: u32,
    balance: std::marker::PhantomData<B>,
}

/// Whether a tree is kept balanced.
trait Balance: Send {
    const IS_BALANCED: bool;
}

/// Not at all.
struct Plain;
/// As a left-leaning red-black tree (Sedgewick 2008): no red node has a red child, none is a right child, and all paths have as many black
/// nodes.
struct RedBlack;

impl Balance for Plain {
    const IS_BALANCED: bool = false;
}

impl Balance for RedBlack {
    const IS_BALANCED: bool = true;
}

impl<B> Default for SearchTree<B> {
    fn default() -> Self {
        SearchTree { nodes: Vec::new(), root: NONE, balance: std::marker::PhantomData }
    }
}

impl<B: Balance> SearchTree<B> {
    fn child(&self, node: u32, side: usize) -> u32 {
        self.nodes[node as usize].children[side]
    }

    fn is_red(&self, node: u32) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.red)
    }

    /// Turns the edge to the child on `side`, which takes the place of `node`.
    fn rotate(&mut self, node: u32, side: usize) -> u32 {
        let up = self.child(node, side);
        self.nodes[node as usize].children[side] = self.child(up, 1 - side);
        self.nodes[up as usize].children[1 - side] = node;
        self.nodes[up as usize].red = std::mem::replace(&mut self.nodes[node as usize].red, true);
        up
    }

    /// Restores the balance at `node` after an insertion below it. Returns the node in its place.
    fn balanced(&mut self, mut node: u32) -> u32 {
        if self.is_red(self.child(node, 1)) && !self.is_red(self.child(node, 0)) {
            node = self.rotate(node, 1);
        }
        let left = self.child(node, 0);
        if self.is_red(left) && self.is_red(self.child(left, 0)) {
            node = self.rotate(node, 0);
        }
        let [left, right] = self.nodes[node as usize].children;
        if self.is_red(left) && self.is_red(right) {
            for (node, red) in [(node, true), (left, false), (right, false)] {
                self.nodes[node as usize].red = red;
            }
        }
        node
    }
}

impl<B: Balance> Ordered for SearchTree<B> {
    fn insert(&mut self, key: &[u8], value: Value) {
        let (mut path, mut at) = (Vec::new(), self.root);
        while at != NONE {
            let node = &mut self.nodes[at as usize];
            let side = match key.cmp(&node.key) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Greater => 1,
                std::cmp::Ordering::Equal => {
                    node.value = value;
                    return;
                }
            };
            path.push((at, side));
            at = node.children[side];
        }
        self.nodes.push(Node { key: key.to_vec(), value, children: [NONE; 2], red: true });
        let mut at = (self.nodes.len() - 1) as u32;
        while let Some((parent, side)) = path.pop() {
            self.nodes[parent as usize].children[side] = at;
            if !B::IS_BALANCED {
                return;
            }
            at = self.balanced(parent);
        }
        self.root = at;
        self.nodes[at as usize].red = false;
    }

    fn find(&self, key: &[u8]) -> Option<&Value> {
        let mut at = self.root;
        while let Some(node) = self.nodes.get(at as usize) {
            at = match key.cmp(&node.key) {
                std::cmp::Ordering::Less => node.children[0],
                std::cmp::Ordering::Greater => node.children[1],
                std::cmp::Ordering::Equal => return Some(&node.value),
            };
        }
        None
    }

    fn walk(&self, from: Option<&[u8]>, back: bool, visit: &mut dyn FnMut(&[u8], &Value) -> bool) {
        let near = usize::from(back);
        // The nodes that come after the one that is visited, the next one last.
        let (mut waiting, mut at) = (Vec::new(), self.root);
        let mut lower = from;
        loop {
            while let Some(node) = self.nodes.get(at as usize) {
                let is_before =
                    lower.is_some_and(|from| if back { &node.key[..] > from } else { &node.key[..] < from });
                if !is_before {
                    waiting.push(at);
                }
                at = node.children[if is_before { 1 - near } else { near }];
            }
            let Some(next) = waiting.pop() else { return };
            let node = &self.nodes[next as usize];
            if !visit(&node.key, &node.value) {
                return;
            }
            lower = None;
            at = node.children[1 - near];
        }
    }
}

/// A map and its log.
struct Memory<M> {
    parts: Mutex<(M, File)>,
}

fn open<M: Ordered + 'static>(dir: &Path, _requested: &RequestedSettings) -> Result<Box<dyn Engine>> {
    let log = OpenOptions::new().create(true).append(true).open(dir.join("log"))?;
    Ok(Box::new(Memory { parts: Mutex::new((M::default(), log)) }))
}

impl<M: Ordered> Memory<M> {
    fn parts(&self) -> MutexGuard<'_, (M, File)> {
        self.parts.lock().unwrap_or_else(|panicked| panicked.into_inner())
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, sync: bool) -> Result<()> {
        let mut record = Vec::with_capacity(12 + key.len() + value.map_or(0, <[u8]>::len));
        for number in [key.len(), value.map_or(0, <[u8]>::len), usize::from(value.is_some())] {
            record.extend_from_slice(&(number as u32).to_le_bytes());
        }
        record.extend_from_slice(key);
        record.extend_from_slice(value.unwrap_or_default());
        let mut parts = self.parts();
        parts.1.write_all(&record)?;
        if sync {
            parts.1.sync_data()?;
        }
        parts.0.insert(key, value.map(<[u8]>::to_vec));
        Ok(())
    }

    fn walk(&self, from: Option<&[u8]>, back: bool, visit: &mut Visit<'_>) {
        let mut show = |key: &[u8], value: &Value| value.as_ref().is_none_or(|value| visit(key, value));
        self.parts().0.walk(from, back, &mut show);
    }
}

impl<M: Ordered> Engine for Memory<M> {
    fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(
            "memory".to_string(),
            "all entries, without a limit; the log is never read".to_string(),
        )])
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.write(key, Some(value), sync)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.write(key, None, sync)
    }

    fn get(&self, key: &[u8], show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let parts = self.parts();
        let found = parts.0.find(key).and_then(Option::as_ref);
        found.inspect(|value| show(value));
        Ok(found.is_some())
    }

    fn scan(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        self.walk(from, false, visit);
        Ok(())
    }

    fn scan_back(&self, from: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<()> {
        self.walk(from, true, visit);
        Ok(())
    }

    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u64) -> Vec<u8> {
        (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52).to_be_bytes().to_vec()
    }

    /// The first five entries at or after a key, or backward.
    fn five(map: &impl Ordered, from: &[u8], back: bool) -> Vec<(Vec<u8>, Value)> {
        let mut seen = Vec::new();
        map.walk(Some(from), back, &mut |key, value| {
            seen.push((key.to_vec(), value.clone()));
            seen.len() < 5
        });
        seen
    }

    /// Compares a map with that of the standard library, in both directions from each key and between keys.
    fn check<M: Ordered>() -> M {
        let (mut map, mut model) = (M::default(), BTreeMap::new());
        for i in 0..5000u64 {
            let value = (i % 3 > 0).then(|| i.to_le_bytes().to_vec());
            map.insert(&key(i), value.clone());
            model.insert(key(i), value);
        }
        for i in 0..6000 {
            assert_eq!(map.find(&key(i)), model.get(&key(i)));
            for back in [false, true] {
                assert_eq!(five(&map, &key(i), back), five(&model, &key(i), back));
            }
        }
        let mut all = 0;
        map.walk(None, false, &mut |_, _| {
            all += 1;
            true
        });
        assert_eq!(all, model.len());
        map
    }

    #[test]
    fn the_trees_agree_with_the_standard_library() {
        check::<SearchTree<Plain>>();
        let tree = check::<SearchTree<RedBlack>>();
        /// Black nodes on each path below `node`.
        fn black(tree: &SearchTree<RedBlack>, node: u32) -> usize {
            if node == NONE {
                return 0;
            }
            let [left, right] = [0, 1].map(|side| tree.child(node, side));
            assert!(!tree.is_red(right));
            assert!(!tree.is_red(node) || !tree.is_red(left));
            let blacks = black(tree, left);
            assert_eq!(blacks, black(tree, right));
            blacks + usize::from(!tree.is_red(node))
        }
        assert!(black(&tree, tree.root) > 5);
    }

    #[test]
    fn a_long_run_in_order_does_not_overflow_the_stack() {
        let mut tree = SearchTree::<Plain>::default();
        (0..3000u32).for_each(|i| tree.insert(&i.to_be_bytes(), None));
        let mut seen = 0;
        tree.walk(None, true, &mut |_, _| {
            seen += 1;
            true
        });
        assert_eq!(seen, 3000);
    }
}
