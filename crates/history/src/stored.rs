//! What the trees of a keyspace with history store behind a value: the primary tree its time, the historical tree the time until which it was
//! the newest. Behind it, so that an entry that has a reference in place of its value begins with the reference, as without history. An expiry
//! is behind that in both trees ([`base::expiry`]); the functions of this module get what is before it.

use crate::version_key;
use base::expiry::without_expiry;
use base::{Time, Trailer};

/// Bytes behind each value, and in each tombstone, of the primary tree: its time, little-endian.
pub const PRIMARY_SUFFIX: usize = size_of::<u64>();

/// Most bytes behind a value in either tree.
pub const MAX_SUFFIX: usize = size_of::<u64>() + 1;

/// The suffix of an entry of the primary tree.
#[inline]
pub fn primary_suffix(time: Time) -> [u8; PRIMARY_SUFFIX] {
    time.micros().to_le_bytes()
}

/// The value of an entry of the primary tree (or the reference to it), and its time; `None` if it is malformed.
#[inline]
pub fn split_primary(stored: &[u8]) -> Option<(&[u8], Time)> {
    let (value, time) = stored.split_last_chunk::<PRIMARY_SUFFIX>()?;
    Some((value, Time::from_micros(u64::from_le_bytes(*time))))
}

/// How a version in the historical tree ended, as far as is known when it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The time of a later version of the key: the next one or, if that is not known, any. [`Time::MAX`] if there is none: the version is a
    /// delete, or a value that has expired, and still the newest.
    pub until: Time,
    /// Whether the version is a delete.
    pub is_delete: bool,
    /// Whether a range delete was at `until`. Otherwise it is the time of a version, which may have expired since. A delete has it from the
    /// version before it, for those that come in between later.
    pub by_range: bool,
    /// For one that is still the newest version: the time from which on retention may drop it. Versions before it may have ended later, as far
    /// as is stored: at range deletes up to this time, because these are applied to older versions first.
    pub holds: Time,
}

impl Ended {
    /// A version that ended at `until`.
    pub fn at(until: Time, is_delete: bool) -> Ended {
        Ended { until, is_delete, by_range: false, holds: until }
    }

    /// The same, where `by_range` tells whether it ended by a range delete.
    pub fn by_range(self, by_range: bool) -> Ended {
        Ended { by_range, ..self }
    }

    /// A version that is the newest, a delete or a value that has expired, and holds until `holds`.
    pub fn open(holds: Time, is_delete: bool) -> Ended {
        Ended { until: Time::MAX, is_delete, by_range: false, holds }
    }
}

const IS_DELETE: u8 = 1;
const IS_OPEN: u8 = 2;
/// The end is the time of a version. (What was stored before this flag did not tell: it counts as a range delete.)
const BY_VERSION: u8 = 128;

/// The number of bytes of the duration in a suffix, in its last byte, is multiplied by this.
const LEN_UNIT: u8 = 4;

/// Appends the suffix of an entry of the historical tree whose version has this time: the duration until it ended, or holds, in microseconds,
/// little-endian without leading zeros, and a byte with the length of this and three flags. 5 bytes for durations between 17 seconds and an
/// hour.
pub fn put_historical(out: &mut Vec<u8>, time: Time, ended: Ended) {
    let is_open = ended.until == Time::MAX;
    let flags = u8::from(ended.is_delete) * IS_DELETE
        + u8::from(is_open) * IS_OPEN
        + u8::from(!is_open && !ended.by_range) * BY_VERSION;
    let end = if is_open { ended.holds } else { ended.until };
    debug_assert!(end >= time || is_open);
    let duration = end.micros().saturating_sub(time.micros());
    let len = (u64::BITS - duration.leading_zeros()).div_ceil(8) as u8;
    out.extend_from_slice(&duration.to_le_bytes()[..len.into()]);
    out.push(flags | (len * LEN_UNIT));
}

/// The value of an entry of the historical tree (or the reference to it), and how the version ended; `None` if it is malformed. `time`: that
/// of the version.
#[inline]
pub fn split_historical(stored: &[u8], time: Time) -> Option<(&[u8], Ended)> {
    let (last, rest) = stored.split_last()?;
    let [is_delete, is_open, by_version] = [IS_DELETE, IS_OPEN, BY_VERSION].map(|flag| last & flag != 0);
    let len = usize::from((last & !BY_VERSION) / LEN_UNIT);
    let (value, bytes) = rest.split_at_checked(rest.len().checked_sub(len)?)?;
    let mut duration = [0; size_of::<u64>()];
    duration.get_mut(..len)?.copy_from_slice(bytes);
    let end = time.micros().checked_add(u64::from_le_bytes(duration)).filter(|end| *end < u64::MAX)?;
    let end = Time::from_micros(end);
    match (is_open, bytes.last()) {
        (_, Some(0)) => None,
        (true, _) => (!by_version).then_some((value, Ended::open(end, is_delete))),
        (false, _) => Some((value, Ended::at(end, is_delete).by_range(!by_version))),
    }
}

/// The time of an entry of the historical tree, and when its version ended, or until when it holds; `None` if it is malformed.
pub fn times_of(version_key: &[u8], trailer: Trailer, stored: &[u8]) -> Option<(Time, Time)> {
    let (_, time) = version_key::split(version_key)?;
    let (stored, _) = without_expiry(trailer, stored)?;
    Some((time, split_historical(stored, time)?.1.holds))
}

/// The same of an entry of the primary tree, whose end is not known.
pub fn primary_times_of(_: &[u8], trailer: Trailer, stored: &[u8]) -> Option<(Time, Time)> {
    let (stored, _) = without_expiry(trailer, stored)?;
    split_primary(stored).map(|(_, time)| (time, Time::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn suffixes_are_read_back(
            value in prop::collection::vec(any::<u8>(), 0..8),
            time in 0u64..1 << 60,
            bits in 0u32..62,
            duration: u64,
            is_delete: bool,
            is_open: bool,
            by_range: bool,
        ) {
            let time = Time::from_micros(time);
            let until = Time::from_micros(time.micros() + duration % (1 << bits));
            let ended = match is_open {
                true => Ended::open(until, is_delete),
                false => Ended::at(until, is_delete).by_range(by_range),
            };
            let mut stored = value.clone();
            put_historical(&mut stored, time, ended);
            prop_assert_eq!(split_historical(&stored, time), Some((&value[..], ended)));
            let mut stored = value.clone();
            stored.extend_from_slice(&primary_suffix(time));
            prop_assert_eq!(split_primary(&stored), Some((&value[..], time)));
        }

        #[test]
        fn what_is_read_would_be_stored_so(stored in prop::collection::vec(0u8..12, 0..12), micros: u64) {
            let time = Time::from_micros(micros);
            if let Some((value, ended)) = split_historical(&stored, time) {
                let mut again = value.to_vec();
                put_historical(&mut again, time, ended);
                prop_assert_eq!(again, stored);
            }
        }
    }

    #[test]
    fn suffixes_are_short_and_malformed_ones_refused() {
        let len = |seconds: u64| {
            let (mut out, time) = (Vec::new(), Time::from_micros(1 << 50));
            let until = Time::from_micros(time.micros() + 1_000_000 * seconds);
            put_historical(&mut out, time, Ended::at(until, false));
            out.len()
        };
        assert_eq!([0, 1, 16, 17, 3600, 86_400, 365 * 86_400].map(len), [1, 4, 4, 5, 5, 6, 7]);
        let time = Time::from_micros(1);
        // Without its duration; with a zero in front; open, but ended; too long a duration.
        let refused: [&[u8]; 5] = [
            &[],
            &[LEN_UNIT],
            &[0, LEN_UNIT],
            &[1, LEN_UNIT | IS_DELETE | IS_OPEN | BY_VERSION],
            &[1, 1, 1, 1, 1, 1, 1, 1, 1, 9 * LEN_UNIT],
        ];
        for stored in refused {
            assert_eq!(split_historical(stored, time), None, "{stored:?}");
        }
        assert!(split_primary(&[0; 7]).is_none());
        let overflow = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 8 * LEN_UNIT];
        assert_eq!(split_historical(&overflow, time), None);
    }
}
