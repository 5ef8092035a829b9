//! YCSB, transfers between accounts, and a database that ages.

use super::group::{Group, Step};
use super::plan::Plan;
use super::scale::Size;
use crate::generate::Sizes;
use crate::workload::Workload;

/// So few accounts that transfers of several threads often meet.
const FEW_ACCOUNTS: u64 = 64;

/// YCSB and transfers.
pub fn groups(plan: &Plan<'_>) -> Vec<Group> {
    let size = &plan.size;
    let value = size.dbbench[0].1;
    let mut groups = Vec::new();
    groups.push(Group {
        num: size.ycsb.0,
        sizes: Sizes::all(size.ycsb_value),
        steps: ycsb(size.ycsb),
        ..plan.group(
            "ycsb",
            "YCSB",
            "Load, then A to F on the same database: 24-byte keys, 1,024-byte values, 4 threads.",
        )
    });
    for (accounts, threads) in
        [(size.memory, 1), (size.memory, 2), (size.memory, 8), (FEW_ACCOUNTS, 2), (FEW_ACCOUNTS, 8)]
    {
        let few = if accounts == FEW_ACCOUNTS { "few-" } else { "" };
        let step = Step { threads, ..Step::new(Workload::Transfer, accounts, size.memory) };
        groups.push(Group {
            on_request: true,
            steps: vec![Step::new(Workload::FillRandom, accounts, accounts), step.summed_up()],
            ..plan.decimal(
                (accounts, value),
                &format!("transfers-{few}{threads}"),
                &format!("Transfers between {accounts} accounts, {threads} threads"),
                "Transactions that read two keys, chosen uniformly, and put both. Runs only when it is named.",
            )
        });
    }
    groups
}

/// A database that ages.
pub fn aging(plan: &Plan<'_>) -> Group {
    let size = &plan.size;
    Group {
        num: size.aging,
        sizes: Sizes::all(256),
        steps: rounds(size),
        ..plan.group(
            "aging",
            "Aging",
            "Five rounds of inserting a fifth as many keys again, deleting a tenth, and updating a fifth, then gets and seeks: 24-byte keys, \
             256-byte values.",
        )
    }
}

fn ycsb((num, ops): (u64, u64)) -> Vec<Step> {
    use Workload::*;
    let step = |workload, ops| Step { threads: 4, ..Step::new(workload, num, ops) };
    let mut steps = vec![step(YcsbLoad, num).summed_up()];
    steps.extend([YcsbA, YcsbB, YcsbC, YcsbF, YcsbD].map(|workload| step(workload, ops)));
    // A scan returns fifty records on average.
    steps.push(step(YcsbE, ops / 10).summed_up());
    steps
}

fn rounds(size: &Size) -> Vec<Step> {
    let num = size.aging;
    let mut steps = vec![Step::new(Workload::YcsbLoad, num, num).label("aging-0-load").summed_up()];
    let mut end = num;
    for round in 1..=5 {
        let insert = Step { first: end, ..Step::new(Workload::AgingInsert, num, num / 5) };
        end += num / 5;
        let step = |workload, ops| Step::new(workload, end, ops);
        steps.extend([
            insert.label(format!("aging-{round}-insert")),
            step(Workload::AgingDelete, num / 10).label(format!("aging-{round}-delete")),
            step(Workload::AgingUpdate, num / 5).label(format!("aging-{round}-update")).summed_up(),
        ]);
    }
    steps.extend([
        Step::new(Workload::AgingRead, end, size.reads).label("aging-5-read"),
        Step::new(Workload::SeekRandom, end, size.seeks).label("aging-5-seek"),
    ]);
    steps
}
