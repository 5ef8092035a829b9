//! Point reads.

use crate::state::{KeyspaceInner, ReadState, shows};
use base::{Result, Seq, Slice, hash};

impl KeyspaceInner {
    /// The value of `key` as of `seq`, in `read_state`.
    pub(crate) fn get_in(&self, read_state: &ReadState, key: &[u8], seq: Seq) -> Result<Option<Slice>> {
        let deleted = read_state.deleted_before(key, seq);
        if let Some(value) = read_state.get_recent(key, seq, deleted) {
            return Ok(value);
        }
        let found = read_state.version.get_above(key, hash(key), seq, deleted)?;
        Ok(found.and_then(|(trailer, value)| shows(trailer, deleted).then_some(value)))
    }
}
