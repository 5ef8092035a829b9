//! The kernel's counters for this process: bytes to and from the disk, processor time, memory.
//!
//! `/proc/self/io` counts writes at two places; see [`KernelIo`].

use std::fs;
use std::time::Duration;

/// `/proc/self/io`: the whole process, including ended threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelIo {
    /// Bytes passed to `write` and similar system calls.
    pub wchar: u64,
    /// Bytes of page cache that became dirty: a whole page each time it changes from clean to dirty.
    pub write_bytes: u64,
    /// Bytes of dirty pages dropped before they were written, because their file was removed or truncated.
    pub cancelled_write_bytes: u64,
    /// Bytes read from the disk.
    pub read_bytes: u64,
}

impl KernelIo {
    /// The current counters; `None` if the kernel has none.
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

    /// The increase since `before`.
    pub fn since(self, before: KernelIo) -> KernelIo {
        KernelIo {
            wchar: self.wchar - before.wchar,
            write_bytes: self.write_bytes - before.write_bytes,
            cancelled_write_bytes: self.cancelled_write_bytes - before.cancelled_write_bytes,
            read_bytes: self.read_bytes - before.read_bytes,
        }
    }
}

/// Processor time of all threads so far, in user and kernel mode.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Restarts [`peak_memory`] from the current memory. Where this is not permitted, the peak remains that of the
/// whole run.
pub fn reset_peak_memory() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Peak resident memory, in bytes.
pub fn peak_memory() -> Option<u64> {
    let kib = field(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")?;
    Some(kib * 1024)
}

/// The number after `name` at the start of a line.
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
