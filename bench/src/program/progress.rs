//! Shows the progress of a run, and estimates the remaining time.
//!
//! On a terminal there are two bars: one for the whole run with the remaining time, and one for the current
//! workload. Each finished workload is printed on a line, also if there is no terminal.

use super::text::{human_count, human_seconds};
use bench::record::Record;
use bench::session::Event;
use bench::suite::{Group, Step};
use bench::workload::{Kind, Work};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// Length of the bar of the whole run, in steps.
const WHOLE: u64 = 1000;

/// The progress of a run.
pub struct Progress {
    bars: MultiProgress,
    whole: ProgressBar,
    current: ProgressBar,
    estimate: Estimate,
    engines: Vec<String>,
    groups: Vec<String>,
    started: Instant,
    workload: String,
    done: usize,
    all: usize,
}

/// The turn of one engine with one group, as indices into the run's engines and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The round, from 1.
    pub round: u32,
    /// The group.
    pub group: usize,
    /// The engine.
    pub engine: usize,
}

impl Progress {
    /// For a run of these turns.
    pub fn new(engines: Vec<String>, groups: &[Group], turns: &[Turn]) -> Progress {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(4)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bars = MultiProgress::with_draw_target(target);
        let style = |text: &str| ProgressStyle::with_template(text).expect("the template is well formed");
        let whole = bars.add(ProgressBar::new(WHOLE).with_style(style("{bar:30} {msg}")));
        let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            // An error here only omits the rate from the bar.
            let _ = write!(text, "{}", human_count(state.per_sec()));
        };
        let style =
            style("{bar:30} {prefix} {human_pos} of {human_len}, {rate}/s {msg}").with_key("rate", rate);
        let current = bars.add(ProgressBar::new(1).with_style(style));
        let all = turns.iter().map(|turn| groups[turn.group].steps.len()).sum();
        Progress {
            bars,
            whole,
            current,
            estimate: Estimate::new(engines.len(), groups, turns),
            engines,
            groups: groups.iter().map(|group| group.name.clone()).collect(),
            started: Instant::now(),
            workload: String::new(),
            done: 0,
            all,
        }
    }

    /// Starts the next turn.
    pub fn begin(&mut self, turn: Turn) {
        self.estimate.begin();
        self.reset(turn, "");
        self.show_whole();
    }

    /// Handles an event of a turn.
    pub fn on(&mut self, turn: Turn, event: &Event) {
        match event {
            Event::Progress { workload, done, ops, settling } => {
                self.step(turn, workload, *done, *ops, *settling)
            }
            Event::Done(record) => {
                self.done += 1;
                self.estimate.done();
                self.say(&format!("[{}/{}] {}", self.done, self.all, line(record)));
            }
        }
        self.show_whole();
    }

    fn step(&mut self, turn: Turn, workload: &str, done: u64, ops: u64, settling: bool) {
        if self.workload != workload {
            self.reset(turn, workload);
        }
        self.current.set_length(ops);
        self.current.set_position(done);
        self.current.set_message(if settling { "settling" } else { "" });
    }

    fn reset(&mut self, turn: Turn, workload: &str) {
        self.workload = workload.to_string();
        self.current.reset();
        self.current.set_message("");
        self.current
            .set_prefix(format!("{} {}/{workload}", self.engines[turn.engine], self.groups[turn.group]));
    }

    fn show_whole(&self) {
        let (past, left) = (self.started.elapsed().as_secs_f64(), self.estimate.seconds_left());
        self.whole.set_position((past / (past + left).max(1e-9) * WHOLE as f64) as u64);
        let (done, all) = (self.done, self.all);
        self.whole.set_message(format!("{done} of {all} workloads, about {} left", human_seconds(left)));
    }

    /// Estimated remaining time of the run.
    pub fn seconds_left(&self) -> f64 {
        self.estimate.seconds_left()
    }

    /// Prints a line on standard error, above the bars.
    pub fn say(&self, line: &str) {
        self.bars.suspend(|| eprintln!("{line}"));
    }

    /// Removes the bars.
    pub fn finish(&self) {
        self.whole.finish_and_clear();
        self.current.finish_and_clear();
    }
}

/// A result on one line.
fn line(record: &Record) -> String {
    let amplification = record.write_amp.map_or(String::new(), |factor| format!("  WA {factor:.2}"));
    let cut = if record.cut_short { "  (cut short)" } else { "" };
    format!(
        "{} {}/{} round {}: {} ops/s  p99 {:.1} us{amplification}  settled after {:.1} s{cut}",
        record.engine,
        record.group,
        record.workload,
        record.round,
        human_count(record.ops_per_s),
        record.lat_us.p99,
        record.settled_seconds,
    )
}

/// Estimates the remaining time. The weight of a step is the typical time of its workload, times the ratio of the
/// engine's measured to typical times so far; once measured for the engine, the measured time.
struct Estimate {
    /// Typical seconds by group and step.
    typical: Vec<Vec<f64>>,
    /// Measured seconds by engine, group and step.
    measured: Vec<Vec<Vec<Option<f64>>>>,
    /// By engine: seconds measured, and typical seconds of the same steps.
    sums: Vec<(f64, f64)>,
    turns: Vec<Turn>,
    /// Number of turns begun.
    begun: usize,
    /// The current step of the turn, and its start.
    step: usize,
    since: Instant,
}

impl Estimate {
    fn new(engines: usize, groups: &[Group], turns: &[Turn]) -> Estimate {
        let typical: Vec<Vec<f64>> = groups
            .iter()
            .map(|group| group.steps.iter().map(|step| typical_seconds(group, step)).collect())
            .collect();
        let nothing = typical.iter().map(|steps| vec![None; steps.len()]).collect();
        Estimate {
            measured: vec![nothing; engines],
            sums: vec![(0.0, 0.0); engines],
            typical,
            turns: turns.to_vec(),
            begun: 0,
            step: 0,
            since: Instant::now(),
        }
    }

    fn begin(&mut self) {
        self.begun += 1;
        self.step = 0;
        self.since = Instant::now();
    }

    fn done(&mut self) {
        let seconds = self.since.elapsed().as_secs_f64();
        self.measure(seconds);
        self.since = Instant::now();
    }

    fn measure(&mut self, seconds: f64) {
        let Turn { engine, group, .. } = self.turns[self.begun - 1];
        if let Some(typical) = self.typical[group].get(self.step) {
            self.measured[engine][group][self.step] = Some(seconds);
            self.sums[engine].0 += seconds;
            self.sums[engine].1 += typical;
        }
        self.step += 1;
    }

    /// Ratio of the engine's times to the typical ones; for an engine without measurements, the ratio of all
    /// others.
    fn ratio(&self, engine: usize) -> f64 {
        let all = self.sums.iter().fold((0.0, 0.0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
        match (self.sums[engine], all) {
            ((seconds, typical), _) | (_, (seconds, typical)) if typical > 0.0 => seconds / typical,
            _ => 1.0,
        }
    }

    fn seconds_left(&self) -> f64 {
        let of = |turn: &Turn, first: usize| -> f64 {
            let ratio = self.ratio(turn.engine);
            let measured = &self.measured[turn.engine][turn.group];
            let steps = measured.iter().zip(&self.typical[turn.group]).skip(first);
            steps.map(|(measured, typical)| measured.unwrap_or(typical * ratio)).sum()
        };
        let current = self.begun.checked_sub(1).map_or(0.0, |i| of(&self.turns[i], self.step));
        let elapsed = if self.begun > 0 { self.since.elapsed().as_secs_f64() } else { 0.0 };
        let rest: f64 = self.turns[self.begun..].iter().map(|turn| of(turn, 0)).sum();
        (current - elapsed).max(0.0) + rest
    }
}

/// Typical seconds of a step. Only the proportions between steps matter.
fn typical_seconds(group: &Group, step: &Step) -> f64 {
    let us = |kind: Kind| match kind {
        Kind::Update | Kind::Insert | Kind::Delete if step.workload.syncs() => 1000.0,
        Kind::Update | Kind::Insert | Kind::Delete => 5.0,
        Kind::Read | Kind::ReadMissing | Kind::Modify | Kind::Transfer => 10.0,
        Kind::Seek | Kind::SeekAsOf | Kind::Scan => 50.0 + step.seek_nexts as f64,
    };
    let seconds = match (step.workload.work(), step.rates) {
        (Work::Mix(kinds, _), _) => {
            kinds.iter().map(|(kind, share)| us(*kind) * *share as f64).sum::<f64>() / 100e6 * step.ops as f64
        }
        (Work::Walk { .. }, _) => step.ops as f64 * 1e-6,
        (Work::History { .. }, Some(rates)) => step.ops as f64 / rates.queries,
        (Work::History { .. }, None) => 1.0,
    };
    seconds.min(group.seconds_max.unwrap_or(f64::MAX)) + 0.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::suite::{Adjust, Scale, groups};

    #[test]
    fn what_was_measured_corrects_the_estimate() {
        let mut groups = groups(Scale::Quick, &Adjust::default());
        groups.truncate(2);
        let turns: Vec<Turn> =
            (1..=2).flat_map(|round| (0..2).map(move |group| Turn { round, group, engine: 0 })).collect();
        let mut estimate = Estimate::new(1, &groups, &turns);
        let whole = estimate.seconds_left();
        let typical = estimate.typical.clone();
        assert!((whole - 2.0 * typical.iter().flatten().sum::<f64>()).abs() < 1e-9);
        // The engine takes three times the typical time.
        for steps in &typical {
            estimate.begin();
            steps.iter().for_each(|seconds| estimate.measure(3.0 * seconds));
        }
        assert!((estimate.seconds_left() - 1.5 * whole).abs() < 0.1);
        // A failed turn is not repeated.
        estimate.begin();
        estimate.begin();
        let second: f64 = typical[1].iter().map(|seconds| 3.0 * seconds).sum();
        assert!((estimate.seconds_left() - second).abs() < 0.1);
    }
}
