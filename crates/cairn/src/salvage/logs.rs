//! Reads the logs of a damaged database.

use super::report::{Loss, SalvageReport, SalvagedFile};
use super::sources::Salvage;
use crate::wal::{BatchRecord, LogHeader, decode_batch, is_never_established, log_file_name, replay};
use base::{EntryKind, Error, ErrorKind, Result};
use memtable::Memtable;
use record::SegmentKind;
use std::collections::BTreeMap;

/// Maximum bytes of a memtable: a keyspace gets as many as it needs.
const MEMTABLE: usize = 4 << 20;

impl Salvage<'_> {
    /// Inserts the log entries of each keyspace into its memtables: by ordinary replay if that succeeds, otherwise all intact batches.
    pub(super) fn read_logs(&mut self) -> Result<()> {
        let (env, dir, files) = (self.env, self.dir, self.files);
        let Some(state) = self.state.take() else {
            let logs: Vec<u64> = files.logs.iter().copied().filter(|n| *n >= self.remains.min_log).collect();
            return self.read_intact(&logs, None);
        };
        let replayed = files.needed_logs(dir, &state).and_then(|logs| {
            let mut seen: BTreeMap<u64, u64> = logs.iter().map(|n| (*n, 0)).collect();
            replay(env, dir, &state, &logs, &mut |mut record| {
                *seen.entry(record.number).or_default() += 1;
                match self.insert(&mut record.batch, Some(&state)) {
                    true => Ok(()),
                    false => Err(Error::corruption(record.path, record.offset, "this record is no batch")),
                }
            })?;
            Ok(seen)
        });
        match replayed {
            Ok(seen) => {
                for (number, records) in seen {
                    let name = log_file_name(number);
                    let bytes = env.len(&dir.join(&name)).unwrap_or(0);
                    self.report.files.push(SalvagedFile {
                        name,
                        bytes,
                        read: records,
                        outcome: "sound".to_owned(),
                    });
                }
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Unsupported => Err(e),
            Err(e) => {
                // Always a loss, whatever the logs seem to hold: when they prove that more was synced than is present, no other finding may
                // show it.
                let mut loss = Loss { older: true, ..Loss::of(&log_file_name(state.min_log), &e) };
                loss.what = format!("the log would not open: {}; all that is intact of it counts", loss.what);
                self.report.losses.push(loss);
                self.keyspaces.values_mut().for_each(|k| k.memtables.clear());
                let mut logs: Vec<u64> = files.logs.iter().copied().filter(|n| *n >= state.min_log).collect();
                if let Some(&newest) = logs.last()
                    && is_never_established(env, dir, &state, &logs, newest).unwrap_or(false)
                {
                    logs.pop();
                }
                self.read_intact(&logs, Some(&state))
            }
        }
    }

    /// Reads every intact batch of these logs.
    fn read_intact(&mut self, logs: &[u64], state: Option<&tree::ManifestState>) -> Result<()> {
        let first = state.map_or_else(|| logs.first().copied().unwrap_or(0), |state| state.min_log);
        let newest = logs.last().copied().unwrap_or(0).max(state.map_or(0, |state| state.newest_log));
        let mut expected = first;
        let mut before: Option<LogBefore> = None;
        for &number in logs {
            self.note_missing(expected, number);
            expected = number.saturating_add(1);
            let name = log_file_name(number);
            let mut batches = 0;
            let mut malformed = Vec::new();
            let found = record::salvage(
                self.env,
                &self.dir.join(&name),
                SegmentKind::Wal,
                number,
                &mut |offset, record| {
                    if record.is_empty() {
                        return Ok(()); // a mark
                    }
                    match decode_batch(record).is_some_and(|mut batch| self.insert(&mut batch, state)) {
                        true => batches += 1,
                        false => malformed.push((offset, offset + record.len() as u64)),
                    }
                    Ok(())
                },
            );
            let found = match found {
                Ok(found) => found,
                Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e),
                Err(e) => {
                    self.report.losses.push(Loss { older: true, ..Loss::of(&name, &e) });
                    before = None;
                    continue;
                }
            };
            let header = found.header.as_deref().and_then(LogHeader::decode);
            if let (Some(header), Some(before)) = (header, &before) {
                before.check(number, header.previous_len, &mut self.report);
            }
            let mut lost = 0;
            let closed = state.and_then(|state| state.closed.get(&number)).copied();
            for (from, to) in found.gaps.iter().chain(&malformed).copied() {
                if number == newest && to == found.len && closed.is_none() {
                    let bytes = to - from;
                    self.note(format!("{name} ends with {bytes} bytes that a crash may have left"));
                    continue;
                }
                lost += 1;
                self.report.losses.push(loss(
                    &name,
                    Some(from),
                    to - from,
                    "no intact record of the log is here",
                ));
            }
            if let Some(len) = closed.filter(|len| found.end < *len) {
                lost += 1;
                self.report.losses.push(loss(&name, Some(found.end), len - found.end, "the log ends early"));
            }
            let outcome = match lost {
                0 => "read to its end".to_owned(),
                n => format!("damaged: {n} gaps"),
            };
            let len = found.end.max(closed.unwrap_or(0));
            before = Some(LogBefore { number, len, file: self.report.files.len() });
            self.report.files.push(SalvagedFile { name, bytes: found.len, read: batches, outcome });
        }
        if newest > 0 {
            self.note_missing(expected, newest.saturating_add(1));
        }
        Ok(())
    }

    /// Reports that the logs from `expected` to the one before `found` are missing, as one loss, however many they are: a stray file may
    /// have any number.
    fn note_missing(&mut self, expected: u64, found: u64) {
        if expected >= found {
            return;
        }
        let what = match found - expected {
            1 => "this part of the log is missing".to_owned(),
            n => format!("this part of the log is missing, and the {} after it", n - 1),
        };
        self.report.losses.push(loss(&log_file_name(expected), None, 0, &what));
    }

    /// Inserts a batch into memtables; `false` when it is malformed. Entries that are in tables are skipped, unless a table of the keyspace
    /// is damaged: the log may then still have what the table lost.
    fn insert(&mut self, batch: &mut BatchRecord<'_>, state: Option<&tree::ManifestState>) -> bool {
        let mut entries = Vec::new();
        for seq in batch.head.first_seq..batch.head.first_seq + batch.head.count {
            let Some(entry) = batch.entries.next() else { return false };
            entries.push((seq, entry));
        }
        if !batch.entries.is_empty() {
            return false;
        }
        for (seq, entry) in entries {
            let dropped = match state {
                // A keyspace that no manifest names was never created, or was dropped.
                Some(state) => !state.keyspaces.contains_key(&entry.keyspace),
                None => self.remains.dropped.contains(&entry.keyspace),
            };
            if dropped {
                continue;
            }
            let keyspace = self.keyspace(entry.keyspace);
            if entry.kind == EntryKind::Merge && keyspace.has_operands_up_to(seq) {
                continue;
            }
            if seq <= keyspace.flushed {
                if !keyspace.wounded {
                    continue;
                }
                keyspace.old_from_logs = true;
            }
            let tail = match (keyspace.has_times(), entry.time.or(batch.head.time)) {
                (false, _) => &[][..],
                (true, Some(time)) => &history::primary_suffix(time)[..],
                // No Cairn writes such a batch.
                (true, None) => continue,
            };
            let need = entry.cost(tail.len());
            if !keyspace.memtables.last().is_some_and(|memtable| memtable.reserve(need)) {
                // The first memtable is small: there may be very many keyspaces with few entries in the log. All are in the order of keys, also those
                // of hash logs: they are merged.
                let larger = keyspace.memtables.last().map_or(0, |memtable| 16 * memtable.capacity());
                let memtable = Memtable::new(larger.min(MEMTABLE).max(need));
                assert!(memtable.reserve(need), "a new memtable has room for what it was made for");
                keyspace.memtables.push(memtable);
            }
            if let Some(memtable) = keyspace.memtables.last() {
                entry.insert(memtable, seq, tail);
            }
        }
        true
    }
}

/// The log before the current one.
struct LogBefore {
    number: u64,
    /// Its length, or the length that it should have, if a shortfall is already reported.
    len: u64,
    /// Its index among the files of the report.
    file: usize,
}

impl LogBefore {
    /// Compares its length with the one in the header of the log `next`.
    fn check(&self, next: u64, previous_len: u64, report: &mut SalvageReport) {
        if self.number.checked_add(1) != Some(next) || previous_len <= self.len {
            return;
        }
        let what = format!("the log ends early: {} knows {previous_len} bytes of it", log_file_name(next));
        let (name, bytes) = (log_file_name(self.number), previous_len - self.len);
        report.losses.push(loss(&name, Some(self.len), bytes, &what));
        if let Some(file) = report.files.get_mut(self.file) {
            file.outcome = "damaged: it ends early".to_owned();
        }
    }
}

fn loss(name: &str, offset: Option<u64>, bytes: u64, what: &str) -> Loss {
    Loss { file: name.to_owned(), offset, bytes, older: true, what: what.to_owned(), ..Loss::default() }
}
