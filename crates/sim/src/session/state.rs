//! The state of a session: the database, the model, the open keyspaces and held readers, and what the next call draws from them.

use super::held::Held;
use crate::data::Keys;
use crate::finding::{Outcome, ensure, show, show_option};
use crate::model::{Incarnation, Model, Version};
use crate::ordering::has_order;
use crate::random::{Draw, Rng};
use crate::sets::OptionSet;
use cairn::env::{Env, SimEnv};
use cairn::{Database, Keyspace, KeyspaceOptions, Snapshot, Time};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Number of calls that a failure report lists.
pub(super) const TRACE: usize = 16;

/// An open keyspace.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) keyspace: Keyspace,
    pub(super) incarnation: Incarnation,
}

/// The state that a read sees: the present one, or that of a held snapshot.
pub(super) struct ReadView {
    pub(super) snapshot: Option<Snapshot>,
    pub(super) at: Version,
}

pub(super) struct Session {
    pub(super) set: OptionSet,
    pub(super) env: Arc<dyn Env>,
    pub(super) path: PathBuf,
    pub(super) rng: Rng,
    pub(super) keys: Keys,
    /// `None` only between a close and the next open.
    pub(super) db: Option<Database>,
    pub(super) open: BTreeMap<String, Open>,
    pub(super) model: Model,
    pub(super) held: Held,
    /// Number of keyspaces created so far. Each uses the next of the set's options.
    pub(super) created: usize,
    /// The options that each keyspace has.
    pub(super) options: BTreeMap<Incarnation, KeyspaceOptions>,
    /// Numbers of flushes and compactions, over all openings.
    pub(super) flushes: u64,
    pub(super) compactions: u64,
    /// The simulated disk, whose clock the session moves, and its time.
    pub(super) sim: Option<Arc<SimEnv>>,
    pub(super) now: Time,
    /// The expiries of the present entries.
    pub(super) expiries: BTreeMap<(Incarnation, Vec<u8>), Time>,
    pub(super) trace: VecDeque<String>,
}

impl Session {
    /// Records the next call, for a failure report.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(what());
    }

    pub(super) fn db(&self) -> &Database {
        self.db.as_ref().expect("it is opened again before it is used")
    }

    pub(super) fn draw_keyspace(&mut self) -> Open {
        let names: Vec<&String> = self.open.keys().collect();
        self.open[*self.rng.pick(&names)].clone()
    }

    /// A keyspace whose keys have an order, if there is one.
    pub(super) fn draw_ordered(&mut self) -> Option<Open> {
        let ordered: Vec<&Open> = self.open.values().filter(|open| has_order(&open.keyspace)).collect();
        (!ordered.is_empty()).then(|| (*self.rng.pick(&ordered)).clone())
    }

    pub(super) fn draw_key(&mut self) -> Vec<u8> {
        self.keys.draw(&mut self.rng).to_vec()
    }

    pub(super) fn draw_read_view(&mut self) -> ReadView {
        if !self.held.snapshots.is_empty() && self.rng.chance(1, 3) {
            let (snapshot, at) = self.rng.pick(&self.held.snapshots).clone();
            return ReadView { snapshot: Some(snapshot), at };
        }
        ReadView { snapshot: None, at: self.model.version() }
    }
}

/// Fails unless a read of `key` returned the model's value.
pub(super) fn same(what: &str, key: &[u8], got: Option<&[u8]>, want: Option<&[u8]>) -> Outcome {
    ensure!(
        got == want,
        "{what} of {} gives {} instead of {}",
        show(key),
        show_option(got),
        show_option(want)
    );
    Ok(())
}
