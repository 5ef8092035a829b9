//! `run`: engines take turns.
//!
//! ```text
//!   for each round, group and engine                      (a different engine starts every time)
//!     place    an empty directory, nothing dirty in the page cache
//!     turn     a separate process in a separate control group    -- child --> session
//!     results  a line for each workload, written at once
//!   summary    medians    agreement    whether all engines have the same contents
//! ```
//!
//! If an engine fails, dies or hangs, its turn ends and the run continues.

pub mod child;
mod place;
pub mod results;
mod summary;
mod turn;

use crate::program::args::RunArgs;
use crate::program::failure::Failure;
use crate::program::progress::{Progress, Turn};
use crate::program::text::{human_bytes, human_seconds, plural};
use bench::agreement;
use bench::cgroup::Cgroup;
use bench::engine::Kind;
use bench::machine::{self, Busy};
use bench::papers::{self, Paper};
use bench::record::{Line, Record, RunInfo};
use bench::session::Event;
use bench::suite::{Adjust, Group, Step, groups};
use place::Place;
use results::Results;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use turn::Fault;

/// The engines of histories.
const HISTORY: [&str; 4] = ["cairn-history", "rocksdb", "rocksdb-timestamps", "leveldb"];

/// Other processes that use a larger fraction of the processors cause a warning.
const MAX_OTHERS_SHARE: f64 = 0.1;

/// Runs the requested workloads.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let engines = chosen_engines(args)?;
    let groups = chosen_groups(args)?;
    let out = args.out.clone().unwrap_or_else(default_out);
    let dir = args.dir.clone().unwrap_or_else(|| out.join("db"));
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .map_err(|e| Failure::System(format!("install the interrupt handler: {e}")))?;
    enough_space(&dir, &groups)?;
    let place = Place::take(&dir).map_err(Failure::Usage)?;
    let results = Results::create(&out, args.append).map_err(Failure::Usage)?;
    let mut info = machine::describe(&dir);
    info.scale = if is_custom(args) { "custom".to_string() } else { args.scale().to_string() };
    info.rounds = args.rounds();
    info.engines = engines.iter().map(|kind| (kind.name.to_string(), kind.title.to_string())).collect();
    info.memory_limit_bytes = memory_limit(args, &mut info.warnings);
    wait_for_calm(args.wait_seconds, &interrupted, &mut info.warnings);
    info.warnings.iter().for_each(|warning| eprintln!("cairn-bench: warning: {warning}"));
    let mut run =
        Run { args, engines, groups, place, results, info, interrupted, records: Vec::new(), failures: 0 };
    let finished = run.all();
    run.conclude(finished, &out)
}

/// The named engines, or all; Cairn with other options, prototypes, and RocksDB with timestamps, which is for histories, only if named or where
/// all groups are histories.
fn chosen_engines(args: &RunArgs) -> Result<Vec<Kind>, Failure> {
    let all = bench::engines::all();
    let names: Vec<&str> = all.iter().map(|kind| kind.name).collect();
    all_known("engine", &args.engines, &names)?;
    let by_default =
        |name: &str| !name.starts_with("cairn-") && !["range-merge", "rocksdb-timestamps"].contains(&name);
    let requested = |name: &str| args.engines.iter().any(|requested| requested == name);
    let of_papers = |name: &str| args.papers().iter().any(|paper| paper.compares(name));
    let histories = args.is_of_family("history");
    Ok(all
        .into_iter()
        .filter(|kind| match args.engines.is_empty() {
            true if !args.papers().is_empty() => of_papers(kind.name),
            true if histories => HISTORY.contains(&kind.name),
            true => by_default(kind.name),
            false => requested(kind.name),
        })
        .collect())
}

/// The named groups, or all, with the named workloads, or all. The fill of a group always stays.
fn chosen_groups(args: &RunArgs) -> Result<Vec<Group>, Failure> {
    if args.factor.is_some_and(|factor| !(factor > 0.0 && factor <= 1000.0)) {
        return Err(Failure::Usage("--factor: must be more than 0 and at most 1000".to_string()));
    }
    if args.seconds_max.is_some_and(|seconds| !(seconds > 0.0 && seconds < 1e6)) {
        return Err(Failure::Usage("--seconds-max: must be more than 0 and at most a million".to_string()));
    }
    let adjust = Adjust { seed: args.seed, seconds_max: args.seconds_max, factor: args.factor };
    let mut groups = groups(args.scale(), &adjust);
    let known: Vec<String> = with_families(&groups).into_iter().chain(papers::names()).collect();
    all_known("group", &args.groups, &known)?;
    let steps = || groups.iter().flat_map(|group| &group.steps);
    let workloads: BTreeSet<String> =
        steps().flat_map(|step| [step.name(), step.workload.name().to_string()]).collect();
    all_known("workload", &args.workloads, &workloads.into_iter().collect::<Vec<_>>())?;
    let named = |group: &Group| {
        let is = |name: &String| {
            *name == group.name
                || name == group.family()
                || papers::named(name).iter().any(|paper| paper.needs(&group.name))
        };
        args.groups.iter().any(is)
    };
    groups.retain(|group| if args.groups.is_empty() { !group.on_request } else { named(group) });
    if !args.papers().is_empty() {
        groups.iter_mut().for_each(|group| keep_steps_of(group, args.papers()));
    }
    if !args.workloads.is_empty() {
        groups.iter_mut().for_each(|group| keep_steps(group, &args.workloads));
        groups.retain(|group| !group.steps.is_empty());
    }
    if groups.is_empty() {
        return Err(Failure::Usage("none of these workloads is in these groups".to_string()));
    }
    for step in groups.iter_mut().flat_map(|group| &mut group.steps) {
        step.sum_up &= args.verify;
    }
    Ok(groups)
}

/// The names of groups, and of families of several groups.
fn with_families(groups: &[Group]) -> Vec<String> {
    let mut names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    for family in groups.iter().map(Group::family) {
        if groups.iter().filter(|group| group.family() == family).count() > 1
            && !names.iter().any(|n| n == family)
        {
            names.push(family.to_string());
        }
    }
    names
}

/// Keeps the steps that experiments of these papers need.
fn keep_steps_of(group: &mut Group, papers: &[Paper]) {
    let name = &group.name;
    let needed = |step: &Step| {
        papers
            .iter()
            .any(|paper| paper.needs(name) && paper.needs_workload(name, &step.name(), step.workload))
    };
    group.steps.retain(needed);
}

/// Keeps the named steps and the first one, the fill. Keeps none if none of them is named.
fn keep_steps(group: &mut Group, names: &[String]) {
    let mut first = true;
    let mut any = false;
    group.steps.retain(|step| {
        let named = names.iter().any(|name| *name == step.name() || name == step.workload.name());
        any |= named;
        std::mem::take(&mut first) || named
    });
    if !any {
        group.steps.clear();
    }
}

fn all_known<T: AsRef<str>>(what: &str, requested: &[String], known: &[T]) -> Result<(), Failure> {
    let unknown =
        requested.iter().find(|requested| !known.iter().any(|known| known.as_ref() == requested.as_str()));
    unknown.map_or(Ok(()), |name| {
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        Err(Failure::Usage(format!("there is no {what} {name:?}; there are {}", known.join(", "))))
    })
}

/// Whether the sizes differ from those of the scale.
fn is_custom(args: &RunArgs) -> bool {
    args.factor.is_some_and(|factor| factor != 1.0) || args.seconds_max.is_some()
}

/// `bench-results/2026-03-01-1200`.
fn default_out() -> PathBuf {
    let now = std::process::Command::new("date").args(["-u", "+%Y-%m-%d-%H%M"]).output();
    let name =
        now.ok().map(|now| String::from_utf8_lossy(&now.stdout).trim().to_string()).unwrap_or_default();
    Path::new("bench-results").join(if name.is_empty() { "run" } else { &name })
}

/// Fails if the disk has no space for twice the data, which a log-structured engine needs during compactions.
fn enough_space(dir: &Path, groups: &[Group]) -> Result<(), Failure> {
    let needed = 2 * groups.iter().map(Group::data_bytes_max).max().unwrap_or(0);
    match place::free_bytes(dir) {
        Some(free) if free < needed => Err(Failure::Usage(format!(
            "{} are free in {}, but the largest group may need {}",
            human_bytes(free),
            dir.display(),
            human_bytes(needed)
        ))),
        _ => Ok(()),
    }
}

/// The memory limit, if it was requested and control groups are available.
fn memory_limit(args: &RunArgs, warnings: &mut Vec<String>) -> Option<u64> {
    let limit = args.memory_limit_bytes()?;
    match Cgroup::create(limit) {
        Ok(_) => Some(limit),
        Err(why) => {
            warnings.push(format!(
                "no memory limit: {why}. Data that fits stays in the page cache, so reads hardly use the disk"
            ));
            None
        }
    }
}

/// Waits until other processes leave the processors idle, for at least a second.
fn wait_for_calm(seconds: f64, interrupted: &AtomicBool, warnings: &mut Vec<String>) {
    let start = Instant::now();
    loop {
        let busy = Busy::start();
        thread::sleep(Duration::from_secs_f64(seconds.clamp(0.0, 1.0)));
        let others = busy.others(Duration::ZERO).unwrap_or(0.0);
        if others <= MAX_OTHERS_SHARE || interrupted.load(Ordering::Relaxed) {
            return;
        }
        if start.elapsed().as_secs_f64() >= seconds {
            return warnings.push(format!(
                "other processes used {:.0} % of the processors before the start",
                others * 100.0
            ));
        }
    }
}

/// All turns: each round has each group, and each group has each engine. The first engine changes between groups
/// and rounds.
fn turns(engines: usize, groups: usize, rounds: Range<u32>) -> Vec<Turn> {
    let mut turns = Vec::new();
    for round in rounds {
        for group in 0..groups {
            let first = round as usize - 1 + group;
            turns.extend((0..engines).map(|i| Turn { round, group, engine: (first + i) % engines }));
        }
    }
    turns
}

/// The state of a run.
struct Run<'a> {
    args: &'a RunArgs,
    engines: Vec<Kind>,
    groups: Vec<Group>,
    place: Place,
    results: Results,
    info: RunInfo,
    interrupted: Arc<AtomicBool>,
    records: Vec<Record>,
    failures: usize,
}

impl Run<'_> {
    /// Runs all turns.
    fn all(&mut self) -> Result<(), Failure> {
        self.results.add(&Line::Run(self.info.clone())).map_err(Failure::System)?;
        let rounds = self.args.first_round..self.args.first_round + self.info.rounds;
        let mut turns = turns(self.engines.len(), self.groups.len(), rounds);
        let papers = self.args.papers();
        if !papers.is_empty() {
            let (groups, engines) = (&self.groups, &self.engines);
            let has = |turn: &Turn| {
                papers.iter().any(|paper| paper.has(&groups[turn.group].name, engines[turn.engine].name))
            };
            turns.retain(has);
        }
        let names = self.engines.iter().map(|kind| kind.name.to_string()).collect();
        let mut progress = Progress::new(names, &self.groups, &turns);
        progress.say(&format!(
            "{}, {}, {}: roughly {}",
            plural(self.engines.len(), "engine"),
            plural(self.groups.len(), "group"),
            plural(self.info.rounds as usize, "round"),
            human_seconds(progress.seconds_left())
        ));
        let ended = turns.into_iter().try_for_each(|turn| self.turn(turn, &mut progress));
        progress.finish();
        ended
    }

    /// Runs the turn of one engine, from an empty directory to an empty directory.
    fn turn(&mut self, turn: Turn, progress: &mut Progress) -> Result<(), Failure> {
        let (kind, group) = (&self.engines[turn.engine], &self.groups[turn.group]);
        progress.begin(turn);
        let order = child::Order {
            engine: kind.name.to_string(),
            group: group.clone(),
            requested: self.args.requested.of(group),
            dir: self.place.database(),
            round: turn.round,
            procs: None,
        };
        let (limit, time_limit) = (self.info.memory_limit_bytes, self.time_limit(group));
        let (results, records) = (&mut self.results, &mut self.records);
        let mut written = Ok(());
        let ended = turn::take(order, limit, time_limit, &self.interrupted, &mut |mut event| {
            if let Event::Done(record) = &mut event {
                record.settings.memory_limit_bytes = limit;
                let added = results.add(&Line::Result(record.clone()));
                written = std::mem::replace(&mut written, Ok(())).and(added);
                records.push((**record).clone());
            }
            progress.on(turn, &event);
        });
        written.map_err(Failure::System)?;
        match ended {
            Ok(()) => {}
            Err(Fault::Interrupted) => return Err(Failure::Interrupted),
            Err(Fault::Failed { message, stderr }) => self.failed(turn, message, &stderr, progress)?,
        }
        self.place.clear().map_err(Failure::System)
    }

    fn failed(
        &mut self,
        turn: Turn,
        message: String,
        stderr: &str,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let (engine, group) = (self.engines[turn.engine].name, &self.groups[turn.group].name);
        stderr.lines().for_each(|line| progress.say(&format!("{engine}: {line}")));
        progress.say(&format!("cairn-bench: {engine} failed in {group}, round {}: {message}", turn.round));
        self.info.warnings.push(format!("{engine} failed in {group}, round {}: {message}", turn.round));
        self.failures += 1;
        let line =
            Line::Failure { engine: engine.to_string(), group: group.clone(), round: turn.round, message };
        self.results.add(&line).map_err(Failure::System)
    }

    /// After this time a turn counts as hung: three times the time limits of its workloads, and a minute for each
    /// of them, for settling and reading the contents.
    fn time_limit(&self, group: &Group) -> Duration {
        let of_steps = group.steps.len() as f64 * (60.0 + 3.0 * group.seconds_max.unwrap_or(3600.0));
        Duration::from_secs_f64(self.args.group_seconds_max.unwrap_or(of_steps).clamp(0.0, 1e9))
    }

    /// Reports the run after all turns, or after an interruption.
    fn conclude(mut self, finished: Result<(), Failure>, out: &Path) -> Result<ExitCode, Failure> {
        if matches!(finished, Err(Failure::System(_))) {
            return finished.map(|()| ExitCode::SUCCESS);
        }
        let agreement = agreement::compare(&self.records);
        self.info.warnings.extend(agreement.differ.iter().map(|line| format!("contents differ: {line}")));
        if finished.is_err() {
            self.info.warnings.push("the run was interrupted".to_string());
        }
        let busy = self
            .records
            .iter()
            .filter(|r| r.busy_others.is_some_and(|share| share > MAX_OTHERS_SHARE))
            .count();
        if busy > 0 {
            let all = self.records.len();
            let percent = MAX_OTHERS_SHARE * 100.0;
            self.info.warnings.push(format!(
                "other processes used more than {percent:.0} % of the processors during {busy} of {all} workloads"
            ));
        }
        if !self.info.warnings.is_empty() {
            self.results.add(&Line::Run(self.info.clone())).map_err(Failure::System)?;
        }
        if !self.records.is_empty() {
            let lines = results::read(self.results.path()).map_err(Failure::System)?;
            if !self.args.no_report {
                write_report(&lines, out)?;
            }
            // An interrupted run does not replace the report of a complete one.
            if let Some(page) = self.args.page.as_ref().filter(|_| finished.is_ok()) {
                write_page(&lines, page, !self.args.papers().is_empty())?;
            }
        }
        // Ignore errors: the reader may have closed the pipe.
        let _ = std::io::Write::write_all(
            &mut std::io::stdout(),
            format!("{}{agreement}\n", summary::table(&self.records)).as_bytes(),
        );
        self.info.warnings.iter().for_each(|warning| eprintln!("cairn-bench: warning: {warning}"));
        eprintln!("cairn-bench: results are in {}", self.results.path().display());
        finished?;
        let fine = agreement.differ.is_empty() && self.failures == 0;
        Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Writes the page, the pictures and the tables of these results.
pub fn write_report(lines: &[Line], out: &Path) -> Result<(), Failure> {
    let written = bench::report::write(lines, out);
    written.map(drop).map_err(|e| Failure::System(format!("write a report to {}: {e}", out.display())))
}

/// Writes the short report of these results, or with `papers` the page of the papers' experiments.
pub fn write_page(lines: &[Line], dir: &Path, papers: bool) -> Result<(), Failure> {
    let written = match papers {
        true => bench::report::write_papers(lines, dir),
        false => bench::report::write_brief(lines, dir),
    };
    written.map(drop).map_err(|e| Failure::System(format!("write a page to {}: {e}", dir.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::suite::Scale;

    #[test]
    fn no_engine_is_always_first() {
        let turns = turns(3, 2, 1..4);
        assert_eq!(turns.len(), 18);
        for (at, turns) in turns.chunks(3).enumerate() {
            let engines: BTreeSet<usize> = turns.iter().map(|turn| turn.engine).collect();
            assert_eq!(engines.len(), 3, "each has its turn: {turns:?}");
            assert!(turns.iter().all(|turn| (turn.round as usize, turn.group) == (at / 2 + 1, at % 2)));
        }
        let first = |group: usize| -> BTreeSet<usize> {
            turns.chunks(3).filter(|turns| turns[0].group == group).map(|turns| turns[0].engine).collect()
        };
        assert_eq!((first(0).len(), first(1).len()), (3, 3));
    }

    #[test]
    fn families_and_groups_on_request_are_chosen_by_name() {
        let chosen = |names: &[&str]| {
            let names = names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
            let args = RunArgs { groups: names, quick: true, ..parse(&["run"]) };
            chosen_groups(&args)
                .map(|groups| groups.into_iter().map(|group| group.name).collect::<Vec<_>>())
                .ok()
        };
        let all = chosen(&[]).unwrap();
        assert!(
            all.iter().any(|name| name == "parallax-sd")
                && !all.iter().any(|name| name.starts_with("growth"))
        );
        assert_eq!(chosen(&["growth"]).unwrap().len(), 6);
        assert_eq!(chosen(&["growth-2", "sync"]).unwrap(), ["sync", "growth-2"]);
        assert_eq!(chosen(&["growth-3"]), None);
    }

    fn parse(args: &[&str]) -> RunArgs {
        use clap::Parser;
        match crate::program::args::Cli::parse_from(["cairn-bench"].iter().chain(args)).command {
            crate::program::args::Command::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_fill_stays_with_the_workloads_that_were_chosen() {
        let choose = |names: &[&str]| {
            let mut group = groups(Scale::Quick, &Adjust::default()).remove(0);
            keep_steps(&mut group, &names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
            group.steps.iter().map(|step| step.name()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(choose(&["readrandom"]), "fillrandom readrandom");
        assert_eq!(choose(&["seekrandom"]), "fillrandom seekrandom seekrandom-50");
        assert_eq!(choose(&["seekrandom-50", "fillrandom"]), "fillrandom seekrandom-50");
        assert_eq!(choose(&["ycsb-a"]), "");
    }
}
