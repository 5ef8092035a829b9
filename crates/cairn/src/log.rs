//! The write-ahead log: a chain of segments, numbered without gaps, shared by all keyspaces.
//!
//! Each segment's header has the length of the segment before it, so that recovery detects a gap between the two. A segment is synced
//! beyond its header only after all older segments that are still needed; so proof that a segment was synced is proof for its
//! predecessors, too.
//!
//! The record of a batch is described in `docs/format/log.md`.

use crate::begun_log::BegunLog;
use crate::recycled_log::RecycledLogs;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use base::codec::{MAX_VARINT_LEN, Reader, put_varint};
use base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use base::{EntryKind, Error, ErrorKind, RangeTombstone, Result, Seq, Trailer};
use env::Env;
use memtable::Memtable;
use record::{SegmentKind, SegmentWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File name of log `number`.
pub(crate) fn log_file_name(number: u64) -> String {
    format!("wal-{number:06}.log")
}

/// The number in a log's file name.
pub(crate) fn parse_log_file_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix("wal-")?.strip_suffix(".log")?.parse().ok()?;
    (log_file_name(number) == name).then_some(number)
}

/// The header of a log, which describes the log before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogHeader {
    /// Length of the previous log, in bytes; 0 when recovery does not need it.
    pub previous_len: u64,
    /// Sequence numbers up to this one were assigned before this log began.
    pub last_seq: Seq,
    /// Durable length of the previous log when this one began: if it is shorter, it is damaged. 0, and not encoded, when nothing of it
    /// was durable or an older Cairn wrote the header.
    pub previous_synced: u64,
}

impl LogHeader {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(3 * MAX_VARINT_LEN);
        put_varint(&mut out, self.previous_len);
        put_varint(&mut out, self.last_seq);
        if self.previous_synced > 0 {
            put_varint(&mut out, self.previous_synced);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<LogHeader> {
        let mut reader = Reader::new(bytes);
        let (previous_len, last_seq) = (reader.varint()?, reader.varint()?);
        let previous_synced = if reader.is_empty() { 0 } else { reader.varint()? };
        let header = LogHeader { previous_len, last_seq, previous_synced };
        let sound = header.last_seq <= base::MAX_SEQ && previous_synced <= previous_len;
        (reader.is_empty() && sound).then_some(header)
    }
}

/// Version of the batch record; room for records with timestamps.
const BATCH_PLAIN: u8 = 0;

/// Version of a batch with range deletions: an older Cairn refuses it, instead of reporting damage.
const BATCH_WITH_RANGES: u8 = 1;

/// Appends the head of a batch record: version, sequence number of the first entry, number of entries.
pub(crate) fn put_batch_head(out: &mut Vec<u8>, first_seq: Seq, count: u64) {
    put_batch_head_of(out, false, first_seq, count);
}

/// The same, for a batch that may delete ranges.
pub(crate) fn put_batch_head_of(out: &mut Vec<u8>, ranges: bool, first_seq: Seq, count: u64) {
    out.push(if ranges { BATCH_WITH_RANGES } else { BATCH_PLAIN });
    put_varint(out, first_seq);
    put_varint(out, count);
}

/// Appends the head of an entry: everything before the bytes of the key. The length of the value and its bytes follow the key.
#[inline]
pub(crate) fn put_entry_head(out: &mut Vec<u8>, kind: EntryKind, keyspace: u64, key_len: usize) {
    out.push(kind as u8);
    put_varint(out, keyspace);
    put_varint(out, key_len as u64);
}

/// Maximum bytes of an encoded entry beside key and value.
pub(crate) const MAX_ENTRY_OVERHEAD: usize = 1 + 3 * MAX_VARINT_LEN;

/// Appends a whole entry.
#[inline]
pub(crate) fn put_entry(out: &mut Vec<u8>, kind: EntryKind, keyspace: u64, key: &[u8], value: &[u8]) {
    put_entry_head(out, kind, keyspace, key.len());
    out.extend_from_slice(key);
    if kind != EntryKind::Delete {
        put_varint(out, value.len() as u64);
        out.extend_from_slice(value);
    }
}

/// One entry of a batch.
pub(crate) struct Entry<'a> {
    pub kind: EntryKind,
    pub keyspace: u64,
    pub key: &'a [u8],
    /// For a range deletion, the end of the range: empty for the end of all keys.
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Memtable bytes that the entry needs.
    pub(crate) fn cost(&self) -> usize {
        match self.kind {
            EntryKind::DeleteRange => Memtable::range_cost(self.key.len(), self.value.len()),
            EntryKind::Put | EntryKind::Delete => Memtable::entry_cost(self.key.len(), self.value.len()),
        }
    }

    /// Inserts the entry into a memtable that has reserved room for it.
    #[inline]
    pub(crate) fn insert(&self, memtable: &Memtable, seq: Seq) {
        match self.kind {
            EntryKind::DeleteRange => {
                memtable.delete_range(RangeTombstone::new(self.key, self.value, seq));
            }
            kind => memtable.insert(self.key, Trailer::new(seq, kind), self.value),
        }
    }
}

/// Iterates over the entries of a batch.
pub(crate) struct Entries<'a> {
    reader: Reader<'a>,
    /// Whether range deletions are allowed.
    ranges: bool,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Entries { reader: Reader::new(bytes), ranges: true }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// The next entry; `None` when it is malformed.
    pub(crate) fn next(&mut self) -> Option<Entry<'a>> {
        let kind = match self.reader.u8()? {
            code if code == EntryKind::DeleteRange as u8 && self.ranges => EntryKind::DeleteRange,
            code => EntryKind::from_code(code)?,
        };
        let keyspace = self.reader.varint()?;
        let key = self.reader.bytes(MAX_KEY_LEN)?;
        let value = match kind {
            EntryKind::Put => self.reader.bytes(MAX_VALUE_LEN)?,
            EntryKind::Delete => &[],
            // An empty range is never written.
            EntryKind::DeleteRange => {
                self.reader.bytes(MAX_KEY_LEN).filter(|to| to.is_empty() || key < *to)?
            }
        };
        Some(Entry { kind, keyspace, key, value })
    }
}

/// A decoded batch record.
pub(crate) struct BatchRecord<'a> {
    pub first_seq: Seq,
    pub count: u64,
    pub entries: Entries<'a>,
}

/// Decodes the head of a batch record; `None` when it is malformed.
pub(crate) fn decode_batch(record: &[u8]) -> Option<BatchRecord<'_>> {
    let mut reader = Reader::new(record);
    let ranges = match reader.u8()? {
        BATCH_PLAIN => false,
        BATCH_WITH_RANGES => true,
        _ => return None,
    };
    let first_seq = reader.varint().filter(|&seq| seq > 0)?;
    let count = reader.varint()?;
    (first_seq.checked_add(count)? <= base::MAX_SEQ).then_some(BatchRecord {
        first_seq,
        count,
        entries: Entries { ranges, ..Entries::new(reader.rest()) },
    })
}

/// The error for a non-empty record that is not a batch.
pub(crate) fn batch_error(record: &[u8], log: &Path, offset: u64) -> Error {
    match record.first() {
        Some(&version) if version > BATCH_WITH_RANGES => {
            let what = format!("{}, offset {offset}: a batch of version {version}", log.display());
            Error::new(ErrorKind::Unsupported, format!("{what}, which this Cairn does not know"))
        }
        _ => Error::corruption(log, offset, "this record is no batch"),
    }
}

/// Maximum number of unsynced closed logs that stay open: the error of a failed sync is reported only to the handle that wrote the file.
pub(crate) const MAX_OPEN_LOGS: usize = 8;

/// A log that is no longer written to, and may still be needed.
#[derive(Clone)]
struct Closed {
    number: u64,
    len: u64,
    last_seq: Seq,
    /// Locked during its sync; `None`, with the file closed, afterwards.
    writer: Arc<Mutex<Option<SegmentWriter>>>,
    synced: Arc<AtomicBool>,
}

/// A log that an opening keeps unchanged: closed and synced.
pub(crate) struct KeptLog {
    pub number: u64,
    pub len: u64,
    /// The newest sequence number in this log or an older one.
    pub last_seq: Seq,
}

/// The logs before the current one. The list is locked only briefly, never during I/O, so that a flush can sync logs while writes go on.
#[derive(Default)]
pub(crate) struct ClosedLogs(Mutex<Vec<Closed>>);

impl ClosedLogs {
    /// Starts with these logs, oldest first.
    pub(crate) fn keeping(kept: &[KeptLog]) -> ClosedLogs {
        let closed = |log: &KeptLog| Closed {
            number: log.number,
            len: log.len,
            last_seq: log.last_seq,
            writer: Arc::default(),
            synced: Arc::new(AtomicBool::new(true)),
        };
        ClosedLogs(Mutex::new(kept.iter().map(closed).collect()))
    }

    /// Syncs every closed log that begins at or before `seq`, oldest first.
    pub(crate) fn sync_up_to(&self, seq: Seq, counters: &LogCounters) -> Result<()> {
        let logs = self.0.lock().clone();
        let mut begins = 0;
        for log in logs {
            if begins > seq {
                break;
            }
            let mut writer = log.writer.lock();
            if let Some(segment) = &mut *writer {
                segment.sync()?;
                log.synced.store(true, Ordering::Release);
                counters.syncs.fetch_add(1, Ordering::Relaxed);
                *writer = None;
            }
            begins = log.last_seq + 1;
        }
        Ok(())
    }

    /// Syncs and closes the oldest open logs, except for the newest few: a keyspace with few writes can keep any number of logs.
    fn close_old(&self, counters: &LogCounters) -> Result<()> {
        let upto = {
            let logs = self.0.lock();
            let open = || logs.iter().filter(|log| !log.synced.load(Ordering::Acquire));
            let many = open().count().checked_sub(MAX_OPEN_LOGS).filter(|&n| n > 0);
            many.and_then(|n| open().nth(n - 1)).map(|log| log.last_seq)
        };
        upto.map_or(Ok(()), |seq| self.sync_up_to(seq, counters))
    }

    /// Number of the oldest log with an entry of this sequence number or a newer one; `None` when only the current log has any.
    pub(crate) fn holding(&self, seq: Seq) -> Option<u64> {
        self.0.lock().iter().find(|log| log.last_seq >= seq).map(|log| log.number)
    }

    /// Bytes of the logs from [`ClosedLogs::holding`]`(seq)` on.
    pub(crate) fn bytes_from(&self, seq: Option<Seq>) -> u64 {
        let Some(seq) = seq else { return 0 };
        self.0.lock().iter().filter(|log| log.last_seq >= seq).map(|log| log.len).sum()
    }

    /// The last sequence number of the log at which these logs, counted from the oldest, exceed `bytes` bytes; `Seq::MAX` when they have
    /// fewer together.
    pub(crate) fn last_seq_of_first(&self, seq: Option<Seq>, bytes: u64) -> Seq {
        let Some(seq) = seq else { return Seq::MAX };
        let mut sum = 0;
        let logs = self.0.lock();
        let passes = |log: &&Closed| {
            sum += log.len;
            sum > bytes
        };
        logs.iter().filter(|log| log.last_seq >= seq).find(passes).map_or(Seq::MAX, |log| log.last_seq)
    }

    /// The synced closed logs, with their lengths.
    pub(crate) fn synced(&self) -> Vec<tree::LogClosed> {
        let logs = self.0.lock();
        let synced = logs.iter().filter(|log| log.synced.load(Ordering::Acquire));
        synced.map(|log| tree::LogClosed { number: log.number, len: log.len }).collect()
    }

    /// Removes the logs before `min_log` from the list, and returns their numbers and lengths.
    pub(crate) fn release(&self, min_log: u64) -> Vec<tree::LogClosed> {
        let gone: Vec<Closed> = self.0.lock().extract_if(.., |log| log.number < min_log).collect();
        gone.iter().map(|log| tree::LogClosed { number: log.number, len: log.len }).collect()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().iter().map(|log| log.len).sum()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// Counters of the log. Written by the holder of the log.
#[derive(Default)]
pub(crate) struct LogCounters {
    /// Bytes of closed logs and of the current one.
    pub bytes: AtomicU64,
    pub syncs: AtomicU64,
    /// Bytes of the current log.
    pub current_len: AtomicU64,
    /// Number of the current log.
    pub current: AtomicU64,
}

/// The parts of the log that are shared with other modules.
#[derive(Clone)]
pub(crate) struct Logs {
    pub closed: Arc<ClosedLogs>,
    pub recycled: Arc<RecycledLogs>,
    pub begun: Arc<BegunLog>,
    pub counters: Arc<LogCounters>,
}

/// The log that is written to. One thread at a time holds it.
pub(crate) struct Log {
    env: Arc<dyn Env>,
    dir: PathBuf,
    writer: SegmentWriter,
    /// Older logs, which must be synced before the current one.
    closed: Arc<ClosedLogs>,
    recycled: Arc<RecycledLogs>,
    begun: Arc<BegunLog>,
    counters: Arc<LogCounters>,
    counted: u64,
    /// End of the mark of the last sync; 0 before the first. A mark needs no sync itself, because it may be lost.
    marked: u64,
    /// Whether [`Log::rest`] is called regularly.
    rests: bool,
}

impl Log {
    /// Creates log `number` durably. The caller names it in the manifest before it writes to the log.
    pub(crate) fn create(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        header: LogHeader,
        Logs { closed, recycled, begun, counters }: Logs,
    ) -> Result<Log> {
        let mut writer = begin_segment(env, dir, number, header, &recycled)?;
        let synced = writer.sync().and_then(|()| env.sync_dir(dir));
        if let Err(e) = synced {
            drop(writer);
            let _ = env.remove(&dir.join(log_file_name(number)));
            return Err(e.sync_failed());
        }
        begun.note_established(number);
        counters.current.store(number, Ordering::Release);
        let (env, dir) = (env.clone(), dir.to_owned());
        Ok(Log { env, dir, writer, closed, recycled, begun, counters, counted: 0, marked: 0, rests: false })
    }

    /// A log that refuses every write with `error`, in place of log `number`.
    pub(crate) fn refusing(
        env: &Arc<dyn Env>,
        dir: &Path,
        number: u64,
        error: Error,
        Logs { closed, recycled, begun, counters }: Logs,
    ) -> Log {
        let writer =
            SegmentWriter::refusing(&dir.join(log_file_name(number)), SegmentKind::Wal, number, error);
        counters.current.store(number, Ordering::Release);
        let (env, dir) = (env.clone(), dir.to_owned());
        Log { env, dir, writer, closed, recycled, begun, counters, counted: 0, marked: 0, rests: false }
    }

    /// Closes the file: every later write fails with `error`.
    pub(crate) fn refuse(&mut self, error: Error) {
        let number = self.writer.number();
        let path = self.dir.join(log_file_name(number));
        self.writer = SegmentWriter::refusing(&path, SegmentKind::Wal, number, error);
        self.begun.forget();
    }

    /// Appends a record, in parts, to the buffer.
    #[inline]
    pub(crate) fn append(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.writer.append(parts)
    }

    /// Length including the buffer: the argument for [`Log::rollback`].
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.writer.len()
    }

    /// Number and durable length of the current log.
    pub(crate) fn closed_at(&self) -> tree::LogClosed {
        tree::LogClosed { number: self.writer.number(), len: self.writer.synced_len() }
    }

    /// Bytes in the buffer.
    #[inline]
    pub(crate) fn buffered(&self) -> usize {
        self.writer.buffered()
    }

    /// Removes everything appended after `len`. None of it may be acknowledged.
    pub(crate) fn rollback(&mut self, len: u64) {
        self.writer.rollback(len);
    }

    /// Hands the buffer to the operating system.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<()> {
        let result = self.writer.flush();
        self.count();
        result
    }

    fn count(&mut self) {
        let len = self.writer.flushed_len();
        // Less when a large record was rolled back.
        self.counters.bytes.fetch_add(len.wrapping_sub(self.counted), Ordering::Relaxed);
        self.counters.current_len.store(len, Ordering::Relaxed);
        self.counted = len;
    }

    /// Makes everything appended here and in older logs durable. Then appends, unsynced, an empty record, the mark: it proves that
    /// everything before it was synced, so that damage to the newest record is not taken for a torn tail. Does nothing if only such a
    /// mark was appended since the last sync, and all older logs are synced.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.closed.sync_up_to(Seq::MAX, &self.counters)?;
        // A failed append may have left something to roll back.
        self.writer.flush()?;
        if self.writer.len() == self.marked {
            return Ok(());
        }
        let synced = self.writer.synced_len();
        self.writer.sync()?;
        if self.writer.synced_len() > synced {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            let marked = self.writer.append(&[]).and_then(|()| self.writer.flush());
            self.marked = if marked.is_ok() { self.writer.len() } else { 0 };
        }
        self.count();
        Ok(())
    }

    /// The caller promises to call [`Log::rest`] ten times a second while nothing is appended: appending may then be cheaper.
    pub(crate) fn expect_rests(&mut self) {
        self.rests = true;
        self.writer.allow_lease();
    }

    /// Called while nothing is appended: lets other processes open the current log.
    pub(crate) fn rest(&mut self) {
        self.writer.on_idle();
    }

    /// Truncates the file of the current log behind its end. Best effort.
    pub(crate) fn trim(&mut self) {
        self.writer.trim();
    }

    /// Closes the current log, which must be established, and begins the next one, without a sync. `last_seq` is the newest assigned
    /// sequence number.
    pub(crate) fn rotate(&mut self, last_seq: Seq) -> Result<()> {
        self.flush()?;
        let previous_synced = self.writer.synced_len().min(self.writer.len());
        let header = LogHeader { previous_len: self.writer.len(), last_seq, previous_synced };
        let number = self.writer.number() + 1;
        let mut next = begin_segment(&self.env, &self.dir, number, header, &self.recycled)?;
        self.begun.begin(number, next.front());
        if self.rests {
            next.allow_lease();
        }
        let mut writer = std::mem::replace(&mut self.writer, next);
        writer.trim();
        (self.counted, self.marked) = (0, 0);
        let synced = writer.synced_len() == writer.len();
        self.closed.0.lock().push(Closed {
            number: writer.number(),
            len: writer.len(),
            last_seq,
            synced: Arc::new(AtomicBool::new(synced)),
            writer: Arc::new(Mutex::new((!synced).then_some(writer))),
        });
        self.counters.current.store(self.writer.number(), Ordering::Release);
        self.count();
        // The switch is done; a failed sync ends all writing.
        self.closed.close_old(&self.counters).map_err(|e| e.sync_failed())
    }
}

/// Creates the file of a log under its name, with its header; nothing of it is durable. After a crash, a recycled file whose header was
/// not synced has the header of an older log, or a torn one.
fn begin_segment(
    env: &Arc<dyn Env>,
    dir: &Path,
    number: u64,
    header: LogHeader,
    recycled: &RecycledLogs,
) -> Result<SegmentWriter> {
    let (path, header) = (dir.join(log_file_name(number)), header.encode());
    let Some((writer, spare)) = recycled.begin(&path, number, &header) else {
        return SegmentWriter::create(env, &path, SegmentKind::Wal, number, &header);
    };
    match env.rename(&spare, &path) {
        Ok(()) => Ok(writer),
        Err(e) => {
            drop(writer);
            for name in [&spare, &path] {
                let _ = env.remove(name);
            }
            Err(e)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_round_trip_and_hostile_ones_are_refused() {
        let mut record = Vec::new();
        put_batch_head(&mut record, 300, 2);
        put_entry(&mut record, EntryKind::Put, 7, b"key", b"value");
        put_entry(&mut record, EntryKind::Delete, 1, b"", b"");
        let mut batch = decode_batch(&record).unwrap();
        assert_eq!((batch.first_seq, batch.count), (300, 2));
        let entry = batch.entries.next().unwrap();
        assert_eq!(
            (entry.kind, entry.keyspace, entry.key, entry.value),
            (EntryKind::Put, 7, &b"key"[..], &b"value"[..])
        );
        let entry = batch.entries.next().unwrap();
        assert_eq!((entry.kind, entry.keyspace, entry.key), (EntryKind::Delete, 1, &b""[..]));
        assert!(batch.entries.is_empty());
        for cut in 0..record.len() {
            let whole = decode_batch(&record[..cut])
                .is_some_and(|mut batch| (0..batch.count).all(|_| batch.entries.next().is_some()));
            assert!(!whole, "cut at {cut}");
        }
        assert!(decode_batch(&[9, 1, 1]).is_none());
        assert!(decode_batch(&[0, 0, 1]).is_none());
        let path = Path::new("wal");
        assert_eq!(batch_error(&[9, 1, 1], path, 7).kind(), ErrorKind::Unsupported);
        assert_eq!(batch_error(&[0, 0, 1], path, 7).kind(), ErrorKind::Corruption);
    }

    #[test]
    fn deleted_ranges_round_trip_and_only_sound_ones_in_their_version() {
        for (from, to, sound) in
            [("a", "b", true), ("a", "", true), ("", "", true), ("a", "a", false), ("b", "a", false)]
        {
            for ranges in [true, false] {
                let mut record = Vec::new();
                put_batch_head_of(&mut record, ranges, 3, 1);
                put_entry(&mut record, EntryKind::DeleteRange, 2, from.as_bytes(), to.as_bytes());
                let mut batch = decode_batch(&record).unwrap();
                let entry = batch.entries.next();
                assert_eq!(entry.is_some(), sound && ranges, "{from} {to} {ranges}");
                if let Some(entry) = entry {
                    assert_eq!((entry.kind, entry.key), (EntryKind::DeleteRange, from.as_bytes()));
                    assert_eq!((entry.value, batch.entries.is_empty()), (to.as_bytes(), true));
                }
            }
        }
    }

    /// Found by the fuzz target `recovery`: computing the next sequence number overflowed.
    #[test]
    fn a_header_with_an_impossible_sequence_number_is_refused() {
        for (last_seq, known) in [(base::MAX_SEQ, true), (base::MAX_SEQ + 1, false), (u64::MAX, false)] {
            let header = LogHeader { last_seq, ..LogHeader::default() };
            assert_eq!(LogHeader::decode(&header.encode()), known.then_some(header), "{last_seq}");
        }
    }

    #[test]
    fn names_come_from_numbers_only() {
        assert_eq!(parse_log_file_name(&log_file_name(12)), Some(12));
        assert_eq!(parse_log_file_name("wal-12.log"), None);
        assert_eq!(parse_log_file_name("wal-000012.log.tmp"), None);
        assert_eq!(parse_log_file_name(&log_file_name(12_345_678)), Some(12_345_678));
    }
}
