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

#[cfg(feature = "serde")]
impl serde::Serialize for Slice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
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

impl From<Bytes> for Slice {
    /// Without copying.
    fn from(bytes: Bytes) -> Slice {
        Slice(bytes)
    }
}

impl From<Slice> for Bytes {
    /// Without copying: the bytes keep in memory what the slice keeps.
    fn from(slice: Slice) -> Bytes {
        slice.0
    }
}

impl From<Slice> for Vec<u8> {
    /// Copies, unless the slice is the only one of bytes of its own.
    fn from(slice: Slice) -> Vec<u8> {
        slice.0.into()
    }
}

impl From<Box<[u8]>> for Slice {
    fn from(bytes: Box<[u8]>) -> Slice {
        Slice(bytes.into())
    }
}

impl From<String> for Slice {
    fn from(text: String) -> Slice {
        Slice(text.into())
    }
}

impl<const N: usize> From<&[u8; N]> for Slice {
    fn from(bytes: &[u8; N]) -> Slice {
        Slice::copy_from(bytes)
    }
}

impl<const N: usize> From<[u8; N]> for Slice {
    fn from(bytes: [u8; N]) -> Slice {
        Slice::copy_from(&bytes)
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

        impl PartialEq<Slice> for $other {
            fn eq(&self, other: &Slice) -> bool {
                other == self
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

impl<const N: usize> PartialEq<Slice> for [u8; N] {
    fn eq(&self, other: &Slice) -> bool {
        other == self
    }
}

impl<const N: usize> PartialEq<Slice> for &[u8; N] {
    fn eq(&self, other: &Slice) -> bool {
        other == self
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_keep_the_bytes_and_copy_only_where_they_must() {
        let vec = b"some bytes".to_vec();
        let slice = Slice::from(vec.clone());
        for other in [
            Slice::from(b"some bytes"),
            Slice::from(*b"some bytes"),
            Slice::from("some bytes"),
            Slice::from("some bytes".to_owned()),
            Slice::from(vec.clone().into_boxed_slice()),
            Slice::from(Bytes::from(vec.clone())),
            Slice::from(&vec[..]),
        ] {
            assert_eq!(slice, other);
        }
        let place = slice.as_ptr();
        let bytes = Bytes::from(slice.clone());
        assert_eq!((bytes.as_ptr(), Slice::from(bytes).as_ptr()), (place, place));
        // Not while another slice is there.
        let copied = Vec::from(slice.clone());
        assert_ne!(copied.as_ptr(), place);
        assert_eq!(copied, vec);
        let same = Vec::from(slice);
        assert_eq!((&same, same.as_ptr()), (&vec, place));
    }

    #[test]
    fn a_slice_is_equal_to_bytes_and_text_on_either_side() {
        fn both<T: PartialEq<Slice>>(slice: &Slice, other: T) -> bool
        where
            Slice: PartialEq<T>,
        {
            let (there, back) = (*slice == other, other == *slice);
            there && back
        }
        let (slice, text, bytes) = (Slice::from("ab"), "ab".to_owned(), b"ab".to_vec());
        assert!(
            both(&slice, *b"ab") && both(&slice, b"ab") && both(&slice, "ab") && both(&slice, &bytes[..])
        );
        assert!(both(&slice, bytes.clone()) && both(&slice, text));
        assert!(slice == *"ab" && slice == bytes[..]);
        assert!(slice != "a" && "abc" != slice && slice != [0; 2]);
    }
}
