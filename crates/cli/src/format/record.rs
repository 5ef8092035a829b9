//! Formats, records, and how records map to keys and values.

use crate::times::TimeUnit;
use cairn::Time;
use std::path::Path;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tab-separated values, with escapes
    Tsv,
    /// Comma-separated values (RFC 4180)
    Csv,
    /// One JSON object per line
    Jsonl,
    /// One key per line, no values
    Lines,
    /// Records of `Field: value` lines, separated by empty lines
    Paragraphs,
}

impl Format {
    /// The format for the extension of a file name.
    pub fn of_file(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" | "tab" => Some(Format::Tsv),
            "csv" => Some(Format::Csv),
            "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
            "txt" | "lst" | "words" => Some(Format::Lines),
            _ => None,
        }
    }
}

/// How records map to keys and values.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// Fields that form the key. Empty: the first field (`key` in JSON).
    pub key: Vec<String>,
    /// The separator between them.
    pub separator: String,
    /// The field with the value.
    pub value: Option<String>,
    /// Whether the first line names the columns; `None`: as usual for the format.
    pub header: Option<bool>,
    /// TSV: backslashes are plain characters.
    pub no_escapes: bool,
    /// Keys and values are hexadecimal.
    pub hex: bool,
    /// The field with the time of a record.
    pub time: Option<String>,
    /// The unit of times that are numbers.
    pub time_unit: TimeUnit,
    /// The field with the expiry of a record.
    pub expiry: Option<String>,
    /// Records are versions, as a dump of a history has them: key, time, whether it is a delete, value. The other fields of the mapping are
    /// not used.
    pub versions: bool,
}

/// A key and a value that were read. The buffers are reused for each record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The line where the record starts; the first line is 1.
    pub line: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The time, if the mapping names a field for it.
    pub time: Option<Time>,
    /// The expiry, if the mapping names a field for it; [`Time::MAX`]: never.
    pub expiry: Option<Time>,
    /// Whether the record is the delete of its key.
    pub is_delete: bool,
}

/// The result of reading a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The record was read.
    Record,
    /// The line named in the record is invalid, for this reason.
    Bad(String),
    /// The mapping does not fit the first line, so no record can be read.
    Unfit(String),
    /// The end of the input.
    End,
}
