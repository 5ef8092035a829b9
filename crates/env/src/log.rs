//! A log file of the operating system: appending to it costs no system call while much is appended.
//!
//! What is appended to a file must be in the hands of the operating system when [`WriteFile::append`] returns; that is a write(2), which
//! takes about a microsecond, or a store into a page of the file that is mapped into this process. So while a log is written to at
//! a high rate, it reaches a little farther than what was appended, filled up by zeros, and its end is mapped:
//!
//! ```text
//!   0 .......................... len .................. reach
//!       what was appended         |       zeros           |
//!                       [ the window: STEP bytes, mapped  ]
//! ```
//!
//! *Errors stay errors.* The zeros are written by write(2), which says that a disk is full, or a file too long; their pages are made ready
//! with `MADV_POPULATE_WRITE`, which says what a page fault would say by a signal. Where any of this fails, the log is written to as
//! any other file is, and whoever appends is told what that says.
//!
//! *No page fault may need the disk.* Between the making of a window and a store, the kernel may have written a page out and made it
//! read-only again; the store faults then, and a file system that cannot do what that needs kills the process. Hence a window is
//! used for [`FRESH`] only, not after a sync, and only on file systems where such a page needs no new space: see [`crate::fit`]. What
//! remains, a page that is written out, dropped and unreadable within that time, is in `docs/adr/0010-mapped-log.md`.
//!
//! *Nothing else may cut the file short* while part of it is mapped: a store behind the end is a signal, too. So there is a window only
//! while this process holds a *lease* on the file: the kernel makes everything else that opens the file, or cuts it by its name, wait until the lease is
//! given back, or for 45 seconds. The holder asks whether anything waits before it makes a window, and uses that one no longer than
//! [`FRESH`]. So that nothing waits for a log that is not written to, there are windows only where the caller has promised to say so:
//! [`WriteFile::expect_rests`].
//!
//! *After a kill* the file ends in zeros, at most [`STEP`] of them. Readers have to know.
//!
//! *Over an older log* ([`Env::reuse_log`](crate::Env::reuse_log)) the file is longer than that: behind the zeros is what it had before, and
//! there are always [`LOG_END`] zeros at least, which are written before what they stand behind. Its pages are in memory and most
//! of them dirty already, so that it costs no memory, no space and no writing that was not due anyhow. That is also why a sync
//! must not write all of them out: it makes durable what lies before the end of the zeros, and nothing more.

use crate::fit::is_fit;
use crate::limits;
use crate::mapped::{self, PAGE, Window, sync_front};
use crate::real::RealWriteFile;
use crate::{LOG_END, WriteFile};
use base::Result;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Length of a window, in bytes. It takes a tenth of a millisecond to make one.
const STEP: u64 = 256 << 10;

/// So much must be appended within [`FRESH`], and without a sync, before there is a window: who writes little, or syncs all the time,
/// would have more zeros written than anything else.
const MIN: u64 = 64 << 10;

/// How long a window is used after it was made.
const FRESH: Duration = Duration::from_millis(100);

/// Larger appends are no better off with a window.
const MAX: usize = (STEP / 4) as usize;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Where there is no window, zeros that mark the end of a log over an older one are written up to the end of such a part of it: a page.
const MARK: u64 = 4 << 10;

const _: () = assert!(STEP.is_multiple_of(PAGE) && PAGE + MAX as u64 + LOG_END as u64 <= STEP && MIN < STEP);

/// See the module.
pub(crate) struct LogFile {
    file: RealWriteFile,
    /// How far the zeros go that are behind the end. Less than the end when there are none.
    reach: u64,
    /// How long the file is: from `reach` on it has what an older log left.
    total: u64,
    window: Option<Window>,
    /// When the window was made; otherwise, when the present rate began to be measured.
    since: Duration,
    /// Bytes that were appended since.
    appended: u64,
    /// No window can be had for this file.
    plain: bool,
    /// The caller says when nothing is appended.
    rests: bool,
    /// This process has the lease. Without it there is no window.
    leased: bool,
    process: u32,
}

impl LogFile {
    pub(crate) fn new(file: RealWriteFile) -> LogFile {
        let plain = !is_fit(&file.file);
        let (since, process) = (now(), std::process::id());
        LogFile {
            file,
            reach: 0,
            total: 0,
            window: None,
            since,
            appended: 0,
            plain,
            rests: false,
            leased: false,
            process,
        }
    }

    /// Over what is in `file`. `None` on file systems where there are no windows: nobody has measured that it gains anything there.
    pub(crate) fn over(file: RealWriteFile) -> io::Result<Option<LogFile>> {
        let total = file.file.metadata()?.len();
        if !is_fit(&file.file) || total > file.max_len {
            return Ok(None);
        }
        let mut log = LogFile::new(file);
        log.total = total;
        Ok(Some(log))
    }

    /// Appends where there is no window, or none that will do; and makes one, if it is worth it.
    #[cold]
    fn append_past(&mut self, data: &[u8], now: Duration) -> Result<()> {
        let fresh = now.saturating_sub(self.since) < FRESH;
        let busy = fresh && (self.window.is_some() || self.appended >= MIN);
        self.window = None;
        if !fresh {
            (self.since, self.appended) = (now, 0);
        }
        let may = self.rests && !self.plain && data.len() <= MAX;
        if busy && may && self.file.check_poison().is_ok() {
            if let Some(mut window) = self.next_window() {
                window.write(self.file.len, data);
                self.file.len += data.len() as u64;
                (self.window, self.since) = (Some(window), now);
                return Ok(());
            }
            (self.since, self.appended) = (now, 0);
        }
        self.let_others();
        let marked = self.mark_end(data.len() as u64)?;
        self.file.append(data)?;
        self.appended += data.len() as u64;
        self.reach = self.reach.max(marked).max(self.file.len);
        self.total = self.total.max(self.reach);
        Ok(())
    }

    /// Sees to it that zeros are behind the end when another `len` bytes have been appended, unless the file ends there; says how far they
    /// go then.
    fn mark_end(&self, len: u64) -> Result<u64> {
        let end = self.file.len + len;
        if self.reach >= self.total || end + LOG_END as u64 <= self.reach {
            return Ok(self.reach);
        }
        self.file.check_poison()?;
        let to = (end + LOG_END as u64).next_multiple_of(MARK).min(self.total);
        let from = self.reach.max(end);
        if from < to {
            self.file.write_at(&ZEROS[..(to - from) as usize], from)?;
        }
        Ok(to)
    }

    /// A window at the end of the log, with zeros behind that.
    fn next_window(&mut self) -> Option<Window> {
        let from = self.file.len - self.file.len % PAGE;
        let to = from + STEP;
        if to > limits::max_file_len().min(self.file.max_len) || !self.keep_others() {
            return None;
        }
        while self.reach < to {
            let part = ((to - self.reach) as usize).min(ZEROS.len());
            if self.file.file.write_all_at(&ZEROS[..part], self.reach).is_err() {
                // The disk is full, perhaps: then somebody else may have what was meant for zeros.
                self.give_back(true);
                return None;
            }
            self.reach += part as u64;
            self.total = self.total.max(self.reach);
        }
        let window = Window::open(&self.file.file, from, STEP as usize);
        self.plain = window.is_err();
        window.ok()
    }

    /// Sees to it that nothing else opens the file, if that can be had: not while anything else has it open for writing, or waits to open it.
    fn keep_others(&mut self) -> bool {
        if self.leased {
            return mapped::has_lease(&self.file.file);
        }
        match mapped::take_lease(&self.file.file) {
            Ok(()) => self.leased = true,
            Err(e) => {
                self.plain |= e.kind() != io::ErrorKind::WouldBlock;
                return false;
            }
        }
        // Another process may have cut it before. It is not mapped any more, and what is lost is found when the log is read.
        let whole = self.file.file.metadata().is_ok_and(|found| found.len() >= self.reach.max(self.file.len));
        self.plain |= !whole;
        whole
    }

    /// Lets others open the file.
    fn let_others(&mut self) {
        self.window = None;
        if std::mem::take(&mut self.leased) {
            mapped::end_lease(&self.file.file);
        }
    }

    /// Cuts off what is behind the end. `all`: there may be more than is known.
    fn give_back(&mut self, all: bool) {
        self.let_others();
        if (all || self.total > self.file.len) && self.file.file.set_len(self.file.len).is_ok() {
            (self.reach, self.total) = (self.file.len, self.file.len);
        }
    }

    /// What was mapped is clean now, and will be written to by who knows whom and when.
    fn start_over(&mut self) {
        self.let_others();
        (self.since, self.appended) = (now(), 0);
    }
}

impl WriteFile for LogFile {
    #[inline]
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let now = now();
        let len = self.file.len;
        match &mut self.window {
            // There is none in a file that is poisoned, and it does not reach where no file may.
            Some(window)
                if window.holds(len, data.len() + LOG_END) && now.saturating_sub(self.since) < FRESH =>
            {
                window.write(len, data);
                self.file.len += data.len() as u64;
                Ok(())
            }
            _ => self.append_past(data, now),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.start_over();
        match self.reach < self.total {
            // All that was ever written here, by this log, lies before the end of the zeros.
            true => self.file.sync_by(|file| sync_front(file, self.reach)),
            false => self.file.sync(),
        }
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        self.start_over();
        self.file.truncate(len)?;
        (self.reach, self.total) = (len, len);
        Ok(())
    }

    fn expect_rests(&mut self) {
        self.rests = true;
    }

    fn rest(&mut self) {
        if self.leased && now().saturating_sub(self.since) >= FRESH {
            self.let_others();
        }
    }

    fn trim(&mut self) {
        self.let_others();
        if self.file.check_poison().is_ok() {
            self.give_back(false);
        }
    }

    fn len(&self) -> u64 {
        self.file.len
    }

    fn reserve(&mut self, len: u64) {
        self.file.reserve(len);
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        // In a forked child the parent may have appended more by now.
        if std::process::id() == self.process {
            self.trim();
        }
    }
}

/// Time since some moment, to a few milliseconds: a fifth of what the exact time costs.
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
    use std::fs::File;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    const RECORD: [u8; 1000] = [7; 1000];

    fn log(dir: &Path) -> (LogFile, PathBuf) {
        let path = dir.join("log");
        let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut log = LogFile::new(RealWriteFile::new(file, &path));
        log.expect_rests();
        // On a machine that stands still for a moment a window is not made, or not used: that is right, and not what is tested.
        log.since = now() + Duration::from_secs(3600);
        (log, path)
    }

    /// Appends until there is a window.
    fn append_to_a_window(log: &mut LogFile) -> u64 {
        while log.window.is_none() {
            assert!(
                log.len() <= 2 * MIN,
                "there is no window: does /tmp lie on a file system of another kind?"
            );
            log.append(&RECORD).unwrap();
            log.since = now() + Duration::from_secs(3600);
        }
        log.len()
    }

    /// What is in the file. By its name nothing could open it while there is a window.
    fn content(log: &LogFile) -> Vec<u8> {
        let mut found = vec![0; log.file.file.metadata().unwrap().len() as usize];
        log.file.file.read_exact_at(&mut found, 0).unwrap();
        found
    }

    fn has_window(dir: &Path) -> bool {
        is_fit(&File::open(dir).unwrap())
    }

    #[test]
    fn what_is_appended_is_in_the_file_and_zeros_behind_it_until_it_is_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        if !has_window(dir.path()) {
            return;
        }
        let (mut log, path) = log(dir.path());
        append_to_a_window(&mut log);
        let mut expected = vec![7; log.len() as usize];
        for i in 0..2000_u32 {
            let data = vec![i as u8 | 1; (i * 7 % 613) as usize];
            log.append(&data).unwrap();
            log.since = now() + Duration::from_secs(3600);
            expected.extend_from_slice(&data);
        }
        assert!(expected.len() as u64 > 2 * STEP && log.window.is_some());
        let found = content(&log);
        assert!(found[..expected.len()] == expected);
        let zeros = &found[expected.len()..];
        assert!(!zeros.is_empty() && zeros.len() as u64 <= STEP && zeros.iter().all(|&b| b == 0));
        log.trim();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), log.len());
        log.append(&RECORD).unwrap();
        expected.extend_from_slice(&RECORD);
        append_to_a_window(&mut log);
        let len = log.len();
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
        log.since = now().saturating_sub(FRESH);
        log.append(&RECORD).unwrap();
        assert!(log.window.is_none());
        log.appended = MIN;
        append_to_a_window(&mut log);
        log.sync().unwrap();
        assert!(log.window.is_none() && log.reach > log.len());
        log.append(&RECORD).unwrap();
        assert!(log.window.is_none());
        log.appended = MIN;
        append_to_a_window(&mut log);
        log.truncate(10).unwrap();
        assert!(log.window.is_none());
        log.append(b"end").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), *b"\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07end");
    }

    #[test]
    fn over_an_older_log_there_are_zeros_behind_the_end_and_then_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (path, total) = (dir.path().join("log"), 6 * STEP as usize);
        std::fs::write(&path, vec![0xee; total]).unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let over = LogFile::over(RealWriteFile::new(file, &path)).unwrap();
        assert_eq!(over.is_some(), has_window(dir.path()));
        let Some(mut log) = over else { return };
        log.expect_rests();
        let (mut by_map, mut by_write) = (0, 0);
        for i in 0.. {
            // A stretch with a window, then one without.
            log.since =
                if i % 200 < 150 { now() + Duration::from_secs(3600) } else { now().saturating_sub(FRESH) };
            log.append(&RECORD).unwrap();
            *if log.window.is_some() { &mut by_map } else { &mut by_write } += 1;
            if i % 90 == 0 {
                log.sync().unwrap();
            }
            let len = log.len() as usize;
            if len + 2 * STEP as usize > total {
                break;
            }
            let found = content(&log);
            let behind = &found[len..];
            let zeros = behind.iter().position(|&byte| byte != 0).unwrap_or(behind.len());
            assert!(found.len() >= total && found[..len].iter().all(|&byte| byte == 7), "{i}");
            assert!(zeros >= LOG_END.min(behind.len()) && zeros <= STEP as usize, "{i}: {zeros} zeros");
            assert!(behind[zeros..].iter().all(|&byte| byte == 0xee) || len + zeros >= total, "{i}");
        }
        assert!(by_map > 100 && by_write > 100, "{by_map} by map, {by_write} by write");
        log.trim();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), log.len());
    }

    #[test]
    fn a_file_that_may_not_become_so_long_has_no_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, path) = log(dir.path());
        log.file.max_len = STEP - 1;
        let error = loop {
            log.since = now() + Duration::from_secs(3600);
            if let Err(error) = log.append(&RECORD) {
                break error;
            }
        };
        assert!(error.is_file_too_large(), "{error}");
        assert!(log.window.is_none());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), (STEP - 1) / 1000 * 1000);
    }

    #[test]
    fn a_failed_sync_leaves_no_window() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, path) = log(dir.path());
        while log.len() < 2 * MIN {
            log.append(&RECORD).unwrap();
        }
        let (_read, write) = std::io::pipe().unwrap();
        log.file.file = File::from(std::os::fd::OwnedFd::from(write));
        assert_eq!(log.sync().unwrap_err().kind(), base::ErrorKind::Io);
        let before = std::fs::metadata(&path).unwrap().len();
        for _ in 0..2 * MIN / RECORD.len() as u64 {
            assert_eq!(log.append(&RECORD).unwrap_err().kind(), base::ErrorKind::ReadOnly);
        }
        drop(log);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
    }

    #[test]
    fn who_appends_little_writes_no_zeros() {
        let env: Arc<dyn Env> = RealEnv::new();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = env.create_log(&path).unwrap();
        log.expect_rests();
        for _ in 0..MIN / 1000 {
            log.append(&RECORD).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), log.len());
        }
    }
}
