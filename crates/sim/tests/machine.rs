//! The engine on the real machine: failing system calls, full disks, limits, little memory, other processes.

use sim::jobs::{Job, run_all};
use sim::machine::full::{self, Scenario};
use sim::machine::limits::{self, Limit};
use sim::machine::memory::{self, Group};
use sim::machine::{processes, skip, strace};
use sim::random::{derive, fresh_seed};
use std::path::PathBuf;
use std::time::Duration;

/// The program for child processes.
fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_cairn-sim").into()
}

/// A job that takes longer hangs.
const HANG: Duration = Duration::from_secs(400);

/// P4, traps 4 and 7: after a failed sync, writes are disabled and the file is not synced again. After other
/// failures, writes continue. No acknowledged write is lost.
#[test]
fn a_failing_system_call_loses_nothing_and_a_failed_sync_ends_writing() {
    let seeds = sim::scaled(6, 2);
    const INJECTIONS: u64 = 24;
    if let Some(why) = strace::missing() {
        return skip("failing system calls", &why);
    }
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let seed = |i: u64| if i.is_multiple_of(2) { i } else { derive(fresh, i) };
    let jobs: Vec<Job> = (0..seeds).map(|i| strace::job(program(), seed(i), INJECTIONS)).collect();
    let report = run_all(jobs, HANG);
    sim::count("strace injections", report.count);
    report.expect_clean();
    assert!(report.count >= 16 * seeds, "only {} injections", report.count);
}

/// Fills disks in these scenarios, with this many seeds each.
fn fill_disks(what: &str, scenarios: &[Scenario], seeds: u64) {
    if let Some(why) = full::missing() {
        return skip(what, &why);
    }
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let seed = |i: u64| if i.is_multiple_of(2) { i } else { derive(fresh, i) };
    let job = |(scenario, i)| full::job(program(), seed(i), scenario);
    let pairs = scenarios.iter().flat_map(|&s| (0..seeds).map(move |i| (s, i)));
    let report = run_all(pairs.map(job).collect(), HANG);
    sim::count(what, report.count);
    report.expect_clean();
    assert!(report.count >= seeds, "the disk was full {} times only", report.count);
}

/// P5: a full disk is an error, and reads work. When there is space again, writes work without a restart.
#[test]
fn a_full_disk_is_an_error_and_passes() {
    fill_disks("full disks under load", &[Scenario::Load, Scenario::Opening], sim::scaled(10, 2));
}

/// Trap 31: the disk gets full during a compaction, and is freed.
#[test]
fn a_disk_that_is_full_in_a_compaction_loses_nothing() {
    fill_disks("full disks in compactions", &[Scenario::Compaction], sim::scaled(10, 2));
}

/// Trap 32: the disk is full while the log is switched or the manifest is written.
#[test]
fn a_disk_that_is_full_at_the_log_or_the_manifest_loses_nothing() {
    fill_disks(
        "full disks at log and manifest",
        &[Scenario::Rotation, Scenario::Manifest],
        sim::scaled(8, 2),
    );
}

/// Runs children under these limits, with this many seeds each.
fn limit(what: &str, limits: &[Limit], seeds: u64) {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let seed = |i: u64| if i.is_multiple_of(2) { i } else { derive(fresh, i) };
    let job = |(limit, i)| limits::job(program(), seed(i), limit);
    let pairs = limits.iter().flat_map(|&l| (0..seeds).map(move |i| (l, i)));
    let report = run_all(pairs.map(job).collect(), HANG);
    sim::count(what, report.count);
    report.expect_clean();
    assert!(report.count > 0, "the limit was never met");
}

/// Trap 33: more tables than files may be open, and an application that takes all descriptors.
#[test]
fn too_few_descriptors_are_an_error_and_pass() {
    limit("calls refused by RLIMIT_NOFILE", &[Limit::OpenFiles], sim::scaled(8, 2));
}

/// With 64 MiB of memory and a budget of 16 MiB, a database many times as large is written, read and reopened.
#[test]
fn a_large_database_gets_by_with_little_memory() {
    const VALUES: u64 = 100_000;
    let group = match Group::create() {
        Ok(group) => group,
        Err(why) => return skip("little memory", &why),
    };
    let peak_kib = memory::run(&program(), &group, 1, VALUES).unwrap();
    sim::count("KiB of memory at most, for 200 MB of data and a budget of 16 MiB", peak_kib);
}

/// Trap 34: two processes, the same process twice, a symbolic link to the directory.
#[test]
fn a_database_belongs_to_one_process() {
    let scratch = tempfile::tempdir().unwrap();
    processes::exclude(&program(), scratch.path()).unwrap();
    for i in 0..5 {
        processes::race(&program(), &scratch.path().join(format!("race-{i}"))).unwrap();
    }
}
