//! The sequence numbers that compactions must preserve because snapshots read at them.

use super::visible_seq::VisibleSeq;
use crate::sync::Mutex;
use base::Seq;
use std::collections::BTreeMap;
use std::time::Duration;

/// The sequence numbers that snapshots hold.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<Seq, Held>>);

#[derive(Default)]
struct Held {
    /// Number of holders.
    count: usize,
    /// When the first of them took hold; `None` if unknown.
    since: Option<Duration>,
}

impl Snapshots {
    /// Holds the newest visible sequence number. The number is read under the lock: a compaction that lists the snapshots later finds it,
    /// and one that listed them before drops only versions that this snapshot does not show.
    pub(crate) fn take(&self, visible: &VisibleSeq, now: Option<Duration>) -> Seq {
        let mut held = self.0.lock();
        let seq = visible.newest();
        held.entry(seq).or_default().add(now);
        seq
    }

    /// Holds a sequence number that is also held elsewhere during the call.
    pub(crate) fn hold(&self, seq: Seq, now: Option<Duration>) {
        self.0.lock().entry(seq).or_default().add(now);
    }

    pub(crate) fn release(&self, seq: Seq) {
        let mut held = self.0.lock();
        if let Some(one) = held.get_mut(&seq) {
            one.count -= 1;
            if one.count == 0 {
                held.remove(&seq);
            }
        }
    }

    /// All held sequence numbers, ascending.
    pub(crate) fn list(&self) -> Vec<Seq> {
        self.0.lock().keys().copied().collect()
    }

    pub(crate) fn oldest(&self) -> Option<Seq> {
        self.0.lock().keys().next().copied()
    }

    /// The number of holders and the time since which the oldest is held. An unknown time is set to `now`.
    pub(crate) fn look(&self, now: Duration) -> HeldCursors {
        let mut all = HeldCursors::default();
        for held in self.0.lock().values_mut() {
            all.add(held.count, Some(*held.since.get_or_insert(now)));
        }
        all
    }
}

impl Held {
    fn add(&mut self, now: Option<Duration>) {
        self.count += 1;
        self.since = self.since.or(now);
    }
}

/// Number and age of a set of cursors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldCursors {
    pub count: usize,
    /// Since when the oldest of them is known to be held.
    pub since: Option<Duration>,
}

impl HeldCursors {
    pub(crate) fn add(&mut self, count: usize, since: Option<Duration>) {
        self.count += count;
        self.since = self.since.into_iter().chain(since).min();
    }
}
