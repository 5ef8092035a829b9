//! The workloads, by the names that they have in LevelDB's `db_bench`, and what each of them does.
//!
//! One thing differs: there every thread does all operations, here the threads share them. A thread of a workload in key
//! order has a part of the keys to itself.

use super::generate::Order;
use clap::ValueEnum;

/// A workload. The names mean what they mean in LevelDB's `db_bench`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Workload {
    /// Puts all keys in order, into an empty database
    FillSeq,
    /// Puts random keys, as many as there are keys, into an empty database
    FillRandom,
    /// Like fillrandom, a thousandth as many, each synced
    FillSync,
    /// Puts random keys
    Overwrite,
    /// Gets random keys
    ReadRandom,
    /// Gets random keys that are not there and lie between keys that may be
    ReadMissing,
    /// Walks from the first entry on
    ReadSeq,
    /// Walks back from the last entry
    ReadReverse,
    /// Opens a cursor, goes to a random key, and walks --seek-nexts entries on
    SeekRandom,
    /// Deletes all keys in order
    DeleteSeq,
    /// Deletes random keys
    DeleteRandom,
    /// Gets random keys while one more thread puts random keys
    ReadWhileWriting,
}

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Store a value.
    Put,
    /// Remove a key.
    Delete,
    /// Look a key up.
    Get {
        /// A key that cannot be there.
        missing: bool,
    },
    /// Position a new cursor, and move it.
    Seek,
    /// Move a cursor by one entry.
    Step {
        /// Towards smaller keys.
        back: bool,
    },
}

impl Workload {
    /// Its name.
    pub fn name(self) -> &'static str {
        use Workload::*;
        match self {
            FillSeq => "fillseq",
            FillRandom => "fillrandom",
            FillSync => "fillsync",
            Overwrite => "overwrite",
            ReadRandom => "readrandom",
            ReadMissing => "readmissing",
            ReadSeq => "readseq",
            ReadReverse => "readreverse",
            SeekRandom => "seekrandom",
            DeleteSeq => "deleteseq",
            DeleteRandom => "deleterandom",
            ReadWhileWriting => "readwhilewriting",
        }
    }

    /// What it repeats.
    pub fn operation(self) -> Operation {
        use Workload::*;
        match self {
            FillSeq | FillRandom | FillSync | Overwrite => Operation::Put,
            ReadRandom | ReadWhileWriting => Operation::Get { missing: false },
            ReadMissing => Operation::Get { missing: true },
            ReadSeq => Operation::Step { back: false },
            ReadReverse => Operation::Step { back: true },
            SeekRandom => Operation::Seek,
            DeleteSeq | DeleteRandom => Operation::Delete,
        }
    }

    /// In which order it takes the keys.
    pub fn order(self, seed: u64) -> Order {
        match self {
            Workload::FillSeq | Workload::DeleteSeq => Order::Sequential,
            _ => Order::Random { seed },
        }
    }

    /// Whether it starts with an empty database.
    pub fn is_fill(self) -> bool {
        matches!(self, Workload::FillSeq | Workload::FillRandom | Workload::FillSync)
    }

    /// How many operations it has, of all threads together.
    pub fn ops(self, num: u64, reads: u64) -> u64 {
        match (self, self.operation()) {
            (Workload::FillSync, _) => (num / 1000).max(1),
            (_, Operation::Put | Operation::Delete) => num,
            _ => reads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for workload in Workload::value_variants() {
            assert_eq!(workload.to_possible_value().unwrap().get_name(), workload.name());
        }
    }
}
