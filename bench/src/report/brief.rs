//! The short report that a repository keeps: `README.md` with a few pictures and the table of all workloads, and
//! `tables.md`.
//!
//! A new run replaces all of it. Pictures over time are in `index.html` only, but for those of updates for long, and of the queries of a run of
//! histories alone; latency curves, too.

use super::chart::Figure;
use super::course;
use super::data::Data;
use super::figures;
use super::growth;
use super::predicted;
use super::section::sections;
use super::tables;
use crate::agreement::Agreement;
use crate::suite::family_of;

/// Name of the page.
pub const NAME: &str = "README.md";

/// Names of all pictures that a report may have: those of an earlier report are removed.
pub const PICTURES: [&str; 10] = [
    figures::MAIN_FILE,
    figures::OVERVIEW_FILE,
    "growth-cost",
    "parallax-predicted",
    "steady-course",
    "steady-space-course",
    "steady-maximum-course",
    "history-queries-average",
    "history-queries-p95",
    "history-queries-p99",
];

/// The pictures: the main one, Cairn compared with the best peer, how cost grows, predicted write amplification, updates for long over time, and
/// of a run of histories alone their queries over time; without those that would be empty.
pub fn pictures(data: &Data<'_>) -> Vec<Figure> {
    let find = |family| sections(data).into_iter().find(|section| section.is(family));
    let (growth, steady, history) = (find("growth"), find("steady"), find("history"));
    let mut all = vec![figures::main_figure(data)];
    all.extend(figures::overview_figure(data));
    all.extend(growth.map(|section| growth::cost_figure(data, &section)));
    all.extend(predicted::section(data).map(|section| predicted::prediction_figure(data, &section)));
    if let Some(section) = &steady {
        let over_time = [course::throughput, course::space, course::maximum];
        all.extend(over_time.map(|draw| draw(data, section)));
    }
    if let Some(section) =
        history.filter(|_| data.groups.iter().all(|group| family_of(group.name) == "history"))
    {
        all.extend(course::queries(data, &section));
    }
    all.retain(|figure| !figure.panels.is_empty());
    all
}

/// The page in Markdown.
pub fn markdown(data: &Data<'_>, verdict: &Agreement<'_>, pictures: &[Figure]) -> String {
    let mut text = String::from("# Results\n\n");
    text += &tables::about(data);
    text += "\nThis page is written by `cairn-bench run --page` (see [how to make it](../README.md#the-kept-page)). \
             [There](../README.md#metrics), the metrics and their limits are explained. [All metrics](tables.md), workload by workload.\n";
    for figure in pictures {
        let words = tables::escape(&figure.title);
        text += &format!(
            "\n## {words}\n\n{}\n\n![{words}]({}.svg)\n",
            tables::escape(&figure.caption),
            figure.file
        );
    }
    text += &format!("\n## All workloads\n\n{}\n\n", tables::SUMMARY);
    text += &tables::summary(data, false).markdown();
    text += &format!("\n{}\n", tables::escape(&verdict.to_string()));
    text
}
