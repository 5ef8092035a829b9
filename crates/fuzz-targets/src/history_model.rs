//! The model that [`crate::history`] holds a database against: the commits, what they add up to, and which of them a crash may lose.

use cairn::Durability;
use std::collections::BTreeMap;

/// What the keyspaces hold.
pub(crate) type State = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// One write: keyspace, key, and the value unless it is deleted.
pub(crate) type Write = (usize, Vec<u8>, Option<Vec<u8>>);

/// The states after each commit since the last one that no crash can lose.
pub(crate) struct Model {
    states: Vec<State>,
    /// The first of `states` that the end of the process may leave, and the first that a power cut may.
    survives_process: usize,
    survives_power: usize,
}

impl Model {
    pub(crate) fn new() -> Model {
        Model { states: vec![State::default()], survives_process: 0, survives_power: 0 }
    }

    /// What is there now.
    pub(crate) fn now(&self) -> &State {
        self.states.last().expect("there is one")
    }

    /// Adds a commit that is under way: a crash may keep it or not.
    pub(crate) fn begin(&mut self, writes: &[Write]) {
        let mut state = self.now().clone();
        for (keyspace, key, value) in writes {
            match value {
                Some(value) => drop(state[*keyspace].insert(key.clone(), value.clone())),
                None => drop(state[*keyspace].remove(key)),
            }
        }
        self.states.push(state);
    }

    /// The last commit was acknowledged.
    pub(crate) fn acknowledge(&mut self, durability: Durability) {
        let last = self.states.len() - 1;
        if durability >= Durability::Os {
            self.survives_process = last;
        }
        if durability == Durability::Sync {
            self.all_durable();
        }
    }

    /// Everything was synced.
    pub(crate) fn all_durable(&mut self) {
        self.states.drain(..self.states.len() - 1);
        (self.survives_process, self.survives_power) = (0, 0);
    }

    /// The database was found in `state` after a crash: it must be one that is allowed, and is the present from now on.
    pub(crate) fn recovered(&mut self, state: State, power_cut: bool) {
        let first = if power_cut { self.survives_power } else { self.survives_process };
        let allowed = &self.states[first..];
        assert!(
            allowed.contains(&state),
            "after a crash there is {state:?}, which is none of {} states, from {:?} to {:?}",
            allowed.len(),
            allowed.first(),
            allowed.last()
        );
        *self = Model { states: vec![state], ..Model::new() };
    }
}
