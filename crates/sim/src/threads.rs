//! The threads test: concurrent writers, readers and background work (P6: snapshot isolation, each key linearizable).
//!
//! Each writer has accounts in two keyspaces and moves money between them in batches, so their sum is constant. Each
//! account is stored under two distant keys in one batch, so the two are always equal in one view. After each batch
//! the writer stores its number under two more keys, one after the other, so the second is never ahead of the first
//! in one view. Each batch also adds 1 to a count that all writers share, by a merge. Readers check this through snapshots, iterators, cursors, `multi_get` and `get`, and where there is history also as of
//! earlier commits. Keyspaces may have no order. Checkpoints are made by the database, or by a reader beside it. The seed determines the options and the transfers, but not how the threads interleave.

use crate::awaiting;
use crate::finding::{Finding, Outcome, ensure, show};
use crate::jobs::Job;
use crate::ordering::{has_order, sorted_entries};
use crate::random::{Draw, Rng, derive};
use crate::sets::{OptionSet, option_sets};
use cairn::env::{Env, RealEnv, SimEnv};
use cairn::{Database, Durability, Keyspace, KeyspaceOptions, Merge, Options, Retention, Slice, Snapshot};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WRITERS: usize = 3;
const READERS: usize = 3;

/// Number of accounts of a writer in each keyspace.
const ACCOUNTS: u64 = 40;

/// The key of the count of all commits.
const COMMITS: &str = "commits";

/// Checkpoints of a run at most: they take disk space.
const MAX_COPIES: usize = 30;

/// The sum of a writer's accounts.
const MONEY: i64 = 1_000_000;

/// The state shared by all threads.
struct Shared {
    db: Database,
    spaces: [Keyspace; 2],
    /// Counts the commits, by merges.
    sums: Keyspace,
    /// Where the database is, and what its copies are opened with.
    env: Arc<dyn Env>,
    path: PathBuf,
    options: Options,
    /// For each writer: the last number that it started to write, and the last one that is complete.
    begun: [AtomicU64; WRITERS],
    done: [AtomicU64; WRITERS],
    stop: AtomicBool,
    observations: AtomicU64,
}

/// [`run`] as a job, which counts observations.
pub fn job(seed: u64, time: Duration) -> Job {
    let replay =
        format!("cargo run --release -p sim -- threads --seed {seed}   (another interleaving, though)");
    Job { name: format!("threads, seed {seed}"), replay, run: Box::new(move || run(seed, time)) }
}

/// Runs the threads for `time`. Returns the number of observations by readers.
pub fn run(seed: u64, time: Duration) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let sets: Vec<OptionSet> =
        option_sets().into_iter().filter(|set| set.options.background_threads > 0).collect();
    // A quarter of the runs look back.
    let keeps = |set: &&OptionSet| set.keyspaces.iter().all(|k| k.history == Retention::All);
    let set = sets.iter().filter(keeps).find(|_| rng.chance(1, 4));
    let set = set.unwrap_or_else(|| rng.pick(&sets));
    let scratch = TempDir::new().map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
    let (env, path): (Arc<dyn Env>, PathBuf) = match rng.chance(1, 2) {
        true => (RealEnv::new(), scratch.path().join("db")),
        false => (SimEnv::new(seed), PathBuf::from("/db")),
    };
    let db = Database::open_in(env.clone(), &path, set.options.clone())?;
    let mut create = |name: &str| db.create_keyspace(name, rng.pick(&set.keyspaces).clone());
    let spaces = [create("left")?, create("right")?];
    let appends = KeyspaceOptions::default().memtable_bytes(8 << 10).block_size(256).merge(Merge::U64Add);
    let sums = db.create_keyspace("sums", appends)?;
    let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
    let shared = Shared {
        db,
        spaces,
        sums,
        env,
        path,
        options: set.options.clone(),
        begun: zeros(),
        done: zeros(),
        stop: AtomicBool::new(false),
        observations: AtomicU64::new(0),
    };
    for writer in 0..WRITERS {
        let ledger = Accounts::new(writer);
        ledger.commit(&shared, 0, &ledger.money.keys().copied().collect::<Vec<_>>(), Durability::Os)?;
    }
    let outcome =
        run_threads(&shared, seed, time).map_err(|f| f.context(format_args!("option set {}", set.name)));
    outcome?;
    let report = shared.db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "check finds {:?}", report.problems);
    Ok(shared.observations.into_inner())
}

fn run_threads(shared: &Shared, seed: u64, time: Duration) -> Outcome {
    let rng = |salt: usize| Rng::new(derive(seed, salt as u64));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            threads.push(scope.spawn(move || guarded(shared, || write(shared, writer, rng(writer)))));
        }
        for reader in 0..READERS {
            threads.push(scope.spawn(move || guarded(shared, || read(shared, rng(100 + reader)))));
        }
        threads.push(scope.spawn(move || guarded(shared, || disturb(shared, rng(200)))));
        let start = Instant::now();
        while start.elapsed() < time && !shared.stop.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        shared.stop.store(true, Ordering::SeqCst);
        let ends =
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(Finding::new("a thread panicked"))));
        // Join all threads before returning the first finding.
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Runs a thread. When it ends or fails, all others stop too.
fn guarded(shared: &Shared, run: impl FnOnce() -> Outcome) -> Outcome {
    struct StopAll<'a>(&'a AtomicBool);
    impl Drop for StopAll<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let _stop = StopAll(&shared.stop);
    run()
}

fn running(shared: &Shared) -> bool {
    !shared.stop.load(Ordering::SeqCst)
}

/// The accounts of a writer: keyspace and number to money.
struct Accounts {
    writer: usize,
    money: BTreeMap<(usize, u64), i64>,
}

impl Accounts {
    fn new(writer: usize) -> Accounts {
        let mut money: BTreeMap<_, _> =
            (0..2).flat_map(|s| (0..ACCOUNTS).map(move |i| ((s, i), 0))).collect();
        money.insert((0, 0), MONEY);
        Accounts { writer, money }
    }

    /// Writes accounts, each under both keys, and the number of the commit in both keyspaces, in one batch.
    fn commit(
        &self,
        shared: &Shared,
        number: u64,
        accounts: &[(usize, u64)],
        durability: Durability,
    ) -> Outcome {
        let mut batch = shared.db.batch();
        for place in accounts {
            let (space, money) = (&shared.spaces[place.0], self.money[place].to_string());
            for side in ["a", "z"] {
                batch.put(space, format!("{side}/{}/{:04}", self.writer, place.1), &money);
            }
        }
        batch.merge(&shared.sums, COMMITS, 1u64.to_le_bytes());
        for space in &shared.spaces {
            batch.put(space, format!("number/{}", self.writer), number.to_string());
        }
        // Every other writer is a task.
        Ok(awaiting::write(&shared.db, batch, durability, self.writer % 2 == 1)?)
    }
}

fn write(shared: &Shared, writer: usize, mut rng: Rng) -> Outcome {
    let mut accounts = Accounts::new(writer);
    let space = &shared.spaces[writer % 2];
    let mut number = 0;
    while running(shared) {
        number += 1;
        shared.begun[writer].store(number, Ordering::SeqCst);
        let mut draw = || (rng.between(0, 1), rng.below(ACCOUNTS));
        let (from, to) = (draw(), draw());
        let amount = rng.below(1000) as i64;
        *accounts.money.entry(from).or_default() -= amount;
        *accounts.money.entry(to).or_default() += amount;
        let durability = *rng.pick(&[Durability::Buffered, Durability::Os, Durability::Os, Durability::Sync]);
        accounts.commit(shared, number, &[from, to], durability)?;
        space.put(format!("first/{writer}"), number.to_string())?;
        space.put(format!("second/{writer}"), number.to_string())?;
        shared.done[writer].store(number, Ordering::SeqCst);
        if rng.chance(1, 20) {
            space.delete(format!("first/{writer}/gone"))?;
        }
    }
    Ok(())
}

/// Flushes, compacts, creates and drops, and makes checkpoints, while the threads work.
fn disturb(shared: &Shared, mut rng: Rng) -> Outcome {
    let mut copies = 0;
    while running(shared) {
        match rng.below(9) {
            8 if copies < MAX_COPIES => {
                checkpoint(shared, copies, rng.chance(1, 2))?;
                copies += 1;
            }
            0 => shared.db.flush()?,
            1 if rng.chance(1, 2) => shared.sums.compact()?,
            1 => shared.spaces[rng.between(0, 1)].compact()?,
            2 => {
                let space = &shared.spaces[rng.between(0, 1)];
                if has_order(space) {
                    space.compact_range("a/1".."z/2")?;
                }
            }
            3 => shared.db.sync()?,
            4 => {
                let keyspace = shared.db.create_keyspace("passing", shared.spaces[0].options().clone())?;
                keyspace.put("key", "value")?;
                shared.db.drop_keyspace("passing")?;
            }
            _ => std::thread::sleep(Duration::from_millis(rng.below(10))),
        }
    }
    Ok(())
}

/// A checkpoint shows one state, as a snapshot does, with all that was acknowledged before; one made by a reader, all that was synced before it was opened.
fn checkpoint(shared: &Shared, copies: usize, by_reader: bool) -> Outcome {
    let done = |writer: usize| shared.done[writer].load(Ordering::SeqCst) as i64;
    let low: [i64; WRITERS] = std::array::from_fn(done);
    let path = shared.path.with_file_name(format!("copy{copies}"));
    match by_reader {
        true => {
            shared.db.sync()?;
            let builder = Database::builder().env(shared.env.clone()).options(shared.options.clone());
            builder.open_read_only(&shared.path)?.checkpoint(&path)?;
        }
        false => _ = shared.db.checkpoint(&path)?,
    }
    let copy = Database::open_in(shared.env.clone(), &path, shared.options.clone())?;
    let spaces = [copy.open_keyspace("left")?, copy.open_keyspace("right")?];
    let sums = copy.open_keyspace("sums")?;
    let snapshot = copy.snapshot();
    for (writer, low) in low.into_iter().enumerate() {
        let number =
            look(&spaces, &sums, &snapshot, writer).map_err(|f| f.context("a checkpoint, as a snapshot"))?;
        let high = shared.begun[writer].load(Ordering::SeqCst) as i64;
        ensure!((low..=high).contains(&number), "a checkpoint after commit {low} shows {number}");
    }
    Ok(copy.close()?)
}

fn read(shared: &Shared, mut rng: Rng) -> Outcome {
    let mut seen = [0; WRITERS];
    while running(shared) {
        let writer = rng.between(0, WRITERS - 1);
        match rng.below(5) {
            0 | 1 => snapshot(shared, writer, &mut rng)?,
            2 => one_view(shared, writer, &mut rng)?,
            3 => cursor(shared, writer, &mut rng)?,
            _ => seen[writer] = newest(shared, writer, seen[writer])?,
        }
        shared.observations.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn parse(bytes: Option<&Slice>) -> Outcome<i64> {
    let Some(bytes) = bytes else { return Ok(0) };
    let number = std::str::from_utf8(bytes).ok().and_then(|t| t.parse().ok());
    number.ok_or_else(|| Finding::new(format!("{} was never written", show(bytes))))
}

/// Reads sums and numbers in one snapshot, sometimes twice.
fn snapshot(shared: &Shared, writer: usize, rng: &mut Rng) -> Outcome {
    let low = shared.done[writer].load(Ordering::SeqCst) as i64;
    let snapshot = shared.db.snapshot();
    let high = shared.begun[writer].load(Ordering::SeqCst) as i64;
    let number = look(&shared.spaces, &shared.sums, &snapshot, writer)?;
    if shared.spaces.iter().all(|space| space.options().history == Retention::All) {
        look_back(shared, &snapshot, writer, rng)?;
    }
    ensure!((low..=high).contains(&number), "a snapshot between commits {low} and {high} shows {number}");
    if rng.chance(1, 4) {
        std::thread::sleep(Duration::from_millis(rng.below(5)));
        let again = look(&shared.spaces, &shared.sums, &snapshot, writer)?;
        ensure!(again == number, "a snapshot of commit {number} shows {again} later");
    }
    Ok(())
}

/// Reads the data of a writer in a snapshot and checks its consistency. Returns the number of the newest commit.
fn look(spaces: &[Keyspace; 2], sums: &Keyspace, snapshot: &Snapshot, writer: usize) -> Outcome<i64> {
    let mut sum = 0;
    let mut numbers = Vec::new();
    for space in spaces {
        let accounts = format!("a/{writer}/");
        if has_order(space) {
            for entry in snapshot.prefix(space, &accounts) {
                sum += parse(Some(&entry?.1))?;
            }
        } else {
            let all = sorted_entries(space, Some(snapshot))?;
            for (_, money) in all.iter().filter(|(key, _)| key.starts_with(accounts.as_bytes())) {
                sum += parse(Some(money))?;
            }
        }
        numbers.push(parse(snapshot.get(space, format!("number/{writer}"))?.as_ref())?);
    }
    let commits = snapshot.get(sums, COMMITS)?.and_then(|sum| sum[..].try_into().ok());
    let commits = commits.map_or(0, i64::from_le_bytes);
    let mut all = WRITERS as i64;
    for writer in 0..WRITERS {
        all += parse(snapshot.get(&spaces[0], format!("number/{writer}"))?.as_ref())?;
    }
    ensure!(commits == all, "a snapshot shows {all} commits, and {commits} were counted");
    ensure!(numbers[0] == numbers[1], "a snapshot shows commit {} left and {} right", numbers[0], numbers[1]);
    ensure!(sum == MONEY, "in a snapshot of commit {} the accounts sum to {sum}", numbers[0]);
    let space = &spaces[writer % 2];
    let first = parse(snapshot.get(space, format!("first/{writer}"))?.as_ref())?;
    let second = parse(snapshot.get(space, format!("second/{writer}"))?.as_ref())?;
    let number = numbers[0];
    let ordered = number >= first && first >= second && second >= number - 1;
    ensure!(ordered, "a snapshot shows commit {number}, then {first}, then {second}");
    Ok(number)
}

/// As of the time of one of the last commits of a writer, its accounts must sum to the same, and both keyspaces must show that commit.
fn look_back(shared: &Shared, snapshot: &Snapshot, writer: usize, rng: &mut Rng) -> Outcome {
    let number = format!("number/{writer}");
    let mut commits = snapshot.history(&shared.spaces[0], &number, ..)?;
    let Some(commit) = commits.nth(rng.between(0, 20)).transpose()? else { return Ok(()) };
    let mut sum = 0;
    for space in &shared.spaces {
        let found = snapshot.get_at(space, &number, commit.time)?;
        let found = found.ok_or_else(|| Finding::new(format!("no {number} as of {:?}", commit.time)))?;
        let same = (found.time, &found.value, found.until) == (commit.time, &commit.value, commit.until);
        ensure!(same, "as of {:?} there are {found:?} and {commit:?}", commit.time);
        let accounts = format!("a/{writer}/")..format!("a/{writer}0");
        for entry in snapshot.range_at(space, commit.time, accounts)? {
            sum += parse(Some(&entry?.value))?;
        }
    }
    ensure!(sum == MONEY, "as of {:?} the accounts sum to {sum}", commit.time);
    Ok(())
}

/// The two copies of each account must be equal in one iterator, and in one `multi_get`.
fn one_view(shared: &Shared, writer: usize, rng: &mut Rng) -> Outcome {
    let space = rng.pick(&shared.spaces);
    if rng.chance(1, 2) {
        let account = rng.below(ACCOUNTS);
        let got =
            space.multi_get(&[format!("a/{writer}/{account:04}"), format!("z/{writer}/{account:04}")])?;
        ensure!(got[0] == got[1], "multi_get shows {:?} and {:?} of one account", got[0], got[1]);
        return Ok(());
    }
    let mut entries = sorted_entries(space, None)?;
    if has_order(space) && rng.chance(1, 2) {
        entries = space.iter().rev().collect::<cairn::Result<Vec<_>>>()?;
        entries.reverse();
    }
    ensure!(entries.windows(2).all(|w| w[0].0 < w[1].0), "an iterator is out of order");
    let part = |side: &[u8]| -> Vec<_> {
        entries.iter().filter(|e| e.0.starts_with(side)).map(|e| (e.0[1..].to_vec(), e.1.to_vec())).collect()
    };
    let (a, z) = (part(b"a/"), part(b"z/"));
    ensure!(a.len() as u64 == ACCOUNTS * WRITERS as u64, "an iterator shows {} accounts", a.len());
    let torn = a.iter().zip(&z).find(|(a, z)| a != z);
    ensure!(torn.is_none(), "an iterator shows two states of one account: {torn:?}");
    Ok(())
}

/// Moves a cursor forward and back; it must show one state.
fn cursor(shared: &Shared, writer: usize, rng: &mut Rng) -> Outcome {
    let ordered: Vec<&Keyspace> = shared.spaces.iter().filter(|space| has_order(space)).collect();
    if ordered.is_empty() {
        return Ok(());
    }
    let mut cursor = rng.pick(&ordered).cursor();
    for _ in 0..4 {
        let account = rng.below(ACCOUNTS);
        let mut copies = Vec::new();
        for side in ["a", "z"] {
            let key = format!("{side}/{writer}/{account:04}");
            match rng.below(3) {
                0 => cursor.seek(&key)?,
                1 => cursor.seek_for_prev(&key)?,
                _ => {
                    cursor.seek(&key)?;
                    cursor.prev()?;
                    if cursor.valid() { cursor.next()? } else { cursor.seek_to_first()? }
                }
            }
            ensure!(cursor.valid() && cursor.key() == key.as_bytes(), "a cursor does not find {key}");
            copies.push(cursor.value_slice());
        }
        ensure!(copies[0] == copies[1], "a cursor shows {:?} and {:?} of one account", copies[0], copies[1]);
    }
    Ok(())
}

/// A read must be at least as new as writes that returned before it, not newer than writes started before it
/// returned, and not older than earlier reads.
fn newest(shared: &Shared, writer: usize, seen: i64) -> Outcome<i64> {
    let low = shared.done[writer].load(Ordering::SeqCst) as i64;
    let got = parse(shared.spaces[writer % 2].get(format!("second/{writer}"))?.as_ref())?;
    let high = shared.begun[writer].load(Ordering::SeqCst) as i64;
    ensure!((low..=high).contains(&got), "a read between commits {low} and {high} gives {got}");
    ensure!(got >= seen, "a read gives {got} after {seen}");
    Ok(got)
}
