//! Runs a group of workloads on one engine in this process, and reports each.
//!
//! The counters of a workload are differences: what the process had written, read and used before the workload is
//! subtracted. They include the time until the engine has settled, when no flush and no compaction is pending, unless the next step is to begin
//! before: then what is pending counts for that one.

use crate::disk::Requests;
use crate::drive::{self, Job, Outcome};
use crate::engine::{Engine, Error, Kind, RequestedSettings, Result, Stalls};
use crate::generate::{Shuffle, Values, seed_of};
use crate::machine::Busy;
use crate::process::{self, KernelIo};
use crate::record::{Contents, FileLengths, Latency, Record, Settings, Writer, curve, rate};
use crate::suite::{Group, Step};
use crate::workload::{Work, Workload};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// An event of a running session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The progress of a workload.
    Progress {
        /// Its name.
        workload: String,
        /// Operations done.
        done: u64,
        /// Operations in total.
        ops: u64,
        /// Whether only background work is pending.
        settling: bool,
    },
    /// A workload has ended.
    Done(Box<Record>),
}

/// Opens the engine in `dir`, runs the workloads of the group, and closes it.
pub fn run_group(
    kind: &Kind,
    group: &Group,
    requested: &RequestedSettings,
    dir: &Path,
    round: u32,
    on: &mut (dyn FnMut(Event) + Send),
) -> Result<()> {
    let engine = (kind.open)(dir, requested)?;
    let session = Session::new(&*engine, group, dir);
    let mut same_everywhere = true;
    let mut held = None;
    for (at, step) in group.steps.iter().enumerate() {
        if step.after_flush {
            engine.flush().and_then(|()| engine.settle()).map_err(|e| e.context("flush"))?;
        }
        let mut record = session.run(at, step, on).map_err(|e| e.context(step.name()))?;
        same_everywhere &= !record.cut_short && group.is_repeatable(at);
        if step.sum_up && same_everywhere {
            let has_versions = matches!(step.workload.work(), Work::History { .. });
            record.contents = Some(sum_up(&*engine, has_versions)?);
        }
        held = match record.contents {
            Some(contents) => Some(Held { keys: contents.entries, bytes: contents.bytes }),
            None => Held::after(group, step, &record, held),
        };
        (record.distinct_keys, record.data_bytes) = held.map(|held| (held.keys, held.bytes)).unzip();
        record.engine = kind.name.to_string();
        record.engine_version = (kind.version)();
        record.round = round;
        record.settings =
            Settings { durability: record.settings.durability, ..settings(group, step, requested) };
        on(Event::Done(Box::new(record)));
    }
    engine.close()
}

/// The content of a database, as far as it follows from the operations.
#[derive(Clone, Copy)]
struct Held {
    keys: u64,
    /// Bytes of keys and values.
    bytes: u64,
}

impl Held {
    /// The content after a workload, given the content before.
    fn after(group: &Group, step: &Step, record: &Record, before: Option<Held>) -> Option<Held> {
        use Workload::*;
        match step.workload {
            // Each key once.
            FillSeq | FillRandom | FillSync | YcsbLoad => {
                Some(Held { keys: record.ops, bytes: record.user_bytes })
            }
            ReadRandom | ReadMissing | ReadSeq | ReadReverse | SeekRandom | SeekAsOf | YcsbC | AgingRead => {
                before
            }
            // Values of the same length replace others, if all keys exist and all values have one length.
            Overwrite | UpdateZipfian | ReadWhileWriting | YcsbA | YcsbB | YcsbF => {
                before.filter(|held| held.keys == step.num && group.sizes.is_one())
            }
            _ => None,
        }
    }
}

/// The parameters of a workload, for its record.
fn settings(group: &Group, step: &Step, requested: &RequestedSettings) -> Settings {
    Settings {
        num: step.num - step.first.min(step.num),
        reads: step.ops,
        seek_nexts: step.seek_nexts,
        key_size: group.key_size,
        value_sizes: group.sizes.to_string(),
        threads: step.threads,
        writers: step.writers,
        durability: String::new(),
        seed: group.seed,
        memtable_bytes: requested.memtable_bytes,
        cache_bytes: requested.cache_bytes,
        background_threads: requested.background_threads,
        filter_bits_per_key: requested.filter_bits_per_key,
        memory_limit_bytes: None,
        sample_seconds: group.sample_seconds,
    }
}

/// An open engine and the group that runs on it.
pub struct Session<'a> {
    engine: &'a dyn Engine,
    /// The group.
    pub group: &'a Group,
    dir: &'a Path,
    values: Values,
    /// The keys of a `fillrandom` that the time limit ended: a prefix of its permutation. Later workloads draw from
    /// these.
    present: Cell<Option<(Shuffle, u64)>>,
}

/// Counters since the engine was opened or the process started.
struct Counts {
    written: Option<u64>,
    stalls: Option<Stalls>,
    kernel: Option<KernelIo>,
    cpu: Duration,
    busy: Busy,
    requests: Option<Requests>,
}

impl Counts {
    fn now(engine: &dyn Engine, dir: &Path) -> Counts {
        Counts {
            written: engine.written_bytes(),
            stalls: engine.stalls(),
            kernel: KernelIo::now(),
            cpu: process::cpu_time(),
            busy: Busy::start(),
            requests: Requests::of(dir),
        }
    }
}

impl<'a> Session<'a> {
    /// A session for a group on an open engine with its database in `dir`.
    pub fn new(engine: &'a dyn Engine, group: &'a Group, dir: &'a Path) -> Session<'a> {
        Session { engine, group, dir, values: Values::new(&group.sizes), present: Cell::new(None) }
    }

    /// Runs step `at` of the group and waits until it has settled, if the step asks for it. The caller sets the fields of the record that
    /// describe the engine.
    pub fn run(&self, at: usize, step: &Step, on: &mut (dyn FnMut(Event) + Send)) -> Result<Record> {
        let (group, workload) = (self.group, step.workload);
        let same = |other: &&Step| other.workload == workload;
        let occurrence = group.steps[..at].iter().filter(same).count() as u64;
        let sync = workload.syncs();
        let dir = self.dir;
        let space = || space(dir).map_or(0, |space| space.0);
        let job = Job {
            engine: self.engine,
            workload,
            seed: seed_of(group.seed, workload.name(), occurrence),
            writer_seed: seed_of(group.seed, Workload::Overwrite.name(), 0),
            ops: step.ops,
            first: step.first,
            num: step.num,
            present: self.present.get().filter(|_| !workload.is_fill()),
            // Far beyond all numbers inserted before.
            insert_from: step.num + ((at as u64 + 1) << 40),
            shape: group.shape,
            key_size: group.key_size,
            values: &self.values,
            seek_nexts: step.seek_nexts,
            threads: step.threads,
            writers: step.writers,
            rates: step.rates,
            sync,
            time_max: group.seconds_max.map(Duration::from_secs_f64),
            space: &space,
            sample: Duration::from_secs_f64(group.sample_seconds),
        };
        let name = step.name();
        let progress =
            |done, settling| Event::Progress { workload: name.clone(), done, ops: step.ops, settling };
        on(progress(0, false));
        process::reset_peak_memory();
        let before = Counts::now(self.engine, self.dir);
        let outcome = drive::run(&job, &mut |done| on(progress(done, false)))?;
        if workload.is_fill() {
            // With several threads, each has put a part of its own share, so the keys are not a prefix of the
            // permutation.
            let known = workload == Workload::FillRandom && outcome.cut_short && step.threads == 1;
            let done =
                (Shuffle::new(step.num - step.first, job.seed), outcome.tally.ops.min(step.num - step.first));
            self.present.set(known.then_some(done));
        }
        let settled = match step.settles {
            true => {
                on(progress(outcome.tally.ops, true));
                let idle = self.engine.settle()?;
                Some(outcome.started.elapsed().saturating_sub(idle).max(outcome.time))
            }
            false => None,
        };
        let mut record = self.record(step, &outcome, settled, &before)?;
        record.settings.durability = if sync { "sync" } else { "os" }.to_string();
        Ok(record)
    }

    fn record(
        &self,
        step: &Step,
        outcome: &Outcome,
        settled: Option<Duration>,
        before: &Counts,
    ) -> Result<Record> {
        let after = Counts::now(self.engine, self.dir);
        let cpu = after.cpu - before.cpu;
        let busy_others = before.busy.others(cpu);
        let (space_bytes, space_allocated_bytes) = space(self.dir)?;
        let files = FileLengths::of(lengths_of_main_files(self.dir)?);
        let (tally, seconds) = (&outcome.tally, outcome.time.as_secs_f64());
        let user_bytes = tally.bytes_put + outcome.writer.as_ref().map_or(0, |w| w.0.bytes_put);
        let engine_write_bytes = after.written.zip(before.written).map(|(after, before)| after - before);
        let kernel = after.kernel.zip(before.kernel).map(|(after, before)| after.since(before));
        let write_bytes = kernel.map(|k| k.write_bytes).or(engine_write_bytes).unwrap_or(0);
        let user_bytes_all = user_bytes + tally.bytes_got;
        let device = kernel.map(|k| k.read_bytes + k.write_bytes.saturating_sub(k.cancelled_write_bytes));
        let settled_seconds = settled.map_or(0.0, |settled| settled.as_secs_f64());
        Ok(Record {
            workload: step.name(),
            group: self.group.name.clone(),
            ops: tally.ops,
            ops_asked: step.ops,
            cut_short: outcome.cut_short && !step.timed,
            seconds,
            ops_per_s: rate(tally.ops, seconds),
            settled_seconds,
            settled_ops_per_s: settled.map_or(0.0, |_| rate(tally.ops, settled_seconds)),
            lat_us: Latency::of(&outcome.latency),
            call_us: outcome.of_calls.as_ref().map(Latency::of),
            lat_us_by_kind: outcome
                .by_kind
                .iter()
                .map(|(kind, latency)| (kind.name().to_string(), Latency::of(latency)))
                .collect(),
            curve_us: curve(&outcome.latency),
            user_bytes,
            user_bytes_read: tally.bytes_got,
            write_bytes,
            cancelled_write_bytes: kernel.map_or(0, |k| k.cancelled_write_bytes),
            read_bytes: kernel.map(|k| k.read_bytes),
            disk_reads: after
                .requests
                .zip(before.requests)
                .zip(kernel)
                .and_then(|((after, before), kernel)| after.since(before, kernel.read_bytes)),
            disk_share: (tally.probed > 0).then(|| tally.from_disk as f64 / tally.probed as f64),
            disk_share_of: tally.probed,
            write_amp: (user_bytes > 0).then(|| write_bytes as f64 / user_bytes as f64),
            io_amp: device.filter(|_| user_bytes_all > 0).map(|device| device as f64 / user_bytes_all as f64),
            kernel_wchar: kernel.map(|k| k.wchar),
            engine_write_bytes,
            space_bytes,
            space_allocated_bytes,
            files,
            cpu_seconds: cpu.as_secs_f64(),
            rss_peak_bytes: process::peak_memory(),
            busy_others,
            found: tally.found,
            conflicts: tally.conflicts,
            verified: tally.verified,
            writer: outcome.writer.as_ref().map(|(tally, latency, time)| Writer {
                ops: tally.ops,
                ops_per_s: rate(tally.ops, time.as_secs_f64()),
                lat_us: Latency::of(latency),
            }),
            stall_seconds: after
                .stalls
                .zip(before.stalls)
                .map(|(after, before)| after.seconds - before.seconds),
            longest_stall_seconds: after.stalls.and_then(|stalls| stalls.longest_seconds),
            samples: outcome.course.samples.clone(),
            engine_settings: self.engine.settings(),
            ..Record::default()
        })
    }
}

/// Reads the complete content, all versions of all keys if it `has_versions`: counts, and a hash.
pub fn sum_up(engine: &dyn Engine, has_versions: bool) -> Result<Contents> {
    let (mut entries, mut bytes, mut checksum) = (0, 0, 0u64);
    let (mut last, mut in_order) = (Vec::new(), true);
    let mut visit = |key: &[u8], value: &[u8]| {
        let mut hash = Xxh3::new();
        // Includes the length, so that different splits of the same bytes have different hashes.
        hash.update(&(key.len() as u32).to_le_bytes());
        hash.update(key);
        hash.update(value);
        // The sum does not depend on the order: that of an engine without order is its own.
        checksum = checksum.wrapping_add(hash.digest());
        in_order &= entries == 0 || *last < *key;
        last.clear();
        last.extend_from_slice(key);
        entries += 1;
        bytes += (key.len() + value.len()) as u64;
        true
    };
    match has_versions {
        true => engine.all_versions(&mut visit)?,
        false => engine.scan(None, &mut visit)?,
    }
    if !in_order && engine.has_order() {
        return Err(Error::corruption("a scan of all entries is not in the order of keys"));
    }
    Ok(Contents { entries, bytes, checksum })
}

/// Sizes of all files under `dir`: total length, and allocated space.
pub fn space(dir: &Path) -> Result<(u64, u64)> {
    let mut sum = (0, 0);
    each_file(dir, &mut |_, metadata| sum = (sum.0 + metadata.len(), sum.1 + allocated(metadata)))?;
    Ok(sum)
}

/// Lengths of the files under `dir` with the extension that has most bytes: tables, or segments of values.
fn lengths_of_main_files(dir: &Path) -> Result<Vec<u64>> {
    let mut by_extension = BTreeMap::<_, Vec<u64>>::new();
    each_file(dir, &mut |path, metadata| {
        by_extension.entry(path.extension().map(ToOwned::to_owned)).or_default().push(metadata.len());
    })?;
    Ok(by_extension.into_values().max_by_key(|lengths| lengths.iter().sum::<u64>()).unwrap_or_default())
}

fn each_file(dir: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata)) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        // A file may be removed concurrently.
        let Ok((path, metadata)) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) else {
            continue;
        };
        match metadata.is_dir() {
            true => each_file(&path, visit)?,
            false => visit(&path, &metadata),
        }
    }
    Ok(())
}

#[cfg(unix)]
fn allocated(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}
