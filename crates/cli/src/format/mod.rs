//! The text formats that `load` reads and `dump` writes, bytes all the way: nothing here needs UTF-8 except JSON.
//!
//! ```text
//!   tsv         fields separated by tabs; \t \n \r \\ \xHH inside them (see `text`)
//!   csv         RFC 4180: commas, "quoted" fields, quotes doubled, line ends inside quotes; the first line is a header
//!   jsonl       one object a line
//!   lines       each line is a key, with an empty value
//!   paragraphs  records separated by empty lines, with "Field: value" lines inside: a Debian package index, for one
//! ```
//!
//! What becomes of a record: the *key* comes from one or more named fields; the *value* is the field that was named, or
//! the other one where there are exactly two (`key` and `value` in JSON), or else the whole record in its original form,
//! without the end of the line, so that nothing is lost.
//!
//! Guarantee: what [`Writer`] writes, [`Reader`] reads back as the same keys and values, byte for byte; what a format
//! cannot carry, the writer refuses.

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
    /// One JSON object a line
    Jsonl,
    /// One key a line, no values
    Lines,
    /// Records of `Field: value` lines, separated by empty lines
    Paragraphs,
}

impl Format {
    /// The format that a file name's extension tells.
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

/// How records become keys and values.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// Fields that make up the key; none takes the first (`key` in JSON).
    pub key: Vec<String>,
    /// What is put between several of them.
    pub separator: String,
    /// The field that is the value.
    pub value: Option<String>,
    /// Whether the first line names the columns; `None` follows the format.
    pub header: Option<bool>,
    /// TSV: take backslashes as they are.
    pub no_escapes: bool,
    /// Keys and values are hexadecimal.
    pub hex: bool,
}

/// A key and a value on their way in. The buffers are used again for every record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The line on which it starts; the first is 1.
    pub line: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// What came of reading on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The record was filled.
    Record,
    /// The line named in the record cannot be used, and why.
    Bad(String),
    /// The mapping does not fit what the first line says: no record can be read.
    Unfit(String),
    /// Nothing is left.
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
    /// Reads `input` as `format`. A mapping that the format cannot follow is refused here.
    pub fn new(input: R, format: Format, mapping: Mapping) -> Result<Reader<R>, String> {
        let kind = match format {
            Format::Tsv => Kind::Tabular(tabular::Tabular::new(tabular::Dialect::Tsv, mapping)?),
            Format::Csv => Kind::Tabular(tabular::Tabular::new(tabular::Dialect::Csv, mapping)?),
            Format::Jsonl => Kind::Jsonl(jsonl::Jsonl::new(mapping)),
            Format::Paragraphs if mapping.hex => {
                return Err("paragraphs are read as they are: --hex has no meaning for them".into());
            }
            Format::Paragraphs => Kind::Paragraphs(paragraphs::Paragraphs::new(mapping)),
            Format::Lines if !mapping.key.is_empty() || mapping.value.is_some() => {
                return Err("lines have no fields to name with --key or --value".into());
            }
            Format::Lines => Kind::Lines(mapping),
        };
        Ok(Reader { lines: Lines::new(input), kind })
    }

    /// Fills `record` with the next record. After `Bad`, reading goes on with the next one.
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

/// `lines`: empty ones are passed over.
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
