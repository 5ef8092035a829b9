//! Descriptions of groups and workloads, taken from the suite, so that page and program agree.

use crate::record::RunInfo;
use crate::suite::{self, Adjust, Group, Scale};

/// Descriptions by name.
pub struct Words {
    groups: Vec<Group>,
}

impl Words {
    /// The descriptions for the scale of a run.
    pub fn of(info: &RunInfo) -> Words {
        Words { groups: suite::groups(info.scale.parse().unwrap_or(Scale::Full), &Adjust::default()) }
    }

    /// The title of a group, or its name.
    pub fn title<'a>(&'a self, group: &'a str) -> &'a str {
        match self.group(group) {
            Some(known) => &known.title,
            None if group.is_empty() => "Workloads that run alone",
            None => group,
        }
    }

    /// The description of a group; empty if the suite does not know it.
    pub fn about(&self, group: &str) -> &str {
        self.group(group).map_or("", |known| &known.about)
    }

    /// The description of a workload; empty if the suite does not know it.
    pub fn workload(&self, group: &str, workload: &str) -> &'static str {
        let step =
            self.group(group).and_then(|known| known.steps.iter().find(|step| step.name() == workload));
        step.map_or("", |step| step.workload.about())
    }

    fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }
}
