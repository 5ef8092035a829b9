//! The entries of memtables as a flush writes them: large values are in the log, and tables get references to them.

use base::checksum::checksum_of;
use base::expiry::EXPIRY_LEN;
use base::{Cursor, Reference, Result, Seq, Trailer};
use memtable::LogPlace;
use std::collections::{HashMap, HashSet};

/// The number of logs that the tables of a flush may refer to: their sums must fit into the properties of a table. Values in more logs than
/// that are written to the table: it takes very many logs with few entries each.
const MAX_LOGS: usize = 4096;

/// A cursor over memtables whose large values are replaced by references; what is behind a value stays there. Reads forward only.
pub(crate) struct WithReferences<C> {
    cursor: C,
    /// Bytes behind each value, and behind its expiry.
    tail_len: usize,
    places: HashMap<Seq, LogPlace>,
    /// The encoded reference of the current entry, and what is behind the value; empty if it has its value.
    reference: Vec<u8>,
}

impl<C: Cursor> WithReferences<C> {
    /// `cursor` is over memtables whose large values are at `places`, and have an expiry and `tail_len` bytes behind them that are not in the log.
    pub(crate) fn new(cursor: C, tail_len: usize, places: Vec<LogPlace>) -> Self {
        let mut logs = HashSet::new();
        let mut is_near =
            |place: &LogPlace| logs.contains(&place.log) || logs.len() < MAX_LOGS && logs.insert(place.log);
        let places =
            places.into_iter().filter(|place| is_near(place)).map(|place| (place.seq, place)).collect();
        WithReferences { cursor, tail_len, places, reference: Vec::new() }
    }

    fn moved(&mut self) {
        self.reference.clear();
        if !self.cursor.valid() {
            return;
        }
        if let Some(&LogPlace { log, offset, .. }) = self.places.get(&self.cursor.trailer().seq()) {
            let (stored, trailer) = (self.cursor.value(), self.cursor.trailer());
            let tail_len = self.tail_len + if trailer.expires() { EXPIRY_LEN } else { 0 };
            let (value, tail) = stored.split_at(stored.len() - tail_len);
            let len = value.len() as u32;
            Reference { segment: log, offset, len, checksum: checksum_of(value) }.encode(&mut self.reference);
            self.reference.extend_from_slice(tail);
        }
    }
}

impl<C: Cursor> Cursor for WithReferences<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.cursor.seek_to_first()?;
        self.moved();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        self.moved();
        Ok(())
    }

    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn trailer(&self) -> Trailer {
        match self.reference.is_empty() {
            true => self.cursor.trailer(),
            false => self.cursor.trailer().with_reference(true),
        }
    }

    fn value(&self) -> &[u8] {
        match self.reference.is_empty() {
            true => self.cursor.value(),
            false => &self.reference,
        }
    }
}
