//! Records of the operations of threads on a database.

use cairn::Durability;
use std::sync::atomic::{AtomicU64, Ordering};

/// A key of a keyspace, numbered over all keyspaces. In the keyspace with history: a key and one of its times, whose value is that of the
/// version.
pub type KeyIndex = usize;

/// The value of a key: the unique number of the write that set it, or [`ABSENT`].
pub type Value = u32;

/// The value of an absent key.
pub const ABSENT: Value = 0;

/// The value of a version that is a delete.
pub const DELETED: Value = Value::MAX;

/// The values of all keys at one time.
pub type State = Box<[Value]>;

/// The clock of a history. Each call and each return gets a unique number, and causally ordered events get increasing
/// numbers.
#[derive(Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The next clock value.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// The effect or result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A commit, which takes effect atomically. Without keys it is a call of `Database::sync`.
    Write {
        /// What it has read when it took effect.
        seen: Vec<(KeyIndex, Value)>,
        /// The keys and their new values.
        sets: Vec<(KeyIndex, Value)>,
        /// The durability that is guaranteed on return.
        durability: Durability,
    },
    /// A read of some keys: they had these values at one time.
    Read(Vec<(KeyIndex, Value)>),
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The number of the thread.
    pub thread: usize,
    /// The method, for messages.
    pub name: &'static str,
    /// When it was called.
    pub called: u64,
    /// When it returned successfully. An operation that did not may have taken effect or not.
    pub returned: Option<u64>,
    /// Its effect or result.
    pub action: Action,
}

impl Operation {
    /// The part of the operation that concerns one key; `None` if there is none.
    pub fn at(&self, index: KeyIndex) -> Option<Operation> {
        let here = |pairs: &[(KeyIndex, Value)]| pairs.iter().copied().find(|pair| pair.0 == index);
        let action = match &self.action {
            Action::Write { seen, sets, durability } => {
                let (seen, sets) = (here(seen), here(sets));
                // A commit that has only read the key is a read of it.
                match (sets, seen) {
                    (Some(set), seen) => Action::Write {
                        seen: seen.into_iter().collect(),
                        sets: vec![set],
                        durability: *durability,
                    },
                    (None, seen) => Action::Read(vec![seen?]),
                }
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
            Action::Write { seen, sets, durability } => {
                if !seen.is_empty() {
                    write!(f, " sees")?;
                    seen.iter().try_for_each(|(index, value)| write!(f, " {index}={value}"))?;
                    write!(f, ", and")?;
                }
                write!(f, " ({durability}) writes")?;
                sets.iter().try_for_each(|(index, value)| write!(f, " {index}={value}"))
            }
            Action::Read(seen) => {
                write!(f, " sees")?;
                seen.iter().try_for_each(|(index, value)| write!(f, " {index}={value}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_of_a_batch_is_a_write_of_its_own() {
        let (seen, durability) = (vec![(1, 6)], Durability::Os);
        let action = Action::Write { seen, sets: vec![(0, 7), (2, 8)], durability };
        let batch = Operation { thread: 1, name: "batch", called: 3, returned: Some(4), action };
        assert!(batch.at(3).is_none());
        assert_eq!(batch.at(1).unwrap().action, Action::Read(vec![(1, 6)]));
        let part = batch.at(2).unwrap();
        assert_eq!(part.action, Action::Write { seen: vec![], sets: vec![(2, 8)], durability });
        assert_eq!(part.to_string(), "thread 1, 3 to 4: batch (os) writes 2=8");
    }
}
