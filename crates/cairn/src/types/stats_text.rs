//! Statistics as text, for people.

use super::stats::{FilterStats, HashLogStats, KeyspaceStats, LogStats, Problem, Stats};
use std::fmt;

/// Bytes with a unit: `12.3 MiB`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut unit = "B";
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        let text = if unit == "B" { format!("{value} {unit}") } else { format!("{value:.1} {unit}") };
        f.pad(&text)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = self.bytes_written();
        write!(f, "writes          {} ({} of keys and values); ", self.user_writes, Bytes(self.user_bytes))?;
        writeln!(
            f,
            "written {} in all, write amplification {:.2}",
            Bytes(written),
            self.write_amplification
        )?;
        if self.transactions + self.conflicts > 0 {
            writeln!(f, "compared        {} transactions, {} conflicts", self.transactions, self.conflicts)?;
        }
        for (name, bytes) in [
            ("log", self.log.bytes_written),
            ("flush", self.flush.bytes_written),
            ("compaction", self.compaction.bytes_written),
            ("bulk loads", self.ingest.bytes_written),
            ("collections", self.values.collections.bytes_written),
            ("manifest", self.manifest_bytes),
        ] {
            writeln!(f, "  {name:<13} {:>10}  {:>5.1} %", Bytes(bytes), share(bytes, written))?;
        }
        let LogStats { segments, live_bytes, syncs, .. } = self.log;
        writeln!(f, "log             {segments} segments, {}, {syncs} syncs", Bytes(live_bytes))?;
        let v = &self.values;
        if v.bytes > 0 {
            write!(f, "values          {} logs and {} files, {}; ", v.logs, v.files, Bytes(v.bytes))?;
            write!(f, "{} alive, {} dead, ", Bytes(v.live_bytes), Bytes(v.dead_bytes))?;
            write!(f, "{} collections, {} of maps", v.collections.jobs, Bytes(v.map_bytes))?;
            match v.waiting_bytes {
                0 => writeln!(f)?,
                waiting => writeln!(f, "; {} wait for readers", Bytes(waiting))?,
            }
        }
        let c = &self.cache;
        let data = share(c.data_hits, c.data_hits + c.data_misses);
        let index = share(c.index_hits, c.index_hits + c.index_misses);
        let filter = share(c.filter_hits, c.filter_hits + c.filter_misses);
        write!(f, "cache           {} of {}; ", Bytes(c.used_bytes), Bytes(c.capacity))?;
        write!(f, "hits: data {data:.1} %, index {index:.1} %, filter {filter:.1} %; ")?;
        writeln!(f, "read {}", Bytes(c.bytes_read))?;
        let FilterStats { probes, useful, false_positives } = self.filter;
        let (saved, wrong) = (share(useful, probes), share(false_positives, useful + false_positives));
        writeln!(f, "filters         {probes} probes; {saved:.1} % saved a search, {wrong:.2} % were wrong")?;
        for (operation, latency) in self.latency.operations() {
            let samples = latency.samples();
            if samples > 0 {
                let [half, most] = [0.5, 0.99].map(|quantile| latency.quantile(quantile));
                write!(f, "{operation:<15} half within {half:.3?}, 99 % within {most:.3?}, ")?;
                writeln!(f, "longest {:.3?}, of {samples} measured", latency.max())?;
            }
        }
        let s = &self.stalls;
        write!(f, "stalls          {} slowdowns ({:.2} s), ", s.slowdowns, s.slowdown_seconds)?;
        write!(f, "{} waits for memory ({:.2} s), ", s.memtable_waits, s.memtable_wait_seconds)?;
        write!(f, "{} for the log ({:.2} s), ", s.log_waits, s.log_wait_seconds)?;
        if s.index_waits > 0 {
            write!(f, "{} for an index ({:.2} s), ", s.index_waits, s.index_wait_seconds)?;
        }
        write!(f, "longest {:.0} ms", s.longest_seconds * 1000.0)?;
        match &s.last_reason {
            Some(reason) => writeln!(f, "; last: {reason}")?,
            None => writeln!(f)?,
        }
        let m = &self.memory;
        write!(f, "memory          memtables {}, ", Bytes(m.memtables))?;
        if m.spare > 0 {
            write!(f, "kept for the next {}, ", Bytes(m.spare))?;
        }
        write!(f, "cache {}, ", Bytes(m.cache))?;
        write!(f, "metadata {}; budget {}", Bytes(m.metadata), Bytes(m.budget))?;
        match m.pinned {
            0 => writeln!(f)?,
            pinned => writeln!(f, "; flushed memtables that cursors hold {}", Bytes(pinned))?,
        }
        let r = &self.reserve;
        if r.held_bytes > 0 || r.trouble.is_some() || r.spent {
            let state = if r.spent { "; given up, the disk is full: puts are refused" } else { "" };
            let trouble = r.trouble.as_ref().map_or(String::new(), |trouble| format!("; {trouble}"));
            writeln!(f, "reserve         {} held back on the disk{state}{trouble}", Bytes(r.held_bytes))?;
        }
        write!(f, "snapshots       {}", self.snapshots)?;
        if self.cursors > 0 {
            write!(f, ", and {} open cursors", self.cursors)?;
        }
        if self.snapshots + self.cursors > 0 {
            write!(f, "; the oldest is held for {:.1} s", self.oldest_reader_seconds)?;
        }
        writeln!(f, "; newest sequence number {}", self.last_seq)?;
        if self.files_for_readers > 0 {
            writeln!(f, "other readers   {} files stay for them", self.files_for_readers)?;
        }
        if let Some(error) = &self.background_error {
            writeln!(f, "error           {error}")?;
        }
        if self.scrub.bytes > 0 {
            writeln!(f, "scrubbing       {} in {} whole rounds", Bytes(self.scrub.bytes), self.scrub.rounds)?;
        }
        for problem in &self.damage {
            writeln!(f, "damage          {problem}")?;
        }
        self.keyspaces.iter().try_for_each(|keyspace| write!(f, "\n{keyspace}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{}, offset {offset}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl fmt::Display for KeyspaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyspaceStats { name, immutable_memtables, uncommitted_guards, .. } = self;
        let (tables, memtable) = (Bytes(self.table_bytes), Bytes(self.memtable_bytes));
        write!(f, "keyspace {name:?}: {tables} in tables, memtable {memtable}, ")?;
        writeln!(f, "{immutable_memtables} being flushed, {uncommitted_guards} guards not committed yet")?;
        if self.shared_bytes > 0 {
            let shared = Bytes(self.shared_bytes);
            writeln!(
                f,
                "  {shared} of the tables are in common with clones of it, or what it is a clone of"
            )?;
        }
        if self.range_tombstones > 0 {
            writeln!(f, "{} deleted ranges that may still hide something", self.range_tombstones)?;
        }
        if let Some(log) = &self.hash_log {
            let HashLogStats { entries, newest, index_bytes, files, hint_files, hint_bytes, is_full } = *log;
            write!(f, "index of {entries} entries, {newest} of them the newest: {}; ", Bytes(index_bytes))?;
            write!(f, "entries in {files} files, {hint_files} hint files, {}", Bytes(hint_bytes))?;
            return writeln!(f, "{}", if is_full { "; full: puts are refused" } else { "" });
        }
        writeln!(
            f,
            "level  guards   empty  tables  most      bytes     entries  tombstones  compacted    written"
        )?;
        for l in &self.levels {
            writeln!(
                f,
                "{:>5} {:>7} {:>7} {:>7} {:>5} {:>10} {:>11} {:>11} {:>10} {:>10}",
                l.level,
                l.guards,
                l.empty_guards,
                l.tables,
                l.max_tables_in_guard,
                Bytes(l.bytes),
                l.entries,
                l.tombstones,
                l.compactions.jobs,
                Bytes(l.compactions.bytes_written)
            )?;
        }
        if !self.compactions_by_reason.is_empty() {
            let reasons: Vec<String> =
                self.compactions_by_reason.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
            writeln!(f, "compactions by reason: {}", reasons.join(", "))?;
        }
        if self.waiting_bytes > 0 {
            writeln!(
                f,
                "about {} are older versions that compactions have not met yet, or that a reader holds",
                Bytes(self.waiting_bytes)
            )?;
        }
        if self.expired_entries > 0 {
            writeln!(f, "{} entries had expired and were removed", self.expired_entries)?;
        }
        if self.skipped_writes > 0 {
            writeln!(f, "{} late writes from before what is kept were left out", self.skipped_writes)?;
        }
        if self.filter_dropped > 0 || self.filter_replaced > 0 {
            let (dropped, replaced) = (self.filter_dropped, self.filter_replaced);
            writeln!(f, "the compaction filter has dropped {dropped} entries and replaced {replaced}")?;
        }
        if self.expired_bytes > 0 {
            writeln!(f, "about {} have expired and wait for compactions", Bytes(self.expired_bytes))?;
        }
        if let Some(history) = &self.history {
            write!(f, "older versions of {history}")?;
        }
        Ok(())
    }
}
