//! Calls that take, use and release held readers.

use super::held::{HeldRange, MAX_HELD};
use super::state::Session;
use crate::finding::{Outcome, ensure, show};
use crate::ordering::has_order;
use crate::random::Draw;
use std::ops::Bound;

impl Session {
    pub(super) fn take_snapshot(&mut self) -> Outcome {
        if self.held.snapshots.len() < MAX_HELD {
            let at = self.model.pin();
            self.note(|| format!("snapshot as of {at}"));
            let snapshot = self.db().snapshot();
            self.held.snapshots.push((snapshot, at));
        }
        Ok(())
    }

    /// Releases a snapshot after checking all its entries.
    pub(super) fn release_snapshot(&mut self) -> Outcome {
        if self.held.snapshots.is_empty() {
            return Ok(());
        }
        let index = self.rng.below(self.held.snapshots.len() as u64) as usize;
        let (snapshot, at) = self.held.snapshots.swap_remove(index);
        let open = self.draw_keyspace();
        self.note(|| format!("release the snapshot as of {at}"));
        if !has_order(&open.keyspace) {
            let checked = self.compare_entries(&open, Some(&snapshot), at);
            self.model.unpin(at);
            return checked;
        }
        let range = snapshot.iter(&open.keyspace);
        let mut range = HeldRange::new(range, open.incarnation, at, Bound::Unbounded, Bound::Unbounded);
        drop(snapshot);
        let checked = range.advance(&mut self.rng, &self.model, usize::MAX);
        self.model.unpin(at);
        checked
    }

    pub(super) fn hold_cursor(&mut self) -> Outcome {
        if self.held.cursors.len() < MAX_HELD {
            let Some(mut cursor) = self.open_cursor() else { return Ok(()) };
            if cursor.at == self.model.version() {
                self.model.pin();
                cursor.walk(&mut self.rng, &self.keys, &self.model, 3)?;
                self.held.cursors.push(cursor);
            }
        }
        Ok(())
    }

    pub(super) fn hold_range(&mut self) -> Outcome {
        if self.held.ranges.len() < MAX_HELD {
            let Some(range) = self.open_range() else { return Ok(()) };
            if range.at == self.model.version() {
                self.model.pin();
                self.held.ranges.push(range);
            }
        }
        Ok(())
    }

    /// Uses a held reader.
    pub(super) fn use_held(&mut self) -> Outcome {
        let Session { rng, keys, model, held, .. } = self;
        if rng.chance(1, 2) {
            if held.cursors.is_empty() {
                return Ok(());
            }
            let index = rng.below(held.cursors.len() as u64) as usize;
            return held.cursors[index].walk(rng, keys, model, 10).map_err(|f| f.context("held"));
        }
        if held.ranges.is_empty() {
            return Ok(());
        }
        let index = rng.below(held.ranges.len() as u64) as usize;
        let steps = rng.between(1, 12);
        held.ranges[index].advance(rng, model, steps).map_err(|f| f.context("held"))
    }

    pub(super) fn release_held(&mut self) -> Outcome {
        let Session { rng, model, held, .. } = self;
        if rng.chance(1, 2) && !held.cursors.is_empty() {
            let index = rng.below(held.cursors.len() as u64) as usize;
            model.unpin(held.cursors.swap_remove(index).at);
        } else if !held.ranges.is_empty() {
            let index = rng.below(held.ranges.len() as u64) as usize;
            model.unpin(held.ranges.swap_remove(index).at);
        }
        Ok(())
    }

    /// Slices keep their bytes, whatever happens to their block.
    pub(super) fn check_slices(&mut self) -> Outcome {
        for (slice, value) in &self.held.slices {
            ensure!(slice[..] == value[..], "a held slice changed from {} to {}", show(value), show(slice));
        }
        Ok(())
    }
}
