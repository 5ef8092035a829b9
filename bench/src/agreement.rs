//! Checks whether all engines ended with the same entries, which shows that they did the same work.
//!
//! A record has contents only if these follow from the seed: not if a workload was cut short, and not if a thread
//! wrote for as long as others read (see [`crate::session`]). Therefore two engines with contents of the same
//! workload must have the same contents.

use crate::record::{Contents, Record};
use std::collections::BTreeMap;
use std::fmt;

/// The result of the comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Agreement<'a> {
    /// Comparisons (of a workload in a round, between at least two engines) in which all agreed.
    pub agreed: usize,
    /// Comparisons in which engines differed.
    pub differ: Vec<Difference<'a>>,
    /// Engines left out of a comparison, because their contents do not follow from the seed.
    pub left_out: usize,
}

/// A workload after which engines had different contents.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference<'a> {
    /// The group.
    pub group: &'a str,
    /// The workload.
    pub workload: &'a str,
    /// The round.
    pub round: u32,
    /// The contents of each engine.
    pub found: Vec<(&'a str, Contents)>,
}

/// Compares the contents of the engines after each workload of each round.
pub fn compare<'a>(records: impl IntoIterator<Item = &'a Record>) -> Agreement<'a> {
    let mut same_work: BTreeMap<_, Vec<&'a Record>> = BTreeMap::new();
    for record in records {
        let work = (record.round, record.group.as_str(), record.workload.as_str());
        same_work.entry(work).or_default().push(record);
    }
    let mut agreement = Agreement::default();
    for ((round, group, workload), records) in same_work {
        let held = records.iter().filter_map(|record| Some((record.engine.as_str(), record.contents?)));
        let found: Vec<_> = held.collect();
        if found.is_empty() {
            continue;
        }
        agreement.left_out += records.len() - found.len();
        if found.len() == 1 {
            continue;
        }
        match found.iter().all(|(_, contents)| *contents == found[0].1) {
            true => agreement.agreed += 1,
            false => agreement.differ.push(Difference { group, workload, round, found }),
        }
    }
    agreement
}

/// The result in a sentence or two.
impl fmt::Display for Agreement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compared = self.agreed + self.differ.len();
        match (compared, self.differ.len()) {
            (0, _) => write!(f, "Contents were not compared: no workload has checksums of two engines.")?,
            (_, 0) => write!(
                f,
                "All agree: in all {compared} comparisons the engines ended with the same entries."
            )?,
            (_, wrong) => write!(
                f,
                "ENGINES DISAGREE in {wrong} of {compared} comparisons: they did not hold the same entries."
            )?,
        }
        match self.left_out {
            0 => Ok(()),
            1 => write!(f, " Left out: one run that the time limit cut short, or that followed such a one."),
            n => write!(f, " Left out: {n} runs that the time limit cut short, or that followed such a one."),
        }
    }
}

/// The engines and their contents.
impl fmt::Display for Difference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, round {}", self.group, self.workload, self.round)?;
        self.found.iter().try_for_each(|(engine, held)| {
            write!(f, "; {engine}: {} entries, checksum {:016x}", held.entries, held.checksum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(engine: &str, workload: &str, round: u32, checksum: Option<u64>) -> Record {
        Record {
            engine: engine.into(),
            group: "g".into(),
            workload: workload.into(),
            round,
            contents: checksum.map(|checksum| Contents { entries: 1, bytes: 2, checksum }),
            ..Record::default()
        }
    }

    #[test]
    fn contents_are_compared_by_workload_and_round() {
        let mut records = vec![
            record("cairn", "fill", 1, Some(7)),
            record("cairn", "read", 1, None),
            record("cairn", "delete", 1, Some(8)),
            record("other", "fill", 1, Some(7)),
            record("other", "read", 1, None),
            record("other", "delete", 1, Some(8)),
            record("other", "delete", 2, Some(9)),
        ];
        let all_agree = Agreement { agreed: 2, ..Agreement::default() };
        assert_eq!(compare(&records), all_agree);
        assert!(all_agree.to_string().contains("in all 2 comparisons"));

        records[5] = record("other", "delete", 1, Some(9));
        let found = compare(&records);
        assert_eq!((found.agreed, found.differ.len(), found.left_out), (1, 1, 0));
        assert!(found.to_string().contains("DISAGREE in 1 of 2"), "{found}");
        let text = found.differ[0].to_string();
        assert!(text.starts_with("g/delete, round 1; cairn: 1 entries") && text.contains("0009"), "{text}");

        // A workload that was cut short has no contents and is not compared.
        records[5] = record("other", "delete", 1, None);
        let found = compare(&records);
        assert_eq!((found.agreed, found.differ.len(), found.left_out), (1, 0, 1));
        assert!(found.to_string().contains("Left out: one run"), "{found}");
    }
}
