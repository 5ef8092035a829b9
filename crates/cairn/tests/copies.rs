//! Checkpoints and backups: what is in them, beside what the database goes on to do, and what failures and crashes leave.

use cairn::env::{Env, Fault, OpInfo, OpKind, Phase, Repeat, Rng, SimEnv, Survival};
use cairn::{
    BackupOptions, Backups, Database, Durability, Engine, ErrorKind, Keyspace, KeyspaceOptions, Options,
    Preset, Result,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What is in a keyspace.
#[derive(Clone, Default, PartialEq)]
struct Content(BTreeMap<Vec<u8>, Vec<u8>>);

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys, {:08x}", self.0.len(), number(&self.0))
    }
}

/// A number that two different contents hardly share.
fn number(content: &BTreeMap<Vec<u8>, Vec<u8>>) -> u32 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish() as u32
}

/// Memtables, logs and files are so small that a few hundred writes reach all layers.
fn options(threads: usize) -> Options {
    Options::default()
        .background_threads(threads)
        .memory_budget(1 << 20)
        .manifest_cap(4 << 10)
        .durability(Durability::Buffered)
}

/// A keyspace of each kind.
fn kinds() -> Vec<(&'static str, KeyspaceOptions)> {
    let with = |preset| KeyspaceOptions::preset(preset).memtable_bytes(32 << 10);
    vec![
        ("tree", with(Preset::Balanced)),
        ("values", with(Preset::Parallax)),
        ("history", with(Preset::Mneme)),
        ("hashed", with(Preset::HashLog)),
        ("rows", with(Preset::SsTable)),
    ]
}

fn open(env: &Arc<SimEnv>, dir: &str, threads: usize) -> Result<Database> {
    Database::open_in(env.clone(), dir, options(threads))
}

fn keyspaces(db: &Database) -> Vec<Keyspace> {
    kinds().into_iter().map(|(name, options)| db.keyspace(name, options).unwrap()).collect()
}

fn content(keyspace: &Keyspace) -> Content {
    let entries = keyspace.entries().map(|entry| entry.unwrap());
    Content(entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
}

fn contents(db: &Database) -> Vec<Content> {
    kinds().iter().map(|(name, _)| content(&db.open_keyspace(name).unwrap())).collect()
}

/// Random writes to all keyspaces, which their model follows.
fn write(rng: &mut Rng, db: &Database, keyspaces: &[Keyspace], model: &mut [Content], writes: usize) {
    for _ in 0..writes {
        let at = rng.below(keyspaces.len() as u64) as usize;
        let key = format!("key {:03}", rng.below(400)).into_bytes();
        match rng.below(100) {
            0 => keyspaces[at].flush().unwrap(),
            1 => keyspaces[at].compact().unwrap(),
            2 => db.wait_idle().unwrap(),
            3..20 => {
                keyspaces[at].delete(&key).unwrap();
                model[at].0.remove(&key);
            }
            _ => {
                let mut value = vec![0; [10, 100, 2_000][rng.below(3) as usize]];
                rng.fill(&mut value);
                keyspaces[at].put(&key, &value).unwrap();
                model[at].0.insert(key, value);
            }
        }
    }
}

fn assert_intact(env: &Arc<SimEnv>, dir: &str) {
    let report = cairn::check_in(env.clone(), dir, &mut |_| ()).unwrap();
    assert!(report.problems.is_empty(), "{dir}: {:?}", report.problems);
}

/// A write that hands over all writes before it to the operating system.
fn hand_over(db: &Database) -> Result<()> {
    let mut batch = db.batch();
    batch.delete(&db.open_keyspace("tree")?, "no such key");
    db.write(batch, Durability::Os)
}

/// What makes a copy: the database, or a reader beside it, for which a last write hands over all that was written.
fn source(sim: &Arc<SimEnv>, db: &Database, beside: bool) -> Result<Database> {
    if !beside {
        return Ok(db.clone());
    }
    hand_over(db)?;
    Database::builder().env(sim.clone()).options(options(0)).open_read_only("/db")
}

/// A small database with all that a copy needs: tables, values outside of them, hint files, logs.
fn small(sim: &Arc<SimEnv>, seed: u64) -> (Database, Vec<Keyspace>, Vec<Content>) {
    let db = open(sim, "/db", 0).unwrap();
    let keyspaces = keyspaces(&db);
    let mut model = vec![Content::default(); keyspaces.len()];
    let mut rng = Rng::new(seed);
    write(&mut rng, &db, &keyspaces, &mut model, 600);
    keyspaces.iter().for_each(|keyspace| keyspace.flush().unwrap());
    write(&mut rng, &db, &keyspaces, &mut model, 30);
    (db, keyspaces, model)
}

#[test]
fn checkpoints_keep_their_moment_while_both_databases_go_on() {
    let runs = [(1, 0), (2, 0), (3, 2), (4, 2), (5, 0), (6, 2)];
    for (seed, threads, beside) in
        runs.iter().flat_map(|run| [false, true].map(|beside| (run.0, run.1, beside)))
    {
        let sim = SimEnv::new(seed);
        sim.set_has_links(seed < 5);
        let mut rng = Rng::new(seed);
        let mut db = open(&sim, "/db", threads).unwrap();
        let mut model = vec![Content::default(); kinds().len()];
        let mut moments: Vec<(String, Vec<Content>)> = Vec::new();
        for round in 0..12 {
            let of_db = keyspaces(&db);
            write(&mut rng, &db, &of_db, &mut model, 400);
            let dir = format!("/copies/{round}");
            let report = source(&sim, &db, beside).unwrap().checkpoint(&dir).unwrap();
            assert!(report.files > 0 && report.bytes > 0, "{report:?}");
            match seed < 5 {
                // A reader copies the logs that recovery needs.
                true => assert_eq!(report.copied_bytes > 0, beside, "{report:?}"),
                false => assert_eq!(report.copied_bytes, report.bytes),
            }
            moments.push((dir, model.clone()));
            if round % 3 == 1 {
                // What a checkpoint writes does not reach the database.
                let (dir, moment) = &mut moments[rng.below(round + 1) as usize];
                let copy = open(&sim, dir, threads).unwrap();
                assert_eq!(contents(&copy), *moment, "seed {seed}, {dir}, written to");
                write(&mut rng, &copy, &keyspaces(&copy), moment, 300);
                copy.close().unwrap();
            }
            drop(of_db);
            if round % 4 == 3 {
                db.close().unwrap();
                db = open(&sim, "/db", threads).unwrap();
                assert_eq!(contents(&db), model, "seed {seed}, round {round}");
            }
        }
        db.close().unwrap();
        assert_intact(&sim, "/db");
        let sim = sim.crash_clone(Survival::Nothing, seed);
        for (dir, moment) in &moments[..moments.len() - 1] {
            assert_intact(&sim, dir);
            let copy = open(&sim, dir, threads).unwrap();
            assert_eq!(contents(&copy), *moment, "seed {seed}, {dir}");
        }
        assert_eq!(contents(&open(&sim, "/db", threads).unwrap()), model);
    }
}

#[test]
fn a_checkpoint_beside_writers_has_whole_batches_and_all_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open_with(dir.path().join("db"), options(2)).unwrap();
    let both =
        [kinds()[0].clone(), kinds()[3].clone()].map(|(name, options)| db.keyspace(name, options).unwrap());
    let (stop, acknowledged) = (AtomicBool::new(false), [(); 3].map(|()| AtomicU64::new(0)));
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for (thread, acknowledged) in acknowledged.iter().enumerate() {
            let (db, both, stop) = (&db, &both, &stop);
            scope.spawn(move || {
                for n in 1.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let mut batch = db.batch();
                    for keyspace in both {
                        batch.put(keyspace, format!("{thread}"), format!("{n:0100}"));
                        batch.put(keyspace, format!("{thread} {}", n % 1000), format!("{n:0100}"));
                    }
                    db.write(batch, Durability::Os).unwrap();
                    acknowledged.store(n, Ordering::SeqCst);
                }
            });
        }
        for n in 0..20 {
            let before = acknowledged.each_ref().map(|count| count.load(Ordering::SeqCst));
            let copy = dir.path().join(format!("copy {n}"));
            db.checkpoint(&copy).unwrap();
            let copy = Database::open_with(copy, options(0)).unwrap();
            let of_copy = ["tree", "hashed"].map(|name| copy.open_keyspace(name).unwrap());
            assert_eq!(content(&of_copy[0]), content(&of_copy[1]), "whole batches");
            for (thread, before) in before.into_iter().enumerate() {
                let count = of_copy[0].get(format!("{thread}")).unwrap();
                let count: u64 =
                    count.map_or(0, |count| std::str::from_utf8(&count).unwrap().parse().unwrap());
                assert!(count >= before, "{count} of {before}");
            }
        }
    });
}

/// What fails, or is cut off by a crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Checkpoint,
    /// By a reader.
    CheckpointBeside,
    Backup,
    /// By a reader.
    BackupBeside,
    Restore,
}

impl Step {
    fn run(self, db: &Database, sim: &Arc<SimEnv>) -> Result<()> {
        match self {
            Step::Checkpoint | Step::CheckpointBeside => {
                source(sim, db, self == Step::CheckpointBeside)?.checkpoint("/copy").map(|_| ())
            }
            Step::Backup | Step::BackupBeside => {
                let source = source(sim, db, self == Step::BackupBeside)?;
                source.backup_with("/backup", &BackupOptions::default().keep(2), &mut |_| ()).map(|_| ())
            }
            Step::Restore => {
                let backups = Backups::open_in(sim.clone(), "/backup")?;
                backups.restore(Some(2), "/copy", &mut |_| ()).map(|_| ())
            }
        }
    }
}

impl Step {
    fn is_backup(self) -> bool {
        matches!(self, Step::Backup | Step::BackupBeside)
    }
}

/// The contents of `/copy`; `None` if that is no database.
fn copied(sim: &Arc<SimEnv>) -> Option<Vec<Content>> {
    let create = Database::open_in(sim.clone(), "/copy", options(0).create_if_missing(false));
    match create {
        Ok(copy) => {
            let all = contents(&copy);
            copy.close().unwrap();
            Some(all)
        }
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
            None
        }
    }
}

/// The database `db` before a step, with two generations of a backup.
fn prepared(has_links: bool) -> (Arc<SimEnv>, Database, Vec<Keyspace>, Vec<Content>) {
    let sim = SimEnv::new(7);
    sim.set_has_links(has_links);
    let (db, keyspaces, mut model) = small(&sim, 7);
    db.backup("/backup").unwrap();
    write(&mut Rng::new(9), &db, &keyspaces, &mut model, 100);
    db.backup("/backup").unwrap();
    (sim, db, keyspaces, model)
}

/// What [`prepared`] had when it made its first backup.
fn first_moment() -> Vec<Content> {
    small(&SimEnv::new(7), 7).2
}

/// The generations of the backup that are there, each of which must be whole.
fn generations(sim: &Arc<SimEnv>) -> Vec<u64> {
    let backups = Backups::open_in(sim.clone(), "/backup").unwrap();
    assert_eq!(backups.verify(&mut |_| ()).unwrap(), []);
    backups.generations().unwrap().iter().map(|generation| generation.number).collect()
}

#[test]
fn a_failing_operation_leaves_no_copy_and_the_database_goes_on() {
    for (step, has_links, begun) in [
        (Step::Checkpoint, true, false),
        (Step::Checkpoint, false, true),
        (Step::CheckpointBeside, true, true),
        (Step::Backup, true, false),
        (Step::BackupBeside, true, false),
        (Step::Restore, true, true),
    ] {
        let prepared = || {
            let all = prepared(has_links);
            if begun {
                begin_copy(&all.0);
            }
            all
        };
        let (sim, db, ..) = prepared();
        let begin = sim.op_count();
        step.run(&db, &sim).unwrap();
        let operations = sim.op_count() - begin;
        let (mut failures, mut fatal) = (0, 0);
        for (n, fault) in (0..operations).flat_map(|n| [Fault::EIO, Fault::ENOSPC].map(|fault| (n, fault))) {
            let (sim, db, keyspaces, model) = prepared();
            db.sync().unwrap();
            sim.fail_op(sim.op_count() + n, fault, Repeat::Once);
            let failed = step.run(&db, &sim);
            sim.clear_faults();
            let what = format!("{step:?}, operation {n} of {operations}, {fault:?}: {failed:?}");
            failures += usize::from(failed.is_err());
            match step {
                // A failure to remove old generations comes after the new one.
                Step::Backup | Step::BackupBeside => {
                    assert!(generations(&sim).contains(&3) || failed.is_err(), "{what}")
                }
                _ => {
                    // Also after a power cut behind the failure: the whole copy or none, and a next attempt succeeds.
                    let left = sim.crash_clone(Survival::ALL[n as usize % 5], n);
                    let found = copied(&left);
                    assert!(found.is_none() && failed.is_err() || found == Some(model.clone()), "{what}");
                    if found.is_none() {
                        let db = open(&left, "/db", 0).unwrap();
                        step.run(&db, &left).unwrap_or_else(|e| panic!("after a power cut: {e}, {what}"));
                        assert_eq!(copied(&left), Some(model.clone()), "{what}");
                    }
                    assert_eq!(copied(&sim), failed.is_ok().then(|| model.clone()), "{what}");
                }
            }
            let mut with_more = model.clone();
            match keyspaces[0].put("more", "more") {
                Ok(()) => _ = with_more[0].0.insert(b"more".to_vec(), b"more".to_vec()),
                // A failed sync of the log or of its manifest ends writing, as any does.
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::ReadOnly, "{what}: {e}");
                    fatal += 1;
                    continue;
                }
            }
            assert_eq!(contents(&db), with_more, "{what}");
            if step.is_backup() || failed.is_err() {
                step.run(&db, &sim).unwrap_or_else(|e| panic!("again: {e}, {what}"));
                match step {
                    Step::Backup | Step::BackupBeside => assert_eq!(generations(&sim).len(), 2, "{what}"),
                    Step::Checkpoint | Step::CheckpointBeside => {
                        assert_eq!(copied(&sim), Some(with_more), "{what}")
                    }
                    Step::Restore => assert_eq!(copied(&sim), Some(model), "{what}"),
                }
            }
        }
        assert!(
            failures > operations as usize && fatal < operations / 4,
            "{failures}, {fatal} of {operations}"
        );
    }
}

#[test]
fn a_crash_leaves_the_whole_copy_or_none_and_the_database() {
    let steps = [Step::Checkpoint, Step::CheckpointBeside, Step::Backup, Step::BackupBeside, Step::Restore];
    for step in steps {
        let (sim, db, ..) = prepared(true);
        let begin = sim.op_count();
        step.run(&db, &sim).unwrap();
        let operations = sim.op_count() - begin;
        drop(db);
        let first = first_moment();
        let mut seen = BTreeMap::new();
        for n in 0..operations {
            let (sim, db, keyspaces, mut model) = prepared(true);
            let second = model.clone();
            if step.is_backup() {
                // So that the third generation is another one.
                keyspaces[0].put("third", "1").unwrap();
                model[0].0.insert(b"third".to_vec(), b"1".to_vec());
            }
            db.sync().unwrap();
            sim.crash_at(sim.op_count() + n);
            let _ = step.run(&db, &sim);
            for kind in Survival::ALL {
                let what = format!("{step:?}, operation {n} of {operations}, {kind:?}");
                let left = sim.crash_clone(kind, n);
                if step.is_backup() {
                    let found = generations(&left);
                    assert!(found.contains(&2), "{what}: {found:?}");
                    for number in &found {
                        let backups = Backups::open_in(left.clone(), "/backup").unwrap();
                        let to = format!("/restored {number}");
                        backups.restore(Some(*number), &to, &mut |_| ()).unwrap();
                        let restored = open(&left, &to, 0).unwrap();
                        let moment = [&first, &second, &model][*number as usize - 1];
                        assert_eq!(contents(&restored), *moment, "{what}, generation {number}");
                    }
                    *seen.entry(found.len()).or_insert(0) += 1;
                } else {
                    let found = copied(&left);
                    assert!(found.is_none() || found.as_ref() == Some(&model), "{what}");
                    *seen.entry(usize::from(found.is_some())).or_insert(0) += 1;
                }
                let db = open(&left, "/db", 0).unwrap();
                assert_eq!(contents(&db), model, "{what}");
                if !step.is_backup() && copied(&left).is_none() {
                    step.run(&db, &left).unwrap_or_else(|e| panic!("again: {e}, {what}"));
                    assert_eq!(copied(&left).as_ref(), Some(&model), "{what}");
                }
            }
        }
        assert!(seen.len() >= 2, "{seen:?}");
    }
}

/// Between any two files of a copy, everything else goes on: the copy has its moment all the same.
#[test]
fn other_calls_in_the_midst_of_a_copy_change_nothing_of_it() {
    let kinds_of_copies = [(true, false), (false, false), (true, true)];
    let runs = kinds_of_copies.iter().flat_map(|kind| [false, true].map(|beside| (kind.0, kind.1, beside)));
    for (has_links, is_backup, beside_writer) in runs {
        let sim = SimEnv::new(5);
        sim.set_has_links(has_links);
        let (db, keyspaces, model) = small(&sim, 5);
        let source = source(&sim, &db, beside_writer).unwrap();
        let mut rng = Rng::new(6);
        let (mut after, mut calls) = (model.clone(), 0);
        let mut beside = |_: &cairn::CopyProgress| {
            calls += 1;
            match calls % 6 {
                0 => write(&mut rng, &db, &keyspaces, &mut after, 60),
                1 => db.flush().unwrap(),
                2 => db.compact().unwrap(),
                3 => db.wait_idle().unwrap(),
                4 => {
                    let passing = db.keyspace("passing", kinds()[calls / 6 % 5].1.clone()).unwrap();
                    passing.put("a", [1; 5000]).unwrap();
                    passing.flush().unwrap();
                    db.drop_keyspace("passing").unwrap();
                }
                _ => drop(db.keyspace(&format!("new {calls}"), KeyspaceOptions::default()).unwrap()),
            }
        };
        match is_backup {
            true => _ = source.backup_with("/backup", &BackupOptions::default(), &mut beside).unwrap(),
            false => _ = source.checkpoint_with("/copy", &mut beside).unwrap(),
        }
        drop(source);
        assert!(calls > 12 && after != model, "{calls}");
        assert_eq!(contents(&db), after);
        if is_backup {
            let backups = Backups::open_in(sim.clone(), "/backup").unwrap();
            backups.restore(None, "/copy", &mut |_| ()).unwrap();
        }
        assert_intact(&sim, "/copy");
        let copy = open(&sim, "/copy", 0).unwrap();
        assert_eq!((contents(&copy), copy.keyspaces().len()), (model, kinds().len()));
        drop(keyspaces);
        db.close().unwrap();
        assert_intact(&sim, "/db");
        // What was kept for the copy is gone.
        let names = sim.list_files().iter().filter(|path| path.starts_with("/db")).count();
        open(&sim, "/db", 0).unwrap().close().unwrap();
        let left = sim.list_files().iter().filter(|path| path.starts_with("/db")).count();
        assert!(names <= left + 4, "{names} files, and {left} after an opening");
    }
}

/// Closing, or dropping the last handle but that of the copy, in the midst of a copy: it ends with its result or with `Closed`.
#[test]
fn closing_ends_a_copy_and_leaves_nothing_of_it() {
    for (is_backup, beside_writer) in [(false, false), (true, false), (false, true), (true, true)] {
        let sim = SimEnv::new(5);
        sim.set_has_links(false);
        let (writer, keyspaces, model) = small(&sim, 5);
        drop(keyspaces);
        let db = source(&sim, &writer, beside_writer).unwrap();
        let (begun, other) = (std::sync::Barrier::new(2), db.clone());
        let keyspace = db.open_keyspace("tree").unwrap();
        let mut calls = 0;
        let (copied, closed) = std::thread::scope(|scope| {
            let closing = scope.spawn(|| {
                begun.wait();
                other.close()
            });
            let mut beside = |_: &cairn::CopyProgress| {
                calls += 1;
                if calls == 3 {
                    begun.wait();
                    // Until closing has begun, which then waits for this call.
                    while keyspace.get("a").is_ok() {
                        std::thread::yield_now();
                    }
                }
            };
            let copied = match is_backup {
                true => db.backup_with("/backup", &BackupOptions::default(), &mut beside).map(|_| ()),
                false => db.checkpoint_with("/copy", &mut beside).map(|_| ()),
            };
            (copied, closing.join().unwrap())
        });
        closed.unwrap();
        assert_eq!(copied.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(db.checkpoint("/copy").unwrap_err().kind(), ErrorKind::Closed);
        match is_backup {
            true => assert!(generations(&sim).is_empty()),
            false => assert!(sim.list_files().iter().all(|path| !path.starts_with("/copy"))),
        }
        writer.close().unwrap();
        let db = open(&sim, "/db", 0).unwrap();
        assert_eq!(contents(&db), model);
        db.backup("/backup").unwrap();
        db.checkpoint("/copy").unwrap();
        assert_eq!(contents(&open(&sim, "/copy", 0).unwrap()), model);
    }
}

#[test]
fn backups_share_files_and_any_generation_is_restored() {
    let sim = SimEnv::new(3);
    let (db, keyspaces, mut model) = small(&sim, 3);
    let mut rng = Rng::new(5);
    let mut moments = Vec::new();
    for n in 0..6 {
        let generation = db.backup("/backup").unwrap();
        assert_eq!((generation.number, generation.source.to_str()), (n + 1, Some("/db")));
        assert!(n == 0 || generation.new_bytes < generation.bytes, "{generation:?}");
        moments.push(model.clone());
        write(&mut rng, &db, &keyspaces, &mut model, 100);
    }
    // Nothing has changed since: only the new, empty log is copied.
    let before = db.backup("/backup").unwrap();
    moments.push(model.clone());
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    sim.set_hook(Some(Box::new(move |op: OpInfo<'_>| {
        let is_table = op.path.starts_with("/db") && op.path.extension().is_some_and(|e| e == "tbl");
        let reads = op.kind == OpKind::Read && op.phase == Phase::Before && is_table;
        count.fetch_add(usize::from(reads), Ordering::SeqCst);
        None
    })));
    let same = db.backup("/backup").unwrap();
    moments.push(model.clone());
    sim.set_hook(None);
    assert_eq!(reads.load(Ordering::SeqCst), 0, "files that were copied are not read");
    assert!(same.new_bytes < 200 && same.bytes >= before.bytes, "{same:?}");
    let backups = Backups::open_in(sim.clone(), "/backup").unwrap();
    assert_eq!(db.backup("/backup").unwrap_err().kind(), ErrorKind::Locked);
    for (n, moment) in moments.iter().enumerate() {
        let to = format!("/restored {n}");
        backups.restore(Some(n as u64 + 1), &to, &mut |_| ()).unwrap();
        assert_intact(&sim, &to);
        assert_eq!(contents(&open(&sim, &to, 0).unwrap()), *moment, "{n}");
    }
    assert_eq!(backups.keep_newest(2).unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(backups.verify(&mut |_| ()).unwrap(), []);
    backups.restore(None, "/restored", &mut |_| ()).unwrap();
    assert_eq!(contents(&open(&sim, "/restored", 0).unwrap()), model);
    drop(backups);
    // A database that was restored goes on with its own files, which have the numbers of others of the first one.
    let restored = open(&sim, "/restored 1", 0).unwrap();
    let mut of_restored = moments[1].clone();
    write(&mut Rng::new(77), &restored, &self::keyspaces(&restored), &mut of_restored, 300);
    restored.backup("/backup").unwrap();
    write(&mut rng, &db, &keyspaces, &mut model, 300);
    db.backup("/backup").unwrap();
    let backups = Backups::open_in(sim.clone(), "/backup").unwrap();
    for (number, moment) in [(9, &of_restored), (10, &model)] {
        let to = format!("/again {number}");
        backups.restore(Some(number), &to, &mut |_| ()).unwrap();
        assert_eq!(contents(&open(&sim, &to, 0).unwrap()), *moment, "{number}");
    }
}

#[test]
fn damage_ends_a_backup_and_is_found_in_one() {
    let sim = SimEnv::new(3);
    let (db, keyspaces, mut model) = small(&sim, 3);
    db.backup("/backup").unwrap();
    write(&mut Rng::new(1), &db, &keyspaces, &mut model, 300);
    // A log that no collection has copied yet.
    let unordered =
        keyspaces.iter().position(|keyspace| keyspace.options().engine == Engine::HashLog).unwrap();
    for i in 0..300u32 {
        keyspaces[unordered].put(i.to_be_bytes(), [7; 100]).unwrap();
        model[unordered].0.insert(i.to_be_bytes().to_vec(), vec![7; 100]);
    }
    db.flush().unwrap();
    let newest = |ending: &str| {
        let mut paths = sim.list_files();
        paths.retain(|path| path.starts_with("/db") && path.to_str().unwrap().ends_with(ending));
        paths.sort();
        paths.pop().unwrap()
    };
    // Logs of many records: those that recovery needs, and those with values.
    let mut damaged = vec![(newest(".tbl"), 2), (newest(".hnt"), 2)];
    damaged.extend(sim.list_files().into_iter().filter_map(|path| {
        let is_log = path.starts_with("/db") && path.extension().is_some_and(|e| e == "log");
        (is_log && sim.read_file(&path).len() > 20_000).then_some((path, 200))
    }));
    let mut logs = 0;
    for (path, part) in damaged {
        // A log that nothing needs any more is removed after the next one is begun.
        if !sim.exists(&path).unwrap() {
            continue;
        }
        logs += usize::from(part == 200);
        let bytes = sim.read_file(&path);
        sim.flip_bit(&path, bytes.len() as u64 / part, 3);
        let error = db.backup("/backup").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        sim.write_file(&path, bytes);
    }
    assert!(logs > 0);
    assert_eq!(generations(&sim), [1]);
    db.backup("/backup").unwrap();
    let content = sim.list_files().into_iter().find(|path| path.starts_with("/backup/files")).unwrap();
    sim.flip_bit(&content, 30, 3);
    let backups = Backups::open_in(sim.clone(), "/backup").unwrap();
    let problems = backups.verify(&mut |_| ()).unwrap();
    assert!(problems.len() == 1 && content.ends_with(&problems[0].file), "{problems:?}");
    let error = backups.restore(Some(problems[0].generations[0]), "/to", &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(sim.list_files().iter().all(|path| !path.starts_with("/to")), "nothing is left");
    drop(backups);
    sim.remove_file(&content);
    db.backup("/backup").unwrap();
    let backups = Backups::open_in(sim.clone(), "/backup").unwrap();
    // The database has what the second generation has, so that one is whole again.
    assert!(backups.verify(&mut |_| ()).unwrap().iter().all(|problem| problem.generations == [1]));
    backups.restore(Some(2), "/to", &mut |_| ()).unwrap();
    assert_eq!(contents(&open(&sim, "/to", 0).unwrap()), model);
}

#[test]
fn other_directories_and_closed_databases_are_refused() {
    let sim = SimEnv::new(1);
    let (db, ..) = small(&sim, 1);
    sim.create_dir(Path::new("/mine")).unwrap();
    sim.write_file("/mine/text", "mine");
    let kind = |result: Result<()>| result.unwrap_err().kind();
    let both = |db: &Database, dir: &str| {
        let checkpoint = kind(db.checkpoint(dir).map(|_| ()));
        assert_eq!(kind(db.backup(dir).map(|_| ())), checkpoint, "{dir}");
        checkpoint
    };
    assert_eq!(both(&db, "/mine"), ErrorKind::AlreadyExists);
    for dir in ["/db", "/db/copy", "/"] {
        assert_eq!(both(&db, dir), ErrorKind::InvalidArgument, "{dir}");
    }
    db.checkpoint("/copy").unwrap();
    assert_eq!(both(&db, "/copy"), ErrorKind::AlreadyExists, "a database");
    assert_eq!(
        kind(db.backup_with("/b", &BackupOptions::default().keep(0), &mut |_| ()).map(|_| ())),
        ErrorKind::InvalidArgument
    );
    assert!(!sim.exists(Path::new("/b")).unwrap());
    db.backup("/b").unwrap();
    let backups = Backups::open_in(sim.clone(), "/b").unwrap();
    let restore = |number, to: &str| kind(backups.restore(number, to, &mut |_| ()).map(|_| ()));
    assert_eq!(restore(Some(2), "/c"), ErrorKind::NotFound);
    assert_eq!(restore(None, "/b/c"), ErrorKind::InvalidArgument);
    assert_eq!(restore(None, "/mine"), ErrorKind::AlreadyExists);
    assert_eq!(Backups::open_in(sim.clone(), "/mine").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(sim.read_file("/mine/text"), b"mine");
    let other = db.clone();
    db.close().unwrap();
    assert_eq!(both(&other, "/d"), ErrorKind::Closed);
}

/// Leaves `/copy` as an attempt that was cut off does.
fn begin_copy(sim: &SimEnv) {
    sim.create_dir(Path::new("/copy")).unwrap();
    for name in ["UNFINISHED", "LOCK", "000003.tbl", "wal-000002.log", "manifest-000009.tmp"] {
        sim.write_file(format!("/copy/{name}"), "not whole");
    }
}

/// A directory in which a copy was begun and cut off.
#[test]
fn an_unfinished_copy_is_no_database_and_is_begun_anew() {
    let sim = SimEnv::new(7);
    let (db, ..) = small(&sim, 7);
    begin_copy(&sim);
    let errors = [
        open(&sim, "/copy", 0).unwrap_err(),
        cairn::check_in(sim.clone(), "/copy", &mut |_| ()).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("has not been finished"), "{error}");
    }
    sim.write_file("/copy/mine.txt", "mine");
    db.checkpoint("/copy").unwrap();
    assert_eq!(contents(&open(&sim, "/copy", 0).unwrap()), contents(&db));
    assert!(sim.list_files().iter().all(|path| !path.ends_with("UNFINISHED")));
    assert_eq!(sim.read_file("/copy/mine.txt"), b"mine");
}

#[test]
fn an_empty_database_and_an_idle_one_are_copied() {
    let sim = SimEnv::new(1);
    let db = open(&sim, "/db", 0).unwrap();
    for n in 0..3 {
        let report = db.checkpoint(format!("/copy{n}")).unwrap();
        assert_eq!((report.files, report.bytes), (0, 0));
        assert!(open(&sim, &format!("/copy{n}"), 0).unwrap().keyspaces().is_empty());
    }
    assert!(sim.list_files().iter().filter(|path| path.starts_with("/db")).count() < 8);
    // A checkpoint of a checkpoint.
    let copy = open(&sim, "/copy0", 0).unwrap();
    copy.keyspace("k", KeyspaceOptions::default()).unwrap().put("a", "1").unwrap();
    copy.checkpoint("/second").unwrap();
    let second = open(&sim, "/second", 0).unwrap();
    assert_eq!(second.open_keyspace("k").unwrap().get("a").unwrap().unwrap(), "1");
}

/// Logs end, are needed by some keyspaces and not by others, and are removed, while a reader follows. Each of its moments can be copied, also later,
/// and a copy is durable although the writer has not synced what it has.
#[test]
fn a_reader_that_follows_copies_its_moments() {
    for (seed, threads) in [(1, 0), (2, 2), (3, 0)] {
        let sim = SimEnv::new(seed);
        let mut rng = Rng::new(seed);
        let db = open(&sim, "/db", threads).unwrap();
        let (of_db, mut model) = (keyspaces(&db), vec![Content::default(); kinds().len()]);
        let mut reader = source(&sim, &db, true).unwrap();
        let mut held: Vec<(Database, Vec<Content>)> = Vec::new();
        let mut linked = 0;
        for round in 0..60 {
            write(&mut rng, &db, &of_db, &mut model, 40);
            hand_over(&db).unwrap();
            reader = reader.refresh().unwrap();
            held.push((reader.clone(), model.clone()));
            let at = rng.below(held.len() as u64) as usize;
            let (moment, of_moment) = &held[at];
            let dir = format!("/copies/{round}");
            let report = moment.checkpoint(&dir).unwrap();
            let names = sim.list(Path::new(&dir)).unwrap();
            let is_linked = |name: &&String| sim.name_count(&Path::new(&dir).join(name)).unwrap() > 1;
            linked += names.iter().filter(is_linked).count();
            let copied = names.iter().filter(|name| name.ends_with(".log") && !is_linked(name));
            let copied: u64 = copied.map(|name| sim.len(&Path::new(&dir).join(name)).unwrap()).sum();
            assert_eq!(report.copied_bytes, copied, "seed {seed}, round {round}: {report:?}");
            let left = sim.crash_clone(Survival::Nothing, round);
            assert_intact(&left, &dir);
            let copy = open(&left, &dir, 0).unwrap();
            assert_eq!(contents(&copy), *of_moment, "seed {seed}, round {round}, held since {at}");
            copy.close().unwrap();
            sim.list_files()
                .iter()
                .filter(|path| path.starts_with(&dir))
                .for_each(|path| sim.remove_file(path));
            if held.len() > 3 {
                held.swap_remove(at);
            }
        }
        assert!(linked > 500, "{linked}");
    }
}

/// A file with values goes when nothing refers to it any more. No edit says so at once.
#[test]
fn a_reader_copies_no_values_that_nothing_refers_to() {
    let sim = SimEnv::new(3);
    let open = || {
        let options = Options::default().background_threads(0).memory_budget(1 << 20);
        Database::open_in(sim.clone(), "/db", options).unwrap()
    };
    let options = KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(32 << 10);
    let db = open();
    for name in ["kept", "passing"] {
        let keyspace = db.keyspace(name, options.clone()).unwrap();
        (0..20).for_each(|n| keyspace.put(n.to_string(), [n; 700]).unwrap());
        keyspace.flush().unwrap();
        keyspace.put("last", [9; 700]).unwrap();
    }
    db.close().unwrap();
    // An opening moves values out of the log that it has replayed.
    let db = open();
    let passing = db.open_keyspace("passing").unwrap();
    passing.put("more", [8; 700]).unwrap();
    passing.flush().unwrap();
    drop(passing);
    let value_files = || {
        let files = sim.list_files();
        files
            .iter()
            .filter(|path| path.starts_with("/db") && path.extension().is_some_and(|e| e == "val"))
            .count()
    };
    let before = value_files();
    db.drop_keyspace("passing").unwrap();
    db.sync().unwrap();
    assert!(value_files() < before, "{before} files with values");
    let reader = Database::builder().env(sim.clone()).open_read_only("/db").unwrap();
    reader.checkpoint("/copy").unwrap();
    reader.backup("/backup").unwrap();
    Backups::open_in(sim.clone(), "/backup").unwrap().restore(None, "/restored", &mut |_| ()).unwrap();
    for dir in ["/copy", "/restored"] {
        assert_intact(&sim, dir);
        let copy = Database::open_in(sim.clone(), dir, Options::default()).unwrap();
        assert_eq!(copy.keyspaces(), ["kept"]);
        let kept = copy.open_keyspace("kept").unwrap();
        assert_eq!(kept.get("7").unwrap().unwrap(), [7; 700]);
        assert_eq!((kept.get("last").unwrap().unwrap(), kept.entries().count()), ([9; 700][..].into(), 21));
    }
}

/// A writer takes records back when a later one of their group could not be written.
#[test]
fn a_moment_with_records_that_were_taken_back_is_not_copied() {
    let sim = SimEnv::new(3);
    let (db, keyspaces, _) = small(&sim, 3);
    let reader = source(&sim, &db, true).unwrap();
    let mut logs = sim.list_files();
    logs.retain(|path| path.starts_with("/db") && path.extension().is_some_and(|e| e == "log"));
    let log = logs.into_iter().max().unwrap();
    let bytes = sim.read_file(&log);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The last record has 29 bytes.
    let shorter = bytes[..end - 30].to_vec();
    let overwritten = [&shorter[..], &[0; 60]].concat();
    for taken_back in [shorter, overwritten] {
        sim.write_file(&log, taken_back);
        for copied in [reader.checkpoint("/copy").map(drop), reader.backup("/backup").map(drop)] {
            let error = copied.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.to_string().contains("taken back"), "{error}");
        }
        assert!(sim.list_files().iter().all(|path| !path.starts_with("/copy")));
        assert!(generations(&sim).is_empty());
    }
    sim.write_file(&log, bytes);
    reader.checkpoint("/copy").unwrap();
    reader.backup("/backup").unwrap();
    drop(keyspaces);
}

/// What is copied is read twice, and nothing else: each read waits for its time, by the clock of the environment.
#[test]
fn a_backup_keeps_to_its_rate() {
    let sim = SimEnv::new(3);
    let (db, keyspaces, mut model) = small(&sim, 3);
    let timed = |rate| {
        let before = sim.monotonic();
        let made = db.backup_with("/backup", &BackupOptions::default().rate(rate), &mut |_| ()).unwrap();
        (made, (sim.monotonic() - before).as_secs_f64())
    };
    let rate = 100_000;
    let (made, seconds) = timed(rate);
    let twice = 2.0 * made.bytes as f64 / rate as f64;
    // Headers and filters are not counted, and a tenth of a second may be ahead.
    assert!((0.8 * twice - 0.2..=twice).contains(&seconds), "{seconds} s of {twice}");
    write(&mut Rng::new(4), &db, &keyspaces, &mut model, 30);
    let (made, seconds) = timed(rate);
    let twice = 2.0 * made.new_bytes as f64 / rate as f64;
    assert!(seconds <= twice && made.new_bytes < made.bytes, "{seconds} s of {twice}");
    assert!(timed(0).1 < 0.1);
}
