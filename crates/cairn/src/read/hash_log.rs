//! Point reads of a keyspace without order: candidates from the index, whose entries are read from their files until one has the key.

use super::get::AT_ONCE;
use crate::state::{HashLog, KeyspaceInner, ReadAt, ReadState};
use crate::wal::{Entries, Entry, decode_batch, least_len};
use base::planted::{Bug, planted};
use base::{EntryKind, Error, ErrorKind, Result, Seq, Slice};
use hashlog::{Candidate, Place};
use record::{BLOCK_LEN, CHUNK_HEADER_LEN, Part};
use std::task::Poll;

/// Bytes of an entry beside key and value, and of the head of its batch, about. What is beyond is read with a second read.
const OVERHEAD: usize = 64;

/// Where chunks of batches have this length in the mean, about, the rest of the block is read: the lengths of these are between a few bytes and those of
/// a block.
const LONG_CHUNK: usize = 8 << 10;

/// An entry is looked for again so often if its file is gone: each time a collection has moved it meanwhile.
const MAX_TRIES: usize = 100;

/// What an entry says of the key that is looked for.
enum Read {
    /// It is an entry of another key, or a newer one than the reader sees.
    Other,
    Deleted,
    Value(Slice),
}

impl KeyspaceInner {
    /// The value of `key` in the state `at`, of which `seq` is the number for flushed entries, among these. With `cached` nothing is waited for: `Pending` if an entry is not in memory, for
    /// which the disk was asked then.
    pub(super) fn find_by_hash(
        &self,
        log: &HashLog,
        key: &[u8],
        (at, seq): (&ReadAt, Seq),
        cached: bool,
    ) -> Result<Poll<Option<Slice>>> {
        self.with_candidates(log, key, |candidates| {
            for candidate in candidates {
                let Some(part) = self.read_part(candidate, cached)? else { return Ok(Poll::Pending) };
                // Where the record begins elsewhere, its sequence numbers are not in this part.
                if cached && !part.begins && seq < log.newest() {
                    return Ok(Poll::Pending);
                }
                match self.read_candidate(log, candidate, part, key, (at, seq))? {
                    Read::Other => {}
                    Read::Deleted => return Ok(Poll::Ready(None)),
                    Read::Value(value) => return Ok(Poll::Ready(Some(value))),
                }
            }
            Ok(Poll::Ready(None))
        })
    }

    /// Passes the entries that may have the key, the newest first, to `read`: again, if a collection has removed the file of one of them
    /// meanwhile.
    fn with_candidates<T>(
        &self,
        log: &HashLog,
        key: &[u8],
        read: impl Fn(&[Candidate]) -> Result<T>,
    ) -> Result<T> {
        let mut candidates = Vec::new();
        for _ in 0..MAX_TRIES {
            log.index.candidates(log.index.tag_of(key), &mut candidates);
            match read(&candidates) {
                // The files of a keyspace that was dropped are removed.
                Err(e) if e.kind() == ErrorKind::NotFound => self.check_open()?,
                done => return done,
            }
        }
        let missing = candidates.first().map(|candidate| self.segments.file_name(candidate.file));
        let path = self.segments.dir().join(missing.unwrap_or_default());
        Err(Error::corruption(&path, 0, "the file is missing"))
    }

    /// Reads the part of a file in which an entry is. `None`: it is not `cached`.
    fn read_part(&self, candidate: &Candidate, cached: bool) -> Result<Option<Part>> {
        let within = usize::from(candidate.at.within);
        let with_more = |mean: u64| (mean as usize).saturating_mul(5) / 4;
        let has_batches = candidate.mean_chunk_len >= 2 * candidate.mean_len;
        let of_chunk = match with_more(candidate.mean_chunk_len) {
            len if has_batches && len >= LONG_CHUNK => BLOCK_LEN,
            len => len,
        };
        // The checksum is that of the whole chunk.
        let payload = of_chunk.max(within.saturating_add(with_more(candidate.mean_len)));
        let expected = payload.saturating_add(CHUNK_HEADER_LEN + OVERHEAD);
        let missing = &mut |payload: &[u8]| match entry_at(payload, within) {
            Some(_) => 0,
            None => {
                let have = payload.get(within..).unwrap_or_default();
                // One that is malformed is met when the record has no more.
                least_len(have).saturating_sub(have.len()).max(1)
            }
        };
        let file = (candidate.file, candidate.file_len);
        self.segments.read_part(file, candidate.at.chunk, expected, cached, missing)
    }

    /// The entry in the part that was read, and where it ends there.
    fn entry_of<'a>(&self, candidate: &Candidate, part: &'a Part) -> Result<(Entry<'a>, usize)> {
        let found = entry_at(&part.payload, candidate.at.within.into()).expect("the part is whole");
        match found.0.keyspace == self.id {
            true => Ok(found),
            false => Err(self.misplaced(candidate, "an index refers to an entry of another keyspace here")),
        }
    }

    fn read_candidate(
        &self,
        log: &HashLog,
        candidate: &Candidate,
        part: Part,
        key: &[u8],
        (at, seq): (&ReadAt, Seq),
    ) -> Result<Read> {
        let (entry, end) = self.entry_of(candidate, &part)?;
        // The hash alone proves nothing.
        if entry.key != key && !planted(Bug::TrustHash) {
            return Ok(Read::Other);
        }
        let (is_delete, value) = (entry.kind == EntryKind::Delete, end - entry.value.len()..end);
        let expiry = entry.expiry;
        // All that is flushed is visible to readers without a snapshot.
        if seq < log.newest() && self.seq_of(candidate, &part)? > seq {
            return Ok(Read::Other);
        }
        if is_delete || expiry.is_some_and(|expiry| !at.sees_until(expiry)) {
            return Ok(Read::Deleted);
        }
        // The value of a small entry does not keep all of a batch in memory.
        if value.len() < part.payload.len() / 2 {
            return Ok(Read::Value(Slice::copy_from(&part.payload[value])));
        }
        let payload = Slice::from(part.payload);
        Ok(Read::Value(payload.slice_of(&payload[value])))
    }

    /// The sequence number and the place of the flushed entry of `key` that a reader at `seq` sees, be it a delete.
    pub(super) fn newest_by_hash(&self, log: &HashLog, key: &[u8], seq: Seq) -> Result<Option<(Seq, Place)>> {
        self.with_candidates(log, key, |candidates| {
            for candidate in candidates {
                let Some(part) = self.read_part(candidate, false)? else { continue };
                if self.entry_of(candidate, &part)?.0.key == key {
                    let found = self.seq_of(candidate, &part)?;
                    if found <= seq {
                        return Ok(Some((found, candidate.place)));
                    }
                }
            }
            Ok(None)
        })
    }

    /// The sequence number of an entry: that of its batch, and how many entries are before it there.
    fn seq_of(&self, candidate: &Candidate, part: &Part) -> Result<Seq> {
        let within = usize::from(candidate.at.within);
        let malformed = || self.misplaced(candidate, "no entry of a batch begins here");
        if part.begins {
            return seq_at(&part.payload, within).ok_or_else(malformed);
        }
        let file = (candidate.file, candidate.file_len);
        let (payload, before) = self.segments.read_from_start(file, candidate.at.chunk)?;
        seq_at(&payload, before + within).ok_or_else(malformed)
    }

    #[cold]
    fn misplaced(&self, candidate: &Candidate, what: &str) -> Error {
        let path = self.segments.dir().join(self.segments.file_name(candidate.file));
        Error::corruption(&path, candidate.at.chunk, what)
    }

    /// The value of `key` in the state `at`, in `read_state`. `flushed` is the number for flushed entries: `at.seq` again for a reader that holds it. A
    /// reader that holds none takes the newest one, whatever its number (`Seq::MAX`), because a collection may have removed those before it:
    /// then this is the value that the key has, or had at some time after the reader read `at.seq`.
    pub(crate) fn get_by_hash(
        &self,
        log: &HashLog,
        read_state: &ReadState,
        key: &[u8],
        at: &ReadAt,
        flushed: Seq,
    ) -> Result<Option<Slice>> {
        match read_state.get_recent(key, at, 0, 0) {
            Some(value) => Ok(value),
            None => self.find_now(log, key, (at, flushed)),
        }
    }

    /// The same without waiting for the disk.
    pub(super) fn try_get_by_hash(
        &self,
        log: &HashLog,
        read_state: &ReadState,
        key: &[u8],
        at: &ReadAt,
        flushed: Seq,
    ) -> Result<Poll<Option<Slice>>> {
        match read_state.get_recent(key, at, 0, 0) {
            Some(value) => Ok(Poll::Ready(value)),
            None => self.find_by_hash(log, key, (at, flushed), true),
        }
    }

    fn find_now(&self, log: &HashLog, key: &[u8], at: (&ReadAt, Seq)) -> Result<Option<Slice>> {
        match self.find_by_hash(log, key, at, false)? {
            Poll::Ready(value) => Ok(value),
            Poll::Pending => unreachable!("only a read of what is cached is given up"),
        }
    }

    /// The values of `keys` in the state `at`. The disk is asked for the entries of [`AT_ONCE`] keys that are not in memory before one is waited for.
    pub(super) fn multi_get_by_hash<K: AsRef<[u8]>>(
        &self,
        log: &HashLog,
        read_state: &ReadState,
        keys: &[K],
        at: &ReadAt,
    ) -> Result<Vec<Option<Slice>>> {
        let begin = |key: &K| self.try_get_by_hash(log, read_state, key.as_ref(), at, at.seq);
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(AT_ONCE) {
            let begun = keys.iter().map(begin).collect::<Result<Vec<_>>>()?;
            for (key, begun) in keys.iter().zip(begun) {
                values.push(match begun {
                    Poll::Ready(value) => value,
                    Poll::Pending => self.find_now(log, key.as_ref(), (at, at.seq))?,
                });
            }
        }
        Ok(values)
    }
}

/// The entry that begins at `within` in a payload, and where it ends, if all of it is there.
fn entry_at(payload: &[u8], within: usize) -> Option<(Entry<'_>, usize)> {
    let mut entries = Entries::new(payload.get(within..)?);
    let entry = entries.next()?;
    Some((entry, payload.len() - entries.left()))
}

/// The sequence number of the entry at `within`, in the payload of a record from its beginning on.
fn seq_at(payload: &[u8], within: usize) -> Option<Seq> {
    let mut batch = decode_batch(payload)?;
    let mut seq = batch.head.first_seq;
    while payload.len() - batch.entries.left() < within {
        batch.entries.next()?;
        seq += 1;
    }
    (payload.len() - batch.entries.left() == within).then_some(seq)
}
