//! Keyspaces without order: their entries are in logs and value files, and the newest of each key counts.

use super::report::{Loss, SalvagedKeyspace};
use super::sources::{KeyspaceSource, Salvage};
use crate::api::{Database, Keyspace};
use crate::state::split_value;
use crate::types::Durability;
use crate::wal::{decode_batch, log_file_name};
use base::{Cursor as _, EntryKind, ErrorKind, Result, Seq, Time};
use hashlog::HintReader;
use record::SegmentKind;
use std::collections::HashMap;
use tree::MergeCursor;
use values::{SegmentFile, value_file_name};

/// A value, and when it expires; `None` is for ever.
type Expiring<'a> = (&'a [u8], Option<Time>);

/// What is done with key, sequence number and value of an entry; `None`: it is a delete.
type Visit<'a> = dyn FnMut(&[u8], Seq, Option<Expiring<'_>>) -> Result<()> + 'a;

/// By key, the sequence number and the value of its newest entry.
type Recent = HashMap<Vec<u8>, (Seq, Option<(Vec<u8>, Option<Time>)>)>;

/// By key, the sequence number of its newest entry.
type Newest = HashMap<Vec<u8>, Seq>;

impl Salvage<'_> {
    /// Writes a keyspace without order. The files with its entries are read twice: to find the newest entry of each key, and to copy it. The keys
    /// are in memory meanwhile.
    pub(super) fn write_hash_log(&mut self, db: &Database, id: u64, source: &KeyspaceSource) -> Result<()> {
        let keyspace = db.create_keyspace(&source.name, source.options.clone())?;
        let mut written = SalvagedKeyspace { name: source.name.clone(), ..SalvagedKeyspace::default() };
        let files = self.files_of(id);
        let (mut newest, mut recent) = (Newest::new(), self.recent(source));
        let mut note = |key: &[u8], seq: Seq| {
            let known = newest.entry(key.to_vec()).or_default();
            *known = (*known).max(seq);
        };
        // What no hint file names had been overwritten or deleted when it was flushed. So where they are intact, they tell what counts.
        let is_known = self.read_hints(id, &mut note);
        for file in &files {
            self.read_entries(*file, id, Some(source), &mut |key, seq, _| {
                if !is_known {
                    note(key, seq);
                }
                Ok(())
            })?;
        }
        newest.retain(|key, seq| recent.get(key).is_none_or(|(of_log, _)| of_log < seq));
        recent.retain(|key, _| !newest.contains_key(key));
        let mut put = |keyspace: &Keyspace, key: &[u8], (value, expiry): Expiring<'_>| {
            written.entries += 1;
            written.bytes += (key.len() + value.len()) as u64;
            keyspace.put_until_with(key, value, expiry.unwrap_or(Time::MAX), Durability::Buffered)
        };
        for file in &files {
            self.read_entries(*file, id, None, &mut |key, seq, value| match value {
                // Once, even if two files have it.
                Some(value) if newest.get(key) == Some(&seq) => {
                    newest.remove(key);
                    put(&keyspace, key, value)
                }
                _ => Ok(()),
            })?;
        }
        for (key, (_, value)) in &recent {
            if let Some((value, expiry)) = value {
                put(&keyspace, key, (value, *expiry))?;
            }
        }
        self.report.keyspaces.push(written);
        Ok(())
    }

    /// Reads the hint files of a keyspace. Returns whether all of them are known, and intact.
    fn read_hints(&mut self, id: u64, note: &mut dyn FnMut(&[u8], Seq)) -> bool {
        let Some(hints) = &self.hints else { return false };
        let reader = HintReader { env: self.env.clone(), dir: self.dir.to_owned() };
        let mut read = hints.get(&id).into_iter().flatten().map(|file| {
            reader.read(file, &mut |hint| {
                note(hint.key, hint.seq);
                Ok(())
            })
        });
        match read.find_map(Result::err) {
            None => true,
            Some(e) => {
                self.report.losses.push(Loss { older: true, ..Loss::of("hint files", &e) });
                false
            }
        }
    }

    /// The files that may have entries of a keyspace: those of which its hint files are, or all if no manifest says which these are.
    fn files_of(&self, id: u64) -> Vec<SegmentFile> {
        let mut files: Vec<SegmentFile> = match &self.hints {
            Some(known) => {
                known.get(&id).into_iter().flatten().flat_map(|h| &h.shares).map(|s| s.file).collect()
            }
            None => {
                let logs = self.files.logs.iter().map(|number| SegmentFile::Log(*number));
                logs.chain(self.files.values.iter().map(|number| SegmentFile::Values(*number))).collect()
            }
        };
        files.sort_unstable();
        files.dedup();
        files
    }

    /// The newest entries that the logs have beside those that are flushed.
    fn recent(&self, source: &KeyspaceSource) -> Recent {
        let cursors = source.memtables.iter().map(|memtable| memtable.cursor()).collect();
        let (mut merge, mut recent) = (MergeCursor::new(cursors, 0), HashMap::new());
        // A memtable reads no file.
        let mut moved = merge.seek_to_first();
        while moved.is_ok() && merge.valid() {
            let trailer = merge.trailer();
            // A memtable has only what was written with an expiry.
            let split = split_value(trailer, merge.value()).ok().filter(|_| !trailer.is_delete());
            let value = split.map(|(value, expiry)| (value.to_vec(), expiry));
            recent.entry(merge.key().to_vec()).or_insert((trailer.seq(), value));
            moved = merge.next();
        }
        recent
    }

    /// Passes key, sequence number and value, or that there is none, of the intact entries of a file to `visit`. What is not intact is a loss of
    /// `source`, if it is given.
    fn read_entries(
        &mut self,
        file: SegmentFile,
        id: u64,
        source: Option<&KeyspaceSource>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let (kind, number, name) = match file {
            SegmentFile::Log(number) => (SegmentKind::Wal, number, log_file_name(number)),
            SegmentFile::Values(number) => (SegmentKind::Values, number, value_file_name(number)),
        };
        let read = record::salvage(self.env, &self.dir.join(&name), kind, number, &mut |_, record| {
            let Some(mut batch) = decode_batch(record) else { return Ok(()) };
            for seq in batch.head.first_seq..batch.head.first_seq + batch.head.count {
                let Some(entry) = batch.entries.next() else { break };
                if entry.keyspace == id && matches!(entry.kind, EntryKind::Put | EntryKind::Delete) {
                    let value = (entry.kind == EntryKind::Put).then_some((entry.value, entry.expiry));
                    visit(entry.key, seq, value)?;
                }
            }
            Ok(())
        });
        let gaps = match read {
            Ok(found) => found.gaps,
            Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Io) => {
                if let Some(source) = source {
                    let loss = Loss { older: true, ..Loss::of(&name, &e) };
                    self.report.losses.push(Loss { keyspace: Some(source.name.clone()), ..loss });
                }
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let Some(source) = source else { return Ok(()) };
        // What follows the end of a log that was written when a crash came is no loss; it is reported with the logs.
        let is_open = matches!(file, SegmentFile::Log(number) if Some(&number) == self.files.logs.last());
        for (from, to) in gaps.into_iter().filter(|_| !is_open) {
            let what = "no intact entry is here".to_owned();
            let loss =
                Loss { offset: Some(from), bytes: to - from, older: true, ..Loss::new(name.clone(), what) };
            self.report.losses.push(Loss { keyspace: Some(source.name.clone()), ..loss });
        }
        Ok(())
    }
}
