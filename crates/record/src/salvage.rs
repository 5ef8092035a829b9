//! Reads all intact records of a damaged segment.
//!
//! [`SegmentReader`](crate::SegmentReader) stops at the first bad chunk, as recovery must. Salvage continues with the
//! next intact chunk that begins a record, so damage costs only the records that it touches. The checksum of a chunk
//! covers its offset, so a chunk that is found was written there. Salvage returns complete records only. Sectors that
//! the system cannot read count as damaged.

use crate::finder::Finder;
use crate::format::{CHUNK_HEADER_LEN, Identity, SegmentKind, decode_segment_header};
use crate::reader::Window;
use crate::writer::room;
use base::Result;
use base::limits::MAX_BATCH_LEN;
use env::{Env, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// How many checksums to try at offsets where no chunk is expected. After that, only block starts are tried.
const GUESSES: u32 = 1 << 18;

/// The readable content of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// The caller's header; `None` if it is damaged.
    pub header: Option<Vec<u8>>,
    /// Length of the file, in bytes.
    pub len: u64,
    /// The end of the written data: before zeros at the end, and before the content of a recycled segment.
    pub end: u64,
    /// Number of records returned, including empty ones.
    pub records: u64,
    /// Byte ranges before [`Salvaged::end`] that belong to no returned record: damage, or a torn tail.
    pub gaps: Vec<(u64, u64)>,
}

/// Passes each intact record of a segment to `each`, with its offset.
///
/// # Errors
/// `Unsupported` if a newer version wrote the segment; `Corruption` if it is another segment; errors of `each`.
pub fn salvage(
    env: &Arc<dyn Env>,
    path: &Path,
    kind: SegmentKind,
    number: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Salvaged> {
    salvage_file(env.open(path)?, kind, number, each)
}

fn salvage_file(
    file: Arc<dyn ReadFile>,
    kind: SegmentKind,
    number: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Salvaged> {
    let path = file.path().clone();
    let path = path.as_path();
    let mut window = Window::open_to_salvage(file)?;
    let id = Identity { kind, number };
    let mut found = Salvaged { len: window.len, end: window.len, ..Salvaged::default() };
    let (mut position, mut over) = (0, None);
    if window.len > 0
        && let Ok(front) = window.rest(0)
        && let Some(header) = decode_segment_header(front)
    {
        let caller;
        (caller, over) = header.check(id, path)?;
        position = header.encoded_len() as u64;
        found.header = Some(caller.to_vec());
    }
    let finder = Finder { id, over, guesses_left: GUESSES };
    let mut walk = Walk { finder, found, record: None, bad: None, stray: false };
    while position < window.len {
        position = walk.step(&mut window, position, each)?;
    }
    walk.finish(&mut window);
    Ok(walk.found)
}

struct Walk {
    finder: Finder,
    found: Salvaged,
    /// The record being assembled, and its offset.
    record: Option<(u64, Vec<u8>)>,
    /// Where the present range of bytes without a complete record began.
    bad: Option<u64>,
    /// Whether that range contains an intact chunk.
    stray: bool,
}

impl Walk {
    /// Processes the bytes at `position`, and returns the next position.
    fn step(
        &mut self,
        window: &mut Window,
        position: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let room = room(position);
        if room < CHUNK_HEADER_LEN {
            return Ok(position + room as u64);
        }
        let Ok(rest) = window.rest(position) else {
            // The whole block is unreadable.
            self.lose(position);
            return Ok(position + room as u64);
        };
        let Some((chunk, is_old)) = self.finder.at(rest, position) else {
            self.lose(position);
            let from = self.finder.after_damage(rest, position);
            let next = self.finder.find(rest, position, from, |_| true);
            return Ok(position + next.map_or(room, |(at, ..)| at) as u64);
        };
        let len = CHUNK_HEADER_LEN + chunk.payload_len;
        if is_old {
            self.lose(position);
            return Ok(position + len as u64);
        }
        let payload = &rest[CHUNK_HEADER_LEN..len];
        if chunk.kind.begins() {
            if let Some((start, _)) = self.record.take() {
                self.bad.get_or_insert(start);
            }
            self.close_gap(position);
            self.record = Some((position, Vec::new()));
        }
        match &mut self.record {
            Some((_, record)) if record.len() + payload.len() <= MAX_BATCH_LEN => {
                record.extend_from_slice(payload)
            }
            // A chunk of a record whose start is lost.
            _ => {
                self.lose(position);
                self.stray = true;
            }
        }
        if chunk.kind.ends()
            && let Some((start, record)) = self.record.take()
        {
            self.found.records += 1;
            each(start, &record)?;
        }
        Ok(position + len as u64)
    }

    /// The bytes at `offset` belong to no complete record. Neither does the record being assembled.
    fn lose(&mut self, offset: u64) {
        let from = match self.record.take() {
            Some((start, _)) => {
                self.stray = true;
                start
            }
            None => offset,
        };
        self.bad.get_or_insert(from);
    }

    fn close_gap(&mut self, to: u64) {
        self.stray = false;
        if let Some(from) = self.bad.take() {
            self.found.gaps.push((from, to));
        }
    }

    fn finish(&mut self, window: &mut Window) {
        if let Some((start, _)) = self.record.take() {
            self.bad.get_or_insert(start);
            self.stray = true;
        }
        let zeros = match self.finder.over {
            Some(_) => CHUNK_HEADER_LEN as u64,
            None => window.len,
        };
        // `bad` is the offset of the next chunk header, behind any filler. Zeros in place of unreadable bytes are no end.
        if let Some(from) = self.bad.filter(|_| !self.stray)
            && window.is_zero(from, from.saturating_add(zeros)).unwrap_or(false)
            && !window.has_unreadable
        {
            self.bad = None;
            self.found.end = from;
        }
        self.close_gap(window.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentWriter;
    use base::Error;
    use env::SimEnv;
    use std::path::PathBuf;

    const PATH: &str = "/000005.log";

    /// Writes records of very different lengths; returns them with their offsets.
    fn write(sim: &Arc<SimEnv>) -> Vec<(u64, Vec<u8>)> {
        let env: Arc<dyn Env> = sim.clone();
        let mut log = SegmentWriter::create(&env, Path::new(PATH), SegmentKind::Wal, 5, b"header").unwrap();
        let mut records = Vec::new();
        for i in 0..60usize {
            let record: Vec<u8> = (0..(i * i * i) % 9000).map(|n| (n * 7 + i) as u8).collect();
            records.push((log.len(), record.clone()));
            log.append(&[&record]).unwrap();
        }
        log.sync().unwrap();
        log.trim();
        records
    }

    fn read(sim: &Arc<SimEnv>) -> (Salvaged, Vec<(u64, Vec<u8>)>) {
        let env: Arc<dyn Env> = sim.clone();
        let mut records = Vec::new();
        let found = salvage(&env, Path::new(PATH), SegmentKind::Wal, 5, &mut |offset, record| {
            records.push((offset, record.to_vec()));
            Ok(())
        });
        (found.unwrap(), records)
    }

    #[test]
    fn a_sound_segment_is_read_whole() {
        let sim = SimEnv::new(1);
        let written = write(&sim);
        let (found, read) = read(&sim);
        assert_eq!(found.gaps, []);
        assert_eq!((found.header.as_deref(), found.records), (Some(&b"header"[..]), 60));
        assert_eq!(read, written);
    }

    #[test]
    fn zeros_at_the_end_are_no_gap_and_anything_else_there_is() {
        let sim = SimEnv::new(1);
        let written = write(&sim);
        let bytes = sim.read_file(Path::new(PATH));
        for zeros in [1, 5_000, 300_000] {
            sim.write_file(Path::new(PATH), [&bytes[..], &vec![0; zeros]].concat());
            let (found, records) = read(&sim);
            assert_eq!((found.gaps, found.len as usize), (vec![], bytes.len() + zeros));
            assert_eq!(records, written);
            sim.flip_bit(Path::new(PATH), (bytes.len() + zeros - 1) as u64, 1);
            let (found, records) = read(&sim);
            assert_eq!(found.gaps, [(bytes.len() as u64, (bytes.len() + zeros) as u64)]);
            assert_eq!(records, written);
        }
        // Zeros in place of the end of the last record are not the end of the log.
        let cut = bytes.len() as u64 - 5;
        sim.truncate_file(Path::new(PATH), cut);
        sim.truncate_file(Path::new(PATH), cut + 5_000);
        assert_eq!(read(&sim).0.gaps, [(written[59].0, cut + 5_000)]);
    }

    #[test]
    fn a_flipped_bit_costs_the_record_that_it_is_in_and_no_other() {
        let sim = SimEnv::new(1);
        let written = write(&sim);
        let len = sim.read_file(Path::new(PATH)).len() as u64;
        for offset in (0..len).step_by(463) {
            let damaged = sim.process_clone();
            damaged.flip_bit(Path::new(PATH), offset, (offset % 8) as u32);
            let (found, read) = read(&damaged);
            assert!(read.iter().all(|record| written.contains(record)), "offset {offset}");
            match found.header {
                // The filler at the end of a block carries no data.
                Some(_) if read.len() == written.len() => assert_eq!(found.gaps, []),
                Some(_) => {
                    assert_eq!(read.len(), written.len() - 1, "offset {offset}");
                    let (from, to) = found.gaps[0];
                    assert!(from <= offset && offset < to, "offset {offset} is not in {from}..{to}");
                }
                None => assert_eq!(read, written, "a damaged header costs no record"),
            }
        }
    }

    /// A file with one unreadable sector.
    struct BadSector {
        file: Arc<dyn ReadFile>,
        sector: u64,
    }

    impl ReadFile for BadSector {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            let (from, to) = (self.sector * 4096, (self.sector + 1) * 4096);
            if offset < to && offset + buf.len() as u64 > from {
                let error = std::io::Error::from_raw_os_error(5);
                return Err(Error::io("read", self.file.path(), error));
            }
            self.file.read_exact_at(buf, offset)
        }

        fn len(&self) -> Result<u64> {
            self.file.len()
        }

        fn will_need(&self, _: u64, _: u64) {}

        fn wont_need(&self, _: u64, _: u64) {}

        fn path(&self) -> &PathBuf {
            self.file.path()
        }
    }

    #[test]
    fn an_unreadable_sector_costs_the_records_that_lie_in_it_and_no_other() {
        let sim = SimEnv::new(1);
        let written = write(&sim);
        let file = sim.open(Path::new(PATH)).unwrap();
        let len = file.len().unwrap();
        let end = |i: usize| written.get(i + 1).map_or(len, |(start, _)| *start);
        for sector in 0..len.div_ceil(4096) {
            let mut read = Vec::new();
            let found = salvage_file(
                Arc::new(BadSector { file: file.clone(), sector }),
                SegmentKind::Wal,
                5,
                &mut |offset, record| {
                    read.push((offset, record.to_vec()));
                    Ok(())
                },
            );
            let (from, to) = (sector * 4096, (sector + 1) * 4096);
            let apart = |(i, record): (usize, &(u64, Vec<u8>))| {
                (end(i) <= from || record.0 >= to).then(|| record.clone())
            };
            let expected: Vec<_> = written.iter().enumerate().filter_map(apart).collect();
            let missing = expected.iter().filter(|record| !read.contains(record)).count();
            assert_eq!(missing, 0, "sector {sector}: records beside it are lost");
            assert!(read.iter().all(|record| written.contains(record)), "sector {sector}");
            assert!(read.len() == written.len() || !found.unwrap().gaps.is_empty(), "sector {sector}");
        }
    }
}
