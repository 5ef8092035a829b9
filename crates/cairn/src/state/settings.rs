//! [`Settings`]: what of a keyspace can be changed while it is open.

use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::types::{KeyspaceOptions, Options, PlacementPolicy, Ttl};
use std::time::Duration;

/// The name and the options of a keyspace. The holder of the manifest replaces them as a whole.
#[derive(Clone)]
pub(crate) struct Settings {
    pub name: String,
    pub options: KeyspaceOptions,
}

/// Those options that each write reads, as atomics: a load of [`Settings`] takes longer.
pub(crate) struct WriteSettings {
    /// The option `large_up_to` as bits, or NaN, which nothing is up to, if values are in place.
    large_up_to: AtomicU64,
    /// The option `ttl` in microseconds; 0: none.
    ttl: AtomicU64,
    memtable_bytes: AtomicUsize,
}

impl WriteSettings {
    pub(crate) fn new(database: &Options, options: &KeyspaceOptions) -> WriteSettings {
        let new = WriteSettings { large_up_to: 0.into(), ttl: 0.into(), memtable_bytes: AtomicUsize::new(0) };
        new.set(database, options);
        new
    }

    pub(super) fn set(&self, database: &Options, options: &KeyspaceOptions) {
        let large_up_to = match options.placement {
            PlacementPolicy::InPlace => f64::NAN,
            PlacementPolicy::Hybrid => options.large_up_to,
        };
        self.large_up_to.store(large_up_to.to_bits(), Ordering::Relaxed);
        let ttl = options.ttl.duration().map_or(0, |ttl| ttl.as_micros() as u64);
        self.ttl.store(ttl, Ordering::Relaxed);
        self.memtable_bytes.store(database.memtable_bytes(options), Ordering::Relaxed);
    }

    /// Whether a value stays in the log.
    #[inline]
    pub(crate) fn is_large(&self, key_len: usize, value_len: usize) -> bool {
        values::is_large(key_len, value_len, f64::from_bits(self.large_up_to.load(Ordering::Relaxed)))
    }

    /// The option `ttl`.
    #[inline]
    pub(crate) fn ttl(&self) -> Ttl {
        match self.ttl.load(Ordering::Relaxed) {
            0 => Ttl::None,
            micros => Ttl::After(Duration::from_micros(micros)),
        }
    }

    /// Capacity of a new memtable: the option, or less when the memory budget is small.
    #[inline]
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.load(Ordering::Relaxed)
    }
}
