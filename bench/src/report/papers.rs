//! The page of the papers' experiments: for each what the paper found, and the figures of the workloads that repeat it.

use super::chart::Figure;
use super::data::{Data, Workload, full_name};
use super::figures;
use super::metric::{self, Metric};
use super::section::absent;
use super::tables::{self, Cell, Row, Table};
use crate::agreement::Agreement;
use crate::papers::{self, Experiment, Measure, PAPERS, Paper};

/// Name of the page.
pub const NAME: &str = "README.md";

/// A picture for each paper with results.
pub fn pictures(data: &Data<'_>) -> Vec<Figure> {
    let of_paper = |paper: &Paper| {
        let panels = paper.picture.iter().filter_map(|measure| {
            let (group, workload) = find(data, measure)?;
            let metric = metric_of(measure);
            let title = format!("{}, {}", full_name(group, &workload.name), metric.head);
            let shown = |engine: &str| paper.engines.contains(&engine) && !workload.of(engine).is_empty();
            let is_known = |engine: &str| shown(engine) && is_compared(data, group, workload, metric, engine);
            let best = workload.best_of(metric, &is_known);
            Some(figures::bar_panel(data, group, workload, &title, metric, &shown, best))
        });
        Figure {
            file: paper.file.into(),
            title: paper.name.into(),
            of: String::new(),
            caption: "Bars: median; whiskers: range over the rounds; ★ best of those that can be compared; † stopped by the time limit."
                .into(),
            panels: panels.collect(),
        }
    };
    PAPERS.iter().map(of_paper).filter(|figure| !figure.panels.is_empty()).collect()
}

/// The page in Markdown.
pub fn markdown(data: &Data<'_>, verdict: &Agreement<'_>, pictures: &[Figure]) -> String {
    let mut text = String::from("# The experiments of the papers\n\n");
    text += &tables::about(data);
    text += "\nThis page is written by `cairn-bench run --groups papers --page DIR`. For each experiment of the papers behind Cairn it has what the paper \
             found, and what the same kind of work costs here, at the scale of this machine: so compare engines in a row, and ratios with the paper's, but not \
             absolute figures. Figures of papers are those that their texts and tables state; most of their pictures have none. \
             [There](../../README.md#metrics), the metrics are explained. Median over the rounds; ★ best of the row; † stopped by the time \
             limit; ‡ not compared, because the time limit had stopped what was written: here, or before, so that the data are others.\n";
    for paper in &PAPERS {
        text += &format!("\n## {}\n\n{}. {}\n", paper.name, paper.source, paper.about);
        if pictures.iter().any(|picture| picture.file == paper.file) {
            text += &format!("\n![{}]({}.svg)\n", paper.name, paper.file);
        }
        for experiment in paper.experiments {
            text += &describe(data, paper, experiment);
        }
    }
    text += &not_repeated();
    text += &format!("\n{}\n", tables::escape(&verdict.to_string()));
    text
}

/// All experiments that are not repeated, in one list.
fn not_repeated() -> String {
    let mut text = String::from(
        "\n## What is not repeated\n\nAll experiments run on two processors, one disk and one file system, so none says how an engine uses more. Beside that:\n\n",
    );
    for paper in &PAPERS {
        for experiment in paper.experiments.iter().filter(|experiment| experiment.ours.is_empty()) {
            let Experiment { place, what, note, .. } = experiment;
            text += &format!("- {}, {}: {what}. {note}\n", paper.name, place.to_lowercase());
        }
    }
    text
}

fn describe(data: &Data<'_>, paper: &Paper, experiment: &Experiment) -> String {
    let mut text =
        format!("\n### {}\n\n{}. **Paper:** {}.\n", experiment.place, experiment.what, experiment.theirs);
    let note = experiment.note;
    if experiment.ours.is_empty() {
        return text + &format!("\n**Not repeated.** {note}\n");
    }
    if !note.is_empty() {
        text += &format!("\n{note}\n");
    }
    let engines = if experiment.engines.is_empty() { paper.engines } else { experiment.engines };
    match table(data, engines, experiment.ours) {
        Some(table) => text + &format!("\n{}", table.markdown()),
        None => text + "\nNot in these results.\n",
    }
}

/// A row for each figure, a column for each engine with results.
fn table(data: &Data<'_>, engines: &[&str], measures: &[Measure]) -> Option<Table> {
    let found: Vec<_> = measures
        .iter()
        .filter_map(|measure| find(data, measure).map(|found| (found, metric_of(measure), measure.2)))
        .collect();
    let has = |engine: &str| found.iter().any(|((_, workload), ..)| !workload.of(engine).is_empty());
    let shown: Vec<_> = data.engines.iter().filter(|e| engines.contains(&e.name) && has(e.name)).collect();
    if shown.is_empty() {
        return None;
    }
    let head = ["workload".to_string()].into_iter().chain(shown.iter().map(|engine| engine.label.clone()));
    let rows = found.iter().map(|((group, workload), metric, figure)| {
        let cells = shown.iter().map(|engine| cell(data, group, workload, metric, engine.name));
        let mut cells: Vec<Cell> = cells.collect();
        if figure.is_ranked() {
            let is_compared = |engine: &str| is_compared(data, group, workload, metric, engine);
            let compared = shown.iter().map(|engine| (engine.name, is_compared(engine.name)));
            mark_best(&mut cells, compared, workload, metric);
        }
        Row::Cells(format!("{}, {}", full_name(group, &workload.name), metric.head), cells)
    });
    Some(Table { head: head.collect(), rows: rows.collect() })
}

fn cell(data: &Data<'_>, group: &str, workload: &Workload<'_>, metric: &Metric, engine: &str) -> Cell {
    let Some(value) = workload.spread(engine, metric) else {
        return Cell { missing: true, ..Cell::of(absent(data, engine, group, workload)) };
    };
    let cut = if workload.cut_short(engine).is_some() { " †" } else { "" };
    let other = if is_compared(data, group, workload, metric, engine) { "" } else { " ‡" };
    let range = tables::spread(&value, metric);
    Cell {
        small: (!range.is_empty()).then_some(range).into_iter().collect(),
        ..Cell::of(format!("{}{cut}{other}", (metric.show)(metric.figure(&value))))
    }
}

/// Metrics that depend on how much is written.
const OF_AMOUNTS: [&Metric; 5] =
    [&metric::WRITE_AMP, &metric::IO_AMP, &metric::CPU, &metric::MEMORY, &metric::SPACE];

/// Whether a figure of an engine can be compared with those of others: not after a workload that writes and that the time limit had stopped, and not
/// in such a workload if it depends on how much is written.
fn is_compared(data: &Data<'_>, group: &str, workload: &Workload<'_>, metric: &Metric, engine: &str) -> bool {
    let is_partial = |workload: &Workload<'_>| {
        let writes = workload.of(engine).iter().any(|record| record.user_bytes > 0);
        writes && workload.cut_short(engine).is_some()
    };
    let of_group = data.workloads().filter(|(of, _)| *of == group).map(|(_, workload)| workload);
    let has_other_data = of_group.take_while(|before| before.name != workload.name).any(is_partial);
    let is_of_amount = OF_AMOUNTS.iter().any(|known| known.key == metric.key);
    !(has_other_data || is_of_amount && is_partial(workload))
}

/// Marks the best cell of a row, if two of the engines that are compared have values.
fn mark_best<'e>(
    cells: &mut [Cell],
    engines: impl Iterator<Item = (&'e str, bool)>,
    workload: &Workload<'_>,
    metric: &Metric,
) {
    let figure = |engine| workload.spread(engine, metric).map(|spread| metric.figure(&spread));
    let values = engines.map(|(engine, is_compared)| is_compared.then(|| figure(engine)).flatten());
    let known: Vec<(usize, f64)> = values.enumerate().filter_map(|(at, value)| Some((at, value?))).collect();
    let best = known.iter().copied().reduce(|a, b| if metric.advantage(a.1, b.1) >= 1.0 { a } else { b });
    if let Some((at, _)) = best.filter(|_| known.len() > 1) {
        cells[at].best = true;
    }
}

/// The workload of a measure, if there are results of it.
fn find<'d, 'a>(data: &'d Data<'a>, (group, workload, _): &Measure) -> Option<(&'a str, &'d Workload<'a>)> {
    data.workloads().find(|(of, known)| of == group && known.name == *workload)
}

fn metric_of((_, _, figure): &Measure) -> &'static Metric {
    match figure {
        papers::Figure::Throughput => &metric::THROUGHPUT,
        papers::Figure::Seconds => &metric::SECONDS,
        papers::Figure::WriteAmp => &metric::WRITE_AMP,
        papers::Figure::IoAmp => &metric::IO_AMP,
        papers::Figure::CpuPerOp => &metric::CPU,
        papers::Figure::Memory => &metric::MEMORY,
        papers::Figure::Space => &metric::SPACE,
        papers::Figure::Mean => &metric::MEAN,
        papers::Figure::P95 => &metric::P95,
        papers::Figure::P99 => &metric::P99,
        papers::Figure::Puts => &metric::PUTS,
        papers::Figure::FileMean => &metric::FILE_MEAN,
        papers::Figure::FileMedian => &metric::FILE_MEDIAN,
        papers::Figure::FileP90 => &metric::FILE_P90,
        papers::Figure::FileP95 => &metric::FILE_P95,
    }
}
