//! Proves that the scenarios can fail: a known bug is switched on, and a scenario must find it. The failing schedule,
//! read back from its file, must find it again. Runs with `--features planted-bugs`, and alone: a bug is on for the
//! whole process.

use crate::commits::{failing_leader, hand_over, merges, snapshots, switches, tasks, told_of_a_failed_sync};
use crate::lifetimes::{late_creation, lifetimes};
use crate::readers::{collections, cursors, filters, iterators};
use crate::{histories, stage};
use cairn::planted::{Bug, plant};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Maximum number of schedules for finding a bug. 4,000 once did not find the rarest. Each change of the code draws other schedules.
const MAX: usize = 100_000;

/// The files of failing schedules so far.
fn schedules() -> BTreeSet<PathBuf> {
    std::fs::read_dir(stage::failed()).unwrap().map(|file| file.unwrap().path()).collect()
}

/// The panic message of `run`. Runs in a new thread: shuttle abandons stacks that were panicking, so the thread
/// counts as panicking forever.
fn failure(run: impl FnOnce() + Send + 'static) -> Option<String> {
    let payload = std::thread::spawn(run).join().err()?;
    let words = payload.downcast_ref::<&str>().map(|words| (*words).to_owned());
    Some(words.or_else(|| payload.downcast_ref().cloned()).unwrap_or_default())
}

#[test]
fn every_planted_bug_of_the_schedules_is_found() {
    // `ForgetToWake`, `ForgetToWakeServed` and `CloseWithoutTurningAway` are for loom: in a whole database another
    // thread usually wakes the sleeping ones, and a thread that releases the writer wakes queued ones.
    let looks: [(Bug, fn()); 17] = [
        (Bug::PublishBeforeInsert, histories::scenario),
        (Bug::PublishOutOfOrder, snapshots),
        (Bug::TearBatch, snapshots),
        (Bug::SwitchUnderInsert, switches),
        (Bug::FreeFileInUse, iterators),
        (Bug::HoldOldNumber, cursors),
        (Bug::CollectPartOfFile, collections),
        (Bug::FilterBesideReaders, filters),
        (Bug::OperandAboveExpiry, merges),
        (Bug::ForgetToPassOn, hand_over),
        (Bug::ForgetToWakeTasks, tasks),
        (Bug::RefuseTasksAtClose, tasks),
        (Bug::FollowersSucceed, failing_leader),
        (Bug::AcknowledgeBeforeSync, failing_leader),
        (Bug::StopAfterTelling, told_of_a_failed_sync),
        (Bug::CloseWithoutWaiting, lifetimes),
        (Bug::CreateAfterClose, late_creation),
    ];
    let mut missed = Vec::new();
    for (bug, scenario) in looks {
        let before = schedules();
        plant(Some(bug));
        let found = failure(move || stage::look(scenario, MAX));
        let written: Vec<PathBuf> = schedules().difference(&before).cloned().collect();
        let replayed = written.into_iter().map(|file| failure(move || stage::replay(scenario, &file)));
        let again = replayed.collect::<Vec<_>>().contains(&found);
        plant(None);
        println!("{bug:?}: {found:?}; again: {again}");
        if found.is_none() || !again {
            missed.push(bug);
        }
    }
    sim::count("planted bugs of schedules found", (looks.len() - missed.len()) as u64);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
