//! The model of [`crate::history`]: the states after each commit, and which commits a crash may lose.

use cairn::Durability;
use std::collections::BTreeMap;

/// The content of the keyspaces.
pub(crate) type State = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// A write: keyspace, key, and the value; `None` for a delete.
pub(crate) type Write = (usize, Vec<u8>, Option<Vec<u8>>);

/// The states after each commit since the last one that no crash can lose.
pub(crate) struct Model {
    states: Vec<State>,
    /// The first of `states` that may remain after a process kill, and the first that may remain after a power
    /// failure.
    survives_process: usize,
    survives_power: usize,
}

impl Model {
    pub(crate) fn new() -> Model {
        Model { states: vec![State::default()], survives_process: 0, survives_power: 0 }
    }

    /// The present state.
    pub(crate) fn now(&self) -> &State {
        self.states.last().expect("there is one")
    }

    /// Adds a commit in flight: a crash may keep or lose it.
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

    /// All commits are durable.
    pub(crate) fn all_durable(&mut self) {
        self.states.drain(..self.states.len() - 1);
        (self.survives_process, self.survives_power) = (0, 0);
    }

    /// Checks the state after a crash: it must be an allowed one. It becomes the present state.
    pub(crate) fn recovered(&mut self, state: State, power_cut: bool) {
        let first = if power_cut { self.survives_power } else { self.survives_process };
        let allowed = &self.states[first..];
        assert!(
            allowed.contains(&state),
            "the state after a crash, {state:?}, is none of the {} allowed states, from {:?} to {:?}",
            allowed.len(),
            allowed.first(),
            allowed.last()
        );
        *self = Model { states: vec![state], ..Model::new() };
    }
}
