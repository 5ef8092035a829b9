//! Writes records in any format.

use super::paragraphs;
use super::record::{Format, Mapping};
use super::tabular::{EXPIRY_COLUMNS, UNTIL, VERSION_COLUMNS};
use crate::output::json_field;
use crate::text::{escape_into, escape_short, hex_into};
use crate::times::{format_expiry, format_time};
use cairn::Time;
use std::io::{self, Write};

/// Writes records so that a [`super::Reader`] of the same format reads back the same keys and values.
pub struct Writer {
    format: Format,
    mapping: Mapping,
    started: bool,
    line: Vec<u8>,
    scratch: Vec<u8>,
}

/// Why a record was not written.
#[derive(Debug)]
pub enum Unwritten {
    /// The format cannot express this record.
    Refused(String),
    /// Writing failed.
    Io(io::Error),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Unwritten {
        Unwritten::Io(error)
    }
}

impl Writer {
    /// A writer. Uses `hex` of the mapping, and for paragraphs its key: the key is not written but must follow from
    /// the value.
    pub fn new(format: Format, mapping: Mapping) -> Writer {
        Writer { format, mapping, started: false, line: Vec::new(), scratch: Vec::new() }
    }

    /// Writes one version; `value`: `None` for a delete. The mapping says that records are versions.
    pub fn write_version(
        &mut self,
        out: &mut impl Write,
        key: &[u8],
        time: Time,
        value: Option<&[u8]>,
        expiry: Option<Time>,
    ) -> Result<(), Unwritten> {
        let expiry = expiry.filter(|_| value.is_some());
        let operation = match (value, expiry) {
            (None, _) => "delete".into(),
            (Some(_), None) => "put".into(),
            (Some(_), Some(expiry)) => format!("{UNTIL}{}", format_time(expiry)),
        };
        self.write_timed(out, key, ("time", &format_time(time)), Some(&operation), value, expiry)
    }

    /// Writes one record with its expiry. The mapping names a field for it.
    pub fn write_expiring(
        &mut self,
        out: &mut impl Write,
        key: &[u8],
        expiry: Option<Time>,
        value: &[u8],
    ) -> Result<(), Unwritten> {
        self.write_timed(out, key, ("expiry", &format_expiry(expiry)), None, Some(value), None)
    }

    /// Writes a record with a field for a time behind the key. `operation`: another column, for which JSON has the value and `expiry`.
    fn write_timed(
        &mut self,
        out: &mut impl Write,
        key: &[u8],
        (name, time): (&str, &str),
        operation: Option<&str>,
        value: Option<&[u8]>,
        expiry: Option<Time>,
    ) -> Result<(), Unwritten> {
        self.start(out)?;
        self.line.clear();
        let hex = self.mapping.hex;
        match self.format {
            Format::Tsv | Format::Csv => {
                self.put_field(key);
                for text in [Some(time), operation].into_iter().flatten() {
                    self.put_separator();
                    self.line.extend_from_slice(text.as_bytes());
                }
                self.put_separator();
                self.put_field(value.unwrap_or_default());
            }
            Format::Jsonl => {
                self.line.push(b'{');
                json_field(&mut self.line, "key", key, hex);
                self.line.push(b',');
                json_field(&mut self.line, name, time.as_bytes(), false);
                self.line.push(b',');
                if let Some(expiry) = expiry {
                    json_field(&mut self.line, "expiry", format_time(expiry).as_bytes(), false);
                    self.line.push(b',');
                }
                match value {
                    Some(value) => json_field(&mut self.line, "value", value, hex),
                    None => self.line.extend_from_slice(b"\"value\":null"),
                }
                self.line.push(b'}');
            }
            Format::Lines | Format::Paragraphs => {
                let why = "a history, or expiries, can be written as TSV, CSV or JSON lines";
                return Err(Unwritten::Refused(why.into()));
            }
        }
        self.line.push(b'\n');
        Ok(out.write_all(&self.line)?)
    }

    /// Writes one record.
    pub fn write(&mut self, out: &mut impl Write, key: &[u8], value: &[u8]) -> Result<(), Unwritten> {
        self.start(out)?;
        self.line.clear();
        match self.format {
            Format::Tsv | Format::Csv => {
                self.put_field(key);
                self.put_separator();
                self.put_field(value);
            }
            Format::Jsonl => {
                self.line.push(b'{');
                json_field(&mut self.line, "key", key, self.mapping.hex);
                self.line.push(b',');
                json_field(&mut self.line, "value", value, self.mapping.hex);
                self.line.push(b'}');
            }
            Format::Lines => self.put_line(key, value).map_err(Unwritten::Refused)?,
            Format::Paragraphs => self.put_paragraph(key, value).map_err(Unwritten::Refused)?,
        }
        self.line.push(b'\n');
        Ok(out.write_all(&self.line)?)
    }

    /// Ends the output. Even without records, the output can be loaded.
    pub fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.format != Format::Paragraphs {
            self.start(out)?;
        }
        out.flush()
    }

    fn start(&mut self, out: &mut impl Write) -> io::Result<()> {
        match (self.format, std::mem::replace(&mut self.started, true)) {
            (Format::Csv, false) if self.mapping.versions => writeln!(out, "{}", VERSION_COLUMNS.join(",")),
            (Format::Csv, false) if self.mapping.expiry.is_some() => {
                writeln!(out, "{}", EXPIRY_COLUMNS.join(","))
            }
            (Format::Csv, false) => out.write_all(b"key,value\n"),
            (Format::Paragraphs, true) => out.write_all(b"\n"),
            _ => Ok(()),
        }
    }

    /// A column of TSV or CSV.
    fn put_field(&mut self, bytes: &[u8]) {
        match self.format {
            _ if self.mapping.hex => hex_into(&mut self.line, bytes),
            Format::Tsv => escape_into(&mut self.line, bytes),
            _ => quote_into(&mut self.line, bytes),
        }
    }

    fn put_separator(&mut self) {
        self.line.push(if self.format == Format::Tsv { b'\t' } else { b',' });
    }

    fn put_line(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        if !value.is_empty() {
            return Err(format!("key {} has a value, and `lines` have none", quoted(key)));
        }
        if self.mapping.hex && !key.is_empty() {
            hex_into(&mut self.line, key);
            return Ok(());
        }
        if key.is_empty() || key.contains(&b'\n') || key.ends_with(b"\r") {
            return Err(format!("key {} is not one line", quoted(key)));
        }
        self.line.extend_from_slice(key);
        Ok(())
    }

    fn put_paragraph(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let mut lines = value.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
        if lines.any(<[u8]>::is_empty) || value.ends_with(b"\r") {
            return Err(format!("the value of key {} is not one paragraph", quoted(key)));
        }
        self.scratch.clear();
        paragraphs::key_into(&mut self.scratch, value, &self.mapping)
            .map_err(|why| format!("the value of key {}: {why}", quoted(key)))?;
        if self.scratch != key {
            return Err(format!(
                "the value of key {} says that its key is {}; name the fields of the key with --key",
                quoted(key),
                quoted(&self.scratch)
            ));
        }
        self.line.extend_from_slice(value);
        Ok(())
    }
}

fn quoted(key: &[u8]) -> String {
    format!("\"{}\"", escape_short(key, 80))
}

/// Appends a CSV field, quoted if needed.
fn quote_into(out: &mut Vec<u8>, field: &[u8]) {
    if !field.iter().any(|b| matches!(b, b',' | b'"' | b'\n' | b'\r')) {
        return out.extend_from_slice(field);
    }
    out.push(b'"');
    for part in field.split_inclusive(|b| *b == b'"') {
        out.extend_from_slice(part);
        if part.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}
