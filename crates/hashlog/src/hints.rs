//! Hint files: keys and places of entries, without their values. `docs/format/hints.md` describes the bytes.
//!
//! Each flush writes one, and so does each collection. It says nothing of what is alive: an entry is dead if a hint file has a newer one of its
//! key. So hint files never change; one goes when no file that it is about is left.

use base::codec::{Reader, put_varint};
use base::limits::{MAX_KEY_LEN, MAX_KEYSPACE_NAME_LEN};
use base::{Error, ErrorKind, Result, Seq};
use env::Env;
use record::{ChunkPlace, SegmentKind, SegmentReader, SegmentWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use values::SegmentFile;

/// A record is ended when it has so many bytes.
const RECORD_LEN: usize = 16 << 10;

/// What has no sequence numbers is no entry: the numbers of a record begin with a distance from this.
const NO_SEQ: Seq = 0;

/// Maximum number of files that a hint file is about: its description must fit into an edit of the manifest.
pub const MAX_FILES_OF_HINTS: usize = 1 << 14;

/// What a hint file says of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintShare {
    /// The file in which the entries are.
    pub file: SegmentFile,
    /// Their number.
    pub count: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// A hint file, as the manifest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintFile {
    /// Its number, from the numbers of tables.
    pub number: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// The smallest and the largest sequence number of its entries.
    pub min_seq: Seq,
    /// See `min_seq`.
    pub max_seq: Seq,
    /// The files that it is about, ascending. Its entries in other files do not count any more: these were collected.
    pub shares: Vec<HintShare>,
}

/// The file name of hint file `number`.
pub fn hint_file_name(number: u64) -> String {
    format!("{number:06}.hnt")
}

/// The number in the name of a hint file.
pub fn parse_hint_file_name(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".hnt")?.parse().ok()?;
    (hint_file_name(number) == name).then_some(number)
}

fn put_file(file: SegmentFile, out: &mut Vec<u8>) {
    let (kind, number) = match file {
        SegmentFile::Log(number) => (0, number),
        SegmentFile::Values(number) => (1, number),
    };
    out.push(kind);
    put_varint(out, number);
}

fn read_file(reader: &mut Reader<'_>) -> Option<SegmentFile> {
    let kind = reader.u8()?;
    let number = reader.varint().filter(|&number| number > 0)?;
    match kind {
        0 => Some(SegmentFile::Log(number)),
        1 => Some(SegmentFile::Values(number)),
        _ => None,
    }
}

impl HintFile {
    /// The number of its entries that count.
    pub fn count(&self) -> u64 {
        self.shares.iter().map(|share| share.count).sum()
    }

    /// Appends the encoded description: number, length and sequence numbers as varints, and for each share the kind of its file (0: log, 1: value
    /// file), and its number, count and bytes as varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.number, self.len, self.min_seq, self.max_seq - self.min_seq] {
            put_varint(out, number);
        }
        for share in &self.shares {
            put_file(share.file, out);
            put_varint(out, share.count);
            put_varint(out, share.bytes);
        }
    }

    /// Decodes a description that takes all of `bytes`; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<HintFile> {
        let mut reader = Reader::new(bytes);
        let number = reader.varint().filter(|&number| number > 0)?;
        let len = reader.varint().filter(|&len| len <= i64::MAX as u64)?;
        let min_seq = reader.varint().filter(|&seq| seq > NO_SEQ)?;
        let max_seq = min_seq.checked_add(reader.varint()?).filter(|&seq| seq <= base::MAX_SEQ)?;
        let (mut shares, mut left) = (Vec::<HintShare>::new(), len);
        while !reader.is_empty() {
            let file = read_file(&mut reader)?;
            // Each entry takes more than a byte.
            let count = reader.varint().filter(|&count| count > 0)?;
            left = left.checked_sub(count)?;
            let share = HintShare { file, count, bytes: reader.varint()? };
            if shares.last().is_some_and(|last| last.file >= file) || shares.len() == MAX_FILES_OF_HINTS {
                return None;
            }
            shares.push(share);
        }
        (!shares.is_empty()).then_some(HintFile { number, len, min_seq, max_seq, shares })
    }
}

/// The keyspace of a hint file, as the file itself says: salvage needs it where no manifest is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintOwner {
    /// Its number.
    pub keyspace: u64,
    /// Its name.
    pub name: String,
}

impl HintOwner {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.keyspace);
        out.extend_from_slice(self.name.as_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<HintOwner> {
        let mut reader = Reader::new(bytes);
        let keyspace = reader.varint()?;
        let name =
            std::str::from_utf8(reader.rest()).ok().filter(|name| name.len() <= MAX_KEYSPACE_NAME_LEN)?;
        Some(HintOwner { keyspace, name: name.to_owned() })
    }

    /// The keyspace of hint file `number`, from its header; `None` if that is damaged.
    ///
    /// # Errors
    /// `Unsupported` if a newer version wrote the file.
    pub fn read(env: &Arc<dyn Env>, dir: &Path, number: u64) -> Result<Option<HintOwner>> {
        let path = dir.join(hint_file_name(number));
        match SegmentReader::open(env, &path, SegmentKind::Hints, number, None) {
            Ok(reader) => Ok(HintOwner::decode(reader.header())),
            Err(e) if e.kind() == ErrorKind::Unsupported => Err(e),
            Err(_) => Ok(None),
        }
    }
}

/// An entry of a hint file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint<'a> {
    /// The file in which the entry is.
    pub file: SegmentFile,
    /// Where it is in the file.
    pub at: ChunkPlace,
    /// Its sequence number.
    pub seq: Seq,
    /// Whether it is a delete.
    pub is_delete: bool,
    /// Its key.
    pub key: &'a [u8],
}

/// Writes a hint file.
pub struct HintWriter {
    writer: SegmentWriter,
    number: u64,
    record: Vec<u8>,
    /// The last entry of the record.
    last: Option<(SegmentFile, ChunkPlace, Seq)>,
    shares: Vec<HintShare>,
    seqs: Option<(Seq, Seq)>,
}

impl HintWriter {
    /// Creates hint file `number` of a keyspace in `dir`.
    pub fn create(env: &Arc<dyn Env>, dir: &Path, number: u64, owner: &HintOwner) -> Result<HintWriter> {
        let path = dir.join(hint_file_name(number));
        let writer = SegmentWriter::create(env, &path, SegmentKind::Hints, number, &owner.encode())?;
        Ok(HintWriter { writer, number, record: Vec::new(), last: None, shares: Vec::new(), seqs: None })
    }

    /// Adds an entry with `bytes` of key and value. Entries of one file must follow each other, ascending by place, and files must be
    /// ascending, too.
    pub fn push(&mut self, hint: &Hint<'_>, bytes: u64) -> Result<()> {
        let Hint { file, at, seq, is_delete, key } = *hint;
        match self.shares.last_mut().filter(|share| share.file == file) {
            Some(share) => {
                share.count += 1;
                share.bytes += bytes;
            }
            None => {
                assert!(self.shares.last().is_none_or(|last| last.file < file), "files must be ascending");
                self.shares.push(HintShare { file, count: 1, bytes });
            }
        }
        let (least, most) = self.seqs.unwrap_or((seq, seq));
        self.seqs = Some((least.min(seq), most.max(seq)));
        if self.record.len() >= RECORD_LEN || self.last.is_some_and(|last| last.0 != file) {
            self.end_record()?;
        }
        if self.last.is_none() {
            put_file(file, &mut self.record);
        }
        let (chunk, before) = self.last.map_or((0, NO_SEQ), |(_, at, seq)| (at.chunk, seq));
        assert!(at.chunk >= chunk, "places must be ascending");
        put_varint(&mut self.record, at.chunk - chunk);
        put_varint(&mut self.record, at.within.into());
        put_varint(&mut self.record, zigzag(seq.wrapping_sub(before) as i64));
        put_varint(&mut self.record, (key.len() as u64) << 1 | u64::from(is_delete));
        self.record.extend_from_slice(key);
        self.last = Some((file, at, seq));
        Ok(())
    }

    /// The number of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn end_record(&mut self) -> Result<()> {
        if self.last.take().is_some() {
            self.writer.append(&[&self.record])?;
            self.record.clear();
            if self.writer.buffered() >= 16 * RECORD_LEN {
                self.writer.flush()?;
            }
        }
        Ok(())
    }

    /// Ends the file and syncs it. `None` if nothing was added. The directory is not synced.
    pub fn finish(mut self) -> Result<Option<HintFile>> {
        self.end_record()?;
        let Some((min_seq, max_seq)) = self.seqs else { return Ok(None) };
        self.writer.flush()?;
        self.writer.sync().map_err(|e| e.sync_failed())?;
        let HintWriter { writer, number, shares, .. } = self;
        Ok(Some(HintFile { number, len: writer.len(), min_seq, max_seq, shares }))
    }
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads the hint files of a directory.
pub struct HintReader {
    /// Through which they are read.
    pub env: Arc<dyn Env>,
    /// Where they are.
    pub dir: PathBuf,
}

impl HintReader {
    /// Passes the entries of a hint file that count to `visit`, in the order in which they were added. What `visit` returns ends the reading
    /// if it is an error.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, if the file is not the one that the manifest describes; `Io`; the error of `visit`.
    pub fn read(&self, file: &HintFile, visit: &mut dyn FnMut(Hint<'_>) -> Result<()>) -> Result<()> {
        let path = self.dir.join(hint_file_name(file.number));
        let damage = |offset: u64, what: &str| Error::corruption(&path, offset, what);
        let opened = SegmentReader::open(&self.env, &path, SegmentKind::Hints, file.number, Some(file.len));
        let mut reader = opened.map_err(|e| match e.kind() {
            ErrorKind::NotFound => damage(0, "the hint file is missing"),
            _ => e,
        })?;
        let (mut record, mut counts) = (Vec::new(), vec![0; file.shares.len()]);
        while let Some(span) = reader.next(&mut record)? {
            let malformed = || damage(span.start, "these are no hints");
            let mut left = Reader::new(&record);
            let of = read_file(&mut left).ok_or_else(malformed)?;
            let share = file.shares.binary_search_by_key(&of, |share| share.file);
            let (mut chunk, mut seq) = (0u64, NO_SEQ);
            while !left.is_empty() {
                let hint = read_hint(&mut left, of, &mut chunk, &mut seq).ok_or_else(malformed)?;
                if !(file.min_seq..=file.max_seq).contains(&hint.seq) {
                    return Err(malformed());
                }
                if let Ok(share) = share {
                    counts[share] += 1;
                    visit(hint)?;
                }
            }
        }
        match file.shares.iter().map(|share| share.count).eq(counts) {
            true => Ok(()),
            false => Err(damage(0, "the number of hints is not the one that the manifest has")),
        }
    }
}

fn read_hint<'a>(
    reader: &mut Reader<'a>,
    file: SegmentFile,
    chunk: &mut u64,
    before: &mut Seq,
) -> Option<Hint<'a>> {
    *chunk = chunk.checked_add(reader.varint()?).filter(|&chunk| chunk <= i64::MAX as u64)?;
    let within =
        u16::try_from(reader.varint()?).ok().filter(|&within| usize::from(within) < record::BLOCK_LEN)?;
    *before = before
        .checked_add_signed(unzigzag(reader.varint()?))
        .filter(|&seq| seq > NO_SEQ && seq <= base::MAX_SEQ)?;
    let code = reader.varint()?;
    let key_len = usize::try_from(code >> 1).ok().filter(|&len| len <= MAX_KEY_LEN)?;
    let key = reader.take(key_len)?;
    Some(Hint { file, at: ChunkPlace { chunk: *chunk, within }, seq: *before, is_delete: code & 1 == 1, key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{Rng, SimEnv};

    fn owner() -> HintOwner {
        HintOwner { keyspace: 4, name: "sessions".to_owned() }
    }

    type Owned = (SegmentFile, ChunkPlace, Seq, bool, Vec<u8>);

    fn write(env: &Arc<dyn Env>, entries: &[Owned]) -> HintFile {
        let mut writer = HintWriter::create(env, Path::new("/"), 9, &owner()).unwrap();
        for (file, at, seq, is_delete, key) in entries {
            let hint = Hint { file: *file, at: *at, seq: *seq, is_delete: *is_delete, key };
            writer.push(&hint, key.len() as u64 + 10).unwrap();
        }
        writer.finish().unwrap().unwrap()
    }

    fn read(env: &Arc<dyn Env>, file: &HintFile) -> Result<Vec<Owned>> {
        let mut found = Vec::new();
        let reader = HintReader { env: env.clone(), dir: "/".into() };
        reader.read(file, &mut |hint| {
            found.push((hint.file, hint.at, hint.seq, hint.is_delete, hint.key.to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    fn entries(count: u64) -> Vec<Owned> {
        let (mut rng, mut entries) = (Rng::new(3), Vec::new());
        for file in [SegmentFile::Log(3), SegmentFile::Log(700), SegmentFile::Values(4)] {
            let mut chunk = 30;
            for _ in 0..count {
                chunk += rng.below(400);
                let mut key = vec![0; rng.below(60) as usize];
                rng.fill(&mut key);
                let at = ChunkPlace { chunk, within: rng.below(1 << 15) as u16 };
                entries.push((file, at, 1 + rng.below(1 << 40), rng.below(5) == 0, key));
            }
        }
        entries
    }

    #[test]
    fn hints_are_read_back_and_those_of_collected_files_are_left_out() {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let entries = entries(3000);
        let mut file = write(&env, &entries);
        assert_eq!((file.count(), file.shares.len()), (9000, 3));
        assert_eq!(HintOwner::read(&env, Path::new("/"), 9).unwrap(), Some(owner()));
        assert_eq!(HintOwner::read(&env, Path::new("/"), 8).unwrap(), None);
        assert!(read(&env, &file).unwrap() == entries);
        file.shares.remove(1);
        let left: Vec<Owned> =
            entries.iter().filter(|entry| entry.0 != SegmentFile::Log(700)).cloned().collect();
        assert!(read(&env, &file).unwrap() == left);
        file.shares[0].count += 1;
        assert_eq!(read(&env, &file).unwrap_err().kind(), ErrorKind::Corruption);
    }

    #[test]
    fn a_hint_file_that_is_not_the_one_that_was_written_is_refused() {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let file = write(&env, &entries(200));
        for other in [
            HintFile { len: file.len - 1, ..file.clone() },
            HintFile { len: file.len + 1, ..file.clone() },
            HintFile { min_seq: file.min_seq + 1, ..file.clone() },
            HintFile { max_seq: file.max_seq - 1, ..file.clone() },
        ] {
            assert_eq!(read(&env, &other).unwrap_err().kind(), ErrorKind::Corruption, "{other:?}");
        }
        let nothing = HintWriter::create(&env, Path::new("/"), 10, &owner()).unwrap();
        assert_eq!(nothing.finish().unwrap(), None);
    }

    #[test]
    fn descriptions_round_trip_and_malformed_ones_are_refused() {
        let share = |file, count| HintShare { file, count, bytes: 30 };
        let file = HintFile {
            number: 7,
            len: 900,
            min_seq: 5,
            max_seq: 80,
            shares: vec![share(SegmentFile::Log(3), 2), share(SegmentFile::Values(1), 9)],
        };
        let encoded = |file: &HintFile| {
            let mut bytes = Vec::new();
            file.encode(&mut bytes);
            bytes
        };
        let bytes = encoded(&file);
        assert_eq!(HintFile::decode(&bytes).as_ref(), Some(&file));
        let whole = (0..bytes.len()).filter(|cut| HintFile::decode(&bytes[..*cut]).is_some()).count();
        assert_eq!(whole, 1, "after the first share");
        for hostile in [
            HintFile { number: 0, ..file.clone() },
            HintFile { len: u64::MAX, ..file.clone() },
            HintFile { min_seq: 0, ..file.clone() },
            HintFile { max_seq: base::MAX_SEQ + 1, ..file.clone() },
            HintFile { shares: vec![], ..file.clone() },
            HintFile { shares: vec![share(SegmentFile::Log(3), 0)], ..file.clone() },
            HintFile { shares: vec![share(SegmentFile::Log(0), 1)], ..file.clone() },
            HintFile { shares: vec![share(SegmentFile::Log(3), 901)], ..file.clone() },
            HintFile {
                shares: vec![share(SegmentFile::Log(3), 500), share(SegmentFile::Log(4), 500)],
                ..file.clone()
            },
            HintFile {
                shares: vec![share(SegmentFile::Log(3), 1), share(SegmentFile::Log(3), 1)],
                ..file.clone()
            },
        ] {
            assert_eq!(HintFile::decode(&encoded(&hostile)), None, "{hostile:?}");
        }
        assert_eq!(parse_hint_file_name(&hint_file_name(12)), Some(12));
        for other in ["12.hnt", "000012.tbl", "000012.hnt.tmp"] {
            assert_eq!(parse_hint_file_name(other), None);
        }
    }
}
