//! Damage marks: what reads and compactions have found wrong with a table.
//!
//! A mark changes no answer: each read that needs the table reads the file again, and may fail again. Marks have two
//! uses. The statistics list damaged tables. And no compaction takes a table that an earlier one could not read
//! (`compaction/unreadable.rs`), so that one bad file does not stop all compactions. Damage that only reads have found does not
//! exclude a table: a compaction reads neither filter nor index, and repairs a table of which only these are damaged.

use base::{Error, ErrorKind};
use parking_lot::Mutex;
use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// After this many failures of compactions with a system error, a table counts as unreadable. A system error may be
/// temporary; a wrong checksum is not.
const MAX_READ_FAILURES: u32 = 10;

/// Error numbers that do not concern the file: EMFILE, ENFILE, ENOMEM.
const PROCESS_ERRNOS: [i32; 3] = [24, 23, 12];

/// The damage mark of a table.
#[derive(Default)]
pub struct Damage {
    unreadable: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    first: Option<Error>,
    failures: u32,
}

impl Damage {
    /// Records an error of a read or a check, if it concerns the content of the file.
    #[cold]
    pub fn note(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported) {
            self.state.lock().first.get_or_insert_with(|| error.clone());
        }
    }

    /// Records an error of a compaction that read the table.
    #[cold]
    pub(crate) fn note_merge(&self, error: &Error) {
        self.note(error);
        let hopeless = match error.kind() {
            ErrorKind::Corruption | ErrorKind::Unsupported => true,
            ErrorKind::Io if !is_process_error(error) => {
                let mut state = self.state.lock();
                state.failures += 1;
                state.failures >= MAX_READ_FAILURES
            }
            _ => false,
        };
        if hopeless {
            self.state.lock().first.get_or_insert_with(|| error.clone());
            self.unreadable.store(true, Ordering::Release);
        }
    }

    /// The first damage that was found.
    pub fn first(&self) -> Option<Error> {
        self.state.lock().first.clone()
    }

    /// Whether a compaction could not read the table. Later compactions leave it out.
    pub fn is_unreadable(&self) -> bool {
        self.unreadable.load(Ordering::Acquire)
    }

    /// Removes the mark, because a complete verification of the file found no damage.
    pub fn clear(&self) {
        *self.state.lock() = State::default();
        self.unreadable.store(false, Ordering::Release);
    }

    /// Allows compactions to read the table again.
    pub fn retry(&self) {
        self.state.lock().failures = 0;
        self.unreadable.store(false, Ordering::Release);
    }
}

fn is_process_error(error: &Error) -> bool {
    let source = error.source().and_then(|e| e.downcast_ref::<io::Error>());
    source.and_then(io::Error::raw_os_error).is_some_and(|code| PROCESS_ERRNOS.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn system(code: i32) -> Error {
        Error::io("read", Path::new("/db/000007.tbl"), io::Error::from_raw_os_error(code))
    }

    #[test]
    fn damage_counts_at_once_system_errors_after_some_and_process_limits_never() {
        let damage = Damage::default();
        damage.note(&system(5));
        assert!(damage.first().is_none(), "the error of a read may be temporary");
        for _ in 1..MAX_READ_FAILURES {
            damage.note_merge(&system(5));
        }
        assert!(!damage.is_unreadable());
        damage.note_merge(&system(5));
        assert!(damage.is_unreadable() && damage.first().is_some());
        damage.clear();
        for _ in 0..2 * MAX_READ_FAILURES {
            damage.note_merge(&system(24));
        }
        assert!(!damage.is_unreadable() && damage.first().is_none());
        let wrong = Error::corruption(Path::new("/db/000007.tbl"), 9, "bad");
        damage.note(&wrong);
        assert!(
            !damage.is_unreadable() && damage.first().is_some(),
            "only compactions make a table unreadable"
        );
        damage.note_merge(&wrong);
        assert!(damage.is_unreadable());
        damage.retry();
        assert!(!damage.is_unreadable() && damage.first().is_some());
    }
}
