//! The reserve: a file that holds space of the disk back, so that a full disk can be made less full.
//!
//! A delete needs room in the log, a flush and a compaction need room for their tables before the old ones go, and
//! opening needs room for a manifest. When one of these meets a full disk, the file is removed and they use its space; from then
//! on puts are refused, until the file can be made again.
//!
//! ```text
//!   Absent --- first flush, if there is room for it twice ---> Held
//!                                                             |  ^
//!                        something meets a full disk          |  |  there is room again
//!                                                             v  |
//!                                                            Spent: puts are refused
//! ```
//!
//! The file is no part of the database's state: it may be missing, of another length, or come back after a crash.

use crate::ReserveStats;
use crate::spares::Spares;
use crate::sync::{AtomicBool, Mutex, Ordering};
use base::{Error, ErrorKind, Result};
use env::Env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Name of the file.
pub(crate) const RESERVE_FILE_NAME: &str = "RESERVE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is none yet, or none could be had.
    Absent,
    Held,
    /// It was released when the disk was full.
    Spent,
}

struct State {
    standing: Standing,
    /// Why the file could not be made, the last time.
    trouble: Option<Error>,
    /// What met the full disk.
    cause: Option<Error>,
    /// Before this time space is not looked for again by those who need it: the last attempt gave nothing back.
    not_before: Duration,
}

impl State {
    fn new(standing: Standing, cause: Option<Error>) -> State {
        State { standing, trouble: None, cause, not_before: Duration::ZERO }
    }
}

/// The reserve of one database. Its lock is taken under any other one and held over I/O on its file.
pub(crate) struct Reserve {
    env: Arc<dyn Env>,
    dir: PathBuf,
    bytes: u64,
    /// What goes before it does.
    spares: Arc<Spares>,
    state: Mutex<State>,
    /// Whether it is spent: one look for every put.
    spent: AtomicBool,
    /// While it is spent: whether something may have been deleted that is in memory only.
    deleted: AtomicBool,
}

impl Reserve {
    pub(crate) fn new(env: &Arc<dyn Env>, dir: &Path, bytes: u64, spares: Arc<Spares>) -> Reserve {
        let state = State::new(Standing::Absent, None);
        let (spent, deleted) = (AtomicBool::new(false), AtomicBool::new(false));
        Reserve {
            env: env.clone(),
            dir: dir.to_owned(),
            bytes,
            spares,
            state: Mutex::new(state),
            spent,
            deleted,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(RESERVE_FILE_NAME)
    }

    /// Takes over the file that an earlier opening left. One of another length goes: the next flush makes it anew.
    pub(crate) fn adopt(&self) {
        let path = self.path();
        let found = match self.env.exists(&path) {
            Ok(true) => self.env.len(&path).ok(),
            _ => return,
        };
        match found == Some(self.bytes) && self.bytes > 0 {
            true => self.state.lock().standing = Standing::Held,
            false => drop(self.env.remove(&path)),
        }
    }

    /// Makes the file, unless that would take half of what is free. That it cannot be made is no error.
    pub(crate) fn establish(&self) {
        if self.bytes > 0 {
            let mut state = self.state.lock();
            if state.standing == Standing::Absent {
                self.make(&mut state, self.bytes.saturating_mul(2));
            }
        }
    }

    /// Makes the file again after it was released, when there is room for it and a little more. Whether puts are admitted now.
    pub(crate) fn retake(&self) -> bool {
        if !self.is_spent() {
            return true;
        }
        let mut state = self.state.lock();
        state.standing != Standing::Spent || self.make(&mut state, self.bytes + self.bytes / 8)
    }

    fn make(&self, state: &mut State, wanted: u64) -> bool {
        let made = match self.env.free_space(&self.dir) {
            Some(free) if free < wanted => {
                let message = format!("{free} bytes are free, and {wanted} are wanted for it");
                Err(Error::new(ErrorKind::NoSpace, message))
            }
            _ => self.env.allocate(&self.path(), self.bytes),
        };
        match made {
            Ok(()) => {
                *state = State::new(Standing::Held, None);
                self.spent.store(false, Ordering::Release);
                true
            }
            Err(e) => {
                state.trouble = Some(e);
                false
            }
        }
    }

    /// Whether `error` says that the disk is full, and there is more room now than when it came about: then what failed is
    /// worth another try.
    pub(crate) fn release_for(&self, error: &Error) -> bool {
        // A file that may not grow does not grow in a larger space.
        if error.kind() != ErrorKind::NoSpace || error.is_file_too_large() {
            return false;
        }
        if self.spares.give_up() {
            return true;
        }
        let mut state = self.state.lock();
        if state.standing != Standing::Held {
            return false;
        }
        // Whatever is wrong with it, it is not to be counted on any more.
        let removed = self.env.remove(&self.path());
        tracing::warn!(cause = %error, "the disk is full: the reserve is released, and puts are refused");
        *state = State::new(Standing::Spent, Some(error.clone()));
        self.deleted.store(true, Ordering::Release);
        self.spent.store(true, Ordering::Release);
        removed.is_ok()
    }

    /// Tries again for as long as there is something to release: first spare logs, which may be small, then the reserve.
    pub(crate) fn insist<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match attempt() {
                Err(e) if self.release_for(&e) => {}
                result => return result,
            }
        }
    }

    /// Whether puts are refused until there is room for it again.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }

    /// Something was, or is about to be, deleted.
    #[inline]
    pub(crate) fn note_deletes(&self) {
        if self.is_spent() {
            self.deleted.store(true, Ordering::Release);
        }
    }

    /// Whether something was deleted since this was last asked, and puts are refused: then space may be had by flushing it.
    pub(crate) fn take_deletes(&self) -> bool {
        self.is_spent() && self.deleted.swap(false, Ordering::AcqRel)
    }

    /// Whether space may be looked for at this time.
    pub(crate) fn may_look(&self, now: Duration) -> bool {
        now >= self.state.lock().not_before
    }

    /// There was none: it is looked for again at `then`.
    pub(crate) fn look_at(&self, then: Duration) {
        self.state.lock().not_before = then;
    }

    /// Lets a put go on, or says why not.
    #[inline]
    pub(crate) fn admit(&self) -> Result<()> {
        match self.is_spent() {
            false => Ok(()),
            true => self.admit_after_all(),
        }
    }

    #[cold]
    fn admit_after_all(&self) -> Result<()> {
        if self.retake() {
            return Ok(());
        }
        let cause = self.state.lock().cause.as_ref().map_or(String::new(), |cause| format!(" ({cause})"));
        let message = format!(
            "{}: the disk is full{cause}: puts are refused until {} bytes are free; deletes, flushes and compactions go on",
            self.dir.display(),
            self.bytes + self.bytes / 8,
        );
        Err(Error::new(ErrorKind::NoSpace, message))
    }

    pub(crate) fn stats(&self) -> ReserveStats {
        let state = self.state.lock();
        ReserveStats {
            held_bytes: if state.standing == Standing::Held { self.bytes } else { 0 },
            spent: state.standing == Standing::Spent,
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

    fn reserve(sim: &Arc<SimEnv>, bytes: u64) -> Reserve {
        sim.create_dir(Path::new("/db")).unwrap();
        let env: Arc<dyn Env> = sim.clone();
        let spares = Arc::new(Spares::new(&env, Path::new("/db"), 0));
        Reserve::new(&env, Path::new("/db"), bytes, spares)
    }

    #[test]
    fn it_is_made_released_once_and_made_again_when_there_is_room() {
        let sim = SimEnv::new(1);
        let reserve = reserve(&sim, 1000);
        assert!(!reserve.release_for(&full()), "there is none yet");
        reserve.admit().unwrap();
        sim.set_capacity(Some(1999));
        reserve.establish();
        let stats = reserve.stats();
        assert!(stats.held_bytes == 0 && stats.trouble.unwrap().contains("1999"));
        sim.set_capacity(Some(2000));
        reserve.establish();
        assert_eq!((reserve.stats().held_bytes, sim.used()), (1000, 1000));
        let too_large = Error::io("append to", Path::new("f"), std::io::ErrorKind::FileTooLarge.into());
        assert!(!reserve.release_for(&too_large) && !reserve.release_for(&Error::invalid("else")));
        assert!(reserve.release_for(&full()));
        assert!(!reserve.release_for(&full()), "there is nothing to release any more");
        assert_eq!(sim.used(), 0);
        sim.set_capacity(Some(1100));
        let error = reserve.admit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("1125 bytes"), "{error}");
        sim.set_capacity(Some(1125));
        reserve.admit().unwrap();
        assert_eq!((reserve.stats().held_bytes, reserve.is_spent()), (1000, false));
    }

    #[test]
    fn what_an_earlier_opening_left_is_taken_over_or_removed() {
        for (found, bytes, held) in [(1000, 1000, 1000), (999, 1000, 0), (1000, 0, 0)] {
            let sim = SimEnv::new(1);
            let reserve = reserve(&sim, bytes);
            reserve.adopt();
            sim.allocate(&reserve.path(), found).unwrap();
            reserve.adopt();
            assert_eq!((reserve.stats().held_bytes, sim.used()), (held, held));
        }
    }
}
