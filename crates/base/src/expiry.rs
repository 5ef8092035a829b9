//! The expiry of an entry: the time from which on it counts as a delete, 8 bytes behind its value, little-endian. The trailer tells which
//! entries have one ([`Trailer::expires`](crate::Trailer::expires)).

use crate::limits::MAX_VALUE_LEN;
use crate::{Time, Trailer};

/// Bytes of an expiry.
pub const EXPIRY_LEN: usize = 8;

/// Maximum length of a value that expires.
pub const MAX_EXPIRING_LEN: usize = MAX_VALUE_LEN - EXPIRY_LEN;

/// The bytes of an expiry.
#[inline]
pub fn expiry_bytes(expiry: Time) -> [u8; EXPIRY_LEN] {
    expiry.micros().to_le_bytes()
}

/// What is stored before an expiry, and the expiry; `None` if it is too short to have one.
#[inline]
pub fn split_expiry(stored: &[u8]) -> Option<(&[u8], Time)> {
    let (value, expiry) = stored.split_last_chunk::<EXPIRY_LEN>()?;
    Some((value, Time::from_micros(u64::from_le_bytes(*expiry))))
}

/// What is stored of an entry without its expiry, and the expiry; `None` if the entry should have one and is too short.
#[inline]
pub fn without_expiry(trailer: Trailer, stored: &[u8]) -> Option<(&[u8], Option<Time>)> {
    match trailer.expires() {
        false => Some((stored, None)),
        true => split_expiry(stored).map(|(stored, expiry)| (stored, Some(expiry))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryKind;

    #[test]
    fn an_expiry_is_behind_the_value() {
        let expiry = Time::from_micros(0x0102_0304_0506_0708);
        let stored = [&b"value"[..], &expiry_bytes(expiry)].concat();
        assert_eq!(split_expiry(&stored), Some((&b"value"[..], expiry)));
        assert_eq!(split_expiry(&stored[6..]), None);
    }

    #[test]
    fn trailers_tell_which_entries_have_one() {
        use EntryKind::{Delete, DeleteRange, ExpiringPut, ExpiringReference, Merge, Put, Reference};
        for kind in [Delete, Put, Reference, DeleteRange, ExpiringPut, Merge, ExpiringReference] {
            let trailer = Trailer::new(9, kind);
            assert_eq!(trailer.expires(), matches!(kind, ExpiringPut | ExpiringReference), "{kind:?}");
            assert_eq!(trailer.is_reference(), matches!(kind, Reference | ExpiringReference), "{kind:?}");
            assert_eq!(trailer.is_delete(), kind == Delete, "{kind:?}");
            assert_eq!(trailer.is_merge(), kind == Merge, "{kind:?}");
            assert_eq!(trailer.as_delete(), Trailer::new(9, Delete));
        }
        for (put, reference) in [(Put, Reference), (ExpiringPut, ExpiringReference)] {
            let (put, reference) = (Trailer::new(9, put), Trailer::new(9, reference));
            assert_eq!(put.with_reference(true), reference);
            assert_eq!(reference.with_reference(false), put);
            assert_eq!((put.with_reference(false), reference.with_reference(true)), (put, reference));
        }
    }
}
