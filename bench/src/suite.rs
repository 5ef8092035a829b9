//! The groups of workloads, and their sizes.
//!
//! A *group* is the work of one process with one engine and one directory: it fills a database, runs workloads on
//! it, and closes it. The groups and their parameters are the same for every engine.

use crate::engine::RequestedSettings;
use crate::generate::{Shape, Sizes};
use crate::workload::{Rates, Workload};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Workloads that run one after the other on one database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its name, such as `ycsb`.
    pub name: String,
    /// Its title, for a heading.
    pub title: String,
    /// Its purpose, in a sentence or two.
    pub about: String,
    /// Number of keys in the database before any workload inserts more.
    pub num: u64,
    /// How numbers map to keys.
    pub shape: Shape,
    /// Length of a key in bytes.
    pub key_size: usize,
    /// Lengths of values.
    pub sizes: Sizes,
    /// Seed of the keys, the values and their order.
    pub seed: u64,
    /// Size of a memtable, whatever size is requested of other groups.
    pub memtable_bytes: Option<u64>,
    /// Time limit of a workload in seconds, without settling; the workload is cut short after it.
    pub seconds_max: Option<f64>,
    /// Length of a sample interval, in seconds.
    pub sample_seconds: f64,
    /// Whether it runs only when it is named: it takes long, and few users need it.
    pub on_request: bool,
    /// The workloads, in order.
    pub steps: Vec<Step>,
}

/// A workload with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The workload.
    pub workload: Workload,
    /// The name in results, if the name of the workload is ambiguous.
    pub label: Option<String>,
    /// Number of operations of all threads.
    pub ops: u64,
    /// Threads that share the operations.
    pub threads: usize,
    /// Threads that put beside them, in `readwhilewriting`.
    pub writers: usize,
    /// First key number ...
    pub first: u64,
    /// ... and end of the key numbers (exclusive).
    pub num: u64,
    /// Entries that a seek reads after the first.
    pub seek_nexts: u64,
    /// The schedule of a history.
    pub rates: Option<Rates>,
    /// Whether memtables are flushed before it, outside of the measurement.
    pub after_flush: bool,
    /// Whether it runs until the time limit of its group, however many operations that takes.
    pub timed: bool,
    /// Whether the content of the database is read and hashed afterwards, if it is the same for all engines.
    pub sum_up: bool,
}

impl Step {
    /// A workload of one thread over `num` keys.
    pub fn new(workload: Workload, num: u64, ops: u64) -> Step {
        Step {
            workload,
            label: None,
            ops,
            threads: 1,
            writers: usize::from(workload == Workload::ReadWhileWriting),
            first: 0,
            num,
            seek_nexts: 0,
            rates: None,
            after_flush: false,
            timed: false,
            sum_up: false,
        }
    }

    /// Its name in results.
    pub fn name(&self) -> String {
        self.label.clone().unwrap_or_else(|| self.workload.name().to_string())
    }

    fn label(mut self, label: impl Into<String>) -> Step {
        self.label = Some(label.into());
        self
    }

    fn summed_up(mut self) -> Step {
        self.sum_up = true;
        self
    }
}

impl Group {
    /// The part of the name that related groups share: `parallax` of `parallax-sd`.
    pub fn family(&self) -> &str {
        self.name.split_once('-').map_or(&self.name, |(family, _)| family)
    }

    /// Whether the content of the database after step `at` follows from its content before. The writer of
    /// `readwhilewriting` puts as much as it can, so the content is determined only if these puts repeat those of
    /// an earlier `overwrite`.
    pub fn is_repeatable(&self, at: usize) -> bool {
        let overwrite = |step: &Step| step.workload == Workload::Overwrite;
        self.steps[at].workload != Workload::ReadWhileWriting || self.steps[..at].iter().any(overwrite)
    }

    /// Maximum number of bytes of keys and values stored, without overwritten ones.
    pub fn data_bytes_max(&self) -> u64 {
        let history = |step: &Step| step.rates.map_or(0, |rates| rates.puts_beside(step.ops));
        let keys = |step: &Step| match step.workload {
            Workload::YcsbD | Workload::YcsbE => self.num + step.ops / 10,
            _ => step.first.max(step.num) + step.ops * u64::from(step.first > 0),
        };
        let entries = self.steps.iter().map(|step| keys(step).max(history(step))).max().unwrap_or(0);
        (entries as f64 * (self.key_size as f64 + 8.0 + self.sizes.mean())) as u64
    }
}

/// The sizes of the groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// All engines and all groups within minutes, with data that fits in memory: a functional test.
    Quick,
    /// Data larger than the memory limit: for measurements.
    #[default]
    Full,
}

impl Scale {
    /// All scales.
    pub const ALL: [Scale; 2] = [Scale::Quick, Scale::Full];
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scale::Quick => "quick",
            Scale::Full => "full",
        })
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(name: &str) -> Result<Scale, String> {
        let scale = Scale::ALL.into_iter().find(|scale| scale.to_string() == name);
        scale.ok_or_else(|| format!("there is no scale {name:?}: quick or full"))
    }
}

/// Changes to a scale from the command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjust {
    /// Seed of the keys, the values and their order.
    pub seed: u64,
    /// Time limit of a workload in seconds; `None` for that of the scale.
    pub seconds_max: Option<f64>,
    /// Factor for the numbers of keys and operations; `None` for 1.
    pub factor: Option<f64>,
}

/// So few accounts that transfers of several threads often meet.
const FEW_ACCOUNTS: u64 = 64;

/// The sizes of a scale.
struct Size {
    /// Numbers of keys and lengths of values.
    dbbench: [(u64, usize); 2],
    /// Numbers of keys of the database well within memory and of the one four times as large as the memory limit,
    /// with the first length of values.
    memory: u64,
    four_times: u64,
    /// Number of keys of the database with 1 KiB values, two readers and two writers.
    beside: u64,
    /// Number of keys of the database with 1 KiB values that is updated for long, and for how many seconds by each choice of keys.
    steady: u64,
    steady_seconds: f64,
    reads: u64,
    seeks: u64,
    walk: u64,
    synced: u64,
    ycsb: (u64, u64),
    ycsb_value: usize,
    parallax_bytes: u64,
    parallax_ops: u64,
    history_seconds: f64,
    history_rates: Rates,
    history_keys: u64,
    aging: u64,
    ten_each: u64,
    sample_seconds: f64,
    seconds_max: f64,
}

impl Scale {
    fn size(self) -> Size {
        match self {
            Scale::Quick => Size {
                dbbench: [(400_000, 128), (60_000, 1024)],
                memory: 100_000,
                four_times: 800_000,
                beside: 60_000,
                steady: 60_000,
                steady_seconds: 2.0,
                reads: 60_000,
                seeks: 30_000,
                walk: 300_000,
                synced: 500,
                ycsb: (100_000, 60_000),
                ycsb_value: 1024,
                parallax_bytes: 12 << 20,
                parallax_ops: 60_000,
                history_seconds: 2.5,
                history_rates: Rates::new(5_000.0, 200.0),
                history_keys: 5_000,
                aging: 100_000,
                ten_each: 20_000,
                sample_seconds: 0.25,
                seconds_max: 3.0,
            },
            Scale::Full => Size {
                // 3.2 GB, which is 1.5 times the memory limit, and 5.2 GB.
                dbbench: [(22_500_000, 128), (5_000_000, 1024)],
                // 0.7 GB, 8.6 GB, 6.0 GB and 6.5 GB.
                memory: 5_000_000,
                four_times: 60_000_000,
                beside: 5_800_000,
                steady: 6_200_000,
                steady_seconds: 1800.0,
                reads: 250_000,
                seeks: 100_000,
                walk: 5_000_000,
                synced: 5_000,
                ycsb: (5_000_000, 250_000),
                ycsb_value: 1024,
                parallax_bytes: 3 << 30,
                parallax_ops: 1_000_000,
                history_seconds: 120.0,
                history_rates: Rates::new(10_000.0, 200.0),
                history_keys: 100_000,
                aging: 5_000_000,
                ten_each: 20_000,
                sample_seconds: 1.0,
                seconds_max: 240.0,
            },
        }
    }
}

/// Lengths of keys and values of the Parallax thesis, table 4.1 and below: small, medium and large.
const PARALLAX: [(&str, &str, &str); 6] = [
    ("s", "small values (9 bytes)", "9"),
    ("m", "medium values (104 bytes)", "104"),
    ("l", "large values (1004 bytes)", "1004"),
    ("sd", "small values dominate (60-20-20 %)", "9:60 104:20 1004:20"),
    ("md", "medium values dominate (20-60-20 %)", "9:20 104:60 1004:20"),
    ("ld", "large values dominate (20-20-60 %)", "9:20 104:20 1004:60"),
];
/// Sizes of the databases that show how cost grows, in eighths of the one of `dbbench`.
const GROWTH: [(&str, u64); 6] = [("eighth", 1), ("quarter", 2), ("half", 4), ("1", 8), ("2", 16), ("4", 32)];
/// Pairs in a memtable of the report (section 4.2), and a memtable that holds them.
const REPORT_PAIRS: u64 = 4096;
const REPORT_MEMTABLE: u64 = 512 << 10;
/// Operations of a workload that runs until its time limit: more than any engine does.
const TIMED_OPS: u64 = 1 << 40;
/// Puts a second of a history: more than any engine does.
const FULL_SPEED: f64 = 1e6;
/// Length of YCSB's keys, in bytes.
const YCSB_KEY: usize = 24;

/// The groups of a scale.
pub fn groups(scale: Scale, adjust: &Adjust) -> Vec<Group> {
    let mut size = scale.size();
    if let Some(factor) = adjust.factor {
        let times = |n: &mut u64| *n = ((*n as f64 * factor) as u64).max(100);
        size.dbbench.iter_mut().for_each(|(num, _)| times(num));
        for n in [
            &mut size.memory,
            &mut size.four_times,
            &mut size.beside,
            &mut size.steady,
            &mut size.reads,
            &mut size.seeks,
            &mut size.walk,
            &mut size.synced,
            &mut size.ycsb.0,
            &mut size.ycsb.1,
            &mut size.parallax_bytes,
            &mut size.parallax_ops,
            &mut size.history_keys,
            &mut size.aging,
            &mut size.ten_each,
        ] {
            times(n);
        }
        size.history_seconds = (size.history_seconds * factor).max(0.5);
    }
    let group = |name: &str, title: &str, about: &str| Group {
        name: name.to_string(),
        title: title.to_string(),
        about: about.to_string(),
        num: 0,
        shape: Shape::Hashed,
        key_size: YCSB_KEY,
        sizes: Sizes::all(0),
        seed: adjust.seed,
        memtable_bytes: None,
        seconds_max: Some(adjust.seconds_max.unwrap_or(size.seconds_max)),
        sample_seconds: size.sample_seconds,
        on_request: false,
        steps: Vec::new(),
    };
    let mut groups = Vec::new();
    // Keys in the order of their numbers, as in `db_bench`.
    let decimal = |(num, value): (u64, usize), name: &str, title: &str, about: &str| Group {
        num,
        shape: Shape::Decimal,
        key_size: 16,
        sizes: Sizes::all(value),
        ..group(name, title, about)
    };
    let [small, large] = size.dbbench;
    for (num, value) in size.dbbench {
        let (name, title) = (format!("dbbench-{value}"), format!("db_bench, values of {value} bytes"));
        let about = format!(
            "The workloads of LevelDB's db_bench, with more data than memory: 16-byte keys, {value}-byte values, one thread."
        );
        groups.push(Group { steps: dbbench(num, &size), ..decimal((num, value), &name, &title, &about) });
        if value == small.1 {
            groups.push(Group {
                steps: dbbench(size.memory, &size),
                ..decimal(
                    (size.memory, value),
                    &format!("{name}-memory"),
                    &format!("{title}, in memory"),
                    "The same with data that fit in memory with room to spare: what processors cost, not the disk.",
                )
            });
            groups.push(Group {
                // The fill gets more time: all later workloads measure its result.
                seconds_max: Some(adjust.seconds_max.unwrap_or(4.0 * size.seconds_max)),
                steps: reads_and_overwrites(size.four_times, &size),
                ..decimal(
                    (size.four_times, value),
                    &format!("{name}-4x"),
                    &format!("{title}, four times memory"),
                    "A part of these workloads with four times as much data as memory: most reads wait for the disk.",
                )
            });
        }
        groups.push(Group {
            steps: vec![
                Step::new(Workload::FillSeq, num, num).summed_up(),
                Step::new(Workload::DeleteSeq, num, num).summed_up(),
            ],
            ..decimal(
                (num, value),
                &format!("sequential-{value}"),
                &format!("In key order, values of {value} bytes"),
                &format!("Keys in order: 16-byte keys, {value}-byte values, one thread."),
            )
        });
    }
    groups.push(Group {
        steps: readers_beside_writers(size.beside, &size),
        ..decimal(
            (size.beside, large.1),
            &format!("readwhilewriting-{}", large.1),
            "Readers beside writers",
            "Two threads that get random keys beside two that put random keys as fast as they can, with nearly three times as \
             much data as memory: 16-byte keys, 1,024-byte values.",
        )
    });
    groups.push(Group {
        steps: scans(large.0, &size),
        ..decimal(
            large,
            &format!("scans-{}", large.1),
            "Scans, again and again",
            "Scans of 100 entries from random keys, twice as many entries in each workload as there are keys, then all keys in order, \
             after a fill and after overwrites of a quarter of the keys: 16-byte keys, 1,024-byte values, one thread.",
        )
    });
    groups.push(Group {
        seconds_max: Some(adjust.seconds_max.unwrap_or(size.steady_seconds)),
        on_request: true,
        steps: vec![
            Step::new(Workload::FillRandom, size.steady, size.steady).summed_up(),
            Step { timed: true, ..Step::new(Workload::Overwrite, size.steady, TIMED_OPS) },
            Step { timed: true, ..Step::new(Workload::UpdateZipfian, size.steady, TIMED_OPS) },
        ],
        num: size.steady,
        sizes: Sizes::all(large.1),
        ..group(
            &format!("steady-{}", large.1),
            "Updates for an hour",
            "Random updates as fast as the engine takes them, uniform for half an hour, then zipfian for another, of three times as much \
             data as memory: 24-byte keys, 1,024-byte values, one thread. Runs only when it is named.",
        )
    });
    groups.push(Group {
        steps: vec![Step::new(Workload::FillSync, small.0, size.synced).summed_up()],
        ..decimal(
            small,
            "sync",
            "Synced writes",
            "Each put is on the disk before the next begins: 16-byte keys, one thread.",
        )
    });
    groups.push(Group {
        num: size.ycsb.0,
        sizes: Sizes::all(size.ycsb_value),
        steps: ycsb(size.ycsb),
        ..group(
            "ycsb",
            "YCSB",
            "Load, then A to F on the same database: 24-byte keys, 1,024-byte values, 4 threads.",
        )
    });
    for (accounts, threads) in
        [(size.memory, 1), (size.memory, 2), (size.memory, 8), (FEW_ACCOUNTS, 2), (FEW_ACCOUNTS, 8)]
    {
        let few = if accounts == FEW_ACCOUNTS { "few-" } else { "" };
        let step = Step { threads, ..Step::new(Workload::Transfer, accounts, size.memory) };
        groups.push(Group {
            on_request: true,
            steps: vec![Step::new(Workload::FillRandom, accounts, accounts), step.summed_up()],
            ..decimal(
                (accounts, small.1),
                &format!("transfers-{few}{threads}"),
                &format!("Transfers between {accounts} accounts, {threads} threads"),
                "Transactions that read two keys, chosen uniformly, and put both. Runs only when it is named.",
            )
        });
    }
    for (name, what, sizes) in PARALLAX {
        let sizes: Sizes = sizes.parse().expect("the table is well formed");
        let num = (size.parallax_bytes as f64 / (YCSB_KEY as f64 + sizes.mean())) as u64;
        groups.push(Group {
            num,
            sizes,
            steps: parallax(num, size.parallax_ops, name.len() == 2 && name != "ld"),
            ..group(
                &format!("parallax-{name}"),
                &format!("Parallax: {what}"),
                "Load A and Run A of the Parallax thesis, chapter 4, and B to F for the two mixes of its figure 5.1: 24-byte keys, 4 \
                 threads; updates may change a value's size class.",
            )
        });
    }
    groups.extend(histories(&size).map(|history| Group {
        key_size: history.key_size,
        on_request: history.on_request,
        seconds_max: adjust.seconds_max.or(history.seconds_max).or(Some(size.seconds_max)),
        steps: vec![Step {
            rates: Some(history.rates),
            ..Step::new(
                history.workload,
                size.history_keys,
                ((history.rates.queries * history.seconds) as u64).max(1),
            )
            .summed_up()
        }],
        ..decimal((size.history_keys, 1000), history.name, history.title, &history.about)
    }));
    let keys = size.history_keys * 2;
    groups.push(Group {
        steps: newest(keys, size.reads.min(keys), size.seeks.min(keys / 10)),
        ..decimal(
            (keys, 1000),
            "history-newest",
            "Newest versions with and without older ones",
            "Gets, scans of 100 entries, and scans of 100 entries as of an earlier time, when each key has one version, and when it has ten on \
             average. A scan as of a time is a plain one where an engine keeps no versions.",
        )
    });
    groups.push(Group {
        num: size.ten_each,
        sizes: Sizes::all(100),
        steps: vec![Step::new(Workload::TenEach, size.ten_each, 10 * size.ten_each).summed_up()],
        ..group(
            "report",
            "Ten operations on each key",
            "The workload of the report on log and sstable databases, section 4: 20,000 keys, ten random reads, writes or deletes each.",
        )
    });
    groups.push(Group {
        on_request: true,
        num: size.ten_each,
        sizes: Sizes::all(100),
        memtable_bytes: Some(REPORT_MEMTABLE),
        steps: vec![Step::new(Workload::TenEach, size.ten_each, 10 * size.ten_each).summed_up()],
        ..group(
            "sstable-files",
            "Ten operations on each key, with small memtables",
            "The same with memtables of 512 KiB, which hold the 4,096 pairs of the report's section 4.2: most entries are in files.",
        )
    });
    let get = |label: &str| Step::new(Workload::ReadRandom, REPORT_PAIRS, 100 * REPORT_PAIRS).label(label);
    groups.push(Group {
        on_request: true,
        num: REPORT_PAIRS,
        sizes: Sizes::all(100),
        steps: vec![
            Step::new(Workload::FillRandom, REPORT_PAIRS, REPORT_PAIRS),
            get("get-memtable"),
            Step { after_flush: true, ..get("get-file") },
        ],
        ..group(
            "sstable-memory",
            "Gets from memory and from a file",
            "The report, section 4.2: 4,096 pairs are read in random order, a hundred times each, from the memtable and, after a flush, from a \
             file that is in the page cache.",
        )
    });
    groups.extend(pebblesdb(&size, large).map(|(name, title, about, num, steps)| Group {
        on_request: true,
        steps,
        ..decimal((num, large.1), name, title, about)
    }));
    groups.extend(GROWTH.map(|(name, eighths)| {
        let num = small.0 * eighths / 8;
        Group {
            // No limit by default, so that the slowest engine completes the fill: a fill cut short says nothing
            // about its size.
            seconds_max: adjust.seconds_max,
            on_request: true,
            steps: vec![
                Step::new(Workload::FillRandom, num, num),
                Step::new(Workload::ReadRandom, num, size.reads),
            ],
            ..decimal(
                (num, small.1),
                &format!("growth-{name}"),
                &format!("Growth, {num} keys"),
                "The same fill and the same reads at sizes from an eighth to four times those of db_bench: 16-byte keys, 128-byte \
                 values, one thread. Runs only when it is named.",
            )
        }
    }));
    groups.push(Group {
        num: size.aging,
        sizes: Sizes::all(256),
        steps: aging(size.aging, size.reads),
        ..group(
            "aging",
            "Aging",
            "Five rounds of inserting a fifth as many keys again, deleting a tenth, and updating a fifth: 24-byte keys, 256-byte values.",
        )
    });
    groups
}

/// A group of the Mneme thesis, chapter 6.
struct History {
    name: &'static str,
    title: &'static str,
    about: String,
    workload: Workload,
    rates: Rates,
    key_size: usize,
    seconds: f64,
    seconds_max: Option<f64>,
    on_request: bool,
}

fn histories(size: &Size) -> [History; 9] {
    let history = |name, title, workload| History {
        name,
        title,
        about: String::new(),
        workload,
        rates: size.history_rates,
        key_size: 16,
        seconds: size.history_seconds,
        seconds_max: None,
        on_request: false,
    };
    let uniform = |name, title| history(name, title, Workload::HistoryUniform);
    let new =
        |new_percent, history: History| History { rates: Rates { new_percent, ..history.rates }, ..history };
    // The scale of the thesis: 2.5 million puts, 20 queries a second (section 6.2).
    let thesis_rates = Rates::new(2_500.0, 20.0);
    let thesis_seconds = 1000.0 * size.history_seconds / Scale::Full.size().history_seconds;
    let thesis = |history: History| History {
        rates: thesis_rates,
        seconds: thesis_seconds,
        seconds_max: Some(1.2 * thesis_seconds),
        on_request: true,
        ..history
    };
    let full_speed = |puts: f64, history: History| History {
        rates: Rates::new(FULL_SPEED, 200.0),
        seconds: puts / FULL_SPEED,
        ..history
    };
    let histories = [
        history("history-zipf", "History of versions, zipfian", Workload::HistoryZipf),
        uniform("history-uniform", "History of versions, uniform, half of the puts of new keys"),
        new(20, uniform("history-new-20", "History of versions, uniform, a fifth of the puts of new keys")),
        new(
            80,
            uniform("history-new-80", "History of versions, uniform, four fifths of the puts of new keys"),
        ),
        History {
            key_size: 100,
            ..uniform("history-long-keys", "History of versions, uniform, keys of 100 bytes")
        },
        full_speed(
            size.history_rates.puts * size.history_seconds,
            uniform("history-full-speed", "History of versions, uniform, as fast as the engine puts them"),
        ),
        thesis(history("history-thesis-zipf", "The history of the thesis, zipfian", Workload::HistoryZipf)),
        thesis(uniform("history-thesis-uniform", "The history of the thesis, uniform")),
        History {
            on_request: true,
            ..full_speed(
                thesis_rates.puts * thesis_seconds,
                uniform(
                    "history-thesis-full-speed",
                    "The history of the thesis, uniform, as fast as the engine puts it",
                ),
            )
        },
    ];
    histories.map(|history| {
        let Rates { puts, queries, .. } = history.rates;
        if puts == FULL_SPEED {
            let about = format!(
                "Mneme, chapter 6: {:.0} puts of versions, as fast as the engine takes them. The few queries beside them follow a timetable that \
                 no engine keeps, so most of them find nothing: what counts is the time of the puts.",
                puts * history.seconds
            );
            return History { about, ..history };
        }
        let about = format!(
            "Mneme, chapter 6: {puts} puts a second and {queries} queries a second, each for the versions of a key in a third of \
             the time so far. Where an engine keeps no versions, the key in it is key and time. Latencies count from \
             the moment at which the operation was due.{}",
            if history.on_request { " Runs only when it is named." } else { "" }
        );
        History { about, ..history }
    })
}

/// The experiments of the PebblesDB paper that no other group has: name, title, description, number of keys, and steps.
fn pebblesdb(
    size: &Size,
    (num, _): (u64, usize),
) -> [(&'static str, &'static str, &'static str, u64, Vec<Step>); 5] {
    use Workload::*;
    let step = |workload, num, ops, label: &str| Step::new(workload, num, ops).label(label);
    let threads = |threads, step: Step| Step { threads, ..step };
    let cached = (size.memory / 5).max(100);
    // A window of keys moves: the next keys are put and read, then deleted.
    let window = num / 2;
    let series = (0..5u64).flat_map(|round| {
        let (first, end) = (window * round, window * (round + 1));
        let insert = Step { first, ..Step::new(AgingInsert, end, window) };
        let read = Step { first, ..Step::new(ReadRandom, end, size.reads) };
        let delete = Step { first, ..Step::new(DeleteSeq, end, window) };
        [
            if round == 0 {
                step(FillSeq, window, window, "insert-1")
            } else {
                insert.label(format!("insert-{}", round + 1))
            },
            read.label(format!("read-{}", round + 1)),
            delete.label(format!("delete-{}", round + 1)),
        ]
    });
    [
        (
            "pebblesdb-updates",
            "Updates of all keys, twice",
            "PebblesDB, table 2: all keys are put, then as many random keys are put again, twice: 16-byte keys, 1,024-byte values.",
            num,
            vec![
                step(FillRandom, num, num, "insert"),
                step(Overwrite, num, num, "update-1"),
                step(Overwrite, num, num, "update-2"),
            ],
        ),
        (
            "pebblesdb-cached",
            "A small data set in memory",
            "PebblesDB, figure 4(d): puts, gets and seeks of data that stay in memory: 16-byte keys, 1,024-byte values.",
            cached,
            vec![
                Step::new(FillRandom, cached, cached),
                Step::new(ReadRandom, cached, size.reads),
                Step::new(SeekRandom, cached, size.seeks),
            ],
        ),
        (
            "pebblesdb-threads",
            "Four threads",
            "PebblesDB, figure 4(c): four threads put random keys, then four get them, then two get while two put: 16-byte keys, 1,024-byte \
             values.",
            num,
            vec![
                threads(4, Step::new(FillRandom, num, num)),
                threads(4, Step::new(ReadRandom, num, size.reads)),
                Step { threads: 2, writers: 2, ..Step::new(ReadWhileWriting, num, size.reads) },
            ],
        ),
        (
            "pebblesdb-space",
            "Space after many updates",
            "PebblesDB, section 5.2: a tenth of the keys, ten random puts for each: 16-byte keys, 1,024-byte values.",
            num / 10,
            vec![Step::new(FillRandom, num / 10, num / 10), step(Overwrite, num / 10, num, "ten-updates")],
        ),
        (
            "pebblesdb-series",
            "Keys that come and go",
            "PebblesDB, section 5.2 (empty guards): keys in ascending order are put, read at random and deleted, five times, each time the keys \
             after those before: 16-byte keys, 1,024-byte values.",
            window * 5,
            series.collect(),
        ),
    ]
}

/// Reads when each key has one version, then when it has ten.
fn newest(num: u64, gets: u64, scans: u64) -> Vec<Step> {
    let get = |label: &str| Step::new(Workload::ReadRandom, num, gets).label(label);
    let scan = |workload: Workload, label: &str| {
        Step { seek_nexts: 99, ..Step::new(workload, num, scans) }.label(label)
    };
    vec![
        Step::new(Workload::FillRandom, num, num),
        get("get-of-1"),
        scan(Workload::SeekRandom, "scan-of-1"),
        Step::new(Workload::Overwrite, num, 9 * num),
        get("get-of-10"),
        scan(Workload::SeekRandom, "scan-of-10"),
        scan(Workload::SeekAsOf, "as-of-10"),
    ]
}

fn dbbench(num: u64, size: &Size) -> Vec<Step> {
    let reads = |workload| Step::new(workload, num, size.reads);
    let walk = |workload| Step::new(workload, num, size.walk);
    let seek = |nexts| Step { seek_nexts: nexts, ..Step::new(Workload::SeekRandom, num, size.seeks) };
    vec![
        Step::new(Workload::FillRandom, num, num).summed_up(),
        reads(Workload::ReadRandom),
        reads(Workload::ReadMissing),
        seek(0),
        seek(50).label("seekrandom-50"),
        walk(Workload::ReadSeq),
        walk(Workload::ReadReverse),
        Step::new(Workload::Overwrite, num, num),
        reads(Workload::ReadWhileWriting).summed_up(),
        Step::new(Workload::DeleteRandom, num, num).summed_up(),
    ]
}

/// A fill, then reads of one entry and of several, overwrites, and reads beside writes.
fn reads_and_overwrites(num: u64, size: &Size) -> Vec<Step> {
    let mut steps = dbbench(num, size);
    use Workload::*;
    steps.retain(|step| {
        matches!(step.workload, FillRandom | ReadRandom | SeekRandom | Overwrite | ReadWhileWriting)
    });
    steps
}

/// A fill, then two readers beside two writers.
fn readers_beside_writers(num: u64, size: &Size) -> Vec<Step> {
    let beside = Step { threads: 2, writers: 2, ..Step::new(Workload::ReadWhileWriting, num, size.reads) };
    vec![Step::new(Workload::FillRandom, num, num).summed_up(), beside]
}

/// A fill, scans, overwrites and scans: an engine may keep values that are scanned in another place than others.
fn scans(num: u64, size: &Size) -> Vec<Step> {
    let scan = |name: &str| {
        let step = Step { seek_nexts: 99, ..Step::new(Workload::SeekRandom, num, num / 50) };
        step.label(format!("seekrandom-100-{name}"))
    };
    let walk = |name: &str| Step::new(Workload::ReadSeq, num, size.walk).label(format!("readseq-{name}"));
    vec![
        Step::new(Workload::FillRandom, num, num).summed_up(),
        scan("1"),
        scan("2"),
        scan("3"),
        walk("1"),
        Step::new(Workload::Overwrite, num, num / 4),
        scan("4"),
        scan("5"),
        walk("2"),
    ]
}

fn ycsb((num, ops): (u64, u64)) -> Vec<Step> {
    use Workload::*;
    let step = |workload, ops| Step { threads: 4, ..Step::new(workload, num, ops) };
    let mut steps = vec![step(YcsbLoad, num).summed_up()];
    steps.extend([YcsbA, YcsbB, YcsbC, YcsbF, YcsbD].map(|workload| step(workload, ops)));
    // A scan returns fifty records on average.
    steps.push(step(YcsbE, ops / 10).summed_up());
    steps
}

/// Load A and Run A; with `all`, then B to F. Only the last is summed up: to read all entries in between may make an engine move values.
fn parallax(num: u64, ops: u64, all: bool) -> Vec<Step> {
    use Workload::*;
    let step = |workload, ops, label: &str| {
        let step = Step { threads: 4, ..Step::new(workload, num, ops) };
        step.label(label)
    };
    let ops = ops.min(num);
    let mut steps = vec![step(YcsbLoad, num, "load-a"), step(YcsbA, ops, "run-a")];
    if all {
        let runs = [(YcsbB, "run-b"), (YcsbC, "run-c"), (YcsbF, "run-f"), (YcsbD, "run-d")];
        steps.extend(runs.map(|(workload, label)| step(workload, ops, label)));
        // A scan returns fifty records on average.
        steps.push(step(YcsbE, ops / 10, "run-e"));
    }
    steps.last_mut().expect("there are two at least").sum_up = true;
    steps
}

fn aging(num: u64, reads: u64) -> Vec<Step> {
    let mut steps = vec![Step::new(Workload::YcsbLoad, num, num).label("aging-0-load").summed_up()];
    let mut end = num;
    for round in 1..=5 {
        let insert = Step { first: end, ..Step::new(Workload::AgingInsert, num, num / 5) };
        end += num / 5;
        let step = |workload, ops| Step::new(workload, end, ops);
        steps.extend([
            insert.label(format!("aging-{round}-insert")),
            step(Workload::AgingDelete, num / 10).label(format!("aging-{round}-delete")),
            step(Workload::AgingUpdate, num / 5).label(format!("aging-{round}-update")).summed_up(),
        ]);
    }
    steps.push(Step::new(Workload::AgingRead, end, reads).label("aging-5-read"));
    steps
}

impl RequestedSettings {
    /// Memtable size, cache size, threads and filters requested of all engines by default.
    pub fn new(group: &Group) -> RequestedSettings {
        RequestedSettings {
            memtable_bytes: group.memtable_bytes.unwrap_or(64 << 20),
            cache_bytes: 256 << 20,
            background_threads: 2,
            filter_bits_per_key: 10,
            data_bytes_max: group.data_bytes_max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct() {
        for scale in Scale::ALL {
            let groups = groups(scale, &Adjust::default());
            assert_eq!(groups.iter().map(|group| &group.name).collect::<BTreeSet<_>>().len(), groups.len());
            for group in &groups {
                let names: BTreeSet<_> = group.steps.iter().map(Step::name).collect();
                assert_eq!(names.len(), group.steps.len(), "{}", group.name);
                assert!(group.steps[0].workload.is_fill(), "{} starts with an empty database", group.name);
                assert!(group.key_size >= group.shape.size_min(group.num));
            }
            assert_eq!(scale.to_string().parse(), Ok(scale));
        }
    }

    #[test]
    fn room_for_all_data() {
        let all = groups(Scale::Full, &Adjust::default());
        let of = |name: &str| all.iter().find(|group| group.name == name).unwrap().data_bytes_max();
        assert!(of("dbbench-128") >= 22_500_000 * 144);
        assert!(of("dbbench-128-4x") >= 60_000_000 * 144);
        assert!(of("ycsb") >= 5_000_000 * 1048 && of("ycsb") < 7_000_000 * 1048);
        assert!(of("aging") >= 10_000_000 * 280);
        assert!(of("history-zipf") >= 1_200_000 * 1024);
    }

    #[test]
    fn a_group_survives_json() {
        for group in groups(Scale::Quick, &Adjust { factor: Some(0.1), ..Adjust::default() }) {
            let text = serde_json::to_string(&group).unwrap();
            assert_eq!(serde_json::from_str::<Group>(&text).unwrap(), group);
        }
    }
}
