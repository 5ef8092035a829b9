//! Which reads went to the disk: what single operations had it read, and how many requests it served.
//!
//! The kernel adds what a thread asks the disk for to that thread's count, at the moment of asking, whatever the engine's way: a read
//! call, a page fault in a mapped file, or read-ahead ([`ThreadReads`]). A look at the count takes about a microsecond, so
//! only some operations are looked at. Requests are counted for the whole device ([`Requests`]): they are a process's own only while
//! nothing else reads from it, which the bytes tell.

use crate::process::field;
use std::fs::{self, File};
use std::path::Path;

/// The unit in which the kernel counts what devices read, whatever theirs is.
const SECTOR: u64 = 512;

/// The bytes that this thread has had the disk read.
pub struct ThreadReads {
    file: Option<File>,
    before: u64,
}

impl ThreadReads {
    /// For the thread that calls.
    pub fn open() -> ThreadReads {
        ThreadReads { file: File::open("/proc/thread-self/io").ok(), before: 0 }
    }

    /// Notes the count.
    pub fn begin(&mut self) {
        self.before = self.now().unwrap_or(0);
    }

    /// Whether the thread has had the disk read since then; `None` where the kernel does not tell.
    pub fn has_read(&self) -> Option<bool> {
        Some(self.now()? > self.before)
    }

    #[cfg(unix)]
    fn now(&self) -> Option<u64> {
        let mut text = [0; 512];
        let len = std::os::unix::fs::FileExt::read_at(self.file.as_ref()?, &mut text, 0).ok()?;
        field(std::str::from_utf8(&text[..len]).ok()?, "read_bytes:")
    }

    #[cfg(not(unix))]
    fn now(&self) -> Option<u64> {
        None
    }
}

/// What a block device has read so far, for all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    reads: u64,
    bytes: u64,
}

impl Requests {
    /// Of the device that `dir` is on; `None` where the file system is on none, or on several.
    #[cfg(unix)]
    pub fn of(dir: &Path) -> Option<Requests> {
        let device = std::os::unix::fs::MetadataExt::dev(&fs::metadata(dir).ok()?);
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Requests::parse(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
    }

    /// Of the device that `dir` is on.
    #[cfg(not(unix))]
    pub fn of(_dir: &Path) -> Option<Requests> {
        None
    }

    /// From the file `stat` of a device: requests to read that were served, those that were merged with others before, and sectors that were
    /// read come first.
    fn parse(text: &str) -> Option<Requests> {
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let (reads, _, sectors) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Requests { reads, bytes: sectors * SECTOR })
    }

    /// The requests since `before`, of a process that has had `own_bytes` read since then; `None` when the device has read much more or
    /// less than that, so that others' requests would count, or the process read elsewhere.
    pub fn since(self, before: Requests, own_bytes: u64) -> Option<u64> {
        /// What log and tables of the file system, and who looks on, may read.
        const SLACK: u64 = 1 << 20;
        let bytes = self.bytes.checked_sub(before.bytes)?;
        let reads = self.reads.checked_sub(before.reads)?;
        // A request is a sector at least: a process that read nothing made none.
        (bytes.abs_diff(own_bytes) <= own_bytes / 20 + SLACK).then_some(reads.min(own_bytes / SECTOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_ones_own_or_unknown() {
        let before = Requests::parse("  100  7  8000  4 1 2 3 4 5 6 7\n").unwrap();
        assert_eq!(before, Requests { reads: 100, bytes: 8000 * 512 });
        let after = Requests { reads: 1100, bytes: before.bytes + (100 << 20) };
        assert_eq!(after.since(before, 100 << 20), Some(1000));
        assert_eq!(after.since(before, 96 << 20), Some(1000));
        assert_eq!(after.since(before, 80 << 20), None, "others read, too");
        assert_eq!(after.since(before, 200 << 20), None, "the process read elsewhere");
        assert_eq!(before.since(after, 0), None);
        let others = Requests { reads: 130, bytes: before.bytes + (64 << 10) };
        assert_eq!(others.since(before, 0), Some(0), "the process read nothing");
        assert_eq!(Requests::parse("1 2"), None);
    }

    /// Where the kernel counts for a thread, the count says whether pages of a file came from the disk.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_knows_whether_it_read_from_the_disk() {
        use std::io::{Read, Write};
        let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = dir.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let read = || {
            let mut reads = ThreadReads::open();
            reads.begin();
            let mut bytes = Vec::new();
            File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
            reads.has_read()
        };
        let Some(from_memory) = read() else { return eprintln!("not tested: the kernel does not tell") };
        assert!(!from_memory, "the file was just written");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if Requests::of(dir.path()).is_some() {
            assert_eq!(read(), Some(true), "its pages were dropped");
        }
    }
}
