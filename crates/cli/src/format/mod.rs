//! The text formats that `load` reads and `dump` writes. They handle bytes: only JSON requires UTF-8.
//!
//! ```text
//!   tsv         fields separated by tabs; \t \n \r \\ \xHH inside them (see `text`)
//!   csv         RFC 4180: commas, "quoted" fields, quotes doubled, line ends inside quotes; the first line is a header
//!   jsonl       one object per line
//!   lines       each line is a key, with an empty value
//!   paragraphs  records separated by empty lines, with "Field: value" lines inside: a Debian package index, for one
//! ```
//!
//! The *key* of a record is one named field or several. The *value* is the named field; otherwise the other field if
//! there are exactly two (`key` and `value` in JSON); otherwise the whole record in its original form without the
//! line end, so that no data is lost.
//!
//! Guarantee: [`Reader`] reads back the same keys and values that [`Writer`] wrote, byte for byte. The writer rejects
//! records that the format cannot express.

mod jsonl;
mod lines;
mod paragraphs;
mod tabular;
mod writer;

pub use writer::{Unwritten, Writer};

use lines::Lines;
use std::io::{self, BufRead};
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

/// Reads records in any format.
pub struct Reader<R> {
    lines: Lines<R>,
    kind: Kind,
}

enum Kind {
    Tabular(tabular::Tabular),
    Jsonl(jsonl::Jsonl),
    Lines(Mapping),
    Paragraphs(paragraphs::Paragraphs),
}

impl<R: BufRead> Reader<R> {
    /// A reader of `input` in this format. Fails if the format does not support the mapping.
    pub fn new(input: R, format: Format, mapping: Mapping) -> Result<Reader<R>, String> {
        let kind = match format {
            Format::Tsv => Kind::Tabular(tabular::Tabular::new(tabular::Dialect::Tsv, mapping)?),
            Format::Csv => Kind::Tabular(tabular::Tabular::new(tabular::Dialect::Csv, mapping)?),
            Format::Jsonl => Kind::Jsonl(jsonl::Jsonl::new(mapping)),
            Format::Paragraphs if mapping.hex => {
                return Err("paragraphs are plain text: --hex does not apply to them".into());
            }
            Format::Paragraphs => Kind::Paragraphs(paragraphs::Paragraphs::new(mapping)),
            Format::Lines if !mapping.key.is_empty() || mapping.value.is_some() => {
                return Err("lines have no fields to name with --key or --value".into());
            }
            Format::Lines => Kind::Lines(mapping),
        };
        Ok(Reader { lines: Lines::new(input), kind })
    }

    /// Reads the next record into `record`. After `Bad`, continues with the next record.
    pub fn next(&mut self, record: &mut Record) -> io::Result<Step> {
        let step = match &mut self.kind {
            Kind::Tabular(format) => format.next(&mut self.lines, record)?,
            Kind::Jsonl(format) => format.next(&mut self.lines, record)?,
            Kind::Paragraphs(format) => format.next(&mut self.lines, record)?,
            Kind::Lines(mapping) => next_line(&mut self.lines, mapping, record)?,
        };
        Ok(if step == Step::Record { check_lengths(record) } else { step })
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }

    /// Lines read so far.
    pub fn lines_read(&self) -> u64 {
        self.lines.number()
    }
}

/// Reads a record of the format `lines`. Skips empty lines.
fn next_line<R: BufRead>(lines: &mut Lines<R>, mapping: &Mapping, record: &mut Record) -> io::Result<Step> {
    loop {
        record.key.clear();
        record.value.clear();
        match lines.append_line(&mut record.key)? {
            lines::Read::End => return Ok(Step::End),
            lines::Read::TooLong => {
                record.line = lines.number();
                return Ok(Step::Bad(lines::too_long()));
            }
            lines::Read::Line => {}
        }
        record.line = lines.number();
        let end = lines::content_len(&record.key);
        record.key.truncate(end);
        if record.key.is_empty() {
            continue;
        }
        if mapping.hex {
            match crate::text::unhex(&record.key) {
                Ok(key) => record.key = key,
                Err(why) => return Ok(Step::Bad(why)),
            }
        }
        return Ok(Step::Record);
    }
}

fn check_lengths(record: &Record) -> Step {
    use cairn::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
    if record.key.len() > MAX_KEY_LEN {
        return Step::Bad(format!("the key has {} bytes; the limit is {MAX_KEY_LEN}", record.key.len()));
    }
    if record.value.len() > MAX_VALUE_LEN {
        return Step::Bad(format!(
            "the value has {} bytes; the limit is {MAX_VALUE_LEN}",
            record.value.len()
        ));
    }
    Step::Record
}

#[cfg(test)]
mod tests;
