//! Whether all engines ended with the same entries: the proof that they did the same work.
//!
//! An engine whose workload was cut short is left out from there to the end of its group: it holds less, as it must. A
//! thread that writes beside readers writes for as long as they take, so from there on contents may differ for a good
//! reason; a difference is shown all the same, with that reason.

use super::data::{Data, full_name};
use super::format;
use crate::record::Contents;
use std::collections::{BTreeMap, BTreeSet};

/// What the comparison found.
#[derive(Default)]
pub struct Verdict<'a> {
    /// Comparisons (of a workload in a round, between two engines at least) in which all agreed.
    pub agreed: usize,
    /// Those in which they did not.
    pub differ: Vec<Difference<'a>>,
    /// Contents that were not compared, because the engine was cut short.
    pub left_out: usize,
}

/// Engines ended a workload with different contents.
pub struct Difference<'a> {
    /// Group and workload.
    pub name: String,
    /// The round.
    pub round: u32,
    /// What each engine held.
    pub found: Vec<(&'a str, Contents)>,
    /// Whether a thread had written for as long as the readers took.
    pub explained: bool,
}

impl Verdict<'_> {
    /// The result in a sentence or two.
    pub fn in_words(&self) -> String {
        let compared = self.agreed + self.differ.len();
        let mut words = match (compared, self.unexplained()) {
            (0, _) => "Contents were not compared: no workload has checksums of two engines.".to_string(),
            (_, 0) if self.differ.is_empty() => {
                format!("All agree: in all {compared} comparisons the engines ended with the same entries.")
            }
            (_, 0) => format!(
                "In {} of {compared} comparisons all engines ended with the same entries; in the others a thread had written \
                 for as long as the readers took.",
                self.agreed
            ),
            (_, wrong) => format!(
                "ENGINES DISAGREE in {wrong} of {compared} comparisons: they did not hold the same entries."
            ),
        };
        if self.left_out > 0 {
            let runs = format::plural(self.left_out, "run");
            words +=
                &format!(" Left out: {runs} that the time limit had cut short, or that followed such a one.");
        }
        words
    }

    /// The differences that nothing explains.
    pub fn unexplained(&self) -> usize {
        self.differ.iter().filter(|difference| !difference.explained).count()
    }
}

/// Compares what the engines hold after each workload of each round.
pub fn compare<'a>(data: &Data<'a>) -> Verdict<'a> {
    let mut verdict = Verdict::default();
    for group in &data.groups {
        // Engines and rounds in which this group was cut short, and rounds with a writer, so far.
        let mut cut: BTreeSet<(&str, u32)> = BTreeSet::new();
        let mut free_writer: BTreeSet<u32> = BTreeSet::new();
        for workload in &group.workloads {
            let mut rounds: BTreeMap<u32, Vec<(&'a str, Contents)>> = BTreeMap::new();
            for (engine, record) in
                workload.runs.iter().flat_map(|(e, all)| all.iter().map(move |r| (*e, *r)))
            {
                if record.cut_short {
                    cut.insert((engine, record.round));
                }
                if record.writer.is_some() {
                    free_writer.insert(record.round);
                }
                match record.contents {
                    Some(_) if cut.contains(&(engine, record.round)) => verdict.left_out += 1,
                    Some(contents) => rounds.entry(record.round).or_default().push((engine, contents)),
                    None => {}
                }
            }
            for (round, found) in rounds.into_iter().filter(|(_, found)| found.len() > 1) {
                if found.iter().all(|(_, contents)| *contents == found[0].1) {
                    verdict.agreed += 1;
                } else {
                    let (name, explained) =
                        (full_name(group.name, &workload.name), free_writer.contains(&round));
                    verdict.differ.push(Difference { name, round, found, explained });
                }
            }
        }
    }
    verdict
}
