//! The checks of an epoch.

use super::actor::SnapshotTaken;
use super::operation::{Action, Operation, State};
use super::order::{Recovered, explain};
use super::world::ALL_COUNT;
use cairn::Durability;

/// All operations while the database was open once.
pub struct Epoch {
    /// The values of all keys at the start.
    pub start: State,
    /// All operations of all threads.
    pub record: Vec<Operation>,
    /// All snapshots.
    pub snapshots: Vec<SnapshotTaken>,
}

/// The end of an epoch as seen after recovery.
pub struct Cut {
    /// Operations that returned up to this time count as returned.
    pub before: u64,
    /// Operations called after this time do not exist.
    pub after: u64,
    /// The recovered values of all keys.
    pub recovered: State,
    /// The recovered state must contain acknowledged writes of this durability and above.
    pub survives: Durability,
}

/// Checks each key alone (linearizability), all keys together (snapshot isolation, atomic batches), the recovered
/// state, and the sequence numbers of snapshots.
pub fn check(epoch: &Epoch, cut: &Cut) -> Result<(), String> {
    let recovered = Recovered { state: cut.recovered.clone(), survives: cut.survives };
    let ended = until(&epoch.record, cut);
    for index in 0..ALL_COUNT {
        let at = |record: &[Operation]| record.iter().filter_map(|o| o.at(index)).collect::<Vec<_>>();
        let mut start = vec![0; ALL_COUNT];
        start[index] = epoch.start[index];
        let start: State = start.into();
        explain(&start, &at(&epoch.record), None)
            .map_err(|e| format!("key {index} is not linearizable: {e}"))?;
        explain(&start, &at(&ended), Some(&recovered.at(index)))
            .map_err(|e| format!("key {index} was not recovered: {e}"))?;
    }
    explain(&epoch.start, &epoch.record, None).map_err(|e| format!("not one state in one order: {e}"))?;
    explain(&epoch.start, &ended, Some(&recovered))
        .map_err(|e| format!("recovery did not yield a prefix with all that must survive: {e}"))?;
    in_sequence(&epoch.snapshots)
}

/// The operations that are known at the cut.
fn until(record: &[Operation], cut: &Cut) -> Vec<Operation> {
    let known = record.iter().filter(|o| o.called <= cut.after).map(|operation| Operation {
        returned: operation.returned.filter(|&at| at <= cut.before),
        ..operation.clone()
    });
    // A read that did not return before the cut gives no information.
    known.filter(|o| o.returned.is_some() || matches!(o.action, Action::Write { .. })).collect()
}

/// A snapshot must not be older than a snapshot that was returned before it was taken.
fn in_sequence(snapshots: &[SnapshotTaken]) -> Result<(), String> {
    let mut by_return: Vec<&SnapshotTaken> = snapshots.iter().collect();
    by_return.sort_unstable_by_key(|snapshot| snapshot.returned);
    let mut by_call: Vec<&SnapshotTaken> = snapshots.iter().collect();
    by_call.sort_unstable_by_key(|snapshot| snapshot.called);
    let (mut newest, mut returned) = (None::<&SnapshotTaken>, by_return.into_iter().peekable());
    for snapshot in by_call {
        while let Some(earlier) = returned.next_if(|earlier| earlier.returned < snapshot.called) {
            newest = newest.filter(|n| n.seq >= earlier.seq).or(Some(earlier));
        }
        if let Some(earlier) = newest.filter(|earlier| earlier.seq > snapshot.seq) {
            return Err(format!("the snapshot {snapshot:?} is older than {earlier:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_that_go_back_are_found() {
        let taken = |called, returned, seq| SnapshotTaken { called, returned, seq };
        assert_eq!(in_sequence(&[taken(1, 4, 7), taken(2, 3, 6), taken(5, 6, 7)]), Ok(()));
        assert!(in_sequence(&[taken(5, 6, 6), taken(1, 4, 7), taken(2, 3, 6)]).is_err());
    }

    #[test]
    fn what_comes_after_a_cut_is_not_known_before() {
        let put = |called, returned, value| {
            let action = Action::Write { seen: vec![], sets: vec![(0, value)], durability: Durability::Sync };
            Operation { thread: 0, name: "put", called, returned: Some(returned), action }
        };
        let state = |value| {
            let mut state = vec![0; ALL_COUNT];
            state[0] = value;
            State::from(state)
        };
        let record = vec![put(1, 2, 1), put(3, 6, 2), put(8, 9, 3)];
        let epoch = Epoch { start: state(0), record, snapshots: Vec::new() };
        let cut = |value| Cut { before: 4, after: 5, recovered: state(value), survives: Durability::Sync };
        assert_eq!([0, 1, 2, 3].map(|value| check(&epoch, &cut(value)).is_ok()), [false, true, true, false]);
    }
}
