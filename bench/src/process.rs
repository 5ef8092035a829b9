//! What the kernel says of this process: bytes to and from the disk, CPU time, memory.
//!
//! The kernel counts writes twice, at two places, in `/proc/self/io`; see [`KernelIo`].

use std::fs;
use std::time::Duration;

/// `/proc/self/io`: the whole process, threads that ended included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelIo {
    /// Bytes passed to `write` and its kin.
    pub wchar: u64,
    /// Bytes of page cache that became dirty: whole pages, once for each time that they change from clean to dirty.
    pub write_bytes: u64,
    /// Bytes of dirty pages that were dropped before they were written, because their file was removed or cut.
    pub cancelled_write_bytes: u64,
    /// Bytes that came from the disk.
    pub read_bytes: u64,
}

impl KernelIo {
    /// What the kernel counts now; `None` where it does not.
    pub fn now() -> Option<KernelIo> {
        KernelIo::parse(&fs::read_to_string("/proc/self/io").ok()?)
    }

    fn parse(text: &str) -> Option<KernelIo> {
        Some(KernelIo {
            wchar: field(text, "wchar:")?,
            write_bytes: field(text, "write_bytes:")?,
            cancelled_write_bytes: field(text, "cancelled_write_bytes:")?,
            read_bytes: field(text, "read_bytes:")?,
        })
    }

    /// What was added since `before`.
    pub fn since(self, before: KernelIo) -> KernelIo {
        KernelIo {
            wchar: self.wchar - before.wchar,
            write_bytes: self.write_bytes - before.write_bytes,
            cancelled_write_bytes: self.cancelled_write_bytes - before.cancelled_write_bytes,
            read_bytes: self.read_bytes - before.read_bytes,
        }
    }
}

/// CPU time of all threads so far, in user and kernel mode.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Lets [`peak_memory`] start anew from what is in memory now. Where that is not allowed, the peak stays that of the whole run.
pub fn reset_peak_memory() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most bytes that were in memory at a time.
pub fn peak_memory() -> Option<u64> {
    let kib = field(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")?;
    Some(kib * 1024)
}

/// The number behind `name` at the start of a line.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "rchar: 1\nwchar: 2\nread_bytes: 3\nwrite_bytes: 4\ncancelled_write_bytes: 5\n";
        let io = KernelIo { wchar: 2, write_bytes: 4, cancelled_write_bytes: 5, read_bytes: 3 };
        assert_eq!(KernelIo::parse(text), Some(io));
        assert_eq!(KernelIo::parse("wchar: 2\n"), None);
        assert_eq!(field("VmHWM:\t    1234 kB\n", "VmHWM:"), Some(1234));
    }
}
