//! Selects and draws the pictures of a report.

use super::bars::{Bar, bars};
use super::chart::{Figure, Panel};
use super::course;
use super::data::{Data, Engine, Workload, full_name};
use super::format;
use super::growth;
use super::lines::{Axis, Scale, lines, percentile};
use super::metric::{self, CPU, IO_AMP, Metric, SETTLED, THROUGHPUT, WRITE_AMP};
use super::overview::{self, Row};
use super::palette::Style;
use super::predicted;
use super::section::{Section, absent, figure, series};
use super::stats::{self, Spread};
use crate::suite::family_of;

/// File name of the main picture.
pub const MAIN_FILE: &str = "main";
/// File name of the picture of Cairn compared with the best peer.
pub const OVERVIEW_FILE: &str = "overview";
/// The workloads of the main picture, if they were run.
const MAIN: [(&str, &str); 6] = [
    ("dbbench", "fillrandom"),
    ("dbbench", "overwrite"),
    ("dbbench", "readrandom"),
    ("dbbench", "seekrandom-50"),
    ("ycsb", "ycsb-a"),
    ("ycsb", "ycsb-e"),
];

/// The pictures of a section, without empty ones.
pub fn of_section(data: &Data<'_>, section: &Section<'_, '_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    if section.is("history") {
        figures.extend(course::queries(data, section));
    }
    if section.is("growth") {
        figures.push(growth::cost_figure(data, section));
    }
    if section.is("aging") {
        figures.extend(course::aging(data, section));
    }
    figures.extend([
        bar_figure(data, section, metric::primary(section.name)),
        bar_figure(data, section, &WRITE_AMP),
    ]);
    if section.is("parallax") {
        figures.push(bar_figure(data, section, &IO_AMP));
        figures.push(predicted::prediction_figure(data, section));
    }
    figures.extend([bar_figure(data, section, &CPU), latency_curves(data, section)]);
    if !section.is("history") {
        figures.push(course::throughput(data, section));
    }
    figures.push(course::amplification(data, section));
    if section.is("steady") {
        figures.extend([course::space(data, section), course::maximum(data, section)]);
    }
    figures.retain(|figure| !figure.panels.is_empty());
    figures
}

/// The main picture: the most important workloads.
pub fn main_figure(data: &Data<'_>) -> Figure {
    let all: Vec<_> = data.workloads().collect();
    let named = |(family, name): &(&str, &str)| {
        all.iter().find(|(group, workload)| family_of(group) == *family && workload.name == *name)
    };
    let mut chosen: Vec<_> = MAIN.iter().filter_map(named).collect();
    if chosen.len() < 3 {
        chosen = all.iter().take(MAIN.len()).collect();
    }
    let has_others = chosen.iter().any(|(group, _)| metric::primary(group).key != THROUGHPUT.key);
    let what = match has_others {
        false => "Operations per second",
        true => {
            "Operations per second; of histories the 99th percentile of the latency of queries, or puts per second at full speed"
        }
    };
    let panels = chosen.into_iter().map(|(group, workload)| {
        let name = full_name(group, &workload.name);
        let metric = metric::primary(group);
        bar_panel(data, group, workload, &name, metric, &|_| true, workload.best(metric))
    });
    let info = &data.info;
    let mut machine = vec![format!("{what}, median of {}", format::plural(data.rounds(), "round"))];
    machine.extend(
        (!info.cpu.is_empty()).then(|| format!("{}, {}", info.cpu, format::plural(info.cpus, "processor"))),
    );
    machine.extend(
        info.memory_limit_bytes.map(|limit| format!("limited to {} of memory", format::bytes(limit as f64))),
    );
    Figure {
        file: MAIN_FILE.into(),
        title: "Cairn and its peers, side by side".into(),
        of: String::new(),
        caption: format!("{}. {}", machine.join("; "), BARS),
        panels: panels.collect(),
    }
}

/// Cairn compared with the best peer in all workloads.
pub fn overview_figure(data: &Data<'_>) -> Option<Figure> {
    let rows: Vec<_> = data
        .weakest_first()
        .into_iter()
        .filter_map(|(group, workload)| {
            let standing = data.standing(group, workload)?;
            let (peer, style) = (data.label(standing.peer).to_string(), Style::of(standing.peer));
            Some(Row { name: full_name(group, &workload.name), ratio: standing.ratio, peer, style })
        })
        .collect();
    (!rows.is_empty()).then(|| Figure {
        file: OVERVIEW_FILE.into(),
        title: "Cairn compared with the best peer".into(),
        of: String::new(),
        caption: "Cairn's throughput relative to that of the best peer in each workload (for histories, whose operations come at a \
                  fixed rate: the peer's p99 latency relative to Cairn's; of those at full speed the puts). Right of the line Cairn was better, left of it the \
                  peer. The scale is logarithmic; the lowest ratio comes first."
            .into(),
        panels: overview::panels(&rows),
    })
}

const BARS: &str = "Bars: median of acknowledged operations; in full colour: including the time to settle; whiskers: range over the \
                    rounds; ★ best; † stopped by the time limit.";

fn bar_figure(data: &Data<'_>, section: &Section<'_, '_>, metric: &'static Metric) -> Figure {
    // Of repeated rounds, only the first and the last: another picture shows all rounds.
    let last = section
        .workloads()
        .filter_map(|(_, workload)| course::aging_step(&workload.name))
        .map(|step| step.0)
        .max();
    let shown = section.workloads().filter(|(_, workload)| {
        let step = course::aging_step(&workload.name).filter(|_| section.is("aging"));
        workload.has(metric) && step.is_none_or(|(round, _)| round == 0 || Some(round) == last)
    });
    let panels = shown.map(|(group, workload)| {
        let best = workload.best(metric);
        bar_panel(data, group, workload, &section.name_of(group, workload), metric, &|_| true, best)
    });
    let caption = if metric.key == THROUGHPUT.key {
        format!("{} More is better. {BARS}", metric.means)
    } else {
        format!("{} Less is better. Bars: median; whiskers: range over the rounds; ★ best.", metric.means)
    };
    figure(section, metric.key, metric.name, &caption, panels.collect())
}

/// A bar for each engine that `shows` accepts; `best` is marked.
pub fn bar_panel<'a>(
    data: &Data<'a>,
    group: &str,
    workload: &Workload<'a>,
    title: &str,
    metric: &'static Metric,
    shows: &dyn Fn(&str) -> bool,
    best: Option<&str>,
) -> Panel {
    let engines = || data.engines.iter().filter(|engine| shows(engine.name));
    let rows: Vec<Bar> = engines().map(|engine| bar(data, group, workload, engine, metric, best)).collect();
    let cut = engines().filter_map(|engine| {
        workload.cut_short(engine.name).map(|words| format!("† {}: {words}", engine.label))
    });
    bars(title, metric.name, &rows, metric.show, &cut.collect::<Vec<_>>())
}

fn bar<'a>(
    data: &Data<'a>,
    group: &str,
    workload: &Workload<'a>,
    engine: &Engine<'a>,
    metric: &Metric,
    best: Option<&str>,
) -> Bar {
    let value = workload.spread(engine.name, metric);
    let cut = workload.cut_short(engine.name);
    let settled = workload.spread(engine.name, &SETTLED).map(|spread| spread.median);
    let inner = value
        .zip(settled)
        .filter(|(value, settled)| metric.key == THROUGHPUT.key && *settled < value.median * 0.99);
    let words = match value {
        Some(value) => format!("{}{}", (metric.show)(value.median), if cut.is_some() { " †" } else { "" }),
        None => absent(data, engine.name, group, workload).to_string(),
    };
    let mut tip = match value {
        Some(value) => format!("{}: {}", engine.title, in_words(&value, metric)),
        None => format!("{}: {words}", engine.title),
    };
    if let Some((_, settled)) = inner {
        tip.push_str(&format!("; {} {}", SETTLED.name.to_lowercase(), (SETTLED.show)(settled)));
    }
    Bar {
        label: engine.label.clone(),
        style: engine.style,
        value,
        inner: inner.map(|(_, settled)| settled),
        words,
        tip: cut.map_or(tip.clone(), |cut| format!("{tip}; {cut}")),
        best: best == Some(engine.name),
    }
}

fn in_words(value: &Spread, metric: &Metric) -> String {
    let show = metric.show;
    let name = metric.name.to_lowercase();
    if value.rounds == 1 {
        return format!("{name} {}", show(value.median));
    }
    format!(
        "{name} {} ({} to {} in {} rounds)",
        show(value.median),
        show(value.min),
        show(value.max),
        value.rounds
    )
}

fn latency_curves(data: &Data<'_>, section: &Section<'_, '_>) -> Figure {
    let x = Axis { title: "percentile of the operations", scale: Scale::Nines, show: percentile };
    let y = Axis { title: "latency", scale: Scale::Log, show: format::micros };
    let panels = section.workloads().filter_map(|(group, workload)| {
        let all = series(data, |engine| curve(workload, engine));
        (!all.is_empty()).then(|| lines(&section.name_of(group, workload), x, y, &all))
    });
    let caption = "Duration of operations: at 99, 99 of 100 took at most this time. Both axes are logarithmic (the x axis in \
                   nines); lower is better. Medians over the rounds.";
    figure(section, "latency", "Latency", caption, panels.collect())
}

/// The points of the latency curve, each the median over the rounds.
fn curve(workload: &Workload<'_>, engine: &str) -> Vec<(f64, f64)> {
    let rounds = workload.of(engine);
    let Some(longest) = rounds.iter().map(|record| &record.curve_us).max_by_key(|curve| curve.len()) else {
        return Vec::new();
    };
    let at = |fraction: f64| {
        let of_rounds =
            rounds.iter().filter_map(|record| record.curve_us.iter().find(|point| point.0 == fraction));
        stats::median(of_rounds.map(|point| point.1)).map(|us| (fraction, us.max(0.001)))
    };
    longest.iter().filter_map(|point| at(point.0)).collect()
}
