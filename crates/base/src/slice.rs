//! [`Slice`]: shared, immutable bytes, with which reads return keys and values without copying them.

use bytes::Bytes;
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

/// A shared, immutable run of bytes: the value type that reads return.
///
/// A slice usually borrows from a cached block instead of copying. So a slice is cheap to create and to clone (one
/// atomic increment), and it keeps the whole block in memory while it lives. To hold a few bytes for a long time,
/// copy them (`to_vec`, by way of `Deref`).
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice(Bytes);

impl Slice {
    /// Copies `bytes` into a slice of their own.
    pub fn copy_from(bytes: &[u8]) -> Self {
        Slice(Bytes::copy_from_slice(bytes))
    }

    /// A slice of `part`, which must lie inside `self`, without copying.
    ///
    /// # Panics
    /// When `part` is not a sub-slice of `self`.
    #[inline]
    pub fn slice_of(&self, part: &[u8]) -> Slice {
        Slice(self.0.slice_ref(part))
    }
}

impl Deref for Slice {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Slice(bytes.into())
    }
}

impl From<&str> for Slice {
    fn from(text: &str) -> Slice {
        Slice::copy_from(text.as_bytes())
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        Slice::copy_from(bytes)
    }
}

macro_rules! equal_to {
    ($($other:ty),*) => {$(
        impl PartialEq<$other> for Slice {
            fn eq(&self, other: &$other) -> bool {
                let other: &[u8] = other.as_ref();
                &self[..] == other
            }
        }
    )*};
}
equal_to!([u8], &[u8], str, &str, Vec<u8>, String);

impl<const N: usize> PartialEq<[u8; N]> for Slice {
    fn eq(&self, other: &[u8; N]) -> bool {
        self[..] == other[..]
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Slice {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self[..] == other[..]
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
