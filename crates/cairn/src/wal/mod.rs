//! The write-ahead log: its file names, header and records, the log that is written to, those before it, the recycled one, and replay.
//!
//! Imports no other room. Absent: keyspaces and the database. A log knows sequence numbers and bytes; `write` appends to logs, `seal`
//! switches them, `background` syncs those behind the current one, and `disk` establishes and removes them.

mod batch_record;
mod closed_logs;
mod log;
mod log_file;
mod read_batches;
mod recycled_log;
mod replay;
mod value_records;

pub(crate) use batch_record::{
    BatchHead, BatchRecord, Entries, Entry, MAX_ENTRY_OVERHEAD, decode_batch, least_len,
};
pub(crate) use closed_logs::{ClosedLogs, KeptLog, ListedLogs, LogSync, MAX_OPEN_LOGS};
pub(crate) use log::{Log, Logs};
pub(crate) use log_file::{LogHeader, log_file_name, parse_log_file_name};
pub(crate) use read_batches::{MAPS_RECORD, Placed, read_batches};
pub(crate) use recycled_log::{RecycledLogs, is_recycled_file_name};
pub(crate) use replay::{
    LogBound, LogEnd, LogRecord, LogTail, Replay, check_dropped, is_never_established, replay,
};
pub(crate) use value_records::{append_entry, end_value_file};
