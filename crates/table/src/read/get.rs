//! Point look-ups: the filter, the index, and the one data block where the key belongs; in a size-class table, the filter, the rows, and
//! the block with the value.
//!
//! [`Table::get`] waits for the disk. [`Table::try_get`] does not: it returns the block that it would wait for, and
//! [`Table::get_wanted`] continues.

use crate::cache::block_cache::BlockClass;
use crate::cache::table_cache;
use crate::format::decode_error::DecodeError;
use crate::format::filter;
use crate::format::frame::{Handle, Kind};
use crate::format::node;
use crate::read::block::{Node, Payload};
use crate::read::nonblocking_read::{PendingRead, Reading};
use crate::read::row_pages::FoundRow;
use crate::read::table::{Index, Table};
use base::{Result, Seq, Slice, Trailer};

impl Table {
    /// Whether the key with this hash ([`base::hash`]) may be in the table. `false` is certain. A table without a filter
    /// says `true`.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> Result<bool> {
        let Some(resident) = self.resident() else { return self.may_contain_by_cache(hash) };
        let may = resident.may_contain(hash);
        if resident.has_filter() {
            self.note_probe(may);
        }
        Ok(may)
    }

    #[inline]
    pub(crate) fn note_probe(&self, may: bool) {
        self.tables
            .counters
            .add(if may { table_cache::FILTER_POSITIVES } else { table_cache::FILTER_NEGATIVES }, 1);
    }

    fn may_contain_by_cache(&self, hash: u64) -> Result<bool> {
        let shape = &self.root()?.footer.filter;
        if shape.probes == 0 {
            return Ok(true);
        }
        let (partition, line) = shape.locate(hash);
        let handle = shape.handle(partition);
        let block = self.cached(handle, Kind::Filter, shape.partition_len())?;
        let may = filter::may_contain(&block, line, hash, shape.probes).ok_or_else(|| {
            self.fault(DecodeError::Corrupt("filter partition is too short"), handle.offset)
        })?;
        self.note_probe(may);
        Ok(may)
    }

    /// The newest version of `key` that is not newer than `seq`, be it a value or a tombstone. `hash` is the key's
    /// ([`base::hash`]); the filter is asked first. The slice borrows the cached block; from a block that is not cached it is a copy.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, seq: Seq) -> Result<Option<(Trailer, Slice)>> {
        self.look(key, hash, seq, Reading::Waits)
    }

    /// [`Table::get`] without waiting for a data block: if it would have to wait, it asks the disk for the block, stores the block in
    /// `wanted` and returns `None`. [`Table::get_wanted`] continues.
    pub fn try_get(
        &self,
        key: &[u8],
        hash: u64,
        seq: Seq,
        wanted: &mut Option<PendingRead>,
    ) -> Result<Option<(Trailer, Slice)>> {
        self.look(key, hash, seq, Reading::Asks(wanted))
    }

    /// Continues [`Table::try_get`]: reads the block that it has stored in `wanted`, waiting for it, and looks up the key there.
    pub fn get_wanted(&self, wanted: PendingRead, key: &[u8], seq: Seq) -> Result<Option<(Trailer, Slice)>> {
        // A look-up of another key of the batch may have inserted the block into the cache meanwhile.
        let payload = match self.tables.cache.get_again(self.block_key(wanted.handle)) {
            Some(bytes) => Some(Payload::Shared(bytes)),
            None => self.read_block(wanted, &mut Reading::Waits)?,
        };
        let Some(payload) = payload else { return Ok(None) };
        match wanted.row {
            Some(row) => self.value_in(&payload, row).map(Some),
            None => self.find(payload, wanted.handle, key, Trailer::seek(seq)),
        }
    }

    /// [`Table::get`] or [`Table::try_get`], as `reading` says.
    fn look(
        &self,
        key: &[u8],
        hash: u64,
        seq: Seq,
        mut reading: Reading<'_>,
    ) -> Result<Option<(Trailer, Slice)>> {
        if !self.may_contain(hash)? {
            return Ok(None);
        }
        let trailer = Trailer::seek(seq);
        if let Index::Rows(classes) = &self.root()?.index {
            let Some(row) = self.find_row(&mut &*self, classes, key, trailer)? else { return Ok(None) };
            return self.value_of(row, &mut reading);
        }
        let handle = self.data_handle(key, trailer)?;
        let payload = match self.tables.cache.get(self.block_key(handle), BlockClass::Data) {
            Some(bytes) => {
                node::touch(&bytes);
                Payload::Shared(bytes)
            }
            None => match self.read_block(self.want(handle), &mut reading)? {
                Some(payload) => payload,
                // The disk was asked for it.
                None => return Ok(None),
            },
        };
        self.find(payload, handle, key, trailer)
    }

    /// The value of a version of a size-class table.
    pub(crate) fn value_of(
        &self,
        row: FoundRow,
        reading: &mut Reading<'_>,
    ) -> Result<Option<(Trailer, Slice)>> {
        let handle = row.value.block;
        if row.value.len == 0 {
            return Ok(Some((row.trailer, Slice::default())));
        }
        self.check_value_block(handle)?;
        let payload = match self.tables.cache.get(self.block_key(handle), BlockClass::Data) {
            Some(bytes) => Some(Payload::Shared(bytes)),
            None => self.read_block(PendingRead { row: Some(row), ..self.want(handle) }, reading)?,
        };
        payload.map(|payload| self.value_in(&payload, row)).transpose()
    }

    /// The value of a version in the payload of its block.
    fn value_in(&self, payload: &Payload, row: FoundRow) -> Result<(Trailer, Slice)> {
        let value = row.value.of(payload).map_err(|f| self.fault(f, row.value.block.offset))?;
        Ok((row.trailer, payload.slice_of(value)))
    }

    /// Looks up a key in a data block. Counts a false positive of the filter if the key, which passed the filter, is not there.
    #[inline]
    pub(crate) fn find(
        &self,
        payload: Payload,
        handle: Handle,
        key: &[u8],
        trailer: Trailer,
    ) -> Result<Option<(Trailer, Slice)>> {
        let Node { bytes, layout, offset } = self.block(payload, handle)?;
        let found = layout.find(&bytes, key, trailer).map_err(|f| self.fault(f, offset))?;
        if found.is_none() && self.root()?.footer.filter.probes > 0 {
            self.tables.counters.add(table_cache::FILTER_FALSE_POSITIVES, 1);
        }
        Ok(found.map(|entry| (entry.trailer, bytes.slice_of(entry.value(&bytes)))))
    }
}
