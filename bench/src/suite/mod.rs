//! The groups of workloads, and their sizes.
//!
//! A *group* is the work of one process with one engine and one directory: it fills a database, runs workloads on
//! it, and closes it. The groups and their parameters are the same for every engine.
//!
//! ```text
//!   groups         all groups of a scale, in the order in which they run
//!     |-- db_bench       db_bench, reads beside writes, scans, updates for long, synced puts, growth
//!     |-- ycsb           YCSB, transfers, aging
//!     |-- parallax, histories, pristupin, pebblesdb       the experiments of the papers
//!     |
//!   plan           what the groups have in common: templates, time limits
//!     |-- scale          how many keys and operations
//!     \-- group          Group, Step
//! ```
//!
//! A new group goes into the file of its source; a new size, into `scale`, once for each scale.

mod db_bench;
mod group;
mod histories;
mod parallax;
mod pebblesdb;
mod plan;
mod pristupin;
mod scale;
mod ycsb;

pub use group::{Group, Step, family_of};
pub use scale::{Adjust, Scale};

use plan::Plan;

/// The groups of a scale.
pub fn groups(scale: Scale, adjust: &Adjust) -> Vec<Group> {
    let plan = Plan::new(scale, adjust);
    let all = [
        db_bench::groups(&plan),
        ycsb::groups(&plan),
        parallax::groups(&plan),
        histories::groups(&plan),
        pristupin::groups(&plan),
        pebblesdb::groups(&plan),
        db_bench::growth(&plan),
        vec![ycsb::aging(&plan)],
    ];
    all.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct() {
        for scale in Scale::ALL {
            let groups = groups(scale, &Adjust::default());
            assert_eq!(groups.iter().map(|group| &group.name).collect::<BTreeSet<_>>().len(), groups.len());
            for group in &groups {
                let names: BTreeSet<_> = group.steps.iter().map(Step::name).collect();
                assert_eq!(names.len(), group.steps.len(), "{}", group.name);
                assert!(group.steps[0].workload.is_fill(), "{} starts with an empty database", group.name);
                assert!(group.key_size >= group.shape.size_min(group.num));
            }
            assert_eq!(scale.to_string().parse(), Ok(scale));
        }
    }

    #[test]
    fn room_for_all_data() {
        let all = groups(Scale::Full, &Adjust::default());
        let of = |name: &str| all.iter().find(|group| group.name == name).unwrap().data_bytes_max();
        assert!(of("dbbench-128") >= 22_500_000 * 144);
        assert!(of("dbbench-128-4x") >= 60_000_000 * 144);
        assert!(of("ycsb") >= 5_000_000 * 1048 && of("ycsb") < 7_000_000 * 1048);
        assert!(of("aging") >= 10_000_000 * 280);
        assert!(of("history-zipf") >= 1_200_000 * 1024);
    }

    #[test]
    fn a_group_survives_json() {
        for group in groups(Scale::Quick, &Adjust { factor: Some(0.1), ..Adjust::default() }) {
            let text = serde_json::to_string(&group).unwrap();
            assert_eq!(serde_json::from_str::<Group>(&text).unwrap(), group);
        }
    }
}
