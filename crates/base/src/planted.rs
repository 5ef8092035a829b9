//! Known bugs that can be switched on, to prove that the test suites find them.
//!
//! Without the feature `planted-bugs`, [`planted`] is the constant `false` and the compiler removes the bugs. Only
//! the tests that prove detection enable the feature. With it, one bug at a time is switched on for the whole
//! process.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A bug of a kind that storage engines have had.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Bug {
            /// All bugs.
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)+];

            /// A description of the bug, in words.
            pub fn describe(self) -> &'static str {
                match self {
                    $(Bug::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

bugs! {
    /// a new manifest is renamed into place, but its directory is not synced
    SkipDirectorySync,
    /// a synced write is acknowledged before the sync, when the operating system has the data
    AcknowledgeBeforeSync,
    /// closing refuses what asynchronous tasks have queued, although the calls had returned
    RefuseTasksAtClose,
    /// the committer forgets to wake the tasks whose batches it has committed
    ForgetToWakeTasks,
    /// the times of a data block are those of its first entry alone
    TimesOfFirstEntry,
    /// the committer does not compare what a transaction has read that a task commits
    TasksForgetReads,
    /// a failed sync of the log is reported, but writes stay enabled
    GoOnAfterFailedSync,
    /// a compaction drops tombstones that still hide older versions
    DropTombstoneEarly,
    /// a compaction ignores snapshots
    IgnoreSnapshots,
    /// a compaction drops expired entries that still hide older versions
    DropExpiredEarly,
    /// tables of which all entries have expired are removed although they hide older versions
    RemoveExpiredTables,
    /// a compaction drops what has expired by now, although an older reader sees it
    DropExpiredDespiteReaders,
    /// a compaction filter is asked about entries that a snapshot or a cursor sees
    FilterDespiteReaders,
    /// readers that begin while a compaction filters do not keep the state that they have found
    FilterBesideReaders,
    /// point reads show expired entries
    ShowExpired,
    /// a cursor that goes backward shows expired entries
    ShowExpiredBackward,
    /// recovery forgets expiries
    ForgetExpiry,
    /// a transaction commits although an entry that it has read has expired meanwhile
    CommitDespiteExpiry,
    /// recovery takes the next sequence number from the manifest only, not from the logs
    ReuseSequenceNumber,
    /// recovery takes the next file number from the manifest only, not from the files
    ReuseFileNumber,
    /// a table file is deleted after a compaction although an iterator still reads it
    FreeFileInUse,
    /// checksums of table blocks are not verified
    IgnoreTableChecksum,
    /// a damaged chunk of the log always counts as a torn tail
    DamageIsATornTail,
    /// in a recycled log, chunks of the old log count as chunks of the new one
    CountOldChunks,
    /// a log is overwritten before the edit that frees it is durable
    RecycleBeforeEdit,
    /// recovery replays a log although the log before it has a hole
    ReplayOverHole,
    /// the entries of a batch are committed one by one
    TearBatch,
    /// a write becomes visible before it is in the memtable
    PublishBeforeInsert,
    /// a new table is not synced before the manifest names it
    SkipTableSync,
    /// a flush deletes logs that other keyspaces still need
    FreeLogEarly,
    /// dropping a keyspace deletes logs that other keyspaces still need
    DropFreesLogs,
    /// a renamed or altered keyspace is what it was after the next opening
    ForgetAlteration,
    /// a compaction applies another retention although a reader began before the keyspace got it
    AlterDespiteReaders,
    /// a keyspace with another retention takes late writes from before what the earlier one kept
    ForgetEarlierRetention,
    /// an opening takes a table that a keyspace and its clone have for two tables: its file goes with the first of them
    ForgetSharing,
    /// a clone of a keyspace has what was in its tables, without what was in memory
    CloneWithoutFlush,
    /// the manifest names the tables of a flush of several keyspaces before their directory is synced
    NameTablesBeforeSync,
    /// a flush does not sync the earlier writes of other keyspaces
    FlushWithoutOlderLogs,
    /// a compaction assigns a guard's own key to the guard before it
    GuardKeyToTheLeft,
    /// a compaction cuts its output between two versions of a key
    CutBetweenVersions,
    /// a table is moved past older tables that share keys with it
    MovePastOlderTables,
    /// a point read in level 0 starts with the oldest table
    OldestTableFirst,
    /// a filter reports one key in sixteen as absent although it is present
    FilterDeniesKeys,
    /// the partial content that a non-blocking read leaves in its buffer counts as the block
    TakeShortRead,
    /// the answers of postponed reads in a multi-get go to the wrong keys
    MixUpAnswers,
    /// a postponed read ends with the table that it waited for, and skips the remaining tables
    StopAfterWait,
    /// an iterator that meets an error ends as if there were no more entries
    SwallowReadError,
    /// only the first member of a commit group gets the error of a failed sync
    FollowersSucceed,
    /// a commit becomes visible although older commits are still being inserted
    PublishOutOfOrder,
    /// a memtable is switched while writers still insert into it
    SwitchUnderInsert,
    /// a thread that releases the writer does not wake the queued writers
    ForgetToPassOn,
    /// a thread that publishes a commit does not wake the writers that wait until theirs is visible
    ForgetToWake,
    /// a thread that ran the jobs of queued threads does not wake them
    ForgetToWakeServed,
    /// closing does not reject the queued writers
    CloseWithoutTurningAway,
    /// closing does not wait for calls of the application that work on the directory
    CloseWithoutWaiting,
    /// a keyspace is created although the database was closed while the creation waited for the manifest
    CreateAfterClose,
    /// an iterator that is dropped after the database was closed deletes tables that it was the last to read
    DeleteTablesAfterClose,
    /// the manifest names a log only when the next log is established
    NameLogLate,
    /// a synced write is acknowledged before its log is established
    AcknowledgeBeforeEstablished,
    /// a log that is shorter than the synced length that its successor records counts as a log with a torn tail
    ForgetSyncedLength,
    /// callers that wait for a flush learn of a failed sync before writes are disabled
    StopAfterTelling,
    /// a compaction drops range tombstones that still hide entries of other tables
    ForgetRangeTombstone,
    /// a range tombstone also hides entries that are newer than it
    RangeHidesNewer,
    /// a table counts as filtered by range tombstones although a snapshot made the compaction keep the entries that
    /// they hide
    FilteredDespiteSnapshot,
    /// flushes and compactions ignore the sequence numbers of cursors
    ForgetCursors,
    /// a cursor registers its sequence number without checking for a newer one
    HoldOldNumber,
    /// a cursor that releases flushed memtables continues at the newest sequence number
    MovedCursorReadsNewest,
    /// a cursor that releases flushed memtables skips an entry
    MovedCursorSkipsEntry,
    /// a put does not split the dead range that its key falls into
    PutsStayDead,
    /// a range of keys that is dead now also counts as dead for readers at older sequence numbers
    DeadForOldReaders,
    /// a flush does not sync the values that its tables refer to
    ReferBeforeSync,
    /// a collection forgets a live value
    ForgetLiveValue,
    /// a collection removes values that only an iterator can still read
    CollectDespiteReaders,
    /// a collection takes of a value file what was listed before its segments were moved there, and removes the file
    CollectPartOfFile,
    /// the manifest names a file of collected values that is not synced
    SkipValueSync,
    /// an opening forgets where collections have moved values
    ForgetMovedValues,
    /// a point read takes the newest entry with the hash of a key for one of that key
    TrustHash,
    /// a collection drops a delete although an older entry of its key is left
    DropDeleteEarly,
    /// the manifest names a hint file before the log is synced in which its entries are
    HintBeforeLog,
    /// a flush of a keyspace without order keeps the newest entry of each key only, whatever a snapshot sees
    FlushDespiteReaders,
    /// an iterator over a keyspace without order shows what a memtable has, although a newer memtable has the key, too
    ShowOlderInMemory,
    /// a look-up in a size-class table takes the keys that fill their class for keys of the next class
    WrongSizeClass,
    /// a compaction that moves values into tables gives an entry without a reference the value of the entry before it
    KeepLastValue,
    /// a compaction of a keyspace with history loses an evicted version now and then
    LoseEvictedVersion,
    /// a compaction keeps the versions that it evicts
    KeepEvictedVersion,
    /// a late version counts as the newest
    LateVersionWins,
    /// a single write with a time is taken for the newest because it was before the writer was taken
    TrustEarlyTime,
    /// a delete that returns the version before it looks for it before other writers wait
    LookBeforeWriter,
    /// retention does not look at readers
    ExpireDespiteReaders,
    /// times follow the clock when it steps back
    FollowTheClockBack,
    /// after a reopening no keyspace is known to have versions that a write with an earlier time must be compared with
    ForgetNewestTime,
    /// a version under several range deletes ends with the newest of them
    EndWithNewestRange,
    /// a transaction is not compared with writes to the keys that it has read
    ForgetReadKeys,
    /// a transaction is not compared with writes to the ranges that it has read
    AllowPhantoms,
    /// a transaction is compared with other commits only before it takes the writer
    CheckBeforeWriter,
    /// a transaction is not compared with the other commits of its group
    IgnoreGroup,
    /// a transaction forgets that it has read keys that have no value
    ForgetAbsentReads,
    /// the operands of a key are joined from the newest to the oldest
    JoinNewestFirst,
    /// a compaction joins operands that a reader does not see to those that it sees
    JoinAcrossReaders,
    /// a compaction takes the operands of a key for its value although older entries are left
    JoinWithoutOlder,
    /// an opening replays operands that are in tables already
    ReplayFlushedOperands,
    /// operands are joined to a value that a range delete has deleted
    JoinToDeletedRange,
    /// an operand is written beside the first entry that expires
    OperandAboveExpiry,
    /// a log that a checkpoint has, too, is overwritten
    RecycleLinkedLog,
    /// a checkpoint or backup has logs that are not synced
    CopyUnsyncedLogs,
    /// a copy that a reader makes lacks the log that was written to
    CopyWithoutTail,
    /// a copy that a reader makes lacks the logs that were read before the last one
    CopyWithoutOlderLogs,
    /// a copy that a reader makes names files with values that nothing refers to
    CopyUnusedValues,
    /// the logs of a copy are listed before its tables
    ListLogsBeforeTables,
    /// the list of a backup is durable before its contents
    ListBeforeContents,
    /// contents of older generations of a backup are removed
    CollectByNewest,
    /// a bulk load is attached although its keyspaces have older entries in memory
    AttachBesideMemtables,
    /// a bulk load is durable before the writes before it
    AttachBeforeLogSync,
    /// the files of a load that is given up stay until the next opening
    LeaveLoads,
    /// a bulk load is attached although its keyspace has later versions
    AttachBelowVersions,
    /// files are removed that readers in other processes need
    ForgetReaders,
    /// a reader keeps memtables whose entries are in tables
    KeepFlushedMemtables,
    /// a reader does not read on in the log
    IgnoreLogTail,
    /// a reader shows numbers that the manifest knows and the log does not have
    ShowUnwritten,
    /// a reader does not look for edits that came while it read the logs
    ReadManifestOnce,
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

/// Whether this bug is on: always false without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}
