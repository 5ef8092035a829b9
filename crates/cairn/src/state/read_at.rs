//! [`ReadAt`]: the state that a read sees.

use base::expiry::{split_expiry, without_expiry};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Time, Trailer};
use std::cell::Cell;

/// The state that a read sees: the entries up to a sequence number that had not expired at a time.
pub(crate) struct ReadAt {
    pub seq: Seq,
    pub now: Time,
    /// The first expiry among the entries that were seen.
    soonest: Cell<Time>,
}

impl ReadAt {
    pub(crate) fn new(seq: Seq, now: Time) -> ReadAt {
        ReadAt { seq, now, soonest: Cell::new(Time::MAX) }
    }

    /// The first expiry among the entries that were seen; `None` if none of them has one.
    pub(crate) fn soonest(&self) -> Option<Time> {
        Some(self.soonest.get()).filter(|soonest| *soonest < Time::MAX)
    }

    /// Whether the read sees an entry of a table or a memtable. Notes its expiry.
    ///
    /// # Errors
    /// `Corruption` if the entry should have an expiry, and has none.
    #[inline]
    pub(crate) fn sees(&self, trailer: Trailer, stored: &[u8]) -> Result<bool> {
        match trailer.expires() {
            false => Ok(true),
            true => Ok(self.sees_until(expiry_of(stored)?)),
        }
    }

    /// Whether the read sees an entry with this expiry. Notes it.
    pub(crate) fn sees_until(&self, expiry: Time) -> bool {
        if expiry <= self.now && !planted(Bug::ShowExpired) {
            return false;
        }
        self.soonest.set(self.soonest.get().min(expiry));
        true
    }
}

/// What is stored of an entry without its expiry, and the expiry.
pub(crate) fn split_value(trailer: Trailer, stored: &[u8]) -> Result<(&[u8], Option<Time>)> {
    without_expiry(trailer, stored).ok_or_else(no_expiry)
}

/// The expiry of an entry that has one.
pub(crate) fn expiry_of(stored: &[u8]) -> Result<Time> {
    split_expiry(stored).map(|(_, expiry)| expiry).ok_or_else(no_expiry)
}

#[cold]
fn no_expiry() -> Error {
    Error::new(ErrorKind::Corruption, "an entry has no expiry")
}
