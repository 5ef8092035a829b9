//! How both trees store versions, for compaction filters: a version that is dropped becomes a delete at its time.

use crate::MAX_SUFFIX;
use crate::stored::{Ended, put_historical, split_historical, split_primary};
use crate::version_key;
use base::limits::MAX_VALUE_LEN;
use base::{EntryKind, Trailer};
use tree::{StoredVersion, StoredVersions};

/// The primary tree.
pub struct PrimaryVersion;

/// The historical tree.
pub struct HistoricalVersion;

impl StoredVersions for PrimaryVersion {
    fn split<'a>(&self, stored_key: &[u8], stored: &'a [u8], key: &mut Vec<u8>) -> Option<StoredVersion<'a>> {
        key.extend_from_slice(stored_key);
        split_primary(stored).map(|(value, time)| StoredVersion { value, time, is_delete: false })
    }

    fn put_delete(&self, _: &[u8], trailer: Trailer, stored: &[u8], out: &mut Vec<u8>) -> Option<Trailer> {
        let (value, _) = split_primary(stored)?;
        out.extend_from_slice(&stored[value.len()..]);
        Some(trailer.as_delete())
    }

    fn max_value_len(&self) -> usize {
        MAX_VALUE_LEN - MAX_SUFFIX
    }
}

impl StoredVersions for HistoricalVersion {
    fn split<'a>(&self, stored_key: &[u8], stored: &'a [u8], key: &mut Vec<u8>) -> Option<StoredVersion<'a>> {
        let (prefix, time) = version_key::split(stored_key)?;
        let (value, ended) = split_historical(stored, time)?;
        let is_delete = ended.is_delete;
        version_key::put_key_of(key, prefix).then_some(StoredVersion { value, time, is_delete })
    }

    fn put_delete(
        &self,
        stored_key: &[u8],
        trailer: Trailer,
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Trailer> {
        let (_, time) = version_key::split(stored_key)?;
        let (_, ended) = split_historical(stored, time)?;
        put_historical(out, time, Ended { is_delete: true, ..ended });
        Some(Trailer::new(trailer.seq(), EntryKind::Put))
    }

    fn max_value_len(&self) -> usize {
        MAX_VALUE_LEN - MAX_SUFFIX
    }
}
