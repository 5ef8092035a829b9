//! Reads records of any format, and the format `lines` itself.

use super::lines::{self, Lines};
use super::record::{Format, Mapping, Record, Step};
use super::{jsonl, paragraphs, tabular};
use crate::text::unhex;
use std::io::{self, BufRead};

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
        let with_times = mapping.versions || mapping.time.is_some() || mapping.expiry.is_some();
        let kind = match format {
            Format::Tsv => Kind::Tabular(tabular::Tabular::new(tabular::Dialect::Tsv, mapping)?),
            Format::Csv => Kind::Tabular(tabular::Tabular::new(tabular::Dialect::Csv, mapping)?),
            Format::Jsonl => Kind::Jsonl(jsonl::Jsonl::new(mapping)),
            Format::Lines | Format::Paragraphs if with_times => {
                return Err("records with times are TSV, CSV or JSON lines".into());
            }
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
            match unhex(&record.key) {
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
