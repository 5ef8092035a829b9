//! Pictures over time: throughput and amplification during a run, queries of a history, and an aging database from
//! round to round.
//!
//! Of several rounds of a workload, the round with the median throughput (or p99 for histories) is shown: an
//! average over rounds would show stalls that no round has, and hide those that some have.

use super::chart::{Figure, Panel};
use super::data::{Data, Workload};
use super::format;
use super::lines::{Axis, Scale, lines};
use super::metric::{Metric, SPACE_AMP, THROUGHPUT};
use super::section::{Section, figure, series};
use crate::record::{Record, Sample};
use std::collections::BTreeMap;

/// Maximum number of points of a line: neighbouring samples are merged until no more are left.
const MAX_POINTS: usize = 120;
/// Minimum number of samples for a picture over time.
const MIN_SAMPLES: usize = 4;
/// If the slowest engine took this many times as long as the fastest, the x axis shows operations instead of time.
const MAX_TIME_RATIO: f64 = 3.0;

const TIME: Axis = Axis { title: "time", scale: Scale::Linear, show: format::seconds };
const WORK: Axis = Axis { title: "operations done", scale: Scale::Linear, show: format::count };

/// Merged samples.
struct Interval {
    /// Its end: seconds and operations since the start.
    end: (f64, f64),
    seconds: f64,
    ops: u64,
    mean_us: f64,
    /// The maximum over the samples.
    p95_us: f64,
    p99_us: f64,
    max_us: f64,
    user_bytes: u64,
    write_bytes: u64,
    space_bytes: u64,
}

/// Throughput.
pub fn throughput(data: &Data<'_>, section: &Section<'_, '_>) -> Figure {
    let y = Axis { title: "operations per second", scale: Scale::Linear, show: format::count };
    let panels = courses(data, section, y, |interval| Some(interval.ops as f64 / interval.seconds));
    figure(section, "course", "Throughput over time", CAPTION, panels)
}

/// Write amplification so far.
pub fn amplification(data: &Data<'_>, section: &Section<'_, '_>) -> Figure {
    let y = Axis { title: "bytes written so far per byte put", scale: Scale::Linear, show: format::times };
    let panels = courses(data, section, y, |interval| {
        (interval.user_bytes > 0).then(|| interval.write_bytes as f64 / interval.user_bytes as f64)
    });
    figure(section, "amplification-course", "Write amplification over time", CAPTION, panels)
}

/// The maximum latency of each interval.
pub fn maximum(data: &Data<'_>, section: &Section<'_, '_>) -> Figure {
    let y = Axis { title: "longest operation", scale: Scale::Log, show: format::micros };
    let panels = courses(data, section, y, |interval| Some(interval.max_us).filter(|&longest| longest > 0.0));
    figure(section, "maximum-course", "Longest operation over time", CAPTION, panels)
}

/// Space.
pub fn space(data: &Data<'_>, section: &Section<'_, '_>) -> Figure {
    let y = Axis { title: "length of all files", scale: Scale::Linear, show: format::bytes };
    let panels =
        courses(data, section, y, |interval| Some(interval.space_bytes as f64).filter(|&bytes| bytes > 0.0));
    figure(section, "space-course", "Space over time", CAPTION, panels)
}

const CAPTION: &str = "The median round of each engine (by throughput; for histories by p99). If the times of the engines differ much, \
                       the x axis shows operations instead of seconds, so that the engines are compared at the same point of \
                       the work.";

fn courses(
    data: &Data<'_>,
    section: &Section<'_, '_>,
    y: Axis,
    value: impl Fn(&Interval) -> Option<f64>,
) -> Vec<Panel> {
    let panel = |(group, workload): (&str, &Workload<'_>)| {
        let by_work = far_apart(data, group, workload);
        let all = series(data, |engine| {
            let intervals = workload.typical(group, engine).map(intervals).unwrap_or_default();
            let point = |s: &Interval| Some((if by_work { s.end.1 } else { s.end.0 }, value(s)?));
            intervals.iter().filter_map(point).collect()
        });
        let x = if by_work { WORK } else { TIME };
        (!all.is_empty()).then(|| lines(&section.name_of(group, workload), x, y, &all))
    };
    section.workloads().filter_map(panel).collect()
}

/// Whether the times of the engines differ so much that the faster ones would be hardly visible.
fn far_apart(data: &Data<'_>, group: &str, workload: &Workload<'_>) -> bool {
    let typical = data.engines.iter().filter_map(|engine| workload.typical(group, engine.name));
    let seconds: Vec<f64> =
        typical.filter(|record| !record.samples.is_empty()).map(|record| record.seconds).collect();
    let min = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    seconds.iter().any(|seconds| *seconds > MAX_TIME_RATIO * min)
}

/// The queries of histories.
pub fn queries(data: &Data<'_>, section: &Section<'_, '_>) -> Vec<Figure> {
    type Of = fn(&Interval) -> f64;
    let kinds: [(&str, &str, Of); 3] = [
        ("queries-average", "Average latency of queries", |s| s.mean_us),
        ("queries-p95", "95th percentile of queries", |s| s.p95_us),
        ("queries-p99", "99th percentile of queries", |s| s.p99_us),
    ];
    let y = Axis { title: "latency", scale: Scale::Log, show: format::micros };
    let draw = |(key, name, of): (&str, &str, Of)| {
        let panel = |(group, workload): (&str, &Workload<'_>)| {
            let all = series(data, |engine| {
                let all = workload.typical(group, engine).map(intervals).unwrap_or_default();
                all.iter().filter(|s| s.ops > 0 && of(s) > 0.0).map(|s| (s.end.0, of(s))).collect()
            });
            (!all.is_empty()).then(|| lines(&section.name_of(group, workload), TIME, y, &all))
        };
        let caption = "Queries arrive at a fixed rate while versions are put at a fixed rate; the latency counts from the \
                       moment at which a query was due. Lower is better. Of each engine the round with the median p99; where \
                       samples are put together, quantiles are those of the worst.";
        figure(section, key, name, caption, section.workloads().filter_map(panel).collect())
    };
    kinds.into_iter().map(draw).collect()
}

/// Space and throughput of an aging database, round by round.
pub fn aging(data: &Data<'_>, section: &Section<'_, '_>) -> Vec<Figure> {
    let x = Axis { title: "round of changes", scale: Scale::Steps, show: |round| format!("{round:.0}") };
    let y = |metric: &Metric, title| Axis { title, scale: Scale::Linear, show: metric.show };
    let panel = |title: &str, metric: &Metric, y: Axis, kind: Option<&str>| {
        let all = series(data, |engine| {
            // The last workload of a round with this metric represents the end of the round.
            let mut rounds: BTreeMap<u32, f64> = BTreeMap::new();
            for (_, workload) in section.workloads() {
                let step = aging_step(&workload.name)
                    .filter(|step| step.0 > 0 && kind.is_none_or(|kind| kind == step.1));
                let value = workload.spread(engine, metric).map(|spread| spread.median);
                rounds.extend(step.zip(value).map(|((round, _), value)| (round, value)));
            }
            rounds.into_iter().map(|(round, value)| (f64::from(round), value)).collect()
        });
        all.iter().any(|series| series.points.len() > 1).then(|| lines(title, x, y, &all))
    };
    let mut kinds: Vec<&str> = Vec::new();
    for (_, workload) in section.workloads() {
        kinds.extend(aging_step(&workload.name).map(|step| step.1).filter(|kind| !kinds.contains(kind)));
    }
    let space = panel("after each round", &SPACE_AMP, y(&SPACE_AMP, "space over live data"), None);
    let speed = kinds.iter().filter_map(|kind| {
        panel(&format!("aging: {kind}"), &THROUGHPUT, y(&THROUGHPUT, "operations per second"), Some(kind))
    });
    vec![
        figure(section, "space", SPACE_AMP.name, SPACE_CAPTION, space.into_iter().collect()),
        figure(
            section,
            "rounds",
            "Throughput, round by round",
            "Medians over the rounds of the run. More is better.",
            speed.collect(),
        ),
    ]
}

const SPACE_CAPTION: &str = "Total length of the files, relative to the bytes of the keys and values that are live, after each round of \
                             inserts, deletes and updates. Less is better; 1 is as small as it gets without compression.";

/// The round and the kind of a workload of an aging database: `aging-2-insert`.
pub fn aging_step(workload: &str) -> Option<(u32, &str)> {
    let (round, kind) = workload.strip_prefix("aging-")?.split_once('-')?;
    Some((round.parse().ok()?, kind))
}

/// The samples of a record, merged if there are many.
fn intervals(record: &Record) -> Vec<Interval> {
    if record.samples.len() < MIN_SAMPLES {
        return Vec::new();
    }
    let together = record.samples.len().div_ceil(MAX_POINTS);
    let mut before = (0.0, 0.0);
    let mut intervals = Vec::new();
    for samples in record.samples.chunks(together) {
        let interval = interval(samples, before);
        before = interval.end;
        // The last sample may be very short, so that its rate means nothing.
        if interval.seconds > 0.0
            && (intervals.is_empty() || interval.seconds * 4.0 > record.settings.sample_seconds)
        {
            intervals.push(interval);
        }
    }
    intervals
}

fn interval(samples: &[Sample], before: (f64, f64)) -> Interval {
    let last = samples.last().copied().unwrap_or_default();
    let ops: u64 = samples.iter().map(|sample| sample.ops).sum();
    let worst = |of: fn(&Sample) -> f64| samples.iter().map(of).fold(0.0, f64::max);
    let total_us: f64 = samples.iter().map(|sample| sample.mean_us * sample.ops as f64).sum();
    Interval {
        end: (last.at, before.1 + ops as f64),
        seconds: last.at - before.0,
        ops,
        mean_us: total_us / ops.max(1) as f64,
        p95_us: worst(|sample| sample.p95_us),
        p99_us: worst(|sample| sample.p99_us),
        max_us: worst(|sample| sample.max_us),
        user_bytes: last.user_bytes,
        write_bytes: last.write_bytes,
        space_bytes: last.space_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_put_together() {
        let sample = |i: u64| Sample {
            at: i as f64 + 1.0,
            ops: 10,
            mean_us: i as f64,
            p99_us: i as f64,
            user_bytes: i + 1,
            ..Sample::default()
        };
        let mut record = Record { samples: (0..240).map(sample).collect(), ..Record::default() };
        record.settings.sample_seconds = 1.0;
        let all = intervals(&record);
        assert_eq!(all.len(), 120);
        let last = all.last().unwrap();
        assert_eq!((last.end, last.ops, last.seconds), ((240.0, 2400.0), 20, 2.0));
        assert_eq!((last.mean_us, last.p99_us, last.user_bytes), (238.5, 239.0, 240));
        record.samples.truncate(3);
        assert!(intervals(&record).is_empty());
    }

    #[test]
    fn rounds_of_ageing() {
        assert_eq!(aging_step("aging-2-insert"), Some((2, "insert")));
        assert_eq!(aging_step("aging-read"), None);
        assert_eq!(aging_step("overwrite"), None);
    }
}
