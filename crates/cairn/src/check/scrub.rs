//! Scrubbing: reads and verifies everything on disk at a limited rate while the database is in use, so that damage is found before a read
//! needs the data, and while a backup may still exist.
//!
//! A round reads the tables of all keyspaces (bypassing the block cache, and dropping their pages from the operating system's cache
//! first), the hint files of keyspaces without order with the entries that they name, the closed logs that are synced, and the manifest. `Database::scrub` runs one round; with the option `scrub_rate` a thread
//! runs rounds continuously. Findings are in `Stats::damage` and `Stats::scrub`, and go to `tracing`. Scrubbing changes nothing.

use super::hash_logs::HashLogCheck;
use super::report::{CheckedTree, tables_of};
use crate::events;
use crate::state::DbInner;
use crate::sync::Ordering;
use crate::types::CheckReport;
use crate::wal::log_file_name;
use base::{Error, ErrorKind, Result};
use record::{SegmentKind, SegmentReader};
use std::sync::{Arc, Weak};
use std::time::Duration;
use table::TimesOf;
use tree::{LiveTable, Manifest, manifest_file_name};

/// Pause between two background rounds.
const ROUND_PAUSE: Duration = Duration::from_secs(1);
/// A scrub ahead of its rate by less than this does not pause.
const MIN_PAUSE: Duration = Duration::from_millis(2);

/// Limits a scrub to its rate, and ends it when the database closes.
struct ScrubPacer<'a> {
    db: &'a DbInner,
    /// Bytes per second; 0 is no limit.
    rate: u64,
    /// The earliest time for the next read.
    next: Duration,
}

impl ScrubPacer<'_> {
    /// Called after `bytes` were read.
    fn spend(&mut self, bytes: u64) -> Result<()> {
        self.db.scrub.stats.lock().bytes += bytes;
        if let Some(seconds) = bytes.checked_div(self.rate).map(|_| bytes as f64 / self.rate as f64) {
            let now = self.db.env.monotonic();
            // Unused time is not saved up: a later burst would exceed the rate.
            self.next = self.next.max(now) + Duration::from_secs_f64(seconds);
            let ahead = self.next.saturating_sub(now);
            if ahead >= MIN_PAUSE {
                self.db.pause(ahead);
            }
        }
        self.db.status.check_not_closed()
    }
}

impl DbInner {
    /// Sleeps for `time`, or until the database closes or writing stops.
    fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        if !self.status.closed.load(Ordering::Acquire) {
            self.signals.end.wait_for(&mut state, time);
        }
    }

    /// Scrubs continuously.
    pub(crate) fn scrub_loop(&self) {
        while !self.status.closed.load(Ordering::Acquire) {
            if let Err(e) = self.scrub_round(self.options.scrub_rate)
                && e.kind() != ErrorKind::Closed
            {
                events::warn!(error = %e, "a round of scrubbing ended early");
            }
            self.pause(ROUND_PAUSE);
        }
    }

    /// Reads and verifies everything once, at `rate` bytes per second; 0 is no limit.
    pub(crate) fn scrub_round(&self, rate: u64) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let mut rate_limiter = ScrubPacer { db: self, rate, next: Duration::ZERO };
        self.status.check_not_closed()?;
        report.keyspaces = self.keyspaces().len();
        for (table, times_of) in self.tables_in_use() {
            // Skips tables that a compaction has replaced meanwhile: scrubbing does not keep them alive.
            if let Some(table) = table.upgrade() {
                self.scrub_table(&table, times_of, &mut rate_limiter, &mut report)?;
            }
        }
        let before = report.problems.len();
        self.scrub_hash_logs(&mut rate_limiter, &mut report)?;
        self.scrub_logs(&mut rate_limiter, &mut report)?;
        self.scrub_manifest(&mut rate_limiter, &mut report)?;
        let found = report.problems[before..].iter().map(|p| (p.file.clone(), p.clone())).collect();
        *self.scrub.findings.lock() = found;
        self.scrub.stats.lock().rounds += 1;
        Ok(report)
    }

    /// All tables, each once, with what tells the times of their entries.
    fn tables_in_use(&self) -> Vec<(Weak<LiveTable>, Option<TimesOf>)> {
        let state = self.state.lock();
        let trees = state.keyspaces.values().map(|keyspace| {
            let times_of = keyspace.inner.times_of();
            CheckedTree { version: keyspace.tree.version(), times_of }
        });
        let tables = tables_of(&trees.collect::<Vec<_>>());
        tables.into_iter().map(|(table, times_of)| (Arc::downgrade(table), times_of)).collect()
    }

    fn scrub_table(
        &self,
        table: &LiveTable,
        times_of: Option<TimesOf>,
        rate_limiter: &mut ScrubPacer<'_>,
        report: &mut CheckReport,
    ) -> Result<()> {
        // The disk is to be read, not the operating system's cache.
        table.table.forget_pages();
        let (known, mut done) = (report.problems.len(), 0);
        let verified = report.verify_table(table, times_of, &self.tables.segments, &mut |at| {
            let bytes = at.saturating_sub(done);
            done = at;
            match table.is_obsolete() {
                true => Err(Error::new(ErrorKind::Closed, "a compaction has replaced the table")),
                false => rate_limiter.spend(bytes),
            }
        });
        match verified {
            // It is not kept until all of it is read.
            Err(_) if table.is_obsolete() => self.status.check_not_closed()?,
            verified => verified?,
        }
        for problem in &report.problems[known..] {
            match problem.unsupported {
                true => events::error!(%problem, "scrubbing found what this program cannot read"),
                false => events::error!(%problem, "scrubbing found damage"),
            }
        }
        Ok(())
    }

    /// Verifies the hint files of keyspaces without order, and the entries that they name.
    fn scrub_hash_logs(&self, rate_limiter: &mut ScrubPacer<'_>, report: &mut CheckReport) -> Result<()> {
        for keyspace in self.keyspaces() {
            let Some(log) = &keyspace.hash_log else { continue };
            let check =
                HashLogCheck { env: &self.env, segments: &self.tables.segments, keyspace: keyspace.id };
            for hints in log.hints() {
                let known = report.problems.len();
                check.check(&hints, report, &mut |bytes| rate_limiter.spend(bytes))?;
                // A collection may have removed the file, or what it names, and the keyspace may be dropped: scrubbing keeps nothing.
                if keyspace.is_dropped() || !log.hints().contains(&hints) {
                    report.problems.truncate(known);
                }
                for problem in &report.problems[known..] {
                    events::error!(%problem, "scrubbing found damage");
                }
            }
        }
        Ok(())
    }

    fn scrub_logs(&self, rate_limiter: &mut ScrubPacer<'_>, report: &mut CheckReport) -> Result<()> {
        for log in self.logs.closed.synced() {
            let path = self.dir.join(log_file_name(log.number));
            let mut read = || -> Result<()> {
                let mut reader =
                    SegmentReader::open(&self.env, &path, SegmentKind::Wal, log.number, Some(log.len))?;
                let mut record = Vec::new();
                while let Some(span) = reader.next(&mut record)? {
                    report.log_records += u64::from(!record.is_empty());
                    rate_limiter.spend(span.end - span.start)?;
                }
                Ok(())
            };
            let result = read();
            // The log may have been flushed and removed meanwhile.
            let needed = || self.logs.closed.synced().iter().any(|other| other.number == log.number);
            self.note_scrubbed(&log_file_name(log.number), result, needed, report)?;
        }
        Ok(())
    }

    fn scrub_manifest(&self, rate_limiter: &mut ScrubPacer<'_>, report: &mut CheckReport) -> Result<()> {
        let (number, len) = {
            let manifest = self.manifest.lock();
            (manifest.number(), manifest.flushed_len())
        };
        let mut done = 0;
        let result = Manifest::verify(&self.env, &self.dir, number, len, &mut |at| {
            let bytes = at.saturating_sub(done);
            done = at;
            rate_limiter.spend(bytes)
        });
        let needed = || self.manifest.lock().number() == number;
        self.note_scrubbed(&manifest_file_name(number), result, needed, report)
    }

    /// Records the damage of a file, if the file is still needed. Only the closing of the database ends the round.
    fn note_scrubbed(
        &self,
        name: &str,
        result: Result<()>,
        needed: impl FnOnce() -> bool,
        report: &mut CheckReport,
    ) -> Result<()> {
        match result {
            Err(e) if e.kind() == ErrorKind::Closed => Err(e),
            Err(_) if self.status.check_not_closed().is_err() => self.status.check_not_closed(),
            Err(e) if needed() => {
                events::error!(error = %e, "scrubbing found damage");
                report.error(name, &e);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
