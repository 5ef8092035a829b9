//! Guards: one holds the [`Writer`] and passes the lead on, one publishes a commit, one ends all writing after a panic.

use super::db_inner::DbInner;
use super::writer::{Job, Writer, panicked};
use crate::parts::Lead;
use base::{Result, Seq};
use std::ops::{Deref, DerefMut};

/// Ends all writing when it is dropped by a panic, which only a bug can cause: the thread's operation is half done, and other threads may
/// wait for it.
pub(crate) struct PanicGuard<'a> {
    db: &'a DbInner,
    what: &'static str,
    /// Whether the thread was panicking before, and now unwinds through a destructor that uses the database.
    unwinding: bool,
}

impl<'a> PanicGuard<'a> {
    #[inline]
    pub(crate) fn new(db: &'a DbInner, what: &'static str) -> PanicGuard<'a> {
        PanicGuard { db, what, unwinding: std::thread::panicking() }
    }
}

impl PanicGuard<'_> {
    /// Does the check of `drop`.
    #[inline]
    pub(crate) fn look(&self) {
        if std::thread::panicking() && !self.unwinding {
            self.db.stop(&panicked(self.what));
        }
    }
}

impl Drop for PanicGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.look();
    }
}

/// Publishes a commit when its insertion ends, even by a panic: later commits wait for it. A panic, which only a bug can cause, ends all
/// writing.
pub(crate) struct Publishing<'a> {
    watch: PanicGuard<'a>,
    db: &'a DbInner,
    first_seq: Seq,
    last_seq: Seq,
}

impl<'a> Publishing<'a> {
    #[inline]
    pub(crate) fn new(db: &'a DbInner, first_seq: Seq, last_seq: Seq) -> Publishing<'a> {
        Publishing { watch: PanicGuard::new(db, "a writer"), db, first_seq, last_seq }
    }
}

impl Drop for Publishing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.watch.look();
        self.db.visible.publish(self.first_seq, self.last_seq);
    }
}

/// The held writer. Dropping it passes the lead on to the queue; a panic while it is held ends all writing before another thread gets it.
pub(crate) struct WriterGuard<'a> {
    // Dropped in this order.
    _watch: PanicGuard<'a>,
    lead: Lead<'a, Writer, Job, Result<()>>,
}

impl<'a> WriterGuard<'a> {
    #[inline]
    fn new(db: &'a DbInner, lead: Lead<'a, Writer, Job, Result<()>>) -> WriterGuard<'a> {
        WriterGuard { _watch: PanicGuard::new(db, "a writer"), lead }
    }
}

impl Deref for WriterGuard<'_> {
    type Target = Writer;
    #[inline]
    fn deref(&self) -> &Writer {
        &self.lead.writer
    }
}

impl DerefMut for WriterGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.lead.writer
    }
}

impl DbInner {
    /// Waits for the writer.
    #[inline]
    pub(crate) fn writer(&self) -> WriterGuard<'_> {
        WriterGuard::new(self, self.commit.wait())
    }

    /// The writer, if it becomes free within a moment and the queue is empty.
    #[inline]
    pub(crate) fn try_writer_briefly(&self) -> Option<WriterGuard<'_>> {
        Some(WriterGuard::new(self, self.commit.try_briefly()?))
    }

    /// The writer, if it is free and the queue is empty.
    #[inline]
    pub(crate) fn try_writer(&self) -> Option<WriterGuard<'_>> {
        Some(WriterGuard::new(self, self.commit.try_now()?))
    }
}
