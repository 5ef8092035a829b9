//! Reads what is intact in a damaged table file, whatever its format. Entries come in the order of the table. A [gap](crate::Gap) names the
//! keys between which entries may be missing.

use crate::check::intact_blocks::IntactBlocks;
use crate::check::leaf_salvage::LeafSalvage;
use crate::check::row_salvage::RowSalvage;
use crate::check::survey::{FileEnd, Survey};
use crate::format::options::table_file_name;
use base::{Cursor, Result, Trailer};
use env::Env;
use std::path::Path;
use std::sync::Arc;

/// Reads the intact entries of one table file, in order. As a [`Cursor`] it goes forward only.
///
/// The file is opened for each read, so that many tables can be read at once. Memory: a block, and a buffer of 64 KiB; for a size-class
/// table twice that, a page for each class, and eight bytes for each page.
pub struct SalvageCursor {
    number: u64,
    file_size: u64,
    seq_shift: u64,
    entries: Entries,
    fingerprint: u64,
}

/// The entries of a table, by its format.
enum Entries {
    Leaves(LeafSalvage),
    Rows(RowSalvage),
}

base::delegate_cursor!(Entries { Leaves, Rows });

impl SalvageCursor {
    /// Opens table `number` in `dir`, and reads footer and properties; of a size-class table also the pages of rows, which it needs to know all
    /// of. Without an intact footer the pages are searched in the whole file. `seq_shift`: [`TableMeta::seq_shift`](crate::TableMeta::seq_shift),
    /// or 0 if it is not known.
    ///
    /// # Errors
    /// `Unsupported` if a newer version wrote the table; the error of `env` if the file cannot be opened.
    pub fn open(env: &Arc<dyn Env>, dir: &Path, number: u64, seq_shift: u64) -> Result<SalvageCursor> {
        let path = dir.join(table_file_name(number));
        let file_size = env.open(&path)?.len()?;
        let mut blocks = IntactBlocks::new(env.clone(), path, number, file_size);
        let end = FileEnd::read(&mut blocks)?;
        let has_rows = match &end.footer {
            Some(footer) => footer.is_size_class(),
            None => RowSalvage::finds_rows(&mut blocks),
        };
        let entries = match has_rows {
            true => Entries::Rows(RowSalvage::new(blocks, end)),
            false => Entries::Leaves(LeafSalvage::new(blocks, end)),
        };
        Ok(SalvageCursor { number, file_size, seq_shift, entries, fingerprint: 0 })
    }

    /// Reads the whole file and summarizes it. Call it on a new cursor.
    ///
    /// # Errors
    /// `Unsupported` if intact blocks have a compression that this version does not know, or this program was built without.
    pub fn survey(mut self) -> Result<Survey> {
        let mut survey = Survey { file_size: self.file_size, min_seq: base::MAX_SEQ, ..Survey::default() };
        self.rewind();
        while self.entries.valid() {
            let (key, seq) = (self.entries.key(), self.trailer().seq());
            if survey.entries == 0 {
                survey.smallest = key.to_vec();
            }
            survey.largest.clear();
            survey.largest.extend_from_slice(key);
            survey.entries += 1;
            survey.min_seq = survey.min_seq.min(seq);
            survey.max_seq = survey.max_seq.max(seq);
            self.step();
        }
        survey.fingerprint = self.fingerprint;
        let found = match self.entries {
            Entries::Leaves(leaves) => leaves.finish(&survey),
            Entries::Rows(rows) => rows.finish(&survey),
        }?;
        survey.promised = found.properties.promised;
        survey.owner = found.properties.owner;
        (survey.gaps, survey.other_damage) = (found.gaps, found.other_damage);
        Ok(survey)
    }

    /// Number of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A sum over the entries that the cursor has visited since the beginning. Two passes over a file with equal fingerprints gave the same
    /// entries; a failing disk may give different ones.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn rewind(&mut self) {
        self.fingerprint = 0;
        // Damage is no error here, but a gap.
        let _ = self.entries.seek_to_first();
        self.note();
    }

    fn step(&mut self) {
        let _ = self.entries.next();
        self.note();
    }

    /// Adds the current entry to the fingerprint.
    fn note(&mut self) {
        if self.entries.valid() {
            let entry =
                base::hash(self.entries.key()) ^ self.entries.trailer().0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.fingerprint = self.fingerprint.wrapping_add(entry);
        }
    }
}

impl Cursor for SalvageCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.rewind();
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.step();
        Ok(())
    }

    fn valid(&self) -> bool {
        self.entries.valid()
    }

    fn key(&self) -> &[u8] {
        self.entries.key()
    }

    fn trailer(&self) -> Trailer {
        // A sequence number that would be too large is damage, and its entry the newest.
        self.entries.trailer().shifted(self.seq_shift).unwrap_or(Trailer(u64::MAX))
    }

    fn value(&self) -> &[u8] {
        self.entries.value()
    }
}
