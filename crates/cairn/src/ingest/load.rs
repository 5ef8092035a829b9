//! [`Ingest`]: a bulk load in progress.

use super::attach::Built;
use super::sort::Sorter;
use super::table_file::TableReader;
use crate::api::{Database, Keyspace};
use crate::events;
use crate::state::{DbInner, KeyspaceInner};
use crate::wal::Entry;
use base::expiry::expiry_bytes;
use base::planted::{Bug, planted};
use base::{EntryKind, Error, Result, Seq, Time};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use table::TableTimes;
use tree::IngestWriter;

/// Bytes of a key that an error shows.
const SHOWN: usize = 64;

/// Least memory for sorting.
const MIN_SORT_BYTES: usize = 64 << 10;

/// Options of a bulk load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IngestOptions {
    sort_bytes: Option<usize>,
}

impl IngestOptions {
    /// Takes entries in any order, and sorts them with about this many bytes of memory for each keyspace (at least 64 KiB). Of entries with one key
    /// the last counts. What does not fit is written to temporary files in the directory of the database and read again: once if the data has up to 16
    /// times as many bytes, twice up to 256 times. A merge of these files takes up to 8 MiB more.
    #[must_use]
    pub fn unsorted(mut self, bytes: usize) -> IngestOptions {
        self.sort_bytes = Some(bytes.max(MIN_SORT_BYTES));
        self
    }
}

/// What a bulk load has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ingested {
    /// The sequence number of its entries: that of the commit. 0 if there were none.
    pub seq: Seq,
    /// Entries; of those with one key only the last.
    pub entries: u64,
    /// Tables that were attached.
    pub tables: u64,
    /// Bytes of these tables.
    pub bytes: u64,
}

/// A bulk load: entries that go into tables directly, past log and memtables, and become part of the database by one edit of the manifest.
///
/// A put is written once to the log and at least once to a table; an entry of a bulk load once to a table, and its table to the deepest level that a
/// move could bring it to (`docs/bulk-load.md`). Loading takes a third of the processor time of sorted puts, little memory, and
/// writes the data once.
///
/// It is a commit, as that of a [`Batch`](crate::Batch), of any length: over any number of keyspaces, all of it or nothing, also in a crash. Until
/// [`Ingest::commit`] nothing of it is visible; then its entries are newer than everything that was written before. It is durable when `commit`
/// returns, and with it everything that was written before.
///
/// Keys must ascend in each keyspace, unless the load is [unsorted](IngestOptions::unsorted). Each call takes a moment of the thread that makes it;
/// the thread also compresses and writes. Memory: up to 10 MiB for each keyspace, and eight bytes for each key of the present table. Open files: one for each
/// keyspace, and 32.
///
/// **Cost of the commit.** What the keyspaces have in memory is flushed, mostly while writers go on. They wait while a log is begun and synced, the rest
/// is flushed, and the edit is synced: some milliseconds. Where keys lie among those of recently written data, the tables come to
/// level 0, and compactions merge them with that.
///
/// Values are stored in the tables, however large they are. A keyspace without order (`engine` = `hash_log`) takes no bulk load. In one with history the
/// versions of a load have the time of its first put there, and no write of that time or a later one may come in until the commit, which otherwise returns `Conflict`.
/// Compaction filters see the entries in later compactions; merge operators check the values; the option `ttl` holds, from the time of the put.
/// Open snapshots, iterators and transactions do not see them, and a transaction that has read one of the keys, or a range with one, does not commit.
///
/// A load that is dropped, or whose database closes, leaves nothing behind. It is no handle: it does not keep the database open.
///
/// ```
/// use cairn::{Database, IngestOptions, KeyspaceOptions};
///
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path())?;
/// let words = db.keyspace("words", KeyspaceOptions::default())?;
/// let lengths = db.keyspace("lengths", KeyspaceOptions::default())?;
///
/// // In order:
/// words.ingest([("ant", "1"), ("bee", "2"), ("cow", "3")])?;
///
/// // In any order, and over two keyspaces:
/// let mut load = db.ingest(IngestOptions::default().unsorted(64 << 20));
/// for word in ["yak", "emu", "elk"] {
///     load.put(&words, word, "new")?;
///     load.put(&lengths, format!("{}/{word}", word.len()), "")?;
/// }
/// let done = load.commit()?;
/// assert_eq!((done.entries, words.iter().count(), lengths.iter().count()), (6, 6, 3));
/// # Ok(())
/// # }
/// ```
#[must_use = "a load that is not committed leaves nothing behind"]
pub struct Ingest {
    db: Arc<DbInner>,
    options: IngestOptions,
    parts: Vec<Part>,
    /// What loads had that were joined; all of it is written.
    joined: Vec<Part>,
    /// The keyspace of the last entry.
    latest: usize,
    /// The newest sequence number when the load began.
    seq: Seq,
    /// Bytes that sorting took in loads that were joined.
    sorted_bytes: u64,
    began: Duration,
    failed: Option<Error>,
}

/// The load of one keyspace.
struct Part {
    keyspace: Arc<KeyspaceInner>,
    writer: IngestWriter,
    sorter: Option<Sorter>,
    last_key: Option<Vec<u8>>,
    /// With history: the time of its versions, that of its first entry.
    time: Option<Time>,
    /// The value with its expiry or its time.
    stored: Vec<u8>,
    user_bytes: u64,
}

impl Database {
    /// Begins a bulk load. Costs nothing until there are entries.
    pub fn ingest(&self, options: IngestOptions) -> Ingest {
        Ingest::new(&self.handle.db, options)
    }
}

impl Keyspace {
    /// Loads entries whose keys ascend, as one commit: see [`Ingest`]. If one is refused, nothing is loaded.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// # let squares = db.keyspace("squares", cairn::KeyspaceOptions::default())?;
    /// squares.ingest((0u32..1000).map(|n| (n.to_be_bytes(), (n * n).to_be_bytes())))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Ingest::put`] and [`Ingest::commit`].
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Ingested> {
        let mut load = Ingest::new(self.database(), IngestOptions::default());
        entries.into_iter().try_for_each(|(key, value)| load.put(self, key, value))?;
        load.commit()
    }
}

impl Ingest {
    fn new(db: &Arc<DbInner>, options: IngestOptions) -> Ingest {
        let (seq, began) = (db.visible.newest(), db.env.monotonic());
        let (db, parts, joined) = (db.clone(), Vec::new(), Vec::new());
        Ingest { db, options, parts, joined, latest: 0, seq, sorted_bytes: 0, began, failed: None }
    }

    /// Adds a put.
    ///
    /// # Errors
    /// `InvalidArgument` if the key does not come after the last one of its keyspace and the load is not [unsorted](IngestOptions::unsorted), if
    /// the keyspace has no order or belongs to another database, or if key or value are refused as by [`Keyspace::put`]: then the load is
    /// what it was before. `Closed`; errors of writing, after which all calls return the same error.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let expiry = keyspace.inner.default_expiry();
        self.add(&keyspace.inner, Entry::put(key.as_ref(), value.as_ref()).until(expiry))
    }

    /// Adds a put of an entry that lives until `expiry`: see [`Keyspace::put_until`].
    ///
    /// # Errors
    /// As for [`Ingest::put`].
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Time,
    ) -> Result<()> {
        self.add(&keyspace.inner, Entry::put(key.as_ref(), value.as_ref()).until(Some(expiry)))
    }

    /// Adds a put of an entry that lives for `ttl` from now on: see [`Keyspace::put_with_ttl`].
    ///
    /// # Errors
    /// As for [`Ingest::put`].
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let expiry = keyspace.inner.clock.after(ttl);
        self.add(&keyspace.inner, Entry::put(key.as_ref(), value.as_ref()).until(Some(expiry)))
    }

    /// Adds all entries of a file that a [`TableBuilder`](super::TableBuilder) has written. The file is read once, verified on the way, and not changed.
    ///
    /// # Errors
    /// As for [`Ingest::put`]; `NotFound` and other errors of opening and reading the file; `Corruption`, with file and offset; `Unsupported` if a
    /// newer version wrote it, or it needs a feature that this program was built without. The entries before the error are part of the load.
    pub fn put_table(&mut self, keyspace: &Keyspace, path: impl AsRef<Path>) -> Result<()> {
        let mut entries = TableReader::open(&self.db.env, path.as_ref())?;
        while let Some(mut entry) = entries.entry()? {
            if entry.expiry.is_none() {
                entry = entry.until(keyspace.inner.default_expiry());
            }
            self.add(&keyspace.inner, entry)?;
            entries.next()?;
        }
        Ok(())
    }

    fn add(&mut self, keyspace: &Arc<KeyspaceInner>, entry: Entry<'_>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        keyspace.check_of(self.db.identity)?;
        keyspace.limits.check(entry.key, entry.value)?;
        keyspace.check_kind(EntryKind::Put, entry.value)?;
        keyspace.check_expiry(entry.expiry, entry.value.len())?;
        self.choose(keyspace)?;
        // Closing waits for calls that use the directory.
        let call = self.db.begin_call()?;
        let part = &mut self.parts[self.latest];
        if part.sorter.is_none() {
            part.check_order(entry.key)?;
        }
        let added = part.add(&self.db, entry);
        drop(call);
        added.map_err(|error| self.fail(error))
    }

    /// Ends the load, and frees its space.
    fn fail(&mut self, error: Error) -> Error {
        let error = self.db.poison_on_sync_error(error);
        self.failed = Some(error.clone());
        self.abandon();
        error
    }

    /// Makes the part of a keyspace the latest one.
    #[inline]
    fn choose(&mut self, keyspace: &Arc<KeyspaceInner>) -> Result<()> {
        if self.parts.get(self.latest).is_some_and(|part| part.keyspace.id == keyspace.id) {
            return Ok(());
        }
        let known = self.parts.iter().position(|part| part.keyspace.id == keyspace.id);
        self.latest = match known {
            Some(place) => place,
            None => self.begin_part(keyspace)?,
        };
        Ok(())
    }

    /// Begins the part of a keyspace. Returns its place.
    fn begin_part(&mut self, keyspace: &Arc<KeyspaceInner>) -> Result<usize> {
        keyspace.check_order()?;
        let call = self.db.begin_call()?;
        self.db.admit()?;
        self.db.check_place()?;
        let part = Part::new(&self.db, keyspace, self.seq, self.options);
        self.parts.push(part);
        let writers = self.parts.len();
        let shared = self.parts.iter_mut().try_for_each(|part| part.writer.share_files(writers));
        drop(call);
        shared.map(|()| writers - 1).map_err(|error| self.fail(error))
    }

    /// Adds all that another load of the same database has: both become one commit. So several threads load in parallel, each its own range of keys.
    ///
    /// ```
    /// use cairn::{Database, IngestOptions, KeyspaceOptions};
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path())?;
    /// let numbers = db.keyspace("numbers", KeyspaceOptions::default())?;
    /// let load_range = |range: std::ops::Range<u32>| {
    ///     let mut load = db.ingest(IngestOptions::default());
    ///     for n in range {
    ///         load.put(&numbers, n.to_be_bytes(), "")?;
    ///     }
    ///     Ok(load)
    /// };
    /// let (mut low, high) = std::thread::scope(|scope| {
    ///     let high = scope.spawn(|| load_range(5_000..10_000));
    ///     cairn::Result::Ok((load_range(0..5_000)?, high.join().unwrap()?))
    /// })?;
    /// low.join(high)?;
    /// assert_eq!(low.commit()?.entries, 10_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the other load belongs to another database, or if in one of the keyspaces the keys of one load lie among those of the other
    /// (told by [`Ingest::commit`]); an error that one of the loads has met; those of writing what is left of the other load.
    pub fn join(&mut self, mut other: Ingest) -> Result<()> {
        if other.db.identity != self.db.identity {
            return Err(Error::invalid("a bulk load of another database cannot be joined"));
        }
        if let Some(error) = self.failed.as_ref().or(other.failed.as_ref()) {
            return Err(error.clone());
        }
        let db = self.db.clone();
        let _call = db.begin_call()?;
        self.sorted_bytes += other.end(&db).map_err(|error| other.fail(error))?;
        self.joined.append(&mut other.parts);
        self.joined.append(&mut other.joined);
        Ok(())
    }

    /// Writes all that is left. Returns the bytes that sorting took.
    fn end(&mut self, db: &DbInner) -> Result<u64> {
        let mut sorted_bytes = std::mem::take(&mut self.sorted_bytes);
        for part in &mut self.parts {
            sorted_bytes += part.write_sorted(db)?;
            part.writer.end()?;
        }
        Ok(sorted_bytes)
    }

    /// Makes the load part of the database, as one commit that is durable. Without entries this does nothing.
    ///
    /// # Errors
    /// Errors of writing, and those of flushes; `Closed` if the database was closed or one of the keyspaces dropped; `Conflict` if a keyspace with history
    /// was written to, or was to be, since its first put in the load. Nothing is loaded then, and nothing of it stays, unless writing has ended with `ReadOnly`: then the load may be there after the next opening, as a whole.
    pub fn commit(mut self) -> Result<Ingested> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.parts.is_empty() && self.joined.is_empty() {
            return Ok(Ingested::default());
        }
        let db = self.db.clone();
        let _call = db.begin_call()?;
        db.admit()?;
        let sorted_bytes = self.end(&db).map_err(|error| self.fail(error))?;
        let mut built: Vec<Built> = Vec::new();
        for Part { keyspace, writer, time, user_bytes, .. } in
            self.parts.drain(..).chain(self.joined.drain(..))
        {
            let mut output = writer.into_output();
            output.added.iter_mut().for_each(|meta| meta.times = time.map(TableTimes::of_newest));
            match built.iter_mut().find(|built| built.keyspace.id == keyspace.id) {
                None => {
                    built.push(Built { keyspace, output, times: time.map(|time| (time, time)), user_bytes })
                }
                Some(built) => {
                    built.times = built.times.zip(time).map(|((a, b), time)| (a.min(time), b.max(time)));
                    built.output.added.append(&mut output.added);
                    built.output.sketches.append(&mut output.sketches);
                    built.output.uncommitted.append(&mut output.uncommitted);
                    built.user_bytes += user_bytes;
                }
            }
        }
        built.iter_mut().for_each(|built| built.output.added.sort_by(|a, b| a.smallest.cmp(&b.smallest)));
        if let Some(error) = built.iter().find_map(overlap) {
            built.iter().for_each(|built| db.discard(&built.output.added));
            return Err(error);
        }
        let tables = || built.iter().flat_map(|part| &part.output.added);
        let mut done = Ingested {
            seq: 0,
            entries: tables().map(|meta| meta.entries).sum(),
            tables: tables().count() as u64,
            bytes: tables().map(|meta| meta.file_size).sum(),
        };
        done.seq = db.attach(&built)?;
        let time = db.env.monotonic().saturating_sub(self.began);
        let Ingested { seq, entries, tables, bytes } = done;
        events::info!(seq, entries, tables, bytes, seconds = time.as_secs_f64(), "bulk load");
        db.counters.ingest.lock().note(sorted_bytes, sorted_bytes + done.bytes, time);
        Ok(done)
    }

    /// Removes the files of a load that was not committed. Once the database is closed, or its directory has another place, they are no longer this one's:
    /// the next opening removes them.
    fn abandon(&mut self) {
        let parts: Vec<Part> = self.parts.drain(..).chain(self.joined.drain(..)).collect();
        if parts.is_empty() || planted(Bug::LeaveLoads) {
            return;
        }
        let db = self.db.clone();
        if let Ok(_call) = db.begin_call()
            && db.check_place().is_ok()
        {
            for part in parts {
                part.sorter.into_iter().for_each(|sorter| sorter.abandon(&db));
                part.writer.abandon();
            }
        }
    }

    /// Bytes of the tables so far, without what is still to be sorted.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().chain(&self.joined).map(|part| part.writer.bytes()).sum()
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The error if tables of loads that were joined overlap.
fn overlap(built: &Built) -> Option<Error> {
    let pair = built.output.added.windows(2).find(|pair| pair[0].largest >= pair[1].smallest)?;
    Some(Error::invalid(format!(
        "keyspace {:?}: of bulk loads that were joined, one goes up to key \"{}\", and another begins at \"{}\"",
        built.keyspace.name(),
        shown(&pair[0].largest),
        shown(&pair[1].smallest)
    )))
}

/// A key, for an error.
fn shown(key: &[u8]) -> String {
    key[..key.len().min(SHOWN)].escape_ascii().to_string()
}

impl Part {
    fn new(db: &DbInner, keyspace: &Arc<KeyspaceInner>, seq: Seq, options: IngestOptions) -> Part {
        let version = keyspace.read_state.load().version.clone();
        Part {
            keyspace: keyspace.clone(),
            writer: IngestWriter::new(&db.env, &db.dir, keyspace.tree_options(), &version, seq),
            sorter: options.sort_bytes.map(Sorter::new),
            last_key: None,
            time: (keyspace.tail_len > 0).then(|| db.time_of_load()),
            stored: Vec::new(),
            user_bytes: 0,
        }
    }

    /// Checks that `key` comes after the last one, and remembers it.
    fn check_order(&mut self, key: &[u8]) -> Result<()> {
        let is_first = self.last_key.is_none();
        let last = self.last_key.get_or_insert_default();
        if !is_first && *key <= **last {
            return Err(Error::invalid(format!(
                "keyspace {:?}: in a sorted bulk load key \"{}\" cannot follow \"{}\"",
                self.keyspace.name(),
                shown(key),
                shown(last)
            )));
        }
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    fn add(&mut self, db: &DbInner, entry: Entry<'_>) -> Result<()> {
        let (kind, stored) = match (entry.expiry, self.time) {
            (None, None) => (EntryKind::Put, entry.value),
            (expiry, time) => {
                self.stored.clear();
                self.stored.extend_from_slice(entry.value);
                self.stored.extend_from_slice(&self.keyspace.tail(time));
                expiry.iter().for_each(|expiry| self.stored.extend_from_slice(&expiry_bytes(*expiry)));
                (if expiry.is_some() { EntryKind::ExpiringPut } else { EntryKind::Put }, &self.stored[..])
            }
        };
        self.user_bytes += (entry.key.len() + entry.value.len()) as u64;
        match &mut self.sorter {
            Some(sorter) => sorter.add(db, entry.key, kind, stored),
            None => self.writer.add(entry.key, kind, stored, || db.new_number()),
        }
    }

    /// Writes what was sorted. Returns the bytes that were written for sorting, and read again.
    fn write_sorted(&mut self, db: &DbInner) -> Result<u64> {
        let Some(mut sorter) = self.sorter.take() else { return Ok(0) };
        let writer = &mut self.writer;
        let written =
            sorter.finish(db, |key, kind, stored| writer.add(key, kind, stored, || db.new_number()));
        let bytes = sorter.run_bytes();
        sorter.abandon(db);
        written.map(|()| bytes)
    }
}

crate::types::debug_of! {
    [] Ingest, "Ingest";
}
