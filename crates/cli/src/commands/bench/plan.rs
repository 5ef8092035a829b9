//! Turns arguments into runs: which workloads share a database, the kind of its keys, and the steps of each workload.
//!
//! A fill starts with an empty database and thus begins a new *sequence*; the workloads after it use that database.
//! All keys of a database are of one kind, the kind of its fill. A workload that accepts any keys uses those:
//! `readrandom` after `ycsb-load` reads YCSB's keys. A workload that needs other keys is rejected before the run,
//! since it would only measure lookups of absent keys.

use super::args::Args;
use crate::failure::{Failure, Result};
use ::bench::generate::Shape;
use ::bench::suite::{Group, Step};
use ::bench::workload::{Rates, Workload};
use cairn::limits;
use std::ops::Range;

/// Length of one sample interval of a run, in seconds.
const SAMPLE_SECONDS: f64 = 1.0;

/// The kinds of keys in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Decimal numbers, as in `db_bench`.
    Decimal,
    /// Hashed numbers, as in YCSB.
    Hashed,
    /// Decimal numbers, each followed by a time.
    Versions,
}

impl Keys {
    /// The kind that a workload creates or needs; `None` if it accepts any kind.
    pub fn of(workload: Workload) -> Option<Keys> {
        use Workload::*;
        match workload {
            FillSeq | FillRandom | FillSync | DeleteSeq => Some(Keys::Decimal),
            YcsbLoad | YcsbA | YcsbB | YcsbC | YcsbD | YcsbE | YcsbF => Some(Keys::Hashed),
            TenEach | AgingInsert | AgingDelete | AgingUpdate | AgingRead => Some(Keys::Hashed),
            HistoryZipf | HistoryUniform => Some(Keys::Versions),
            Overwrite | UpdateZipfian | ReadRandom | ReadMissing | ReadSeq | ReadReverse | SeekRandom
            | DeleteAll | DeleteRandom | ReadWhileWriting | SeekAsOf | Transfer => None,
        }
    }

    /// Determines the kind of the keys of a database from one of them.
    pub fn of_key(key: &[u8]) -> Keys {
        let digits = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_digit);
        match key.split_last_chunk::<8>() {
            _ if key.starts_with(b"user") => Keys::Hashed,
            // The first byte of an inverted time in microseconds is 255 for the next two thousand years.
            Some((number, time)) if !number.is_empty() && digits(number) && time[0] == 255 => Keys::Versions,
            _ => Keys::Decimal,
        }
    }

    fn shape(self) -> Shape {
        if self == Keys::Hashed { Shape::Hashed } else { Shape::Decimal }
    }

    /// Default length of a key, in bytes.
    fn default_size(self) -> usize {
        if self == Keys::Hashed { 24 } else { 16 }
    }

    /// Maximum number of bytes that a workload appends to a key.
    fn max_suffix_len(self) -> usize {
        if self == Keys::Versions { 8 } else { 1 }
    }

    /// The usual fill workload for this kind.
    pub fn fill(self) -> Workload {
        match self {
            Keys::Decimal => Workload::FillRandom,
            Keys::Hashed => Workload::YcsbLoad,
            Keys::Versions => Workload::HistoryZipf,
        }
    }
}

/// Consecutive workloads that use the same database.
#[derive(Debug, PartialEq)]
pub struct Sequence {
    /// Indexes of the workloads in the run.
    pub steps: Range<usize>,
    /// Whether the database is empty at the start.
    pub fresh: bool,
}

/// Splits the run at each fill.
pub fn sequences(args: &Args) -> Vec<Sequence> {
    let mut sequences: Vec<Sequence> = Vec::new();
    for (at, workload) in args.workloads.iter().enumerate() {
        let fresh = workload.is_fill() && !args.use_existing;
        match sequences.last_mut() {
            Some(last) if !fresh => last.steps.end = at + 1,
            _ => sequences.push(Sequence { steps: at..at + 1, fresh }),
        }
    }
    sequences
}

impl Sequence {
    /// The kind of keys that the workloads create or need, if any of them determines it.
    pub fn keys(&self, args: &Args) -> Option<Keys> {
        args.workloads[self.steps.clone()].iter().find_map(|workload| Keys::of(*workload))
    }

    /// Rejects workloads that do not fit this kind of keys, and key lengths that are impossible.
    pub fn check(&self, args: &Args, keys: Keys) -> Result<()> {
        let unfit = |workload: &Workload| unfit(*workload, keys, args.threads.into());
        if let Some(why) = args.workloads[self.steps.clone()].iter().find_map(unfit) {
            return Err(Failure::usage(why));
        }
        let longest = |at: usize| steps(args)[at].1;
        let num = self.steps.clone().map(longest).max().unwrap_or(args.num);
        let (size, needed) = (key_size(args, keys), keys.shape().size_min(num));
        let below = limits::MAX_KEY_LEN + 1 - keys.max_suffix_len();
        if size < needed || size >= below {
            return Err(Failure::usage(format!(
                "--key-size {size}: {num} keys of {} need at least {needed} bytes, and fewer than {below} are allowed",
                keys.fill()
            )));
        }
        Ok(())
    }
}

/// Why a workload does not fit this kind of keys; `None` if it does.
fn unfit(workload: Workload, keys: Keys, threads: usize) -> Option<String> {
    let walks = matches!(workload, Workload::ReadSeq | Workload::ReadReverse);
    let other = |needed: Keys| {
        let (made, needed) = (keys.fill(), needed.fill());
        Some(format!(
            "{workload} needs other keys than this database has, which are those of {made}: run it after --workloads \
             {needed}"
        ))
    };
    match Keys::of(workload) {
        Some(Keys::Versions) if threads > 1 => {
            Some(format!("{workload} always has one thread that puts and one that queries: use --threads 1"))
        }
        Some(needed) if needed != keys => other(needed),
        None if keys == Keys::Versions && !walks => other(Keys::Decimal),
        None if keys == Keys::Hashed && walks && threads > 1 => Some(format!(
            "{workload} with {threads} threads gives each thread a range of numbers, but YCSB's keys are hashed and not in \
             the order of their numbers: use --threads 1"
        )),
        _ => None,
    }
}

fn key_size(args: &Args, keys: Keys) -> usize {
    args.key_size.unwrap_or(keys.default_size())
}

/// The steps of the workloads, and how many keys the key length of each must allow.
fn steps(args: &Args) -> Vec<(Step, u64)> {
    // The number of existing keys. `aging-insert` adds keys, which later workloads use.
    let mut end = args.num;
    let step = |&workload: &Workload| {
        let common = Step {
            threads: args.threads.into(),
            seek_nexts: args.seek_nexts,
            ..Step::new(workload, args.num, workload.ops(args.num, args.reads()))
        };
        if workload.is_fill() && !args.use_existing {
            end = args.num;
        }
        match Keys::of(workload) {
            Some(Keys::Versions) => history(args, common),
            _ if workload == Workload::AgingInsert => {
                let first = end;
                end += args.num;
                (Step { first, num: end, ..common }, end)
            }
            Some(Keys::Hashed) => (Step { num: end, ..common }, end),
            _ => (common, args.num),
        }
    };
    args.workloads.iter().map(step).collect()
}

/// A history has `--num` puts and the queries that are due meanwhile; or the given number of queries and the puts due
/// meanwhile.
fn history(args: &Args, common: Step) -> (Step, u64) {
    let rates = Rates::new(args.puts_per_second.into(), args.queries_per_second.into());
    let ops = args.reads.unwrap_or((args.num as f64 / rates.puts * rates.queries) as u64).max(1);
    // Each put may create a new key.
    let keys = rates.puts_beside(ops);
    (Step { ops, rates: Some(rates), ..common }, keys.max(args.num))
}

/// The workloads, for keys of this kind.
pub fn group(args: &Args, keys: Keys) -> Group {
    Group {
        name: String::new(),
        title: String::new(),
        about: String::new(),
        num: args.num,
        shape: keys.shape(),
        key_size: key_size(args, keys),
        sizes: args.value_size.clone(),
        seed: args.seed,
        memtable_bytes: None,
        seconds_max: None,
        sample_seconds: SAMPLE_SECONDS,
        on_request: false,
        steps: steps(args).into_iter().map(|step| step.0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Workload::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Cli::parse_from(["bench", "--db", "x", "--workloads"].into_iter().chain(line.split(' '))).args
    }

    #[test]
    fn a_fill_begins_a_sequence() {
        let of = |line| {
            let cut = sequences(&args(line));
            cut.iter().map(|s| (s.steps.start, s.steps.end, s.fresh)).collect::<Vec<_>>()
        };
        assert_eq!(of("readrandom,fillseq,readseq,ycsb-load"), [(0, 1, false), (1, 3, true), (3, 4, true)]);
        assert_eq!(of("fillseq,readseq,fillsync --use-existing"), [(0, 3, false)]);
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        let check = |line| {
            let args = args(line);
            let check = |s: &Sequence| s.keys(&args).map_or(Ok(()), |keys| s.check(&args, keys));
            sequences(&args).iter().try_for_each(check).err().map(|e| e.to_string()).unwrap_or_default()
        };
        for line in [
            "ycsb-load,ycsb-a,ycsb-d,overwrite,readrandom,readmissing,seekrandom,readseq,deleterandom",
            "fillrandom,readseq,ycsb-load,ycsb-c --threads 4",
            "history-uniform,readseq,fillseq,deleteseq,ten-each,aging-insert",
            "readrandom,ycsb-a",
        ] {
            assert_eq!(check(line), "", "{line}");
        }
        for (line, told) in [
            ("fillrandom,ycsb-a", "after --workloads ycsb-load"),
            ("ycsb-load,deleteseq", "after --workloads fillrandom"),
            ("history-zipf,readrandom", "those of history-zipf"),
            ("ycsb-load,readseq --threads 2", "--threads 1"),
            ("history-zipf --threads 2", "--threads 1"),
            ("ycsb-load,fillseq --use-existing", "fillseq needs other keys"),
            ("ycsb-load --key-size 20", "at least 24 bytes"),
            ("fillseq --num 1001 --key-size 3", "--key-size 3"),
            ("history-uniform --num 10 --reads 1000 --key-size 3", "need at least 5 bytes"),
            ("fillseq --key-size 65536", "allowed"),
        ] {
            assert!(check(line).contains(told), "{line}: {:?}", check(line));
        }
    }

    #[test]
    fn the_kind_of_keys_is_detected_from_one_key() {
        assert_eq!(Keys::of_key(b"0000000000000017"), Keys::Decimal);
        assert_eq!(Keys::of_key(b"user00000000000000000017"), Keys::Hashed);
        assert_eq!(Keys::of_key(b"0000000000000017\xff\xff\xff\xff\xff\x01\x02\x03"), Keys::Versions);
        assert_eq!(Keys::of_key(b"x"), Keys::Decimal);
    }

    #[test]
    fn what_ages_grows() {
        let of = |line| {
            let steps = steps(&args(line));
            steps.iter().map(|(s, _)| (s.workload, s.first, s.num, s.ops)).collect::<Vec<_>>()
        };
        assert_eq!(
            of("ycsb-load,aging-insert,aging-insert,aging-read,ycsb-load,ycsb-c --num 10 --reads 4"),
            [
                (YcsbLoad, 0, 10, 10),
                (AgingInsert, 10, 20, 10),
                (AgingInsert, 20, 30, 10),
                (AgingRead, 0, 30, 4),
                (YcsbLoad, 0, 10, 10),
                (YcsbC, 0, 10, 4),
            ]
        );
    }

    #[test]
    fn a_history_has_as_many_puts_as_asked_for() {
        let of = |line| {
            let (step, keys) = steps(&args(line)).remove(0);
            (step.ops, step.rates, keys)
        };
        assert_eq!(of("history-zipf --num 50000"), (1000, Some(Rates::new(10_000.0, 200.0)), 50_000));
        let line = "history-zipf --num 500 --reads 60 --puts-per-second 1000 --queries-per-second 50";
        assert_eq!(of(line), (60, Some(Rates::new(1000.0, 50.0)), 1200));
    }
}
