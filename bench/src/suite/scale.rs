//! [`Scale`]: how large the groups are, and [`Adjust`]: what the command line changes.

use crate::workload::Rates;
use std::fmt;
use std::str::FromStr;

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

/// The sizes of a scale.
pub(super) struct Size {
    /// Numbers of keys and lengths of values.
    pub dbbench: [(u64, usize); 2],
    /// Numbers of keys of the database well within memory and of the one four times as large as the memory limit,
    /// with the first length of values.
    pub memory: u64,
    pub four_times: u64,
    /// Number of keys of the database with 1 KiB values, two readers and two writers.
    pub beside: u64,
    /// Number of keys of the database with 1 KiB values that is updated for long, and for how many seconds by each choice of keys.
    pub steady: u64,
    pub steady_seconds: f64,
    pub reads: u64,
    pub seeks: u64,
    pub walk: u64,
    pub synced: u64,
    pub ycsb: (u64, u64),
    pub ycsb_value: usize,
    pub parallax_bytes: u64,
    pub parallax_ops: u64,
    pub history_seconds: f64,
    pub history_rates: Rates,
    pub history_keys: u64,
    pub aging: u64,
    pub ten_each: u64,
    pub sample_seconds: f64,
    pub seconds_max: f64,
}

impl Scale {
    pub(super) fn size(self) -> Size {
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

impl Size {
    /// The sizes of a scale, times the factor.
    pub fn new(scale: Scale, adjust: &Adjust) -> Size {
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
        size
    }
}
