//! What is known to be wrong with a table, noted by whoever met it.
//!
//! A note changes no answer: a read that needs the table looks at the file again, each time, and fails or not. It has two
//! uses. The statistics list the tables that are damaged; and no compaction takes a table that an earlier one could not
//! read (see `unreadable.rs`), so that one bad file does not stop the work on all others. Damage that only reads have met does
//! not keep a compaction away: it reads neither filter nor index, and where these alone are damaged it mends the table.

use base::{Error, ErrorKind};
use parking_lot::Mutex;
use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often a compaction may fail to read a table because the system reports an error, before the table counts as unreadable.
/// Such an error may pass; a wrong checksum does not.
const PATIENCE: u32 = 10;

/// Errors that say nothing of the file: too many open files, here or in the whole system, and no memory.
const NOT_THE_FILE: [i32; 3] = [24, 23, 12];

/// The note that a table carries.
#[derive(Default)]
pub(crate) struct Damage {
    noted: AtomicBool,
    unreadable: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    first: Option<Error>,
    failures: u32,
}

impl Damage {
    /// A read failed. Errors that say nothing of what is in the file are not noted.
    pub(crate) fn note(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported) {
            self.state.lock().first.get_or_insert_with(|| error.clone());
            self.noted.store(true, Ordering::Release);
        }
    }

    /// A compaction failed to read the table.
    pub(crate) fn note_merge(&self, error: &Error) {
        self.note(error);
        let hopeless = match error.kind() {
            ErrorKind::Corruption | ErrorKind::Unsupported => true,
            ErrorKind::Io if !is_of_the_process(error) => {
                let mut state = self.state.lock();
                state.failures += 1;
                state.failures >= PATIENCE
            }
            _ => false,
        };
        if hopeless {
            self.state.lock().first.get_or_insert_with(|| error.clone());
            self.noted.store(true, Ordering::Release);
            self.unreadable.store(true, Ordering::Release);
        }
    }

    /// What was met first.
    pub(crate) fn first(&self) -> Option<Error> {
        match self.noted.load(Ordering::Acquire) {
            true => self.state.lock().first.clone(),
            false => None,
        }
    }

    pub(crate) fn is_unreadable(&self) -> bool {
        self.unreadable.load(Ordering::Acquire)
    }

    /// Forgets everything: the file was read from end to end and is sound.
    pub(crate) fn clear(&self) {
        *self.state.lock() = State::default();
        self.noted.store(false, Ordering::Release);
        self.unreadable.store(false, Ordering::Release);
    }

    /// Lets the next compaction try again.
    pub(crate) fn retry(&self) {
        self.state.lock().failures = 0;
        self.unreadable.store(false, Ordering::Release);
    }
}

fn is_of_the_process(error: &Error) -> bool {
    let source = error.source().and_then(|e| e.downcast_ref::<io::Error>());
    source.and_then(io::Error::raw_os_error).is_some_and(|code| NOT_THE_FILE.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn system(code: i32) -> Error {
        Error::io("read", Path::new("/db/000007.tbl"), io::Error::from_raw_os_error(code))
    }

    #[test]
    fn wrong_bytes_count_at_once_a_failing_system_after_a_while_and_too_many_files_never() {
        let damage = Damage::default();
        damage.note(&system(5));
        assert!(damage.first().is_none(), "a read that fails may pass");
        for _ in 1..PATIENCE {
            damage.note_merge(&system(5));
        }
        assert!(!damage.is_unreadable());
        damage.note_merge(&system(5));
        assert!(damage.is_unreadable() && damage.first().is_some());
        damage.clear();
        for _ in 0..2 * PATIENCE {
            damage.note_merge(&system(24));
        }
        assert!(!damage.is_unreadable() && damage.first().is_none());
        let wrong = Error::corruption(Path::new("/db/000007.tbl"), 9, "bad");
        damage.note(&wrong);
        assert!(!damage.is_unreadable() && damage.first().is_some(), "only a compaction can tell");
        damage.note_merge(&wrong);
        assert!(damage.is_unreadable());
        damage.retry();
        assert!(!damage.is_unreadable() && damage.first().is_some());
    }
}
