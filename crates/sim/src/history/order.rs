//! Searches for an order of operations that explains their results.
//!
//! The algorithm is that of Wing and Gong (1993) in Lowe's version ("Testing for linearizability", 2017): *just in
//! time*, with a memory of tried configurations. It processes calls and returns in clock order and keeps all
//! *configurations* that explain them so far: the values of all keys, and which open operations have taken effect.
//! An operation must have taken effect when it returns, so only at that point the search tries the orders in which
//! open operations may precede it. The number of configurations is bounded by the number of concurrently open
//! operations, not by the length of the history.
//!
//! A read that fits takes effect immediately: it changes nothing, so waiting would not help. An operation that never
//! returned may take effect at any time or never.
//!
//! If the history ends with a crash, the recovered state must be the state at some moment of the same order, with no
//! surviving-guaranteed write after it: a prefix of the commits that contains all durable writes (P2). A
//! configuration records whether it has passed such a moment.

use super::operation::{Action, KeyIndex, Operation, State, Value};
use cairn::Durability;
use std::collections::{BTreeMap, HashSet};

/// Maximum number of configurations at one moment: far more than a history of a dozen threads reaches.
const MAX_CONFIGURATIONS: usize = 500_000;

/// Maximum number of concurrently open operations.
const MAX_OPEN: usize = 64;

/// The end of a history: the recovered state, and which writes it must contain.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The recovered values of all keys.
    pub state: State,
    /// Returned writes of this durability and above must have survived.
    pub survives: Durability,
}

impl Recovered {
    /// The part that concerns one key.
    pub fn at(&self, index: KeyIndex) -> Recovered {
        let mut state = vec![0; self.state.len()];
        state[index] = self.state[index];
        Recovered { state: state.into(), survives: self.survives }
    }
}

/// One way in which all events so far may have happened.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration {
    state: State,
    /// The open operations that have taken effect: one bit per slot.
    done: u64,
    /// Whether the recovered state was reached at some moment, with no write after it that must survive.
    survived: bool,
}

struct Search<'a> {
    operations: &'a [Operation],
    recovered: Option<&'a Recovered>,
    /// The open operations: slot to index.
    open: BTreeMap<u32, usize>,
    slots: Vec<u32>,
    configurations: HashSet<Configuration>,
}

/// Searches for an order of `operations` that starts with the values `start`, agrees with the clock, and explains all
/// reads and the `recovered` state.
///
/// # Errors
/// A description of the first return that no order explains.
pub fn explain(start: &State, operations: &[Operation], recovered: Option<&Recovered>) -> Result<(), String> {
    let mut events = Vec::with_capacity(2 * operations.len());
    for (index, operation) in operations.iter().enumerate() {
        events.push((operation.called, false, index));
        events.extend(operation.returned.map(|at| (at, true, index)));
    }
    events.sort_unstable();
    let first = Configuration {
        state: start.clone(),
        done: 0,
        survived: recovered.is_some_and(|r| r.state == *start),
    };
    let mut search = Search {
        operations,
        recovered,
        open: BTreeMap::new(),
        slots: (0..MAX_OPEN as u32).rev().collect(),
        configurations: HashSet::from([first]),
    };
    let mut slot_of = vec![0; operations.len()];
    for (_, is_return, index) in events {
        match is_return {
            false => slot_of[index] = search.call(index)?,
            true => search.ret(index, slot_of[index])?,
        }
    }
    search.end()
}

impl Search<'_> {
    fn call(&mut self, index: usize) -> Result<u32, String> {
        let slot =
            self.slots.pop().ok_or("more operations were open at once than the check can tell apart")?;
        self.open.insert(slot, index);
        if matches!(self.operations[index].action, Action::Read(_)) {
            let before = std::mem::take(&mut self.configurations);
            self.configurations = before.into_iter().map(|c| self.read_all(c)).collect();
        }
        Ok(slot)
    }

    /// Lets all open reads that fit take effect.
    fn read_all(&self, mut configuration: Configuration) -> Configuration {
        for (slot, &index) in &self.open {
            if let Action::Read(seen) = &self.operations[index].action
                && fits(&configuration, seen)
            {
                configuration.done |= 1 << slot;
            }
        }
        configuration
    }

    /// The configuration after the write in `slot` takes effect.
    fn write(
        &self,
        from: &Configuration,
        slot: u32,
        sets: &[(KeyIndex, Value)],
        must: bool,
    ) -> Configuration {
        let mut next = from.clone();
        next.done |= 1 << slot;
        sets.iter().for_each(|&(index, value)| next.state[index] = value);
        if let Some(recovered) = self.recovered {
            next.survived = next.state == recovered.state || next.survived && !must;
        }
        self.read_all(next)
    }

    /// The configurations after one more write.
    fn successors(&self, from: &Configuration) -> Vec<Configuration> {
        let open = self.open.iter().filter(|(slot, _)| from.done & 1 << **slot == 0);
        let writes = open.filter_map(|(&slot, &index)| match &self.operations[index].action {
            Action::Write { seen, .. } if !fits(from, seen) => None,
            Action::Write { sets, durability, .. } => {
                let durable = self.recovered.is_some_and(|r| *durability >= r.survives);
                let must = durable && self.operations[index].returned.is_some();
                Some(self.write(from, slot, sets, must))
            }
            Action::Read(_) => None,
        });
        writes.collect()
    }

    /// Applies writes to each configuration until it is `wanted`; those are not extended further.
    fn advance(
        &self,
        wanted: impl Fn(&Configuration) -> bool,
    ) -> Result<(HashSet<Configuration>, HashSet<Configuration>), String> {
        let mut todo: Vec<Configuration> = self.configurations.iter().cloned().collect();
        let (mut seen, mut reached) = (self.configurations.clone(), HashSet::new());
        while let Some(configuration) = todo.pop() {
            if wanted(&configuration) {
                reached.insert(configuration);
                continue;
            }
            for next in self.successors(&configuration) {
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
            if seen.len() > MAX_CONFIGURATIONS {
                return Err("too many orders are possible to try them all".into());
            }
        }
        Ok((reached, seen))
    }

    fn ret(&mut self, index: usize, slot: u32) -> Result<(), String> {
        let bit = 1 << slot;
        let (mut reached, seen) = self.advance(|c| c.done & bit != 0)?;
        if reached.is_empty() {
            return Err(self.unexplained(&self.operations[index], &seen));
        }
        reached = reached.into_iter().map(|c| Configuration { done: c.done & !bit, ..c }).collect();
        self.configurations = reached;
        self.open.remove(&slot);
        self.slots.push(slot);
        Ok(())
    }

    fn end(&self) -> Result<(), String> {
        let Some(recovered) = self.recovered else { return Ok(()) };
        let (reached, seen) = self.advance(|c| c.survived)?;
        match reached.is_empty() {
            false => Ok(()),
            true => Err(format!(
                "what was recovered, {:?}, was never the state, or lacks a write that had to survive; at the end it was one \
                 of {}",
                recovered.state,
                states(&seen)
            )),
        }
    }

    fn unexplained(&self, operation: &Operation, seen: &HashSet<Configuration>) -> String {
        let open: Vec<String> =
            self.open.values().map(|&i| format!("\n    {}", self.operations[i])).collect();
        format!(
            "no order explains this: {operation}\n  while the indexes held one of {}\n  and these were under way:{}",
            states(seen),
            open.concat()
        )
    }
}

/// Whether the keys have the values that an operation has read.
fn fits(configuration: &Configuration, seen: &[(KeyIndex, Value)]) -> bool {
    seen.iter().all(|&(index, value)| configuration.state[index] == value)
}

/// Some states of the configurations, as text.
fn states(configurations: &HashSet<Configuration>) -> String {
    let distinct: HashSet<&State> = configurations.iter().map(|c| &c.state).collect();
    let mut shown: Vec<String> = distinct.iter().take(6).map(|state| format!("{state:?}")).collect();
    shown.sort_unstable();
    if distinct.len() > shown.len() {
        shown.push(format!("({} more)", distinct.len() - shown.len()));
    }
    shown.join(" ")
}
