//! How cost grows with the size of the database: the same fill and the same reads at several sizes, one line per
//! engine.
//!
//! Each mark of the x axis is twice the one before. So cost that grows with the logarithm of the size, as expected
//! of a log-structured tree, is a straight line; a line that bends upward grows faster.

use super::chart::{Figure, Panel};
use super::data::Data;
use super::format;
use super::lines::{Axis, Scale, lines};
use super::metric::{CPU, Metric, WRITE_AMP};
use super::section::{Section, figure, series};
use crate::record::Record;

const KEYS: Axis = Axis { title: "keys put", scale: Scale::Doubling, show: format::count };

/// The workloads of a group of this family.
const FILL: &str = "fillrandom";
const READ: &str = "readrandom";

const CAPTION: &str = "The x axis is logarithmic, each mark twice the one before: cost that grows with the logarithm of the size is a \
                       straight line. Less is better. Medians over the rounds.";

/// Write amplification, processor time and the latency of reads over the number of keys.
pub fn cost_figure(data: &Data<'_>, section: &Section<'_, '_>) -> Figure {
    let panels = [
        panel(data, section, FILL, "bytes written per byte put", WRITE_AMP.of, WRITE_AMP.show),
        panel(data, section, FILL, "processor time per put, settled", CPU.of, CPU.show),
        panel(
            data,
            section,
            READ,
            "mean latency of a read",
            |record| Some(record.lat_us.mean),
            format::micros,
        ),
        panel(data, section, READ, "p99 latency of a read", |record| Some(record.lat_us.p99), format::micros),
    ];
    figure(section, "cost", "How cost grows", CAPTION, panels.into_iter().flatten().collect())
}

fn panel(
    data: &Data<'_>,
    section: &Section<'_, '_>,
    workload: &str,
    what: &'static str,
    of: fn(&Record) -> Option<f64>,
    show: fn(f64) -> String,
) -> Option<Panel> {
    let metric = Metric { of, ..WRITE_AMP };
    let all = series(data, |engine| {
        let mut points: Vec<(f64, f64)> = section
            .workloads()
            .filter(|(_, known)| known.name == workload)
            .filter_map(|(_, known)| {
                let keys = known.of(engine).first()?.settings.num as f64;
                Some((keys, known.spread(engine, &metric)?.median))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    });
    let y = Axis { title: what, scale: Scale::Linear, show };
    // A single size shows no growth.
    let grows = all.iter().any(|series| series.points.len() > 1);
    grows.then(|| lines(workload, KEYS, y, &all))
}
