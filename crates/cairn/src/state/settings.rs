//! [`Settings`]: what of a keyspace can be changed while it is open.

use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::types::{KeyspaceOptions, Options, PlacementPolicy, Ttl};
use base::Time;
use std::time::Duration;

/// The name and the options of a keyspace. The holder of the manifest replaces them as a whole.
#[derive(Clone)]
pub(crate) struct Settings {
    pub name: String,
    pub options: KeyspaceOptions,
    /// If it has history: late writes from before this time are refused. When the option `history` was another one, deletes from before it, and
    /// versions that had ended by then, may have been removed.
    pub kept_since: Time,
}

impl Settings {
    /// Those of a keyspace with the older versions of one that has these.
    pub(crate) fn historical(&self) -> Settings {
        Settings { options: self.options.historical(), ..self.clone() }
    }
}

/// Those options that each write reads, as atomics: a load of [`Settings`] takes longer.
pub(crate) struct WriteSettings {
    /// The option `large_up_to` as bits, or NaN, which nothing is up to, if values are in place.
    large_up_to: AtomicU64,
    /// The option `ttl` in microseconds; 0: none.
    ttl: AtomicU64,
    /// The age of the option `history` in microseconds; 0: none.
    history_age: AtomicU64,
    /// [`Settings::kept_since`] in microseconds.
    kept_since: AtomicU64,
    memtable_bytes: AtomicUsize,
}

impl WriteSettings {
    pub(crate) fn new(database: &Options, settings: &Settings) -> WriteSettings {
        let new = WriteSettings {
            large_up_to: 0.into(),
            ttl: 0.into(),
            history_age: 0.into(),
            kept_since: 0.into(),
            memtable_bytes: AtomicUsize::new(0),
        };
        new.set(database, settings);
        new
    }

    pub(super) fn set(&self, database: &Options, settings: &Settings) {
        let options = &settings.options;
        let large_up_to = match options.placement {
            PlacementPolicy::InPlace => f64::NAN,
            PlacementPolicy::Hybrid => options.large_up_to,
        };
        self.large_up_to.store(large_up_to.to_bits(), Ordering::Relaxed);
        let ttl = options.ttl.duration().map_or(0, |ttl| ttl.as_micros() as u64);
        self.ttl.store(ttl, Ordering::Relaxed);
        // In the reverse order of `kept_from`.
        self.kept_since.store(settings.kept_since.micros(), Ordering::Release);
        let age = options.history.age().map_or(0, |age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX));
        self.history_age.store(age, Ordering::Release);
        self.memtable_bytes.store(database.memtable_bytes(options), Ordering::Relaxed);
    }

    /// The time from which on late writes are taken. `now` is not before any moment as of which retention has removed versions.
    ///
    /// The age first: the alteration that has replaced an age has set before from when on it kept versions.
    #[inline]
    pub(crate) fn kept_from(&self, now: Time) -> Time {
        let by_age = match self.history_age.load(Ordering::Acquire) {
            0 => Time::MIN,
            micros => now.saturating_sub(Duration::from_micros(micros)),
        };
        by_age.max(Time::from_micros(self.kept_since.load(Ordering::Acquire)))
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
