//! What is told on standard output when a run has ended: a table of medians, and whether all engines hold the same.

use super::text::human_count;
use bench::record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The engine that the others are compared with.
const BASE: &str = "cairn";

/// Throughput of each engine for each workload, and its ratio to Cairn's: medians of the rounds.
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

/// Columns side by side: the first one to the left, the others to the right.
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

/// Distinct ones, in the order in which they come.
fn first_seen<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

/// The middle one; the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

/// Whether the engines hold the same after the same work.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Comparisons of the contents of two or more engines.
    pub compared: usize,
    /// Where they differ, a line each.
    pub differing: Vec<String>,
    /// Those for a good reason: a thread wrote for as long as the readers beside it took, now or in the turn before.
    pub explained: usize,
    /// Contents that say nothing, since the time limit ended a workload before.
    pub left_out: usize,
}

/// Compares the contents after each workload of each round. A workload that was cut short did not do the same work; the rest of its
/// group on that engine is left out.
pub fn agreement(records: &[Record]) -> Agreement {
    let mut agreement = Agreement::default();
    let (mut cut, mut free_writer) = (BTreeSet::new(), BTreeSet::new());
    let mut held: BTreeMap<(u32, &str, &str), Vec<(&Record, bool)>> = BTreeMap::new();
    for record in records {
        let turn = (record.round, record.group.as_str(), record.engine.as_str());
        if record.cut_short && record.user_bytes > 0 {
            cut.insert(turn);
        }
        if record.writer.is_some() {
            free_writer.insert(turn);
        }
        match record.contents {
            Some(_) if cut.contains(&turn) => agreement.left_out += 1,
            Some(_) => {
                let same_work = held.entry((record.round, &record.group, &record.workload)).or_default();
                same_work.push((record, free_writer.contains(&turn)));
            }
            None => {}
        }
    }
    for ((round, group, workload), records) in held.iter().filter(|(_, records)| records.len() > 1) {
        agreement.compared += 1;
        if records.iter().all(|(record, _)| record.contents == records[0].0.contents) {
            continue;
        }
        if records.iter().any(|(_, free_writer)| *free_writer) {
            agreement.explained += 1;
            continue;
        }
        let each = records.iter().map(|(record, _)| {
            let contents = record.contents.unwrap_or_default();
            format!("{} {} entries, checksum {:016x}", record.engine, contents.entries, contents.checksum)
        });
        let each = each.collect::<Vec<_>>().join("; ");
        agreement.differing.push(format!("{group}/{workload}, round {round}: {each}"));
    }
    agreement
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let same = self.compared - self.differing.len() - self.explained;
        match self.compared {
            0 => write!(f, "contents: nothing to compare")?,
            all => write!(f, "contents agree for all engines in {same} of {all} comparisons")?,
        }
        if self.explained > 0 {
            write!(f, " ({} differ since a thread wrote for as long as the readers took)", self.explained)?;
        }
        if self.left_out > 0 {
            write!(f, " ({} left out, after workloads that the time limit ended)", self.left_out)?;
        }
        self.differing.iter().try_for_each(|line| write!(f, "\ncontents differ: {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::record::{Contents, Writer};

    fn record(engine: &str, workload: &str, round: u32, ops_per_s: f64, checksum: u64) -> Record {
        Record {
            engine: engine.into(),
            group: "g".into(),
            workload: workload.into(),
            round,
            ops_per_s,
            user_bytes: 1,
            contents: Some(Contents { entries: 1, bytes: 2, checksum }),
            ..Record::default()
        }
    }

    #[test]
    fn medians_and_ratios() {
        let records = [
            record("cairn", "fill", 1, 1000.0, 0),
            record("other", "fill", 1, 500.0, 0),
            record("cairn", "fill", 2, 3000.0, 0),
            record("cairn", "fill", 3, 2000.0, 0),
            record("cairn", "read", 1, 10.0, 0),
        ];
        let expected = "\
            g, ops/s        cairn      other\n\
            fill      2,000 1.00x  500 0.25x\n\
            read         10 1.00x          -\n\n";
        assert_eq!(table(&records), expected);
        assert_eq!((median(vec![]), median(vec![4.0, 1.0])), (None, Some(2.5)));
    }

    #[test]
    fn contents_are_compared_by_workload_and_round() {
        let mut records = vec![
            record("cairn", "fill", 1, 1.0, 7),
            record("cairn", "delete", 1, 1.0, 8),
            record("other", "fill", 1, 1.0, 7),
            record("other", "delete", 1, 1.0, 8),
            record("other", "delete", 2, 1.0, 9),
        ];
        assert_eq!(agreement(&records), Agreement { compared: 2, ..Agreement::default() });
        records[3].contents = Some(Contents { checksum: 9, ..records[3].contents.unwrap() });
        let found = agreement(&records);
        assert_eq!((found.compared, found.differing.len()), (2, 1));
        let text = found.to_string();
        assert!(text.contains("in 1 of 2") && text.contains("differ: g/delete, round 1"), "{text}");
        // A thread that writes beside readers may explain it.
        records[1].writer = Some(Writer::default());
        let explained = agreement(&records);
        assert_eq!((explained.explained, explained.differing.len()), (1, 0));
        // What was cut short takes what follows it out of the comparison.
        records[2].cut_short = true;
        assert_eq!(agreement(&records), Agreement { compared: 0, left_out: 2, ..Agreement::default() });
    }
}
