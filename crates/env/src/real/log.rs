//! The log file of [`crate::RealEnv`]: while the append rate is high, an append costs no system call.
//!
//! When [`WriteFile::append`] returns, the operating system must have the data. That takes a write(2), which costs
//! about a microsecond, or a store into a page of the file that is mapped into this process. So at a high append rate
//! the file is extended by zeros beyond the appended data, and its end is mapped (the *window*):
//!
//! ```text
//!   0 .......................... len .............. zeros_end
//!       appended data             |       zeros           |
//!                       [ window: WINDOW_LEN bytes mapped ]
//! ```
//!
//! *Errors stay errors.* The zeros are written with write(2), which reports a full disk or a file that is too long.
//! The pages are prepared with `MADV_POPULATE_WRITE`, which returns as an error what a page fault would raise as a
//! signal. If any of this fails, the append falls back to write(2) and returns its error.
//!
//! *A page fault must not need the disk.* Between the creation of a window and a store, the kernel may write a page
//! back and make it read-only again. The store then faults, and if the file system cannot serve the fault, the
//! process is killed. Therefore a window is used for at most [`WINDOW_LIFETIME`], never after a sync, and only on file systems
//! where the page needs no new block: see [`super::mappable`]. The remaining risk, a page that is written back, evicted
//! and unreadable within that time, is described in `docs/adr/0010-mapped-log.md`.
//!
//! *No other process may cut the file short* while part of it is mapped: a store behind the end raises a signal too.
//! So a window exists only while this process holds a *lease* on the file. The kernel makes every other open of the
//! file, and every truncation by name, wait until the lease is given back, for at most 45 seconds. The holder checks
//! for waiters before it creates a window, and uses the window for at most [`WINDOW_LIFETIME`]. So that no process waits for an
//! idle log, windows exist only if the caller promised to report idle periods: [`WriteFile::on_idle`].
//!
//! *After the process is killed* the file ends in up to [`WINDOW_LEN`] zeros. Readers must accept them.
//!
//! *A synced log is longer than its data.* A sync of a file that has grown also makes its length and its new blocks durable, which takes a
//! third of the sync's time. So a small append after a sync writes zeros behind the data, and the next syncs find length and blocks as they
//! are.
//!
//! *A recycled log* ([`Env::reuse_log`](crate::Env::reuse_log)) is longer than `zeros_end`: the old content follows the
//! zeros. At least [`LOG_END`] zeros always follow the appended data, and they are written before that data. Most
//! pages of the old log are dirty and in memory, so overwriting them takes no additional memory, space or writes. For
//! the same reason a sync must not write all of them back: it makes durable only the bytes before the end of the
//! zeros.

use super::limits;
use super::mappable::is_mappable;
use super::write_file::RealWriteFile;
use crate::mapped::{self, PAGE, Window};
use crate::traits::{FrontSync, LOG_END, WriteFile};
use base::Result;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Length of a window, in bytes. Creating one takes a tenth of a millisecond.
const WINDOW_LEN: u64 = 256 << 10;

/// A window is created after this many bytes were appended within [`WINDOW_LIFETIME`] without a sync. A log with few appends or
/// frequent syncs would mostly write zeros.
const MIN_RECENT_BYTES: u64 = 64 << 10;

/// How long a window is used after its creation.
const WINDOW_LIFETIME: Duration = Duration::from_millis(100);

/// Maximum length of an append through a window: a larger one gains nothing.
const MAX_WINDOW_APPEND: usize = (WINDOW_LEN / 4) as usize;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Maximum length of an append after a sync that writes zeros behind it: a longer one would mostly write zeros.
const MAX_SYNCED_APPEND: usize = 4 << 10;

/// Without a window, zeros extend to a multiple of this: a page of the page cache.
const END_ZEROS_ALIGN: u64 = 4 << 10;

/// Bytes that the disk gets at once in [`WriteFile::write_back`].
const WRITE_BACK_PORTION: u64 = 512 << 10;

const _: () = assert!(
    WINDOW_LEN.is_multiple_of(PAGE)
        && PAGE + MAX_WINDOW_APPEND as u64 + LOG_END as u64 <= WINDOW_LEN
        && MIN_RECENT_BYTES < WINDOW_LEN
);

/// A log file with a mapped window at its end; see the module.
pub(super) struct LogFile {
    file: RealWriteFile,
    /// The end of the zeros behind the appended data. Less than `file.len` if there are none.
    zeros_end: u64,
    /// Length of the file. From `zeros_end` on it has the content of the recycled log.
    file_len: u64,
    window: Option<Window>,
    /// When the window was created; without a window, when the measurement of the append rate started.
    since: Duration,
    /// Bytes appended since then.
    appended: u64,
    /// Nothing was appended since the last sync.
    synced: bool,
    /// This file cannot have a window.
    no_windows: bool,
    /// The caller promised to call [`WriteFile::on_idle`], by a first call.
    lease_allowed: bool,
    /// This process holds the lease. Required for a window.
    leased: bool,
    process: u32,
}

impl LogFile {
    pub(super) fn new(file: RealWriteFile) -> LogFile {
        let no_windows = !is_mappable(&file.open.file);
        let (since, process) = (now(), std::process::id());
        LogFile {
            file,
            zeros_end: 0,
            file_len: 0,
            window: None,
            synced: false,
            since,
            appended: 0,
            no_windows,
            lease_allowed: false,
            leased: false,
            process,
        }
    }

    /// A log over the content of `file`. `None` where windows are not supported: recycling was not measured to gain
    /// there.
    pub(super) fn recycle(file: RealWriteFile) -> io::Result<Option<LogFile>> {
        let total = file.open.file.metadata()?.len();
        if !is_mappable(&file.open.file) || total > file.max_len {
            return Ok(None);
        }
        let mut log = LogFile::new(file);
        log.file_len = total;
        Ok(Some(log))
    }

    /// Appends where no window fits, and creates a window if the append rate justifies it.
    #[cold]
    fn append_slow(&mut self, data: &[u8], now: Duration) -> Result<()> {
        let fresh = now.saturating_sub(self.since) < WINDOW_LIFETIME;
        let busy = fresh && (self.window.is_some() || self.appended >= MIN_RECENT_BYTES);
        self.window = None;
        if !fresh {
            (self.since, self.appended) = (now, 0);
        }
        let allowed = self.lease_allowed && !self.no_windows && data.len() <= MAX_WINDOW_APPEND;
        if busy && allowed && self.file.open.check_poison().is_ok() {
            if let Some(mut window) = self.next_window() {
                window.write(self.file.len, data);
                self.file.len += data.len() as u64;
                (self.window, self.since) = (Some(window), now);
                return Ok(());
            }
            (self.since, self.appended) = (now, 0);
        }
        self.release_lease();
        let zeros_end = self.write_end_zeros(data.len() as u64)?;
        self.file.append_lazily(data)?;
        self.appended += data.len() as u64;
        self.zeros_end = self.zeros_end.max(zeros_end).max(self.file.len);
        self.file_len = self.file_len.max(self.zeros_end);
        if std::mem::take(&mut self.synced) && data.len() <= MAX_SYNCED_APPEND {
            self.write_zeros_for_syncs();
        }
        Ok(())
    }

    /// Extends the file by zeros if nothing lies behind the data. Page by page: the kernel keeps what one call writes together, and counts
    /// all of it as written with each small append.
    fn write_zeros_for_syncs(&mut self) {
        let to = (self.file.len + ZEROS.len() as u64).next_multiple_of(END_ZEROS_ALIGN);
        if self.file_len == self.file.len && to <= limits::max_file_len().min(self.file.max_len) {
            self.extend_zeros(to, END_ZEROS_ALIGN);
        }
    }

    /// Extends the zeros behind the data up to `to`, with writes that end at multiples of `step`. Returns whether this succeeded; if not,
    /// there are none.
    fn extend_zeros(&mut self, to: u64, step: u64) -> bool {
        while self.zeros_end < to {
            let end = (self.zeros_end + 1).next_multiple_of(step).min(to);
            let part = (end - self.zeros_end) as usize;
            if self.file.open.file.write_all_at(&ZEROS[..part], self.zeros_end).is_err() {
                // The disk may be full: free the space taken by zeros.
                self.cut_excess(true);
                return false;
            }
            self.zeros_end = end;
            self.file_len = self.file_len.max(end);
        }
        true
    }

    /// Writes zeros so that they follow the data after another `len` bytes are appended, unless the file ends there.
    /// Returns the end of the zeros.
    fn write_end_zeros(&self, len: u64) -> Result<u64> {
        let end = self.file.len + len;
        if self.zeros_end >= self.file_len || end + LOG_END as u64 <= self.zeros_end {
            return Ok(self.zeros_end);
        }
        self.file.open.check_poison()?;
        let to = (end + LOG_END as u64).next_multiple_of(END_ZEROS_ALIGN).min(self.file_len);
        let from = self.zeros_end.max(end);
        if from < to {
            self.file.write_at(&ZEROS[..(to - from) as usize], from)?;
        }
        Ok(to)
    }

    /// Creates a window at the end of the log, and extends the file by zeros to its end.
    fn next_window(&mut self) -> Option<Window> {
        let from = self.file.len - self.file.len % PAGE;
        let to = from + WINDOW_LEN;
        if to > limits::max_file_len().min(self.file.max_len) || !self.take_lease() {
            return None;
        }
        if !self.extend_zeros(to, ZEROS.len() as u64) {
            return None;
        }
        let window = Window::open(&self.file.open.file, from, WINDOW_LEN as usize);
        self.no_windows = window.is_err();
        window.ok()
    }

    /// Takes the lease, so that nothing else opens the file. Fails while another handle is open for writing or waits
    /// to open.
    fn take_lease(&mut self) -> bool {
        if self.leased {
            return mapped::has_lease(&self.file.open.file);
        }
        match mapped::take_lease(&self.file.open.file) {
            Ok(()) => self.leased = true,
            Err(e) => {
                self.no_windows |= e.kind() != io::ErrorKind::WouldBlock;
                return false;
            }
        }
        // Another process may have cut the file before the lease. Nothing is mapped, so this is safe here; recovery
        // reports the lost data when it reads the log.
        let whole = self
            .file
            .open
            .file
            .metadata()
            .is_ok_and(|found| found.len() >= self.zeros_end.max(self.file.len));
        self.no_windows |= !whole;
        whole
    }

    /// Removes the window and gives the lease back, so that other processes can open the file.
    fn release_lease(&mut self) {
        self.window = None;
        if std::mem::take(&mut self.leased) {
            mapped::end_lease(&self.file.open.file);
        }
    }

    /// Cuts off the bytes behind the appended data. `all`: there may be more of them than `file_len` says.
    fn cut_excess(&mut self, all: bool) {
        self.release_lease();
        if (all || self.file_len > self.file.len) && self.file.open.file.set_len(self.file.len).is_ok() {
            (self.zeros_end, self.file_len) = (self.file.len, self.file.len);
        }
    }

    /// Called when a sync or a truncation makes the mapped pages clean, so that a store would fault: removes the window
    /// and restarts the measurement of the append rate.
    fn end_window(&mut self) {
        self.release_lease();
        (self.since, self.appended) = (now(), 0);
    }
}

impl WriteFile for LogFile {
    #[inline]
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let now = now();
        let len = self.file.len;
        match &mut self.window {
            // A poisoned file has no window, and no window extends beyond the maximum file length.
            Some(window)
                if window.holds(len, data.len() + LOG_END)
                    && now.saturating_sub(self.since) < WINDOW_LIFETIME =>
            {
                window.write(len, data);
                self.file.len += data.len() as u64;
                Ok(())
            }
            _ => self.append_slow(data, now),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.end_window();
        self.synced = true;
        // All bytes that this log wrote lie before the end of the zeros.
        self.file.open.sync((self.zeros_end < self.file_len).then_some(self.zeros_end))
    }

    fn write_back(&mut self) -> Result<()> {
        self.end_window();
        let len = self.file.len;
        let mut before = 0..0;
        for from in (0..len).step_by(WRITE_BACK_PORTION as usize) {
            let next = from..len.min(from + WRITE_BACK_PORTION);
            if !self.file.open.write_back(before, next.clone())? {
                break;
            }
            before = next;
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.end_window();
        self.file.truncate(len)?;
        (self.zeros_end, self.file_len) = (len, len);
        Ok(())
    }

    fn on_idle(&mut self) {
        self.lease_allowed = true;
        if self.leased && now().saturating_sub(self.since) >= WINDOW_LIFETIME {
            self.release_lease();
        }
    }

    fn trim(&mut self) {
        self.release_lease();
        if self.file.open.check_poison().is_ok() {
            self.cut_excess(false);
        }
    }

    fn front(&self, len: u64) -> FrontSync {
        // Of a recycled log, which lies where windows are supported, the old content need not be written back.
        self.file.front_sync((!self.no_windows).then_some(len))
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        // In a forked child, the parent may have appended since.
        if std::process::id() == self.process {
            self.trim();
        }
    }
}

/// Monotonic time with a resolution of a few milliseconds, at a fifth of the cost of the exact time.
#[inline]
fn now() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Env, RealEnv};
    use std::collections::HashSet;
    use std::fs::File;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    const RECORD: [u8; 1000] = [7; 1000];

    fn log(dir: &Path) -> (LogFile, PathBuf) {
        let path = dir.join("log");
        let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut log = LogFile::new(RealWriteFile::new(file, &path));
        log.on_idle();
        // If the machine stalls for a moment, no window is created or used. That is correct, but not the subject of
        // these tests.
        log.since = now() + Duration::from_secs(3600);
        (log, path)
    }

    /// Appends until there is a window.
    fn append_to_a_window(log: &mut LogFile) -> u64 {
        while log.window.is_none() {
            assert!(
                log.file.len <= 2 * MIN_RECENT_BYTES,
                "there is no window: does /tmp lie on a file system of another kind?"
            );
            log.append(&RECORD).unwrap();
            log.since = now() + Duration::from_secs(3600);
        }
        log.file.len
    }

    /// Reads through the open handle: the file cannot be opened by name while there is a window.
    fn content(log: &LogFile) -> Vec<u8> {
        let mut found = vec![0; log.file.open.file.metadata().unwrap().len() as usize];
        log.file.open.file.read_exact_at(&mut found, 0).unwrap();
        found
    }

    fn has_window(dir: &Path) -> bool {
        is_mappable(&File::open(dir).unwrap())
    }

    #[test]
    fn what_is_appended_is_in_the_file_and_zeros_behind_it_until_it_is_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        if !has_window(dir.path()) {
            return;
        }
        let (mut log, path) = log(dir.path());
        append_to_a_window(&mut log);
        let mut expected = vec![7; log.file.len as usize];
        for i in 0..2000_u32 {
            let data = vec![i as u8 | 1; (i * 7 % 613) as usize];
            log.append(&data).unwrap();
            log.since = now() + Duration::from_secs(3600);
            expected.extend_from_slice(&data);
        }
        assert!(expected.len() as u64 > 2 * WINDOW_LEN && log.window.is_some());
        let found = content(&log);
        assert!(found[..expected.len()] == expected);
        let zeros = &found[expected.len()..];
        assert!(!zeros.is_empty() && zeros.len() as u64 <= WINDOW_LEN && zeros.iter().all(|&b| b == 0));
        log.trim();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), log.file.len);
        log.append(&RECORD).unwrap();
        expected.extend_from_slice(&RECORD);
        append_to_a_window(&mut log);
        let len = log.file.len;
        drop(log);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), len, "dropping trims");
        assert!(std::fs::read(&path).unwrap().starts_with(&expected));
    }

    #[test]
    fn a_window_is_not_used_when_it_is_old_or_after_a_sync_or_a_cut() {
        let dir = tempfile::tempdir().unwrap();
        if !has_window(dir.path()) {
            return;
        }
        let (mut log, path) = log(dir.path());
        append_to_a_window(&mut log);
        log.since = now().saturating_sub(WINDOW_LIFETIME);
        log.append(&RECORD).unwrap();
        assert!(log.window.is_none());
        log.appended = MIN_RECENT_BYTES;
        append_to_a_window(&mut log);
        log.sync().unwrap();
        assert!(log.window.is_none() && log.zeros_end > log.file.len);
        log.append(&RECORD).unwrap();
        assert!(log.window.is_none());
        log.appended = MIN_RECENT_BYTES;
        append_to_a_window(&mut log);
        log.truncate(10).unwrap();
        assert!(log.window.is_none());
        log.append(b"end").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), *b"\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07end");
    }

    #[test]
    fn over_an_older_log_there_are_zeros_behind_the_end_and_then_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (path, total) = (dir.path().join("log"), 6 * WINDOW_LEN as usize);
        std::fs::write(&path, vec![0xee; total]).unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let over = LogFile::recycle(RealWriteFile::new(file, &path)).unwrap();
        assert_eq!(over.is_some(), has_window(dir.path()));
        let Some(mut log) = over else { return };
        log.on_idle();
        let (mut by_map, mut by_write) = (0, 0);
        for i in 0.. {
            // Some appends with a window, then some without.
            log.since = if i % 200 < 150 {
                now() + Duration::from_secs(3600)
            } else {
                now().saturating_sub(WINDOW_LIFETIME)
            };
            log.append(&RECORD).unwrap();
            *if log.window.is_some() { &mut by_map } else { &mut by_write } += 1;
            if i % 90 == 0 {
                log.sync().unwrap();
            }
            let len = log.file.len as usize;
            if len + 2 * WINDOW_LEN as usize > total {
                break;
            }
            let found = content(&log);
            let behind = &found[len..];
            let zeros = behind.iter().position(|&byte| byte != 0).unwrap_or(behind.len());
            assert!(found.len() >= total && found[..len].iter().all(|&byte| byte == 7), "{i}");
            assert!(zeros >= LOG_END.min(behind.len()) && zeros <= WINDOW_LEN as usize, "{i}: {zeros} zeros");
            assert!(behind[zeros..].iter().all(|&byte| byte == 0xee) || len + zeros >= total, "{i}");
        }
        assert!(by_map > 100 && by_write > 100, "{by_map} by map, {by_write} by write");
        log.trim();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), log.file.len);
    }

    #[test]
    fn a_file_that_may_not_become_so_long_has_no_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, path) = log(dir.path());
        log.file.max_len = WINDOW_LEN - 1;
        let error = loop {
            log.since = now() + Duration::from_secs(3600);
            if let Err(error) = log.append(&RECORD) {
                break error;
            }
        };
        assert!(error.is_file_too_large(), "{error}");
        assert!(log.window.is_none());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (WINDOW_LEN - 1) / 1000 * 1000);
    }

    #[test]
    fn a_failed_sync_of_the_front_poisons_the_log_and_the_other_way_round() {
        for front_first in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let (mut log, path) = log(dir.path());
            log.append(&RECORD).unwrap();
            log.front(10)().unwrap();
            log.sync().unwrap();
            let (_read, write) = std::io::pipe().unwrap();
            log.file.open = RealWriteFile::new(File::from(std::os::fd::OwnedFd::from(write)), &path).open;
            let front = log.front(10);
            let kinds = match front_first {
                true => [front(), log.sync()],
                false => [log.sync(), front()],
            };
            let kinds = kinds.map(|synced| synced.unwrap_err().kind());
            assert_eq!(kinds, [base::ErrorKind::Io, base::ErrorKind::ReadOnly], "{front_first}");
            assert_eq!(log.append(&RECORD).unwrap_err().kind(), base::ErrorKind::ReadOnly);
        }
    }

    #[test]
    fn a_failed_sync_leaves_no_window() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, path) = log(dir.path());
        while log.file.len < 2 * MIN_RECENT_BYTES {
            log.append(&RECORD).unwrap();
        }
        let (_read, write) = std::io::pipe().unwrap();
        log.file.open = RealWriteFile::new(File::from(std::os::fd::OwnedFd::from(write)), &path).open;
        assert_eq!(log.sync().unwrap_err().kind(), base::ErrorKind::Io);
        let before = std::fs::metadata(&path).unwrap().len();
        for _ in 0..2 * MIN_RECENT_BYTES / RECORD.len() as u64 {
            assert_eq!(log.append(&RECORD).unwrap_err().kind(), base::ErrorKind::ReadOnly);
        }
        drop(log);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
    }

    #[test]
    fn a_synced_log_has_zeros_behind_small_appends_until_it_is_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, path) = log(dir.path());
        let len = || std::fs::metadata(&path).unwrap().len();
        log.append(&RECORD).unwrap();
        assert_eq!(len(), 1000, "not synced yet");
        log.sync().unwrap();
        log.append(&[9; MAX_SYNCED_APPEND + 1]).unwrap();
        assert_eq!(len(), log.file.len, "a large append");
        let (mut lens, mut expected) = (HashSet::new(), [&RECORD[..], &[9; MAX_SYNCED_APPEND + 1]].concat());
        for i in 0..200_u8 {
            log.sync().unwrap();
            log.append(&[i; 1000]).unwrap();
            expected.extend_from_slice(&[i; 1000]);
            assert!(len() >= log.file.len && len() < log.file.len + ZEROS.len() as u64 + END_ZEROS_ALIGN);
            lens.insert(len());
        }
        assert!(lens.len() <= 1 + 200_000 / ZEROS.len(), "{} lengths in 200 syncs", lens.len());
        let found = content(&log);
        assert!(found.starts_with(&expected) && found[expected.len()..].iter().all(|&b| b == 0));
        log.truncate(5000).unwrap();
        assert_eq!(len(), 5000);
        log.sync().unwrap();
        log.append(&RECORD).unwrap();
        assert!(len() > log.file.len);
        log.trim();
        assert_eq!(len(), 6000);
    }

    #[test]
    fn a_log_with_few_appends_has_no_zeros() {
        let env: Arc<dyn Env> = RealEnv::new();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = env.create_log(&path).unwrap();
        log.on_idle();
        for appended in 1..=MIN_RECENT_BYTES / 1000 {
            log.append(&RECORD).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), appended * 1000);
        }
    }
}
