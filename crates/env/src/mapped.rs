//! Memory that the operating system does something special with: parts of files, and a mark that a fork wipes out.
//!
//! All unsafe code of this crate is here. What a [`Window`] is for, and when one may be written to, says [`crate::log`].

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// What windows begin at a multiple of: at least a page, wherever we run.
pub(crate) const PAGE: u64 = 64 << 10;

/// A part of a file, mapped for writing: what is written here the operating system holds at once, whatever becomes of the process.
pub(crate) struct Window {
    base: NonNull<u8>,
    /// Where in the file it begins.
    offset: u64,
    len: usize,
}

// SAFETY: the mapping belongs to the value alone, and no thread has a special relation to it.
unsafe impl Send for Window {}
// SAFETY: a shared reference gives access to numbers only.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `len` bytes of `file` from `offset` on, a multiple of [`PAGE`], and makes each of their pages ready to be written to. The
    /// file reaches so far. An error where that cannot be had: an old kernel, a file system that does not map.
    #[cfg(target_os = "linux")]
    pub(crate) fn open(file: &File, offset: u64, len: usize) -> io::Result<Window> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
        debug_assert!(offset.is_multiple_of(PAGE));
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped, so no memory that anybody uses changes.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let window = Window { base, offset, len };
        // SAFETY: the range is the mapping made above. Its pages are made present and writable, and keep their content. What a page
        // fault would answer with a signal is an error here.
        unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }?;
        Ok(window)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn open(_file: &File, _offset: u64, _len: usize) -> io::Result<Window> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether `len` bytes from `offset` of the file on lie in it.
    #[inline]
    pub(crate) fn holds(&self, offset: u64, len: usize) -> bool {
        offset >= self.offset && offset + len as u64 <= self.offset + self.len as u64
    }

    /// Writes `data` at `offset` of the file, which the window must hold.
    #[inline]
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        assert!(self.holds(offset, data.len()), "a write beside the window");
        // SAFETY: the target lies in the mapping, by the assertion; the mapping is writable and lives as long as `self`; nothing else
        // in this process refers to it, so it does not overlap `data`. Other processes may see the bytes change: they are only
        // bytes, and this process never reads them here. That the file is not cut short under the mapping is the caller's business.
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

/// Takes the lease on a file that this process may write to: until it is given back, other openings of the file, and calls that cut it by its name, wait,
/// at most as long as `/proc/sys/fs/lease-break-time` says, in seconds (45). `WouldBlock` where anything else has it open for writing.
///
/// The kernel has a signal for the holder when something waits. It has no receiver here: the holder asks ([`has_lease`]).
#[cfg(target_os = "linux")]
pub(crate) fn take_lease(file: &File) -> io::Result<()> {
    // Until the receiver is taken out, two calls later, it is a signal that does nothing where it has no handler.
    const F_SETSIG: i32 = 10;
    fcntl(file, F_SETSIG, libc::SIGURG)?;
    fcntl(file, libc::F_SETLEASE, libc::F_WRLCK)?;
    fcntl(file, libc::F_SETOWN, 0).map(|_| ()).inspect_err(|_| end_lease(file))
}

/// Whether a lease that was taken is still held, and nothing waits for its end.
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
    // SAFETY: the descriptor is open as long as `file` is borrowed; these commands take an integer and touch no memory of ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
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

/// Makes the first `len` bytes of a file durable, and what is needed to find them again, as fdatasync does for all of it. What is dirty
/// behind them stays so.
///
/// It is msync: of a mapping that nobody touches, the kernel syncs the part of the file that it stands for.
#[cfg(target_os = "linux")]
pub(crate) fn sync_front(file: &File, len: u64) -> io::Result<()> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let len = len as usize;
    // SAFETY: the kernel chooses an address where nothing is mapped, so no memory that anybody uses changes.
    let mapped = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) };
    // No address space is left, perhaps: then all of the file it is.
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

/// The process that made it: tells that process from children that were forked off it, without asking the operating system each
/// time.
///
/// A word in a page that the kernel gives to no child but wiped. Where it does not do that, the process is asked for its number.
pub struct ForkGuard {
    mark: Option<NonNull<AtomicU32>>,
    process: u32,
}

// SAFETY: the page belongs to the value alone, and what is in it is atomic.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

/// Length of the page's mapping: a page, wherever we run.
#[cfg(target_os = "linux")]
const MARK_LEN: usize = 64 << 10;

impl ForkGuard {
    /// This process.
    pub fn here() -> ForkGuard {
        ForkGuard { mark: ForkGuard::mark(), process: std::process::id() }
    }

    /// A process that is none: what a forked child finds. For tests of what it may not do.
    #[doc(hidden)]
    pub fn elsewhere() -> ForkGuard {
        ForkGuard { mark: None, process: 0 }
    }

    #[cfg(target_os = "linux")]
    fn mark() -> Option<NonNull<AtomicU32>> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped, so no memory that anybody uses changes.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), MARK_LEN, access, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: the range is the mapping made above.
        if unsafe { madvise(base, MARK_LEN, Advice::LinuxWipeOnFork) }.is_err() {
            // SAFETY: the same; nobody knows of it.
            let _ = unsafe { munmap(base, MARK_LEN) };
            return None;
        }
        let mark = NonNull::new(base.cast::<AtomicU32>())?;
        // SAFETY: mapped, writable, aligned to a page, and zero, which is a value of the type. It lives until `drop`.
        unsafe { mark.as_ref() }.store(1, Ordering::Relaxed);
        Some(mark)
    }

    #[cfg(not(target_os = "linux"))]
    fn mark() -> Option<NonNull<AtomicU32>> {
        None
    }

    /// Whether this is the process that it was made in.
    #[inline]
    pub fn is_here(&self) -> bool {
        match self.mark {
            // SAFETY: the mapping lives as long as `self`; a child has it too, with zeros in it.
            Some(mark) => unsafe { mark.as_ref() }.load(Ordering::Relaxed) != 0,
            None => std::process::id() == self.process,
        }
    }

    /// The number of the process that it was made in.
    pub fn process(&self) -> u32 {
        self.process
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(mark) = self.mark {
            // SAFETY: the mapping made in `mark`; `&mut self` says that nobody looks at it any more.
            let _ = unsafe { rustix::mm::munmap(mark.as_ptr().cast(), MARK_LEN) };
        }
    }
}
