//! The workloads and their operations.
//!
//! - LevelDB's `db_bench`, by its names, with one difference: the threads share the operations instead of each
//!   doing all of them, and in a workload in key order each thread has its own part of the keys.
//! - YCSB's load and its core workloads A to F (Cooper et al., SoCC 2010).
//! - A history of versions, after section 6 of the Mneme thesis: puts at a fixed rate, and beside them queries for
//!   the versions of one key in a range of time.
//! - The workload of the report on log and sstable databases, section 4: each key is read, written or deleted ten
//!   times.
//! - Aging: rounds of inserts, deletes and updates.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Look up a key.
    Read,
    /// Look up a key that was never written.
    ReadMissing,
    /// Store a value under a key that may exist.
    Update,
    /// Store a value under a new key.
    Insert,
    /// Position a new cursor at a key and read 1 to 100 entries.
    Scan,
    /// Position a new cursor at a key and read a fixed number of entries.
    Seek,
    /// Seek to a key, and read a fixed number of entries as they were at an earlier time.
    SeekAsOf,
    /// Look up a key, then store a value under it.
    Modify,
    /// Delete a key.
    Delete,
    /// Look up two keys, then store a value under both, in one transaction.
    Transfer,
}

impl Kind {
    /// Whether it reads, alone or before a write.
    pub fn reads(self) -> bool {
        !matches!(self, Kind::Update | Kind::Insert | Kind::Delete)
    }

    /// All kinds.
    pub const ALL: [Kind; 10] = [
        Kind::Read,
        Kind::ReadMissing,
        Kind::Update,
        Kind::Insert,
        Kind::Scan,
        Kind::Seek,
        Kind::SeekAsOf,
        Kind::Modify,
        Kind::Delete,
        Kind::Transfer,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::ReadMissing => "missing",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::Seek => "seek",
            Kind::SeekAsOf => "seek as of a time",
            Kind::Modify => "modify",
            Kind::Delete => "delete",
            Kind::Transfer => "transfer",
        }
    }
}

/// How the keys of operations are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// In order.
    Sequential,
    /// Uniformly, with replacement.
    Uniform,
    /// A few much more often than the others: YCSB's zipfian distribution.
    Zipfian,
    /// The newest more often than the others: YCSB's latest distribution.
    Latest,
    /// Each once, in random order.
    Permuted,
    /// Each equally often, in random order.
    Shuffled,
}

/// The operations of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// Operations of these kinds, each with its percentage.
    Mix(&'static [(Kind, u64)], Keys),
    /// Steps of one cursor per thread.
    Walk {
        /// Whether in descending order of keys.
        back: bool,
    },
    /// Puts of versions at a fixed rate, and beside them queries at a fixed rate. Only the queries are measured.
    History {
        /// How the keys are chosen.
        keys: HistoryKeys,
    },
}

/// How the keys of a history are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HistoryKeys {
    /// By a Zipf distribution ([`Rates::exponent`]; section 6.4.1).
    Zipf,
    /// Some of the puts create a key ([`Rates::new_percent`]), the others use any existing key (sections 6.4.2 and 6.5).
    Uniform,
}

/// The schedule of a history, and the parameters of its choice of keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Puts per second.
    pub puts: f64,
    /// Queries per second.
    pub queries: f64,
    /// Percentage of the puts that create a key, with a uniform choice.
    pub new_percent: u64,
    /// Exponent of the distribution, with a zipfian choice.
    pub exponent: f64,
}

impl Rates {
    /// Half of the puts create a key; an exponent of 0.8.
    pub fn new(puts: f64, queries: f64) -> Rates {
        Rates { puts, queries, new_percent: 50, exponent: 0.8 }
    }

    /// The number of puts beside this number of queries.
    pub fn puts_beside(&self, queries: u64) -> u64 {
        (queries as f64 / self.queries * self.puts) as u64
    }
}

macro_rules! workloads {
    ($($workload:ident, $name:literal, $about:literal, $work:expr;)+) => {
        /// A workload.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum Workload {
            $(#[doc = $about] $workload,)+
        }

        impl Workload {
            /// All workloads.
            pub const ALL: &[Workload] = &[$(Workload::$workload),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Workload::$workload => $name),+ }
            }

            /// Its description, in a line.
            pub fn about(self) -> &'static str {
                match self { $(Workload::$workload => $about),+ }
            }

            /// Its operations.
            pub fn work(self) -> Work {
                use {Keys::*, Kind::*, Work::*};
                match self { $(Workload::$workload => $work),+ }
            }
        }
    };
}

workloads! {
    FillSeq, "fillseq", "Puts all keys in order, into an empty database", Mix(&[(Update, 100)], Sequential);
    FillRandom, "fillrandom", "Puts every key once, in a random order, into an empty database",
        Mix(&[(Update, 100)], Permuted);
    FillSync, "fillsync", "Puts a thousandth of the keys, in a random order, into an empty database, each put synced",
        Mix(&[(Update, 100)], Permuted);
    Overwrite, "overwrite", "Puts random keys", Mix(&[(Update, 100)], Uniform);
    UpdateZipfian, "update-zipfian", "Puts keys, a few much more often than the others", Mix(&[(Update, 100)], Zipfian);
    ReadRandom, "readrandom", "Gets random keys", Mix(&[(Read, 100)], Uniform);
    ReadMissing, "readmissing", "Gets random missing keys that lie between keys that may exist",
        Mix(&[(ReadMissing, 100)], Uniform);
    ReadSeq, "readseq", "Reads all entries in order", Walk { back: false };
    ReadReverse, "readreverse", "Reads all entries in reverse order", Walk { back: true };
    SeekRandom, "seekrandom", "Opens a cursor, seeks to a random key, and reads a fixed number of entries",
        Mix(&[(Seek, 100)], Uniform);
    SeekAsOf, "seekasof", "Seeks to a random key, and reads a fixed number of entries as they were when half of the versions existed",
        Mix(&[(SeekAsOf, 100)], Uniform);
    DeleteSeq, "deleteseq", "Deletes all keys in order", Mix(&[(Delete, 100)], Sequential);
    DeleteAll, "deleteall", "Deletes every key once, in a random order", Mix(&[(Delete, 100)], Permuted);
    DeleteRandom, "deleterandom", "Deletes random keys", Mix(&[(Delete, 100)], Uniform);
    ReadWhileWriting, "readwhilewriting", "Gets random keys while other threads put random keys as fast as they can",
        Mix(&[(Read, 100)], Uniform);
    YcsbLoad, "ycsb-load", "YCSB: inserts all records, in a pseudo-random order",
        Mix(&[(Update, 100)], Sequential);
    YcsbA, "ycsb-a", "YCSB A: half reads, half updates, zipfian", Mix(&[(Read, 50), (Update, 50)], Zipfian);
    YcsbB, "ycsb-b", "YCSB B: 95 % reads, 5 % updates, zipfian", Mix(&[(Read, 95), (Update, 5)], Zipfian);
    YcsbC, "ycsb-c", "YCSB C: reads, zipfian", Mix(&[(Read, 100)], Zipfian);
    YcsbD, "ycsb-d", "YCSB D: 95 % reads of the latest records, 5 % inserts", Mix(&[(Read, 95), (Insert, 5)], Latest);
    YcsbE, "ycsb-e", "YCSB E: 95 % scans of 1 to 100 records, 5 % inserts, zipfian",
        Mix(&[(Scan, 95), (Insert, 5)], Zipfian);
    YcsbF, "ycsb-f", "YCSB F: half reads, half read-modify-writes, zipfian",
        Mix(&[(Read, 50), (Modify, 50)], Zipfian);
    HistoryZipf, "history-zipf", "Versions put at a fixed rate with a zipfian choice of keys, with concurrent queries by time",
        History { keys: HistoryKeys::Zipf };
    HistoryUniform, "history-uniform", "Versions put at a fixed rate, half of them of new keys, with concurrent queries by time",
        History { keys: HistoryKeys::Uniform };
    TenEach, "ten-each", "Reads, writes or deletes each key ten times, in random order",
        Mix(&[(Read, 34), (Update, 33), (Delete, 33)], Shuffled);
    Transfer, "transfer", "Transactions that read two random keys and put both, repeated after conflicts", Mix(&[(Transfer, 100)], Uniform);
    AgingInsert, "aging-insert", "Inserts new keys, in a pseudo-random order", Mix(&[(Update, 100)], Sequential);
    AgingDelete, "aging-delete", "Deletes random keys", Mix(&[(Delete, 100)], Uniform);
    AgingUpdate, "aging-update", "Puts random keys, existing and deleted ones", Mix(&[(Update, 100)], Uniform);
    AgingRead, "aging-read", "Gets random keys, some of which are deleted", Mix(&[(Read, 100)], Uniform);
}

impl Workload {
    /// Whether it starts with an empty database.
    pub fn is_fill(self) -> bool {
        use Workload::*;
        matches!(self, FillSeq | FillRandom | FillSync | YcsbLoad | HistoryZipf | HistoryUniform | TenEach)
    }

    /// Whether every write is synced.
    pub fn syncs(self) -> bool {
        self == Workload::FillSync
    }

    /// Number of operations of all threads, for the requested numbers of keys and reads.
    pub fn ops(self, num: u64, reads: u64) -> u64 {
        let writes = |kind: Kind| matches!(kind, Kind::Update | Kind::Delete | Kind::Insert);
        match (self, self.work()) {
            (Workload::FillSync, _) => (num / 1000).max(1),
            (Workload::TenEach, _) => num * 10,
            (_, Work::Mix(&[(kind, _)], _)) if writes(kind) => num,
            _ => reads,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Workload, String> {
        Workload::ALL
            .iter()
            .copied()
            .find(|workload| workload.name() == name)
            .ok_or_else(|| format!("there is no workload {name:?}"))
    }
}

impl TryFrom<String> for Workload {
    type Error = String;

    fn try_from(name: String) -> Result<Workload, String> {
        name.parse()
    }
}

impl From<Workload> for String {
    fn from(workload: Workload) -> String {
        workload.name().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_lead_back() {
        let names: BTreeSet<_> = Workload::ALL.iter().map(|workload| workload.name()).collect();
        assert_eq!(names.len(), Workload::ALL.len());
        for &workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        assert!("fill".parse::<Workload>().is_err());
    }

    #[test]
    fn shares_add_up() {
        for workload in Workload::ALL {
            if let Work::Mix(kinds, _) = workload.work() {
                assert_eq!(kinds.iter().map(|kind| kind.1).sum::<u64>(), 100, "{workload}");
            }
        }
    }
}
