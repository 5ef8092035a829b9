//! [`Segments`]: the value segments of a database: which ones tables refer to, and reading values from them.

use crate::read_value;
use base::{Error, Reference, Result, SegmentShare, Slice};
use env::{Env, ReadFile};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The value segments of a database.
///
/// Each open table holds the segments that its entries refer to. A segment can be removed when no table holds it that a version or a
/// reader uses; as long as it is also a log that recovery needs, it stays.
pub struct Segments {
    env: Arc<dyn Env>,
    dir: PathBuf,
    file_name: fn(u64) -> String,
    max_open_files: usize,
    files: Mutex<HashMap<u64, Arc<dyn ReadFile>>>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// The number of open tables that refer to each segment. 0 for segments that no table refers to any more.
    tables: HashMap<u64, u64>,
    /// Segments that an obsolete table referred to, or logs that recovery no longer needs.
    dying: HashSet<u64>,
}

impl Segments {
    /// The segments in `dir`, whose files have the names `file_name`. At most `max_open_files` of them are kept open.
    pub fn new(
        env: Arc<dyn Env>,
        dir: PathBuf,
        file_name: fn(u64) -> String,
        max_open_files: usize,
    ) -> Arc<Segments> {
        let (files, held) = (Mutex::default(), Mutex::default());
        Arc::new(Segments { env, dir, file_name, max_open_files: max_open_files.max(1), files, held })
    }

    /// An open table refers to these segments.
    pub fn hold(&self, shares: &[SegmentShare]) {
        let mut held = self.held.lock();
        shares.iter().for_each(|share| *held.tables.entry(share.segment).or_default() += 1);
    }

    /// A table that refers to these segments is not open any more. `obsolete`: no version has it.
    pub fn release(&self, shares: &[SegmentShare], obsolete: bool) {
        let mut held = self.held.lock();
        for SegmentShare { segment, .. } in shares {
            if let Some(tables) = held.tables.get_mut(segment) {
                *tables = tables.saturating_sub(1);
            }
            if obsolete {
                held.dying.insert(*segment);
            }
        }
    }

    /// Recovery does not need `log` any more. Returns whether tables refer to it, or did: it is then removed as a segment.
    pub fn retire(&self, log: u64) -> bool {
        let mut held = self.held.lock();
        let is_segment = held.tables.contains_key(&log);
        if is_segment {
            held.dying.insert(log);
        }
        is_segment
    }

    /// Whether an open table refers to `segment`.
    pub fn is_held(&self, segment: u64) -> bool {
        self.held.lock().tables.get(&segment).is_some_and(|&tables| tables > 0)
    }

    /// The segments that can be removed, which the caller does. `is_log`: recovery needs it.
    pub fn take_dead(&self, is_log: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut held = self.held.lock();
        let Held { tables, dying } = &mut *held;
        if dying.is_empty() {
            return Vec::new();
        }
        let dead: Vec<u64> = dying
            .extract_if(|segment| tables.get(segment).is_none_or(|&n| n == 0) && !is_log(*segment))
            .collect();
        dead.iter().for_each(|segment| _ = tables.remove(segment));
        let mut files = self.files.lock();
        dead.iter().for_each(|segment| _ = files.remove(segment));
        dead
    }

    /// The file name of a segment.
    pub fn file_name(&self, segment: u64) -> String {
        (self.file_name)(segment)
    }

    /// The value that an encoded reference refers to.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, if it cannot be read as what it was; `Io`.
    pub fn read(&self, reference: &[u8]) -> Result<Slice> {
        let Some(reference) = Reference::decode(reference) else {
            return Err(Error::corruption(&self.dir, 0, "a reference to a value is malformed"));
        };
        let path = self.dir.join(self.file_name(reference.segment));
        let file = self.file(reference.segment, &path)?;
        read_value(&*file, &path, &reference, reference.offset).map(Slice::from)
    }

    fn file(&self, segment: u64, path: &std::path::Path) -> Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.files.lock().get(&segment) {
            return Ok(file.clone());
        }
        let file: Arc<dyn ReadFile> = self.env.open(path)?.into();
        let mut files = self.files.lock();
        if files.len() >= self.max_open_files {
            files.clear();
        }
        files.insert(segment, file.clone());
        Ok(file)
    }
}
