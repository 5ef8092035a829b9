//! [`Generation`]: the list of the files of one moment, and its encoding (`docs/format/backup.md`).
//!
//! A list is one segment: a record with its head, one with the state, one for each file, and one that ends it.

use crate::copy::Digest;
use base::codec::{Reader, put_bytes, put_varint};
use base::{Error, Result, Seq, Time};
use env::{Env, FileStamp};
use record::{SegmentKind, SegmentReader, SegmentWriter};
use std::path::Path;
use std::sync::Arc;

/// Maximum length of the name of a file, and of the path of the source, that the decoder accepts.
const MAX_NAME_LEN: usize = 255;
const MAX_PATH_LEN: usize = 1 << 16;

/// A file of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Its name in its directory.
    pub name: String,
    /// Its length, in bytes.
    pub len: u64,
    /// Its content.
    pub digest: Digest,
    /// What its source was when it was copied: if that has not changed since, the content has not, either.
    pub stamp: Option<FileStamp>,
}

/// The files of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number, from 1 on. Later generations have larger ones.
    pub number: u64,
    /// When it was made.
    pub time: Time,
    /// The newest sequence number in it.
    pub seq: Seq,
    /// The directory that it is a copy of.
    pub source: String,
    /// What belongs to the files, for the one who made it.
    pub state: Vec<u8>,
    /// Bytes that were copied for it: no earlier generation had them.
    pub new_bytes: u64,
    /// Its files.
    pub files: Vec<StoredFile>,
}

/// The file name of the list of generation `number`.
pub(crate) fn list_file_name(number: u64) -> String {
    format!("generation-{number:06}")
}

/// The number in such a name.
pub(crate) fn parse_list_file_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix("generation-")?.parse().ok()?;
    (list_file_name(number) == name).then_some(number)
}

impl Generation {
    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| file.len.saturating_add(sum))
    }

    /// Writes the list to `path`, which must not exist, and syncs it.
    pub(crate) fn write(&self, env: &Arc<dyn Env>, path: &Path) -> Result<()> {
        let mut list = SegmentWriter::create(env, path, SegmentKind::Backup, self.number, &[])?;
        let mut record = Vec::new();
        put_varint(&mut record, self.time.micros());
        put_varint(&mut record, self.seq);
        put_varint(&mut record, self.new_bytes);
        put_varint(&mut record, self.files.len() as u64);
        put_bytes(&mut record, self.source.as_bytes());
        list.append(&[&record])?;
        list.append(&[&[1], &self.state])?;
        for file in &self.files {
            record.clear();
            file.encode(&mut record);
            list.append(&[&record])?;
        }
        list.flush()?;
        list.sync()
    }

    /// Reads the list of generation `number`, all of which is synced.
    pub(crate) fn read(env: &Arc<dyn Env>, path: &Path, number: u64) -> Result<Generation> {
        let len = env.len(path)?;
        let mut reader = SegmentReader::open(env, path, SegmentKind::Backup, number, Some(len))?;
        let mut record = Vec::new();
        let mut next = |what: &str, decode: &mut dyn FnMut(&[u8]) -> Option<()>| -> Result<()> {
            let at = reader.valid_len();
            let malformed = || Error::corruption(path, at, format_args!("{what} is missing or malformed"));
            let is_there = reader.next(&mut record)?.is_some();
            is_there.then(|| decode(&record)).flatten().ok_or_else(malformed)
        };
        let mut generation = Generation {
            number,
            time: Time::MIN,
            seq: 0,
            source: String::new(),
            state: Vec::new(),
            new_bytes: 0,
            files: Vec::new(),
        };
        let mut count = 0;
        next("the head of the list", &mut |record| {
            let mut reader = Reader::new(record);
            generation.time = Time::from_micros(reader.varint()?);
            generation.seq = reader.varint()?;
            generation.new_bytes = reader.varint()?;
            count = reader.varint()?;
            generation.source = String::from_utf8(reader.bytes(MAX_PATH_LEN)?.to_vec()).ok()?;
            reader.is_empty().then_some(())
        })?;
        next("the state", &mut |record| {
            generation.state = record.strip_prefix(&[1])?.to_vec();
            Some(())
        })?;
        for _ in 0..count {
            next("a file of the list", &mut |record| {
                generation.files.push(StoredFile::decode(record)?);
                Some(())
            })?;
        }
        match reader.next(&mut record)? {
            None => Ok(generation),
            Some(span) => Err(Error::corruption(path, span.start, "the list goes on behind its last file")),
        }
    }
}

impl StoredFile {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        put_varint(out, self.len);
        out.extend_from_slice(&self.digest.0.to_be_bytes());
        if let Some(stamp) = self.stamp {
            [stamp.device, stamp.file, stamp.modified, stamp.len].iter().for_each(|n| put_varint(out, *n));
        }
    }

    fn decode(record: &[u8]) -> Option<StoredFile> {
        let mut reader = Reader::new(record);
        let name = String::from_utf8(reader.bytes(MAX_NAME_LEN)?.to_vec()).ok()?;
        let len = reader.varint()?;
        let digest = Digest(u128::from_be_bytes(reader.take(16)?.try_into().ok()?));
        let stamp = match reader.is_empty() {
            true => None,
            false => Some(FileStamp {
                device: reader.varint()?,
                file: reader.varint()?,
                modified: reader.varint()?,
                len: reader.varint()?,
            }),
        };
        // The name becomes part of a path when it is restored.
        let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
        (reader.is_empty() && is_plain).then_some(StoredFile { name, len, digest, stamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ErrorKind;
    use env::SimEnv;

    fn example() -> Generation {
        let file = |name: &str, n: u64| StoredFile {
            name: name.to_owned(),
            len: n << 20,
            digest: Digest(u128::from(n) << 64 | 5),
            stamp: (n > 1).then_some(FileStamp { device: 1, file: n, modified: u64::MAX, len: n }),
        };
        Generation {
            number: 7,
            time: Time::from_micros(1 << 50),
            seq: 99,
            source: "/data/db".to_owned(),
            state: vec![1, 2, 3],
            new_bytes: 12,
            files: vec![file("000001.tbl", 1), file("wal-000002.log", 2)],
        }
    }

    #[test]
    fn lists_are_read_back_and_every_damaged_byte_is_found() {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        let path = Path::new("/generation-000007");
        example().write(&env, path).unwrap();
        assert_eq!(Generation::read(&env, path, 7).unwrap(), example());
        assert!(Generation::read(&env, path, 8).is_err(), "another number");
        let bytes = sim.read_file(path);
        for at in 0..bytes.len() {
            sim.write_file(path, bytes.clone());
            sim.flip_bit(path, at as u64, (at % 8) as u32);
            let error = Generation::read(&env, path, 7).unwrap_err();
            assert!(error.to_string().contains("generation-000007"), "{error}");
            sim.write_file(path, &bytes[..at]);
            let error = Generation::read(&env, path, 7).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{at}: {error}");
        }
        sim.write_file(path, bytes);
        assert_eq!(Generation::read(&env, path, 7).unwrap(), example());
    }

    #[test]
    fn names_that_lead_out_of_the_directory_are_refused() {
        for (name, is_plain) in
            [("a", true), ("../a", false), (".", false), ("", false), ("a/b", false), ("a\0", false)]
        {
            let mut record = Vec::new();
            StoredFile { name: name.to_owned(), ..example().files[0].clone() }.encode(&mut record);
            assert_eq!(StoredFile::decode(&record).is_some(), is_plain, "{name:?}");
        }
    }
}
