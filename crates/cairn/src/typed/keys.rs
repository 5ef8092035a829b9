//! Encodings of keys that keep the order of the values: bytes compare as the values do.

/// What can be encoded as a key, or as the beginning of one.
///
/// The encoding must keep the order: `a < b` if and only if the bytes of `a` are less than those of `b`. And none may be the beginning of another
/// one of the same type, so that elements can follow each other in a tuple.
pub trait EncodeKey {
    /// Appends the encoding.
    fn encode_key(&self, out: &mut Vec<u8>);
}

/// A type of keys. See the [module](super) for the encodings of the types that have one.
///
/// ```
/// use cairn::typed::{EncodeKey, Key};
///
/// #[derive(Debug, PartialEq)]
/// struct Celsius(f64);
///
/// impl EncodeKey for Celsius {
///     fn encode_key(&self, out: &mut Vec<u8>) {
///         self.0.encode_key(out);
///     }
/// }
///
/// impl Key for Celsius {
///     type Borrowed = Self;
///
///     fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
///         f64::decode_key(bytes).map(Celsius)
///     }
/// }
///
/// let bytes = |key: &Celsius| key.to_bytes();
/// assert!(bytes(&Celsius(-3.5)) < bytes(&Celsius(20.0)));
/// assert_eq!(Celsius::from_bytes(&bytes(&Celsius(20.0))), Some(Celsius(20.0)));
/// ```
pub trait Key: EncodeKey + Sized {
    /// What stands for a key in calls that only encode it, with the same encoding: `str` for `String`, `[u8]` for `Vec<u8>`, and otherwise the
    /// type itself.
    type Borrowed: EncodeKey + ?Sized;

    /// Takes a key from the beginning of `bytes`; `None` if there is none of this type. What is decoded must be encoded as the bytes were that were
    /// taken.
    fn decode_key(bytes: &mut &[u8]) -> Option<Self>;

    /// The encoding, as bytes of their own.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_key(&mut out);
        out
    }

    /// The key with this encoding, which takes all bytes.
    fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let key = Self::decode_key(&mut bytes)?;
        bytes.is_empty().then_some(key)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

macro_rules! unsigned {
    ($($number:ty),*) => {$(
        impl EncodeKey for $number {
            fn encode_key(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }

        impl Key for $number {
            type Borrowed = Self;

            fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
                take(bytes).map(<$number>::from_be_bytes)
            }
        }
    )*};
}

macro_rules! signed {
    ($($number:ty as $unsigned:ty),*) => {$(
        impl EncodeKey for $number {
            fn encode_key(&self, out: &mut Vec<u8>) {
                // The sign bit flipped: negative numbers come first.
                (self.cast_unsigned() ^ <$number>::MIN.cast_unsigned()).encode_key(out);
            }
        }

        impl Key for $number {
            type Borrowed = Self;

            fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
                let number = <$unsigned>::decode_key(bytes)?;
                Some((number ^ <$number>::MIN.cast_unsigned()).cast_signed())
            }
        }
    )*};
}

macro_rules! floats {
    ($($float:ty as $bits:ty, $nan:literal;)*) => {$(
        impl EncodeKey for $float {
            fn encode_key(&self, out: &mut Vec<u8>) {
                let number = match self {
                    number if number.is_nan() => <$float>::from_bits($nan),
                    // Also -0.0, which is equal.
                    number if *number == 0.0 => 0.0,
                    number => *number,
                };
                let (bits, sign) = (number.to_bits(), 1 << (<$bits>::BITS - 1));
                // The greater a negative number, the less its bits.
                (if bits & sign == 0 { bits | sign } else { !bits }).encode_key(out);
            }
        }

        impl Key for $float {
            type Borrowed = Self;

            fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
                let (bits, sign) = (<$bits>::decode_key(bytes)?, 1 << (<$bits>::BITS - 1));
                let number = <$float>::from_bits(if bits & sign == 0 { !bits } else { bits & !sign });
                // Others are never encoded.
                let is_other = number.is_nan() && number.to_bits() != $nan;
                (!is_other && number.to_bits() != sign).then_some(number)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128);
signed!(i8 as u8, i16 as u16, i32 as u32, i64 as u64, i128 as u128);
floats! {
    f32 as u32, 0x7fc0_0000;
    f64 as u64, 0x7ff8_0000_0000_0000;
}

impl EncodeKey for bool {
    fn encode_key(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
}

impl Key for bool {
    type Borrowed = Self;

    fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl EncodeKey for char {
    fn encode_key(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode_key(out);
    }
}

impl Key for char {
    type Borrowed = Self;

    fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
        u32::decode_key(bytes).and_then(char::from_u32)
    }
}

/// What ends a string of bytes. A zero in the string is followed by a one, so that it is greater than the end.
const END: [u8; 2] = [0, 0];
const ZERO: [u8; 2] = [0, 1];

impl EncodeKey for [u8] {
    fn encode_key(&self, out: &mut Vec<u8>) {
        let mut parts = self.split(|byte| *byte == 0);
        out.extend_from_slice(parts.next().unwrap_or_default());
        for part in parts {
            out.extend_from_slice(&ZERO);
            out.extend_from_slice(part);
        }
        out.extend_from_slice(&END);
    }
}

impl EncodeKey for Vec<u8> {
    fn encode_key(&self, out: &mut Vec<u8>) {
        self[..].encode_key(out);
    }
}

impl Key for Vec<u8> {
    type Borrowed = [u8];

    fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
        let mut key = Vec::new();
        loop {
            let at = bytes.iter().position(|byte| *byte == 0)?;
            key.extend_from_slice(&bytes[..at]);
            *bytes = &bytes[at..];
            match take(bytes)? {
                END => return Some(key),
                ZERO => key.push(0),
                _ => return None,
            }
        }
    }
}

impl EncodeKey for str {
    fn encode_key(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode_key(out);
    }
}

impl EncodeKey for String {
    fn encode_key(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode_key(out);
    }
}

impl Key for String {
    type Borrowed = str;

    fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
        String::from_utf8(Vec::decode_key(bytes)?).ok()
    }
}

impl<const N: usize> EncodeKey for [u8; N] {
    fn encode_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> Key for [u8; N] {
    type Borrowed = Self;

    fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes)
    }
}

impl<T: EncodeKey> EncodeKey for Option<T> {
    fn encode_key(&self, out: &mut Vec<u8>) {
        out.push(self.is_some().into());
        if let Some(key) = self {
            key.encode_key(out);
        }
    }
}

impl<T: Key> Key for Option<T> {
    type Borrowed = Self;

    fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
        match bool::decode_key(bytes)? {
            false => Some(None),
            true => T::decode_key(bytes).map(Some),
        }
    }
}

impl<T: EncodeKey + ?Sized> EncodeKey for &T {
    fn encode_key(&self, out: &mut Vec<u8>) {
        (**self).encode_key(out);
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        #[allow(non_snake_case, unused_variables, clippy::unused_unit)]
        impl<$($name: EncodeKey),*> EncodeKey for ($($name,)*) {
            fn encode_key(&self, out: &mut Vec<u8>) {
                let ($($name,)*) = self;
                $($name.encode_key(out);)*
            }
        }

        #[allow(unused_variables, clippy::unused_unit)]
        impl<$($name: Key),*> Key for ($($name,)*) {
            type Borrowed = Self;

            fn decode_key(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($name::decode_key(bytes)?,)*))
            }
        }
    )*};
}

tuples! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}
