//! The kill test: a child process writes to a database on the real file system with several threads, and reports each
//! write that returned. The parent kills it at a random moment, opens the database and verifies it.
//!
//! ```text
//!   parent --spawns--> child: opens the database, threads write (see [`script`]) --pipe: "thread 2 did write 17"--> parent
//!      |                 ^
//!      +--kill -9--------+    then: every reported write is there, at most one more per thread, no holes, batches whole
//! ```
//!
//! The next child continues in the same directory, so each recovery builds on earlier ones. A child dies in one of
//! three ways: some time after it starts to write; some time after it starts to open the database; or it kills itself
//! at a chosen operation on a chosen kind of file (see [`moment`]): during a flush, a compaction, a switch of the
//! manifest, a recovery.
//!
//! A kill does not affect the page cache, so the file system does not matter. Most directories are in memory
//! (`/dev/shm`), where a child does many times as much work before it dies; one in eight is on the disk.

mod child;
pub mod moment;
mod parent;
pub mod script;
mod verify;

pub use child::{ChildArgs, child};
pub use parent::{Met, job, run};

use std::io::{self, Write};

/// A report from the child: a write returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    /// The thread, or one of the numbers below.
    thread: u32,
    /// Whether the write is guaranteed to survive a process kill.
    promised: bool,
    /// The number of the write in its thread.
    number: u64,
}

/// In place of a thread: the child is about to open the database.
const OPENING: u32 = u32::MAX;

/// In place of a thread: the child is about to start its threads.
const READY: u32 = u32::MAX - 1;

/// In place of a thread: the child reached its chosen moment.
const MOMENT: u32 = u32::MAX - 2;

/// Length of a report. A write of this length to a pipe is atomic.
const RECORD_LEN: usize = 16;

impl Record {
    fn encode(self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..4].copy_from_slice(&self.thread.to_le_bytes());
        bytes[4] = u8::from(self.promised);
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_LEN]) -> Record {
        let mut thread = [0; 4];
        let mut number = [0; 8];
        thread.copy_from_slice(&bytes[..4]);
        number.copy_from_slice(&bytes[8..]);
        Record {
            thread: u32::from_le_bytes(thread),
            promised: bytes[4] == 1,
            number: u64::from_le_bytes(number),
        }
    }

    /// Sends the report to the parent.
    fn report(self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(&self.encode())?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        for record in [
            Record { thread: READY, promised: false, number: 0 },
            Record { thread: 3, promised: true, number: u64::MAX - 1 },
        ] {
            assert_eq!(Record::decode(&record.encode()), record);
        }
    }
}
