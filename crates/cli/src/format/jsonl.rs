//! JSON lines: one object per line.
//!
//! Without a mapping, reads the fields `key` and `value`, or `key_hex` and `value_hex` for bytes in hexadecimal. A
//! string stands for its text. Any other JSON value, used as a value, stands for its JSON text.

use super::lines::{self, Lines, Read, content_len};
use super::record::{Mapping, Record, Step};
use crate::text::unhex;
use crate::times::{TimeUnit, parse_expiry_of_record, parse_time_of_record};
use cairn::Time;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead};

/// Reads objects.
pub struct Jsonl {
    mapping: Mapping,
    line: Vec<u8>,
}

/// The fields of one object, in order, with their values unparsed.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields<'de>, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry::<String, &'de RawValue>()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl<'a> Fields<'a> {
    /// If a field occurs several times, the last one wins, as in most JSON parsers.
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(n, _)| n == name).map(|(_, value)| *value)
    }

    fn only(&self, names: &[&str]) -> bool {
        self.0.iter().all(|(n, _)| names.contains(&n.as_str()))
    }
}

impl Jsonl {
    /// A reader of objects.
    pub fn new(mapping: Mapping) -> Jsonl {
        Jsonl { mapping, line: Vec::new() }
    }

    /// Fills `record` with the next object.
    pub fn next<R: BufRead>(&mut self, lines: &mut Lines<R>, record: &mut Record) -> io::Result<Step> {
        loop {
            self.line.clear();
            let read = lines.append_line(&mut self.line)?;
            record.line = lines.number();
            match read {
                Read::Line => {}
                Read::TooLong => return Ok(Step::Bad(lines::too_long())),
                Read::End => return Ok(Step::End),
            }
            self.line.drain(..lines::mark_len(&self.line, lines.number()));
            self.line.truncate(content_len(&self.line));
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Ok(match self.fill(record) {
                Ok(()) => Step::Record,
                Err(why) => Step::Bad(why),
            });
        }
    }

    fn fill(&self, record: &mut Record) -> Result<(), String> {
        let fields: Fields<'_> = serde_json::from_slice(&self.line).map_err(|e| {
            // The parser sees one line only, so drop its line number and keep the column.
            let text = e.to_string();
            let what = text.split(" at line ").next().unwrap_or(&text);
            format!("not a JSON object: {what}, column {}", e.column())
        })?;
        record.key.clear();
        record.value.clear();
        record.is_delete = false;
        let time = if self.mapping.versions { Some("time") } else { self.mapping.time.as_deref() };
        record.time = time.map(|name| self.time(&fields, name, parse_time_of_record)).transpose()?;
        let expiry = self.mapping.expiry.as_deref();
        record.expiry = expiry.map(|name| self.time(&fields, name, parse_expiry_of_record)).transpose()?;
        if self.mapping.versions {
            self.field_into(&mut record.key, &fields, "key", true)?;
            record.is_delete = fields.get("value").is_some_and(|raw| raw.get() == "null");
            if !record.is_delete && fields.get("expiry").is_some() {
                record.expiry = Some(self.time(&fields, "expiry", parse_time_of_record)?);
            }
            return match record.is_delete {
                true => Ok(()),
                false => self.field_into(&mut record.value, &fields, "value", false),
            };
        }
        if self.mapping.key.is_empty() {
            self.field_into(&mut record.key, &fields, "key", true)?;
        }
        for (i, name) in self.mapping.key.iter().enumerate() {
            if i > 0 {
                record.key.extend_from_slice(self.mapping.separator.as_bytes());
            }
            self.field_into(&mut record.key, &fields, name, true)?;
        }
        let times = [time.unwrap_or("key"), expiry.unwrap_or("key")];
        let names = ["key", "key_hex", "value", "value_hex", times[0], times[1]];
        let pair = self.mapping.key.is_empty() && fields.only(&names);
        match &self.mapping.value {
            Some(name) => self.field_into(&mut record.value, &fields, name, false),
            None if pair => self.field_into(&mut record.value, &fields, "value", false),
            None => {
                record.value.extend_from_slice(&self.line);
                Ok(())
            }
        }
    }

    /// The time in field `name`.
    fn time(
        &self,
        fields: &Fields<'_>,
        name: &str,
        parse: fn(&str, TimeUnit) -> Result<Time, String>,
    ) -> Result<Time, String> {
        let json = fields.get(name).ok_or_else(|| format!("there is no field {name:?}"))?.get();
        let text: Cow<'_, str> = match json.starts_with('"') {
            true => serde_json::from_str::<String>(json).map_err(|e| format!("field {name:?}: {e}"))?.into(),
            false => json.into(),
        };
        parse(&text, self.mapping.time_unit).map_err(|why| format!("field {name:?}: {why}"))
    }

    /// Appends the bytes of field `name`, or of `name_hex`.
    fn field_into(
        &self,
        out: &mut Vec<u8>,
        fields: &Fields<'_>,
        name: &str,
        is_key: bool,
    ) -> Result<(), String> {
        let (raw, hex) = match (fields.get(name), fields.get(&format!("{name}_hex"))) {
            (Some(raw), _) => (raw, self.mapping.hex),
            (None, Some(raw)) => (raw, true),
            (None, None) if self.mapping.key.is_empty() && is_key => {
                return Err("there is no field \"key\"; name the one to use with --key".into());
            }
            (None, None) => return Err(format!("there is no field {name:?}")),
        };
        let json = raw.get();
        let text = match json.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<String>(json).map_err(|e| format!("field {name:?}: {e}"))?,
            Some(b'{' | b'[' | b'n') if is_key => {
                return Err(format!("field {name:?}: a key is a string or a number"));
            }
            _ => json.to_string(),
        };
        match hex {
            true => out
                .extend_from_slice(&unhex(text.as_bytes()).map_err(|why| format!("field {name:?}: {why}"))?),
            false => out.extend_from_slice(text.as_bytes()),
        }
        Ok(())
    }
}
