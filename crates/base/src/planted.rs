//! Known bugs, planted on purpose, so that the test suites can prove that they would find them.
//!
//! Without the feature `planted-bugs`, which nothing but that proof turns on, [`planted`] is the constant `false` and the bugs
//! are not in the program. With it, one bug at a time is switched on for the whole process.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A bug of a kind that storage engines have had.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)+];

            /// What is wrong, in words.
            pub fn describe(self) -> &'static str {
                match self {
                    $(Bug::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

bugs! {
    /// a new manifest is renamed into place and its directory not synced
    SkipDirectorySync,
    /// a synced write is acknowledged when the operating system has it
    AcknowledgeBeforeSync,
    /// a failed sync of the log is reported, and writing goes on
    GoOnAfterFailedSync,
    /// a compaction drops tombstones that still hide older versions
    DropTombstoneEarly,
    /// a compaction forgets that there are snapshots
    IgnoreSnapshots,
    /// recovery takes the next sequence number from the manifest alone
    ReuseSequenceNumber,
    /// recovery takes the next file number from the manifest alone
    ReuseFileNumber,
    /// a table's file goes when a compaction replaced it, though an iterator reads it
    FreeFileInUse,
    /// checksums of table blocks are not looked at
    IgnoreTableChecksum,
    /// a damaged chunk of the log always passes for a torn tail
    DamageIsATornTail,
    /// in a log that is written over an older one, what is left of that one counts
    CountOldChunks,
    /// a log is written over before the edit that frees it is durable
    RecycleBeforeEdit,
    /// recovery replays a log behind a hole in the one before
    ReplayOverHole,
    /// the entries of a batch are committed one by one
    TearBatch,
    /// a write is visible before it is in the memtable
    PublishBeforeInsert,
    /// a new table is not synced before the manifest names it
    SkipTableSync,
    /// a flush removes logs that other keyspaces still need
    FreeLogEarly,
    /// dropping a keyspace removes logs that other keyspaces still need
    DropFreesLogs,
    /// the manifest names the tables of a flush of several keyspaces before their directory is synced
    NameTablesBeforeSync,
    /// a flush does not sync what other keyspaces wrote before
    FlushWithoutOlderLogs,
    /// a compaction attaches a guard's own key to the guard before it
    GuardKeyToTheLeft,
    /// a compaction cuts its output between two versions of a key
    CutBetweenVersions,
    /// a table is moved past tables that share keys with it
    MovePastOlderTables,
    /// a look-up in level 0 begins with the oldest table
    OldestTableFirst,
    /// a view leads to the wrong table, now and then
    ViewSelectsWrongRun,
    /// a guard whose tables changed keeps its view
    ViewOutlivesGuard,
    /// a filter denies one key in sixteen that is there
    FilterDeniesKeys,
    /// what a read that must not wait has left in its buffer counts as the block
    TakeShortRead,
    /// the answers of a batch of reads that had to wait go to the wrong keys
    MixUpAnswers,
    /// a read that had to wait ends with the table that it waited for
    StopAfterWait,
    /// an iterator that meets an error ends as if there were no more entries
    SwallowReadError,
    /// a leader's failed sync is told to nobody but the first of its group
    FollowersSucceed,
    /// a commit is visible though older ones are still being inserted
    PublishOutOfOrder,
    /// a memtable is switched while others still insert into it
    SwitchUnderInsert,
    /// who lets go of the writer does not wake those who queue for it
    ForgetToPassOn,
    /// who publishes a commit does not wake those who sleep until it is visible
    ForgetToWake,
    /// who has done the jobs of those who queue does not wake them
    ForgetToWakeServed,
    /// closing forgets those who queue
    CloseWithoutTurningAway,
    /// closing does not wait for calls of the application that work on the directory
    CloseWithoutWaiting,
    /// a keyspace is created though the database was closed while the creation waited for the manifest
    CreateAfterClose,
    /// an iterator that goes after the database was closed removes tables that it was the last to read
    LateGarbage,
    /// the manifest learns of a new log with the next flush only
    NameLogLate,
    /// a log that is shorter than what its successor says was synced passes for one with a torn end
    ForgetSyncedLength,
    /// callers that wait for a flush learn that a sync failed before writing is stopped
    StopAfterTelling,
    /// a compaction forgets range tombstones that still hide entries of other tables
    ForgetRangeTombstone,
    /// a range tombstone hides what was written after it, too
    RangeHidesNewer,
    /// a table counts as sifted for range tombstones though a snapshot made the compaction keep what they hide
    SiftedDespiteSnapshot,
    /// flushes and compactions do not know of cursors
    ForgetCursors,
    /// a cursor holds a sequence number without a look at whether there is a newer one by then
    HoldOldNumber,
    /// a cursor that gives up flushed memtables goes on at the newest sequence number
    MovedCursorReadsNewest,
    /// a cursor that gives up flushed memtables skips an entry
    MovedCursorSkipsEntry,
    /// a put does not cut the range of dead keys that it falls into
    PutsStayDead,
    /// a range of keys that are dead now is dead for readers as of a time before, too
    DeadForOldReaders,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use super::Bug;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The index of the bug that is on, plus one.
    static ON: AtomicUsize = AtomicUsize::new(0);

    /// Whether this bug is on.
    #[inline]
    pub fn planted(bug: Bug) -> bool {
        ON.load(Ordering::Relaxed) == bug as usize + 1
    }

    /// Switches this bug on and every other off; `None` switches all off.
    pub fn plant(bug: Option<Bug>) {
        ON.store(bug.map_or(0, |bug| bug as usize + 1), Ordering::SeqCst);
    }
}

#[cfg(feature = "planted-bugs")]
pub use switch::{plant, planted};

/// Whether this bug is on: never, without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}
