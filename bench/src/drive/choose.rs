//! Chooses the key and the kind of each operation, as functions of a seed and the number of the operation.

use super::job::Job;
use crate::generate::{Shuffle, Stream, Zipf, below, random, seed_of};
use crate::workload::{Keys, Kind};

/// YCSB's exponent of the Zipf distribution.
const ZIPF_EXPONENT: f64 = 0.99;

/// Chooses the keys of one thread.
pub(crate) struct Chooser {
    keys: Keys,
    seed: u64,
    first: u64,
    num: u64,
    zipf: Option<Zipf>,
    shuffle: Option<Shuffle>,
    present: Option<(Shuffle, u64)>,
    /// Numbers inserted by this thread: the first one, the distance between them, and how many.
    insert_from: u64,
    stride: u64,
    inserted: u64,
}

impl Chooser {
    pub(crate) fn new(job: &Job<'_>, keys: Keys, t: usize) -> Chooser {
        Chooser {
            keys,
            seed: seed_of(job.seed, "keys", 0),
            first: job.first,
            num: job.num,
            zipf: matches!(keys, Keys::Zipfian | Keys::Latest).then(|| Zipf::new(job.num, ZIPF_EXPONENT)),
            shuffle: match keys {
                Keys::Permuted => Some(Shuffle::new(job.num - job.first, job.seed)),
                Keys::Shuffled => Some(Shuffle::new(job.ops, job.seed)),
                _ => None,
            },
            present: job.present,
            insert_from: job.insert_from + t as u64,
            stride: job.threads as u64,
            inserted: 0,
        }
    }

    /// The key number of operation `op`, unless it inserts a key.
    #[inline]
    pub(crate) fn number(&self, op: u64) -> u64 {
        let zipf = || self.zipf.as_ref().expect("made for it").number(&mut Stream::new(self.seed, op));
        match self.keys {
            Keys::Sequential => self.first + op,
            Keys::Uniform => match self.present {
                Some((shuffle, count)) => self.first + shuffle.of(below(random(self.seed, op), count)),
                None => self.first + below(random(self.seed, op), self.num - self.first),
            },
            Keys::Zipfian => zipf(),
            Keys::Latest => match (self.inserted, zipf()) {
                (own, back) if back < own => self.insert_from + (own - 1 - back) * self.stride,
                (own, back) => self.num - 1 - (back - own).min(self.num - 1),
            },
            // Operations beyond the number of keys repeat the permutation.
            Keys::Permuted => {
                let shuffle = self.shuffle.expect("made for it");
                self.first + shuffle.of(op % (self.num - self.first))
            }
            Keys::Shuffled => self.shuffle.expect("made for it").of(op) % self.num,
        }
    }

    /// The number of a new key.
    pub(crate) fn insert(&mut self) -> u64 {
        self.inserted += 1;
        self.insert_from + (self.inserted - 1) * self.stride
    }
}

/// Chooses the kind of each operation.
pub(crate) struct Picker {
    kinds: &'static [(Kind, u64)],
    pub(crate) seed: u64,
}

impl Picker {
    pub(crate) fn new(job: &Job<'_>, kinds: &'static [(Kind, u64)]) -> Picker {
        Picker { kinds, seed: seed_of(job.seed, "kinds", 0) }
    }

    #[inline]
    pub(crate) fn kind(&self, op: u64) -> Kind {
        if let [(kind, _)] = self.kinds {
            return *kind;
        }
        let mut left = below(random(self.seed, op), 100);
        for &(kind, percent) in self.kinds {
            if left < percent {
                return kind;
            }
            left -= percent;
        }
        unreachable!("the shares are 100 per cent together")
    }
}
