//! The lines of a run as groups, their workloads, and for each engine the records of all rounds.

use super::format;
use super::metric::{self, Metric};
use super::palette::{self, Style};
use super::stats::Spread;
use crate::record::{Line, Record, RunInfo};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum length of an engine's title beside a bar.
const MAX_TITLE_LEN: usize = 14;
/// A report warns if other processes used a larger fraction of the machine.
const MAX_OTHERS_SHARE: f64 = 0.05;
/// A report warns if the rounds differ by a larger fraction of the median.
const MAX_RANGE: f64 = 0.3;

/// The data of a report.
pub struct Data<'a> {
    /// The machine and the method.
    pub info: RunInfo,
    /// The engines, in the order of presentation.
    pub engines: Vec<Engine<'a>>,
    /// The groups, in the order of execution.
    pub groups: Vec<Group<'a>>,
    /// Engines that did not finish a group.
    pub failures: Vec<Failure<'a>>,
}

/// An engine that has results or has failed.
pub struct Engine<'a> {
    /// Such as `rocksdb-blob`.
    pub name: &'a str,
    /// Such as `RocksDB with blob files`.
    pub title: String,
    /// The title if it fits into a picture, otherwise the name.
    pub label: String,
    /// Its version; empty without results.
    pub version: &'a str,
    /// Its style.
    pub style: Style,
}

/// Workloads that share one database.
pub struct Group<'a> {
    /// Such as `dbbench`; empty for workloads that run alone.
    pub name: &'a str,
    /// The workloads in order.
    pub workloads: Vec<Workload<'a>>,
}

/// One workload on all engines.
pub struct Workload<'a> {
    /// Its name, with a number if the group repeats it: `overwrite #2`.
    pub name: String,
    /// Records by engine, in the order of rounds.
    pub runs: BTreeMap<&'a str, Vec<&'a Record>>,
}

/// An engine that did not finish a group.
pub struct Failure<'a> {
    /// The engine.
    pub engine: &'a str,
    /// The group.
    pub group: &'a str,
    /// The round.
    pub round: u32,
    /// The error message.
    pub message: &'a str,
}

/// Cairn compared with the best peer in one workload.
pub struct Standing<'a> {
    /// Cairn relative to the best peer in the primary metric: above 1, Cairn is better.
    pub ratio: f64,
    /// The best peer.
    pub peer: &'a str,
}

impl<'a> Data<'a> {
    /// Arranges the lines.
    pub fn of(lines: &'a [Line]) -> Data<'a> {
        let info = run_info(lines);
        let records: Vec<&Record> = lines.iter().filter_map(result).collect();
        let failures: Vec<Failure<'_>> = lines.iter().filter_map(failure).collect();
        let engines = engines(&info, &records, &failures);
        Data { info, engines, groups: groups(&records), failures }
    }

    /// The title of an engine.
    pub fn label(&self, engine: &'a str) -> &str {
        self.engines.iter().find(|known| known.name == engine).map_or(engine, |known| &known.label)
    }

    /// Whether an engine failed in any round of a group.
    pub fn failed(&self, engine: &str, group: &str) -> bool {
        self.failures.iter().any(|failure| failure.engine == engine && failure.group == group)
    }

    /// The engine to which the others are compared: Cairn with default options.
    pub fn home(&self) -> Option<&'a str> {
        self.engines.first().map(|engine| engine.name).filter(|name| is_cairn(name))
    }

    /// Cairn compared with the best peer in a workload; `None` if Cairn or all peers are missing.
    pub fn standing(&self, group: &str, workload: &Workload<'a>) -> Option<Standing<'a>> {
        let metric = metric::primary(group);
        let own = workload.spread(self.home()?, metric)?.median;
        let peers = self.engines.iter().filter(|engine| !is_cairn(engine.name));
        let ratio = |peer: &Engine<'a>| {
            Some(Standing {
                ratio: metric.advantage(own, workload.spread(peer.name, metric)?.median),
                peer: peer.name,
            })
        };
        peers.filter_map(ratio).min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// All workloads with their groups' names.
    pub fn workloads(&self) -> impl Iterator<Item = (&'a str, &Workload<'a>)> {
        self.groups.iter().flat_map(|group| group.workloads.iter().map(|workload| (group.name, workload)))
    }

    /// All workloads, from the lowest ratio of Cairn to its best peer; those without a comparison are last.
    pub fn weakest_first(&self) -> Vec<(&'a str, &Workload<'a>)> {
        let mut all: Vec<_> = self.workloads().collect();
        let ratio =
            |group, workload| self.standing(group, workload).map_or(f64::INFINITY, |standing| standing.ratio);
        all.sort_by(|a, b| ratio(a.0, a.1).total_cmp(&ratio(b.0, b.1)));
        all
    }

    /// Number of rounds with results.
    pub fn rounds(&self) -> usize {
        let rounds: BTreeSet<u32> = self.records().map(|record| record.round).collect();
        rounds.len()
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = &'a Record> {
        self.workloads().flat_map(|(_, workload)| workload.runs.values().flatten().copied())
    }

    /// Warnings that a reader must know first: those of the run, and those derived from the records.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.info.warnings.clone();
        if self.rounds() == 1 {
            warnings
                .push("There is one round only: the figures have no spread, and chance is in them.".into());
        }
        let spreads = self.workloads().flat_map(|(group, workload)| {
            let metric = metric::primary(group);
            workload.runs.keys().filter_map(move |engine| workload.spread(engine, metric))
        });
        let (wide, all) = spreads
            .fold((0, 0), |(wide, all), spread| (wide + usize::from(spread.width() > MAX_RANGE), all + 1));
        if wide > 0 {
            warnings.push(format!(
                "In {wide} of {all} figures the rounds lie more than {:.0} % of the median apart: small differences say nothing.",
                MAX_RANGE * 100.0
            ));
        }
        let busy: Vec<&Record> = self
            .records()
            .filter(|record| record.busy_others.is_some_and(|share| share > MAX_OTHERS_SHARE))
            .collect();
        if let Some(worst) = busy.iter().max_by(|a, b| a.busy_others.partial_cmp(&b.busy_others).unwrap()) {
            warnings.push(format!(
                "Other processes used more than {} of the machine during {}; most, {}, during {} on {} (round {}).",
                format::percent(MAX_OTHERS_SHARE),
                format::plural(busy.len(), "run"),
                format::percent(worst.busy_others.unwrap_or_default()),
                worst.workload,
                self.label(&worst.engine),
                worst.round
            ));
        }
        warnings
    }
}

impl<'a> Workload<'a> {
    /// The records of an engine; may be empty.
    pub fn of(&self, engine: &str) -> &[&'a Record] {
        self.runs.get(engine).map_or(&[], Vec::as_slice)
    }

    /// A metric of an engine over all rounds.
    pub fn spread(&self, engine: &str, metric: &Metric) -> Option<Spread> {
        Spread::of(self.of(engine).iter().filter_map(|record| (metric.of)(record)))
    }

    /// Whether any engine has this metric.
    pub fn has(&self, metric: &Metric) -> bool {
        self.runs.values().flatten().any(|record| (metric.of)(record).is_some())
    }

    /// The engine with the best value, if there are others and none has the same value.
    pub fn best(&self, metric: &Metric) -> Option<&'a str> {
        self.best_of(metric, &|_| true)
    }

    /// The same among those engines that `compares` accepts.
    pub fn best_of(&self, metric: &Metric, compares: &dyn Fn(&str) -> bool) -> Option<&'a str> {
        let figure = |engine: &&'a str| Some((*engine, metric.figure(&self.spread(engine, metric)?)));
        let engines = self.runs.keys().filter(|engine| compares(engine));
        let mut known: Vec<(&str, f64)> = engines.filter_map(figure).collect();
        known.sort_by(|a, b| if metric.more_is_better { b.1.total_cmp(&a.1) } else { a.1.total_cmp(&b.1) });
        match known[..] {
            [(best, first), (_, second), ..] if first != second => Some(best),
            _ => None,
        }
    }

    /// For a workload ended by the time limit: `stopped after 60 s, 1.20 M of 5.00 M operations`.
    pub fn cut_short(&self, engine: &str) -> Option<String> {
        let least =
            self.of(engine).iter().filter(|record| record.cut_short).min_by_key(|record| record.ops)?;
        Some(format!(
            "stopped after {}, {} of {} operations",
            format::seconds(least.seconds),
            format::count(least.ops as f64),
            format::count(least.ops_asked as f64)
        ))
    }

    /// The round with the median of the primary metric, which represents all rounds. Of an even number, the lower
    /// one of the middle two.
    pub fn typical(&self, group: &str, engine: &str) -> Option<&'a Record> {
        let value = |record: &Record| (metric::primary(group).of)(record).unwrap_or_default();
        let mut rounds = self.of(engine).to_vec();
        rounds.sort_by(|a, b| value(a).total_cmp(&value(b)));
        rounds.get(rounds.len().checked_sub(1)? / 2).copied()
    }
}

/// The name of a workload among those of other groups: `dbbench-128: fillrandom`, but `ycsb-a`.
pub fn full_name(group: &str, workload: &str) -> String {
    if workload.starts_with(group) { workload.to_string() } else { format!("{group}: {workload}") }
}

/// Whether this is Cairn with any preset.
pub fn is_cairn(engine: &str) -> bool {
    palette::rank(engine).0 == 0
}

fn result(line: &Line) -> Option<&Record> {
    if let Line::Result(record) = line { Some(record) } else { None }
}

fn failure(line: &Line) -> Option<Failure<'_>> {
    let Line::Failure { engine, group, round, message } = line else { return None };
    Some(Failure { engine, group, round: *round, message })
}

/// The last line about the run, with the warnings of all such lines.
fn run_info(lines: &[Line]) -> RunInfo {
    let all: Vec<&RunInfo> =
        lines.iter().filter_map(|line| if let Line::Run(info) = line { Some(info) } else { None }).collect();
    let mut info = all.last().map(|info| (*info).clone()).unwrap_or_default();
    info.warnings.clear();
    if all.is_empty() {
        info.warnings.push("The results do not say on which machine they were measured.".into());
    }
    for warning in all.iter().flat_map(|info| &info.warnings) {
        if !info.warnings.contains(warning) {
            info.warnings.push(warning.clone());
        }
    }
    info
}

fn engines<'a>(info: &RunInfo, records: &[&'a Record], failures: &[Failure<'a>]) -> Vec<Engine<'a>> {
    let mut versions: BTreeMap<&str, &str> = failures.iter().map(|failure| (failure.engine, "")).collect();
    versions.extend(records.iter().map(|record| (record.engine.as_str(), record.engine_version.as_str())));
    let mut engines: Vec<Engine<'a>> = versions
        .into_iter()
        .map(|(name, version)| {
            let title = info.engines.get(name).cloned().unwrap_or_else(|| name.to_string());
            let fits = title.chars().count() <= MAX_TITLE_LEN;
            let label = if fits { title.clone() } else { name.to_string() };
            Engine { name, label, title, version, style: Style::of(name) }
        })
        .collect();
    engines.sort_by_key(|engine| palette::rank(engine.name));
    engines
}

fn groups<'a>(records: &[&'a Record]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    // A group may run the same workload several times: the n-th time in a round is a separate workload.
    let mut seen: HashMap<(&str, &str, &str, u32), usize> = HashMap::new();
    for &record in records {
        let times = seen.entry((&record.engine, &record.group, &record.workload, record.round)).or_default();
        *times += 1;
        let name =
            if *times == 1 { record.workload.clone() } else { format!("{} #{times}", record.workload) };
        let at = groups.iter().position(|group| group.name == record.group).unwrap_or_else(|| {
            groups.push(Group { name: &record.group, workloads: Vec::new() });
            groups.len() - 1
        });
        let workloads = &mut groups[at].workloads;
        let at = workloads.iter().position(|workload| workload.name == name).unwrap_or_else(|| {
            workloads.push(Workload { name, runs: BTreeMap::new() });
            workloads.len() - 1
        });
        workloads[at].runs.entry(&record.engine).or_default().push(record);
    }
    groups.iter_mut().flat_map(|group| &mut group.workloads).flat_map(|w| w.runs.values_mut()).for_each(
        |rounds| {
            rounds.sort_by_key(|record| record.round);
        },
    );
    groups
}
