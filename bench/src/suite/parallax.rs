//! The experiments of the Parallax thesis: values that are small, medium, large, or a mix of them.

use super::group::{Group, Step};
use super::plan::{Plan, YCSB_KEY};
use crate::generate::Sizes;
use crate::workload::Workload;

/// Lengths of keys and values of the Parallax thesis, table 4.1 and below: small, medium and large.
const PARALLAX: [(&str, &str, &str); 6] = [
    ("s", "small values (9 bytes)", "9"),
    ("m", "medium values (104 bytes)", "104"),
    ("l", "large values (1004 bytes)", "1004"),
    ("sd", "small values dominate (60-20-20 %)", "9:60 104:20 1004:20"),
    ("md", "medium values dominate (20-60-20 %)", "9:20 104:60 1004:20"),
    ("ld", "large values dominate (20-20-60 %)", "9:20 104:20 1004:60"),
];

/// A group for each mix.
pub fn groups(plan: &Plan<'_>) -> Vec<Group> {
    let size = &plan.size;
    let mut groups = Vec::new();
    for (name, what, sizes) in PARALLAX {
        let sizes: Sizes = sizes.parse().expect("the table is well formed");
        let num = (size.parallax_bytes as f64 / (YCSB_KEY as f64 + sizes.mean())) as u64;
        groups.push(Group {
            num,
            sizes,
            steps: parallax(num, size.parallax_ops, name.len() == 2 && name != "ld"),
            ..plan.group(
                &format!("parallax-{name}"),
                &format!("Parallax: {what}"),
                "Load A and Run A of the Parallax thesis, chapter 4, and B to F for the two mixes of its figure 5.1: 24-byte keys, 4 \
                 threads; updates may change a value's size class.",
            )
        });
    }
    groups
}

/// Load A and Run A; with `all`, then B to F. Only the last is summed up: to read all entries in between may make an engine move values.
fn parallax(num: u64, ops: u64, all: bool) -> Vec<Step> {
    use Workload::*;
    let step = |workload, ops, label: &str| {
        let step = Step { threads: 4, ..Step::new(workload, num, ops) };
        step.label(label)
    };
    let ops = ops.min(num);
    let mut steps = vec![step(YcsbLoad, num, "load-a"), step(YcsbA, ops, "run-a")];
    if all {
        let runs = [(YcsbB, "run-b"), (YcsbC, "run-c"), (YcsbF, "run-f"), (YcsbD, "run-d")];
        steps.extend(runs.map(|(workload, label)| step(workload, ops, label)));
        // A scan returns fifty records on average.
        steps.push(step(YcsbE, ops / 10, "run-e"));
    }
    steps.last_mut().expect("there are two at least").sum_up = true;
    steps
}
