//! One lifetime: from the open to the close, with held objects that outlive it; and the next opening, which must find
//! all data while threads of the previous one still call it.

use super::actor::{Actor, Handles};
use super::child;
use super::gate::Gate;
use super::ledger::{Content, KEYS, Ledger, NAMES, State, bytes_of, key, prefix, read};
use super::site::{Site, THREADS, Tally, keyspace_options, options};
use super::stage::{Ending, Stage};
use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::panicked;
use crate::random::{Rng, derive};
use cairn::env::Survival;
use cairn::{Database, Durability, ErrorKind, FilterDecision, FilterEntry, Keyspace, Options, Retention};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of calls of all threads before the close.
const MAX_CALLS: u64 = 500;

/// How many times the files are checked until they are as expected.
const MAX_LOOKS: usize = 2000;

/// An open database.
struct Opening {
    gate: Arc<Gate>,
    db: Database,
    spaces: [Keyspace; 2],
}

impl Opening {
    fn new(site: &Site, rng: &mut Rng) -> Outcome<Opening> {
        let gate = Gate::new(site.disk.clone(), Some(rng.next_u64()));
        let of_keyspaces = keyspace_options(&mut Rng::new(site.seed));
        let builder = Database::builder().env(gate.clone()).options(options(rng.next_u64()));
        let builder = match of_keyspaces.history == Retention::None && rng.chance(1, 2) {
            true => builder.compaction_filter(NAMES[0], rewrite),
            false => builder,
        };
        let db = builder.open(&site.path)?;
        // A keyspace that exists may have been altered.
        let space = |name| match db.open_keyspace(name) {
            Err(e) if e.kind() == ErrorKind::NotFound => db.create_keyspace(name, of_keyspaces.clone()),
            opened => opened,
        };
        let spaces = [space(NAMES[0])?, space(NAMES[1])?];
        Ok(Opening { gate, db, spaces })
    }
}

/// A compaction filter that changes nothing, but says so of half of the entries only.
fn rewrite(entry: &FilterEntry<'_>) -> cairn::Result<FilterDecision> {
    Ok(match entry.key().last().is_some_and(|byte| byte % 2 == 0) {
        true => FilterDecision::Replace(entry.value()?.to_vec()),
        false => FilterDecision::Keep,
    })
}

/// Runs a lifetime. `ledgers` are those of all threads and of the main thread; they are updated.
pub fn run(site: &Site, ledgers: &mut [Ledger], rng: &mut Rng, tally: &Tally) -> Outcome {
    let first = Opening::new(site, rng).map_err(|f| f.context("opening"))?;
    let ending = Ending::draw(rng);
    let stage = Stage::new(first.gate.clone(), ending, rng.below(MAX_CALLS), THREADS);
    let seed = rng.next_u64();
    // All actors have their handles before the first one runs: it may close the database at once.
    let actors = ledgers[..THREADS].iter().map(|ledger| {
        let handles = Handles::new(&first.db, ledger)?;
        let rng = Rng::new(derive(seed, ledger.thread as u64));
        Ok(Actor::new(stage.clone(), handles, ledger.clone(), rng))
    });
    let actors = actors.collect::<Outcome<Vec<_>>>()?;
    let threads: Vec<_> = actors.into_iter().map(|actor| std::thread::spawn(move || actor.run())).collect();
    let lived = end_and_go_on(site, first, &stage, &threads, ledgers, rng, tally);
    stage.end();
    stage.next.lock().unwrap_or_else(|e| e.into_inner()).take();
    let (next, ledgers) = match lived {
        Ok(Some(lived)) => lived,
        Ok(None) => return join(threads, tally).and(Err(Finding::new("a thread ended too early"))),
        // The findings of the threads say more, but a thread may hang: take those that have ended.
        Err(f) => {
            std::thread::sleep(Duration::from_millis(20));
            let ended = threads.into_iter().filter(|thread| thread.is_finished()).collect();
            let more = join(ended, tally).err().map_or_else(String::new, |f| format!("; and {f}"));
            return Err(Finding::new(format!("{f}{more}")).context(format_args!("{ending:?}")));
        }
    };
    let place = |f: Finding| f.context(format_args!("{ending:?}"));
    join(threads, tally).map_err(place)?;
    stage.gate.check().map_err(place)?;
    tally.lifetimes.fetch_add(1, Ordering::Relaxed);
    tally.calls.fetch_add(stage.calls.load(Ordering::Relaxed), Ordering::Relaxed);
    // All handles of the first opening are dropped now. That must not have affected the second one.
    let whole = verify(&next, ledgers).and_then(|()| files(site, &next.db));
    whole.map_err(|f| place(f.context("when nothing was left of the opening before")))?;
    let Opening { gate, db, spaces } = next;
    match rng.chance(1, 2) {
        true => db.close()?,
        false => drop((db, spaces)),
    }
    ensure!(gate.is_over(), "the last handle is gone, and the lock is held");
    gate.check()
}

/// Ends an opening while its threads run, and verifies and uses the next one. `None` if a thread failed before.
#[allow(clippy::type_complexity)]
fn end_and_go_on<'a>(
    site: &Site,
    first: Opening,
    stage: &Stage,
    threads: &[JoinHandle<Outcome<u64>>],
    ledgers: &'a mut [Ledger],
    rng: &mut Rng,
    tally: &Tally,
) -> Outcome<Option<(Opening, &'a mut [Ledger])>> {
    let failed = || threads.iter().any(JoinHandle::is_finished);
    if !end(first, stage, &failed)? {
        return Ok(None);
    }
    stage.gate.check()?;
    let crashed = copy(site, rng)?;
    let elsewhere = match &site.program {
        Some(program) if rng.chance(1, 3) => {
            tally.processes.fetch_add(1, Ordering::Relaxed);
            Some(child::visit(program, &site.path, rng.next_u64())?)
        }
        _ => None,
    };
    let next = Opening::new(site, rng).map_err(|f| f.context("opening again"))?;
    *stage.next.lock().unwrap_or_else(|e| e.into_inner()) = Some(next.spaces.clone());
    let found = read(&next.db).map_err(|f| f.context("reading after opening again"))?;
    let Some(known) = stage.ledgers(failed)? else { return Ok(None) };
    ledgers[..THREADS].clone_from_slice(&known);
    let all = [
        ("opened again", Some(&found)),
        ("in another process", elsewhere.as_ref()),
        ("after a power cut", crashed.as_ref()),
    ];
    for ledger in ledgers.iter() {
        for (how, state) in all {
            state.map_or(Ok(()), |state| ledger.compare(state)).map_err(|f| f.context(how))?;
        }
    }
    whole_batches(&found)?;
    go_on(&next, &mut ledgers[THREADS], rng).map_err(|f| f.context("going on"))?;
    verify(&next, ledgers).map_err(|f| f.context("beside late calls"))?;
    files(site, &next.db).map_err(|f| f.context("beside late calls"))?;
    stage.gate.check()?;
    Ok(Some((next, ledgers)))
}

/// Ends an opening in its chosen way. `false` if a thread failed before.
fn end(first: Opening, stage: &Stage, failed: &impl Fn() -> bool) -> Outcome<bool> {
    let Opening { db, spaces, .. } = first;
    drop(spaces);
    let wait = |until: &dyn Fn() -> bool| {
        while !until() && !failed() {
            std::thread::sleep(Duration::from_micros(30));
        }
        !failed()
    };
    if stage.ending == Ending::DropHandles {
        drop(db);
        if !wait(&|| stage.is_due()) {
            return Ok(false);
        }
        stage.begin_to_close();
        let gone = wait(&|| stage.all_dropped());
        return if gone { stage.note_closed().map(|()| true) } else { Ok(false) };
    }
    if stage.ending.is_mine() {
        if !wait(&|| stage.is_due()) {
            return Ok(false);
        }
        stage.close(db)?;
        return Ok(true);
    }
    drop(db);
    Ok(wait(&|| stage.is_closed()))
}

/// The content after a power failure now: closing has made all writes durable.
fn copy(site: &Site, rng: &mut Rng) -> Outcome<Option<State>> {
    let Some(sim) = site.sim.as_ref().filter(|_| rng.chance(1, 3)) else { return Ok(None) };
    let copy = sim.crash_clone(Survival::Nothing, rng.next_u64());
    let options = Options::default().background_threads(0).memory_budget(1 << 20);
    let db = Database::open_in(copy, &site.path, options)
        .map_err(|e| Finding::from(e).context("after a power cut"))?;
    read(&db).map(Some)
}

/// Pairs must be equal in both keyspaces.
fn whole_batches(state: &State) -> Outcome {
    let pairs = |name: &str| -> Content {
        let all = state.get(name).into_iter().flatten();
        all.filter(|(key, _)| key.contains("/pair/")).map(|(k, n)| (k.clone(), *n)).collect()
    };
    let [left, right] = NAMES.map(pairs);
    ensure!(left == right, "half a batch: {left:?} left and {right:?} right");
    Ok(())
}

/// Writes and compacts enough for files to be deleted.
fn go_on(next: &Opening, ledger: &mut Ledger, rng: &mut Rng) -> Outcome {
    for round in 0..2 {
        for _ in 0..12 {
            let (which, key) = (rng.below(2) as usize, key(ledger.thread, rng.below(KEYS)));
            let number = ledger.new_number();
            next.spaces[which].put_with(&key, bytes_of(number), Durability::Os)?;
            ledger.content_mut(NAMES[which]).insert(key, number);
        }
        next.db.flush()?;
        if round == 1 || rng.chance(1, 2) {
            next.db.compact()?;
        }
    }
    let created = next.db.create_keyspace("passing", keyspace_options(rng))?;
    created.put(prefix(ledger.thread), "1")?;
    next.db.drop_keyspace("passing")?;
    Ok(())
}

/// All expected data exists, all checksums are right, and no batch is torn.
fn verify(opening: &Opening, ledgers: &[Ledger]) -> Outcome {
    let found = read(&opening.db)?;
    ledgers.iter().try_for_each(|ledger| ledger.compare(&found))?;
    whole_batches(&found)?;
    let report = opening.db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "check finds {:?}", report.problems);
    let stats = opening.db.stats();
    ensure!(stats.background_error.is_none(), "in the background: {:?}", stats.background_error);
    Ok(())
}

/// The directory must have the tables that the keyspaces name, one manifest, the logs, and the other named files.
fn files(site: &Site, db: &Database) -> Outcome {
    db.flush()?;
    db.wait_idle()?;
    let mut finding = None;
    for _ in 0..MAX_LOOKS {
        match look_at_files(site, db) {
            Ok(()) => return Ok(()),
            // A background thread may be changing files.
            Err(f) => finding = Some(f),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    finding.map_or(Ok(()), Err)
}

fn look_at_files(site: &Site, db: &Database) -> Outcome {
    let mut named = BTreeSet::new();
    // Those of older versions are counted only, in each keyspace that has them.
    let stats = db.stats();
    let histories = || stats.keyspaces.iter().filter_map(|keyspace| keyspace.history.as_ref());
    let older: usize = histories().flat_map(|tree| &tree.levels).map(|level| level.tables).sum();
    let shared = histories().any(|tree| tree.shared_bytes > 0);
    for name in db.keyspaces() {
        for guard in db.open_keyspace(&name)?.guards() {
            named.extend(guard.tables.iter().map(|table| format!("{:06}.tbl", table.number)));
        }
    }
    let names = site.disk.list(&site.path)?;
    let (mut tables, mut manifests, mut logs, mut value_files, mut hints) = (BTreeSet::new(), 0, 0, 0, 0);
    for name in &names {
        match name.as_str() {
            "LOCK" | "RESERVE" => {}
            name if name.ends_with(".tbl") => drop(tables.insert(name.to_owned())),
            name if name.starts_with("wal-") && name.ends_with(".log") => logs += 1,
            name if name.starts_with("wal-") && name.ends_with(".spare") => {}
            name if name.ends_with(".val") => value_files += 1,
            name if name.ends_with(".hnt") => hints += 1,
            name if name.starts_with("manifest-") && !name.ends_with(".tmp") => manifests += 1,
            name => return Err(Finding::new(format!("{name} is no file of a database: {names:?}"))),
        }
    }
    ensure!(
        tables.is_superset(&named)
            && (tables.len() == named.len() + older || shared && tables.len() < named.len() + older),
        "the directory has tables {tables:?}, and named are {named:?} and {older} of older versions"
    );
    ensure!(manifests == 1, "there are {manifests} manifests: {names:?}");
    let stats = db.stats();
    let of_indexes = stats.keyspaces.iter().filter_map(|keyspace| keyspace.hash_log.as_ref());
    let known_hints: usize = of_indexes.map(|index| index.hint_files).sum();
    let known = (stats.log.segments + stats.values.logs, stats.values.files, known_hints);
    let found = (logs, value_files, hints);
    ensure!(
        found == known,
        "there are {found:?} logs, value files and hint files, and {known:?} are known: {names:?}"
    );
    Ok(())
}

/// Waits for all threads. Returns the first finding.
fn join(threads: Vec<JoinHandle<Outcome<u64>>>, tally: &Tally) -> Outcome {
    let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|p| Err(panicked(&*p))));
    let ends = ends.collect::<Vec<_>>();
    for end in ends {
        tally.late_calls.fetch_add(end?, Ordering::Relaxed);
    }
    Ok(())
}
