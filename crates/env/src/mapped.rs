//! Memory mappings with special behaviour: windows into files, and a page that a fork clears. Also file leases, and beginning and awaiting
//! a write-back.
//!
//! All unsafe code of this crate is here. `real/log.rs` explains what a [`Window`] is for and when it may be
//! written.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Alignment of windows: a multiple of the page size on all platforms.
pub(crate) const PAGE: u64 = 64 << 10;

/// A part of a file, mapped for writing. The operating system has each stored byte at once, even if the process dies.
pub(crate) struct Window {
    base: NonNull<u8>,
    /// Offset of the window in the file.
    offset: u64,
    len: usize,
}

// SAFETY: the value owns the mapping, and the mapping is not bound to a thread.
unsafe impl Send for Window {}
// SAFETY: a shared reference gives access to integers only.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `len` bytes of `file` from `offset`, a multiple of [`PAGE`], and makes the pages writable without a
    /// fault. The file must have these bytes. Fails on old kernels and on file systems without mappings.
    #[cfg(target_os = "linux")]
    pub(crate) fn open(file: &File, offset: u64, len: usize) -> io::Result<Window> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
        debug_assert!(offset.is_multiple_of(PAGE));
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped, so no memory in use changes.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let window = Window { base, offset, len };
        // SAFETY: the range is the mapping made above. Its pages become present and writable and keep their content.
        // A failure that would be a signal on a page fault is an error here.
        unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }?;
        Ok(window)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn open(_file: &File, _offset: u64, _len: usize) -> io::Result<Window> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether `len` bytes from `offset` of the file lie in the window.
    #[inline]
    pub(crate) fn holds(&self, offset: u64, len: usize) -> bool {
        offset >= self.offset && offset + len as u64 <= self.offset + self.len as u64
    }

    /// Writes `data` at `offset` of the file. The bytes must lie in the window.
    #[inline]
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        assert!(self.holds(offset, data.len()), "a write beside the window");
        // SAFETY: the target lies in the mapping, by the assertion; the mapping is writable and lives as long as
        // `self`; nothing else in this process refers to it, so it does not overlap `data`. Other processes may see
        // the bytes change, which is harmless, and this process never reads them here. The caller guarantees that the
        // file is not cut short under the mapping.
        unsafe {
            let to = self.base.as_ptr().add((offset - self.offset) as usize);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `open`; no reference to it exists outside of `write`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Takes the lease on a file that is open for writing. Until it is given back, other opens of the file and
/// truncations by name wait, for at most `/proc/sys/fs/lease-break-time` seconds (45 by default). Fails with
/// `WouldBlock` if another handle is open for writing.
///
/// The kernel can signal the holder when a process waits. The receiver is cleared here: the holder polls
/// [`has_lease`].
#[cfg(target_os = "linux")]
pub(crate) fn take_lease(file: &File) -> io::Result<()> {
    // Until F_SETOWN clears the receiver, use a signal that is ignored unless the application handles it.
    const F_SETSIG: i32 = 10;
    fcntl(file, F_SETSIG, libc::SIGURG)?;
    fcntl(file, libc::F_SETLEASE, libc::F_WRLCK)?;
    fcntl(file, libc::F_SETOWN, 0).map(|_| ()).inspect_err(|_| end_lease(file))
}

/// Whether this process still holds the lease and no process waits for it.
#[cfg(target_os = "linux")]
pub(crate) fn has_lease(file: &File) -> bool {
    fcntl(file, libc::F_GETLEASE, 0).is_ok_and(|kind| kind == libc::F_WRLCK)
}

/// Gives a lease back.
#[cfg(target_os = "linux")]
pub(crate) fn end_lease(file: &File) {
    let _ = fcntl(file, libc::F_SETLEASE, libc::F_UNLCK);
}

#[cfg(target_os = "linux")]
fn fcntl(file: &File, command: i32, argument: i32) -> io::Result<i32> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open while `file` is borrowed; these commands take an integer and access no memory of
    // this process.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Takes a shared lock on one byte of a file. It belongs to the open file: it ends when that is closed, or with the process.
#[cfg(target_os = "linux")]
pub(crate) fn lock_byte(file: &File, at: u64) -> io::Result<()> {
    fcntl_lock(file, libc::F_OFD_SETLK, &mut byte_range(libc::F_RDLCK, at, 1)?)
}

/// A byte before `end` with a lock of another open file; `None` if there is none.
#[cfg(target_os = "linux")]
pub(crate) fn locked_byte(file: &File, end: u64) -> io::Result<Option<u64>> {
    // A length of 0 would mean "to the end of all files".
    if end == 0 {
        return Ok(None);
    }
    let mut asked = byte_range(libc::F_WRLCK, 0, end)?;
    fcntl_lock(file, libc::F_OFD_GETLK, &mut asked)?;
    Ok((i32::from(asked.l_type) != libc::F_UNLCK).then_some(asked.l_start as u64))
}

#[cfg(target_os = "linux")]
fn byte_range(kind: i32, start: u64, len: u64) -> io::Result<libc::flock> {
    let fit = |n: u64| i64::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    Ok(libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: fit(start)?,
        l_len: fit(len)?,
        // Locks of open files belong to no process.
        l_pid: 0,
    })
}

#[cfg(target_os = "linux")]
fn fcntl_lock(file: &File, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    loop {
        // SAFETY: the descriptor is open while `file` is borrowed; these commands read and write the structure, which is borrowed mutably.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn lock_byte(_file: &File, _at: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn locked_byte(_file: &File, _end: u64) -> io::Result<Option<u64>> {
    Ok(None)
}

/// Makes the disk begin to write these bytes of a file. Makes nothing durable. Returns `false` where the system does not support it. An
/// error of the write itself is reported by the wait, or by the next sync.
#[cfg(target_os = "linux")]
pub(crate) fn begin_write_back(file: &File, bytes: Range<u64>) -> io::Result<bool> {
    use libc::{EACCES, EINVAL, ENOSYS, EOPNOTSUPP, EPERM, ESPIPE};
    match sync_range(file, bytes, libc::SYNC_FILE_RANGE_WRITE) {
        Ok(()) => Ok(true),
        // A file system or a sandbox without the call.
        Err(e)
            if matches!(e.raw_os_error(), Some(ENOSYS | EINVAL | ESPIPE | EPERM | EACCES | EOPNOTSUPP)) =>
        {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Waits until the disk has these bytes of a file. Makes nothing durable. An error may be that of a write, which the kernel reports only
/// once, whatever its number: no sync of the file proves anything afterwards.
#[cfg(target_os = "linux")]
pub(crate) fn await_write_back(file: &File, bytes: Range<u64>) -> io::Result<()> {
    use libc::{SYNC_FILE_RANGE_WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE};
    sync_range(file, bytes, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)
}

#[cfg(target_os = "linux")]
fn sync_range(file: &File, bytes: Range<u64>, flags: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // A length of 0 would mean "to the end of the file".
    if bytes.is_empty() {
        return Ok(());
    }
    let (from, len) = (bytes.start as i64, (bytes.end - bytes.start) as i64);
    // SAFETY: the descriptor is open while `file` is borrowed, and the call accesses no memory of this process.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), from, len, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn begin_write_back(_file: &File, _bytes: Range<u64>) -> io::Result<bool> {
    Ok(false)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn await_write_back(_file: &File, _bytes: Range<u64>) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn take_lease(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn has_lease(_file: &File) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn end_lease(_file: &File) {}

/// Makes the first `len` bytes of a file durable, and the metadata needed to read them, as fdatasync does for the
/// whole file. Dirty bytes behind them stay dirty.
///
/// Uses msync on a fresh mapping: the kernel syncs the mapped part of the file, although no page of the mapping was
/// touched.
#[cfg(target_os = "linux")]
pub(crate) fn sync_front(file: &File, len: u64) -> io::Result<()> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let len = len as usize;
    // SAFETY: the kernel chooses an address where nothing is mapped, so no memory in use changes.
    let mapped = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) };
    // Mapping fails if the address space is exhausted: sync the whole file.
    let Ok(base) = mapped else { return file.sync_data() };
    // SAFETY: the range is the mapping made above. No memory is read or written here.
    let synced = unsafe { msync(base, len, MsyncFlags::SYNC) };
    // SAFETY: the same range; no reference into it exists.
    let _ = unsafe { munmap(base, len) };
    Ok(synced?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn sync_front(file: &File, _len: u64) -> io::Result<()> {
    file.sync_data()
}

/// The process that created the value. Tells that process from its forked children without a system call per check.
///
/// A word in a page that the kernel clears in a forked child. Where the kernel cannot do that, the process id is
/// compared.
pub struct ForkGuard {
    mark: Option<NonNull<AtomicU32>>,
    process: u32,
}

// SAFETY: the value owns the page, and its content is atomic.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

/// Length of the mapping: at least a page on all platforms.
#[cfg(target_os = "linux")]
const MARK_LEN: usize = 64 << 10;

impl ForkGuard {
    /// This process.
    pub fn here() -> ForkGuard {
        ForkGuard { mark: ForkGuard::mark(), process: std::process::id() }
    }

    /// A value that belongs to no process, as a forked child sees it. For tests of the checks.
    #[doc(hidden)]
    pub fn elsewhere() -> ForkGuard {
        ForkGuard { mark: None, process: 0 }
    }

    #[cfg(target_os = "linux")]
    fn mark() -> Option<NonNull<AtomicU32>> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped, so no memory in use changes.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), MARK_LEN, access, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: the range is the mapping made above.
        if unsafe { madvise(base, MARK_LEN, Advice::LinuxWipeOnFork) }.is_err() {
            // SAFETY: the same range; no reference to it exists.
            let _ = unsafe { munmap(base, MARK_LEN) };
            return None;
        }
        let mark = NonNull::new(base.cast::<AtomicU32>())?;
        // SAFETY: mapped, writable, aligned to a page, and zero, which is a valid value. Lives until `drop`.
        unsafe { mark.as_ref() }.store(1, Ordering::Relaxed);
        Some(mark)
    }

    #[cfg(not(target_os = "linux"))]
    fn mark() -> Option<NonNull<AtomicU32>> {
        None
    }

    /// Whether this process created the value.
    #[inline]
    pub fn is_here(&self) -> bool {
        match self.mark {
            // SAFETY: the mapping lives as long as `self`; a forked child has it too, filled with zeros.
            Some(mark) => unsafe { mark.as_ref() }.load(Ordering::Relaxed) != 0,
            None => std::process::id() == self.process,
        }
    }

    /// The id of the process that created the value.
    pub fn process(&self) -> u32 {
        self.process
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(mark) = self.mark {
            // SAFETY: the mapping made in `mark`; `&mut self` proves that no reference to it is left.
            let _ = unsafe { rustix::mm::munmap(mark.as_ptr().cast(), MARK_LEN) };
        }
    }
}
