//! Scrubbing: everything that lies on disk is read and verified at a limited rate while the database is used, so that damage is
//! found before somebody needs what is damaged, and while there may still be a copy.
//!
//! A round reads the tables of all keyspaces (past the block cache, and with the operating system asked to forget what it has of
//! them), the closed logs that are synced, and the manifest. `Database::scrub` runs one; the option `scrub_rate` runs one after
//! the other in a thread. What is found is in `Stats::damage` and `Stats::scrub`, and goes to `tracing`. Nothing is changed.

use crate::check::Report;
use crate::db_inner::DbInner;
use crate::log::log_file_name;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::{CheckReport, Problem, ScrubStats};
use base::{ErrorKind, Result};
use record::{SegmentKind, SegmentReader};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tree::{Manifest, TableFile, manifest_file_name};

/// Between two rounds in the background.
const ROUND_PAUSE: Duration = Duration::from_secs(1);
/// A scrub that is ahead of its rate by less than this goes on.
const MIN_PAUSE: Duration = Duration::from_millis(2);

/// What scrubbing has done and found. Tables carry their own notes; here is what is wrong with logs and manifest.
#[derive(Default)]
pub(crate) struct Scrub {
    rounds: AtomicU64,
    bytes: AtomicU64,
    findings: Mutex<BTreeMap<String, Problem>>,
}

impl Scrub {
    pub(crate) fn stats(&self) -> ScrubStats {
        ScrubStats { rounds: self.rounds.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    pub(crate) fn findings(&self) -> Vec<Problem> {
        self.findings.lock().values().cloned().collect()
    }
}

/// Holds a scrub to its rate, and ends it when the database closes.
struct ScrubPacer<'a> {
    core: &'a DbInner,
    /// Bytes per second; 0 is no limit.
    rate: u64,
    /// When the next byte may be read.
    next: Duration,
}

impl ScrubPacer<'_> {
    /// To be called when so many bytes have been read.
    fn spend(&mut self, bytes: u64) -> Result<()> {
        self.core.scrub.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(seconds) = bytes.checked_div(self.rate).map(|_| bytes as f64 / self.rate as f64) {
            let now = self.core.env.monotonic();
            // Time that was not used is not saved up: a burst is what nobody wants.
            self.next = self.next.max(now) + Duration::from_secs_f64(seconds);
            let ahead = self.next.saturating_sub(now);
            if ahead >= MIN_PAUSE {
                self.core.pause(ahead);
            }
        }
        self.core.check_not_closed()
    }
}

impl DbInner {
    /// Sleeps, until the database closes or writing stops at most.
    fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        if !self.closed.load(Ordering::Acquire) {
            self.end.wait_for(&mut state, time);
        }
    }

    /// Scrubs round after round.
    pub(crate) fn scrub_loop(&self) {
        while !self.closed.load(Ordering::Acquire) {
            if let Err(e) = self.scrub_round(self.options.scrub_rate)
                && e.kind() != ErrorKind::Closed
            {
                tracing::warn!(error = %e, "a round of scrubbing ended early");
            }
            self.pause(ROUND_PAUSE);
        }
    }

    /// Reads and verifies everything once, at `rate` bytes per second; 0 is no limit.
    pub(crate) fn scrub_round(&self, rate: u64) -> Result<CheckReport> {
        let mut report = Report::default();
        let mut rate_limiter = ScrubPacer { core: self, rate, next: Duration::ZERO };
        self.check_not_closed()?;
        report.report.keyspaces = self.state.lock().keyspaces.len();
        for table in self.tables_in_use() {
            // What a compaction has replaced meanwhile is not held back.
            if let Some(table) = table.upgrade() {
                self.scrub_table(&table, &mut rate_limiter, &mut report)?;
            }
        }
        let before = report.report.problems.len();
        self.scrub_logs(&mut rate_limiter, &mut report)?;
        self.scrub_manifest(&mut rate_limiter, &mut report)?;
        let found = report.report.problems[before..].iter().map(|p| (p.file.clone(), p.clone())).collect();
        *self.scrub.findings.lock() = found;
        self.scrub.rounds.fetch_add(1, Ordering::Relaxed);
        Ok(report.report)
    }

    fn tables_in_use(&self) -> Vec<Weak<TableFile>> {
        let state = self.state.lock();
        let versions = state.keyspaces.values().map(|k| k.tree.version());
        versions.flat_map(|v| v.tables().map(|(_, t)| Arc::downgrade(t)).collect::<Vec<_>>()).collect()
    }

    fn scrub_table(
        &self,
        table: &TableFile,
        rate_limiter: &mut ScrubPacer<'_>,
        report: &mut Report,
    ) -> Result<()> {
        // The disk is meant, not what memory still has of it.
        table.table.forget_pages();
        let (known, mut done) = (report.report.problems.len(), 0);
        report.verify_table(table, &mut |at| {
            let bytes = at.saturating_sub(done);
            done = at;
            rate_limiter.spend(bytes)
        })?;
        for problem in &report.report.problems[known..] {
            tracing::error!(%problem, "scrubbing found damage");
        }
        Ok(())
    }

    fn scrub_logs(&self, rate_limiter: &mut ScrubPacer<'_>, report: &mut Report) -> Result<()> {
        for log in self.closed_logs.synced() {
            let path = self.dir.join(log_file_name(log.number));
            let mut read = || -> Result<()> {
                let mut reader =
                    SegmentReader::open_closed(&self.env, &path, SegmentKind::Wal, log.number, log.len)?;
                let mut record = Vec::new();
                while let Some(span) = reader.next(&mut record)? {
                    report.report.log_records += u64::from(!record.is_empty());
                    rate_limiter.spend(span.end - span.start)?;
                }
                Ok(())
            };
            let result = read();
            // It may have been flushed and removed while we looked.
            let needed = || self.closed_logs.synced().iter().any(|other| other.number == log.number);
            self.note_scrubbed(&log_file_name(log.number), result, needed, report)?;
        }
        Ok(())
    }

    fn scrub_manifest(&self, rate_limiter: &mut ScrubPacer<'_>, report: &mut Report) -> Result<()> {
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

    /// Notes what is wrong with a file, if it is still needed. Only the end of the database ends the round.
    fn note_scrubbed(
        &self,
        name: &str,
        result: Result<()>,
        needed: impl FnOnce() -> bool,
        report: &mut Report,
    ) -> Result<()> {
        match result {
            Err(e) if e.kind() == ErrorKind::Closed => Err(e),
            Err(_) if self.check_not_closed().is_err() => self.check_not_closed(),
            Err(e) if needed() => {
                tracing::error!(error = %e, "scrubbing found damage");
                report.error(name, &e);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
