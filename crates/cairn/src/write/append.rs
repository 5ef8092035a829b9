//! Appending to the log, and persisting what was appended.

use crate::state::{Batch, DbInner, Writer};
use crate::types::Durability;
use crate::wal::{Log, put_batch_head_of};
use base::planted::{Bug, planted};
use base::{ErrorKind, Result, Seq};
use record::LARGE_LEN;

/// `Buffered` writes are handed to the operating system when the buffer has this many bytes.
const BUFFER_LEN: usize = 64 << 10;

impl DbInner {
    /// Appends a batch to the log under the next sequence numbers; returns the first of them.
    pub(crate) fn append_batch(&self, writer: &mut Writer, batch: &Batch) -> (Seq, Result<()>) {
        let first_seq = writer.next_seq;
        writer.next_seq += batch.count;
        batch.note_puts(writer.next_seq - 1);
        writer.scratch.clear();
        put_batch_head_of(&mut writer.scratch, batch.has_ranges, first_seq, batch.count);
        let parts: [&[u8]; 2] = [&writer.scratch, &batch.entries];
        (first_seq, self.append_to(&mut writer.log, &parts, !batch.has_puts))
    }

    /// Appends a record to the log. A large record is written to the file at once.
    #[inline]
    pub(crate) fn append_to(&self, log: &mut Log, record: &[&[u8]], deletes: bool) -> Result<()> {
        match record.iter().map(|part| part.len()).sum::<usize>() <= LARGE_LEN {
            true => log.append(record),
            false => self.check_process().and_then(|()| self.with_room(deletes, || log.append(record))),
        }
    }

    /// If what was appended from `start` on could not be persisted, rolls it back; its sequence numbers, from `first_seq` on, are not
    /// used again.
    #[inline]
    pub(crate) fn settle_log(
        &self,
        writer: &mut Writer,
        start: u64,
        first_seq: Seq,
        persisted: Result<()>,
    ) -> Result<()> {
        if persisted.is_err() {
            writer.log.rollback(start);
            self.visible.publish(first_seq, writer.next_seq - 1);
        }
        persisted
    }

    /// Before a write that is acknowledged as durable: establishes the log, so that its loss would be detected. Runs before anything is
    /// appended, so that an error leaves nothing to roll back.
    #[inline]
    pub(crate) fn establish_for(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Sync if !planted(Bug::AcknowledgeBeforeEstablished) => self.establish_log(),
            _ => Ok(()),
        }
    }

    /// Persists what was appended as the durability demands. `deletes`: there are no puts, so the reserve may be used.
    #[inline]
    pub(crate) fn persist(&self, writer: &mut Writer, durability: Durability, deletes: bool) -> Result<()> {
        self.check_process()?;
        if deletes {
            self.disk_reserve.note_deletes();
        }
        if durability == Durability::Buffered && writer.log.buffered() < BUFFER_LEN {
            return Ok(());
        }
        self.with_room(deletes, || writer.log.flush())?;
        match durability {
            Durability::Buffered | Durability::Os => Ok(()),
            Durability::Sync if planted(Bug::AcknowledgeBeforeSync) => Ok(()),
            Durability::Sync => self.sync_flushed(writer),
        }
    }

    /// Hands data to the operating system, and retries when space was freed for it. `deletes`: may use the space of the reserve.
    #[inline]
    pub(crate) fn with_room(&self, deletes: bool, mut hand: impl FnMut() -> Result<()>) -> Result<()> {
        let handed = match hand() {
            Err(e) if e.kind() == ErrorKind::NoSpace && self.recycled.give_up() => hand(),
            handed => handed,
        };
        let Err(e) = handed else { return Ok(()) };
        // The put is refused, but the released reserve serves deletes and compactions from now on.
        let _ = self.disk_reserve.release_for(&e);
        match deletes && e.kind() == ErrorKind::NoSpace {
            true => hand().map_err(|e| self.poison_on_sync_error(e)),
            false => Err(self.poison_on_sync_error(e)),
        }
    }
}
