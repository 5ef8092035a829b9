//! The experiments of the papers behind Cairn: what each measured and found, and the workloads that repeat it at the scale of this machine.

use crate::workload::{Kind, Work, Workload};
use Figure::{
    CpuPerOp, FileMean, FileMedian, FileP90, FileP95, IoAmp, Mean, Memory, P95, P99, Puts, Seconds, Space,
    Throughput, WriteAmp,
};

/// A paper, and the engines that its experiments are run on.
pub struct Paper {
    /// Its name, for a heading.
    pub name: &'static str,
    /// The name of its picture.
    pub file: &'static str,
    /// Authors, title and year.
    pub source: &'static str,
    /// The machine of the paper, and what its figures are.
    pub about: &'static str,
    /// The engines of experiments that name none.
    pub engines: &'static [&'static str],
    /// The experiments.
    pub experiments: &'static [Experiment],
    /// The workloads of its picture.
    pub picture: &'static [Measure],
}

/// An experiment.
pub struct Experiment {
    /// Table, figure or section.
    pub place: &'static str,
    /// What was measured.
    pub what: &'static str,
    /// What the paper found.
    pub theirs: &'static str,
    /// The workloads that repeat it; none if it is not repeated.
    pub ours: &'static [Measure],
    /// The engines, if not those of the paper.
    pub engines: &'static [&'static str],
    /// What differs, or why it is not repeated.
    pub note: &'static str,
}

/// A figure of a workload: group, workload, figure.
pub type Measure = (&'static str, &'static str, Figure);

/// What is shown of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Figure {
    Throughput,
    /// Duration of the workload.
    Seconds,
    WriteAmp,
    IoAmp,
    CpuPerOp,
    Memory,
    Space,
    Mean,
    P95,
    P99,
    /// Puts a second beside queries or gets.
    Puts,
    /// Lengths of the files that hold the entries.
    FileMean,
    FileMedian,
    FileP90,
    FileP95,
}

impl Figure {
    /// Whether one engine may be the best by it.
    pub fn is_ranked(self) -> bool {
        !matches!(self, FileMean | FileMedian | FileP90 | FileP95)
    }
}

impl Paper {
    /// The figures of its experiments, with the engines that each is shown of.
    fn figures(&self) -> impl Iterator<Item = (&'static Measure, &'static [&'static str])> {
        let engines = self.engines;
        let of = move |experiment: &'static Experiment| {
            let engines = if experiment.engines.is_empty() { engines } else { experiment.engines };
            experiment.ours.iter().map(move |measure| (measure, engines))
        };
        self.experiments.iter().flat_map(of)
    }

    /// Whether an experiment has a figure of this group.
    pub fn needs(&self, group: &str) -> bool {
        self.figures().any(|(measure, _)| measure.0 == group)
    }

    /// Whether an experiment runs on this engine.
    pub fn compares(&self, engine: &str) -> bool {
        self.figures().any(|(_, engines)| engines.contains(&engine))
    }

    /// Whether an experiment has a figure of this group on this engine.
    pub fn has(&self, group: &str, engine: &str) -> bool {
        self.figures().any(|(measure, engines)| measure.0 == group && engines.contains(&engine))
    }

    /// Whether its experiments need a workload of a group: all that write, and of those that only read the ones with a figure.
    pub fn needs_workload(&self, group: &str, name: &str, workload: Workload) -> bool {
        let only_reads = match workload.work() {
            Work::Mix(kinds, _) => {
                kinds.iter().all(|(kind, _)| kind.reads() && !matches!(kind, Kind::Modify | Kind::Transfer))
            }
            Work::Walk { .. } => true,
            Work::History { .. } => false,
        };
        !only_reads || self.figures().any(|(measure, _)| (measure.0, measure.1) == (group, name))
    }
}

/// The papers that a name of groups means: `papers` all of them, `papers-report` and the like one; none if it is another name.
pub fn named(name: &str) -> &'static [Paper] {
    match name.strip_prefix("papers") {
        Some("") => &PAPERS,
        Some(rest) => {
            let one = PAPERS.iter().position(|paper| rest.strip_prefix('-') == Some(paper.file));
            one.map_or(&[], |at| &PAPERS[at..=at])
        }
        None => &[],
    }
}

/// The names of groups that mean papers.
pub fn names() -> impl Iterator<Item = String> {
    let of_papers = PAPERS.iter().map(|paper| format!("papers-{}", paper.file));
    std::iter::once("papers".to_string()).chain(of_papers)
}

/// An experiment on the engines of its paper.
const fn experiment(
    place: &'static str,
    what: &'static str,
    theirs: &'static str,
    ours: &'static [Measure],
    note: &'static str,
) -> Experiment {
    Experiment { place, what, theirs, ours, engines: &[], note }
}

/// The same on some of them.
const fn on(engines: &'static [&'static str], experiment: Experiment) -> Experiment {
    Experiment { engines, ..experiment }
}

/// The papers.
pub static PAPERS: [Paper; 4] = [
    Paper {
        name: "PebblesDB",
        file: "pebblesdb",
        source: "Raju and others, *PebblesDB: building key-value stores using fragmented log-structured merge trees*, SOSP 2017, and Raju's thesis of the \
                 same name, University of Texas at Austin 2018, which repeats its chapter 5",
        about: "4 processors, 16 GB, two SSDs as RAID 0; data three times as large as memory. HyperLevelDB, to which most ratios of the paper refer, is not \
                maintained and not among the peers here. `cairn-pebblesdb` has the paper's tree and parameters, except that reads start compactions by their \
                cost, not after ten seeks in a row; `cairn-leveled` is a leveled tree, with one table in a guard, adaptive guards and a growth factor of ten. \
                Memtables have one size for all engines here; the paper has 4 MB and 64 MB.",
        engines: &["cairn", "cairn-pebblesdb", "cairn-leveled", "rocksdb", "leveldb"],
        experiments: PEBBLESDB,
        picture: &[
            ("dbbench-128", "fillrandom", WriteAmp),
            ("dbbench-1024", "fillrandom", Throughput),
            ("dbbench-1024", "readrandom", Throughput),
            ("dbbench-1024", "seekrandom", Throughput),
            ("pebblesdb-updates", "update-2", Throughput),
            ("ycsb", "ycsb-a", Throughput),
        ],
    },
    Paper {
        name: "Parallax",
        file: "parallax",
        source: "Xanthakis, *Balancing garbage collection vs I/O amplification using hybrid key-value placement in LSM-based key-value stores*, thesis, \
                 University of Crete 2021",
        about: "24 hardware threads, 256 GB, an Optane disk of 375 GB; 8 databases and 16 threads in a run, filters off. Nearly all figures of the text are the largest \
                ratios over several workloads. `cairn-parallax` has the thesis' tree with large values in the log, `cairn-hybrid-medium` Cairn's tree with \
                medium and large ones there. `rocksdb-blob` stands for BlobDB, which has all values in logs; here those of at least 512 bytes, so its rows of \
                the mixes S and M are those of a tree with its values in place. Filters have 10 bits a key here.",
        engines: &[
            "cairn",
            "cairn-hybrid",
            "cairn-hybrid-medium",
            "cairn-parallax",
            "rocksdb",
            "rocksdb-blob",
        ],
        experiments: PARALLAX,
        picture: &[
            ("parallax-sd", "load-a", IoAmp),
            ("parallax-md", "load-a", IoAmp),
            ("parallax-l", "load-a", IoAmp),
            ("parallax-sd", "run-a", Throughput),
            ("parallax-md", "run-a", Throughput),
            ("parallax-md", "run-e", Throughput),
        ],
    },
    Paper {
        name: "Mneme",
        file: "mneme",
        source: "Theodorakis, *Efficient storage management of multi-version structured data*, thesis, University of Ioannina 2015",
        about: "8 processors, 4 GB, two disks of 7,200 rpm with a mean seek of 12.9 ms. Values of 1 KB, 10 GB in most experiments, about 10 million puts, 2,500 puts and \
                20 queries a second; here 10,000 and 200 where nothing else is said. A query there asks for the versions in three seconds, about 10 (uniform) or 78 \
                (zipfian); here for those in a third of the time so far, at most 200. `range-merge` is a prototype of RangeMerge, on which the thesis builds, and keeps no versions by itself: as in LevelDB \
                and RocksDB, the time is a part of the key.",
        engines: &["cairn-history", "rocksdb", "leveldb", "range-merge"],
        experiments: MNEME,
        picture: &[
            ("history-uniform", "history-uniform", Mean),
            ("history-uniform", "history-uniform", P99),
            ("history-zipf", "history-zipf", Mean),
            ("history-zipf", "history-zipf", P99),
            ("history-full-speed", "history-uniform", Puts),
            ("history-full-speed", "history-uniform", WriteAmp),
        ],
    },
    Paper {
        name: "Log and sstable databases",
        file: "report",
        source: "Pristupin, *High performance key-value stores*, report, 2023",
        about: "8 cores with 16 hardware threads, 16 GB, a laptop; 20,000 pairs and ten operations on each. Sizes of keys and values are not stated: 24 and 100 bytes here.",
        engines: &[
            "cairn",
            "cairn-hash-log",
            "cairn-sstable",
            "cairn-sstable-no-filter",
            "memory-bst",
            "memory-red-black",
            "memory-btree",
            "rocksdb",
            "leveldb",
        ],
        experiments: REPORT,
        picture: &[
            ("sstable-files", "ten-each", Throughput),
            ("report", "ten-each", Throughput),
            ("sstable-memory", "get-memtable", Throughput),
            ("sstable-memory", "get-file", Throughput),
        ],
    },
];

/// PebblesDB, SOSP 2017 and thesis.
const PEBBLESDB: &[Experiment] = &[
    experiment(
        "Figures 1 and 4(a)",
        "Write amplification: random puts and updates, 16 + 128 bytes, up to 500 M keys (figure 1: 45 GB)",
        "At 500 M keys PebblesDB writes 2.5 times less than RocksDB and HyperLevelDB, and 1.6 times less than LevelDB",
        &[
            ("growth-eighth", "fillrandom", WriteAmp),
            ("growth-half", "fillrandom", WriteAmp),
            ("dbbench-128", "fillrandom", WriteAmp),
            ("dbbench-128-4x", "fillrandom", WriteAmp),
            ("dbbench-128", "overwrite", WriteAmp),
        ],
        "An eighth, a half, 1 and 2.7 times the number of keys of `dbbench-128`.",
    ),
    experiment(
        "Section 2.2",
        "Write amplification of KyotoCabinet, a B+-tree, 100 M pairs",
        "829 GB written, 61 times the data",
        &[],
        "KyotoCabinet is not maintained. The B-trees redb and LMDB are in the main comparison.",
    ),
    experiment(
        "Table 1",
        "Sizes of tables after 50 M puts of 33 GB, in MB: mean, median, 90th and 95th percentile",
        "PebblesDB 17.23, 5.29, 51.06, 68.31; HyperLevelDB 13.33, 16.59, 16.60, 16.60",
        &[
            ("dbbench-1024", "fillrandom", FileMean),
            ("dbbench-1024", "fillrandom", FileMedian),
            ("dbbench-1024", "fillrandom", FileP90),
            ("dbbench-1024", "fillrandom", FileP95),
        ],
        "16 + 1,024 bytes. Of the files with the extension that has most bytes.",
    ),
    experiment(
        "Figure 4(b)",
        "One thread, 16 + 1,024 bytes: 50 M sequential puts, 50 M random puts, 10 M gets, 10 M seeks",
        "PebblesDB against HyperLevelDB: random puts 2.7 times as many; gets better, and similar with larger caches for index blocks; seeks after \
         compactions, its worst case, 30 % fewer; sequential puts a third",
        &[
            ("sequential-1024", "fillseq", Throughput),
            ("dbbench-1024", "fillrandom", Throughput),
            ("dbbench-1024", "readrandom", Throughput),
            ("dbbench-1024", "seekrandom", Throughput),
        ],
        "",
    ),
    experiment(
        "Section 5.2, range queries",
        "Seeks with 50 entries right after puts",
        "PebblesDB 15 % slower than HyperLevelDB, 11 % with 1,000 entries",
        &[("pebblesdb-scans", "scan-50", Throughput), ("pebblesdb-scans", "scan-1000", Throughput)],
        "The scans do not wait for the compactions of the puts, of which some engines have more than others.",
    ),
    experiment(
        "Figure 4(b), deletes",
        "Deletes of 200 M pairs of 16 + 128 bytes",
        "PebblesDB is faster than the others",
        &[("pebblesdb-deletes", "deleteall", Throughput), ("sequential-1024", "deleteseq", Throughput)],
        "Puts and deletes in random orders, and both in the order of keys, with values of 1,024 bytes; the paper does not state its order.",
    ),
    experiment(
        "Table 2",
        "Puts of 50 M keys with values of 1,024 bytes, then two rounds of updates, in thousands a second",
        "PebblesDB 56.18, 47.85, 42.55; HyperLevelDB 40.00, 24.55, 19.76; LevelDB 22.42, 12.29, 11.99; RocksDB 14.12, 7.60, 7.36",
        &[
            ("pebblesdb-updates", "insert", Throughput),
            ("pebblesdb-updates", "update-1", Throughput),
            ("pebblesdb-updates", "update-2", Throughput),
        ],
        "",
    ),
    experiment(
        "Section 5.2, space; thesis, figure 5.3",
        "Space of 50 M unique pairs, and of 5 M keys with ten updates each",
        "Unique: RocksDB, LevelDB and PebblesDB within 2 % (52 GB). Updates: PebblesDB 7.9, RocksDB 7.1, LevelDB 7.8 GB",
        &[("dbbench-1024", "fillrandom", Space), ("pebblesdb-space", "ten-updates", Space)],
        "",
    ),
    experiment(
        "Figure 4(c)",
        "Four threads: puts, gets, and two that put beside two that get",
        "PebblesDB puts 3.3 times as fast as RocksDB and 1.7 times as fast as HyperLevelDB; it is also the fastest in gets, and in gets and puts together",
        &[
            ("pebblesdb-threads", "fillrandom", Throughput),
            ("pebblesdb-threads", "readrandom", Throughput),
            ("pebblesdb-threads", "readwhilewriting", Throughput),
            ("pebblesdb-threads", "readwhilewriting", Puts),
        ],
        "Four threads share two processors here. The paper has the sum of gets and puts.",
    ),
    on(
        &["cairn", "cairn-pebblesdb", "cairn-pebblesdb-1", "cairn-leveled", "rocksdb", "leveldb"],
        experiment(
            "Figure 4(d)",
            "1 M pairs of 16 + 1,024 bytes, which stay in memory",
            "Against HyperLevelDB: puts better, gets 7 % and seeks 47 % slower; with one table in a guard (PebblesDB-1) gets 11 % faster, seeks 13 % slower",
            &[
                ("pebblesdb-cached", "fillrandom", Throughput),
                ("pebblesdb-cached", "readrandom", Throughput),
                ("pebblesdb-cached", "seekrandom", Throughput),
            ],
            "`cairn-pebblesdb-1` has one table in a guard, and is `cairn-pebblesdb` otherwise.",
        ),
    ),
    experiment(
        "Figure 4(e)",
        "300 M small pairs, 16 + 128 bytes",
        "More puts than the others, about as many gets and seeks",
        &[
            ("dbbench-128", "fillrandom", Throughput),
            ("dbbench-128", "readrandom", Throughput),
            ("dbbench-128", "seekrandom", Throughput),
        ],
        "",
    ),
    experiment(
        "Figure 4(f)",
        "An aged store on an aged file system",
        "Against HyperLevelDB: puts 2 times (fresh: 2.7), gets 8 % faster (fresh: 20 %), range queries 40 % slower (fresh: 30 %)",
        &[
            ("aging", "aging-1-update", Throughput),
            ("aging", "aging-5-update", Throughput),
            ("aging", "aging-5-read", Throughput),
            ("aging", "aging-5-seek", Throughput),
        ],
        "Five rounds of inserts, deletes and updates age the store; in the paper four threads each insert 50 M pairs, delete 20 M and update 20 M. The file \
         system is not aged: that fills a disk twice.",
    ),
    experiment(
        "Figure 4(g)",
        "Memory of 6 % of the data, 100 M pairs of 16 + 1,024 bytes",
        "Against HyperLevelDB: puts 64 % and gets 63 % faster, range queries 40 % slower",
        &[
            ("dbbench-128-4x", "fillrandom", Throughput),
            ("dbbench-128-4x", "readrandom", Throughput),
            ("dbbench-128-4x", "seekrandom", Throughput),
        ],
        "Pairs of 16 + 128 bytes, and memory of 25 % of the data here: with less, the processes of some peers do not fit.",
    ),
    experiment(
        "Section 5.2, empty guards; thesis, figure 5.4",
        "Windows of ascending keys (values of 512 bytes) are put, read and deleted, 20 times",
        "Gets stay between 70 and 90 thousand a second, with 9,000 empty guards before the last window",
        &[
            ("pebblesdb-series", "read-1", Throughput),
            ("pebblesdb-series", "read-10", Throughput),
            ("pebblesdb-series", "read-20", Throughput),
        ],
        "Values of 1,024 bytes, windows of an eighth of the keys of `dbbench-1024`; three of the windows are read.",
    ),
    on(
        &["cairn-pebblesdb", "cairn-pebblesdb-no-seek-cost", "cairn-pebblesdb-no-filter"],
        experiment(
            "Section 5.2, optimizations",
            "Seeks without parallel seeks and seek-based compaction; gets without filters",
            "Range queries lose 66 % without both, 48 % with parallel seeks only, 7 % with seek-based compaction only; filters make gets 63 % faster",
            &[
                ("pebblesdb-scans", "scan-50", Throughput),
                ("pebblesdb-scans", "scan-50-again", Throughput),
                ("pebblesdb-scans", "readrandom", Throughput),
            ],
            "The first scans run beside the compactions of the puts, the others after them. Reads in flight cannot be turned off; ADR 14 has what they bring.",
        ),
    ),
    experiment(
        "Figure 5, table 3",
        "YCSB, four threads",
        "PebblesDB writes half as much as RocksDB; loads 1.5 to 2 times as fast; C faster, and similar with larger caches for index blocks; B, D and F \
         alike; E 6 % slower (with range queries only 18 % slower than HyperLevelDB)",
        &[
            ("ycsb", "ycsb-load", Throughput),
            ("ycsb", "ycsb-load", WriteAmp),
            ("ycsb", "ycsb-a", Throughput),
            ("ycsb", "ycsb-b", Throughput),
            ("ycsb", "ycsb-c", Throughput),
            ("ycsb", "ycsb-d", Throughput),
            ("ycsb", "ycsb-e", Throughput),
            ("ycsb", "ycsb-f", Throughput),
        ],
        "E runs on the database of the others; in the paper it has a load of its own.",
    ),
    experiment(
        "Figure 6; thesis, section 5.4",
        "YCSB on HyperDex and MongoDB with PebblesDB as their engine; HyperDex without reads before writes",
        "HyperDex up to 59 % faster, 105 % in the mean with values of 16 KB (thesis: for puts 7 % with 8 KB and 24 % with 16 KB, without reads before \
         writes 38 and 110 %); MongoDB as fast as with RocksDB with 40 % less I/O",
        &[],
        "Needs Cairn as an engine of both servers, which are written in C++ and take most of the time themselves: 85 % and 72 % of a write in the paper.",
    ),
    experiment(
        "Table 4",
        "Memory in MB during 100 M puts, and during 10 M gets and seeks",
        "Puts: HyperLevelDB 159, RocksDB 896, PebblesDB 434; gets: 154, 36, 500; seeks: 111, 34, 430",
        &[
            ("dbbench-1024", "fillrandom", Memory),
            ("dbbench-1024", "readrandom", Memory),
            ("dbbench-1024", "seekrandom", Memory),
        ],
        "Peak of the process up to the end of the workload. Caches have a fixed size for all engines here.",
    ),
    experiment(
        "Section 5.5, processors",
        "Processor use of 30 M puts and 10 M gets",
        "PebblesDB 171 %, the others 98 to 110 %",
        &[("dbbench-1024", "fillrandom", CpuPerOp), ("dbbench-1024", "readrandom", CpuPerOp)],
        "Processor time for an operation, which does not count waiting.",
    ),
    experiment(
        "Section 5.5, filters",
        "Construction of filters at the first access of a table",
        "1.2 s a GB, 62 s for 52 GB",
        &[],
        "Filters are written with the tables, and are a part of the time of puts here.",
    ),
];

/// The Parallax thesis.
const PARALLAX: &[Experiment] = &[
    experiment(
        "Figure 1.1",
        "I/O amplification of puts of 33-byte pairs",
        "RocksDB, in place, 17.4; BlobDB, all values in logs, 27.4, and less than a thirteenth of that without garbage collection",
        &[("parallax-s", "load-a", IoAmp)],
        "No engine here moves values of 9 bytes to a log, so what the figure warns of does not occur: the row is what the pairs cost in place.",
    ),
    experiment(
        "Figures 2.1(a) and (b)",
        "Models of what separation saves, and of the space of transient logs",
        "Up to 3 times for small values, 3 to 6 for medium, 6 to 12 for large ones; 10 to 25 % of the space, or at most 6 % if values are merged a level earlier",
        &[],
        "Calculated, not measured. `cairn-bench run --groups parallax` draws the predicted write amplification beside the measured one.",
    ),
    experiment(
        "Figure 5.1",
        "YCSB with mixes in which small (SD) and medium values (MD) dominate",
        "Against RocksDB and BlobDB, at most: throughput 5.6 and 61 times (in another place 17.83), I/O amplification 6.5 and 26 times less, processor time 8.6 \
         and 28 times less (runs B to D)",
        &[
            ("parallax-sd", "load-a", Throughput),
            ("parallax-sd", "run-a", Throughput),
            ("parallax-sd", "run-b", Throughput),
            ("parallax-sd", "run-c", Throughput),
            ("parallax-sd", "run-d", Throughput),
            ("parallax-sd", "load-a", IoAmp),
            ("parallax-sd", "run-a", IoAmp),
            ("parallax-sd", "run-b", IoAmp),
            ("parallax-sd", "run-c", IoAmp),
            ("parallax-sd", "run-d", IoAmp),
            ("parallax-md", "load-a", Throughput),
            ("parallax-md", "run-a", Throughput),
            ("parallax-md", "run-b", Throughput),
            ("parallax-md", "run-c", Throughput),
            ("parallax-md", "run-d", Throughput),
            ("parallax-md", "load-a", IoAmp),
            ("parallax-md", "run-a", IoAmp),
            ("parallax-md", "run-b", IoAmp),
            ("parallax-md", "run-c", IoAmp),
            ("parallax-md", "run-d", IoAmp),
            ("parallax-sd", "run-c", CpuPerOp),
            ("parallax-md", "run-c", CpuPerOp),
        ],
        "",
    ),
    experiment(
        "Chapter 5, run E",
        "Scans",
        "RocksDB 1.43 (SD) and 1.48 times (MD) as fast as Parallax; BlobDB 6.2 and 7.6 thousand a second, about an eighth of Parallax",
        &[("parallax-sd", "run-e", Throughput), ("parallax-md", "run-e", Throughput)],
        "",
    ),
    experiment(
        "Figure 5.2, above",
        "Load A of six mixes",
        "At most 3.57 times RocksDB's and 4.15 times BlobDB's throughput (S: twice RocksDB's); I/O amplification 4.38 times less than RocksDB, but for S 1.25 times \
         more, and up to 1.95 times more than BlobDB (L: 2.1 against 1.2); 3.92 times less processor time",
        &[
            ("parallax-s", "load-a", Throughput),
            ("parallax-m", "load-a", Throughput),
            ("parallax-l", "load-a", Throughput),
            ("parallax-ld", "load-a", Throughput),
            ("parallax-s", "load-a", IoAmp),
            ("parallax-m", "load-a", IoAmp),
            ("parallax-l", "load-a", IoAmp),
            ("parallax-ld", "load-a", IoAmp),
            ("parallax-md", "load-a", CpuPerOp),
        ],
        "SD and MD are above.",
    ),
    experiment(
        "Figure 5.2, below",
        "Run A (half updates, half gets) of six mixes",
        "At most 12.24 times RocksDB's and 10.75 times BlobDB's throughput; I/O amplification 27.1 and 9.38 times less; processor time 18.7 and 16 times less. In one \
         case, which is not named, 1.3 times less throughput and 2.4 times more amplification",
        &[
            ("parallax-s", "run-a", Throughput),
            ("parallax-m", "run-a", Throughput),
            ("parallax-l", "run-a", Throughput),
            ("parallax-ld", "run-a", Throughput),
            ("parallax-s", "run-a", IoAmp),
            ("parallax-m", "run-a", IoAmp),
            ("parallax-l", "run-a", IoAmp),
            ("parallax-ld", "run-a", IoAmp),
        ],
        "",
    ),
    on(
        &["cairn-hybrid", "cairn-hybrid-medium"],
        experiment(
            "Figure 5.3",
            "Medium values in place (MS) or in the log (ML), run A",
            "A class of its own: up to 1.23 and 1.11 times their throughput, I/O amplification up to 2.43 and 2 times, processor time 1.32 and 1.41 times less",
            &[
                ("parallax-md", "run-a", Throughput),
                ("parallax-ld", "run-a", Throughput),
                ("parallax-md", "run-a", IoAmp),
                ("parallax-ld", "run-a", IoAmp),
            ],
            "`cairn-hybrid` is MS, `cairn-hybrid-medium` ML. Cairn has no class of its own for medium values (ADR 23).",
        ),
    ),
    experiment(
        "Figure 5.4",
        "Transient logs: merged at the last level or at the one before, sorted or not; load A, mix M",
        "At the last level 1,579 thousand puts a second at an I/O amplification of 6.8, one earlier 1,339 thousand and 9.6; at the last, not sorted, 600 thousand and 25.8",
        &[],
        "Cairn has no transient logs: of what it writes without them they could save 2 % in a fill and 7 % with overwrites, less what they add (ADR 23 has the figures).",
    ),
];

/// The Mneme thesis.
const MNEME: &[Experiment] = &[
    experiment(
        "Figures 6.1 and 6.2",
        "Latency of queries for the versions of a key in a range of time, beside puts",
        "Mneme: mean below 80 ms, 95th and 99th percentile slightly over 100 ms, steady; LevelDB: mean about 100 ms, with delays of a second and more",
        &[
            ("history-uniform", "history-uniform", Mean),
            ("history-uniform", "history-uniform", P95),
            ("history-uniform", "history-uniform", P99),
        ],
        "Mneme answers more than 15 of 20 queries a second in time, LevelDB 10 to 12, below 5 while compactions run; all engines answer all of them in time here, unless the \
         mean says otherwise. The thesis does not say how the keys of this experiment are distributed; here half of the puts are of new keys, uniformly.",
    ),
    experiment(
        "Figures 6.3(a) and (c)",
        "Time of insertion, at full speed and at other rates",
        "Mneme is significantly slower than LevelDB, which is also faster than RangeMerge",
        &[
            ("history-rate-25", "history-uniform", Puts),
            ("history-rate-50", "history-uniform", Puts),
            ("history-rate-100", "history-uniform", Puts),
            ("history-rate-200", "history-uniform", Puts),
            ("history-full-speed", "history-uniform", Puts),
        ],
        "Rates in thousands of puts a second, beside 200 queries a second; the others have 10.",
    ),
    experiment(
        "Figure 6.3(b)",
        "Bytes moved by insertion",
        "Mneme 4 times LevelDB's and nearly twice RangeMerge's",
        &[("history-full-speed", "history-uniform", WriteAmp)],
        "Written bytes for each byte put.",
    ),
    experiment(
        "Figures 6.4 and 6.5",
        "Zipfian keys with exponents of 0 to 1.1",
        "Exponent 0.4: Mneme about 15 queries a second, LevelDB nearly none during large compactions. 0, 0.8 and 1.1: Mneme alike, and faster at 1.1",
        &[
            ("history-zipf-0", "history-zipf", Mean),
            ("history-zipf-0", "history-zipf", P99),
            ("history-zipf-0.4", "history-zipf", Mean),
            ("history-zipf-0.4", "history-zipf", P99),
            ("history-zipf", "history-zipf", Mean),
            ("history-zipf", "history-zipf", P95),
            ("history-zipf", "history-zipf", P99),
            ("history-zipf-1.1", "history-zipf", Mean),
            ("history-zipf-1.1", "history-zipf", P99),
        ],
        "`history-zipf` has an exponent of 0.8.",
    ),
    experiment(
        "Figure 6.6",
        "A fifth of the puts of new keys",
        "Mneme's mean is nearly an order of magnitude below LevelDB's, its 95th and 99th percentile are nearly stable",
        &[
            ("history-new-20", "history-uniform", Mean),
            ("history-new-20", "history-uniform", P95),
            ("history-new-20", "history-uniform", P99),
        ],
        "",
    ),
    experiment(
        "Figure 6.7 and table 6.1",
        "Half of the puts of new keys; keys of 16, 25, 50 and 100 bytes. Mean and 99th percentile in ms",
        "Mneme 36.67, 184.49; 36.76, 180.94; 37.18, 190.44; 38.30, 206.59, with 16.8 to 17.0 queries a second; LevelDB 132.55, 445.89; 129.87, 438.38; 150.317, 450.73; \
         135.71, 453.9, with 10.8 to 12.1. (In figure 6.7 most 99th percentiles are slightly over 100 ms, with 13 to 17 queries a second)",
        &[
            ("history-uniform", "history-uniform", Mean),
            ("history-uniform", "history-uniform", P99),
            ("history-keys-25", "history-uniform", Mean),
            ("history-keys-25", "history-uniform", P99),
            ("history-keys-50", "history-uniform", Mean),
            ("history-keys-50", "history-uniform", P99),
            ("history-long-keys", "history-uniform", Mean),
            ("history-long-keys", "history-uniform", P99),
        ],
        "",
    ),
    experiment(
        "Figure 6.8",
        "20 GB, keys of 100 bytes, a fifth and four fifths of the puts of new keys",
        "Mneme with a fifth: slightly slower than with 10 GB, more than 10 queries a second; with four fifths: a rising mean, after 150 minutes nearly constant, well below 100 ms",
        &[
            ("history-twice-20", "history-uniform", Mean),
            ("history-twice-20", "history-uniform", P99),
            ("history-twice-80", "history-uniform", Mean),
            ("history-twice-80", "history-uniform", P99),
        ],
        "Twice the history of the other experiments, which have keys of 16 bytes.",
    ),
];

/// The report.
const REPORT: &[Experiment] = &[
    on(
        &["cairn-hash-log", "cairn-sstable", "cairn", "rocksdb", "leveldb"],
        experiment(
            "Section 4.1",
            "The log database against the sstable database",
            "47.32 s and 55.52 s",
            &[("sstable-files", "ten-each", Seconds), ("sstable-files", "ten-each", Throughput)],
            "Memtables of 512 KiB, which hold as many pairs as in section 4.2.",
        ),
    ),
    on(
        &["cairn-sstable", "cairn", "cairn-hash-log", "rocksdb"],
        experiment(
            "Section 4.2",
            "Gets of 4,096 pairs from the memtable, and from a file after a flush",
            "109.2 ms and 153.3 ms: 40.5 % slower",
            &[("sstable-memory", "get-memtable", Throughput), ("sstable-memory", "get-file", Throughput)],
            "Each pair is read a hundred times. LevelDB has no call that flushes.",
        ),
    ),
    on(
        &["memory-bst", "memory-red-black", "memory-btree", "cairn-sstable"],
        experiment(
            "Section 4.3",
            "A memtable as a binary search tree and as a red-black tree",
            "55.52 s and 53.58 s",
            &[("report", "ten-each", Seconds), ("report", "ten-each", Throughput)],
            "Prototypes behind a log: the two trees, and the B-tree of the standard library. Cairn's memtable is a skip list (`cairn-sstable`).",
        ),
    ),
    on(
        &["cairn-sstable", "cairn-sstable-no-filter"],
        experiment(
            "Section 4.4",
            "The sstable database with and without filters",
            "49.34 s and 53.58 s: 7.9 % faster; filters save 48 % of the reads (section 3.2.2)",
            &[("sstable-files", "ten-each", Seconds), ("sstable-files", "ten-each", Throughput)],
            "",
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Adjust, Scale, groups};

    #[test]
    fn only_what_has_a_figure_runs() {
        let [pebblesdb, .., report] = &PAPERS;
        let needs = |name, workload| pebblesdb.needs_workload("dbbench-128", name, workload);
        assert!(needs("fillrandom", Workload::FillRandom) && needs("readrandom", Workload::ReadRandom));
        assert!(needs("overwrite", Workload::Overwrite), "what writes changes what is read later");
        assert!(!needs("readmissing", Workload::ReadMissing) && !needs("readseq", Workload::ReadSeq));
        assert!(report.has("report", "memory-bst") && !report.has("sstable-files", "memory-bst"));
        assert!(!report.needs("dbbench-128"));
        assert_eq!((named("papers").len(), named("papers-mneme").len(), named("papers-x").len()), (4, 1, 0));
        assert_eq!((named("papersmneme").len(), named("history").len()), (0, 0));
    }

    #[test]
    fn every_measure_is_a_workload_and_every_engine_has_a_use() {
        let groups = groups(Scale::Full, &Adjust::default());
        for paper in &PAPERS {
            for (group, workload, _) in paper.experiments.iter().flat_map(|e| e.ours).chain(paper.picture) {
                let group = groups.iter().find(|known| known.name == *group).expect(group);
                let step = group.steps.iter().find(|step| step.name() == *workload).expect(workload);
                assert!(paper.needs(&group.name));
                assert!(paper.needs_workload(&group.name, workload, step.workload));
            }
            for experiment in paper.experiments {
                let explained = !experiment.ours.is_empty() || !experiment.note.is_empty();
                assert!(explained, "{}: {} is not repeated without a reason", paper.name, experiment.place);
            }
            for engine in paper.engines {
                assert!(paper.compares(engine), "{engine}");
            }
        }
    }
}
