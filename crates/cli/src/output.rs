//! Prints records on standard output in the requested form.
//!
//! ```text
//!   text   key TAB value, escaped (see `text`): one record per line, whatever its bytes
//!   hex    the same in hexadecimal
//!   json   {"key":"...","value":"..."}; a part that is not printable UTF-8 becomes "key_hex" or "value_hex"
//! ```
//!
//! `load --format tsv` reads the text form, `load --format jsonl` the JSON form, but not what is printed with types, which is for people and other
//! programs.

use crate::args::{FormArgs, TypeArgs};
use crate::failure::Result;
use crate::text::{escape_into, hex_into};
use std::io::{self, BufWriter, StdoutLock, Write};

/// How keys and values are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Escaped text.
    Text,
    /// Hexadecimal.
    Hex,
    /// JSON objects.
    Json,
    /// JSON objects with hexadecimal fields.
    JsonHex,
}

impl From<FormArgs> for Form {
    fn from(args: FormArgs) -> Form {
        match (args.json, args.hex) {
            (false, false) => Form::Text,
            (false, true) => Form::Hex,
            (true, false) => Form::Json,
            (true, true) => Form::JsonHex,
        }
    }
}

/// Which parts of a record are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Key and value.
    Both,
    /// Only the key.
    Key,
    /// Only the value.
    Value,
}

/// Standard output with a buffer. If the reader closed the pipe, a write or the last `flush` fails.
pub fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// Formats records into its own buffer, so that a record costs no allocation.
pub struct Printer {
    form: Form,
    parts: Parts,
    types: TypeArgs,
    line: Vec<u8>,
}

impl Printer {
    /// A printer of records.
    pub fn new(form: Form, parts: Parts) -> Printer {
        Printer { form, parts, types: TypeArgs::default(), line: Vec::new() }
    }

    /// The same for keys and values of some types.
    pub fn with_types(self, types: TypeArgs) -> Printer {
        Printer { types, ..self }
    }

    /// Writes one record as one line.
    ///
    /// # Errors
    /// Those of writing; that a key or value is not of its type.
    pub fn print(&mut self, out: &mut impl Write, key: &[u8], value: &[u8]) -> Result<()> {
        self.line.clear();
        let (with_key, with_value) = (self.parts != Parts::Value, self.parts != Parts::Key);
        match self.form {
            Form::Text | Form::Hex => {
                let put = if self.form == Form::Text { escape_into } else { hex_into };
                if with_key {
                    match &self.types.key_type {
                        Some(types) => types.print(key, &mut self.line)?,
                        None => put(&mut self.line, key),
                    }
                }
                if with_key && with_value {
                    self.line.push(b'\t');
                }
                if with_value {
                    match self.types.value_type {
                        Some(value_type) => value_type.print(key, value, &mut self.line)?,
                        None => put(&mut self.line, value),
                    }
                }
            }
            Form::Json | Form::JsonHex => {
                let hex = self.form == Form::JsonHex;
                self.line.push(b'{');
                if with_key {
                    match &self.types.key_type {
                        Some(types) => typed_field(&mut self.line, "key", &types.json(key)?),
                        None => json_field(&mut self.line, "key", key, hex),
                    }
                }
                if with_key && with_value {
                    self.line.push(b',');
                }
                if with_value {
                    match self.types.value_type {
                        Some(value_type) => {
                            typed_field(&mut self.line, "value", &value_type.json(key, value)?)
                        }
                        None => json_field(&mut self.line, "value", value, hex),
                    }
                }
                self.line.push(b'}');
            }
        }
        self.line.push(b'\n');
        Ok(out.write_all(&self.line)?)
    }
}

/// Appends `"name":"text"`, or `"name_hex":"digits"` for bytes that JSON or a terminal would not preserve.
pub fn json_field(out: &mut Vec<u8>, name: &str, bytes: &[u8], hex: bool) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    match std::str::from_utf8(bytes) {
        Ok(text) if !hex && !text.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) => {
            out.extend_from_slice(b"\":");
            serde_json::to_writer(&mut *out, text).expect("writing to memory does not fail");
        }
        _ => {
            out.extend_from_slice(b"_hex\":\"");
            hex_into(out, bytes);
            out.push(b'"');
        }
    }
}

/// Appends `"name":value`.
pub fn typed_field(out: &mut Vec<u8>, name: &str, value: &serde_json::Value) {
    out.extend_from_slice(format!("\"{name}\":{value}").as_bytes());
}

/// Prints a JSON value on one line.
pub fn print_json(out: &mut impl Write, value: &serde_json::Value) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(form: Form, parts: Parts, key: &[u8], value: &[u8]) -> String {
        let mut out = Vec::new();
        Printer::new(form, parts).print(&mut out, key, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn forms() {
        assert_eq!(printed(Form::Text, Parts::Both, b"a\tb", "é".as_bytes()), "a\\tb\té\n");
        assert_eq!(printed(Form::Hex, Parts::Key, b"a\xff", b""), "61ff\n");
        assert_eq!(
            printed(Form::Json, Parts::Both, b"a\"\n", b"\xff"),
            "{\"key\":\"a\\\"\\n\",\"value_hex\":\"ff\"}\n"
        );
        assert_eq!(printed(Form::Json, Parts::Value, b"a", b"\x1b[m"), "{\"value_hex\":\"1b5b6d\"}\n");
        assert_eq!(printed(Form::JsonHex, Parts::Key, b"a", b""), "{\"key_hex\":\"61\"}\n");
    }
}
