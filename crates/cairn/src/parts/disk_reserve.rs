//! The disk reserve: a file that holds back disk space, so that a full disk can be freed again.
//!
//! A delete needs space in the log, a flush and a compaction need space for their tables before the old ones are removed, and opening
//! needs space for a manifest. When one of these finds the disk full, the file is removed and its space used; from then on puts are
//! refused, until the file can be made again.
//!
//! ```text
//!   Absent --- first flush, if there is room for it twice ---> Held
//!                                                             |  ^
//!                        something meets a full disk          |  |  there is room again
//!                                                             v  |
//!                                                            Spent: puts are refused
//! ```
//!
//! Its size is that of all tables and logs together, because at worst all of them must be rewritten; but at most the option `disk_reserve`,
//! by default the largest memtable: so each flush has space, and only compactions that fit are chosen. It grows when a flush begins, and
//! shrinks when the database has become much smaller.
//!
//! The file is not part of the database's state: it may be missing, have another length, or reappear after a crash.

use crate::events;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::types::ReserveStats;
use crate::wal::RecycledLogs;
use base::{Error, ErrorKind, Result};
use env::Env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// File name of the reserve.
pub(crate) const RESERVE_FILE_NAME: &str = "RESERVE";

/// Smallest size, unless the option is smaller: a delete, a log switch and a manifest edit need some space, however small the database
/// is.
const MIN: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReserveState {
    /// Not made yet, or it could not be made.
    Absent,
    Held,
    /// Released when the disk was full.
    Spent,
}

struct State {
    standing: ReserveState,
    /// Length of the file, or of the one to be made.
    bytes: u64,
    /// Error of the last attempt to make the file.
    trouble: Option<Error>,
    /// The error that found the disk full.
    cause: Option<Error>,
    /// No thread looks for space before this time: the last attempt freed nothing.
    not_before: Duration,
}

impl State {
    fn new(standing: ReserveState, bytes: u64, cause: Option<Error>) -> State {
        State { standing, bytes, trouble: None, cause, not_before: Duration::ZERO }
    }
}

/// The reserve of one database. Its lock is taken after all others, and is held during I/O on the file.
pub(crate) struct DiskReserve {
    env: Arc<dyn Env>,
    dir: PathBuf,
    /// The option `disk_reserve`: 0 holds nothing back.
    largest: u64,
    /// Bytes of all tables in use.
    tables: AtomicU64,
    /// Recycled logs, which are freed before the reserve.
    recycled: Arc<RecycledLogs>,
    state: Mutex<State>,
    /// Whether it is spent: each put checks this.
    spent: AtomicBool,
    /// While it is spent: whether tombstones may exist that are only in memory.
    deleted: AtomicBool,
}

impl DiskReserve {
    pub(crate) fn new(
        env: &Arc<dyn Env>,
        dir: &Path,
        largest: u64,
        recycled: Arc<RecycledLogs>,
    ) -> DiskReserve {
        let state = State::new(ReserveState::Absent, largest.min(MIN), None);
        let (spent, deleted) = (AtomicBool::new(false), AtomicBool::new(false));
        DiskReserve {
            env: env.clone(),
            dir: dir.to_owned(),
            largest,
            tables: AtomicU64::new(0),
            recycled,
            state: Mutex::new(state),
            spent,
            deleted,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(RESERVE_FILE_NAME)
    }

    /// Records that the tables of a keyspace went from `before` to `after` bytes.
    pub(crate) fn note_tables(&self, before: u64, after: u64) {
        self.tables.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// The size for the present tables and `logs` bytes of logs.
    fn size_beside(&self, logs: u64) -> u64 {
        let data = self.tables.load(Ordering::Relaxed).saturating_add(logs);
        // In powers of two, so that not every flush changes it.
        data.clamp(MIN, self.largest.max(MIN)).next_power_of_two().min(self.largest)
    }

    /// Whether the reserve can have this length.
    fn may_have(&self, bytes: u64) -> bool {
        let is_step = bytes.is_power_of_two() && (MIN..self.largest).contains(&bytes);
        bytes > 0 && (bytes == self.largest || is_step)
    }

    /// Adopts the file of an earlier opening. One of an impossible length is removed: the next flush makes it again.
    pub(crate) fn adopt(&self) {
        let path = self.path();
        let found = match self.env.exists(&path) {
            Ok(true) => self.env.len(&path).ok(),
            _ => return,
        };
        match found.filter(|&bytes| self.may_have(bytes)) {
            Some(bytes) => *self.state.lock() = State::new(ReserveState::Held, bytes, None),
            None => drop(self.env.remove(&path)),
        }
    }

    /// Makes the file, or a longer one when there is more data, unless it would take half of the free space. `logs`: bytes of all logs. A
    /// failure is not an error.
    pub(crate) fn establish(&self, logs: u64) {
        let wanted = self.size_beside(logs);
        if wanted == 0 {
            return;
        }
        let mut state = self.state.lock();
        match state.standing {
            ReserveState::Absent => {
                state.bytes = wanted;
                self.make(&mut state, wanted.saturating_mul(2));
            }
            ReserveState::Held if state.bytes < wanted => {
                let more = wanted - state.bytes;
                if self.env.free_space(&self.dir).is_none_or(|free| free >= more.saturating_mul(2)) {
                    self.remake(&mut state, wanted);
                }
            }
            ReserveState::Held | ReserveState::Spent => {}
        }
    }

    /// Makes the file smaller when a quarter of it is enough. A released one is made again in the size that is now needed. Removes a
    /// recycled log that is much larger than the rest of the database.
    pub(crate) fn fit(&self, logs: u64) {
        let wanted = self.size_beside(logs);
        let mut state = self.state.lock();
        match state.standing {
            ReserveState::Held if wanted <= state.bytes / 4 => self.remake(&mut state, wanted),
            ReserveState::Spent => state.bytes = wanted,
            ReserveState::Held | ReserveState::Absent => {}
        }
        drop(state);
        self.recycled.forget_longer(self.max_recycled_len(logs));
    }

    /// Maximum length of a recycled log, or of its unused rest behind the newest log: a longer one would be most of the space of a small
    /// database.
    pub(crate) fn max_recycled_len(&self, logs: u64) -> u64 {
        self.tables.load(Ordering::Relaxed).saturating_add(logs).saturating_mul(4)
    }

    /// Replaces the file by one of another length. After a failure there is none.
    fn remake(&self, state: &mut State, bytes: u64) {
        if let Err(e) = self.env.remove(&self.path()) {
            state.trouble = Some(e);
            return;
        }
        *state = State::new(ReserveState::Absent, bytes, None);
        self.make(state, bytes);
    }

    /// Makes the released file again if there is space for it and a little more. Returns whether puts are admitted.
    pub(crate) fn retake(&self) -> bool {
        if !self.is_spent() {
            return true;
        }
        let mut state = self.state.lock();
        let wanted = state.bytes + state.bytes / 8;
        state.standing != ReserveState::Spent || self.make(&mut state, wanted)
    }

    fn make(&self, state: &mut State, wanted: u64) -> bool {
        let made = match self.env.free_space(&self.dir) {
            Some(free) if free < wanted => {
                let message = format!("{free} bytes are free, and {wanted} are wanted for it");
                Err(Error::new(ErrorKind::NoSpace, message))
            }
            _ => self.env.allocate(&self.path(), state.bytes),
        };
        match made {
            Ok(()) => {
                *state = State::new(ReserveState::Held, state.bytes, None);
                self.spent.store(false, Ordering::Release);
                true
            }
            Err(e) => {
                state.trouble = Some(e);
                false
            }
        }
    }

    /// Frees space if `error` says that the disk is full. Returns whether there is more space than when the error occurred: the operation
    /// can then be retried.
    pub(crate) fn release_for(&self, error: &Error) -> bool {
        // A file at its size limit cannot grow, however much space there is.
        if error.kind() != ErrorKind::NoSpace || error.is_file_too_large() {
            return false;
        }
        if self.recycled.give_up() {
            return true;
        }
        let mut state = self.state.lock();
        if state.standing != ReserveState::Held {
            return false;
        }
        // Even if the removal fails, the file no longer counts as held.
        let removed = self.env.remove(&self.path());
        events::warn!(cause = %error, "the disk is full: the reserve is released, and puts are refused");
        *state = State::new(ReserveState::Spent, state.bytes, Some(error.clone()));
        self.deleted.store(true, Ordering::Release);
        self.spent.store(true, Ordering::Release);
        removed.is_ok()
    }

    /// Refuses puts from now on, without a file to release: the disk is full.
    pub(crate) fn spend(&self, cause: &Error) {
        if self.largest > 0 {
            let mut state = self.state.lock();
            *state = State::new(ReserveState::Spent, state.bytes, Some(cause.clone()));
            self.deleted.store(true, Ordering::Release);
            self.spent.store(true, Ordering::Release);
        }
    }

    /// Retries `attempt` while something can be freed: recycled logs first, which may be small, then the reserve.
    pub(crate) fn retry_after_freeing<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match attempt() {
                Err(e) if self.release_for(&e) => {}
                result => return result,
            }
        }
    }

    /// Whether puts are refused until the reserve can be made again.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }

    /// Records that a delete was made or is about to be.
    #[inline]
    pub(crate) fn note_deletes(&self) {
        if self.is_spent() {
            self.deleted.store(true, Ordering::Release);
        }
    }

    /// Whether deletes were recorded since the last call while puts are refused: flushing them may free space.
    pub(crate) fn take_deletes(&self) -> bool {
        self.is_spent() && self.deleted.swap(false, Ordering::AcqRel)
    }

    /// Whether a thread may look for space at this time.
    pub(crate) fn may_look(&self, now: Duration) -> bool {
        now >= self.state.lock().not_before
    }

    /// Defers the next look for space to `then`: the last one found none.
    pub(crate) fn look_at(&self, then: Duration) {
        self.state.lock().not_before = then;
    }

    /// Admits a put, or returns why not.
    #[cold]
    pub(crate) fn admit(&self) -> Result<()> {
        if self.retake() {
            return Ok(());
        }
        let state = self.state.lock();
        let cause = state.cause.as_ref().map_or(String::new(), |cause| format!(" ({cause})"));
        let message = format!(
            "{}: the disk is full{cause}: puts are refused until {} bytes are free; deletes, flushes and compactions go on",
            self.dir.display(),
            state.bytes + state.bytes / 8,
        );
        Err(Error::new(ErrorKind::NoSpace, message))
    }

    pub(crate) fn stats(&self) -> ReserveStats {
        let state = self.state.lock();
        ReserveStats {
            held_bytes: if state.standing == ReserveState::Held { state.bytes } else { 0 },
            spent: state.standing == ReserveState::Spent,
            trouble: state.trouble.as_ref().map(Error::to_string),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimEnv;

    fn full() -> Error {
        Error::new(ErrorKind::NoSpace, "the disk is full")
    }

    fn reserve(sim: &Arc<SimEnv>, bytes: u64) -> DiskReserve {
        sim.create_dir(Path::new("/db")).unwrap();
        let env: Arc<dyn Env> = sim.clone();
        let recycled = Arc::new(RecycledLogs::new(&env, Path::new("/db"), 0));
        DiskReserve::new(&env, Path::new("/db"), bytes, recycled)
    }

    #[test]
    fn it_is_made_released_once_and_made_again_when_there_is_room() {
        let sim = SimEnv::new(1);
        let disk_reserve = reserve(&sim, 1000);
        assert!(!disk_reserve.release_for(&full()), "there is none yet");
        disk_reserve.admit().unwrap();
        sim.set_capacity(Some(1999));
        disk_reserve.establish(0);
        let stats = disk_reserve.stats();
        assert!(stats.held_bytes == 0 && stats.trouble.unwrap().contains("1999"));
        sim.set_capacity(Some(2000));
        disk_reserve.establish(0);
        assert_eq!((disk_reserve.stats().held_bytes, sim.used()), (1000, 1000));
        let too_large = Error::io("append to", Path::new("f"), std::io::ErrorKind::FileTooLarge.into());
        assert!(!disk_reserve.release_for(&too_large) && !disk_reserve.release_for(&Error::invalid("else")));
        assert!(disk_reserve.release_for(&full()));
        assert!(!disk_reserve.release_for(&full()), "there is nothing to release any more");
        assert_eq!(sim.used(), 0);
        sim.set_capacity(Some(1100));
        let error = disk_reserve.admit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("1125 bytes"), "{error}");
        sim.set_capacity(Some(1125));
        disk_reserve.admit().unwrap();
        assert_eq!((disk_reserve.stats().held_bytes, disk_reserve.is_spent()), (1000, false));
    }

    #[test]
    fn it_is_as_large_as_what_the_database_holds() {
        let sim = SimEnv::new(1);
        let disk_reserve = reserve(&sim, 64 << 20);
        let held = |logs: u64, tables: u64| {
            let before = disk_reserve.tables.load(Ordering::Relaxed);
            disk_reserve.note_tables(before, tables);
            disk_reserve.fit(logs);
            disk_reserve.establish(logs);
            assert_eq!(sim.used(), disk_reserve.stats().held_bytes);
            disk_reserve.stats().held_bytes >> 20
        };
        assert_eq!((held(0, 0), held(1 << 20, 0), held(1 << 20, 1)), (1, 1, 2));
        assert_eq!((held(3 << 20, 10 << 20), held(0, 50 << 20), held(1 << 40, 0)), (16, 64, 64));
        // A slightly smaller database keeps its reserve.
        assert_eq!((held(0, 17 << 20), held(0, 16 << 20), held(0, 4 << 20), held(0, 1)), (64, 16, 4, 1));
        // The reserve does not take more than half of the free space.
        sim.set_capacity(Some((1 << 20) + (5 << 20)));
        assert_eq!((held(0, 4 << 20), held(0, 3 << 19)), (1, 2));
        // After the database has become smaller, a smaller reserve is made again.
        assert!(disk_reserve.release_for(&full()));
        disk_reserve.note_tables(3 << 19, 0);
        sim.set_capacity(Some(9 << 17));
        disk_reserve.fit(0);
        assert!(disk_reserve.retake() && disk_reserve.stats().held_bytes == 1 << 20);
    }

    #[test]
    fn what_an_earlier_opening_left_is_taken_over_or_removed() {
        let mib = 1 << 20;
        for (found, bytes, held) in [
            (1000, 1000, 1000),
            (999, 1000, 0),
            (1000, 0, 0),
            (4 * mib, 64 * mib, 4 * mib),
            (3 * mib, 64 * mib, 0),
            (mib / 2, 64 * mib, 0),
            (64 * mib, 32 * mib, 0),
        ] {
            let sim = SimEnv::new(1);
            let disk_reserve = reserve(&sim, bytes);
            disk_reserve.adopt();
            sim.allocate(&disk_reserve.path(), found).unwrap();
            disk_reserve.adopt();
            assert_eq!((disk_reserve.stats().held_bytes, sim.used()), (held, held));
        }
    }
}
