//! Encodings of values: a byte that tells the type, and the value.

use base::Result;

/// What can be encoded as a value.
pub trait EncodeValue {
    /// Appends the encoding.
    ///
    /// # Errors
    /// `InvalidArgument` if the value cannot be encoded. None of the types of this crate has such values, but those of serde may.
    fn encode_value(&self, out: &mut Vec<u8>) -> Result<()>;
}

/// A type of values. See the [module](super) for the encodings of the types that have one.
pub trait Value: EncodeValue + Sized {
    /// What stands for a value in calls that only encode it: as [`Key::Borrowed`](super::Key::Borrowed).
    type Borrowed: EncodeValue + ?Sized;

    /// The name of the type, for errors.
    const NAME: &'static str;

    /// The value with this encoding; `None` if it is one of another type, or malformed.
    fn decode_value(bytes: &[u8]) -> Option<Self>;
}

/// The first byte of a value: its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    Int = 1,
    Double = 2,
    Float = 3,
    Bool = 4,
    String = 5,
    Bytes = 6,
    #[cfg(feature = "typed-serde")]
    Serde = 7,
}

impl Tag {
    /// What follows the tag.
    fn strip(self, bytes: &[u8]) -> Option<&[u8]> {
        bytes.split_first().filter(|(tag, _)| **tag == self as u8).map(|(_, rest)| rest)
    }

    fn put(self, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.push(self as u8);
        out.extend_from_slice(value);
        Ok(())
    }
}

macro_rules! numbers {
    ($($number:ty, $tag:ident, $name:literal;)*) => {$(
        impl EncodeValue for $number {
            fn encode_value(&self, out: &mut Vec<u8>) -> Result<()> {
                Tag::$tag.put(&self.to_le_bytes(), out)
            }
        }

        impl Value for $number {
            type Borrowed = Self;

            const NAME: &'static str = $name;

            fn decode_value(bytes: &[u8]) -> Option<Self> {
                Tag::$tag.strip(bytes)?.try_into().ok().map(<$number>::from_le_bytes)
            }
        }
    )*};
}

numbers! {
    i64, Int, "int";
    f64, Double, "double";
    f32, Float, "float";
}

impl EncodeValue for bool {
    fn encode_value(&self, out: &mut Vec<u8>) -> Result<()> {
        Tag::Bool.put(&[(*self).into()], out)
    }
}

impl Value for bool {
    type Borrowed = Self;

    const NAME: &'static str = "bool";

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        match Tag::Bool.strip(bytes)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl EncodeValue for str {
    fn encode_value(&self, out: &mut Vec<u8>) -> Result<()> {
        Tag::String.put(self.as_bytes(), out)
    }
}

impl EncodeValue for String {
    fn encode_value(&self, out: &mut Vec<u8>) -> Result<()> {
        self[..].encode_value(out)
    }
}

impl Value for String {
    type Borrowed = str;

    const NAME: &'static str = "string";

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(Tag::String.strip(bytes)?).ok().map(str::to_owned)
    }
}

impl EncodeValue for [u8] {
    fn encode_value(&self, out: &mut Vec<u8>) -> Result<()> {
        Tag::Bytes.put(self, out)
    }
}

impl EncodeValue for Vec<u8> {
    fn encode_value(&self, out: &mut Vec<u8>) -> Result<()> {
        self[..].encode_value(out)
    }
}

impl Value for Vec<u8> {
    type Borrowed = [u8];

    const NAME: &'static str = "bytes";

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        Tag::Bytes.strip(bytes).map(<[u8]>::to_vec)
    }
}

/// A value of one of the types that have a tag of their own, whichever it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AnyValue {
    /// `i64`.
    Int(i64),
    /// `f64`.
    Double(f64),
    /// `f32`.
    Float(f32),
    /// `bool`.
    Bool(bool),
    /// `String`.
    String(String),
    /// `Vec<u8>`.
    Bytes(Vec<u8>),
}

impl EncodeValue for AnyValue {
    fn encode_value(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            AnyValue::Int(value) => value.encode_value(out),
            AnyValue::Double(value) => value.encode_value(out),
            AnyValue::Float(value) => value.encode_value(out),
            AnyValue::Bool(value) => value.encode_value(out),
            AnyValue::String(value) => value.encode_value(out),
            AnyValue::Bytes(value) => value.encode_value(out),
        }
    }
}

impl Value for AnyValue {
    type Borrowed = Self;

    const NAME: &'static str = "int, double, float, bool, string or bytes";

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        None.or_else(|| i64::decode_value(bytes).map(AnyValue::Int))
            .or_else(|| f64::decode_value(bytes).map(AnyValue::Double))
            .or_else(|| f32::decode_value(bytes).map(AnyValue::Float))
            .or_else(|| bool::decode_value(bytes).map(AnyValue::Bool))
            .or_else(|| String::decode_value(bytes).map(AnyValue::String))
            .or_else(|| Vec::decode_value(bytes).map(AnyValue::Bytes))
    }
}

/// A value of any type that `serde` can serialize and `postcard` can read back, in the format of the latter: see the [module](super) for what it
/// cannot read. The bytes do not tell which type it is: that is up to the application, also when a type changes.
#[cfg(feature = "typed-serde")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serde<T>(pub T);

#[cfg(feature = "typed-serde")]
impl<T: serde::Serialize> EncodeValue for Serde<T> {
    fn encode_value(&self, out: &mut Vec<u8>) -> Result<()> {
        out.push(Tag::Serde as u8);
        let failed = |e| base::Error::invalid(format!("a value cannot be serialized: {e}"));
        out.extend_from_slice(&postcard::to_allocvec(&self.0).map_err(failed)?);
        Ok(())
    }
}

#[cfg(feature = "typed-serde")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Value for Serde<T> {
    type Borrowed = Self;

    const NAME: &'static str = "serde";

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        let (value, rest) = postcard::take_from_bytes(Tag::Serde.strip(bytes)?).ok()?;
        rest.is_empty().then_some(Serde(value))
    }
}
