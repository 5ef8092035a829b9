//! What threads did to a database, as a recorder at their side saw it.

use cairn::Durability;
use std::sync::atomic::{AtomicU64, Ordering};

/// A key of a keyspace, counted through over all keyspaces.
pub type Place = usize;

/// What a place holds: the number of the write that put it there, which no other write has; or [`ABSENT`].
pub type Value = u32;

/// The value of a key that is not there.
pub const ABSENT: Value = 0;

/// What all places hold at one moment.
pub type State = Box<[Value]>;

/// The one clock of a history: every call and every return has a number of its own, and of two events that one thread, or
/// one cause, put in order, the later has the larger.
#[derive(Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The next moment.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// What an operation did, or saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A commit: all of it takes effect at one moment. Without any places it stands for a call of `Database::sync`.
    Write {
        /// What each place was set to.
        sets: Vec<(Place, Value)>,
        /// What it has survived when it has returned.
        durability: Durability,
    },
    /// A view of some places: they held this at one moment.
    Read(Vec<(Place, Value)>),
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who did it.
    pub thread: usize,
    /// The method, for messages.
    pub name: &'static str,
    /// When it was called.
    pub called: u64,
    /// When it returned successfully. One that did not may have taken effect, or not.
    pub returned: Option<u64>,
    /// What it did.
    pub action: Action,
}

impl Operation {
    /// The same as far as one place is concerned; `None` where it is not.
    pub fn at(&self, place: Place) -> Option<Operation> {
        let here = |pairs: &[(Place, Value)]| pairs.iter().copied().find(|pair| pair.0 == place);
        let action = match &self.action {
            Action::Write { sets, durability } => {
                Action::Write { sets: vec![here(sets)?], durability: *durability }
            }
            Action::Read(seen) => Action::Read(vec![here(seen)?]),
        };
        Some(Operation { action, ..self.clone() })
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Operation { thread, name, called, .. } = self;
        write!(f, "thread {thread}, {called} to ")?;
        match self.returned {
            Some(returned) => write!(f, "{returned}: {name}")?,
            None => write!(f, "?: {name}")?,
        }
        match &self.action {
            Action::Write { sets, durability } => {
                write!(f, " ({durability}) writes")?;
                sets.iter().try_for_each(|(place, value)| write!(f, " {place}={value}"))
            }
            Action::Read(seen) => {
                write!(f, " sees")?;
                seen.iter().try_for_each(|(place, value)| write!(f, " {place}={value}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_of_a_batch_is_a_write_of_its_own() {
        let action = Action::Write { sets: vec![(0, 7), (2, 8)], durability: Durability::Os };
        let batch = Operation { thread: 1, name: "batch", called: 3, returned: Some(4), action };
        assert!(batch.at(1).is_none());
        let part = batch.at(2).unwrap();
        assert_eq!(part.action, Action::Write { sets: vec![(2, 8)], durability: Durability::Os });
        assert_eq!(part.to_string(), "thread 1, 3 to 4: batch (os) writes 2=8");
    }
}
