//! References to values outside of the tree, their sums, descriptions of value files, and maps of moved values.

use base::{Reference, SegmentShare};
use values::{Maps, ValueFile};

/// The first byte selects the decoder. What is accepted is the same after writing it and reading it again.
pub(crate) fn values(data: &[u8]) -> bool {
    let Some((kind, bytes)) = data.split_first() else { return false };
    let mut out = Vec::new();
    match kind % 4 {
        0 => Reference::decode(bytes).is_some_and(|reference| {
            reference.encode(&mut out);
            assert_eq!(Reference::decode(&out), Some(reference));
            true
        }),
        1 => SegmentShare::decode(bytes).is_some_and(|shares| {
            SegmentShare::encode(&shares, &mut out);
            assert!(shares.is_sorted_by(|a, b| a.segment < b.segment));
            assert_eq!(SegmentShare::decode(&out), Some(shares));
            true
        }),
        2 => ValueFile::decode(bytes).is_some_and(|file| {
            file.encode(&mut out);
            assert!(file.maps_at + u64::from(file.maps_len) <= file.len && file.value_bytes > 0);
            assert_eq!(ValueFile::decode(&out), Some(file));
            true
        }),
        _ => Maps::decode(bytes).is_some_and(|maps| {
            maps.encode(&mut out);
            assert_eq!(Maps::decode(&out).as_ref(), Some(&maps));
            let all = maps.segments();
            assert!(all.iter().all(|&segment| maps.get(segment, u64::MAX).is_none() || out.len() > 9));
            true
        }),
    }
}
