//! Proves that the suites can fail: known bugs are switched on, one after the other, and each must be found.
//!
//! Runs with `cargo test -p sim --features planted-bugs --test planted`. The bugs are those of `cairn::planted`. The
//! suite for its kind searches for each bug, with the same jobs as usual; without a bug these jobs must find nothing.
//! `CAIRN_PLANTED` names a single bug to search for.

use cairn::planted::{Bug, plant};
use sim::crash::{self, Coverage};
use sim::jobs::{Job, run_all};
use sim::sets::option_sets;
use sim::{copies, damage, fault, filters, history, lifetime, loads, readers, session, threads, versions};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A job that takes longer hangs because of its bug.
const HANG: Duration = Duration::from_secs(120);

/// Maximum number of jobs for finding a bug.
const MAX_JOBS: u64 = 400;

/// Number of concurrent jobs.
const AT_ONCE: u64 = 2;

/// The name of a suite and a function that creates its n-th job.
type Suite = (&'static str, fn(u64) -> Job);

const MODEL: Suite = ("model", model);
const APPENDS: Suite = ("model", |n| {
    let sets = option_sets().into_iter().filter(|set| set.name.starts_with("appends"));
    let sets: Vec<_> = sets.collect();
    session::job(sets[n as usize % sets.len()].clone(), n, 6_000)
});
const CRASH: Suite = ("crash", |n| crash::job(n, Coverage::InTurn(n % 6)));
const HOLE: Suite = ("crash (holes)", crash::hole::job);
const DAMAGE: Suite = ("damage", |n| damage::job(n, Arc::default()));
const FAULT: Suite = ("fault", fault::job);
const HISTORY: Suite = ("history", |n| history::job(n, n.is_multiple_of(2), &Arc::default()));
const LIFETIMES: Suite =
    ("lifetimes", |n| lifetime::job(env!("CARGO_BIN_EXE_cairn-sim").into(), n, &Arc::default()));
const VERSIONS: Suite = ("versions", versions::job);
const COPIES: Suite = ("copies", copies::job);
const LOADS: Suite = ("loads", loads::job);
const READERS: Suite = ("readers", readers::job);
const FILTERS: Suite = ("filters", filters::job);
const THREADS: Suite = ("threads", |n| threads::job(n, Duration::from_secs(2)));

fn model(n: u64) -> Job {
    let mut sets = option_sets();
    let set = sets.swap_remove(n as usize % sets.len());
    session::job(set, n, 6_000)
}

fn suite(bug: Bug) -> Suite {
    match bug {
        Bug::DropTombstoneEarly
        | Bug::IgnoreSnapshots
        | Bug::DropExpiredEarly
        | Bug::RemoveExpiredTables
        | Bug::DropExpiredDespiteReaders
        | Bug::ShowExpired
        | Bug::ShowExpiredBackward
        | Bug::ForgetExpiry
        | Bug::CommitDespiteExpiry
        | Bug::FreeFileInUse
        | Bug::GuardKeyToTheLeft
        | Bug::CutBetweenVersions
        | Bug::MovePastOlderTables
        | Bug::OldestTableFirst
        | Bug::TakeShortRead
        | Bug::MixUpAnswers
        | Bug::StopAfterWait
        | Bug::ForgetRangeTombstone
        | Bug::RangeHidesNewer
        | Bug::FilteredDespiteSnapshot
        | Bug::PutsStayDead
        | Bug::DeadForOldReaders
        | Bug::ForgetCursors
        | Bug::MovedCursorReadsNewest
        | Bug::MovedCursorSkipsEntry
        | Bug::ForgetLiveValue
        | Bug::CollectDespiteReaders
        | Bug::ForgetMovedValues
        | Bug::KeepLastValue
        | Bug::TrustHash
        | Bug::WrongSizeClass
        | Bug::DropDeleteEarly
        | Bug::FlushDespiteReaders
        | Bug::ShowOlderInMemory
        | Bug::ForgetAlteration
        | Bug::CloneWithoutFlush
        | Bug::ForgetSharing
        | Bug::FilterDeniesKeys => MODEL,
        Bug::SkipDirectorySync
        | Bug::AcknowledgeBeforeSync
        | Bug::AcknowledgeBeforeEstablished
        | Bug::ReuseSequenceNumber
        | Bug::ReuseFileNumber
        | Bug::TearBatch
        | Bug::SkipTableSync
        | Bug::FreeLogEarly
        | Bug::DropFreesLogs
        | Bug::NameTablesBeforeSync
        | Bug::CountOldChunks
        | Bug::RecycleBeforeEdit
        | Bug::ReferBeforeSync
        | Bug::HintBeforeLog
        | Bug::SkipValueSync
        | Bug::ReplayFlushedOperands
        | Bug::FlushWithoutOlderLogs => CRASH,
        Bug::LoseEvictedVersion
        | Bug::KeepEvictedVersion
        | Bug::LateVersionWins
        | Bug::ExpireDespiteReaders
        | Bug::FollowTheClockBack
        | Bug::ForgetNewestTime
        | Bug::ForgetEarlierRetention
        | Bug::AlterDespiteReaders
        | Bug::EndWithNewestRange
        | Bug::TimesOfFirstEntry
        | Bug::AttachBelowVersions => VERSIONS,
        Bug::FilterDespiteReaders | Bug::FilterBesideReaders => FILTERS,
        Bug::JoinNewestFirst | Bug::JoinAcrossReaders | Bug::JoinWithoutOlder | Bug::JoinToDeletedRange => {
            APPENDS
        }
        Bug::ForgetReaders
        | Bug::CopyWithoutOlderLogs
        | Bug::KeepFlushedMemtables
        | Bug::IgnoreLogTail
        | Bug::ShowUnwritten
        | Bug::ReadManifestOnce => READERS,
        Bug::AttachBesideMemtables | Bug::AttachBeforeLogSync | Bug::LeaveLoads => LOADS,
        Bug::RecycleLinkedLog
        | Bug::CopyUnsyncedLogs
        | Bug::CopyWithoutTail
        | Bug::CopyUnusedValues
        | Bug::ListBeforeContents
        | Bug::CollectByNewest => COPIES,
        Bug::PublishBeforeInsert | Bug::ListLogsBeforeTables => THREADS,
        Bug::ReplayOverHole => HOLE,
        Bug::FollowersSucceed
        | Bug::TrustEarlyTime
        | Bug::LookBeforeWriter
        | Bug::ForgetReadKeys
        | Bug::AllowPhantoms
        | Bug::CheckBeforeWriter
        | Bug::IgnoreGroup
        | Bug::TasksForgetReads
        | Bug::ForgetAbsentReads => HISTORY,
        Bug::IgnoreTableChecksum
        | Bug::DamageIsATornTail
        | Bug::SwallowReadError
        | Bug::NameLogLate
        | Bug::ForgetSyncedLength => DAMAGE,
        Bug::GoOnAfterFailedSync => FAULT,
        Bug::CloseWithoutWaiting
        | Bug::CreateAfterClose
        | Bug::DeleteTablesAfterClose
        | Bug::RefuseTasksAtClose => LIFETIMES,
        // See `is_for_schedules`.
        Bug::PublishOutOfOrder
        | Bug::SwitchUnderInsert
        | Bug::HoldOldNumber
        | Bug::CollectPartOfFile
        | Bug::ForgetToPassOn
        | Bug::ForgetToWake
        | Bug::ForgetToWakeTasks
        | Bug::ForgetToWakeServed
        | Bug::CloseWithoutTurningAway
        | Bug::OperandAboveExpiry
        | Bug::StopAfterTelling => THREADS,
    }
}

/// The number of the first job. Few jobs find these bugs, and the jobs before this number take a minute and more.
fn first_job(bug: Option<Bug>) -> u64 {
    match bug {
        Some(Bug::ForgetSyncedLength) => 22,
        Some(Bug::AcknowledgeBeforeEstablished) => 18,
        _ => 0,
    }
}

/// Bugs that make the database hang, or that need a rare schedule: `tests/shuttle` searches for these.
fn is_for_schedules(bug: Bug) -> bool {
    matches!(
        bug,
        Bug::PublishOutOfOrder
            | Bug::SwitchUnderInsert
            | Bug::HoldOldNumber
            | Bug::CollectPartOfFile
            | Bug::ForgetToPassOn
            | Bug::ForgetToWake
            | Bug::ForgetToWakeTasks
            | Bug::ForgetToWakeServed
            | Bug::CloseWithoutTurningAway
            | Bug::OperandAboveExpiry
            | Bug::StopAfterTelling
    )
}

/// Runs jobs of the suite until one has a finding. Returns the number of jobs and the finding.
fn look_for(bug: Option<Bug>, (_, job): Suite, most: u64) -> Option<(u64, String)> {
    plant(bug);
    let found = (0..most).step_by(AT_ONCE as usize).find_map(|done| {
        let first = first_job(bug) + done;
        let jobs = (first..first + AT_ONCE).map(job).collect();
        let finding = run_all(jobs, HANG).findings.into_iter().next()?;
        Some((done + AT_ONCE, finding))
    });
    plant(None);
    found
}

#[test]
fn every_planted_bug_is_found_and_nothing_without_one() {
    let only = std::env::var("CAIRN_PLANTED").ok();
    let wanted =
        |bug: &&Bug| !is_for_schedules(**bug) && only.as_ref().is_none_or(|o| *o == format!("{bug:?}"));
    for suite in [
        MODEL, CRASH, DAMAGE, FAULT, HISTORY, THREADS, LIFETIMES, VERSIONS, FILTERS, APPENDS, COPIES,
        READERS, LOADS, HOLE,
    ] {
        if let Some((_, finding)) = look_for(None, suite, 2) {
            panic!("{} finds something without a planted bug: {finding}", suite.0);
        }
    }
    let mut missed = Vec::new();
    for &bug in Bug::ALL.iter().filter(wanted) {
        let (begun, suite) = (Instant::now(), suite(bug));
        let found = look_for(Some(bug), suite, MAX_JOBS);
        let seconds = begun.elapsed().as_secs_f64();
        match &found {
            Some((jobs, finding)) => {
                let line = finding.lines().next().unwrap_or_default();
                println!("{bug:?}: found by {} in {jobs} jobs, {seconds:.1} s: {line}", suite.0);
            }
            None => {
                println!("{bug:?}: MISSED by {}, {seconds:.1} s", suite.0);
                missed.push(format!("{bug:?} ({})", bug.describe()));
            }
        }
    }
    let looked_for = Bug::ALL.iter().filter(wanted).count();
    assert!(looked_for > 0, "there is no such bug");
    sim::count("planted bugs", looked_for as u64);
    sim::count("planted bugs found", (looked_for - missed.len()) as u64);
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
