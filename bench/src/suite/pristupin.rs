//! The experiments of the report on log and sstable databases (Pristupin, 2023), section 4.

use super::group::{Group, Step};
use super::plan::Plan;
use crate::generate::Sizes;
use crate::workload::Workload;

/// Pairs in a memtable of the report (section 4.2), and a memtable that holds them.
const PAIRS: u64 = 4096;
const MEMTABLE: u64 = 512 << 10;

/// Ten operations on each key, also with small memtables; gets from memory and from a file.
pub fn groups(plan: &Plan<'_>) -> Vec<Group> {
    let size = &plan.size;
    let mut groups = Vec::new();
    groups.push(Group {
        num: size.ten_each,
        sizes: Sizes::all(100),
        steps: vec![Step::new(Workload::TenEach, size.ten_each, 10 * size.ten_each).summed_up()],
        ..plan.group(
            "report",
            "Ten operations on each key",
            "The workload of the report on log and sstable databases, section 4: 20,000 keys, ten random reads, writes or deletes each.",
        )
    });
    groups.push(Group {
        on_request: true,
        num: size.ten_each,
        sizes: Sizes::all(100),
        memtable_bytes: Some(MEMTABLE),
        steps: vec![Step::new(Workload::TenEach, size.ten_each, 10 * size.ten_each).summed_up()],
        ..plan.group(
            "sstable-files",
            "Ten operations on each key, with small memtables",
            "The same with memtables of 512 KiB, which hold the 4,096 pairs of the report's section 4.2: most entries are in files.",
        )
    });
    let get = |label: &str| Step::new(Workload::ReadRandom, PAIRS, 100 * PAIRS).label(label);
    groups.push(Group {
        on_request: true,
        num: PAIRS,
        sizes: Sizes::all(100),
        steps: vec![
            Step::new(Workload::FillRandom, PAIRS, PAIRS),
            get("get-memtable"),
            Step { after_flush: true, ..get("get-file") },
        ],
        ..plan.group(
            "sstable-memory",
            "Gets from memory and from a file",
            "The report, section 4.2: 4,096 pairs are read in random order, a hundred times each, from the memtable and, after a flush, from a \
             file that is in the page cache.",
        )
    });
    groups
}
