//! Entries that expire. The session moves the clock of the simulated disk; on a real disk no entry expires during a session.
//!
//! For the model an expiry is a delete, committed when the clock has reached it: so readers from before still see the entry.

use super::state::Session;
use crate::finding::{Outcome, ensure, show};
use crate::model::{Incarnation, Write};
use crate::random::Draw;
use cairn::{ErrorKind, Merge, Time};
use std::time::Duration;

impl Session {
    /// Commits writes to the model: the expiries of their keys are gone.
    pub(super) fn commit(&mut self, writes: &[Write]) {
        for write in writes {
            self.expiries.remove(&(write.keyspace, write.key.clone()));
        }
        self.model.commit(writes);
    }

    fn draw_ttl(&mut self) -> Duration {
        let most = if self.sim.is_some() { *self.rng.pick(&[20, 2_000, 60_000]) } else { 1 << 40 };
        let least = if self.sim.is_some() { 1 } else { 1 << 32 };
        Duration::from_millis(least + self.rng.below(most))
    }

    /// A put with a time to live, alone, in a batch or in a transaction.
    pub(super) fn put_with_ttl(&mut self) -> Outcome {
        let (open, key, value) = (self.draw_keyspace(), self.draw_key(), self.draw_value());
        let options = open.keyspace.options();
        if options.merge != Merge::None {
            return Ok(());
        }
        let ttl = self.draw_ttl();
        self.note(|| format!("put {} {} {} for {ttl:?}", open.keyspace.name(), show(&key), show(&value)));
        let expiry = self.now.saturating_add(ttl);
        // The clock of a real disk moves by itself.
        match if self.sim.is_some() { self.rng.below(4) } else { 0 } {
            0 => open.keyspace.put_until(&key, &value[..], expiry)?,
            1 => {
                let mut batch = self.db().batch();
                batch.put_with_ttl(&open.keyspace, &key, &value[..], ttl);
                self.db().write(batch, cairn::Durability::Os)?;
            }
            2 => self.db().transaction(|tx| tx.put_with_ttl(&open.keyspace, &key, &value[..], ttl))?,
            _ => open.keyspace.put_with_ttl(&key, &value[..], ttl)?,
        }
        self.commit(&[Write { keyspace: open.incarnation, key: key.clone(), value: Some(value) }]);
        self.expiries.insert((open.incarnation, key), expiry);
        Ok(())
    }

    /// Time passes, and what has expired is gone.
    pub(super) fn pass_time(&mut self) -> Outcome {
        let micros = self.rng.below(*self.rng.clone().pick(&[5_000, 500_000, 5_000_000]));
        self.move_clock(self.now.saturating_add(Duration::from_micros(micros)));
        Ok(())
    }

    fn move_clock(&mut self, to: Time) {
        let Some(sim) = &self.sim else { return };
        self.now = to;
        sim.set_wall_clock(to);
        self.note(|| format!("it is {} us", to.micros()));
        // The database counts in milliseconds.
        let whole = Time::from_micros(to.micros() - to.micros() % 1000);
        let due = self.expiries.iter().filter(|(_, expiry)| **expiry <= whole);
        let due: Vec<(Incarnation, Vec<u8>)> = due.map(|(place, _)| place.clone()).collect();
        let (dropped, due): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(keyspace, _)| self.model.is_dropped(*keyspace));
        dropped.iter().for_each(|place| _ = self.expiries.remove(place));
        if !due.is_empty() {
            let delete = |(keyspace, key)| Write { keyspace, key, value: None };
            self.commit(&due.into_iter().map(delete).collect::<Vec<_>>());
        }
    }

    /// The key has the expiry that it was given.
    pub(super) fn look_at_expiry(&mut self) -> Outcome {
        let expiring: Vec<_> = self.expiries.keys().cloned().collect();
        if expiring.is_empty() {
            return Ok(());
        }
        let place = self.rng.pick(&expiring).clone();
        let Some(open) = self.open.values().find(|open| open.incarnation == place.0).cloned() else {
            return Ok(());
        };
        self.note(|| format!("get_with_expiry {} {}", open.keyspace.name(), show(&place.1)));
        let found = match self.rng.between(0, 2) {
            0 => open.keyspace.get_with_expiry(&place.1)?,
            1 => self.db().snapshot().get_with_expiry(&open.keyspace, &place.1)?,
            _ => self.db().begin().get_with_expiry(&open.keyspace, &place.1)?,
        };
        let found = found.map(|(_, expiry)| expiry);
        let expected = Some(self.expiries.get(&place).copied());
        ensure!(found == expected, "the expiry of {} is {found:?} instead of {expected:?}", show(&place.1));
        Ok(())
    }

    /// A transaction that has read an entry commits while it is there, and meets a conflict once it has expired.
    pub(super) fn outlive_entry(&mut self) -> Outcome {
        let Some((place, expiry)) =
            self.expiries.iter().next().map(|(place, expiry)| (place.clone(), *expiry))
        else {
            return Ok(());
        };
        let opened = self.open.values().find(|open| open.incarnation == place.0).cloned();
        let Some(open) = opened.filter(|_| self.sim.is_some()) else { return Ok(()) };
        self.note(|| format!("a transaction over {} {}", open.keyspace.name(), show(&place.1)));
        let (key, value) = (self.draw_key(), self.draw_value());
        let mut transaction = self.db().begin();
        ensure!(transaction.get(&open.keyspace, &place.1)?.is_some(), "{} has not expired", show(&place.1));
        transaction.put(&open.keyspace, &key, &value[..])?;
        let expires = self.rng.chance(1, 2);
        if expires {
            let after = Duration::from_millis(1 + self.rng.below(10));
            self.move_clock(self.now.max(expiry).saturating_add(after));
        }
        match transaction.commit() {
            Ok(()) if !expires => {
                self.commit(&[Write { keyspace: open.incarnation, key, value: Some(value) }]);
                Ok(())
            }
            Err(e) if expires && e.kind() == ErrorKind::Conflict => Ok(()),
            other => {
                let state = if expires { "has expired" } else { "is there" };
                ensure!(
                    false,
                    "the entry that the transaction has read {state}, and the commit says {other:?}"
                );
                Ok(())
            }
        }
    }
}
