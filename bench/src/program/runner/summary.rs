//! The summary on standard output after a run: a table of medians.

use crate::program::text::human_count;
use bench::record::Record;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The engine to which the others are compared.
const BASE: &str = "cairn";

/// Throughput of each engine for each workload, and its ratio to Cairn's: medians over the rounds.
pub fn table(records: &[Record]) -> String {
    let engines = first_seen(records.iter().map(|r| r.engine.as_str()));
    let mut text = String::new();
    for group in first_seen(records.iter().map(|r| r.group.as_str())) {
        let of_group: Vec<&Record> = records.iter().filter(|r| r.group == group).collect();
        let workloads = first_seen(of_group.iter().map(|r| r.workload.as_str()));
        let mut rows = vec![heading(group, &engines)];
        for workload in workloads {
            let median_of = |engine: &str| {
                let same = |r: &&&Record| r.engine == engine && r.workload == workload;
                median(of_group.iter().filter(same).map(|r| r.ops_per_s).collect())
            };
            let base = median_of(BASE);
            let cells = engines.iter().map(|engine| cell(median_of(engine), base));
            rows.push([workload.to_string()].into_iter().chain(cells).collect());
        }
        align(&rows, &mut text);
        text.push('\n');
    }
    text
}

fn heading(group: &str, engines: &[&str]) -> Vec<String> {
    let engines = engines.iter().map(|engine| engine.to_string());
    [format!("{group}, ops/s")].into_iter().chain(engines).collect()
}

/// `123,456 1.20x`.
fn cell(value: Option<f64>, base: Option<f64>) -> String {
    match (value, base) {
        (None, _) => "-".to_string(),
        (Some(value), Some(base)) if base > 0.0 => format!("{} {:.2}x", human_count(value), value / base),
        (Some(value), _) => human_count(value),
    }
}

/// Aligns columns: the first one to the left, the others to the right.
fn align(rows: &[Vec<String>], text: &mut String) {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in rows {
        let _ = write!(text, "{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
}

/// Distinct names in the order of their first occurrence.
fn first_seen<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

/// The median; the mean of the two middle values of an even number.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(engine: &str, workload: &str, round: u32, ops_per_s: f64) -> Record {
        Record {
            engine: engine.into(),
            group: "g".into(),
            workload: workload.into(),
            round,
            ops_per_s,
            ..Record::default()
        }
    }

    #[test]
    fn medians_and_ratios() {
        let records = [
            record("cairn", "fill", 1, 1000.0),
            record("other", "fill", 1, 500.0),
            record("cairn", "fill", 2, 3000.0),
            record("cairn", "fill", 3, 2000.0),
            record("cairn", "read", 1, 10.0),
        ];
        let expected = "\
            g, ops/s        cairn      other\n\
            fill      2,000 1.00x  500 0.25x\n\
            read         10 1.00x          -\n\n";
        assert_eq!(table(&records), expected);
        assert_eq!((median(vec![]), median(vec![4.0, 1.0])), (None, Some(2.5)));
    }
}
