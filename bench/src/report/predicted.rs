//! Write amplification of the loads of the Parallax groups beside the prediction of the thesis' model ([`crate::model`]).
//!
//! The model is computed for the shape that each engine has with these settings: a leveled tree that grows by 10 from level to level, or a
//! tree whose level 0 is compacted into its last level, where guards of eight tables are merged (Cairn). All write a recovery log first.

use super::bars::{Bar, bars};
use super::chart::{Figure, Panel};
use super::data::{Data, Engine, Workload};
use super::metric::WRITE_AMP;
use super::section::{Section, figure};
use super::stats::Spread;
use super::tables::{Cell, Row, Table};
use crate::generate;
use crate::model::{Class, Merge, Place, Shape, Sizes, traffic};
use crate::record::Settings;
use crate::suite::family_of;

/// The workload: the one whose bytes the model predicts.
const LOAD: &str = "load-a";

/// Tables of level 0 that Cairn compacts together, and tables of a guard that it merges.
const CAIRN_TABLES: u32 = 8;

/// Bytes of a reference to a value, about.
const REFERENCE: u32 = 20;

const CAPTION: &str = "Bytes written per byte put, until settled: measured (full colour, with the range over the rounds), and below it what \
                       the model of the thesis predicts for the same sizes, memtables and growth (pale). The model knows no compression, \
                       no garbage collection and no pause in which an engine tidies up. Less is better.";

/// What the model predicts that an engine writes for each byte of records; `None` for engines whose shape is not known here.
fn prediction(engine: &str, settings: &Settings) -> Option<f64> {
    let (merge, in_log): (Merge, &[Class]) = match engine {
        "cairn" => (Merge::Fragmented, &[]),
        "cairn-hybrid" => (Merge::Fragmented, &[Class::Large]),
        "cairn-hybrid-medium" => (Merge::Fragmented, &[Class::Large, Class::Medium]),
        "rocksdb" => (Merge::Leveled, &[]),
        _ => return None,
    };
    let values: generate::Sizes = settings.value_sizes.parse().ok()?;
    let key = settings.key_size as u32;
    let record = |value: usize| settings.key_size as f64 + value as f64;
    let all: f64 = values.shares().map(|(value, share)| record(value) * share).sum();
    // Memtables that the data fill.
    let fills = settings.num as f64 * all / settings.memtable_bytes.max(1) as f64;
    let (levels, growth) = match merge {
        Merge::Leveled => (fills.log10().ceil().max(1.0) as u32, 10),
        Merge::Fragmented => (2, (fills / f64::from(CAIRN_TABLES)).round().max(2.0) as u32),
    };
    let shape = Shape { levels, growth, guard_tables: CAIRN_TABLES, reference: REFERENCE, log: true };
    let written = values.shares().map(|(value, share)| {
        let sizes = Sizes { key, value: value as u32 };
        let place = if in_log.contains(&sizes.class(0.2, 0.025)) { Place::Log } else { Place::Tree };
        traffic(&shape, merge, place, sizes).written * record(value) * share / all
    });
    Some(written.sum())
}

/// Measured and predicted, of an engine in a workload.
fn both(engine: &Engine<'_>, workload: &Workload<'_>) -> Option<(Spread, f64)> {
    let measured = workload.spread(engine.name, &WRITE_AMP)?;
    let settings = &workload.of(engine.name).first()?.settings;
    Some((measured, prediction(engine.name, settings)?))
}

fn loads<'d, 'a>(section: &Section<'d, 'a>) -> impl Iterator<Item = (&'a str, &'d Workload<'a>)> {
    section.workloads().filter(|(_, workload)| workload.name == LOAD)
}

/// The groups of the family, whether they are shown together or not.
pub fn section<'d, 'a>(data: &'d Data<'a>) -> Option<Section<'d, 'a>> {
    let groups: Vec<_> = data.groups.iter().filter(|group| family_of(group.name) == "parallax").collect();
    (!groups.is_empty()).then_some(Section { name: "parallax", groups })
}

/// A panel for each load.
pub fn prediction_figure(data: &Data<'_>, section: &Section<'_, '_>) -> Figure {
    let panels = loads(section).filter_map(|(group, workload)| panel(data, group, workload)).collect();
    figure(section, "predicted", "Write amplification of the loads, measured and predicted", CAPTION, panels)
}

fn panel(data: &Data<'_>, group: &str, workload: &Workload<'_>) -> Option<Panel> {
    let mut rows = Vec::new();
    for engine in &data.engines {
        let Some((measured, predicted)) = both(engine, workload) else { continue };
        let bar = |label: String, value: Option<Spread>, inner| {
            let words = value.map_or_else(String::new, |value| (WRITE_AMP.show)(value.median));
            let tip = format!("{label}: {words}");
            Bar { label, style: engine.style, value, inner, words, tip, best: false }
        };
        rows.push(bar(engine.label.clone(), Some(measured), None));
        rows.push(bar("predicted".into(), Spread::of([predicted]), Some(0.0)));
    }
    (!rows.is_empty()).then(|| bars(group, WRITE_AMP.name, &rows, WRITE_AMP.show, &[]))
}

/// The same in Markdown, with a heading: a row for each load, measured and predicted for each engine. Empty if there is none.
pub fn markdown(data: &Data<'_>) -> String {
    table(data).map_or_else(String::new, |table| {
        format!("\n## Write amplification of the loads, measured and predicted\n\n{}", table.markdown())
    })
}

fn table(data: &Data<'_>) -> Option<Table> {
    let section = section(data)?;
    let known: Vec<&Engine<'_>> = data
        .engines
        .iter()
        .filter(|engine| loads(&section).any(|(_, workload)| both(engine, workload).is_some()))
        .collect();
    let mut head = vec!["load".to_string()];
    head.extend(known.iter().flat_map(|engine| [engine.title.clone(), "predicted".into()]));
    let rows = loads(&section).map(|(group, workload)| {
        let cells = known.iter().flat_map(|engine| match both(engine, workload) {
            Some((measured, predicted)) => {
                [measured.median, predicted].map(|value| Cell::of((WRITE_AMP.show)(value)))
            }
            None => [Cell::of("–"), Cell::of("–")],
        });
        Row::Cells(group.to_string(), cells.collect())
    });
    let rows: Vec<Row> = rows.collect();
    (!known.is_empty()).then_some(Table { head, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_those_of_the_model() {
        let settings = Settings {
            num: 1_000_000,
            key_size: 24,
            value_sizes: "1000".into(),
            memtable_bytes: 10 << 20,
            ..Settings::default()
        };
        // 98 memtables: two levels. Log, flush into level 1 with 4.5 bytes merged for each, and level 2 as well.
        assert_eq!(prediction("rocksdb", &settings), Some(1.0 + 2.0 * 5.5));
        // Twelve batches of level 0: log, flush, into the last level, where guards are merged at 8 tables.
        let cairn = prediction("cairn", &settings).unwrap();
        assert!((cairn - (3.0 + 8.0 / 12.0)).abs() < 1e-9, "{cairn}");
        let hybrid = prediction("cairn-hybrid", &settings).unwrap();
        assert!((hybrid - (1.0 + 44.0 / 1024.0 * (2.0 + 8.0 / 12.0))).abs() < 1e-9, "{hybrid}");
        assert_eq!(prediction("lmdb", &settings), None);
    }
}
