//! [`KeyspaceInner`], the state of a keyspace that its handles, batches and cursors share.

use super::filter_jobs::{Filtered, KeptStates, KeyspaceFilter};
use super::hash_log::HashLog;
use super::read_state::{ReadState, expiry_len};
use super::settings::{Settings, WriteSettings};
use crate::parts::{DeadRanges, ExpiryClock, FlushGeneration, HeldSeqs, KeyspaceCounters};
use crate::sync::{ArcSwap, AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::types::{KeyspaceOptions, Limits, Merge, Options, Ttl};
use crate::wal::Entry;
use base::limits::MAX_KEYSPACE_NAME_LEN;
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, MergeOperator, RangeSet, Result, Seq, Slice, Time, Trailer};
use hashlog::{HintFile, HintOwner};
use history::Retention;
use memtable::LogPlace;
use std::sync::Arc;
use table::TimesOf;
use tree::{Kept, ReadCharges};
use values::Segments;

/// What a keyspace has to do with history.
pub(crate) enum Role {
    /// It has none.
    Plain,
    /// It has the newest versions, and this one the older ones.
    Primary(Arc<KeyspaceInner>),
    /// It has the older versions of the keyspace with this number. Applications do not see it.
    Historical(u64),
}

/// A retention, and the readers that it concerns.
#[derive(Clone, Copy)]
pub(crate) struct AppliedRetention {
    pub retention: Retention,
    /// Readers at smaller numbers may have begun with another one. (So may those at the next smaller number that began later: nothing was written
    /// meanwhile.)
    pub since: Seq,
}

impl AppliedRetention {
    /// What a job applies beside this oldest reader: while there is one from before an alteration, all versions are kept for it.
    pub(crate) fn beside(self, oldest: Option<Seq>) -> Retention {
        match oldest.is_some_and(|seq| seq < self.since) && !planted(Bug::AlterDespiteReaders) {
            true => Retention::All,
            false => self.retention,
        }
    }
}

/// The state of a keyspace that its handles, batches and cursors share.
pub(crate) struct KeyspaceInner {
    pub id: u64,
    pub role: Role,
    /// What finds its flushed entries, in place of its tree, which is empty: with `engine` = `hash_log`.
    pub hash_log: Option<Arc<HashLog>>,
    /// What joins operands to its values, if it has merges and the operator is known.
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// Whether it takes values and operands that no operator has checked.
    pub takes_unchecked: bool,
    /// Bytes behind each value, and in each tombstone: the time of the version, if the keyspace is primary.
    pub tail_len: usize,
    pub limits: Limits,
    /// No version of the keyspace has a later time, in microseconds. A holder of the writer advances it.
    pub newest_time: AtomicU64,
    /// The identity of its database, which `check_of` compares.
    pub database: u64,
    pub settings: ArcSwap<Settings>,
    pub for_writes: WriteSettings,
    /// The option `merge`, which stays.
    pub merge: Merge,
    /// The option `history`, as compactions apply it: see [`DbInner::note_retention`](super::DbInner::note_retention).
    pub retention: Mutex<AppliedRetention>,
    pub read_state: ArcSwap<ReadState>,
    /// Its compaction filter.
    pub filter: Option<KeyspaceFilter>,
    pub clock: Arc<ExpiryClock>,
    /// Whether an entry may have an expiry.
    pub has_expiries: AtomicBool,
    pub segments: Arc<Segments>,
    /// Number of times that a flush has removed memtables from the read state.
    pub generation: FlushGeneration,
    /// The sequence numbers that open cursors hold. A historical keyspace shares those of its primary one.
    pub readers: Arc<HeldSeqs>,
    /// Read costs that are charged to tables and guards.
    pub charges: Arc<ReadCharges>,
    /// One of [`OPEN`], [`DROPPED`], [`CLOSED`].
    pub state: AtomicU8,
    /// Bytes that were reserved in the previous memtable: the estimate for the next one.
    pub last_used: AtomicUsize,
    /// Set when reads have charged a memtable its price.
    pub memtables_due: Arc<AtomicBool>,
    /// Ranges of deleted keys that cursors skip.
    pub dead: DeadRanges,
    pub counters: KeyspaceCounters,
}

/// The keyspace can be used.
pub(crate) const OPEN: u8 = 0;

/// It was dropped.
pub(crate) const DROPPED: u8 = 1;

/// Its database was closed.
pub(crate) const CLOSED: u8 = 2;

/// What tells the times of the entries of a tree: of one with the older versions of another, of one that has such, or of neither.
pub(crate) fn times_of(is_historical: bool, has_history: bool) -> Option<TimesOf> {
    match (is_historical, has_history) {
        (true, _) => Some(history::times_of),
        (false, true) => Some(history::primary_times_of),
        (false, false) => None,
    }
}

impl Filtered for KeyspaceInner {
    fn id(&self) -> u64 {
        self.id
    }

    fn newest(&self) -> KeptStates {
        let read_state = self.read_state.load_full();
        let older = self.historical().map(|historical| historical.read_state.load_full());
        KeptStates { read_state, older }
    }

    fn running(&self) -> &AtomicUsize {
        &self.filter.as_ref().expect("it has a filter").running
    }
}

impl KeyspaceInner {
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            other => Err(self.closed_error(other)),
        }
    }

    /// Checks that the keyspace belongs to `database` and can be used.
    #[inline]
    pub(crate) fn check_of(&self, database: u64) -> Result<()> {
        match self.database == database {
            true => self.check_open(),
            false => Err(Error::invalid(format!("keyspace {:?} belongs to another database", self.name()))),
        }
    }

    #[cold]
    fn closed_error(&self, state: u8) -> Error {
        let how = if state == DROPPED { "was dropped" } else { "is closed, with its database" };
        Error::new(ErrorKind::Closed, format!("keyspace {:?} {how}", self.name()))
    }

    /// The read states that a reader keeps which begins beside a filter: see `filter_jobs.rs`. Called when it holds its number.
    #[inline]
    pub(crate) fn states_to_keep(&self) -> Option<KeptStates> {
        self.filter.as_ref()?.runs().then(|| self.newest())
    }

    /// The keyspace with the older versions, if this one has history.
    pub(crate) fn historical(&self) -> Option<&Arc<KeyspaceInner>> {
        match &self.role {
            Role::Primary(historical) => Some(historical),
            Role::Plain | Role::Historical(_) => None,
        }
    }

    /// The keyspace with the older versions.
    ///
    /// # Errors
    /// `InvalidArgument` if this one has no history.
    pub(crate) fn check_history(&self) -> Result<&Arc<KeyspaceInner>> {
        self.historical().ok_or_else(|| {
            Error::invalid(format!("keyspace {:?} has no history: its option history is none", self.name()))
        })
    }

    /// Whether the log is asked to note where it has an entry.
    #[inline]
    pub(crate) fn notes_place(&self, kind: EntryKind, key_len: usize, value_len: usize) -> bool {
        self.hash_log.is_some() || kind == EntryKind::Put && self.for_writes.is_large(key_len, value_len)
    }

    /// What its hint files say of it.
    pub(crate) fn hint_owner(&self) -> HintOwner {
        HintOwner { keyspace: self.id, name: self.name() }
    }

    /// Its hint files, with its number.
    pub(crate) fn hints(&self) -> Vec<(u64, HintFile)> {
        let hints = self.hash_log.iter().flat_map(|log| log.hints());
        hints.map(|hints| (self.id, hints)).collect()
    }

    /// Memtable bytes that an entry needs.
    #[inline]
    pub(crate) fn cost_of(&self, entry: &Entry<'_>) -> usize {
        let of_place = if self.hash_log.is_some() { size_of::<LogPlace>() } else { 0 };
        entry.cost(self.tail_len) + of_place
    }

    /// Checks that an entry of this kind, with this value, may be written.
    ///
    /// # Errors
    /// `InvalidArgument` for a range delete if there is no order, an operand if there is no merge operator, and a value or an operand that the
    /// merge operator does not take.
    #[inline]
    pub(crate) fn check_kind(&self, kind: EntryKind, value: &[u8]) -> Result<()> {
        match (kind, &self.operator) {
            (EntryKind::DeleteRange, _) if self.hash_log.is_some() => Err(self.no_order()),
            (EntryKind::Put | EntryKind::Merge, Some(operator)) => self.check_operand(&**operator, value),
            (EntryKind::Put, None) if !self.has_merges() => Ok(()),
            (EntryKind::Put | EntryKind::Merge, None) => self.check_without_operator(),
            _ => Ok(()),
        }
    }

    #[cold]
    fn check_operand(&self, operator: &dyn MergeOperator, value: &[u8]) -> Result<()> {
        operator.check(value).map_err(|e| {
            let (name, merge) = (self.name(), &self.merge);
            e.context(format!("keyspace {name:?}, merge operator {:?}", merge.to_string()))
        })
    }

    /// Checks a put or a merge where no operator is known.
    #[cold]
    fn check_without_operator(&self) -> Result<()> {
        match &self.merge {
            Merge::None => {
                let what = "has no merge operator: its option merge is none";
                Err(Error::invalid(format!("keyspace {:?} {what}", self.name())))
            }
            _ if self.takes_unchecked => Ok(()),
            _ => self.known_operator().map(drop),
        }
    }

    /// The operator that a read needs.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not known.
    pub(crate) fn known_operator(&self) -> Result<&dyn MergeOperator> {
        self.operator.as_deref().ok_or_else(|| {
            let (name, merge) = (self.name(), self.merge.to_string());
            let what = "is not registered, so values are not known and not checked";
            Error::invalid(format!("keyspace {name:?}: the merge operator {merge:?} {what}"))
        })
    }

    /// Whether it may have operands.
    #[inline]
    pub(crate) fn has_merges(&self) -> bool {
        !matches!(self.merge, Merge::None)
    }

    /// Whether a merge reads the value and writes what becomes of it, instead of an operand: where there are no entries below others, or where
    /// a value may expire, since then only the time of the merge tells what is joined.
    pub(crate) fn merges_at_once(&self) -> bool {
        self.hash_log.is_some()
            || self.tail_len > 0
            || self.for_writes.ttl() != Ttl::None
            || self.may_expire()
    }

    /// Checks that a put may have this expiry.
    ///
    /// # Errors
    /// `InvalidArgument` if a value of this length leaves no room for the expiry behind it.
    #[inline]
    pub(crate) fn check_expiry(&self, expiry: Option<Time>, value_len: usize) -> Result<()> {
        match expiry {
            None => Ok(()),
            Some(_) => self.check_expiring(value_len),
        }
    }

    #[cold]
    fn check_expiring(&self, value_len: usize) -> Result<()> {
        let most = self.limits.expiring_value();
        if value_len > most {
            let what = format!("a value that expires may have {most} bytes; this one has {value_len}");
            return Err(Error::invalid(what));
        }
        Ok(())
    }

    /// From now on an entry may have an expiry, and readers look at the clock: noted before the first one is visible.
    #[inline]
    pub(crate) fn note_expiries(&self) {
        if !self.may_expire() {
            self.has_expiries.store(true, Ordering::Release);
        }
    }

    /// Checks that an operand may be written: no entry has an expiry.
    ///
    /// # Errors
    /// `Conflict`.
    pub(crate) fn check_no_expiries(&self) -> Result<()> {
        match self.may_expire() && !planted(Bug::OperandAboveExpiry) {
            false => Ok(()),
            true => {
                let what = "its entries may expire now, so a merge reads the value: repeat it";
                Err(Error::new(ErrorKind::Conflict, format!("keyspace {:?}: {what}", self.name())))
            }
        }
    }

    /// Whether an entry may have an expiry.
    #[inline]
    pub(crate) fn may_expire(&self) -> bool {
        self.has_expiries.load(Ordering::Acquire)
    }

    /// For [`Tree::set_horizon`](tree::Tree::set_horizon): range tombstones under which expired versions do not move yet.
    pub(crate) fn unsettled_ranges(&self, oldest: Option<Seq>) -> RangeSet {
        match self.historical().is_some() && self.may_expire() {
            true => self.read_state.load().unsettled_ranges(oldest),
            false => RangeSet::default(),
        }
    }

    /// The clock of a reader that begins now, before it reads a sequence number; [`Time::MIN`], at which nothing has expired, if no entry
    /// has an expiry.
    #[inline]
    pub(crate) fn read_clock(&self) -> Time {
        match self.may_expire() {
            true => self.clock.now(),
            false => Time::MIN,
        }
    }

    /// Whether the clock is what it was when a reader read it. Otherwise what had expired since then may be gone by a compaction that has not found the
    /// held number of the reader, and what was written after that may be visible at its number.
    #[inline]
    pub(crate) fn is_current(&self, now: Time) -> bool {
        match now {
            Time::MIN => !self.may_expire(),
            now => !self.clock.has_passed(now),
        }
    }

    /// The expiry of a put as of `time`, by the option `ttl`.
    pub(crate) fn expiry_at(&self, time: Time) -> Option<Time> {
        self.for_writes.ttl().duration().map(|ttl| time.saturating_add(ttl))
    }

    /// The expiry of a put without one of its own, by the option `ttl`.
    pub(crate) fn default_expiry(&self) -> Option<Time> {
        self.for_writes.ttl().duration().map(|ttl| self.clock.after(ttl))
    }

    /// The error for puts if the index of a keyspace without order does not fit into the memory budget.
    pub(crate) fn no_memory(&self) -> Error {
        let bytes = self.hash_log.as_ref().map_or(0, |log| log.index.memory());
        let what = format!(
            "keyspace {:?}: its index takes {bytes} bytes, and memory_budget has no room for more",
            self.name()
        );
        Error::new(ErrorKind::NoMemory, what)
    }

    /// Checks that the keyspace has an order.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn check_order(&self) -> Result<()> {
        match self.hash_log {
            None => Ok(()),
            Some(_) => Err(self.no_order()),
        }
    }

    #[cold]
    pub(crate) fn no_order(&self) -> Error {
        Error::invalid(format!(
            "keyspace {:?} has no order: with engine = hash_log it can be read by key, and as a whole by Keyspace::entries",
            self.name()
        ))
    }

    /// What flushes keep. Where there is history they keep all, and compactions evict: so the historical tree gets fewer and larger tables.
    pub(crate) fn kept_by_flushes(&self) -> Kept {
        match self.historical() {
            Some(_) => Kept::All,
            None => Kept::Seen,
        }
    }

    /// What tells the times of entries in tables, if they are versions.
    pub(crate) fn times_of(&self) -> Option<TimesOf> {
        times_of(self.is_historical(), self.historical().is_some())
    }

    /// Whether applications do not see the keyspace.
    pub(crate) fn is_historical(&self) -> bool {
        matches!(self.role, Role::Historical(_))
    }

    /// The number of the keyspace whose older versions this one has, if it is a historical one.
    fn history_of(&self) -> Option<u64> {
        match self.role {
            Role::Historical(primary) => Some(primary),
            Role::Plain | Role::Primary(_) => None,
        }
    }

    /// Its name, for users.
    pub(crate) fn name(&self) -> String {
        self.settings.load().name.clone()
    }

    /// Its options.
    pub(crate) fn options(&self) -> KeyspaceOptions {
        self.settings.load().options.clone()
    }

    /// What the manifest keeps of it.
    pub(crate) fn description(&self) -> tree::KeyspaceDescription {
        self.description_with(&self.settings.load())
    }

    /// What the manifest keeps of it with other settings.
    pub(crate) fn description_with(&self, settings: &Settings) -> tree::KeyspaceDescription {
        settings.options.description(self.id, &settings.name, self.history_of(), settings.kept_since)
    }

    /// The options of its tree.
    pub(crate) fn tree_options(&self) -> tree::TreeOptions {
        let settings = self.settings.load();
        settings.options.tree_options(self.id, &settings.name, self.history_of())
    }

    /// Replaces the settings. The caller holds the manifest, which has them, and sets the options of the tree.
    pub(crate) fn set_settings(&self, database: &Options, settings: Settings) {
        self.for_writes.set(database, &settings);
        self.charges.set_seek_cost(settings.options.seek_cost);
        self.settings.store(Arc::new(settings));
    }

    /// The value of an entry of a table: `stored`, or what it refers to, without what is behind it.
    #[inline]
    pub(crate) fn resolve(&self, trailer: Trailer, stored: Slice) -> Result<Slice> {
        match trailer.is_reference() {
            true => self.read_value(&stored),
            false if self.tail_of(trailer) == 0 => Ok(stored),
            false => Ok(stored.slice_of(self.value_part(trailer, &stored)?)),
        }
    }

    /// The value outside of the tree to which `reference` refers.
    pub(crate) fn read_value(&self, reference: &[u8]) -> Result<Slice> {
        self.segments.read_waiting(&self.segments.decode(reference)?, false)
    }

    /// Bytes behind the value of an entry.
    #[inline]
    pub(crate) fn tail_of(&self, trailer: Trailer) -> usize {
        self.tail_len + expiry_len(trailer)
    }

    /// The value, or the reference to it, in what a table has stored.
    #[inline]
    pub(crate) fn value_part<'a>(&self, trailer: Trailer, stored: &'a [u8]) -> Result<&'a [u8]> {
        let len = stored.len().checked_sub(self.tail_of(trailer)).ok_or_else(|| self.no_tail())?;
        Ok(&stored[..len])
    }

    #[cold]
    pub(crate) fn no_tail(&self) -> Error {
        Error::new(
            ErrorKind::Corruption,
            format!("keyspace {:?}: an entry has no time, or no expiry", self.name()),
        )
    }

    /// What is behind a value that was written at `time`: as many bytes of it as the keyspace has behind values.
    #[inline]
    pub(crate) fn tail(&self, time: Option<Time>) -> Tail {
        let mut bytes = [0; history::PRIMARY_SUFFIX];
        if self.tail_len > 0 {
            bytes = history::primary_suffix(
                time.expect("a batch with an entry of a primary keyspace has a time"),
            );
        }
        Tail { bytes, len: self.tail_len }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.state.load(Ordering::Acquire) == DROPPED
    }
}

/// The bytes behind a value.
#[derive(Clone, Copy)]
pub(crate) struct Tail {
    bytes: [u8; history::PRIMARY_SUFFIX],
    len: usize,
}

impl std::ops::Deref for Tail {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Checks that `name` is allowed for a keyspace.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name {
        "" => Err(Error::invalid("the name of a keyspace must not be empty")),
        _ if name.len() > MAX_KEYSPACE_NAME_LEN => Err(Error::invalid(format!(
            "the name of a keyspace may have {MAX_KEYSPACE_NAME_LEN} bytes; this one has {}",
            name.len()
        ))),
        _ => Ok(()),
    }
}
