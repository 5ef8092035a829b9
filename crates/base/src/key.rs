//! Keys, their order, and the trailer that distinguishes the versions of one key.
//!
//! User keys are bytes and order bytewise. An *entry* is a user key, a [`Trailer`] (sequence number and kind) and a
//! value. Entries order by key ascending, then by trailer *descending*: the newest version of a key comes first.

use std::cmp::Ordering;

/// Sequence number of a commit: its position in the order of all commits of a database. Starts at 1; 0 means "older
/// than every commit".
pub type Seq = u64;

/// The largest sequence number: 56 bits.
pub const MAX_SEQ: Seq = (1 << 56) - 1;

/// The operation that an entry records for its key.
///
/// The codes are part of the file formats. Code 2 is reserved for values in a transient segment; a reader that finds it rejects the file
/// with an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntryKind {
    /// The key is deleted: a tombstone.
    Delete = 0,
    /// The key has the value that is stored in the entry.
    Put = 1,
    /// The key has a value outside of the tree, and the entry has a reference to it. Used in tables only.
    Reference = 3,
    /// All keys from this one up to an end key, which is stored as the value, are deleted. Used in logs only.
    DeleteRange = 4,
    /// A put with the time from which on it counts as a delete, its *expiry*, behind the value.
    ExpiringPut = 5,
    /// An operand: what the merge operator of the keyspace joins to the value that the key has below this entry.
    Merge = 6,
    /// A reference with an expiry behind it. Used in tables only.
    ExpiringReference = 7,
}

impl EntryKind {
    /// Whether a write of this kind gives its key a value: a put or a merge.
    #[inline]
    pub fn gives_value(self) -> bool {
        matches!(self, EntryKind::Put | EntryKind::Merge)
    }

    /// The kind for a code in a table entry; `None` if this version of Cairn does not know the code.
    #[inline]
    pub fn from_code(code: u8) -> Option<EntryKind> {
        match code {
            0 => Some(EntryKind::Delete),
            1 => Some(EntryKind::Put),
            3 => Some(EntryKind::Reference),
            5 => Some(EntryKind::ExpiringPut),
            6 => Some(EntryKind::Merge),
            7 => Some(EntryKind::ExpiringReference),
            _ => None,
        }
    }
}

/// Set in the codes of kinds whose entries have an expiry.
const EXPIRES: u8 = 4;

/// Sequence number and kind of an entry, packed into one integer that orders by sequence number first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trailer(pub u64);

impl Trailer {
    /// Packs `seq` (at most [`MAX_SEQ`]) and `kind`.
    #[inline]
    pub fn new(seq: Seq, kind: EntryKind) -> Trailer {
        debug_assert!(seq <= MAX_SEQ);
        Trailer(seq << 8 | kind as u64)
    }

    /// The trailer that sorts before every version of a key that is visible at `seq`: the target of a seek.
    #[inline]
    pub fn seek(seq: Seq) -> Trailer {
        Trailer(seq << 8 | 0xff)
    }

    /// The sequence number.
    #[inline]
    pub fn seq(self) -> Seq {
        self.0 >> 8
    }

    /// The same kind, with `shift` added to the sequence number; `None` if that becomes too large.
    #[inline]
    pub fn shifted(self, shift: u64) -> Option<Trailer> {
        match shift {
            0 => Some(self),
            _ if shift <= MAX_SEQ => self.0.checked_add(shift << 8).map(Trailer),
            _ => None,
        }
    }

    /// The code of the kind. It may be unknown, since it comes from disk.
    #[inline]
    pub fn kind_code(self) -> u8 {
        self.0 as u8
    }

    /// Whether the entry has a reference in place of its value.
    #[inline]
    pub fn is_reference(self) -> bool {
        self.kind_code() & !EXPIRES == EntryKind::Reference as u8
    }

    /// Whether the entry has an expiry behind its value: see [`crate::expiry`].
    #[inline]
    pub fn expires(self) -> bool {
        self.kind_code() & (EXPIRES | 1) == EXPIRES | 1
    }

    /// The trailer of the same write with a reference in place of its value, or with its value in place of a reference.
    #[inline]
    pub fn with_reference(self, is_reference: bool) -> Trailer {
        let bit = EntryKind::Reference as u64 & !(EntryKind::Put as u64);
        Trailer(if is_reference { self.0 | bit } else { self.0 & !bit })
    }

    /// The trailer of the same write as a tombstone.
    #[inline]
    pub fn as_delete(self) -> Trailer {
        Trailer::new(self.seq(), EntryKind::Delete)
    }

    /// Whether the entry is an operand of a merge.
    #[inline]
    pub fn is_merge(self) -> bool {
        self.kind_code() == EntryKind::Merge as u8
    }

    /// Whether the entry is a tombstone.
    #[inline]
    pub fn is_delete(self) -> bool {
        self.kind_code() == EntryKind::Delete as u8
    }
}

/// The first eight bytes of a key as a big-endian integer (short keys are padded with zeros). `head(a) < head(b)`
/// implies `a < b`; equal heads imply nothing.
#[inline]
pub fn head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0u8; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Compares two user keys: their order is that of their bytes.
#[inline]
pub fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    a.cmp(b)
}

/// The length of the common prefix of two keys, which all keys between them share.
#[inline]
pub fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Whether two user keys are equal. Compares the last eight bytes first, since adjacent keys mostly differ at their
/// ends.
#[inline]
pub fn same_key(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && (a.len() < 8 || word(a, a.len() - 8) == word(b, b.len() - 8)) && a == b
}

/// The eight bytes of a key from `at`, as an integer with the same order.
#[inline]
fn word(key: &[u8], at: usize) -> u64 {
    key[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word))
}

/// Compares two entries: key ascending, then newest first.
#[inline]
pub fn compare(a_key: &[u8], a: Trailer, b_key: &[u8], b: Trailer) -> Ordering {
    compare_keys(a_key, b_key).then_with(|| b.cmp(&a))
}

/// The only hash of a key. Filters, guards and the sketches of tables derive from it.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_agrees_with_byte_order() {
        let keys: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"a", b"a\0", b"abcdefgh", b"abcdefgh\0", b"abcdefgi", b"\xff\xff\xff"];
        for a in keys {
            for b in keys {
                assert_eq!(compare_keys(a, b), a.cmp(b), "{a:?} {b:?}");
                if head(a) != head(b) {
                    assert_eq!(head(a).cmp(&head(b)), a.cmp(b));
                }
            }
        }
    }

    #[test]
    fn keys_of_all_lengths_compare_as_bytes_do() {
        let stem: Vec<u8> = (0..40).map(|i| i * 5 + 1).collect();
        let mut keys = vec![stem.clone()];
        for len in 0..40 {
            keys.push(stem[..len].to_vec());
            for byte in [0, 255] {
                let mut other = stem.clone();
                other[len] = byte;
                keys.extend([other[..len + 1].to_vec(), other]);
            }
        }
        for a in &keys {
            for b in &keys {
                assert_eq!((compare_keys(a, b), same_key(a, b)), (a.cmp(b), a == b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn newer_versions_come_first() {
        let old = Trailer::new(3, EntryKind::Put);
        let new = Trailer::new(4, EntryKind::Delete);
        assert_eq!(compare(b"k", new, b"k", old), Ordering::Less);
        assert!(Trailer::seek(4) > new && Trailer::seek(3) < new);
        assert_eq!((new.seq(), new.is_delete(), old.is_delete()), (4, true, false));
    }
}
