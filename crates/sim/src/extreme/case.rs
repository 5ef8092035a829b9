//! The cases of the extremes suite.

use cairn::limits::MAX_VALUE_LEN;
use std::fmt;
use std::str::FromStr;

/// The bounds to which options are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// All options at the lower bound.
    Lower,
    /// All options at the upper bound.
    Upper,
    /// Each option at a random bound.
    Mixed,
}

/// A limit of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Address space beyond that of the program at its start, in MiB: `ulimit -v`.
    AddressSpace,
    /// Open files: `ulimit -n`.
    OpenFiles,
    /// Length of a file in bytes: `ulimit -f`.
    FileSize,
    /// Threads: `ulimit -u`.
    Threads,
}

/// A case. As text: `keyspaces:1000`, `limit:open-files:16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// This many keyspaces.
    Keyspaces(u64),
    /// Keys of maximum length.
    Keys,
    /// A value of this length with this memory budget, and a value that is too long.
    Value {
        /// Length of the value, in MiB.
        mib: usize,
        /// The memory budget, in MiB.
        budget: u64,
    },
    /// A batch of maximum length.
    Batch,
    /// Names of maximum length.
    Names,
    /// Options at their bounds.
    Options(Bounds),
    /// A limit of the process.
    Limit(Limit, u64),
}

const BOUNDS: [(&str, Bounds); 3] =
    [("lower", Bounds::Lower), ("upper", Bounds::Upper), ("mixed", Bounds::Mixed)];
const LIMITS: [(&str, Limit); 4] = [
    ("address-space", Limit::AddressSpace),
    ("open-files", Limit::OpenFiles),
    ("file-size", Limit::FileSize),
    ("threads", Limit::Threads),
];

/// Cases that are not tested, with the reason.
pub const LEFT_OUT: [(&str, &str); 1] = [(
    "extremes: threads with less than 256 MiB of address space",
    "the standard library aborts where a thread that starts gets no alternative stack; such a database has no threads here",
)];

/// The tested levels of each limit.
const LEVELS: [(Limit, &[u64]); 4] = [
    (Limit::AddressSpace, &[32, 64, 128, 256, 512, 1024, 2048]),
    (Limit::OpenFiles, &[5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 48, 64, 128]),
    (Limit::FileSize, &[0, 1, 100, 4096, 20_000, 65_536, 200_000, 1 << 20, 4 << 20]),
    (Limit::Threads, &[1, 2, 3, 4, 6]),
];

impl Case {
    /// The cases of a run: all of them, or those that take seconds.
    pub fn all(full: bool) -> Vec<Case> {
        let mut cases = vec![
            Case::Keyspaces(if full { 10_000 } else { 3000 }),
            Case::Keys,
            Case::Value { mib: 40, budget: 8 },
            Case::Names,
            Case::Options(Bounds::Lower),
            Case::Options(Bounds::Upper),
            Case::Options(Bounds::Mixed),
        ];
        if full {
            let longest = MAX_VALUE_LEN >> 20;
            cases.extend([1, 64, 512].map(|budget| Case::Value { mib: longest, budget }));
            cases.push(Case::Batch);
        }
        for (limit, levels) in LEVELS {
            cases.extend(levels.iter().map(|&level| Case::Limit(limit, level)));
        }
        cases
    }

    /// Whether the files are too large for a file system in memory.
    pub fn is_large(self) -> bool {
        matches!(self, Case::Value { .. } | Case::Batch)
    }

    /// Whether the limit applies to all processes of a user together.
    pub fn is_of_users(self) -> bool {
        matches!(self, Case::Limit(Limit::Threads, _))
    }
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], item: &T) -> &'static str {
    table.iter().find(|row| row.1 == *item).map_or("?", |row| row.0)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Keyspaces(many) => write!(f, "keyspaces:{many}"),
            Case::Keys => f.write_str("keys"),
            Case::Value { mib, budget } => write!(f, "value:{mib}:{budget}"),
            Case::Batch => f.write_str("batch"),
            Case::Names => f.write_str("names"),
            Case::Options(bounds) => write!(f, "options:{}", name_of(&BOUNDS, bounds)),
            Case::Limit(limit, level) => write!(f, "limit:{}:{level}", name_of(&LIMITS, limit)),
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let find = |name: &str| LIMITS.iter().find(|row| row.0 == name).map(|row| row.1);
        let words: Vec<&str> = text.split(':').collect();
        let case = match words[..] {
            ["keyspaces", many] => many.parse().ok().map(Case::Keyspaces),
            ["keys"] => Some(Case::Keys),
            ["value", mib, budget] => {
                mib.parse().ok().zip(budget.parse().ok()).map(|(mib, budget)| Case::Value { mib, budget })
            }
            ["batch"] => Some(Case::Batch),
            ["names"] => Some(Case::Names),
            ["options", name] => BOUNDS.iter().find(|b| b.0 == name).map(|b| Case::Options(b.1)),
            ["limit", name, level] => find(name).zip(level.parse().ok()).map(|(l, n)| Case::Limit(l, n)),
            _ => None,
        };
        case.ok_or_else(|| format!("{text:?} is not a case, such as keyspaces:1000 or limit:open-files:16"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_round_trip_as_text() {
        for case in Case::all(true) {
            assert_eq!(case.to_string().parse(), Ok(case));
        }
        assert!("limit:patience:3".parse::<Case>().is_err());
    }
}
