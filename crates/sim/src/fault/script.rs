//! The calls of a script. They are generated in advance, so that all trials make the same calls.

use crate::data::Value;
use crate::random::{Draw, Rng, derive};
use crate::sets::tiny_shapes;
use cairn::{Durability, KeyspaceOptions, Options};
use std::fmt;

/// The keyspaces that scripts create and drop.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Number of distinct keys.
const KEYS: u64 = 14;

const DURABILITIES: [Durability; 3] = [Durability::Buffered, Durability::Os, Durability::Sync];

/// A change to a key.
#[derive(Clone)]
pub(super) enum Change {
    Put(Value),
    Delete,
    /// Deletes the keys from this one up to the given end in one write. The list has all keys of the range that a
    /// script uses.
    DeleteRange(Vec<u8>, Vec<Vec<u8>>),
}

/// One call.
#[derive(Clone)]
pub(super) enum Call {
    /// A batch over keyspaces, or a single put or delete.
    Commit {
        writes: Vec<(usize, Vec<u8>, Change)>,
        durability: Durability,
        alone: bool,
    },
    Sync,
    Flush,
    FlushOne(usize),
    Compact(usize),
    CompactAll,
    Create(usize),
    Drop(usize),
    /// Closes with `close`, which returns errors, or by dropping the last handle; then opens again.
    Reopen {
        close: bool,
    },
    /// Takes a snapshot, and reads the previous one.
    Snapshot,
    /// Starts an iteration, and finishes the previous one.
    Iterate(usize),
    Get(usize, Vec<u8>),
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Commit { writes, durability, alone } => {
                let (len, single) = (writes.len(), if *alone { "single" } else { "batch" });
                write!(f, "commit {len} ({single}, {durability})")
            }
            Call::Sync => write!(f, "sync"),
            Call::Flush => write!(f, "flush"),
            Call::FlushOne(n) => write!(f, "flush {}", NAMES[*n]),
            Call::Compact(n) => write!(f, "compact {}", NAMES[*n]),
            Call::CompactAll => write!(f, "compact"),
            Call::Create(n) => write!(f, "create {}", NAMES[*n]),
            Call::Drop(n) => write!(f, "drop {}", NAMES[*n]),
            Call::Reopen { close } => write!(f, "reopen (close: {close})"),
            Call::Snapshot => write!(f, "snapshot"),
            Call::Iterate(n) => write!(f, "iterate {}", NAMES[*n]),
            Call::Get(n, key) => write!(f, "get {} {}", NAMES[*n], key.escape_ascii()),
        }
    }
}

/// The calls of a seed, and its options.
pub(super) struct Script {
    pub(super) seed: u64,
    pub(super) options: Options,
    pub(super) keyspace_options: KeyspaceOptions,
    pub(super) calls: Vec<Call>,
}

impl Script {
    /// The script of `seed`. The seed modulo the number of shapes selects the options of its keyspaces.
    pub(super) fn new(seed: u64) -> Script {
        let mut rng = Rng::new(derive(seed, 11));
        let shapes = tiny_shapes();
        let keyspace_options = shapes[(seed % shapes.len() as u64) as usize].1.clone();
        let options = Options::default()
            .memory_budget(1 << 20)
            .log_cap(64 << 10)
            .manifest_cap(1 << 10)
            .value_garbage_percent(5)
            .background_threads(0);
        let mut calls = vec![Call::Create(0), Call::Create(1)];
        let durabilities = *rng.pick(&[[1, 1, 1], [4, 4, 1], [0, 1, 4]]);
        for _ in 0..rng.between(26, 36) {
            calls.push(draw(&mut rng, &durabilities));
        }
        Script { seed, options, keyspace_options, calls }
    }
}

fn draw(rng: &mut Rng, durabilities: &[u32; 3]) -> Call {
    let (n, key) = (rng.below(3) as usize, draw_key(rng));
    match rng.weighted(&[44, 3, 4, 7, 3, 2, 2, 2, 5, 4, 4, 4]) {
        0 => {
            let len = rng.weighted(&[0, 5, 2, 1, 1]);
            let mut write = || {
                let change = match rng.weighted(&[16, 3, 1]) {
                    0 => Change::Put(draw_value(rng)),
                    1 => Change::Delete,
                    _ => return draw_range(rng),
                };
                (rng.below(3) as usize, draw_key(rng), change)
            };
            let writes = (0..len).map(|_| write()).collect();
            let durability = DURABILITIES[rng.weighted(durabilities)];
            Call::Commit { writes, durability, alone: len == 1 && rng.chance(1, 2) }
        }
        1 => Call::Sync,
        2 => Call::Flush,
        3 => Call::FlushOne(n),
        4 => Call::Compact(n),
        5 => Call::CompactAll,
        6 => Call::Create(n),
        7 => Call::Drop(n),
        8 => Call::Reopen { close: rng.chance(2, 3) },
        9 => Call::Snapshot,
        10 => Call::Iterate(n),
        _ => Call::Get(n, key),
    }
}

fn draw_key(rng: &mut Rng) -> Vec<u8> {
    key(rng.below(KEYS))
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:02}").into_bytes()
}

fn draw_range(rng: &mut Rng) -> (usize, Vec<u8>, Change) {
    let from = rng.below(KEYS);
    let to = from + 1 + rng.below(KEYS / 2);
    (rng.below(3) as usize, key(from), Change::DeleteRange(key(to), (from..to).map(key).collect()))
}

/// Includes large values that quickly fill a memtable.
fn draw_value(rng: &mut Rng) -> Value {
    let len = match rng.weighted(&[8, 4, 2]) {
        0 => rng.between(0, 40),
        1 => rng.between(40, 400),
        _ => rng.between(900, 2500),
    };
    let mut bytes = vec![b'v'; len];
    let random = len.min(if rng.chance(1, 2) { 8 } else { len });
    rng.fill(&mut bytes[..random]);
    bytes.into()
}
