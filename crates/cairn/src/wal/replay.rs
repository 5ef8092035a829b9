//! Replays the logs in the order of sequence numbers, and distinguishes a torn tail from damage.

use super::batch_record::{BatchRecord, batch_error, decode_batch};
use super::log_file::{LogHeader, log_file_name};
use base::planted::{Bug, planted};
use base::{Error, Result, Seq, Time};
use env::Env;
use record::{LastRecord, SegmentKind, SegmentReader, Tail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::LogClosed;

/// A record of the log and its position.
pub(crate) struct LogRecord<'a> {
    pub batch: BatchRecord<'a>,
    /// The log.
    pub number: u64,
    pub path: &'a Path,
    pub offset: u64,
    /// Bytes of the record.
    pub len: usize,
}

/// An entry of the log may belong to a dropped keyspace, but not to one that never existed.
pub(crate) fn check_dropped(keyspace: u64, next_keyspace: u64, log: &Path, offset: u64) -> Result<()> {
    match keyspace < next_keyspace {
        true => Ok(()),
        false => Err(Error::corruption(log, offset, format!("keyspace {keyspace} was never created"))),
    }
}

/// Whether this is the newest log, begun over a recycled one and never established, and a power cut has lost its header: then nothing in
/// it was acknowledged as durable, and the log before it is the newest. (A log without any intact header is detected when it is read.)
pub(crate) fn is_never_established(
    env: &Arc<dyn Env>,
    dir: &Path,
    state: &tree::ManifestState,
    logs: &[u64],
    number: u64,
) -> Result<bool> {
    let newest = number > state.newest_log && logs.last() == Some(&number);
    Ok(newest && SegmentReader::is_another(env, &dir.join(log_file_name(number)), SegmentKind::Wal, number)?)
}

/// The newest sequence number in use, and the latest time of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub seq: Seq,
    pub time: Time,
}

/// What [`replay`] has read.
pub(crate) struct Replay {
    pub end: LogEnd,
    /// The logs that were applied, up to where they were.
    pub logs: Vec<LogClosed>,
    /// Behind the newest log; `None` if there is none, or what follows the end of an older one was not acknowledged.
    pub tail: Option<LogTail>,
}

/// Reads the logs in order up to the first torn tail, and passes every batch to `apply`. Returns where they end.
///
/// A log shorter than the length in its successor's header leaves a gap: later records are dropped, because they were not acknowledged as
/// durable; but if a later record proves that the missing part was synced, the gap is damage. A log shorter than its durable length in
/// its successor's header is damaged, too.
pub(crate) fn replay(
    env: &Arc<dyn Env>,
    dir: &Path,
    state: &tree::ManifestState,
    logs: &[u64],
    apply: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
) -> Result<Replay> {
    let mut end = LogEnd::default();
    let (mut tail, mut applied) = (None, Vec::new());
    let mut torn: Option<(PathBuf, u64)> = None;
    let mut read: Option<(PathBuf, u64)> = None;
    let mut record = Vec::new();
    for &number in logs {
        let path = dir.join(log_file_name(number));
        if is_never_established(env, dir, state, logs, number)? {
            break;
        }
        let closed_at = state.closed.get(&number).copied();
        let mut reader = SegmentReader::open(env, &path, SegmentKind::Wal, number, closed_at)?;
        let header_len = reader.valid_len();
        let header = LogHeader::decode(reader.header());
        if header.is_none() && !matches!(reader.tail(), Some(Tail::TornHeader)) {
            return Err(Error::corruption(&path, 0, "the header of the log is malformed"));
        }
        if header.is_none() && number <= state.newest_log {
            // The header and the name of a log are durable before the manifest names the log.
            let what = "the header of the log is damaged, though the manifest says that it was durable";
            return Err(Error::corruption(&path, 0, what));
        }
        if let (Some(header), Some((previous, len))) = (header, &read) {
            if header.previous_synced > *len && !planted(Bug::ForgetSyncedLength) {
                let synced = header.previous_synced;
                let what =
                    format!("the log ends here, but {} says that {synced} bytes were synced", path.display());
                return Err(Error::corruption(previous, *len, what));
            }
            if torn.is_none() && header.previous_len > *len {
                torn = Some((previous.clone(), *len));
            }
        }
        if torn.is_none() {
            end.seq = end.seq.max(header.map_or(0, |h| h.last_seq));
        }
        if torn.is_none() || planted(Bug::ReplayOverHole) {
            while let Some(record) = next_batch(&mut reader, (number, &path), &mut record, &mut end)? {
                apply(record)?;
            }
        } else {
            while reader.next(&mut record)?.is_some() {}
        }
        if let Some((hole, offset)) = &torn {
            // The header of a log is synced without the older logs; only records after it prove anything about them.
            if reader.proven_synced() > header_len && !planted(Bug::ReplayOverHole) {
                let what = format!("the log ends here, but {} proves that more was synced", path.display());
                return Err(Error::corruption(hole, *offset, what));
            }
        }
        read = Some((path.clone(), reader.valid_len()));
        let is_followed = torn.is_none() && header.is_some();
        if is_followed {
            applied.push(LogClosed { number, len: reader.valid_len() });
        }
        if torn.is_none() && !matches!(reader.tail(), Some(Tail::Clean)) {
            torn = Some((path, reader.valid_len()));
        }
        tail = is_followed.then_some(LogTail { number, reader });
    }
    Ok(Replay { end, logs: applied, tail })
}

/// The next batch of a log. `end` advances.
fn next_batch<'a>(
    reader: &mut SegmentReader,
    (number, path): (u64, &'a Path),
    record: &'a mut Vec<u8>,
    end: &mut LogEnd,
) -> Result<Option<LogRecord<'a>>> {
    let span = loop {
        match reader.next(record)? {
            Some(_) if record.is_empty() => {}
            Some(span) => break span,
            None => return Ok(None),
        }
    };
    let batch = decode_batch(record).ok_or_else(|| batch_error(record, path, span.start))?;
    let head = batch.head;
    if head.first_seq <= end.seq {
        let what = format!("sequence number {} comes after {}", head.first_seq, end.seq);
        return Err(Error::corruption(path, span.start, what));
    }
    *end = LogEnd { seq: head.last_seq(), time: end.time.max(head.time.unwrap_or_default()) };
    Ok(Some(LogRecord { batch, number, path, offset: span.start, len: record.len() }))
}

/// The place behind the newest log, from which a reader follows a database that another process writes to.
pub(crate) struct LogTail {
    number: u64,
    reader: SegmentReader,
}

/// The end of the last whole record that has been written to the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogBound {
    number: u64,
    len: u64,
}

/// Finds where the logs end, while they are written.
pub(crate) struct LogAhead {
    number: u64,
    reader: SegmentReader,
}

impl LogAhead {
    /// The present end, where recovery needs the logs from `min_log` on.
    pub(crate) fn find_end(&mut self, env: &Arc<dyn Env>, dir: &Path, min_log: u64) -> Result<LogBound> {
        if self.number < min_log {
            *self = LogAhead { number: min_log, reader: open_log(env, dir, min_log)?.0 };
        }
        let mut record = Vec::new();
        loop {
            // Before the present log is read: once there is another one, nothing is appended to this. The header of one that was begun may be in the
            // memory of the writer.
            let next = self.number + 1;
            let path = dir.join(log_file_name(next));
            let is_last =
                !env.exists(&path)? || !SegmentReader::has_begun(env, &path, SegmentKind::Wal, next)?;
            self.reader.go_on(u64::MAX)?;
            while self.reader.next(&mut record)?.is_some() {}
            if is_last {
                return Ok(LogBound { number: self.number, len: self.reader.valid_len() });
            }
            *self = LogAhead { number: next, reader: open_log(env, dir, next)?.0 };
        }
    }
}

impl LogTail {
    /// The start of log `number`. Numbers that were assigned before it began are in `end` then.
    pub(crate) fn at_start(env: &Arc<dyn Env>, dir: &Path, number: u64, end: &mut LogEnd) -> Result<LogTail> {
        let (reader, header) = open_log(env, dir, number)?;
        end.seq = end.seq.max(header.last_seq);
        Ok(LogTail { number, reader })
    }

    /// The log.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// What finds the end of the logs from here on.
    pub(crate) fn look_ahead(&self) -> LogAhead {
        LogAhead { number: self.number, reader: self.reader.another() }
    }

    /// The log, up to the place that was read.
    pub(crate) fn read(&self) -> LogClosed {
        LogClosed { number: self.number, len: self.reader.valid_len() }
    }

    /// The last record that was read of it.
    pub(crate) fn last_record(&self) -> Option<LastRecord> {
        self.reader.last_record()
    }

    /// Passes every batch that was logged since, up to `bound`, to `apply`, and calls `switched` when a log ends, with that log, and the next
    /// begins. `end` advances.
    ///
    /// # Errors
    /// Those of `apply`; `Io`; `Corruption` if what is there does not follow what was read: the logs have to be replayed from their beginning.
    pub(crate) fn go_on<T>(
        &mut self,
        (env, dir): (&Arc<dyn Env>, &Path),
        bound: LogBound,
        end: &mut LogEnd,
        target: &mut T,
        apply: &mut dyn FnMut(&mut T, LogRecord<'_>) -> Result<()>,
        switched: &mut dyn FnMut(&mut T, LogClosed),
    ) -> Result<()> {
        let mut record = Vec::new();
        loop {
            let is_newest = self.number >= bound.number;
            self.reader.go_on(if is_newest { bound.len } else { u64::MAX })?;
            let path = self.reader.path().to_owned();
            let log = (self.number, &*path);
            while let Some(record) = next_batch(&mut self.reader, log, &mut record, end)? {
                apply(target, record)?;
            }
            if is_newest {
                return Ok(());
            }
            let (reader, header) = open_log(env, dir, self.number + 1)?;
            let len = self.reader.valid_len();
            if header.previous_len != len {
                let what = format!("the log ends here, but had {} bytes", header.previous_len);
                return Err(Error::corruption(&path, len, what));
            }
            end.seq = end.seq.max(header.last_seq);
            let ended = self.read();
            *self = LogTail { number: self.number + 1, reader };
            switched(target, ended);
        }
    }
}

fn open_log(env: &Arc<dyn Env>, dir: &Path, number: u64) -> Result<(SegmentReader, LogHeader)> {
    let path = dir.join(log_file_name(number));
    let reader = SegmentReader::open(env, &path, SegmentKind::Wal, number, None)?;
    let malformed = || Error::corruption(&path, 0, "the header of the log is malformed");
    let header = LogHeader::decode(reader.header()).ok_or_else(malformed)?;
    Ok((reader, header))
}
