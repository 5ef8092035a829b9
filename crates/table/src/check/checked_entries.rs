//! What a verification checks in tables of both formats: the order of all entries, the filter, and the zeros between blocks.

use crate::format::decode_error::DecodeError;
use crate::format::filter;
use crate::format::footer;
use crate::format::frame::{self, Handle};
use crate::format::options::{BlockTimes, TableMeta, TableOwner, TableTimes, TimesOf, filter_hash};
use crate::read::pinned_index::Line;
use crate::read::table::Table;
use base::{Result, Slice, Trailer, compare};
use std::cmp::Ordering;

/// A key and a trailer: an entry without its value, or a bound.
pub(super) type Mark = (Vec<u8>, Trailer);

/// Reads a data or value block, and checks the zero padding after it. Returns its payload and the end of the padding.
pub(super) fn read_block(table: &Table, handle: Handle) -> Result<(Slice, u64)> {
    let footer = table.root()?.footer;
    let frame = table.read_frame(handle, frame::MAX_PAYLOAD)?;
    let behind = frame::next_offset(handle.offset, &frame);
    let padded = frame::is_padded(&frame);
    let opened = frame::open(frame, table.place(handle.offset, footer.data_kind()), frame::MAX_PAYLOAD);
    let payload = opened.map_err(|f| table.fault(f, handle.offset))?;
    if padded {
        if footer.version == footer::UNPADDED || behind >= footer.data_size {
            return Err(table.fault(DecodeError::Corrupt("no zeros can follow this block"), handle.end()));
        }
        check_zeros(table, handle.end(), behind)?;
    }
    Ok((payload, behind))
}

/// Checks that these bytes between two parts are zeros.
pub(super) fn check_zeros(table: &Table, from: u64, to: u64) -> Result<()> {
    let mut zeros = vec![0; (to - from) as usize];
    table.read_in_background(&mut zeros, from)?;
    match zeros.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(table.fault(DecodeError::Corrupt("bytes between two blocks"), from)),
    }
}

/// The entries that were read so far.
pub(super) struct CheckedEntries {
    filter: Vec<Line>,
    probes: u8,
    owner: Option<TableOwner>,
    last: Option<Mark>,
    meta: TableMeta,
    times_of: Option<TimesOf>,
    /// The times of the entries since the last [`CheckedEntries::take_times`].
    times: Option<BlockTimes>,
}

impl CheckedEntries {
    pub(super) fn new(
        table: &Table,
        filter: Vec<Line>,
        probes: u8,
        times_of: Option<TimesOf>,
    ) -> Result<CheckedEntries> {
        let seq_shift = table.file.seq_shift;
        let meta = TableMeta { seq_shift, ..TableMeta::empty(table.number(), table.file_size()) };
        let owner = table.owner()?;
        Ok(CheckedEntries { filter, probes, owner, last: None, meta, times_of, times: None })
    }

    /// The times of the entries that were added since the last call; `None` if they are not known.
    pub(super) fn take_times(&mut self) -> Option<BlockTimes> {
        self.times.take()
    }

    /// Checks an entry against the one before it and the filter, and adds it to the properties.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
    ) -> std::result::Result<(), DecodeError> {
        if let Some((last_key, last)) = &self.last
            && compare(last_key, *last, key, trailer) != Ordering::Less
        {
            return Err(DecodeError::Corrupt("entries are out of order"));
        }
        if self.probes > 0 {
            let hash = filter_hash(self.owner.as_ref(), key);
            let line = &self.filter[filter::line(hash, self.filter.len() as u64) as usize].0;
            if !filter::line_may_contain(line, hash, self.probes) {
                return Err(DecodeError::Corrupt("the filter lacks a key"));
            }
        }
        if self.meta.entries == 0 {
            self.meta.smallest = key.to_vec();
        }
        let shadows = |(last_key, last): &Mark| last_key == key && !last.is_merge();
        let shadowed = self.last.as_ref().is_some_and(shadows);
        self.meta.count(shadowed, trailer, key.len(), value.len());
        if trailer.is_reference() && !self.meta.count_reference(value) {
            return Err(DecodeError::Corrupt("a reference to a value is malformed"));
        }
        if trailer.expires() && !self.meta.count_expiry(value) {
            return Err(DecodeError::Corrupt("an entry has no expiry"));
        }
        if let Some(times_of) = self.times_of {
            let (time, end) = times_of(key, trailer, value)
                .ok_or(DecodeError::Corrupt("an entry is no version of a value"))?;
            let end = end.max(time);
            let times = TableTimes::of_version(time, end, false);
            self.meta.times = Some(self.meta.times.map_or(times, |all| all.and(times)));
            let times = BlockTimes { earliest: time, last_end: end };
            self.times = Some(self.times.map_or(times, |all| all.and(times)));
        }
        let last = self.last.get_or_insert_with(|| (Vec::new(), trailer));
        last.0.clear();
        last.0.extend_from_slice(key);
        last.1 = trailer;
        Ok(())
    }

    pub(super) fn finish(mut self) -> TableMeta {
        self.meta.largest = self.last.take().map_or_else(Vec::new, |(key, _)| key);
        self.meta
    }
}
