//! Which reads came from the disk: per operation, and the number of requests that the disk served.
//!
//! The kernel adds the bytes that a thread requests from the disk to a counter of that thread, for read calls, page
//! faults in mapped files and readahead alike ([`ThreadReads`]). Reading the counter takes about a microsecond, so
//! only some operations are checked. Requests are counted per device ([`Requests`]): they belong to one process
//! only if nothing else reads from the device, which a comparison of the bytes shows.

use crate::process::field;
use std::fs::{self, File};
use std::path::Path;

/// The unit of the kernel's counters, whatever the sector size of the device.
const SECTOR: u64 = 512;

/// The bytes that this thread requested from the disk.
pub struct ThreadReads {
    file: Option<File>,
    before: u64,
}

impl ThreadReads {
    /// For the calling thread.
    pub fn open() -> ThreadReads {
        ThreadReads { file: File::open("/proc/thread-self/io").ok(), before: 0 }
    }

    /// Records the current value.
    pub fn begin(&mut self) {
        self.before = self.now().unwrap_or(0);
    }

    /// Whether the thread requested reads since then; `None` if the kernel does not count them.
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

/// The reads of a block device so far, of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    reads: u64,
    bytes: u64,
}

impl Requests {
    /// For the device of `dir`; `None` if the file system has no device, or several.
    #[cfg(unix)]
    pub fn of(dir: &Path) -> Option<Requests> {
        let device = std::os::unix::fs::MetadataExt::dev(&fs::metadata(dir).ok()?);
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Requests::parse(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
    }

    /// For the device of `dir`.
    #[cfg(not(unix))]
    pub fn of(_dir: &Path) -> Option<Requests> {
        None
    }

    /// Parses the file `stat` of a device. It starts with: read requests served, requests merged with earlier ones,
    /// sectors read.
    fn parse(text: &str) -> Option<Requests> {
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let (reads, _, sectors) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Requests { reads, bytes: sectors * SECTOR })
    }

    /// The requests since `before` of a process that read `own_bytes` since then. `None` if the device read much
    /// more or less: other processes' requests would be included, or the process read elsewhere.
    pub fn since(self, before: Requests, own_bytes: u64) -> Option<u64> {
        /// Allowance for the log and metadata of the file system, and for observers.
        const SLACK: u64 = 1 << 20;
        let bytes = self.bytes.checked_sub(before.bytes)?;
        let reads = self.reads.checked_sub(before.reads)?;
        // A request has at least one sector, so a process that read nothing made no requests.
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

    /// Where the kernel counts per thread, the counter shows whether pages of a file came from the disk.
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
