//! Edits: the difference between two versions, its encoding in the manifest, and its application to a version.

use crate::guards::hash::UncommittedGuards;
use crate::version::sketch::Sketch;
use crate::version::{Guard, Level, LiveTable, Version};
use base::codec::{Reader, put_bytes, put_varint};
use base::limits::{MAX_KEY_LEN, MAX_LEVELS};
use base::{Error, ErrorKind, RangeTombstone, Result, Seq, Slice};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use table::TableMeta;

/// The difference between two versions of one keyspace. Applied whole or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionEdit {
    /// Added tables, with their level. The keys determine the guard, the sequence numbers the place in its stack.
    pub added: Vec<(usize, TableMeta)>,
    /// Removed tables: level and number.
    pub removed: Vec<(usize, u64)>,
    /// Added guards: level and key.
    pub guards_added: Vec<(usize, Slice)>,
    /// Removed guards: level and key.
    pub guards_removed: Vec<(usize, Slice)>,
    /// Uncommitted guards: keys selected as guards that are not yet guards of all their levels, with the shallowest
    /// level.
    pub uncommitted_added: Vec<(Slice, usize)>,
    /// Keys that are no longer uncommitted guards: guards of all their levels by now, or given up.
    pub uncommitted_removed: Vec<Slice>,
    /// All entries up to this sequence number are in tables.
    pub flushed_seq: Option<Seq>,
    /// Sketches of the added tables, by table number.
    pub sketches: Vec<(u64, Sketch)>,
    /// Added range tombstones.
    pub range_tombstones_added: Vec<RangeTombstone>,
    /// Range tombstones that hide no entry any more. Each removes itself and older ones inside its range.
    pub range_tombstones_removed: Vec<RangeTombstone>,
    /// The oldest sequence number at which a reader reads or will read; `None` if there are no readers of old versions.
    /// Range tombstones up to it can be merged. It is not encoded, because there are no readers when a manifest is
    /// read.
    pub oldest_reader: Option<Seq>,
}

// Tags of the fields in the manifest: docs/format/manifest.md.
const TAG_ADDED: u64 = 1;
const TAG_REMOVED: u64 = 2;
const TAG_GUARD_ADDED: u64 = 3;
const TAG_GUARD_REMOVED: u64 = 4;
const TAG_UNCOMMITTED_ADDED: u64 = 5;
const TAG_UNCOMMITTED_REMOVED: u64 = 6;
const TAG_FLUSHED_SEQ: u64 = 7;
const TAG_SKETCH: u64 = 16;
const TAG_RANGE_TOMBSTONE_ADDED: u64 = 8;
const TAG_RANGE_TOMBSTONE_REMOVED: u64 = 9;
const TAG_CLEARED: u64 = 10;

impl VersionEdit {
    /// Whether the edit changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == VersionEdit::default()
    }

    /// Appends the encoded fields, each after its tag.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (level, meta) in &self.added {
            put_varint(out, TAG_ADDED);
            put_varint(out, *level as u64);
            for number in [
                meta.number,
                meta.file_size,
                meta.entries,
                meta.tombstones,
                meta.min_seq,
                meta.max_seq,
                meta.user_bytes,
            ] {
                put_varint(out, number);
            }
            put_bytes(out, &meta.smallest);
            put_bytes(out, &meta.largest);
            if meta.cleared_seq > 0 {
                put_varint(out, TAG_CLEARED);
                put_varint(out, meta.cleared_seq);
            }
        }
        for (level, number) in &self.removed {
            put_varint(out, TAG_REMOVED);
            put_varint(out, *level as u64);
            put_varint(out, *number);
        }
        for (tag, guards) in
            [(TAG_GUARD_ADDED, &self.guards_added), (TAG_GUARD_REMOVED, &self.guards_removed)]
        {
            for (level, key) in guards {
                put_varint(out, tag);
                put_varint(out, *level as u64);
                put_bytes(out, key);
            }
        }
        for (key, level) in &self.uncommitted_added {
            put_varint(out, TAG_UNCOMMITTED_ADDED);
            put_varint(out, *level as u64);
            put_bytes(out, key);
        }
        for key in &self.uncommitted_removed {
            put_varint(out, TAG_UNCOMMITTED_REMOVED);
            put_bytes(out, key);
        }
        if let Some(seq) = self.flushed_seq {
            put_varint(out, TAG_FLUSHED_SEQ);
            put_varint(out, seq);
        }
        for (number, sketch) in &self.sketches {
            put_varint(out, TAG_SKETCH);
            put_varint(out, *number);
            put_bytes(out, &sketch.encode());
        }
        for (tag, range_tombstones) in [
            (TAG_RANGE_TOMBSTONE_ADDED, &self.range_tombstones_added),
            (TAG_RANGE_TOMBSTONE_REMOVED, &self.range_tombstones_removed),
        ] {
            for range in range_tombstones {
                put_varint(out, tag);
                put_varint(out, range.seq);
                put_bytes(out, &range.from);
                put_bytes(out, range.to.as_deref().unwrap_or_default());
            }
        }
    }

    /// Decodes all fields; `None` if they are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<VersionEdit> {
        let mut edit = VersionEdit::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            match reader.varint()? {
                TAG_ADDED => {
                    let level = read_level(&mut reader, 0)?;
                    let mut numbers = [0u64; 7];
                    for number in &mut numbers {
                        *number = reader.varint()?;
                    }
                    let [number, file_size, entries, tombstones, min_seq, max_seq, user_bytes] = numbers;
                    let smallest = reader.bytes(MAX_KEY_LEN)?.to_vec();
                    let largest = reader.bytes(MAX_KEY_LEN)?.to_vec();
                    if smallest > largest
                        || min_seq > max_seq
                        || max_seq > base::MAX_SEQ
                        || tombstones > entries
                    {
                        return None;
                    }
                    edit.added.push((
                        level,
                        TableMeta {
                            number,
                            file_size,
                            entries,
                            tombstones,
                            smallest,
                            largest,
                            min_seq,
                            max_seq,
                            user_bytes,
                            cleared_seq: 0,
                        },
                    ));
                }
                TAG_REMOVED => edit.removed.push((read_level(&mut reader, 0)?, reader.varint()?)),
                TAG_GUARD_ADDED => {
                    edit.guards_added.push((read_level(&mut reader, 1)?, read_key(&mut reader)?))
                }
                TAG_GUARD_REMOVED => {
                    edit.guards_removed.push((read_level(&mut reader, 1)?, read_key(&mut reader)?))
                }
                TAG_UNCOMMITTED_ADDED => {
                    let level = read_level(&mut reader, 1)?;
                    edit.uncommitted_added.push((read_key(&mut reader)?, level));
                }
                TAG_UNCOMMITTED_REMOVED => edit.uncommitted_removed.push(read_key(&mut reader)?),
                TAG_FLUSHED_SEQ => {
                    edit.flushed_seq = Some(reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?);
                }
                TAG_SKETCH => {
                    let number = reader.varint()?;
                    edit.sketches.push((number, Sketch::decode(reader.bytes(Sketch::MAX_ENCODED_LEN)?)?));
                }
                TAG_CLEARED => {
                    let (_, meta) = edit.added.last_mut()?;
                    meta.cleared_seq = reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?;
                }
                TAG_RANGE_TOMBSTONE_ADDED => {
                    edit.range_tombstones_added.push(read_range_tombstone(&mut reader)?)
                }
                TAG_RANGE_TOMBSTONE_REMOVED => {
                    edit.range_tombstones_removed.push(read_range_tombstone(&mut reader)?)
                }
                _ => return None,
            }
        }
        Some(edit)
    }

    /// The edit from an empty version to `version`, with which a new manifest starts.
    pub fn snapshot(version: &Version) -> VersionEdit {
        let mut edit = VersionEdit { flushed_seq: Some(version.flushed_seq), ..VersionEdit::default() };
        edit.added = version.tables().map(|(level, t)| (level, t.meta.clone())).collect();
        let sketch = |t: &Arc<LiveTable>| Some((t.meta.number, t.sketch()?.clone()));
        edit.sketches = version.tables().filter_map(|(_, t)| sketch(t)).collect();
        for (i, level) in version.levels.iter().enumerate() {
            edit.guards_added.extend(level.guards[1..].iter().map(|g| (i + 1, g.key.clone())));
        }
        edit.uncommitted_added =
            version.uncommitted.iter().map(|(key, level)| (key.clone(), level)).collect();
        edit.range_tombstones_added = version.range_tombstones.tombstones();
        edit
    }
}

fn read_level(reader: &mut Reader<'_>, min: usize) -> Option<usize> {
    let level = reader.len(MAX_LEVELS)?;
    (level >= min).then_some(level)
}

fn read_key(reader: &mut Reader<'_>) -> Option<Slice> {
    Some(Slice::copy_from(reader.bytes(MAX_KEY_LEN)?))
}

/// Reads a range tombstone. An empty end is the end of all keys.
fn read_range_tombstone(reader: &mut Reader<'_>) -> Option<RangeTombstone> {
    let seq = reader.varint().filter(|&seq| seq <= base::MAX_SEQ)?;
    let (from, to) = (reader.bytes(MAX_KEY_LEN)?, reader.bytes(MAX_KEY_LEN)?);
    let range = RangeTombstone::new(from, to, seq);
    (!range.is_empty()).then_some(range)
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corruption, what)
}

/// The tables that an edit removes from one level and adds to another. Their readers and damage marks are kept.
fn moved(version: &Version, edit: &VersionEdit) -> HashMap<u64, Arc<LiveTable>> {
    let added: HashSet<u64> = edit.added.iter().map(|(_, meta)| meta.number).collect();
    let both: HashSet<u64> = edit.removed.iter().map(|(_, n)| *n).filter(|n| added.contains(n)).collect();
    if both.is_empty() {
        return HashMap::new();
    }
    let tables = version.tables().filter(|(_, t)| both.contains(&t.meta.number));
    tables.map(|(_, t)| (t.meta.number, t.clone())).collect()
}

/// See [`Version::apply`]. An edit that does not fit the version (a missing table, a table across a guard) is an error:
/// the manifest is damaged, or there is a bug.
pub(crate) fn apply(
    version: &Version,
    edit: &VersionEdit,
    open: &mut dyn FnMut(&TableMeta) -> Result<Arc<LiveTable>>,
) -> Result<Version> {
    let levels = version.levels.len();
    let deepest = (edit.added.iter().map(|(l, _)| *l))
        .chain(edit.removed.iter().map(|(l, _)| *l))
        .chain(edit.guards_added.iter().chain(&edit.guards_removed).map(|(l, _)| *l))
        .max();
    if deepest.is_some_and(|d| d > levels) {
        return Err(wrong(format!(
            "an edit names level {}, but the tree has {levels} levels",
            deepest.unwrap_or(0)
        )));
    }
    let mut added: Vec<Vec<Arc<LiveTable>>> = vec![Vec::new(); levels + 1];
    let mut moved = moved(version, edit);
    for (level, meta) in &edit.added {
        added[*level].push(match moved.remove(&meta.number) {
            Some(table) if table.meta == *meta => table,
            Some(_) => return Err(wrong(format!("an edit moves table {} and changes it", meta.number))),
            None => open(meta)?,
        });
    }
    if !edit.sketches.is_empty() {
        let sketches: HashMap<u64, &Sketch> = edit.sketches.iter().map(|(n, sketch)| (*n, sketch)).collect();
        for table in added.iter().flatten() {
            sketches.get(&table.meta.number).inspect(|sketch| table.set_sketch(sketch));
        }
    }
    let mut removed: Vec<HashSet<u64>> = vec![HashSet::new(); levels + 1];
    for (level, number) in &edit.removed {
        removed[*level].insert(*number);
    }

    let mut level0 = version.level0.clone();
    let before = level0.len();
    level0.retain(|t| !removed[0].contains(&t.meta.number));
    if before - level0.len() != removed[0].len() {
        return Err(wrong("an edit removes a table that level 0 does not have"));
    }
    level0.append(&mut added[0]);
    level0.sort_by_key(|t| std::cmp::Reverse(t.meta.max_seq));

    let mut new_levels = version.levels.clone();
    for n in 1..=levels {
        let of_level = |list: &[(usize, Slice)]| -> Vec<Slice> {
            let mut keys: Vec<Slice> = list.iter().filter(|(l, _)| *l == n).map(|(_, k)| k.clone()).collect();
            keys.sort_unstable();
            keys
        };
        let change = LevelChange {
            added: std::mem::take(&mut added[n]),
            removed: &removed[n],
            guards_added: of_level(&edit.guards_added),
            guards_removed: of_level(&edit.guards_removed),
        };
        if !change.is_empty() {
            new_levels[n - 1] = Arc::new(change.apply(version.level(n), n)?);
        }
    }

    let uncommitted = match edit.uncommitted_added.is_empty() && edit.uncommitted_removed.is_empty() {
        true => version.uncommitted.clone(),
        false => {
            let mut set = UncommittedGuards::clone(&version.uncommitted);
            for (key, level) in &edit.uncommitted_added {
                set.add(key.clone(), *level);
            }
            for key in &edit.uncommitted_removed {
                set.remove(key);
            }
            Arc::new(set)
        }
    };
    let flushed_seq = version.flushed_seq.max(edit.flushed_seq.unwrap_or(0));
    let range_tombstones = version.range_tombstones_after(edit);
    Ok(Version { level0, levels: new_levels, uncommitted, flushed_seq, range_tombstones })
}

struct LevelChange<'a> {
    added: Vec<Arc<LiveTable>>,
    removed: &'a HashSet<u64>,
    guards_added: Vec<Slice>,
    guards_removed: Vec<Slice>,
}

impl LevelChange<'_> {
    fn is_empty(&self) -> bool {
        self.added.is_empty()
            && self.removed.is_empty()
            && self.guards_added.is_empty()
            && self.guards_removed.is_empty()
    }

    /// The level after the change. It shares unchanged guards with the old level.
    fn apply(mut self, old: &Level, n: usize) -> Result<Level> {
        let keys = self.keys(old, n)?;
        self.added.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        let mut added = self.added.into_iter().peekable();
        let mut guards = Vec::with_capacity(keys.len());
        let mut removed = 0;
        let mut source = 0; // the first old guard that overlaps the new one
        for (i, key) in keys.iter().enumerate() {
            let end = keys.get(i + 1);
            while old.end_of(source).is_some_and(|end| end <= key) {
                source += 1;
            }
            let comes = added.peek().is_some_and(|t| end.is_none_or(|end| t.meta.smallest[..] < end[..]));
            let same = &old.guards[source];
            let goes = same.tables.iter().any(|t| self.removed.contains(&t.meta.number));
            if same.key == *key && old.end_of(source) == end && !comes && !goes {
                guards.push(same.clone());
                continue;
            }
            let mut tables = Vec::new();
            for guard in &old.guards[source..] {
                if end.is_some_and(|end| &guard.key >= end) {
                    break;
                }
                for table in &guard.tables {
                    let inside = table.meta.smallest[..] >= key[..]
                        && end.is_none_or(|end| table.meta.smallest[..] < end[..]);
                    match (inside, self.removed.contains(&table.meta.number)) {
                        (true, true) => removed += 1,
                        (true, false) => tables.push(table.clone()),
                        (false, _) => {}
                    }
                }
            }
            while let Some(table) = added.next_if(|t| end.is_none_or(|end| t.meta.smallest[..] < end[..])) {
                tables.push(table);
            }
            if let Some(table) = tables.iter().find(|t| end.is_some_and(|end| t.meta.largest[..] >= end[..]))
            {
                return Err(wrong(format!(
                    "table {} of level {n} lies across the guard {:?}",
                    table.meta.number,
                    keys[i + 1]
                )));
            }
            tables.sort_by_key(|t| std::cmp::Reverse(t.meta.max_seq));
            let guard = Guard::new(key.clone(), tables);
            if same.key == *key && old.end_of(source) == end && !goes {
                guard.inherit_charges(same);
            }
            guards.push(guard);
        }
        if removed != self.removed.len() {
            return Err(wrong(format!("an edit removes a table that level {n} does not have")));
        }
        Ok(Level::new(guards))
    }

    fn keys(&self, old: &Level, n: usize) -> Result<Vec<Slice>> {
        let mut keys: Vec<Slice> = old.guards.iter().map(|g| g.key.clone()).collect();
        let before = keys.len();
        keys.retain(|k| self.guards_removed.binary_search(k).is_err() || k.is_empty());
        if before - keys.len() != self.guards_removed.len() {
            return Err(wrong(format!("an edit removes a guard that level {n} does not have")));
        }
        keys.extend(self.guards_added.iter().cloned());
        keys.sort_unstable();
        if keys.windows(2).any(|w| w[0] == w[1]) {
            return Err(wrong(format!("an edit adds a guard that level {n} already has")));
        }
        Ok(keys)
    }
}
