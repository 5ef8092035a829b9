//! [`DatabaseEdit`]: one record of the manifest, and its encoding (docs/format/manifest.md).
//!
//! The decoder takes arbitrary bytes: it checks every length and number, and returns `None` for malformed ones.

use crate::version::{Version, VersionEdit};
use base::codec::{Reader, put_bytes, put_varint};
use base::limits::{MAX_BATCH_LEN, MAX_KEYSPACE_NAME_LEN, MAX_LEVELS};
use base::{Seq, Time};
use hashlog::HintFile;
use std::collections::HashSet;
use values::ValueFile;

/// A closed log: all of it is synced, and nothing is appended to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogClosed {
    /// Its number.
    pub number: u64,
    /// Its length, in bytes.
    pub len: u64,
}

/// What the manifest says of a keyspace, without its content.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyspaceDescription {
    /// Its number, which is never reused.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The number of levels of guards of its tree.
    pub levels: usize,
    /// Its options, as names and texts.
    pub options: Vec<(String, String)>,
    /// If it is a historical keyspace, which only the library sees: the number of the keyspace whose older versions it has. It has the same
    /// name.
    pub history_of: Option<u64>,
    /// If it has history: late writes from before this time are refused, because an earlier retention may have removed deletes from before it, and
    /// versions that had ended by then. [`Time::MIN`]: none has.
    pub kept_since: Time,
}

/// One edit of the whole database. Applied whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseEdit {
    /// Created keyspaces.
    pub created: Vec<KeyspaceDescription>,
    /// Keyspaces that have another name or other options from now on. Their levels stay, and what they have to do with history.
    pub altered: Vec<KeyspaceDescription>,
    /// Dropped keyspaces, by number.
    pub dropped: Vec<u64>,
    /// Edits of trees, by keyspace number.
    pub trees: Vec<(u64, VersionEdit)>,
    /// File numbers below this one may be in use.
    pub next_file: u64,
    /// Keyspace numbers below this one have been used.
    pub next_keyspace: u64,
    /// Sequence numbers up to this one have been used.
    pub last_seq: Seq,
    /// Times up to this one have been used.
    pub last_time: Time,
    /// Retention has removed versions as of times up to this one.
    pub retention_time: Time,
    /// Logs with smaller numbers are not needed any more.
    pub min_log: u64,
    /// The log with this number exists.
    pub newest_log: u64,
    /// Closed logs.
    pub closed: Vec<LogClosed>,
    /// Value files. The segments of a file are not in older files any more.
    pub value_files: Vec<ValueFile>,
    /// Removed value files, by number.
    pub value_files_removed: Vec<u64>,
    /// Hint files, by the number of their keyspace; in place of one with the same number, if there is one.
    pub hints: Vec<(u64, HintFile)>,
    /// Removed hint files: keyspace and number.
    pub hints_removed: Vec<(u64, u64)>,
    /// Whether it adds tables to a tree that another tree has, too: keyspaces were cloned. Without this, each table is of one tree.
    pub shares_tables: bool,
}

const TAG_CREATED: u64 = 1;
const TAG_DROPPED: u64 = 2;
const TAG_TREE: u64 = 3;
const TAG_NEXT_FILE: u64 = 4;
const TAG_NEXT_KEYSPACE: u64 = 5;
const TAG_LAST_SEQ: u64 = 6;
const TAG_MIN_LOG: u64 = 7;
const TAG_NEWEST_LOG: u64 = 8;
const TAG_CLOSED: u64 = 9;
const TAG_VALUE_FILE: u64 = 10;
const TAG_VALUE_FILE_REMOVED: u64 = 11;
const TAG_LAST_TIME: u64 = 12;
const TAG_RETENTION_TIME: u64 = 13;
const TAG_HINTS: u64 = 14;
const TAG_HINTS_REMOVED: u64 = 15;
const TAG_ALTERED: u64 = 16;
const TAG_SHARES_TABLES: u64 = 17;

/// Maximum length of the description of a value file that the decoder accepts.
const MAX_VALUE_FILE_LEN: usize = 1 << 20;

/// The maximal number of options of a keyspace, and the maximal length of one, that the decoder accepts.
const MAX_OPTIONS: usize = 1024;
const MAX_OPTION_LEN: usize = 4096;

/// The name of the pair among the options that has [`KeyspaceDescription::history_of`]: an older Cairn refuses it.
const HISTORY_OF: &str = "history_of";

/// The same for [`KeyspaceDescription::kept_since`], in microseconds, if it is not [`Time::MIN`].
const KEPT_SINCE: &str = "kept_since";

impl KeyspaceDescription {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.id);
        put_bytes(out, self.name.as_bytes());
        put_varint(out, self.levels as u64);
        let history_of = self.history_of.map(|id| (HISTORY_OF.to_owned(), id.to_string()));
        let since = Some(self.kept_since).filter(|since| *since > Time::MIN);
        let since = since.map(|since| (KEPT_SINCE.to_owned(), since.micros().to_string()));
        let others = || history_of.iter().chain(&since);
        put_varint(out, (self.options.len() + others().count()) as u64);
        for (name, value) in self.options.iter().chain(others()) {
            put_bytes(out, name.as_bytes());
            put_bytes(out, value.as_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<KeyspaceDescription> {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        let id = reader.varint()?;
        let name = text(reader.bytes(MAX_KEYSPACE_NAME_LEN)?)?;
        let levels = reader.len(MAX_LEVELS)?;
        let count = reader.len(MAX_OPTIONS)?;
        let (mut options, mut history_of, mut kept_since) = (Vec::new(), None, Time::MIN);
        for _ in 0..count {
            let option = text(reader.bytes(MAX_OPTION_LEN)?)?;
            let value = text(reader.bytes(MAX_OPTION_LEN)?)?;
            match &option[..] {
                HISTORY_OF => history_of = Some(value.parse().ok()?),
                KEPT_SINCE => kept_since = Time::from_micros(value.parse().ok()?),
                _ => options.push((option, value)),
            }
        }
        (levels > 0).then_some(KeyspaceDescription { id, name, levels, options, history_of, kept_since })
    }
}

impl DatabaseEdit {
    /// The same edit, with what makes these trees from empty ones.
    #[must_use]
    pub fn with_trees<'a>(mut self, trees: impl Iterator<Item = (u64, &'a Version)>) -> DatabaseEdit {
        self.trees = trees.map(|(id, version)| (id, VersionEdit::snapshot(version))).collect();
        let mut numbers = HashSet::new();
        let mut tables = self.trees.iter().flat_map(|(_, tree)| &tree.added);
        self.shares_tables = !tables.all(|(_, meta)| numbers.insert(meta.number));
        self
    }

    /// The bytes of the edit.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (tag, keyspaces) in [(TAG_CREATED, &self.created), (TAG_ALTERED, &self.altered)] {
            for keyspace in keyspaces {
                put_varint(&mut out, tag);
                keyspace.encode(&mut out);
            }
        }
        for id in &self.dropped {
            put_varint(&mut out, TAG_DROPPED);
            put_varint(&mut out, *id);
        }
        if self.shares_tables {
            put_varint(&mut out, TAG_SHARES_TABLES);
        }
        let mut body = Vec::new();
        for (id, edit) in &self.trees {
            body.clear();
            edit.encode(&mut body);
            put_varint(&mut out, TAG_TREE);
            put_varint(&mut out, *id);
            put_bytes(&mut out, &body);
        }
        for log in &self.closed {
            put_varint(&mut out, TAG_CLOSED);
            put_varint(&mut out, log.number);
            put_varint(&mut out, log.len);
        }
        for file in &self.value_files {
            body.clear();
            file.encode(&mut body);
            put_varint(&mut out, TAG_VALUE_FILE);
            put_bytes(&mut out, &body);
        }
        for number in &self.value_files_removed {
            put_varint(&mut out, TAG_VALUE_FILE_REMOVED);
            put_varint(&mut out, *number);
        }
        for (keyspace, hints) in &self.hints {
            body.clear();
            hints.encode(&mut body);
            put_varint(&mut out, TAG_HINTS);
            put_varint(&mut out, *keyspace);
            put_bytes(&mut out, &body);
        }
        for (keyspace, number) in &self.hints_removed {
            put_varint(&mut out, TAG_HINTS_REMOVED);
            put_varint(&mut out, *keyspace);
            put_varint(&mut out, *number);
        }
        for (tag, number) in [
            (TAG_NEXT_FILE, self.next_file),
            (TAG_NEXT_KEYSPACE, self.next_keyspace),
            (TAG_LAST_SEQ, self.last_seq),
            (TAG_LAST_TIME, self.last_time.micros()),
            (TAG_RETENTION_TIME, self.retention_time.micros()),
            (TAG_MIN_LOG, self.min_log),
            (TAG_NEWEST_LOG, self.newest_log),
        ] {
            if number > 0 {
                put_varint(&mut out, tag);
                put_varint(&mut out, number);
            }
        }
        out
    }

    /// The edit with these bytes; `None` when they are malformed, or of a newer version.
    pub fn decode(bytes: &[u8]) -> Option<DatabaseEdit> {
        let mut edit = DatabaseEdit::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            match reader.varint()? {
                TAG_CREATED => edit.created.push(KeyspaceDescription::decode(&mut reader)?),
                TAG_ALTERED => edit.altered.push(KeyspaceDescription::decode(&mut reader)?),
                TAG_DROPPED => edit.dropped.push(reader.varint()?),
                TAG_TREE => {
                    let id = reader.varint()?;
                    edit.trees.push((id, VersionEdit::decode(reader.bytes(MAX_BATCH_LEN)?)?));
                }
                TAG_CLOSED => edit.closed.push(LogClosed { number: reader.varint()?, len: reader.varint()? }),
                TAG_VALUE_FILE => {
                    edit.value_files.push(ValueFile::decode(reader.bytes(MAX_VALUE_FILE_LEN)?)?)
                }
                TAG_VALUE_FILE_REMOVED => edit.value_files_removed.push(reader.varint()?),
                TAG_HINTS => {
                    let keyspace = reader.varint()?;
                    edit.hints.push((keyspace, HintFile::decode(reader.bytes(MAX_VALUE_FILE_LEN)?)?));
                }
                TAG_HINTS_REMOVED => edit.hints_removed.push((reader.varint()?, reader.varint()?)),
                TAG_SHARES_TABLES => edit.shares_tables = true,
                TAG_NEXT_FILE => edit.next_file = reader.varint()?,
                TAG_NEXT_KEYSPACE => edit.next_keyspace = reader.varint()?,
                TAG_LAST_SEQ => edit.last_seq = reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?,
                TAG_LAST_TIME => edit.last_time = Time::from_micros(reader.varint()?),
                TAG_RETENTION_TIME => edit.retention_time = Time::from_micros(reader.varint()?),
                TAG_MIN_LOG => edit.min_log = reader.varint()?,
                TAG_NEWEST_LOG => edit.newest_log = reader.varint()?,
                _ => return None,
            }
        }
        Some(edit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn historical_keyspaces_and_times_are_read_back() {
        let plain = KeyspaceDescription {
            id: 3,
            name: "k".into(),
            levels: 2,
            options: vec![("levels".into(), "2".into())],
            history_of: None,
            kept_since: Time::MIN,
        };
        let historical = KeyspaceDescription { id: 4, history_of: Some(3), ..plain.clone() };
        let altered = KeyspaceDescription { kept_since: Time::from_micros(7), ..plain.clone() };
        let last_time = Time::from_micros(1 << 50);
        let retention_time = Time::from_micros(1 << 49);
        let created = vec![plain, historical.clone()];
        let altered = vec![altered];
        let edit = DatabaseEdit { created, altered, last_time, retention_time, ..DatabaseEdit::default() };
        assert_eq!(DatabaseEdit::decode(&edit.encode()), Some(edit));
        for name in [HISTORY_OF, KEPT_SINCE] {
            let mut hostile = historical.clone();
            (hostile.history_of, hostile.options) = (None, vec![(name.into(), "x".into())]);
            let hostile = DatabaseEdit { created: vec![hostile], ..DatabaseEdit::default() };
            assert_eq!(DatabaseEdit::decode(&hostile.encode()), None, "no number");
        }
    }

    /// A regression test: the decoder computed the number after it, which overflowed (found by the fuzz target
    /// `manifest`).
    #[test]
    fn an_edit_with_an_impossible_sequence_number_is_refused() {
        for (seq, known) in [(base::MAX_SEQ, true), (base::MAX_SEQ + 1, false), (u64::MAX, false)] {
            let flushed = VersionEdit { flushed_seq: Some(seq), ..VersionEdit::default() };
            let edits = [
                DatabaseEdit { trees: vec![(1, flushed)], ..DatabaseEdit::default() },
                DatabaseEdit { last_seq: seq, ..DatabaseEdit::default() },
            ];
            for edit in edits {
                assert_eq!(DatabaseEdit::decode(&edit.encode()), known.then_some(edit), "{seq}");
            }
        }
    }
}
