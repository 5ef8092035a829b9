//! What the child tells the parent through the pipe on its standard output.

use std::io::{self, Write};

/// A report from the child: a write returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The thread, or one of the numbers below.
    pub(super) thread: u32,
    /// Whether the write is guaranteed to survive a process kill.
    pub(super) promised: bool,
    /// The number of the write in its thread.
    pub(super) number: u64,
}

/// In place of a thread: the child is about to open the database.
pub(super) const OPENING: u32 = u32::MAX;

/// In place of a thread: the child is about to start its threads.
pub(super) const READY: u32 = u32::MAX - 1;

/// In place of a thread: the child reached its kill point.
pub(super) const AT_KILL_POINT: u32 = u32::MAX - 2;

/// In place of a thread: a reader has verified a moment.
pub(super) const READER: u32 = u32::MAX - 3;

/// Length of a report. A write of this length to a pipe is atomic.
pub(super) const RECORD_LEN: usize = 16;

impl Record {
    pub(super) fn encode(self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..4].copy_from_slice(&self.thread.to_le_bytes());
        bytes[4] = u8::from(self.promised);
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; RECORD_LEN]) -> Record {
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
    pub(super) fn report(self) -> io::Result<()> {
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
