//! The parent: starts a child, kills it, and holds the database against the script and the reports.

use super::script::{CATALOG, NAMES, WRITERS, contents, number_of, options, temporary};
use super::{READY, RECORD_LEN, Record};
use crate::finding::{Finding, Outcome, ensure, first_difference, show};
use crate::jobs::Job;
use crate::random::{Draw, Rng, derive};
use cairn::{Database, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Kills in one directory, before a fresh one.
const ROUNDS_PER_DIR: u64 = 20;

/// Longest time that a child writes, in milliseconds.
const WRITING_MS_MAX: u64 = 150;

const SIGKILL: i32 = 9;

/// How far a thread is.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// The last write that must be there.
    promised: u64,
    /// The last write that was reported.
    reported: u64,
}

/// All threads, by number.
type Reports = BTreeMap<u32, Progress>;

/// [`run`] as a job; it counts the kills.
pub fn job(program: PathBuf, seed: u64, kills: u64) -> Job {
    Job {
        name: format!("kill, seed {seed}"),
        replay: format!("cargo run --release -p sim -- kill --seed {seed} --kills {kills}"),
        run: Box::new(move || run(&program, seed, kills)),
    }
}

/// Starts `program` as the child and kills it `kills` times; returns how often it did.
pub fn run(program: &Path, seed: u64, kills: u64) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let mut scratch = None;
    let mut known = Reports::new();
    for round in 0..kills {
        if round % ROUNDS_PER_DIR == 0 {
            known.clear();
        }
        let dir = match &scratch {
            Some(dir) if round % ROUNDS_PER_DIR != 0 => dir,
            _ => scratch
                .insert(TempDir::new().map_err(|e| Finding::new(format!("no temporary directory: {e}")))?),
        };
        let path = dir.path().join("db");
        let child_seed = derive(seed, round / ROUNDS_PER_DIR);
        let place = |f: Finding| f.context(format_args!("kill {round}"));
        write_and_kill(program, &path, child_seed, &mut known, &mut rng).map_err(place)?;
        verify(&path, child_seed, &mut known).map_err(place)?;
    }
    Ok(kills)
}

/// Lets a child write for a moment. Its reports end up in `known`.
fn write_and_kill(program: &Path, path: &Path, seed: u64, known: &mut Reports, rng: &mut Rng) -> Outcome {
    let steps = known.get(&CATALOG).map_or(0, |p| p.reported);
    let mut child = Command::new(program)
        .arg("kill-child")
        .args(["--seed", &seed.to_string(), "--catalog-steps", &steps.to_string()])
        .arg("--dir")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Finding::new(format!("cannot start {}: {e}", program.display())))?;
    let outcome = listen_and_kill(&mut child, known, rng);
    // However that ended, do not leave the child behind.
    let _ = child.kill();
    let status = child.wait().map_err(|e| Finding::new(format!("cannot wait for the child: {e}")))?;
    outcome?;
    if status.signal() != Some(SIGKILL) {
        let mut words = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = stderr.read_to_string(&mut words);
        }
        return Err(Finding::new(format!("the child ended by itself ({status}): {}", words.trim())));
    }
    Ok(())
}

fn listen_and_kill(child: &mut Child, known: &mut Reports, rng: &mut Rng) -> Outcome {
    let unreadable = |e: std::io::Error| Finding::new(format!("cannot read from the child: {e}"));
    let mut pipe = child.stdout.take().ok_or_else(|| Finding::new("the child has no standard output"))?;
    let early = rng.chance(1, 10);
    let time = Duration::from_micros(match early {
        // While it starts or recovers.
        true => rng.below(15_000),
        false => *rng.pick(&[10, 50, WRITING_MS_MAX]) * rng.below(1000),
    });
    let listener = std::thread::spawn(move || {
        let mut first = [0; RECORD_LEN];
        let ready = pipe.read_exact(&mut first).is_ok();
        (ready, first, pipe)
    });
    let rest = if early {
        std::thread::sleep(time);
        let _ = child.kill();
        let (ready, first, pipe) = listener.join().map_err(|_| Finding::new("the listener panicked"))?;
        if !ready {
            return Ok(());
        }
        check_ready(&first)?;
        std::thread::spawn(move || read_to_end(pipe))
    } else {
        let (ready, first, pipe) = listener.join().map_err(|_| Finding::new("the listener panicked"))?;
        if !ready {
            // It failed: its status and words tell.
            return Ok(());
        }
        check_ready(&first)?;
        let rest = std::thread::spawn(move || read_to_end(pipe));
        std::thread::sleep(time);
        let _ = child.kill();
        rest
    };
    let bytes = rest.join().map_err(|_| Finding::new("the listener panicked"))?.map_err(unreadable)?;
    for chunk in bytes.as_chunks::<RECORD_LEN>().0 {
        let record = Record::decode(chunk);
        let progress = known.entry(record.thread).or_default();
        ensure!(record.number == progress.reported + 1, "{record:?} follows {}", progress.reported);
        progress.reported = record.number;
        if record.promised {
            progress.promised = record.number;
        }
    }
    Ok(())
}

fn check_ready(first: &[u8; RECORD_LEN]) -> Outcome {
    ensure!(Record::decode(first).thread == READY, "the child did not say that it is ready");
    Ok(())
}

fn read_to_end(mut pipe: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).map(|_| bytes)
}

/// Opens what the child left; corrects `known` to what is there, since the next child goes on from that.
fn verify(path: &Path, seed: u64, known: &mut Reports) -> Outcome {
    let db =
        Database::open_with(path, options(seed).0).map_err(|e| Finding::from(e).context("P3: opening"))?;
    let names: BTreeSet<String> = db.keyspaces().into_iter().collect();
    let fixed: BTreeSet<String> = NAMES.iter().map(|n| (*n).to_owned()).collect();
    verify_catalog(&db, names.difference(&fixed).cloned().collect(), known)?;
    if names.is_superset(&fixed) {
        for thread in 0..WRITERS {
            verify_thread(&db, thread, known).map_err(|f| f.context(format_args!("thread {thread}")))?;
        }
    } else {
        let written = (0..WRITERS).filter_map(|t| known.get(&t)).map(|p| p.reported).sum::<u64>();
        ensure!(written == 0, "P1: the keyspaces are {names:?}, and {written} writes were reported");
    }
    let report = db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "P3: check finds {:?}", report.problems);
    Ok(db.close()?)
}

fn verify_catalog(db: &Database, names: BTreeSet<String>, known: &mut Reports) -> Outcome {
    let progress = known.entry(CATALOG).or_default();
    let candidates = [progress.reported, progress.reported + 1];
    let Some(&steps) = candidates.iter().find(|&&steps| temporary(steps) == names) else {
        let wanted = candidates.map(temporary);
        return Err(Finding::new(format!(
            "P1: the keyspaces that come and go are {names:?}, not one of {wanted:?}"
        )));
    };
    if let Some(name) = names.first() {
        let keyspace = db.open_keyspace(name)?;
        if keyspace.get("in")?.is_none() {
            ensure!(
                steps > progress.promised,
                "P1: keyspace {name} lost the write that followed its creation"
            );
            // The child was killed between the two. Do the second half, so that it can be asked for from now on.
            keyspace.put("in", name)?;
        }
    }
    *progress = Progress { promised: steps, reported: steps };
    Ok(())
}

fn verify_thread(db: &Database, thread: u32, known: &mut Reports) -> Outcome {
    let mut got: Vec<Vec<(Slice, Slice)>> = Vec::new();
    for name in NAMES {
        let own = if name == "state" { thread.to_string() } else { format!("{thread}/") };
        got.push(db.open_keyspace(name)?.prefix(own).collect::<cairn::Result<_>>()?);
    }
    let last = got[0].last().and_then(|(key, _)| number_of(key)).unwrap_or(0);
    let progress = known.entry(thread).or_default();
    let Progress { promised, reported } = *progress;
    ensure!(last >= promised, "P1: write {last} is the last one there, and {promised} was acknowledged");
    ensure!(last <= reported + 1, "P2: write {last} is there, and {reported} was the last that returned");
    for (i, want) in contents(thread, last).iter().enumerate() {
        let found = got[i].iter().map(|(k, v)| (&k[..], &v[..]));
        let want = want.iter().map(|(k, v)| (&k[..], &v[..]));
        if let Some(difference) = first_difference(found, want) {
            let last = show(last.to_string().as_bytes());
            return Err(Finding::new(format!("P2: keyspace {}, after write {last}: {difference}", NAMES[i])));
        }
    }
    // What recovery showed must not go away any more.
    *progress = Progress { promised: last, reported: last };
    Ok(())
}
