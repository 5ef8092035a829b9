//! Reads of the present state and of held snapshots.

use super::held::{HeldCursor, HeldRange};
use super::state::{Open, ReadView, Session, same};
use crate::finding::{Finding, Outcome, ensure, first_difference, show};
use crate::model::{Version, prefix_end};
use crate::ordering::{has_order, sorted_entries};
use crate::random::Draw;
use cairn::Snapshot;
use std::ops::Bound;
use std::task::Poll;

impl Session {
    pub(super) fn get(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        let key = self.keys.probe(&mut self.rng);
        let ReadView { snapshot, at } = self.draw_read_view();
        self.note(|| format!("get {} {} as of {at}", open.keyspace.name(), show(&key)));
        // Before a get brings it into memory.
        let known = match &snapshot {
            _ if !self.rng.chance(1, 3) => Poll::Pending,
            Some(snapshot) => snapshot.try_get(&open.keyspace, &key)?,
            None => open.keyspace.try_get(&key)?,
        };
        let got = match &snapshot {
            Some(snapshot) => snapshot.get(&open.keyspace, &key)?,
            None => open.keyspace.get(&key)?,
        };
        let want = self.model.get(open.incarnation, &key, at);
        if let Poll::Ready(known) = known {
            same("try_get", &key, known.as_deref(), want.map(|v| &v[..]))?;
        }
        same("get", &key, got.as_deref(), want.map(|v| &v[..]))?;
        if let (Some(got), Some(want)) = (got, want)
            && self.rng.chance(1, 8)
        {
            self.held.keep_slice(got, want.clone());
        }
        Ok(())
    }

    pub(super) fn contains(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        let key = self.keys.probe(&mut self.rng);
        let ReadView { snapshot, at } = self.draw_read_view();
        self.note(|| format!("contains {} {} as of {at}", open.keyspace.name(), show(&key)));
        let got = match &snapshot {
            Some(snapshot) => snapshot.contains(&open.keyspace, &key)?,
            None => open.keyspace.contains(&key)?,
        };
        let want = self.model.get(open.incarnation, &key, at).is_some();
        ensure!(got == want, "contains {} says {got}", show(&key));
        Ok(())
    }

    pub(super) fn multi_get(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        // Sometimes more keys than the library looks up at once.
        let most = if self.rng.chance(1, 10) { 300 } else { 24 };
        let count = self.rng.between(0, most);
        let mut keys: Vec<_> = (0..count).map(|_| self.keys.probe(&mut self.rng)).collect();
        for _ in 0..count / 8 {
            let (from, to) = (self.rng.below(count as u64), self.rng.below(count as u64));
            keys[to as usize] = keys[from as usize].clone();
        }
        let ReadView { snapshot, at } = self.draw_read_view();
        self.note(|| format!("multi_get {} of {count} keys as of {at}", open.keyspace.name()));
        let got = match &snapshot {
            Some(snapshot) => snapshot.multi_get(&open.keyspace, &keys)?,
            None => open.keyspace.multi_get(&keys)?,
        };
        ensure!(got.len() == keys.len(), "{} answers for {count} keys", got.len());
        for (key, got) in keys.iter().zip(&got) {
            let want = self.model.get(open.incarnation, key, at);
            same("multi_get", key, got.as_deref(), want.map(|v| &v[..]))?;
        }
        Ok(())
    }

    pub(super) fn range(&mut self) -> Outcome {
        let Some(mut range) = self.open_range() else { return Ok(()) };
        let steps = self.draw_steps();
        range.advance(&mut self.rng, &self.model, steps)
    }

    /// A range with random bounds, not read yet; `None` if no keyspace has an order.
    pub(super) fn open_range(&mut self) -> Option<HeldRange> {
        let open = self.draw_ordered()?;
        let (low, high) = self.draw_bounds();
        let ReadView { snapshot, at } = self.draw_read_view();
        self.note(|| format!("range {} {low:?} {high:?} as of {at}", open.keyspace.name()));
        let range = match &snapshot {
            Some(snapshot) => snapshot.range::<Vec<u8>>(&open.keyspace, (low.clone(), high.clone())),
            None => open.keyspace.range::<Vec<u8>>((low.clone(), high.clone())),
        };
        Some(HeldRange::new(range, open.incarnation, at, low, high))
    }

    pub(super) fn prefix(&mut self) -> Outcome {
        let Some(open) = self.draw_ordered() else { return Ok(()) };
        let prefix = self.keys.prefix(&mut self.rng);
        let ReadView { snapshot, at } = self.draw_read_view();
        self.note(|| format!("prefix {} {} as of {at}", open.keyspace.name(), show(&prefix)));
        let range = match &snapshot {
            Some(snapshot) => snapshot.prefix(&open.keyspace, &prefix),
            None => open.keyspace.prefix(&prefix),
        };
        let high = prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let mut range = HeldRange::new(range, open.incarnation, at, Bound::Included(prefix), high);
        let steps = self.draw_steps();
        range.advance(&mut self.rng, &self.model, steps)
    }

    /// Iterates over a whole keyspace.
    pub(super) fn whole(&mut self) -> Outcome {
        let open = self.draw_keyspace();
        let ReadView { snapshot, at } = self.draw_read_view();
        self.note(|| format!("iter {} as of {at}", open.keyspace.name()));
        if !has_order(&open.keyspace) {
            return self.compare_entries(&open, snapshot.as_ref(), at);
        }
        let iter = || match &snapshot {
            Some(snapshot) => snapshot.iter(&open.keyspace),
            None => open.keyspace.iter(),
        };
        if self.rng.chance(1, 4) {
            let entries = iter().collect::<cairn::Result<Vec<_>>>()?;
            let mut keys = iter().keys().rev().collect::<cairn::Result<Vec<_>>>()?;
            keys.reverse();
            ensure!(
                entries.iter().map(|entry| &entry.0).eq(&keys),
                "keys() shows {keys:?}, and iter() {entries:?}"
            );
        }
        if snapshot.is_none() && self.rng.chance(1, 4) {
            self.ends_and_sizes(&open, at)?;
        }
        let mut range = HeldRange::new(iter(), open.incarnation, at, Bound::Unbounded, Bound::Unbounded);
        range.advance(&mut self.rng, &self.model, usize::MAX)
    }

    /// Compares the ends of a keyspace with the model, and asks for estimates.
    fn ends_and_sizes(&mut self, open: &Open, at: Version) -> Outcome {
        let keyspace = &open.keyspace;
        let all: Vec<_> = self.model.all(open.incarnation, at).map(|(key, _)| key).collect();
        let (first, last) = (keyspace.first()?, keyspace.last()?);
        let ends = [first, last].map(|end| end.map(|(key, _)| key.to_vec()));
        let wanted = [all.first(), all.last()].map(|end| end.map(|key| key.to_vec()));
        ensure!(ends == wanted, "first and last are {ends:?}, not {wanted:?}");
        ensure!(keyspace.is_empty()? == all.is_empty(), "is_empty is wrong with {} keys", all.len());
        let (low, high) = self.draw_bounds();
        keyspace.approximate_bytes::<Vec<u8>>((low.clone(), high.clone()))?;
        keyspace.approximate_len::<Vec<u8>>((low, high))?;
        Ok(())
    }

    /// Compares all entries of a keyspace with the model.
    pub(super) fn compare_entries(&self, open: &Open, snapshot: Option<&Snapshot>, at: Version) -> Outcome {
        let got = sorted_entries(&open.keyspace, snapshot)?;
        let got = got.iter().map(|(k, v)| (&k[..], &v[..]));
        let want = self.model.all(open.incarnation, at).map(|(k, v)| (k, &v[..]));
        match first_difference(got, want) {
            None => Ok(()),
            Some(difference) => {
                let (name, view) =
                    (open.keyspace.name(), if snapshot.is_some() { "in a snapshot" } else { "now" });
                Err(Finding::new(format!("keyspace {name}, {view}: {difference}")))
            }
        }
    }

    /// Number of entries to read: mostly a few, sometimes all.
    fn draw_steps(&mut self) -> usize {
        if self.rng.chance(1, 12) { usize::MAX } else { self.rng.between(0, 40) }
    }

    pub(super) fn cursor(&mut self) -> Outcome {
        let Some(mut cursor) = self.open_cursor() else { return Ok(()) };
        let steps = self.rng.between(1, 40);
        cursor.walk(&mut self.rng, &self.keys, &self.model, steps)
    }

    /// A cursor, with or without bounds, not positioned yet; `None` if no keyspace has an order.
    pub(super) fn open_cursor(&mut self) -> Option<HeldCursor> {
        let open = self.draw_ordered()?;
        let ReadView { snapshot, at } = self.draw_read_view();
        if snapshot.is_none() && self.rng.chance(1, 3) {
            let (low, high) = self.draw_bounds();
            self.note(|| format!("cursor {} {low:?} {high:?}", open.keyspace.name()));
            let cursor = open.keyspace.cursor_bounded::<Vec<u8>>((low.clone(), high.clone()));
            return Some(HeldCursor::new(cursor, open.incarnation, at, low, high));
        }
        self.note(|| format!("cursor {} as of {at}", open.keyspace.name()));
        let cursor = match &snapshot {
            Some(snapshot) => snapshot.cursor(&open.keyspace),
            None => open.keyspace.cursor(),
        };
        Some(HeldCursor::new(cursor, open.incarnation, at, Bound::Unbounded, Bound::Unbounded))
    }
}
