//! The workloads of LevelDB's `db_bench`, and others in their form: reads beside writes, scans, updates for long, synced puts, growth.

use super::group::{Group, Step};
use super::plan::Plan;
use super::scale::Size;
use crate::generate::Sizes;
use crate::workload::Workload;

/// Operations of a workload that runs until its time limit: more than any engine does.
const TIMED_OPS: u64 = 1 << 40;

/// Sizes of the databases that show how cost grows, in eighths of the one of `dbbench`.
const GROWTH: [(&str, u64); 6] = [("eighth", 1), ("quarter", 2), ("half", 4), ("1", 8), ("2", 16), ("4", 32)];

/// All but those of growth.
pub fn groups(plan: &Plan<'_>) -> Vec<Group> {
    let size = &plan.size;
    let [small, large] = size.dbbench;
    let mut groups = Vec::new();
    for (num, value) in size.dbbench {
        let (name, title) = (format!("dbbench-{value}"), format!("db_bench, values of {value} bytes"));
        let about = format!(
            "The workloads of LevelDB's db_bench, with more data than memory: 16-byte keys, {value}-byte values, one thread."
        );
        groups.push(Group { steps: dbbench(num, size), ..plan.decimal((num, value), &name, &title, &about) });
        if value == small.1 {
            groups.push(Group {
                steps: dbbench(size.memory, size),
                ..plan.decimal(
                    (size.memory, value),
                    &format!("{name}-memory"),
                    &format!("{title}, in memory"),
                    "The same with data that fit in memory with room to spare: what processors cost, not the disk.",
                )
            });
            groups.push(Group {
                // The fill gets more time: all later workloads measure its result.
                seconds_max: Some(plan.seconds_max(4.0 * size.seconds_max)),
                steps: reads_and_overwrites(size.four_times, size),
                ..plan.decimal(
                    (size.four_times, value),
                    &format!("{name}-4x"),
                    &format!("{title}, four times memory"),
                    "A part of these workloads with four times as much data as memory: most reads wait for the disk.",
                )
            });
        }
        groups.push(Group {
            steps: vec![
                Step::new(Workload::FillSeq, num, num).summed_up(),
                Step::new(Workload::DeleteSeq, num, num).summed_up(),
            ],
            ..plan.decimal(
                (num, value),
                &format!("sequential-{value}"),
                &format!("In key order, values of {value} bytes"),
                &format!("Keys in order: 16-byte keys, {value}-byte values, one thread."),
            )
        });
    }
    groups.push(Group {
        steps: readers_beside_writers(size.beside, size),
        ..plan.decimal(
            (size.beside, large.1),
            &format!("readwhilewriting-{}", large.1),
            "Readers beside writers",
            "Two threads that get random keys beside two that put random keys as fast as they can, with nearly three times as \
             much data as memory: 16-byte keys, 1,024-byte values.",
        )
    });
    groups.push(Group {
        steps: scans(large.0, size),
        ..plan.decimal(
            large,
            &format!("scans-{}", large.1),
            "Scans, again and again",
            "Scans of 100 entries from random keys, twice as many entries in each workload as there are keys, then all keys in order, \
             after a fill and after overwrites of a quarter of the keys: 16-byte keys, 1,024-byte values, one thread.",
        )
    });
    groups.push(Group {
        seconds_max: Some(plan.seconds_max(size.steady_seconds)),
        on_request: true,
        steps: vec![
            Step::new(Workload::FillRandom, size.steady, size.steady).summed_up(),
            Step { timed: true, ..Step::new(Workload::Overwrite, size.steady, TIMED_OPS) },
            Step { timed: true, ..Step::new(Workload::UpdateZipfian, size.steady, TIMED_OPS) },
        ],
        num: size.steady,
        sizes: Sizes::all(large.1),
        ..plan.group(
            &format!("steady-{}", large.1),
            "Updates for an hour",
            "Random updates as fast as the engine takes them, uniform for half an hour, then zipfian for another, of three times as much \
             data as memory: 24-byte keys, 1,024-byte values, one thread. Runs only when it is named.",
        )
    });
    groups.push(Group {
        steps: vec![Step::new(Workload::FillSync, small.0, size.synced).summed_up()],
        ..plan.decimal(
            small,
            "sync",
            "Synced writes",
            "Each put is on the disk before the next begins: 16-byte keys, one thread.",
        )
    });
    groups
}

/// The same fill and the same reads at several sizes.
pub fn growth(plan: &Plan<'_>) -> Vec<Group> {
    let (size, (num_of_1, value)) = (&plan.size, plan.size.dbbench[0]);
    let group = |(name, eighths): (&str, u64)| {
        let num = num_of_1 * eighths / 8;
        Group {
            // No limit by default, so that the slowest engine completes the fill: a fill cut short says nothing
            // about its size.
            seconds_max: plan.adjust.seconds_max,
            on_request: true,
            steps: vec![
                Step::new(Workload::FillRandom, num, num),
                Step::new(Workload::ReadRandom, num, size.reads),
            ],
            ..plan.decimal(
                (num, value),
                &format!("growth-{name}"),
                &format!("Growth, {num} keys"),
                "The same fill and the same reads at sizes from an eighth to four times those of db_bench: 16-byte keys, 128-byte \
                 values, one thread. Runs only when it is named.",
            )
        }
    };
    GROWTH.map(group).into()
}

fn dbbench(num: u64, size: &Size) -> Vec<Step> {
    let reads = |workload| Step::new(workload, num, size.reads);
    let walk = |workload| Step::new(workload, num, size.walk);
    let seek = |nexts| Step { seek_nexts: nexts, ..Step::new(Workload::SeekRandom, num, size.seeks) };
    vec![
        Step::new(Workload::FillRandom, num, num).summed_up(),
        reads(Workload::ReadRandom),
        reads(Workload::ReadMissing),
        seek(0),
        seek(50).label("seekrandom-50"),
        walk(Workload::ReadSeq),
        walk(Workload::ReadReverse),
        Step::new(Workload::Overwrite, num, num),
        reads(Workload::ReadWhileWriting).summed_up(),
        Step::new(Workload::DeleteRandom, num, num).summed_up(),
    ]
}

/// A fill, then reads of one entry and of several, overwrites, and reads beside writes.
fn reads_and_overwrites(num: u64, size: &Size) -> Vec<Step> {
    let mut steps = dbbench(num, size);
    use Workload::*;
    steps.retain(|step| {
        matches!(step.workload, FillRandom | ReadRandom | SeekRandom | Overwrite | ReadWhileWriting)
    });
    steps
}

/// A fill, then two readers beside two writers.
fn readers_beside_writers(num: u64, size: &Size) -> Vec<Step> {
    let beside = Step { threads: 2, writers: 2, ..Step::new(Workload::ReadWhileWriting, num, size.reads) };
    vec![Step::new(Workload::FillRandom, num, num).summed_up(), beside]
}

/// A fill, scans, overwrites and scans: an engine may keep values that are scanned in another place than others.
fn scans(num: u64, size: &Size) -> Vec<Step> {
    let scan = |name: &str| {
        let step = Step { seek_nexts: 99, ..Step::new(Workload::SeekRandom, num, num / 50) };
        step.label(format!("seekrandom-100-{name}"))
    };
    let walk = |name: &str| Step::new(Workload::ReadSeq, num, size.walk).label(format!("readseq-{name}"));
    vec![
        Step::new(Workload::FillRandom, num, num).summed_up(),
        scan("1"),
        scan("2"),
        scan("3"),
        walk("1"),
        Step::new(Workload::Overwrite, num, num / 4),
        scan("4"),
        scan("5"),
        walk("2"),
    ]
}
