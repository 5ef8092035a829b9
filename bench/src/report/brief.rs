//! The page that a repository keeps: `README.md` with a few pictures and the table of all workloads, and `tables.md` beside it.
//!
//! It is small, and a new run replaces it whole. Courses and latency curves are left to `index.html`.

use super::chart::Figure;
use super::data::Data;
use super::figures::{self, Section};
use super::growth;
use super::tables;
use crate::agreement::Agreement;

/// The name of the page.
pub const NAME: &str = "README.md";

/// The names of all pictures that a page may have: what an earlier one left is removed.
pub const PICTURES: [&str; 3] = [figures::MAIN_FILE, figures::OVERVIEW_FILE, "growth-cost"];

/// The pictures: the main one, Cairn beside the best peer, and how cost grows; as far as there is something to draw.
pub fn pictures(data: &Data<'_>) -> Vec<Figure> {
    let growth = figures::sections(data).into_iter().find(|section: &Section<'_, '_>| section.is("growth"));
    let mut all = vec![figures::main_figure(data)];
    all.extend(figures::overview_figure(data));
    all.extend(growth.map(|section| growth::figure(data, &section)));
    all.retain(|figure| !figure.panels.is_empty());
    all
}

/// The page in Markdown.
pub fn markdown(data: &Data<'_>, verdict: &Agreement<'_>, pictures: &[Figure]) -> String {
    let mut text = String::from("# Results\n\n");
    text += &tables::about(data);
    text += "\nThe page is written by `cairn-bench run --page` (see [how to make it](../README.md#the-kept-page)); what each figure means, \
             and its limits, is told [there](../README.md#figures), too. [All figures](tables.md), workload by workload.\n";
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
