//! Sections of a report: groups that are shown together, and what all pictures of a section share.

use super::chart::{Figure, Panel};
use super::data::{Data, Group, Workload, full_name};
use super::lines::Series;
use crate::suite::family_of;

/// Groups that are shown together: one, or a family of small ones, such as `parallax-s` and `parallax-m`.
pub struct Section<'d, 'a> {
    /// The name of the group or of the family.
    pub name: &'a str,
    /// Its groups.
    pub groups: Vec<&'d Group<'a>>,
}

/// Maximum number of workloads of a group that is shown with others of its family.
const MAX_SHARED_WORKLOADS: usize = 3;
/// Divides groups into sections.
pub fn sections<'d, 'a>(data: &'d Data<'a>) -> Vec<Section<'d, 'a>> {
    let mut sections: Vec<Section<'d, 'a>> = Vec::new();
    for group in &data.groups {
        let family = family_of(group.name);
        let small = group.workloads.len() <= MAX_SHARED_WORKLOADS;
        let name = if small { family } else { group.name };
        match sections.iter_mut().find(|section| small && section.name == name) {
            Some(section) => section.groups.push(group),
            None => sections.push(Section { name, groups: vec![group] }),
        }
    }
    sections
}

impl<'d, 'a> Section<'d, 'a> {
    /// All workloads, with their groups' names.
    pub fn workloads(&self) -> impl Iterator<Item = (&'a str, &'d Workload<'a>)> {
        self.groups.iter().flat_map(|group| group.workloads.iter().map(|workload| (group.name, workload)))
    }

    /// The name of a workload in this section.
    pub fn name_of(&self, group: &str, workload: &Workload<'_>) -> String {
        if self.groups.len() > 1 { full_name(group, &workload.name) } else { workload.name.clone() }
    }

    /// Whether it is of this family.
    pub fn is(&self, family: &str) -> bool {
        family_of(self.name) == family
    }
}

/// A picture of a section.
pub fn figure(section: &Section<'_, '_>, key: &str, name: &str, caption: &str, panels: Vec<Panel>) -> Figure {
    let section = if section.name.is_empty() { "alone" } else { section.name };
    Figure {
        file: format!("{}-{key}", file_name(section)),
        title: name.into(),
        of: section.into(),
        caption: caption.into(),
        panels,
    }
}

/// A name reduced to characters that are safe in file names.
pub fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// Why a value is missing.
pub fn absent(data: &Data<'_>, engine: &str, group: &str, workload: &Workload<'_>) -> &'static str {
    match workload.of(engine) {
        [] if data.failed(engine, group) => "failed",
        [] => "not run",
        _ => "–",
    }
}

/// One line per engine that has points.
pub fn series<'a>(data: &Data<'a>, points: impl Fn(&'a str) -> Vec<(f64, f64)>) -> Vec<Series> {
    let all = data.engines.iter().map(|engine| Series {
        label: engine.label.clone(),
        style: engine.style,
        points: points(engine.name),
    });
    all.filter(|series| !series.points.is_empty()).collect()
}
