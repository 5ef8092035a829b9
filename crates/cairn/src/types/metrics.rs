//! Statistics in the text format of Prometheus (version 0.0.4), for a program that is asked for them over HTTP.
//!
//! Counters begin at 0 when the database is opened, which Prometheus takes for a restart; their names end with `_total`. Units are bytes and
//! seconds. Times of calls are a histogram: what was measured counts for all calls, since one in 64 is.

use super::latency::Histogram;
use super::stats::{IoStats, KeyspaceStats, LevelStats, Stats};
use std::fmt::Write;

/// A metric of one value of `T`: name, help, and how it is read.
type Of<T> = (&'static str, &'static str, fn(&T) -> f64);

const OF_DATABASE: [Of<Stats>; 34] = [
    ("user_writes_total", "Puts, deletes and merges.", |s| s.user_writes as f64),
    ("user_bytes_total", "Bytes of their keys and values.", |s| s.user_bytes as f64),
    ("transactions_total", "Transactions that have committed with writes.", |s| s.transactions as f64),
    ("conflicts_total", "Conflicts that transactions have met.", |s| s.conflicts as f64),
    ("log_written_bytes_total", "Bytes appended to the log.", |s| s.log.bytes_written as f64),
    ("log_syncs_total", "Syncs of the log.", |s| s.log.syncs as f64),
    ("log_files", "Logs that recovery needs.", |s| s.log.segments as f64),
    ("log_bytes", "Bytes of the logs that recovery needs.", |s| s.log.live_bytes as f64),
    ("manifest_written_bytes_total", "Bytes written to manifests.", |s| s.manifest_bytes as f64),
    ("value_files", "Files with values outside of tables.", |s| (s.values.logs + s.values.files) as f64),
    ("value_bytes", "Bytes of the files with values outside of tables.", |s| s.values.bytes as f64),
    ("value_live_bytes", "Bytes of the values in them that tables refer to.", |s| s.values.live_bytes as f64),
    ("value_dead_bytes", "Bytes that collections of values could free.", |s| s.values.dead_bytes as f64),
    ("value_waiting_bytes", "Bytes of such files that wait for a reader.", |s| s.values.waiting_bytes as f64),
    ("cache_capacity_bytes", "Capacity of the block cache.", |s| s.cache.capacity as f64),
    ("cache_used_bytes", "Bytes in the block cache.", |s| s.cache.used_bytes as f64),
    ("table_read_bytes_total", "Bytes read from tables.", |s| s.cache.bytes_read as f64),
    ("filter_probes_total", "Probes of filters.", |s| s.filter.probes as f64),
    ("filter_useful_total", "Probes that saved a search of a table.", |s| s.filter.useful as f64),
    ("filter_false_positives_total", "Probes that were wrong.", |s| s.filter.false_positives as f64),
    ("stall_longest_seconds", "Longest wait of a write since the opening.", |s| s.stalls.longest_seconds),
    ("memory_budget_bytes", "The memory budget.", |s| s.memory.budget as f64),
    ("reserve_bytes", "Disk space held back.", |s| s.reserve.held_bytes as f64),
    ("disk_full", "Whether puts are refused because the disk is full.", |s| f64::from(s.reserve.spent)),
    ("snapshots", "Open snapshots.", |s| s.snapshots as f64),
    ("cursors", "Open cursors and iterators.", |s| s.cursors as f64),
    ("oldest_reader_seconds", "Age of the oldest snapshot or cursor.", |s| s.oldest_reader_seconds),
    ("files_for_readers", "Files kept for readers in other processes.", |s| s.files_for_readers as f64),
    ("last_sequence_number", "Number of the newest commit.", |s| s.last_seq as f64),
    ("background_error", "Whether an error stops writing or background work.", |s| {
        f64::from(s.background_error.is_some())
    }),
    ("damaged_files", "Files that were found damaged, or that this program cannot read.", |s| {
        s.damage.len() as f64
    }),
    ("scrub_rounds_total", "Completed rounds of scrubbing.", |s| s.scrub.rounds as f64),
    ("scrub_bytes_total", "Bytes verified by scrubbing.", |s| s.scrub.bytes as f64),
    ("keyspaces", "Keyspaces.", |s| s.keyspaces.len() as f64),
];

const OF_KEYSPACE: [Of<KeyspaceStats>; 16] = [
    ("memtable_bytes", "Bytes in the active memtable.", |k| k.memtable_bytes as f64),
    ("immutable_memtables", "Memtables that wait for a flush.", |k| k.immutable_memtables as f64),
    ("table_bytes", "Bytes of tables.", |k| k.table_bytes as f64),
    ("shared_bytes", "Bytes of tables in common with clones.", |k| k.shared_bytes as f64),
    ("uncommitted_guards", "Guards that no compaction has made yet.", |k| k.uncommitted_guards as f64),
    ("open_cursors", "Open cursors and iterators.", |k| k.cursors as f64),
    ("range_tombstones", "Range tombstones.", |k| k.range_tombstones as f64),
    ("deleted_passed_total", "Deleted entries that cursors have skipped.", |k| k.deleted_passed as f64),
    ("waiting_bytes", "Bytes of older versions that compactions have not met.", |k| k.waiting_bytes as f64),
    ("expired_bytes", "Bytes of expired entries that are still there.", |k| k.expired_bytes as f64),
    ("expired_entries_total", "Expired entries that were removed.", |k| k.expired_entries as f64),
    ("skipped_writes_total", "Late writes that were left out.", |k| k.skipped_writes as f64),
    ("filter_dropped_total", "Entries dropped by the compaction filter.", |k| k.filter_dropped as f64),
    ("filter_replaced_total", "Values replaced by the compaction filter.", |k| k.filter_replaced as f64),
    ("index_entries", "Entries of the index without order.", |k| {
        k.hash_log.map_or(0.0, |h| h.entries as f64)
    }),
    ("index_bytes", "Memory of the index without order.", |k| {
        k.hash_log.map_or(0.0, |h| h.index_bytes as f64)
    }),
];

const OF_LEVEL: [Of<LevelStats>; 7] = [
    ("level_guards", "Guards.", |l| l.guards as f64),
    ("level_tables", "Tables.", |l| l.tables as f64),
    ("level_bytes", "Bytes of these tables.", |l| l.bytes as f64),
    ("level_entries", "Entries, tombstones included.", |l| l.entries as f64),
    ("level_tombstones", "Tombstones.", |l| l.tombstones as f64),
    ("level_compactions_total", "Compactions into the level.", |l| l.compactions.jobs as f64),
    ("level_written_bytes_total", "Bytes that they have written.", |l| l.compactions.bytes_written as f64),
];

const OF_JOBS: [Of<IoStats>; 4] = [
    ("jobs_total", "Finished jobs.", |io| io.jobs as f64),
    ("job_read_bytes_total", "Bytes that jobs have read.", |io| io.bytes_read as f64),
    ("job_written_bytes_total", "Bytes that jobs have written.", |io| io.bytes_written as f64),
    ("job_seconds_total", "Run time of jobs, of all threads.", |io| io.seconds),
];

/// Names of labels, and their values.
type Labels = Vec<(&'static str, String)>;

/// The text under construction.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP cairn_{name} {help}\n# TYPE cairn_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, String)], value: f64) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> =
            labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "cairn_{name}{labels} {value}");
    }

    /// The lines of a metric, one for each set of labels.
    fn metric(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels, f64)>) {
        self.head(name, help, if name.ends_with("_total") { "counter" } else { "gauge" });
        samples.into_iter().for_each(|(labels, value)| self.sample(name, &labels, value));
    }

    /// The lines of histograms by operation.
    fn histograms(&mut self, name: &str, help: &str, operations: &[(&str, &Histogram)]) {
        self.head(name, help, "histogram");
        for (operation, histogram) in operations {
            let labels = [("operation", operation.to_string())];
            let calls = |samples: u64| (samples * Histogram::CALLS_PER_SAMPLE) as f64;
            let powers =
                histogram.below_powers().map(|(time, below)| (time.as_secs_f64().to_string(), below));
            let all = histogram.samples();
            for (bound, below) in powers.chain([("+Inf".to_owned(), all)]) {
                let labels = [labels.as_slice(), &[("le", bound)]].concat();
                self.sample(&format!("{name}_bucket"), &labels, calls(below));
            }
            let seconds = histogram.total().as_secs_f64() * Histogram::CALLS_PER_SAMPLE as f64;
            self.sample(&format!("{name}_sum"), &labels, seconds);
            self.sample(&format!("{name}_count"), &labels, calls(all));
        }
    }

    /// Metrics that are read from each of some values.
    fn all<T>(&mut self, metrics: &[Of<T>], of: &[(Labels, &T)]) {
        for (name, help, read) in metrics {
            self.metric(name, help, of.iter().map(|(labels, value)| (labels.clone(), read(value))));
        }
    }
}

/// The trees of the keyspaces, each with its labels.
fn trees(stats: &Stats) -> Vec<(Labels, &KeyspaceStats)> {
    let mut trees = Vec::new();
    for keyspace in &stats.keyspaces {
        let labels = |tree: &str| vec![("keyspace", keyspace.name.clone()), ("tree", tree.to_owned())];
        trees.push((labels("newest"), keyspace));
        trees.extend(keyspace.history.as_deref().map(|older| (labels("older"), older)));
    }
    trees
}

impl Stats {
    /// The statistics in the text format of Prometheus: see [`Database::metrics`](crate::Database::metrics).
    pub fn to_prometheus(&self) -> String {
        let mut text = Text(String::new());
        text.all(&OF_DATABASE, &[(Labels::new(), self)]);
        let with = |label: &'static str, value: &str| vec![(label, value.to_owned())];
        let jobs = [
            ("flush", &self.flush),
            ("compaction", &self.compaction),
            ("ingest", &self.ingest),
            ("collection", &self.values.collections),
        ];
        text.all(&OF_JOBS, &jobs.map(|(job, io)| (with("job", job), io)));
        let help = "Time of calls, estimated from one in 64.";
        text.histograms("operation_seconds", help, &self.latency.operations());
        let stalls = &self.stalls;
        let reasons = [
            ("slowdown", stalls.slowdowns, stalls.slowdown_seconds),
            ("memtables", stalls.memtable_waits, stalls.memtable_wait_seconds),
            ("log", stalls.log_waits, stalls.log_wait_seconds),
            ("index", stalls.index_waits, stalls.index_wait_seconds),
        ];
        let help = "Writes that were slowed down or had to wait.";
        text.metric("stalls_total", help, reasons.map(|(reason, n, _)| (with("reason", reason), n as f64)));
        let help = "Seconds that they have waited.";
        text.metric("stall_seconds_total", help, reasons.map(|(reason, _, s)| (with("reason", reason), s)));
        let cache = &self.cache;
        let lookups = [
            ("data", cache.data_hits, cache.data_misses),
            ("index", cache.index_hits, cache.index_misses),
            ("filter", cache.filter_hits, cache.filter_misses),
        ];
        let lookups = lookups.into_iter().flat_map(|(block, hits, misses)| {
            [("hit", hits), ("miss", misses)].map(|(result, n)| {
                (vec![("block", block.to_owned()), ("result", result.to_owned())], n as f64)
            })
        });
        text.metric("cache_lookups_total", "Lookups in the block cache.", lookups);
        let memory = &self.memory;
        let parts = [
            ("memtables", memory.memtables),
            ("spare", memory.spare),
            ("cache", memory.cache),
            ("metadata", memory.metadata),
            ("pinned", memory.pinned),
            ("value_maps", self.values.map_bytes),
        ];
        let parts = parts.map(|(part, bytes)| (with("part", part), bytes as f64));
        text.metric("memory_bytes", "Memory in use.", parts);
        let trees = trees(self);
        text.all(&OF_KEYSPACE, &trees);
        let levels: Vec<(Labels, &LevelStats)> = trees
            .iter()
            .flat_map(|(labels, tree)| {
                let with_level =
                    |level: &LevelStats| [labels.clone(), vec![("level", level.level.to_string())]].concat();
                tree.levels.iter().map(move |level| (with_level(level), level))
            })
            .collect();
        text.all(&OF_LEVEL, &levels);
        let reasons = trees.iter().flat_map(|(labels, tree)| {
            let with_reason = |reason: &str| [labels.clone(), vec![("reason", reason.to_owned())]].concat();
            tree.compactions_by_reason.iter().map(move |(reason, n)| (with_reason(reason), *n as f64))
        });
        text.metric("compactions_total", "Compactions by reason.", reasons.collect::<Vec<_>>());
        text.0
    }
}
