//! Reading the logs back, in the order of sequence numbers, and telling a torn end from damage.

use crate::log::{LogHeader, batch_error, decode_batch, log_file_name};
use base::planted::{Bug, planted};
use base::{Error, Result, Seq};
use env::Env;
use record::{SegmentKind, SegmentReader, Tail};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A record of the log, and where it stands.
pub(crate) struct LogRecord<'a> {
    pub batch: crate::log::BatchRecord<'a>,
    pub path: &'a Path,
    pub offset: u64,
}

/// An entry of the log may be of a keyspace that is gone, but not of one that never was.
pub(crate) fn check_dropped(keyspace: u64, state: &tree::State, log: &Path, offset: u64) -> Result<()> {
    match keyspace < state.next_keyspace {
        true => Ok(()),
        false => Err(Error::corruption(log, offset, format!("keyspace {keyspace} was never created"))),
    }
}

/// Whether this is the newest log, begun over an older one and never established, and a power cut has lost its header: then nothing in it
/// was acknowledged as durable, and the log before it is the newest. (Where it has no intact header at all, reading it tells.)
pub(crate) fn is_never_established(
    env: &Arc<dyn Env>,
    dir: &Path,
    state: &tree::State,
    logs: &[u64],
    number: u64,
) -> Result<bool> {
    let newest = number > state.newest_log && logs.last() == Some(&number);
    Ok(newest && SegmentReader::is_another(env, &dir.join(log_file_name(number)), SegmentKind::Wal, number)?)
}

/// Reads the logs one after another up to the first torn end, and gives every batch to `apply`. Returns the newest sequence
/// number that was in use.
///
/// A log that ends before the length that its successor states has a hole behind it: what comes later is dropped, because
/// it was not acknowledged as durable; or, where something later proves that it was synced, the hole is damage. So is a log that ends
/// before the length up to which, by its successor's header, it was synced.
pub(crate) fn replay(
    env: &Arc<dyn Env>,
    dir: &Path,
    state: &tree::State,
    logs: &[u64],
    apply: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
) -> Result<Seq> {
    let mut last_seq = 0;
    let mut torn: Option<(PathBuf, u64)> = None;
    let mut read: Option<(PathBuf, u64)> = None;
    let mut record = Vec::new();
    for &number in logs {
        let path = dir.join(log_file_name(number));
        if is_never_established(env, dir, state, logs, number)? {
            break;
        }
        let mut reader = match state.closed.get(&number) {
            Some(&len) => SegmentReader::open_closed(env, &path, SegmentKind::Wal, number, len)?,
            None => SegmentReader::open(env, &path, SegmentKind::Wal, number)?,
        };
        let header_len = reader.valid_len();
        let header = LogHeader::decode(reader.header());
        if header.is_none() && !matches!(reader.tail(), Some(Tail::TornHeader)) {
            return Err(Error::corruption(&path, 0, "the header of the log is malformed"));
        }
        if header.is_none() && number <= state.newest_log {
            // Header and name of a log are durable before the manifest says that it exists.
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
            last_seq = last_seq.max(header.map_or(0, |h| h.last_seq));
        }
        while let Some(span) = reader.next(&mut record)? {
            if record.is_empty() || torn.is_some() && !planted(Bug::ReplayOverHole) {
                continue;
            }
            let batch = decode_batch(&record).ok_or_else(|| batch_error(&record, &path, span.start))?;
            if batch.first_seq <= last_seq {
                let what = format!("sequence number {} comes after {last_seq}", batch.first_seq);
                return Err(Error::corruption(&path, span.start, what));
            }
            last_seq = batch.first_seq + batch.count.max(1) - 1;
            apply(LogRecord { batch, path: &path, offset: span.start })?;
        }
        if let Some((hole, offset)) = &torn {
            // The header of a log is synced without the older logs; only what lies behind it proves anything of them.
            if reader.proven_synced() > header_len && !planted(Bug::ReplayOverHole) {
                let what = format!("the log ends here, but {} proves that more was synced", path.display());
                return Err(Error::corruption(hole, *offset, what));
            }
        }
        if torn.is_none() && !matches!(reader.tail(), Some(Tail::Clean)) {
            torn = Some((path.clone(), reader.valid_len()));
        }
        read = Some((path, reader.valid_len()));
    }
    Ok(last_seq)
}
