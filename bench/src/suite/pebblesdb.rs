//! The experiments of the PebblesDB paper that no other group has.

use super::group::{Group, Step};
use super::plan::Plan;
use super::scale::Size;
use crate::workload::Workload;

/// These groups.
pub fn groups(plan: &Plan<'_>) -> Vec<Group> {
    let large = plan.size.dbbench[1];
    let group = |(name, title, about, num, steps): Experiment| Group {
        on_request: true,
        steps,
        ..plan.decimal((num, large.1), name, title, about)
    };
    let mut groups: Vec<Group> = experiments(&plan.size, large.0).map(group).into();
    let small = plan.size.dbbench[0];
    groups.push(Group {
        on_request: true,
        steps: vec![
            Step::new(Workload::FillRandom, small.0, small.0),
            Step::new(Workload::DeleteAll, small.0, small.0),
        ],
        ..plan.decimal(
            small,
            "pebblesdb-deletes",
            "Deletes of all keys",
            "PebblesDB, section 5.2: all keys are put, then deleted, each in a random order of its own: 16-byte keys, 128-byte values.",
        )
    });
    groups
}

/// Windows of keys that come and go.
const WINDOWS: u64 = 20;

/// Name, title, description, number of keys, and steps.
type Experiment = (&'static str, &'static str, &'static str, u64, Vec<Step>);

fn experiments(size: &Size, num: u64) -> [Experiment; 6] {
    use Workload::*;
    let step = |workload, num, ops, label: &str| Step::new(workload, num, ops).label(label);
    let threads = |threads, step: Step| Step { threads, ..step };
    let scan = |entries: u64, ops: u64, label: &str| Step {
        seek_nexts: entries - 1,
        ..step(SeekRandom, num, ops.max(1), label)
    };
    let cached = (size.memory / 5).max(100);
    // A window of keys moves: the next keys are put and read, then deleted.
    let window = num / 8;
    let series = (0..WINDOWS).flat_map(|round| {
        let (first, end) = (window * round, window * (round + 1));
        let insert = Step { first, ..Step::new(AgingInsert, end, window) };
        let read = Step { first, ..Step::new(ReadRandom, end, size.reads) };
        let delete = Step { first, ..Step::new(DeleteSeq, end, window) };
        [
            if round == 0 {
                step(FillSeq, window, window, "insert-1")
            } else {
                insert.label(format!("insert-{}", round + 1))
            },
            read.label(format!("read-{}", round + 1)),
            delete.label(format!("delete-{}", round + 1)),
        ]
    });
    [
        (
            "pebblesdb-updates",
            "Updates of all keys, twice",
            "PebblesDB, table 2: all keys are put, then as many random keys are put again, twice: 16-byte keys, 1,024-byte values.",
            num,
            vec![
                step(FillRandom, num, num, "insert"),
                step(Overwrite, num, num, "update-1"),
                step(Overwrite, num, num, "update-2"),
            ],
        ),
        (
            "pebblesdb-scans",
            "Scans after puts",
            "PebblesDB, section 5.2: scans of 50 and of 1,000 entries right after puts in random order, without waiting for compactions; when \
             these have ended, again scans of 50, then gets: 16-byte keys, 1,024-byte values.",
            num,
            vec![
                Step { settles: false, ..Step::new(FillRandom, num, num) },
                Step { settles: false, ..scan(50, size.seeks, "scan-50") },
                scan(1000, size.seeks / 20, "scan-1000"),
                scan(50, size.seeks, "scan-50-again"),
                Step::new(ReadRandom, num, size.reads),
            ],
        ),
        (
            "pebblesdb-cached",
            "A small data set in memory",
            "PebblesDB, figure 4(d): puts, gets and seeks of data that stay in memory: 16-byte keys, 1,024-byte values.",
            cached,
            vec![
                Step::new(FillRandom, cached, cached),
                Step::new(ReadRandom, cached, size.reads),
                Step::new(SeekRandom, cached, size.seeks),
            ],
        ),
        (
            "pebblesdb-threads",
            "Four threads",
            "PebblesDB, figure 4(c): four threads put random keys, then four get them, then two get while two put: 16-byte keys, 1,024-byte \
             values.",
            num,
            vec![
                threads(4, Step::new(FillRandom, num, num)),
                threads(4, Step::new(ReadRandom, num, size.reads)),
                Step { threads: 2, writers: 2, ..Step::new(ReadWhileWriting, num, size.reads) },
            ],
        ),
        (
            "pebblesdb-space",
            "Space after many updates",
            "PebblesDB, section 5.2: a tenth of the keys, ten random puts for each: 16-byte keys, 1,024-byte values.",
            num / 10,
            vec![Step::new(FillRandom, num / 10, num / 10), step(Overwrite, num / 10, num, "ten-updates")],
        ),
        (
            "pebblesdb-series",
            "Keys that come and go",
            "PebblesDB, section 5.2 (empty guards): keys in ascending order are put, read at random and deleted, twenty times, each time the keys \
             after those before: 16-byte keys, 1,024-byte values.",
            window * WINDOWS,
            series.collect(),
        ),
    ]
}
