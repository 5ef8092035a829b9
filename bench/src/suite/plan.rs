//! [`Plan`]: what the groups of a run have in common.

use super::group::Group;
use super::scale::{Adjust, Scale, Size};
use crate::generate::{Shape, Sizes};

/// Length of YCSB's keys, in bytes.
pub const YCSB_KEY: usize = 24;

/// The sizes of a run, and what the command line changes.
pub struct Plan<'a> {
    pub size: Size,
    pub adjust: &'a Adjust,
}

impl Plan<'_> {
    pub fn new(scale: Scale, adjust: &Adjust) -> Plan<'_> {
        Plan { size: Size::new(scale, adjust), adjust }
    }

    /// A group without workloads, with hashed keys as long as those of YCSB.
    pub fn group(&self, name: &str, title: &str, about: &str) -> Group {
        Group {
            name: name.to_string(),
            title: title.to_string(),
            about: about.to_string(),
            num: 0,
            shape: Shape::Hashed,
            key_size: YCSB_KEY,
            sizes: Sizes::all(0),
            seed: self.adjust.seed,
            memtable_bytes: None,
            seconds_max: Some(self.seconds_max(self.size.seconds_max)),
            sample_seconds: self.size.sample_seconds,
            on_request: false,
            steps: Vec::new(),
        }
    }

    /// The same with `num` keys of 16 bytes, in the order of their numbers, as in `db_bench`, and values of one length.
    pub fn decimal(&self, (num, value): (u64, usize), name: &str, title: &str, about: &str) -> Group {
        Group {
            num,
            shape: Shape::Decimal,
            key_size: 16,
            sizes: Sizes::all(value),
            ..self.group(name, title, about)
        }
    }

    /// A time limit, unless the command line has one.
    pub fn seconds_max(&self, seconds: f64) -> f64 {
        self.adjust.seconds_max.unwrap_or(seconds)
    }
}
