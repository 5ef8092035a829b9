//! Estimates of what a range of keys has: tables by their indexes, memtables by a sample.

use crate::state::{KeyspaceInner, ReadState};
use base::{Cursor as _, MAX_SEQ, Result, Slice, same_key};
use memtable::Memtable;
use std::sync::Arc;
use table::Sample;
use tree::Estimate;

/// So many entries of each memtable are looked at.
const SAMPLE: u64 = 1000;

impl KeyspaceInner {
    /// What `[from, to)` has in `read_state`; `to` of `None` is the end of all keys.
    pub(crate) fn estimate(
        &self,
        read_state: &ReadState,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Estimate> {
        let mut sum = read_state.version.estimate(from, to)?;
        for memtable in read_state.memtables().filter(|memtable| !memtable.is_empty()) {
            sum += in_memory(memtable, from, to)?;
        }
        Ok(sum)
    }
}

/// The keys to choose from, for each part.
const SAMPLES_PER_PART: usize = 16;

/// Keys to choose from at most.
const MAX_SAMPLES: usize = 1 << 20;

impl KeyspaceInner {
    /// Keys that divide `[from, to)` into at most `parts` parts of about equal size, ascending.
    pub(crate) fn split_points(
        &self,
        read_state: &ReadState,
        from: &[u8],
        to: Option<&[u8]>,
        parts: usize,
    ) -> Result<Vec<Slice>> {
        let wanted = parts.saturating_mul(SAMPLES_PER_PART).min(MAX_SAMPLES);
        let is_inside = |key: &[u8]| key > from && to.is_none_or(|to| key < to);
        let mut samples = read_state.version.samples(from, to, wanted)?;
        for memtable in read_state.memtables() {
            let inside = memtable.samples(wanted).filter(|(key, _)| is_inside(key));
            samples.extend(inside.map(|(key, bytes)| Sample { key: key.to_vec(), bytes }));
        }
        samples.sort_by(|a, b| a.key.cmp(&b.key));
        let all: f64 = samples.iter().map(|sample| sample.bytes).sum();
        let (mut points, mut before) = (Vec::<Slice>::new(), 0.0);
        for Sample { key, bytes } in samples {
            let wanted = all * (points.len() + 1) as f64 / parts as f64;
            let is_new = points.last().is_none_or(|last| last[..] != key[..]);
            if before >= wanted && points.len() + 1 < parts && is_new && is_inside(&key) {
                points.push(Slice::copy_from(&key));
            }
            before += bytes;
        }
        Ok(points)
    }
}

/// What a memtable has in `[from, to)`: the first entries are counted, and if there are more, the others are taken to be like them.
fn in_memory(memtable: &Arc<Memtable>, from: &[u8], to: Option<&[u8]>) -> Result<Estimate> {
    let (mut cursor, mut last) = (memtable.cursor(), None::<Vec<u8>>);
    let (mut entries, mut sum) = (0, Estimate::default());
    cursor.seek(from, MAX_SEQ)?;
    while cursor.valid() && to.is_none_or(|to| cursor.key() < to) {
        if entries == SAMPLE {
            let begin = if from.is_empty() { 0.0 } else { memtable.share_before(from) };
            let share = to.map_or(1.0, |to| memtable.share_before(to)) - begin;
            let times = (share * memtable.entries() as f64 / SAMPLE as f64).max(1.0);
            return Ok(Estimate { keys: sum.keys * times, bytes: sum.bytes * times });
        }
        let key = cursor.key();
        if last.as_ref().is_none_or(|last| !same_key(key, last)) {
            sum.keys += if cursor.trailer().is_delete() { -1.0 } else { 1.0 };
            last = Some(key.to_vec());
        }
        sum.bytes += (key.len() + cursor.value().len()) as f64;
        entries += 1;
        cursor.next()?;
    }
    Ok(sum)
}
