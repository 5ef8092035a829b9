//! Tables, written as HTML for the page and as Markdown for `tables.md`.

use super::data::{Data, Workload, full_name};
use super::format;
use super::metric::{self, COLUMNS, DATA_RATIO, DISK_READS, KEYS, Metric};
use super::section::absent;
use super::stats::{self, Spread};
use crate::agreement::Agreement;
use crate::record::{Latency, Record, Settings};
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// A table. The first column has the names of the rows.
pub struct Table {
    /// The column titles.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row.
pub enum Row {
    /// A heading above the following rows.
    Heading(String),
    /// A name, and a cell for each further column.
    Cells(String, Vec<Cell>),
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// The main text.
    pub main: String,
    /// Additional lines in smaller letters.
    pub small: Vec<String>,
    /// A remark below these.
    pub note: Option<String>,
    /// Whether it has the best value of its row or column.
    pub best: bool,
    /// Whether it has no value.
    pub missing: bool,
}

impl Cell {
    /// A plain cell.
    pub fn of(main: impl Into<String>) -> Cell {
        Cell { main: main.into(), ..Cell::default() }
    }

    fn missing(why: &str) -> Cell {
        Cell { missing: true, ..Cell::of(why) }
    }
}

impl Table {
    /// The table as an element of a page.
    pub fn html(&self) -> Markup {
        html! {
            div.scroll { table {
                thead { tr { @for head in &self.head { th scope="col" { (head) } } } }
                tbody { @for row in &self.rows { @match row {
                    Row::Heading(words) => tr.heading { th colspan=(self.head.len()) scope="rowgroup" { span { (words) } } },
                    Row::Cells(name, cells) => tr {
                        th scope="row" { (name) }
                        @for cell in cells { (cell.html()) }
                    },
                } } }
            } }
        }
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.head.iter().map(|head| escape(head)).collect());
        text += &line((0..self.head.len()).map(|i| if i == 0 { "---" } else { "--:" }.to_string()).collect());
        for row in &self.rows {
            text += &match row {
                Row::Heading(words) => {
                    let mut cells = vec![String::new(); self.head.len()];
                    cells[0] = format!("**{}**", escape(words));
                    line(cells)
                }
                Row::Cells(name, cells) => {
                    line([escape(name)].into_iter().chain(cells.iter().map(Cell::markdown)).collect())
                }
            };
        }
        text
    }
}

impl Cell {
    fn html(&self) -> Markup {
        html! {
            td class=[self.missing.then_some("missing").or(self.best.then_some("best"))] {
                @if self.best { span title="best" { "★ " } }
                (self.main)
                @for small in &self.small { small { (small) } }
                @if let Some(note) = &self.note { small.note { (note) } }
            }
        }
    }

    fn markdown(&self) -> String {
        let main = escape(&self.main);
        let main = if self.best { format!("**★ {main}**") } else { main };
        [main]
            .into_iter()
            .chain(self.small.iter().chain(&self.note).map(|small| escape(small)))
            .collect::<Vec<_>>()
            .join("<br>")
    }
}

/// Escapes characters with a meaning in Markdown or HTML.
pub fn escape(words: &str) -> String {
    let mut text = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '&' => text.push_str("&amp;"),
            '\n' | '\r' => text.push(' '),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' => text.extend(['\\', c]),
            _ => text.push(c),
        }
    }
    text
}

/// Workloads and engines: the primary metric with its range over the rounds, and relative to Cairn.
pub fn summary(data: &Data<'_>, weakest_first: bool) -> Table {
    let mut head = ["workload", DATA_RATIO.head].map(String::from).to_vec();
    head.extend(data.engines.iter().map(|engine| engine.title.clone()));
    head.push("Cairn / best peer".into());
    let mut rows = Vec::new();
    if weakest_first {
        rows.extend(
            data.weakest_first().into_iter().map(|(group, workload)| {
                summary_row(data, group, workload, full_name(group, &workload.name))
            }),
        );
    } else {
        for group in &data.groups {
            if !group.name.is_empty() {
                rows.push(Row::Heading(group.name.to_string()));
            }
            rows.extend(
                group
                    .workloads
                    .iter()
                    .map(|workload| summary_row(data, group.name, workload, workload.name.clone())),
            );
        }
    }
    Table { head, rows }
}

fn summary_row(data: &Data<'_>, group: &str, workload: &Workload<'_>, name: String) -> Row {
    let metric = metric::primary(group);
    let best = workload.best(metric);
    let own = data.home().and_then(|home| workload.spread(home, metric));
    let mut cells = vec![size(workload)];
    cells.extend(data.engines.iter().map(|engine| {
        let Some(value) = workload.spread(engine.name, metric) else {
            return Cell::missing(absent(data, engine.name, group, workload));
        };
        let unit = if metric.more_is_better { String::new() } else { format!("{} ", metric.head) };
        let mut small = vec![spread(&value, metric)];
        let other = own.filter(|_| data.home() != Some(engine.name));
        small.extend(other.map(|own| format::times(metric.advantage(value.median, own.median))));
        let disk_reads = workload.spread(engine.name, &DISK_READS).map(|reads| reads.median);
        small.extend(disk_reads.map(|reads| format!("{} {}", (DISK_READS.show)(reads), DISK_READS.head)));
        let note = workload.cut_short(engine.name).map(|words| format!("† {words}"));
        small.retain(|words| !words.is_empty());
        let main = format!("{unit}{}", (metric.show)(value.median));
        Cell { main, small, note, best: best == Some(engine.name), missing: false }
    }));
    cells.push(match data.standing(group, workload) {
        Some(standing) => Cell {
            small: vec![data.label(standing.peer).to_string()],
            ..Cell::of(format::times(standing.ratio))
        },
        None => Cell::missing("–"),
    });
    Row::Cells(name, cells)
}

/// The size of the data after a workload relative to the memory limit, and the number of keys: of the engine with
/// the most, because one that was cut short has fewer.
fn size(workload: &Workload<'_>) -> Cell {
    let most = |metric: &Metric| all(workload).filter_map(|record| (metric.of)(record)).reduce(f64::max);
    let keys = most(&KEYS).map(|keys| format!("{} {}", (KEYS.show)(keys), KEYS.head));
    match (most(&DATA_RATIO), keys) {
        (Some(ratio), keys) => {
            Cell { small: keys.into_iter().collect(), ..Cell::of((DATA_RATIO.show)(ratio)) }
        }
        (None, Some(keys)) => Cell::of(keys),
        (None, None) => Cell::missing("–"),
    }
}

/// The lowest and the highest round; empty for one round.
pub fn spread(value: &Spread, metric: &Metric) -> String {
    if value.rounds < 2 {
        return String::new();
    }
    let (min, max) = ((metric.show)(value.min), (metric.show)(value.max));
    // The unit once, if both have the same.
    match (min.split_once(' '), max.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {max}"),
        _ => format!("{min} to {max}"),
    }
}

/// All metrics of a workload, one row per engine.
pub fn figures(data: &Data<'_>, group: &str, workload: &Workload<'_>) -> Table {
    let columns: Vec<&Metric> = COLUMNS.iter().filter(|metric| workload.has(metric)).collect();
    let extra: Vec<&Extra> =
        EXTRA.iter().filter(|extra| all(workload).any(|record| (extra.of)(record).is_some())).collect();
    let mut head = vec!["engine".to_string()];
    head.extend(columns.iter().map(|metric| metric.head.to_string()));
    head.extend(extra.iter().map(|extra| extra.head.to_string()));
    let row = |engine: &super::data::Engine<'_>| {
        let runs = workload.of(engine.name);
        if runs.is_empty() {
            let mut cells = vec![Cell::default(); head.len() - 1];
            cells[0] = Cell::missing(absent(data, engine.name, group, workload));
            return Row::Cells(engine.title.clone(), cells);
        }
        let figure = |metric: &&Metric| match workload.spread(engine.name, metric) {
            Some(value) => Cell {
                main: (metric.show)(metric.figure(&value)),
                small: if metric.key == "throughput" { vec![spread(&value, metric)] } else { Vec::new() },
                best: metric.is_compared() && workload.best(metric) == Some(engine.name),
                ..Cell::default()
            },
            None => Cell::missing("–"),
        };
        let mut cells: Vec<Cell> = columns.iter().map(figure).collect();
        cells[0].note = workload.cut_short(engine.name).map(|words| format!("† {words}"));
        cells[0].small.retain(|words| !words.is_empty());
        cells.extend(extra.iter().map(|extra| {
            let value = stats::median(runs.iter().filter_map(|record| (extra.of)(record)));
            value.map_or(Cell::missing("–"), |value| Cell::of((extra.show)(value)))
        }));
        Row::Cells(engine.title.clone(), cells)
    };
    Table { rows: data.engines.iter().map(row).collect(), head }
}

/// A column that only some workloads have.
struct Extra {
    head: &'static str,
    of: fn(&Record) -> Option<f64>,
    show: fn(f64) -> String,
}

const EXTRA: [Extra; 9] = [
    Extra { head: "mean", of: |r| r.call_us.map(|_| r.lat_us.mean), show: format::micros },
    Extra { head: "p95", of: |r| r.call_us.map(|_| r.lat_us.p95), show: format::micros },
    Extra { head: "mean of the calls", of: |r| r.call_us.map(|call| call.mean), show: format::micros },
    Extra { head: "p95 of the calls", of: |r| r.call_us.map(|call| call.p95), show: format::micros },
    Extra { head: "p99 of the calls", of: |r| r.call_us.map(|call| call.p99), show: format::micros },
    Extra { head: "writers' puts/s", of: |r| r.writer.map(|writer| writer.ops_per_s), show: format::count },
    Extra { head: "writers' p99", of: |r| r.writer.map(|writer| writer.lat_us.p99), show: format::micros },
    Extra { head: "write stalls", of: |r| r.stall_seconds.filter(|s| *s > 0.0), show: format::seconds },
    Extra {
        head: "longest stall",
        of: |r| r.longest_stall_seconds.filter(|s| *s > 0.0),
        show: format::seconds,
    },
];

fn all<'w>(workload: &'w Workload<'_>) -> impl Iterator<Item = &'w Record> {
    workload.runs.values().flatten().copied()
}

/// Latencies by kind of operation; `None` if there is only one kind.
pub fn by_kind(data: &Data<'_>, workload: &Workload<'_>) -> Option<Table> {
    let kinds: BTreeSet<&str> =
        all(workload).flat_map(|record| record.lat_us_by_kind.keys().map(String::as_str)).collect();
    if kinds.len() < 2 {
        return None;
    }
    let head = ["engine".to_string()]
        .into_iter()
        .chain(kinds.iter().map(|kind| format!("{kind}: p50 / p99 / p99.9")));
    let engines = data.engines.iter().filter(|engine| !workload.of(engine.name).is_empty());
    let rows = engines.map(|engine| {
        let cell = |kind: &&str| {
            let at = |of: fn(&Latency) -> f64| {
                let rounds =
                    workload.of(engine.name).iter().filter_map(|record| record.lat_us_by_kind.get(*kind));
                stats::median(rounds.map(of)).map_or("–".to_string(), format::micros)
            };
            Cell::of(format!("{} / {} / {}", at(|lat| lat.p50), at(|lat| lat.p99), at(|lat| lat.p999)))
        };
        Row::Cells(engine.title.clone(), kinds.iter().map(cell).collect())
    });
    Some(Table { head: head.collect(), rows: rows.collect() })
}

/// The requested settings by group.
pub fn settings(data: &Data<'_>) -> Table {
    type Of = fn(&Settings) -> String;
    let columns: [(&str, Of); 10] = [
        ("keys", |s| format::count(s.num as f64)),
        ("key bytes", |s| s.key_size.to_string()),
        ("value bytes", |s| s.value_sizes.clone()),
        ("threads", |s| s.threads.to_string()),
        ("durability", |s| s.durability.clone()),
        ("memtable", |s| format::bytes(s.memtable_bytes as f64)),
        ("cache", |s| format::bytes(s.cache_bytes as f64)),
        ("background threads", |s| s.background_threads.to_string()),
        ("filter bits per key", |s| s.filter_bits_per_key.to_string()),
        ("memory limit", |s| s.memory_limit_bytes.map_or("none".into(), |bytes| format::bytes(bytes as f64))),
    ];
    let rows = data.groups.iter().map(|group| {
        let cell = |(_, of): &(&str, Of)| {
            let mut values: Vec<String> = Vec::new();
            for value in group.workloads.iter().flat_map(|w| all(w)).map(|record| of(&record.settings)) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            // Growing databases have many sizes: the first and the last are enough.
            let words = if values.len() > 3 {
                [&values[0], &values[values.len() - 1]].map(String::as_str).join(" to ")
            } else {
                values.join(", ")
            };
            Cell::of(words)
        };
        let name = if group.name.is_empty() { "alone" } else { group.name };
        Row::Cells(name.to_string(), columns.iter().map(cell).collect())
    });
    let rows = rows.collect();
    Table {
        head: ["group"].into_iter().chain(columns.iter().map(|column| column.0)).map(String::from).collect(),
        rows,
    }
}

/// The settings of an engine by its own names; a setting that differs between groups is listed with the groups.
pub fn engine_settings(data: &Data<'_>, engine: &str) -> Table {
    let mut values: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    let mut groups: BTreeSet<&str> = BTreeSet::new();
    for (group, record) in
        data.workloads().flat_map(|(group, w)| w.of(engine).iter().map(move |record| (group, *record)))
    {
        groups.insert(group);
        for (name, value) in &record.engine_settings {
            values.entry(name).or_default().entry(value).or_default().insert(group);
        }
    }
    let cell = |values: &BTreeMap<&str, BTreeSet<&str>>| {
        let one = |(value, of): (&&str, &BTreeSet<&str>)| {
            let of: Vec<&str> = of.iter().copied().collect();
            if of.len() == groups.len() { value.to_string() } else { format!("{value} ({})", of.join(", ")) }
        };
        let words: Vec<String> = values.iter().map(one).collect();
        Cell::of(words.join("; "))
    };
    let rows = values.iter().map(|(name, values)| Row::Cells(name.to_string(), vec![cell(values)]));
    Table { head: vec!["setting".into(), "value".into()], rows: rows.collect() }
}

/// The contents of engines that disagreed.
pub fn differences(data: &Data<'_>, verdict: &Agreement<'_>) -> Table {
    let mut head = vec!["workload, round".to_string()];
    head.extend(data.engines.iter().map(|engine| engine.title.clone()));
    let rows = verdict.differ.iter().map(|difference| {
        let cells = data.engines.iter().map(|engine| {
            let Some((_, held)) = difference.found.iter().find(|(name, _)| *name == engine.name) else {
                return Cell::missing("–");
            };
            let small = vec![format!("{} entries, {} bytes", held.entries, held.bytes)];
            Cell { small, ..Cell::of(format!("{:016x}", held.checksum)) }
        });
        let name = full_name(difference.group, difference.workload);
        Row::Cells(format!("{name}, round {}", difference.round), cells.collect())
    });
    Table { rows: rows.collect(), head }
}

/// All tables as Markdown, starting with the workloads in which Cairn is weakest.
pub fn markdown(data: &Data<'_>, verdict: &Agreement<'_>) -> String {
    let mut text = String::from("# Metrics, starting with the workloads in which Cairn is weakest\n\n");
    text += &about(data);
    text += &format!("\n{SUMMARY}\n\n");
    text += &summary(data, true).markdown();
    for (group, workload) in data.weakest_first() {
        text += &format!("\n## {}\n\n", escape(&full_name(group, &workload.name)));
        text += &figures(data, group, workload).markdown();
        if let Some(kinds) = by_kind(data, workload) {
            text += &format!("\n{}", kinds.markdown());
        }
    }
    text += &format!("\n## Contents\n\n{}\n", escape(&verdict.to_string()));
    if !verdict.differ.is_empty() {
        text += &format!("\n{}", differences(data, verdict).markdown());
    }
    text += &format!("\n## Settings\n\n{}", settings(data).markdown());
    for engine in &data.engines {
        text +=
            &format!("\n### {}\n\n{}", escape(&engine.title), engine_settings(data, engine.name).markdown());
    }
    text
}

/// How to read the summary.
pub const SUMMARY: &str = "Size of the data relative to the memory limit, and distinct keys. Median throughput in operations per second, \
                           range over the rounds, ratio to Cairn (above 1× is better than Cairn), and disk requests per \
                           operation. ★ best. † stopped by the time limit. Histories, whose operations come at a fixed rate, \
                           show p99 latency instead; those at full speed, puts per second.";

/// What was measured on which machine, and warnings: a paragraph, and notes.
pub fn about(data: &Data<'_>) -> String {
    let mut text = String::new();
    let info = &data.info;
    let limit = info
        .memory_limit_bytes
        .map_or("no memory limit".into(), |b| format!("memory limit {}", format::bytes(b as f64)));
    text += &escape(&format!(
        "Measured {} at {}; {}, {}, {}, {limit}; {} on {}; {}.",
        info.started,
        info.commit,
        info.cpu,
        format::plural(info.cpus, "processor"),
        format::bytes(info.memory_bytes as f64),
        info.file_system,
        info.kernel,
        format::plural(data.rounds(), "round"),
    ));
    text += "\n\n";
    for warning in data.warnings() {
        text += &format!("> **Note:** {}\n>\n", escape(&warning));
    }
    for failure in &data.failures {
        let words = format!(
            "{} did not finish {} (round {}): {}",
            failure.engine, failure.group, failure.round, failure.message
        );
        text += &format!("> **Failed:** {}\n>\n", escape(&words));
    }
    text
}
