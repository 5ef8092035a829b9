//! The parent of the kill test: starts children, kills them, and verifies their databases.

use super::kill_point::{KillPoint, Kind};
use super::record::{AT_KILL_POINT, OPENING, READY, RECORD_LEN, Record};
use super::reports::{KillCounts, Reports};
use super::script::CATALOG;
use super::verify::verify;
use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use crate::random::{Draw, Rng, derive};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Number of kills in one directory before a new one.
const ROUNDS_PER_DIR: u64 = 15;

/// A file system in memory. If there is none, the directory for temporary files is used.
const MEMORY: &str = "/dev/shm";

/// Maximum time that a child writes after it is ready, in milliseconds; most have less.
const MAX_WRITING_MS: u64 = 100;

/// A child that is neither ready nor finished after this time hangs.
const HANG: Duration = Duration::from_secs(60);

const SIGKILL: i32 = 9;

/// How a child dies.
enum End {
    /// Killed this long after it started to open the database.
    Opening(Duration),
    /// Killed this long after it was ready.
    Writing(Duration),
    /// Kills itself at the kill point. If that does not come soon, it is killed.
    KillPoint(KillPoint),
}

impl End {
    fn draw(rng: &mut Rng) -> End {
        match rng.weighted(&[2, 5, 5]) {
            0 => End::Opening(Duration::from_micros(rng.below(12_000))),
            1 => {
                let most_ms = *rng.pick(&[2, 10, 10, 30, MAX_WRITING_MS]);
                End::Writing(Duration::from_micros(rng.below(most_ms * 1000)))
            }
            _ => End::KillPoint(KillPoint::draw(rng)),
        }
    }

    /// The time from this event to the kill; `None` if the event does not start the timer.
    fn time_from(&self, event: &Event) -> Option<Duration> {
        match (self, event) {
            (End::Opening(time), Event::Opening) | (End::Writing(time), Event::Ready) => Some(*time),
            (End::KillPoint(point), Event::Ready) => {
                // Operations on tables occur later than appends.
                Some(Duration::from_millis(if point.kind() == Kind::Log { 10 } else { 40 }))
            }
            _ => None,
        }
    }
}

/// [`run`] as a job, which counts kills.
pub fn job(program: PathBuf, seed: u64, kills: u64, counts: Arc<KillCounts>) -> Job {
    Job {
        name: format!("kill, seed {seed}"),
        replay: format!("cargo run --release -p sim -- kill --seed {seed} --kills {kills}"),
        run: Box::new(move || run(&program, seed, kills, &counts)),
    }
}

/// Starts `program` as the child and kills it `kills` times. Returns the number of kills.
pub fn run(program: &Path, seed: u64, kills: u64, counts: &KillCounts) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let mut scratch = scratch(&mut rng)?;
    let mut known = Reports::new();
    for round in 0..kills {
        if round != 0 && round % ROUNDS_PER_DIR == 0 {
            scratch = self::scratch(&mut rng)?;
            known.clear();
        }
        let path = scratch.path().join("db");
        let child_seed = derive(seed, round / ROUNDS_PER_DIR);
        let end = End::draw(&mut rng);
        let how = match &end {
            End::Opening(time) => format!("{} us into the opening", time.as_micros()),
            End::Writing(time) => format!("{} us into the writing", time.as_micros()),
            End::KillPoint(point) => point.to_string(),
        };
        let place = |f: Finding| f.context(format_args!("kill {round} ({how})"));
        let mut reader = match rng.chance(1, 4) {
            true => Some(Reader::start(program, &path, derive(seed, round)).map_err(place)?),
            false => None,
        };
        let wrote = write_and_kill(program, &path, child_seed, &mut known, &end, counts).map_err(place)?;
        // Some readers see how the database is opened again.
        if rng.chance(1, 2)
            && let Some(reader) = reader.take()
        {
            reader.end(counts).map_err(place)?;
        }
        // Some databases of children that did not write are not verified, so that an open directly follows a killed
        // open.
        if wrote || !rng.chance(1, 2) {
            verify(&path, child_seed, &mut known, &mut rng, counts, reader.is_some()).map_err(place)?;
        }
        if let Some(reader) = reader {
            reader.end(counts).map_err(place)?;
        }
    }
    Ok(kills)
}

/// A process that reads beside the child. It is killed when this is dropped.
struct Reader(Child);

impl Reader {
    fn start(program: &Path, path: &Path, seed: u64) -> Outcome<Reader> {
        let mut command = Command::new(program);
        command.args(["kill-reader", "--seed", &seed.to_string()]).arg("--dir").arg(path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.spawn();
        started.map(Reader).map_err(|e| Finding::new(format!("cannot start {}: {e}", program.display())))
    }

    /// Kills it, and counts what it has reported.
    fn end(mut self, counts: &KillCounts) -> Outcome {
        let _ = self.0.kill();
        let status = self.0.wait().map_err(|e| Finding::new(format!("cannot wait for the reader: {e}")))?;
        let (mut reports, mut words) = (Vec::new(), String::new());
        let read = self.0.stdout.take().map(|mut pipe| pipe.read_to_end(&mut reports));
        let _ = self.0.stderr.take().map(|mut pipe| pipe.read_to_string(&mut words));
        read.transpose().map_err(|e| Finding::new(format!("cannot read from the reader: {e}")))?;
        counts.moments.fetch_add((reports.len() / RECORD_LEN) as u64, Ordering::Relaxed);
        match status.signal() {
            Some(SIGKILL) => Ok(()),
            _ => Err(Finding::new(format!("the reader ended by itself ({status}): {}", words.trim()))),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A new directory, mostly in memory.
fn scratch(rng: &mut Rng) -> Outcome<TempDir> {
    let disk = rng.chance(1, 8);
    let memory = if disk { None } else { TempDir::new_in(MEMORY).ok() };
    let made = memory.map_or_else(TempDir::new, Ok);
    made.map_err(|e| Finding::new(format!("no temporary directory: {e}")))
}

/// Runs a child until it dies, and adds its reports to `known`. Returns whether it was ready to write.
fn write_and_kill(
    program: &Path,
    path: &Path,
    seed: u64,
    known: &mut Reports,
    end: &End,
    counts: &KillCounts,
) -> Outcome<bool> {
    let steps = known.get(&CATALOG).map_or(0, |p| p.reported);
    let mut command = Command::new(program);
    command.arg("kill-child").args(["--seed", &seed.to_string(), "--catalog-steps", &steps.to_string()]);
    if let End::KillPoint(point) = end {
        command.args(["--kill-point", &point.to_string()]);
    }
    command.arg("--dir").arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|e| Finding::new(format!("cannot start {}: {e}", program.display())))?;
    let outcome = listen_and_kill(&mut child, known, end, counts);
    // Kill the child in any case.
    let _ = child.kill();
    let status = child.wait().map_err(|e| Finding::new(format!("cannot wait for the child: {e}")))?;
    let wrote = outcome?;
    if status.signal() != Some(SIGKILL) {
        let mut words = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_string(&mut words);
        }
        return Err(Finding::new(format!("the child ended by itself ({status}): {}", words.trim())));
    }
    Ok(wrote)
}

/// An event of the child.
enum Event {
    Opening,
    Ready,
    /// The child has exited; these are all reports after the first two, or the error of the pipe.
    Gone(std::io::Result<Vec<u8>>),
}

fn listen_and_kill(child: &mut Child, known: &mut Reports, end: &End, counts: &KillCounts) -> Outcome<bool> {
    let pipe = child.stdout.take().ok_or_else(|| Finding::new("the child has no standard output"))?;
    let (sender, events) = mpsc::channel();
    let listener = std::thread::spawn(move || listen(pipe, &sender));
    let (mut deadline, mut killed, mut ready) = (Instant::now() + HANG, false, false);
    let bytes = loop {
        match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Gone(bytes)) => break bytes,
            Ok(event) => {
                ready |= matches!(event, Event::Ready);
                if let Some(time) = end.time_from(&event) {
                    deadline = Instant::now() + time;
                }
            }
            Err(_) => {
                ensure!(!killed, "the child does not die");
                let early = matches!(end, End::Opening(_));
                let hangs = !ready && !early;
                let _ = child.kill();
                ensure!(!hangs, "the child was not ready after {} s", HANG.as_secs());
                (killed, deadline) = (true, Instant::now() + HANG);
            }
        }
    };
    listener.join().map_err(|_| Finding::new("the listener panicked"))?;
    let bytes = bytes.map_err(|e| Finding::new(format!("cannot read from the child: {e}")))?;
    if !ready {
        counts.opening.fetch_add(1, Ordering::Relaxed);
    }
    note(&bytes, known, counts)?;
    Ok(ready)
}

fn listen(mut pipe: ChildStdout, sender: &mpsc::Sender<Event>) {
    let (mut rest, mut record) = (Vec::new(), [0; RECORD_LEN]);
    while pipe.read_exact(&mut record).is_ok() {
        let event = match Record::decode(&record).thread {
            OPENING => Event::Opening,
            READY => Event::Ready,
            // A background thread may reach the kill point before the main thread is ready.
            _ => {
                rest.extend_from_slice(&record);
                continue;
            }
        };
        let last = matches!(event, Event::Ready);
        let _ = sender.send(event);
        if last {
            break;
        }
    }
    let read = pipe.read_to_end(&mut rest).map(|_| rest);
    let _ = sender.send(Event::Gone(read));
}

/// Records the reports of the child.
fn note(bytes: &[u8], known: &mut Reports, counts: &KillCounts) -> Outcome {
    for chunk in bytes.as_chunks::<RECORD_LEN>().0 {
        let record = Record::decode(chunk);
        if record.thread == AT_KILL_POINT {
            counts.kill_points.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let progress = known.entry(record.thread).or_default();
        ensure!(record.number == progress.reported + 1, "{record:?} follows {}", progress.reported);
        progress.reported = record.number;
        if record.promised {
            progress.promised = record.number;
        }
    }
    Ok(())
}
