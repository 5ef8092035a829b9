//! Values outside of the tree, for salvage: where they are, and which ones cannot be read.

use super::report::{Loss, SalvagedFile};
use super::sources::Salvage;
use crate::types::Problem;
use crate::wal::{MAPS_RECORD, log_file_name};
use base::checksum::checksum_of;
use base::{Error, Reference, Result, Slice};
use record::{SegmentKind, payload_offset};
use std::collections::BTreeMap;
use std::sync::Arc;
use values::{Maps, Segments, ValueFile, value_file_name};

/// Maximum number of open files with values.
const MAX_OPEN: usize = 16;

/// The values of a damaged database.
pub(super) struct Values {
    segments: Arc<Segments>,
    /// The number of values read from each file.
    read: BTreeMap<String, u64>,
    /// The values lost, by keyspace and file: their number, their bytes, and the loss, with the keys in between.
    lost: BTreeMap<(String, String), (u64, Loss)>,
}

impl Values {
    /// Finds the value files: those that an intact manifest names, otherwise all that have a readable map. Must be called while the state of
    /// the manifest is known.
    pub(super) fn find(salvage: &Salvage<'_>) -> Values {
        let segments = Segments::new(
            salvage.env.clone(),
            salvage.dir.to_owned(),
            log_file_name,
            MAX_OPEN,
            Arc::default(),
        );
        let named =
            salvage.state.as_ref().map(|state| state.value_files.values().cloned().collect::<Vec<_>>());
        // A newer file has what a collection has copied out of an older one.
        let files = named.unwrap_or_else(|| {
            salvage.files.values.iter().filter_map(|&number| find_maps(salvage, number)).collect()
        });
        files.into_iter().for_each(|file| segments.add_value_file(file));
        Values { segments, read: BTreeMap::new(), lost: BTreeMap::new() }
    }

    /// The value that the entry of `key` refers to; `None` if it is lost.
    pub(super) fn read(&mut self, keyspace: &str, key: &[u8], reference: &[u8]) -> Option<Slice> {
        let decoded = Reference::decode(reference);
        let file = match &decoded {
            Some(reference) => match self.segments.place(reference) {
                Ok((file, _)) => self.segments.file_name(file),
                Err(e) => Problem::of(&log_file_name(reference.segment), &e).file,
            },
            None => String::new(),
        };
        let error = match self.segments.decode(reference).and_then(|reference| self.segments.read(&reference))
        {
            Ok(value) => {
                *self.read.entry(file).or_default() += 1;
                return Some(value);
            }
            Err(e) => e,
        };
        // The value file may never have been complete, and the log still be there.
        if let Some(value) =
            decoded.as_ref().and_then(|reference| self.segments.read_original(reference).ok())
        {
            *self.read.entry(log_file_name(decoded.map_or(0, |r| r.segment))).or_default() += 1;
            return Some(value);
        }
        let len = decoded.map_or(0, |reference| u64::from(reference.len));
        self.note_lost(keyspace, key, file, len, &error);
        None
    }

    fn note_lost(&mut self, keyspace: &str, key: &[u8], file: String, len: u64, error: &Error) {
        let (count, loss) = self.lost.entry((keyspace.to_owned(), file.clone())).or_insert_with(|| {
            let first = Loss::of(&file, error).within(key, key);
            (0, Loss { keyspace: Some(keyspace.to_owned()), bytes: 0, ..first })
        });
        *count += 1;
        loss.bytes += len;
        // Keys come in order.
        loss.to = Some(key.to_owned());
    }

    /// Adds the files that were read, and the losses, to the report.
    pub(super) fn report(self, salvage: &mut Salvage<'_>) {
        for (name, read) in self.read {
            let bytes = salvage.env.len(&salvage.dir.join(&name)).unwrap_or(0);
            let outcome = "values of entries in tables".to_owned();
            salvage.report.files.push(SalvagedFile { name, bytes, read, outcome });
        }
        for (count, mut loss) in self.lost.into_values() {
            if count > 1 {
                loss.what = format!("{}; {count} values in all", loss.what);
            }
            salvage.report.losses.push(loss);
        }
    }
}

/// The description of value file `number`, from the maps in it, if they can be read.
fn find_maps(salvage: &Salvage<'_>, number: u64) -> Option<ValueFile> {
    let path = salvage.dir.join(value_file_name(number));
    let mut found = None;
    let mut look = |offset: u64, record: &[u8]| -> Result<()> {
        if let Some((&MAPS_RECORD, encoded)) = record.split_first()
            && let Some(maps) = Maps::decode(encoded)
        {
            found = Some(ValueFile {
                number,
                len: 0,
                value_bytes: 1,
                maps_at: payload_offset(offset, 1),
                maps_len: encoded.len() as u32,
                maps_checksum: checksum_of(encoded),
                segments: maps.segments(),
            });
        }
        Ok(())
    };
    record::salvage(salvage.env, &path, SegmentKind::Values, number, &mut look).ok()?;
    found
}
