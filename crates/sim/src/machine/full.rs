//! Full disks: a small file system in memory is filled until writes fail, and then space is freed.
//!
//! The child mounts the file system in its own mount namespace (`unshare --mount`), so that it is unmounted however
//! the child ends. The [`Scenario`] selects what it does.

use super::load::Load;
use super::{said, start};
use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use crate::ordering::has_order;
use crate::random::{Draw, Rng, derive};
use crate::sets::PLACEMENTS;
use cairn::{
    Compression, Database, Durability, Engine, ErrorKind, Keyspace, KeyspaceOptions, Options, Preset,
};
use clap::{Args, ValueEnum};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// After space is freed, writes must succeed within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Space reserved for the last flush and compaction, and as much again for the last open: a compaction may take all space that it finds,
/// as the tables of small guards may be longer than those that they were made from.
const SPARE_LEN: usize = 1 << 20;

/// The files that hold this space.
const SPARES: [&str; 2] = ["spare", "spare-to-open"];

/// Maximum time for filling a disk.
const FILLING: Duration = Duration::from_secs(4);

/// After this many failed writes in a row, the disk counts as full: no flush is about to free space.
const REFUSALS: u64 = 40;

/// Number of threads that fill the disk.
const WRITERS: u64 = 3;

/// What the database does when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Threads write until writes fail, several times.
    Load,
    /// A compaction (trap 31).
    Compaction,
    /// Switching the log (trap 32).
    Rotation,
    /// Writing the manifest (trap 32).
    Manifest,
    /// Opening.
    Opening,
}

/// The arguments that the parent passes to the child.
#[derive(Args)]
pub struct FullArgs {
    /// Mount point of the file system.
    #[arg(long)]
    pub dir: PathBuf,
    /// Seed of the sizes, the options and the data.
    #[arg(long)]
    pub seed: u64,
    /// The scenario.
    #[arg(long)]
    pub scenario: Scenario,
}

/// Why this test cannot run here; `None` if it can.
pub fn missing() -> Option<String> {
    let dir = TempDir::new().ok()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "none"]).arg(dir.path());
    match command.output() {
        Err(e) => Some(format!("unshare cannot be started: {e}")),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("no file system can be mounted: {}", said(&output.stderr))),
    }
}

/// Runs a scenario in a child. Returns how often the disk was full.
pub fn run(program: &Path, seed: u64, scenario: Scenario) -> Outcome<u64> {
    let dir = TempDir::new().map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
    let name = scenario.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    let mut command = Command::new("unshare");
    command.arg("--mount").arg("--").arg(program).arg("full-child").arg("--dir").arg(dir.path());
    command.args(["--seed", &seed.to_string(), "--scenario", &name]);
    let words = start(&mut command)?;
    words.trim().parse().map_err(|_| Finding::new(format!("the child says {words:?}")))
}

/// [`run`] as a job, which counts full disks.
pub fn job(program: PathBuf, seed: u64, scenario: Scenario) -> Job {
    let name = scenario.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    Job {
        name: format!("full disk, {name}, seed {seed}"),
        replay: format!("cargo run --release -p sim -- full --seed {seed} --scenario {name}"),
        run: Box::new(move || run(&program, seed, scenario)),
    }
}

/// The file system, with the files beside the database.
struct Disk {
    root: PathBuf,
}

impl Disk {
    fn mount(root: &Path, bytes: u64) -> Outcome<Disk> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"]).arg(root);
        start(&mut mount)?;
        for name in SPARES {
            let spare = fs::write(root.join(name), vec![7; SPARE_LEN]);
            spare.map_err(|e| Finding::new(format!("the spare space: {e}")))?;
        }
        Ok(Disk { root: root.to_owned() })
    }

    fn db(&self) -> PathBuf {
        self.root.join("db")
    }

    /// Extends the ballast file by this many bytes. Returns how many fit.
    fn burden(&self, bytes: u64) -> Outcome<u64> {
        let failed = |e: std::io::Error| Finding::new(format!("the ballast: {e}"));
        let file = OpenOptions::new().create(true).append(true).open(self.root.join("ballast"));
        let mut file = file.map_err(failed)?;
        let (mut left, block) = (bytes, [7_u8; 4096]);
        while left > 0 {
            match file.write(&block[..block.len().min(left as usize)]) {
                Ok(0) => break,
                Ok(written) => left -= written as u64,
                Err(e) if e.kind() == std::io::ErrorKind::StorageFull => break,
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(bytes - left)
    }

    /// Takes all free space.
    fn fill(&self) -> Outcome {
        while self.burden(1 << 20)? > 0 {}
        Ok(())
    }

    /// Shortens the ballast file.
    fn give_back(&self, bytes: u64) -> Outcome {
        let failed = |e: std::io::Error| Finding::new(format!("the ballast: {e}"));
        let file = OpenOptions::new().write(true).open(self.root.join("ballast")).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        file.set_len(len.saturating_sub(bytes)).map_err(failed)
    }

    /// Frees one of the [`SPARES`].
    fn give_up(&self, spare: &str) -> Outcome {
        fs::remove_file(self.root.join(spare)).map_err(|e| Finding::new(format!("the spare space: {e}")))
    }

    fn free(&self) -> Outcome {
        fs::remove_file(self.root.join("ballast")).map_err(|e| Finding::new(format!("the ballast: {e}")))
    }
}

/// The child.
pub fn child(args: &FullArgs) -> Outcome {
    let mut rng = Rng::new(args.seed);
    let size = *rng.pick(&[8_u64, 12, 24]) << 20;
    let disk = Disk::mount(&args.dir, size)?;
    let mut trial = Trial::new(disk, size, args.seed, &mut rng);
    match args.scenario {
        Scenario::Load => trial.load()?,
        Scenario::Compaction => trial.compaction()?,
        Scenario::Rotation => trial.rotation()?,
        Scenario::Manifest => trial.manifest()?,
        Scenario::Opening => trial.opening()?,
    }
    println!("{}", trial.fulls);
    Ok(())
}

/// The database on the disk.
struct Trial {
    disk: Disk,
    size: u64,
    options: Options,
    keyspace: KeyspaceOptions,
    loads: Vec<Load>,
    /// How often the disk was full.
    fulls: u64,
}

impl Trial {
    fn new(disk: Disk, size: u64, seed: u64, rng: &mut Rng) -> Trial {
        let (preset, memtable_bytes) = (*rng.pick(&Preset::ALL), *rng.pick(&[16 << 10, 64 << 10, 256 << 10]));
        let compression = *rng.pick(&[Compression::None, Compression::Lz4]);
        let placement = *rng.pick(&PLACEMENTS);
        let keyspace = KeyspaceOptions::preset(preset).memtable_bytes(memtable_bytes);
        let keyspace = match preset {
            Preset::HashLog => keyspace,
            _ => keyspace.compression(compression).placement(placement).top_level_bits(14).bit_decrement(2),
        };
        let options = Options::default()
            .memory_budget(*rng.pick(&[1 << 20, 4 << 20]))
            .log_cap(*rng.pick(&[64 << 10, 1 << 20]))
            .manifest_cap(1 << 10)
            .background_threads(rng.below(3) as usize)
            .disk_reserve(*rng.pick(&[0, 256 << 10, Options::default().disk_reserve]));
        let durability = *rng.pick(&[Durability::Sync, Durability::Os]);
        let load = |thread| Load::new(derive(seed, thread), thread, durability, (0, 3000));
        Trial { disk, size, options, keyspace, loads: (0..WRITERS).map(load).collect(), fulls: 0 }
    }

    fn open(&self) -> cairn::Result<(Database, Keyspace)> {
        let db = Database::open_with(self.disk.db(), self.options.clone())?;
        let keyspace = db.keyspace("k", self.keyspace.clone())?;
        Ok((db, keyspace))
    }

    /// All threads write until each of them meets the full disk; or `most` times each, without failures.
    fn write(&mut self, keyspace: &Keyspace, most: Option<u64>) -> Outcome {
        std::thread::scope(|scope| {
            let write = |load| scope.spawn(move || write(keyspace, load, most));
            let threads: Vec<_> = self.loads.iter_mut().map(write).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(Finding::new("a writer panicked")))
            })
        })?;
        self.fulls += u64::from(most.is_none());
        Ok(())
    }

    /// Reads all data. Failed writes must be invisible.
    fn look(&self, keyspace: &Keyspace) -> Outcome {
        self.loads.iter().try_for_each(|load| load.verify(keyspace))
    }

    /// Returns whether the call succeeded. It may fail only for lack of space.
    fn try_to(&mut self, what: &str, result: cairn::Result<()>) -> Outcome<bool> {
        let Err(error) = result else { return Ok(true) };
        ensure!(
            error.kind() == ErrorKind::NoSpace,
            "P5: the disk is full, and {what} fails otherwise: {error:?}"
        );
        let root = self.disk.root.to_string_lossy();
        ensure!(error.to_string().contains(&*root), "P3: the error of {what} names no file: {error:?}");
        self.fulls += 1;
        Ok(false)
    }

    /// Frees space. Writes must succeed without a restart. An earlier error of a background job may still be reported
    /// for a moment; and a compaction may meet the full disk once more, which refuses puts until its tables are removed again.
    fn recover(&mut self, db: &Database, keyspace: &Keyspace) -> Outcome {
        self.disk.free()?;
        again("a put", || self.loads[0].put(keyspace))?;
        self.look(keyspace)?;
        again("a flush", || db.flush())?;
        std::thread::scope(|scope| {
            let write = |load: &mut Load| (0..50).try_for_each(|_| again("a put", || load.put(keyspace)));
            let threads: Vec<_> =
                self.loads.iter_mut().map(|load| scope.spawn(move || write(load))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(Finding::new("a writer panicked")))
            })
        })?;
        again("a flush", || db.flush())?;
        self.look(keyspace)
    }

    /// Deletes most data for the next round. `false` if there is not enough space: a full compaction may need as much
    /// space as its inputs.
    fn clear(&mut self, db: &Database, keyspace: &Keyspace) -> Outcome<bool> {
        for load in &mut self.loads {
            for number in load.numbers().into_iter().skip(20) {
                again("a delete", || load.delete(keyspace, number))?;
            }
        }
        let compacted = db.compact();
        self.try_to("a compaction", compacted)
    }

    /// Verifies all data, while open and after a reopen.
    fn end(&mut self, db: Database, keyspace: Keyspace) -> Outcome {
        let [spare, spare_to_open] = SPARES;
        self.disk.give_up(spare)?;
        self.look(&keyspace)?;
        // Repeat failed background work now; otherwise closing would report its last error.
        again("a flush", || db.flush())?;
        let compacted = db.compact();
        let compacted = self.try_to("a compaction", compacted)?;
        // Collections may be due, too.
        let idle = db.wait_idle();
        let idle = self.try_to("waiting for idleness", idle)? && compacted;
        let checked = db.check(&mut |_| {})?;
        ensure!(checked.problems.is_empty(), "P3: check finds {:?}", checked.problems);
        drop(keyspace);
        let closed = db.close();
        ensure!(self.try_to("closing", closed)? || !idle, "P5: nothing is left to do, and closing fails");
        self.disk.give_up(spare_to_open)?;
        let (db, keyspace) = self.open()?;
        self.loads.iter_mut().try_for_each(|l| l.settle(&keyspace)).map_err(|f| f.context("reopened"))?;
        drop(keyspace);
        let closed = db.close();
        ensure!(self.try_to("closing", closed)? || !idle, "P5: nothing is left to do, and closing fails");
        Ok(())
    }

    fn load(&mut self) -> Outcome {
        let (db, keyspace) = self.open()?;
        for round in 0..3 {
            self.disk.burden(self.size / 2)?;
            self.write(&keyspace, None)?;
            self.look(&keyspace).map_err(|f| f.context(format_args!("full, round {round}")))?;
            if round > 0 {
                self.make_room(&db, &keyspace)?;
            }
            self.recover(&db, &keyspace)?;
            if !self.clear(&db, &keyspace)? {
                break;
            }
        }
        self.end(db, keyspace)
    }

    /// Deletes half of the data and compacts the rest, as far as space permits.
    fn make_room(&mut self, db: &Database, keyspace: &Keyspace) -> Outcome {
        // Whether the reserve was held when the disk got full. A flush may have used it since.
        let reserved = db.stats().reserve.held_bytes > 0;
        let mut loads = std::mem::take(&mut self.loads);
        let mut deleted = 0;
        'all: for load in &mut loads {
            for number in load.numbers().into_iter().step_by(2) {
                let result = load.delete(keyspace, number);
                if !self.try_to("a delete", result)? {
                    break 'all;
                }
                deleted += 1;
            }
        }
        self.loads = loads;
        // Without order, deletes free nothing until a collection has room for what it copies.
        let least = if reserved && has_order(keyspace) { 50 } else { 0 };
        ensure!(deleted >= least, "P5: {deleted} deletes went through, with a reserve");
        self.look(keyspace)?;
        let flushed = db.flush();
        self.try_to("a flush", flushed)?;
        let compacted = db.compact();
        self.try_to("a compaction", compacted)?;
        self.look(keyspace)
    }

    /// Writes data for about a sixth of the disk.
    fn prepare(&mut self, keyspace: &Keyspace) -> Outcome {
        self.write(keyspace, Some(self.size / 6 / WRITERS / 1600))
    }

    fn compaction(&mut self) -> Outcome {
        if self.keyspace.engine == Engine::Tree {
            self.keyspace = self.keyspace.clone().level0_tables(64);
        }
        let (db, keyspace) = self.open()?;
        self.prepare(&keyspace)?;
        again("a flush", || db.flush())?;
        // With more free space, compactions get further before they fail.
        for left in [64 << 10, 256 << 10, 512 << 10] {
            self.disk.fill()?;
            self.disk.give_back(left)?;
            let compacted = db.compact();
            self.try_to("a compaction", compacted)?;
            self.look(&keyspace)?;
            let flushed = db.flush();
            self.try_to("a flush", flushed)?;
            self.recover(&db, &keyspace)?;
        }
        again("a compaction", || db.compact())?;
        self.end(db, keyspace)
    }

    fn rotation(&mut self) -> Outcome {
        let (db, keyspace) = self.open()?;
        self.prepare(&keyspace)?;
        for _ in 0..4 {
            again("idleness", || db.wait_idle())?;
            let mut full = false;
            // Small writes may still fit in the last page of the log, so that it is not empty when it is switched.
            for _ in 0..50 {
                self.disk.fill()?;
                let put = keyspace.put("small", "s");
                full |= !self.try_to("a small put", put)?;
                let flushed = db.flush();
                full |= !self.try_to("switching the log", flushed)?;
            }
            ensure!(full, "the disk has no room, and everything succeeds");
            keyspace.get("small")?;
            self.disk.free()?;
            again("a delete", || keyspace.delete("small"))?;
            self.disk.burden(4096)?;
            self.recover(&db, &keyspace)?;
        }
        self.end(db, keyspace)
    }

    fn manifest(&mut self) -> Outcome {
        let (db, keyspace) = self.open()?;
        self.prepare(&keyspace)?;
        let mut names = db.keyspaces();
        for round in 0..4 {
            let mut refused = None;
            for i in 0..2000 {
                if i % 50 == 0 {
                    // Take the space that a background job has freed.
                    self.disk.fill()?;
                }
                let name = format!("k-{round}-{i}");
                let created = db.create_keyspace(&name, self.keyspace.clone()).map(drop);
                if !self.try_to("creating a keyspace", created)? {
                    refused = Some(name);
                    break;
                }
                names.push(name);
            }
            let refused = refused.ok_or_else(|| Finding::new("the manifest never met the full disk"))?;
            self.look(&keyspace)?;
            self.recover(&db, &keyspace)?;
            db.create_keyspace(&refused, self.keyspace.clone())?;
            names.push(refused);
            let mut listed = db.keyspaces();
            listed.sort();
            names.sort();
            ensure!(listed == names, "P2: the keyspaces are {listed:?} instead of {names:?}");
        }
        self.end(db, keyspace)?;
        let (db, _) = self.open()?;
        let mut listed = db.keyspaces();
        listed.sort();
        ensure!(listed == names, "P1: reopened, the keyspaces are {listed:?} instead of {names:?}");
        Ok(db.close()?)
    }

    /// Closes and opens the database on a full disk: it must open, or return an error and stay intact.
    fn opening(&mut self) -> Outcome {
        for _ in 0..3 {
            let (db, keyspace) = self.open()?;
            self.disk.burden(self.size / 2)?;
            self.write(&keyspace, None)?;
            self.look(&keyspace)?;
            self.disk.fill()?;
            drop(keyspace);
            let closed = db.close();
            self.try_to("closing", closed)?;
            for _ in 0..3 {
                match self.open() {
                    Ok((db, keyspace)) => {
                        self.loads.iter_mut().try_for_each(|l| l.settle(&keyspace))?;
                        drop(keyspace);
                        match db.close() {
                            // The database was opened read-only, and closing reports that.
                            Err(e)
                                if e.kind() == ErrorKind::ReadOnly
                                    && e.to_string().contains("the disk was full when") =>
                            {
                                self.fulls += 1;
                            }
                            closed => drop(self.try_to("closing", closed)?),
                        }
                    }
                    Err(e) => drop(self.try_to("opening", Err(e))?),
                }
            }
            self.disk.free()?;
            let (db, keyspace) = self.open()?;
            self.loads.iter_mut().try_for_each(|l| l.settle(&keyspace))?;
            if !self.clear(&db, &keyspace)? {
                return self.end(db, keyspace);
            }
            drop(keyspace);
            db.close()?;
        }
        Ok(())
    }
}

/// Repeats a call while it fails for lack of space, for a limited time.
pub(super) fn again(what: &str, mut act: impl FnMut() -> cairn::Result<()>) -> Outcome {
    let begun = Instant::now();
    while let Err(error) = act() {
        ensure!(error.kind() == ErrorKind::NoSpace, "P5: there is space again, and {what} fails: {error:?}");
        ensure!(begun.elapsed() < PATIENCE, "P5: there is space again, and {what} fails for ever: {error:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Writes until several writes in a row met the full disk; or `most` times, without failures.
fn write(keyspace: &Keyspace, load: &mut Load, most: Option<u64>) -> Outcome {
    let (mut refused, mut written, begun) = (0, 0, Instant::now());
    while most.map_or(refused < REFUSALS, |most| written < most) {
        // Writers in a write stall, because compactions lack space, need not reach the limit.
        if most.is_none() && begun.elapsed() > FILLING {
            break;
        }
        match load.put(keyspace) {
            Ok(()) => (refused, written) = (0, written + 1),
            Err(e) if e.kind() == ErrorKind::NoSpace && most.is_none() => refused += 1,
            Err(e) => return Err(Finding::from(e).context("P5: a put")),
        }
        ensure!(written < 1_000_000, "the disk does not get full");
    }
    Ok(())
}
