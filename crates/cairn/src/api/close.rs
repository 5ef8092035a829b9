//! What handles share: [`Handle`], whose last drop closes the database, and [`Following`]; and the order in which closing ends everything that uses
//! the directory.

use crate::background::Background;
use crate::events;
use crate::open::Follower;
use crate::state::{CLOSED, DbInner, Writer};
use crate::sync::{Mutex, Ordering};
use base::planted::{Bug, planted};
use base::{ErrorKind, Result};
use std::sync::{Arc, Weak};
use tree::{DatabaseEdit, Manifest};

/// Shared by the handles of the database and of its keyspaces: dropping the last one closes the database.
pub(crate) struct Handle {
    pub db: Arc<DbInner>,
    pub background: Mutex<Background>,
    /// What reads the next moments, if another process may write to the database.
    pub follower: Option<Arc<Following>>,
}

/// What reads the moments of a database to which another process writes, shared by the handles of all of them.
pub(crate) struct Following(Mutex<Moments>);

struct Moments {
    follower: Follower,
    /// The newest.
    last: Weak<Handle>,
}

impl Following {
    pub(crate) fn new(follower: Follower) -> Arc<Following> {
        Arc::new(Following(Mutex::new(Moments { follower, last: Weak::new() })))
    }

    /// The newest moment.
    pub(crate) fn next(self: &Arc<Following>) -> Result<Arc<Handle>> {
        let mut moments = self.0.lock();
        let last = moments.last.upgrade().filter(|last| last.db.status.check_not_closed().is_ok());
        let handle = match (moments.follower.advance(last.is_some())?, last) {
            (Some(db), _) => {
                let background = Mutex::new(Background::default());
                Arc::new(Handle { db, background, follower: Some(self.clone()) })
            }
            (None, Some(last)) => last,
            (None, None) => unreachable!("without a moment before, there is one"),
        };
        moments.last = Arc::downgrade(&handle);
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Errors are dropped here; `close` returns them.
        let _ = self.db.shut_down(&self.background);
    }
}

impl DbInner {
    /// Records the length of the log in the manifest, after its last sync: damage to its very end is then distinguished from a torn tail.
    fn note_end_of_log(&self, writer: &Writer) -> Result<()> {
        let end = writer.log.closed_at();
        if end.len == 0 {
            return Ok(()); // it was never made: the disk was full at the opening
        }
        let mut closed = self.logs.closed.synced();
        closed.push(end);
        let mut edit = DatabaseEdit { closed, ..DatabaseEdit::default() };
        match self.log_edit(&mut self.manifest.lock(), &mut edit) {
            Err(e) if e.kind() == ErrorKind::ReadOnly => Err(e),
            // The recorded length is additional proof; nothing is lost without it.
            _ => Ok(()),
        }
    }

    /// Refuses new writes, makes the log durable, ends threads and running calls, releases the lock of the directory, and returns an error
    /// that was not reported before.
    ///
    /// When it returns nothing uses the directory any more: writers and calls are refused, and log and manifest refuse edits.
    pub(crate) fn shut_down(&self, background: &Mutex<Background>) -> Result<()> {
        // A forked child must not touch the threads, the files and the lock, which are the parent's.
        self.check_process()?;
        let mut background = match self.is_committer() {
            // A thread that closes the database waits for the committer, or the committer closes it and has woken one more task.
            true => match background.try_lock() {
                Some(background) => background,
                None => return Ok(()),
            },
            false => background.lock(),
        };
        if self.status.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        if self.is_moment() {
            self.end_moment();
            return Ok(());
        }
        // What tasks have queued is committed, and writers that have begun finish; later ones are refused.
        let ended = self.end_tasks();
        let mut writer = self.writer();
        self.status.stopped.store(true, Ordering::SeqCst);
        let synced = match self.status.fatal.get() {
            None => self.sync_log(&mut writer).and_then(|()| self.note_end_of_log(&writer)),
            Some(fatal) => Err(fatal.clone()),
        };
        // Here, and not when the last handle is dropped: another opening may read the file by then.
        writer.log.trim();
        drop(writer);
        self.commit.turn_away(|| Err(self.status.stop_reason()));
        self.close_keyspaces();
        let joined = background.join();
        self.calls.end();
        self.collect_obsolete();
        if self.status.fatal.get().is_none() && self.check_place().is_ok() {
            self.logs.recycled.give_up();
        }
        self.release_directory();
        self.spare_memory.close();
        self.commit.turn_away(|| Err(self.status.stop_reason()));
        events::info!(path = %self.dir.display(), last_seq = self.visible.newest(), "closed");
        let error = self.state.lock().error_or_damage();
        synced.and(ended).and(joined).and(error.map_or(Ok(()), Err))
    }

    /// No handle can be used any more, and running jobs stop.
    fn close_keyspaces(&self) {
        self.status.cancelled.store(true, Ordering::SeqCst);
        let state = self.state.lock();
        state.keyspaces.values().for_each(|k| k.inner.state.store(CLOSED, Ordering::Release));
        self.signals.notify_all();
    }

    /// Closes a moment of a database: its files are not kept for it any more.
    fn end_moment(&self) {
        self.status.stopped.store(true, Ordering::SeqCst);
        self.close_keyspaces();
        // Copies of the moment are being made.
        self.calls.end();
        *self.lock.lock() = None;
    }

    /// Replaces the log and the manifest by ones that refuse everything, and releases the lock of the directory: from then on another
    /// opening may own it.
    fn release_directory(&self) {
        let reason = self.status.closed_error();
        if !planted(Bug::CloseWithoutWaiting) && !planted(Bug::CreateAfterClose) {
            let mut manifest = self.manifest.lock();
            let number = manifest.number();
            *manifest = Manifest::refusing(&self.dir, number, reason.clone());
        }
        self.writer().log.refuse(reason);
        *self.lock.lock() = None;
    }
}
