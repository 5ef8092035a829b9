//! Times of versions: which time a write without one gets, and where one with a time of the caller goes.
//!
//! In the primary tree of a keyspace with history the order of sequence numbers is that of times, for each key. So reads of the newest
//! version need to know nothing of times. The holder of the writer keeps this order. Batches get their times here in the order in which they
//! get their sequence numbers.
//!
//! - A write without a time gets the clock's, but a later one than every version before has, also when the clock steps back.
//! - A write with a time that is not before any of its keyspace ([`KeyspaceInner::newest_time`]) needs no look-up.
//! - Any other is compared with the versions of its key, in both trees. For that all earlier writes to the key must be visible: the group so
//!   far is committed, if it writes such a key, and the writer waits for inserts of other threads. If the key has a later version, or a range
//!   tombstone deleted it later, the write is *late*: it becomes an entry of the historical keyspace, under its version key, which ends when
//!   the next version begins.

use super::group::Member;
use crate::state::{Batch, DbInner, KeyspaceInner, Role, Writer};
use crate::sync::Ordering;
use crate::wal::{Entries, Entry};
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, MAX_SEQ, RangeSet, RangeTombstone, Result, Seq, Time};
use history::{Ended, put_historical, version_key};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// No version has a later time, in microseconds.
const MAX_TIME: u64 = Time::MAX.micros() - 1;

/// How far after the clock the time of a caller may be: clocks differ.
const MAX_AHEAD: Duration = Duration::from_secs(86_400);

/// Advances a time under the writer.
fn advance(time: &crate::sync::AtomicU64, to: Time) {
    time.fetch_max(to.micros(), Ordering::Release);
}

impl KeyspaceInner {
    /// Whether there may be versions of this time or later ones. Holds as long as the caller has the writer.
    pub(crate) fn has_versions_at(&self, time: Time) -> bool {
        self.newest_time.load(Ordering::Relaxed) >= time.micros()
    }
}

impl DbInner {
    /// The time of the clock, or one after `last`.
    pub(crate) fn time_after(&self, last: Time) -> Time {
        let time = self.env.wall_clock().micros().max(last.micros().saturating_add(1));
        Time::from_micros(time.min(MAX_TIME))
    }

    /// The time of a write without one: that of the clock, but later than every version before, and than `after`. The caller holds the
    /// writer.
    fn next_time(&self, after: Option<Time>) -> Time {
        // What has expired has ended before.
        let expired = Time::from_micros(self.clock.newest().micros().saturating_sub(1));
        let mut last = self.last_time().max(after.unwrap_or_default()).max(expired);
        if planted(Bug::FollowTheClockBack) {
            last = Time::MIN;
        }
        let time = self.time_after(last);
        advance(&self.last_time, time);
        time
    }

    /// The time of the versions of a bulk load that begins: no later write gets this one or an earlier one.
    pub(crate) fn time_of_load(&self) -> Time {
        let _writer = self.writer();
        self.next_time(None)
    }

    /// Notes that a keyspace has versions of a bulk load. The caller holds the writer.
    pub(crate) fn note_time_of_load(&self, keyspace: &KeyspaceInner, time: Time) {
        advance(&keyspace.newest_time, time);
    }

    /// Gives a time to a single write to `keyspace`, which has history: its `own`, if it has one, which [`Self::is_newest`]. The caller holds
    /// the writer.
    pub(super) fn give_time(&self, keyspace: &KeyspaceInner, own: Option<Time>) -> Time {
        let time = own.unwrap_or_else(|| self.next_time(None));
        advance(&self.last_time, time);
        advance(&keyspace.newest_time, time);
        time
    }

    /// Whether a write at `time`, or one without a time of its own, needs no comparison: it is not before any version of its keyspace, not
    /// before what retention keeps, and not too far ahead. Holds until another thread writes.
    #[inline]
    pub(super) fn is_newest(&self, keyspace: &KeyspaceInner, time: Option<Time>) -> bool {
        let Some(time) = time else { return true };
        let now = self.env.wall_clock();
        time.micros() >= keyspace.newest_time.load(Ordering::Relaxed)
            && !self.is_too_far_ahead(time, now)
            && time >= keyspace.for_writes.kept_from(now.max(self.retention_time()))
    }

    fn is_too_far_ahead(&self, time: Time, now: Time) -> bool {
        time > now.saturating_add(MAX_AHEAD).max(self.last_time())
    }

    /// Before the writer is taken: checks the times of a batch, and looks up the versions that they may have to be compared with, so that
    /// these are in memory when the holder of the writer looks them up. Another thread's later write to the same keyspace, meanwhile, may
    /// make more look-ups necessary.
    pub(super) fn prepare_times(&self, batch: &Batch) -> Result<()> {
        let Some(latest) = batch.latest else { return Ok(()) };
        self.check_keyspaces(batch)?;
        if !batch.takes_any_time && self.is_too_far_ahead(latest, self.env.wall_clock()) {
            let message =
                format!("the time of a version, {} us, is more than a day after the clock", latest.micros());
            return Err(Error::invalid(message));
        }
        let seq = self.visible.newest();
        let mut entries = Entries::new(&batch.entries);
        while let Some(entry) = entries.next() {
            let keyspace = batch.keyspace_of(&entry);
            let Some(time) = entry.time else { continue };
            if time.micros() < keyspace.newest_time.load(Ordering::Relaxed) {
                keyspace.end_of_version_at(entry.key, time, seq)?;
            }
        }
        Ok(())
    }

    /// Checks that all keyspaces of a batch belong to this database and can be used.
    fn check_keyspaces(&self, batch: &Batch) -> Result<()> {
        batch.keyspaces.iter().try_for_each(|written| written.keyspace.check_of(self.identity))
    }

    /// Gives a batch with writes to keyspaces with history its times, after the `ready` ones of its group.
    pub(super) fn give_times(
        &self,
        writer: &mut Writer,
        batch: &mut Batch,
        ready: &mut Vec<Member>,
    ) -> Result<()> {
        if !batch.has_history {
            return Ok(());
        }
        self.status.check_running()?;
        self.check_keyspaces(batch)?;
        batch.time = match batch.takes_time {
            true => Some(self.next_time(batch.latest)),
            false => batch.latest,
        };
        let Some(latest) = batch.latest else {
            // No writes with times of their own.
            for keyspace in batch.keyspaces.iter().map(|w| &w.keyspace).filter(|k| k.tail_len > 0) {
                advance(&keyspace.newest_time, batch.time.unwrap_or_default());
            }
            return Ok(());
        };
        advance(&self.last_time, latest);
        let newest = batch.keyspaces.iter().map(|w| w.keyspace.newest_time.load(Ordering::Relaxed));
        let newest: Vec<Time> = newest.map(Time::from_micros).collect();
        // Read anew after each look-up, because retention goes on meanwhile.
        let now = || self.env.wall_clock().max(self.retention_time());
        if !is_in_order(batch) || batch.has_expired(now()) {
            if share_keys(batch, ready) {
                drop(self.commit_group(writer, std::mem::take(ready)));
            }
            self.visible.wait_for(writer.next_seq - 1);
            let routed = with_late_writes(batch, writer.next_seq - 1, &newest, &now)?;
            // A late delete frees nothing.
            if routed.has_puts && !batch.has_puts {
                self.admit()?;
            }
            *batch = routed;
        }
        Ok(())
    }
}

/// The same batch with its late writes as entries of the historical keyspaces. Everything with a sequence number up to `seq` is visible.
/// `newest`: the latest times in the keyspaces before the batch. `now`: not before any moment as of which retention has removed versions.
fn with_late_writes(batch: &Batch, seq: Seq, newest: &[Time], now: &dyn Fn() -> Time) -> Result<Batch> {
    let mut routed = Batch {
        time: batch.time,
        skips_expired: batch.skips_expired,
        takes_any_time: batch.takes_any_time,
        is_copy: batch.is_copy,
        // Also if all of its writes are late.
        has_history: true,
        ..Batch::default()
    };
    let (mut version_key, mut stored) = (Vec::new(), Vec::new());
    // The newest times of keys in the batch so far.
    let mut written: HashMap<(u64, &[u8]), Time> = HashMap::new();
    // Range tombstones have the time of the batch, which is later than all others: earlier times of later entries lie under them.
    let mut deleted: HashMap<u64, RangeSet> = HashMap::new();
    let mut entries = Entries::new(&batch.entries);
    while let Some(entry) = entries.next() {
        let place = batch.place_of(&entry);
        let keyspace = &batch.keyspaces[place].keyspace;
        let Some(historical) = keyspace.historical().filter(|_| entry.kind != EntryKind::DeleteRange) else {
            if keyspace.tail_len > 0 {
                let range = RangeTombstone::new(entry.key, entry.value, 1, batch.time.unwrap_or_default());
                let ranges = deleted.entry(entry.keyspace).or_default();
                *ranges = ranges.with(range);
            }
            routed.push(keyspace, entry.at(None));
            continue;
        };
        let time = entry.time.or(batch.time).unwrap_or_default();
        let end = match entry.time {
            Some(time) if time < newest[place] => keyspace.end_of_version_at(entry.key, time, seq)?,
            _ => None,
        };
        if let Some(own) = entry.time.filter(|_| !batch.takes_any_time) {
            // The horizon is read after the look-up: what it did not find because it had expired had ended before this horizon.
            let horizon = keyspace.for_writes.kept_from(now());
            match batch.skips_expired {
                _ if own >= horizon => {}
                true => {
                    keyspace.counters.skipped.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                false => return Err(expired(keyspace, own, horizon)),
            }
        }
        let key = (entry.keyspace, entry.key);
        let is_deleted =
            || deleted.get(&entry.keyspace).is_some_and(|set| set.newest(entry.key, MAX_SEQ) > 0);
        let by_range = batch.time.filter(|_| entry.time.is_some() && is_deleted());
        let (replaced, by_range) =
            (written.get(&key).map(|time| (*time, false)), by_range.map(|time| (time, true)));
        let in_batch = replaced.into_iter().chain(by_range).filter(|(later, _)| time < *later);
        let end = end.into_iter().chain(in_batch).min();
        match end.filter(|_| !planted(Bug::LateVersionWins)) {
            None => {
                written.insert(key, time);
                routed.push(keyspace, entry);
            }
            Some((until, by_range)) => {
                version_key.clear();
                version_key::put_version_key(&mut version_key, entry.key, time);
                stored.clear();
                stored.extend_from_slice(entry.value);
                let is_delete = entry.kind == EntryKind::Delete;
                put_historical(&mut stored, time, Ended::at(until, is_delete).by_range(by_range));
                if entry.expiry.is_some() {
                    keyspace.note_expiries();
                }
                routed.push(historical, Entry::put(&version_key, &stored).until(entry.expiry));
            }
        }
    }
    routed.error.clone().map_or(Ok(routed), Err)
}

/// Whether a batch has to be compared with what the `ready` ones of its group write to keyspaces with history: its keys, or ranges.
fn share_keys(batch: &Batch, ready: &[Member]) -> bool {
    let others = || ready.iter().map(|member| &member.job.batch).filter(|other| other.has_history);
    if others().next().is_none() {
        return false;
    }
    if others().any(|other| other.has_ranges) {
        return true;
    }
    let (mut keys, mut entries) = (HashSet::new(), Entries::new(&batch.entries));
    while let Some(entry) = entries.next() {
        keys.insert((entry.keyspace, entry.key));
    }
    others().any(|other| {
        let (mut entries, mut late) = (Entries::new(&other.entries), Vec::new());
        while let Some(entry) = entries.next() {
            let place = match other.keyspace_of(&entry).role {
                Role::Historical(primary) => {
                    late.clear();
                    let prefix = version_key::split(entry.key).map_or(entry.key, |(prefix, _)| prefix);
                    version_key::put_key_of(&mut late, prefix);
                    (primary, &late[..])
                }
                Role::Primary(_) | Role::Plain => (entry.keyspace, entry.key),
            };
            if keys.contains(&place) {
                return true;
            }
        }
        false
    })
}

#[cold]
fn expired(keyspace: &KeyspaceInner, time: Time, horizon: Time) -> Error {
    let settings = keyspace.settings.load();
    let earlier = if horizon > settings.kept_since { "" } else { "; an earlier retention kept less" };
    let message = format!(
        "keyspace {:?}: a write at {} us lies before {} us, from when on versions are kept ({}{earlier})",
        settings.name,
        time.micros(),
        horizon.micros(),
        settings.options.history
    );
    Error::new(ErrorKind::Expired, message)
}

/// Whether each write of a batch to a keyspace with history has a time that is not before any of that keyspace. Advances these times.
fn is_in_order(batch: &Batch) -> bool {
    let (mut entries, mut in_order) = (Entries::new(&batch.entries), true);
    while let Some(entry) = entries.next() {
        let keyspace = batch.keyspace_of(&entry);
        if keyspace.tail_len > 0 {
            let time = entry.time.or(batch.time).unwrap_or_default();
            in_order &= time.micros() >= keyspace.newest_time.load(Ordering::Relaxed);
            advance(&keyspace.newest_time, time);
        }
    }
    in_order
}
