//! Typed keys and values on the command line: `--key-type` and `--type`.
//!
//! A key of several elements is written with commas between them. Elements and values are numbers, `true` and `false`, and text with the escapes
//! of [`crate::text`], in which a comma of a string in a key is `\,`. What is printed can be given again, with the same types: `load` takes it as
//! text. Of `--type any` the types are not printed.

use crate::failure::{Failure, Result};
use crate::text::{escape_into, hex, unescape, unhex};
use cairn::typed::{AnyValue, EncodeKey, EncodeValue, Key, Value};
use clap::ValueEnum;
use serde_json::Value as Json;
use std::str::FromStr;

/// The type of a key, or of an element of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Element {
    U64,
    I64,
    U32,
    I32,
    F64,
    F32,
    Bool,
    Char,
    String,
    Bytes,
}

/// The types of the elements of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyType(Vec<Element>);

impl FromStr for KeyType {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let element = |name: &str| {
            Element::from_str(name.trim(), false).map_err(|_| {
                let names: Vec<String> =
                    Element::value_variants().iter().map(|element| element.name()).collect();
                format!("there is no type {name:?} of keys; there are {}", names.join(", "))
            })
        };
        let elements: Vec<Element> = text.split(',').map(element).collect::<std::result::Result<_, _>>()?;
        match elements.len() {
            1..=8 => Ok(KeyType(elements)),
            count => Err(format!("a key has at most 8 elements, not {count}")),
        }
    }
}

/// Splits text at commas that no backslash is before.
fn split(text: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut from, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// The text of an argument, without escapes.
fn plain(text: &[u8]) -> Result<Vec<u8>> {
    // Other escapes are those of all text; only elements have commas to escape.
    let mut without = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(2).position(|pair| pair[0] == b'\\') {
        if rest[at + 1] == b',' {
            without.extend_from_slice(&rest[..at]);
            without.push(b',');
        } else {
            without.extend_from_slice(&rest[..at + 2]);
        }
        rest = &rest[at + 2..];
    }
    without.extend_from_slice(rest);
    Ok(unescape(&without).map_err(Failure::usage)?.into_owned())
}

fn string(text: &[u8]) -> Result<String> {
    String::from_utf8(plain(text)?).map_err(|_| Failure::usage("a string is not UTF-8"))
}

/// Parses a number, `true`, `false` or a character.
fn parsed<T: FromStr>(text: &[u8], what: &str) -> Result<T> {
    let text = String::from_utf8_lossy(text);
    text.trim().parse().map_err(|_| Failure::usage(format!("{:?} is not of type {what}", text.trim())))
}

/// Parses a floating-point number. One that is too large is an error, and not infinity.
fn float_of<T: FromStr + Copy + Into<f64>>(text: &[u8], what: &str) -> Result<T> {
    let number: T = parsed(text, what)?;
    // Infinity is written without digits.
    if number.into().is_infinite() && text.iter().any(u8::is_ascii_digit) {
        let text = String::from_utf8_lossy(text);
        return Err(Failure::usage(format!("{:?} is too large for type {what}", text.trim())));
    }
    Ok(number)
}

impl KeyType {
    /// The bytes of a key, or with `part` of the first elements of one.
    pub fn encode(&self, text: &[u8], part: bool) -> Result<Vec<u8>> {
        let texts = if self.0.len() == 1 { vec![text] } else { split(text) };
        if texts.len() > self.0.len() || texts.len() < self.0.len() && !part {
            let text = format!("a key has {} elements, not {}", self.0.len(), texts.len());
            return Err(Failure::usage(text));
        }
        let mut key = Vec::new();
        for (text, element) in texts.into_iter().zip(&self.0) {
            let name = &element.name();
            match element {
                Element::U64 => parsed::<u64>(text, name)?.encode_key(&mut key),
                Element::I64 => parsed::<i64>(text, name)?.encode_key(&mut key),
                Element::U32 => parsed::<u32>(text, name)?.encode_key(&mut key),
                Element::I32 => parsed::<i32>(text, name)?.encode_key(&mut key),
                Element::F64 => float_of::<f64>(text, name)?.encode_key(&mut key),
                Element::F32 => float_of::<f32>(text, name)?.encode_key(&mut key),
                Element::Bool => parsed::<bool>(text, name)?.encode_key(&mut key),
                Element::Char => {
                    let text = string(text)?;
                    let wrong = |_| Failure::usage(format!("{text:?} is not of type char"));
                    text.parse::<char>().map_err(wrong)?.encode_key(&mut key);
                }
                Element::String => string(text)?.encode_key(&mut key),
                Element::Bytes => unhex(text).map_err(Failure::usage)?.encode_key(&mut key),
            }
        }
        Ok(key)
    }

    /// The bytes with which keys begin whose first elements are these, or in which the last of these elements, if it is text, begins like this; a
    /// comma at the end says that it does not go on.
    pub fn encode_prefix(&self, text: &[u8]) -> Result<Vec<u8>> {
        let mut texts = split(text);
        let is_whole =
            self.0.len() > 1 && texts.len() > 1 && texts.last().is_some_and(|last| last.is_empty());
        if is_whole {
            texts.pop();
        }
        let count = if self.0.len() == 1 { 1 } else { texts.len() };
        let mut key = self.encode(if is_whole { &text[..text.len() - 1] } else { text }, true)?;
        let is_text = matches!(self.0.get(count - 1), Some(Element::String | Element::Bytes));
        if is_text && !is_whole {
            // Without what ends it.
            key.truncate(key.len() - 2);
        }
        Ok(key)
    }

    /// The elements of a key; `None` if it is of other types.
    fn decode(&self, mut key: &[u8]) -> Option<Vec<Json>> {
        let left = &mut key;
        let mut elements = Vec::new();
        for element in &self.0 {
            elements.push(match element {
                Element::U64 => u64::decode_key(left)?.into(),
                Element::I64 => i64::decode_key(left)?.into(),
                Element::U32 => u32::decode_key(left)?.into(),
                Element::I32 => i32::decode_key(left)?.into(),
                Element::F64 => float(f64::decode_key(left)?),
                Element::F32 => narrow(f32::decode_key(left)?),
                Element::Bool => bool::decode_key(left)?.into(),
                Element::Char => char::decode_key(left)?.to_string().into(),
                Element::String => String::decode_key(left)?.into(),
                Element::Bytes => hex(&Vec::decode_key(left)?).into(),
            });
        }
        left.is_empty().then_some(elements)
    }

    /// A key as JSON: the element, or a list of several.
    pub fn json(&self, key: &[u8]) -> Result<Json> {
        let mut elements = self.decode(key).ok_or_else(|| wrong_key(key))?;
        Ok(if elements.len() == 1 { elements.remove(0) } else { elements.into() })
    }

    /// Appends a key as text.
    pub fn print(&self, key: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let elements = self.decode(key).ok_or_else(|| wrong_key(key))?;
        for (i, element) in elements.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            print_json_as_text(element, self.0.len() > 1, out);
        }
        Ok(())
    }
}

impl Element {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn wrong_key(key: &[u8]) -> Failure {
    let what = format!("key {} is not of this --key-type", crate::text::escape_short(key, 100));
    Failure::from(cairn::Error::new(cairn::ErrorKind::WrongType, what))
}

/// A number that JSON has, or its name.
fn float(number: f64) -> Json {
    serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Json::Number)
}

/// The same with the digits that tell the number from other `f32`.
fn narrow(number: f32) -> Json {
    match number.is_finite() {
        true => float(number.to_string().parse().unwrap_or_else(|_| number.into())),
        false => number.to_string().into(),
    }
}

/// Appends a string with escapes (`commas` among them), or another value as it is.
fn print_json_as_text(value: &Json, commas: bool, out: &mut Vec<u8>) {
    let Json::String(text) = value else { return out.extend_from_slice(value.to_string().as_bytes()) };
    for (i, part) in text.split(',').enumerate() {
        if i > 0 {
            out.extend_from_slice(if commas { b"\\," } else { b"," });
        }
        escape_into(out, part.as_bytes());
    }
}

/// The type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ValueType {
    /// 64 bits, with a sign
    Int,
    /// 64 bits, floating point
    Double,
    /// 32 bits, floating point
    Float,
    /// true or false
    Bool,
    /// UTF-8
    String,
    /// Bytes, in hexadecimal
    Bytes,
    /// Any of them, for commands that print
    Any,
}

impl ValueType {
    /// The bytes of a value that is an argument: a string has the escapes with which it is printed.
    pub fn encode_argument(self, text: &[u8]) -> Result<Vec<u8>> {
        match self {
            ValueType::String => self.encode(&unescape(text).map_err(Failure::usage)?),
            _ => self.encode(text),
        }
    }

    /// The bytes of a value, with strings as they are.
    pub fn encode(self, text: &[u8]) -> Result<Vec<u8>> {
        let value = match self {
            ValueType::Int => AnyValue::Int(parsed(text, "int")?),
            ValueType::Double => AnyValue::Double(float_of(text, "double")?),
            ValueType::Float => AnyValue::Float(float_of(text, "float")?),
            ValueType::Bool => AnyValue::Bool(parsed(text, "bool")?),
            ValueType::String => match std::str::from_utf8(text) {
                Ok(text) => AnyValue::String(text.to_owned()),
                Err(_) => return Err(Failure::usage("a string is not UTF-8")),
            },
            ValueType::Bytes => AnyValue::Bytes(unhex(text.trim_ascii()).map_err(Failure::usage)?),
            ValueType::Any => return Err(Failure::usage("--type any is for commands that print values")),
        };
        let mut out = Vec::new();
        value.encode_value(&mut out)?;
        Ok(out)
    }

    fn decode(self, key: &[u8], bytes: &[u8]) -> Result<AnyValue> {
        let value = AnyValue::decode_value(bytes).filter(|value| {
            let is = match value {
                AnyValue::Int(_) => ValueType::Int,
                AnyValue::Double(_) => ValueType::Double,
                AnyValue::Float(_) => ValueType::Float,
                AnyValue::Bool(_) => ValueType::Bool,
                AnyValue::String(_) => ValueType::String,
                _ => ValueType::Bytes,
            };
            self == ValueType::Any || self == is
        });
        value.ok_or_else(|| {
            let key = crate::text::escape_short(key, 100);
            let what = format!("key {key}: its value is not of this --type");
            Failure::from(cairn::Error::new(cairn::ErrorKind::WrongType, what))
        })
    }

    /// The value of a key as JSON.
    pub fn json(self, key: &[u8], bytes: &[u8]) -> Result<Json> {
        Ok(match self.decode(key, bytes)? {
            AnyValue::Int(value) => value.into(),
            AnyValue::Double(value) => float(value),
            AnyValue::Float(value) => narrow(value),
            AnyValue::Bool(value) => value.into(),
            AnyValue::String(value) => value.into(),
            AnyValue::Bytes(value) => hex(&value).into(),
            _ => Json::Null,
        })
    }

    /// Appends the value of a key as text.
    pub fn print(self, key: &[u8], bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        print_json_as_text(&self.json(key, bytes)?, false, out);
        Ok(())
    }
}
