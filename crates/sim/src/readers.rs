//! Readers beside a writer, compared with maps of their moments: under flushes, compactions, collections, recycled logs, bulk loads, keyspaces that
//! come and go, reopening of the writer, and power cuts.
//!
//! A moment must show what was there when it was read, for as long as it is held, and so must a copy of it; and all that had been handed to the operating
//! system before.
//! Beside a writer in another thread it must be a prefix of the commits, in all keyspaces together. After a power cut a reader must see what
//! the recovery of the writer finds later.

use crate::copies::{Moment, compare, contents, draw_value, open_keyspaces, options, write};
use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use crate::ordering::has_order;
use crate::random::{Draw, Rng};
use crate::sets::{OptionSet, option_sets};
use cairn::env::{Env, SimEnv, Survival};
use cairn::{Database, Durability, IngestOptions, Keyspace, KeyspaceOptions, Preset, Retention};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls of a run.
const STEPS: u64 = 2000;

const DB: &str = "/db";

/// Moments that are held at most.
const HELD: usize = 4;

/// Keys of the counting writer.
const COUNTED: u64 = 40;

/// The keyspace that comes and goes.
const PASSING: &str = "passing";

/// The n-th job. It counts moments that were compared.
pub fn job(n: u64) -> Job {
    let replay = format!("cargo run --release -p sim -- readers --seed {n}");
    Job { name: format!("readers, seed {n}"), replay, run: Box::new(move || run(n)) }
}

/// Runs the n-th job. Returns the number of moments that were compared.
pub fn run(n: u64) -> Outcome<u64> {
    let mut rng = Rng::new(n);
    let sets: Vec<OptionSet> = option_sets().into_iter().filter(|set| !set.real).collect();
    let set = sets[n as usize % sets.len()].clone();
    let name = set.name;
    let world = World::open(SimEnv::new(n), set);
    let run = world.and_then(|mut world| {
        for _ in 0..STEPS {
            world.step(&mut rng)?;
        }
        world.finish()?;
        Ok(world.compared)
    });
    run.map_err(|f| f.context(format_args!("option set {name}")))
}

struct World {
    env: Arc<SimEnv>,
    set: OptionSet,
    db: Database,
    keyspaces: Vec<Keyspace>,
    model: Moment,
    /// Of the keyspace that comes and goes, while it is there.
    passing: Option<u64>,
    reader: Database,
    held: Vec<Held>,
    /// The newest number of the counting writer.
    counted: u64,
    compared: u64,
}

/// A moment, and what it must show.
struct Held {
    db: Database,
    model: Moment,
    passing: Option<u64>,
}

impl Held {
    fn compare_with(&self, db: &Database, set: &OptionSet) -> Outcome {
        let keyspaces = opened(db, set)?;
        compare("a moment that is held", &contents(&keyspaces)?, &self.model)?;
        let passing = passing(db)?;
        ensure!(passing == self.passing, "{PASSING} has {passing:?} instead of {:?}", self.passing);
        Ok(())
    }

    fn compare(&self, env: &Arc<SimEnv>, set: &OptionSet, rng: &mut Rng) -> Outcome {
        self.compare_with(&self.db, set)?;
        if rng.chance(1, 8) {
            let dir = format!("/copy-{}", rng.next_u64());
            self.db.checkpoint(&dir)?;
            let report = cairn::check_in(env.clone(), &dir, &mut |_| ())?;
            ensure!(report.problems.is_empty(), "the copy of a moment is damaged: {:?}", report.problems);
            let copy = Database::open_in(env.clone(), &dir, options(set).create_if_missing(false))?;
            self.compare_with(&copy, set).map_err(|f| f.context("the copy of a moment"))?;
            copy.close()?;
            env.list_files()
                .iter()
                .filter(|path| path.starts_with(&dir))
                .for_each(|path| env.remove_file(path));
        }
        if rng.chance(1, 8) {
            let report = self.db.check(&mut |_| ())?;
            ensure!(report.problems.is_empty(), "a moment is damaged: {:?}", report.problems);
        }
        Ok(())
    }
}

/// The keyspaces of a reader, which creates none.
fn opened(db: &Database, set: &OptionSet) -> Outcome<Vec<Keyspace>> {
    let open = |n| db.open_keyspace(&format!("k{n}"));
    Ok((0..set.keyspaces.len()).map(open).collect::<cairn::Result<_>>()?)
}

/// The value in the keyspace that comes and goes.
fn passing(db: &Database) -> Outcome<Option<u64>> {
    match db.open_keyspace(PASSING) {
        Err(e) if e.kind() == cairn::ErrorKind::NotFound => Ok(None),
        keyspace => {
            let value = keyspace?.get("n")?;
            Ok(Some(value.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap_or(0))))
        }
    }
}

fn open_reader(env: &Arc<SimEnv>, set: &OptionSet) -> cairn::Result<Database> {
    Database::builder().env(env.clone()).options(options(set)).open_read_only(DB)
}

impl World {
    fn open(env: Arc<SimEnv>, set: OptionSet) -> Outcome<World> {
        let db = Database::open_in(env.clone(), DB, options(&set))?;
        let keyspaces = open_keyspaces(&db, &set)?;
        let model = vec![BTreeMap::new(); keyspaces.len()];
        let reader = open_reader(&env, &set)?;
        let held = Vec::new();
        Ok(World { env, set, db, keyspaces, model, passing: None, reader, held, counted: 0, compared: 0 })
    }

    fn step(&mut self, rng: &mut Rng) -> Outcome {
        match rng.below(1000) {
            0..820 => write(&self.db, &self.keyspaces, &mut self.model, rng),
            820..850 => Ok(rng.pick(&self.keyspaces).flush()?),
            850..860 => Ok(rng.pick(&self.keyspaces).compact()?),
            860..865 => Ok(self.db.wait_idle()?),
            865..870 => self.load(rng),
            870..880 => self.pass(rng),
            880..940 => self.refresh(rng),
            940..955 => self.refresh_beside_buffered_writes(rng),
            955..985 => self.compare_held(rng),
            985..990 => self.count_beside(rng),
            990..994 => self.reopen(),
            _ => self.cut_off(rng),
        }
    }

    /// Opens the writer anew. Moments that are held stay.
    fn reopen(&mut self) -> Outcome {
        self.keyspaces.clear();
        self.db.clone().close()?;
        self.db = Database::open_in(self.env.clone(), DB, options(&self.set))?;
        self.keyspaces = open_keyspaces(&self.db, &self.set)?;
        compare("the database, reopened", &contents(&self.keyspaces)?, &self.model)
    }

    fn load(&mut self, rng: &mut Rng) -> Outcome {
        let mut load = self.db.ingest(IngestOptions::default().unsorted(0));
        for (at, keyspace) in self.keyspaces.iter().enumerate() {
            if !takes_loads(keyspace) {
                continue;
            }
            for _ in 0..rng.below(60) {
                let (key, value) = (format!("{:04}", rng.below(300)).into_bytes(), draw_value(keyspace, rng));
                load.put(keyspace, &key, &value)?;
                self.model[at].insert(key, value);
            }
        }
        Ok(load.commit().map(drop)?)
    }

    /// Creates, changes or drops a keyspace.
    fn pass(&mut self, rng: &mut Rng) -> Outcome {
        match self.passing {
            Some(n) if n % 3 == 2 => {
                self.db.drop_keyspace(PASSING)?;
                self.passing = None;
            }
            _ => {
                let n = self.passing.map_or(0, |n| n + 1);
                let options = match self.passing {
                    None => KeyspaceOptions::preset(*rng.pick(&[Preset::HashLog, Preset::Parallax])),
                    Some(_) => self.db.open_keyspace(PASSING)?.options(),
                };
                let keyspace = self.db.keyspace(PASSING, options)?;
                keyspace.put_with("n", n.to_string(), Durability::Os)?;
                self.passing = Some(n);
            }
        }
        Ok(())
    }

    /// A new moment, which has everything.
    fn refresh(&mut self, rng: &mut Rng) -> Outcome {
        self.db.sync()?;
        self.reader = match rng.below(8) {
            0 => open_reader(&self.env, &self.set)?,
            1 if !self.held.is_empty() => rng.pick(&self.held).db.refresh()?,
            _ => self.reader.refresh()?,
        };
        let held = Held { db: self.reader.clone(), model: self.model.clone(), passing: self.passing };
        held.compare(&self.env, &self.set, rng)?;
        self.compared += 1;
        self.held.push(held);
        if self.held.len() > HELD {
            self.held.swap_remove(rng.below(HELD as u64) as usize);
        }
        Ok(())
    }

    /// A new moment beside writes that may be in the memory of the writer only: it is a prefix of them.
    fn refresh_beside_buffered_writes(&mut self, rng: &mut Rng) -> Outcome {
        self.db.sync()?;
        let mut moments = BTreeMap::from([(self.db.stats().last_seq, self.model.clone())]);
        for _ in 0..rng.between(1, 12) {
            write(&self.db, &self.keyspaces, &mut self.model, rng)?;
            moments.insert(self.db.stats().last_seq, self.model.clone());
        }
        self.reader = self.reader.refresh()?;
        let seq = self.reader.stats().last_seq;
        let model = moments.remove(&seq);
        let model =
            model.ok_or_else(|| Finding::new(format!("no commit ends at {seq}, where a moment is")))?;
        self.compared += 1;
        Held { db: self.reader.clone(), model, passing: self.passing }.compare(&self.env, &self.set, rng)
    }

    fn compare_held(&mut self, rng: &mut Rng) -> Outcome {
        for held in &self.held {
            held.compare(&self.env, &self.set, rng)?;
        }
        self.compared += self.held.len() as u64;
        self.held.retain(|_| rng.chance(2, 3));
        Ok(())
    }

    /// Moments beside a thread that writes: commit `n` puts `n` under one of some keys, in all keyspaces, in turn.
    fn count_beside(&mut self, rng: &mut Rng) -> Outcome {
        let (first, count) = (self.counted + 1, 50 + rng.below(550));
        let returned = AtomicU64::new(self.counted);
        // The first commits of all may be in the memory of the writer.
        self.db.sync()?;
        let (db, keyspaces, reader) = (&self.db, &self.keyspaces, &mut self.reader);
        let (set, mut seen) = (&self.set, self.counted);
        let mut compared = 0;
        let takes_loads = keyspaces.iter().all(takes_loads) && rng.chance(1, 2);
        let flush_every = *rng.pick(&[10, 50, 1000]);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in first..first + count {
                    if takes_loads && n % 7 == 0 {
                        let mut load = db.ingest(IngestOptions::default());
                        for keyspace in keyspaces {
                            load.put(keyspace, counted_key(n), counted_value(keyspace, n))?;
                        }
                        load.commit()?;
                    } else {
                        let mut batch = db.batch();
                        keyspaces.iter().for_each(|k| batch.put(k, counted_key(n), counted_value(k, n)));
                        db.write(batch, Durability::Os)?;
                    }
                    returned.store(n, Ordering::SeqCst);
                    if n % flush_every == 0 {
                        db.flush()?;
                    }
                }
                cairn::Result::Ok(())
            });
            let mut ended = false;
            while !ended {
                ended = writer.is_finished();
                let least = returned.load(Ordering::SeqCst);
                let newer = reader.refresh()?;
                let n = newest_count(&newer, set)?;
                ensure!(n >= least, "a moment ends at {n}, although {least} had returned");
                ensure!(n >= seen, "a moment ends at {n}, after one that ended at {seen}");
                seen = n;
                compared += 1;
                *reader = newer;
            }
            Ok(writer.join().expect("the writer does not panic")?)
        })?;
        self.compared += compared;
        self.counted += count;
        for (keyspace, model) in self.keyspaces.iter().zip(&mut self.model) {
            let last = first.max((self.counted + 1).saturating_sub(COUNTED))..=self.counted;
            model.extend(last.map(|n| (counted_key(n).into_bytes(), counted_value(keyspace, n))));
        }
        Ok(())
    }

    /// A power cut, before which not all was synced. A reader comes first, and sees what the recovery finds.
    fn cut_off(&mut self, rng: &mut Rng) -> Outcome {
        self.db.sync()?;
        let mut moments = vec![self.model.clone()];
        self.env.crash_at(self.env.op_count() + rng.below(40));
        for _ in 0..rng.below(40) {
            if write(&self.db, &self.keyspaces, &mut self.model, rng).is_err() {
                break;
            }
            moments.push(self.model.clone());
            if rng.chance(1, 10) && rng.pick(&self.keyspaces).flush().is_err() {
                break;
            }
        }
        moments.push(self.model.clone());
        let disk = self.env.crash_clone(*rng.pick(&Survival::ALL), rng.next_u64());
        self.env.clear_faults();
        // The processes are gone.
        self.held.clear();
        self.keyspaces.clear();
        let _ = self.db.clone().close();
        self.env = disk;
        let before = names(&self.env)?;
        self.reader = open_reader(&self.env, &self.set)?;
        let seen = contents(&opened(&self.reader, &self.set)?)?;
        let known = moments.into_iter().find(|moment| *moment == seen);
        self.model = known.ok_or_else(|| Finding::new("a reader sees no state from before a power cut"))?;
        ensure!(names(&self.env)? == before, "a reader has changed the directory");
        let first = Held { db: self.reader.clone(), model: self.model.clone(), passing: self.passing };
        self.db = Database::open_in(self.env.clone(), DB, options(&self.set))?;
        self.keyspaces = open_keyspaces(&self.db, &self.set)?;
        compare("what the recovery finds, after a reader", &contents(&self.keyspaces)?, &self.model)?;
        first.compare(&self.env, &self.set, rng)?;
        self.compared += 1;
        self.held.push(first);
        Ok(())
    }

    /// The writer removes what was kept for readers when there are none.
    fn finish(&mut self) -> Outcome {
        self.held.clear();
        self.reader.clone().close()?;
        self.reopen()?;
        self.db.flush()?;
        self.db.wait_idle()?;
        let kept = self.db.stats().files_for_readers;
        ensure!(kept == 0, "{kept} files are kept for readers, and there are none");
        self.keyspaces.clear();
        self.db.clone().close()?;
        let check = cairn::check_in(self.env.clone(), DB, &mut |_| ())?;
        ensure!(check.problems.is_empty(), "the database is damaged: {:?}", check.problems);
        Ok(())
    }
}

fn takes_loads(keyspace: &Keyspace) -> bool {
    has_order(keyspace) && keyspace.options().history == Retention::None
}

fn names(env: &SimEnv) -> Outcome<Vec<String>> {
    let mut names = env.list(Path::new(DB))?;
    names.sort();
    Ok(names)
}

fn counted_key(n: u64) -> String {
    format!("c{:02}", n % COUNTED)
}

/// A value that tells `n`, and that the operators of all option sets take.
fn counted_value(keyspace: &Keyspace, n: u64) -> Vec<u8> {
    let mut value = n.to_le_bytes().to_vec();
    if keyspace.options().merge == cairn::Merge::None && n.is_multiple_of(3) {
        value.resize(600, 0);
    }
    value
}

/// The newest number in a moment, which has all before it.
fn newest_count(db: &Database, set: &OptionSet) -> Outcome<u64> {
    let mut of_all = None;
    for keyspace in opened(db, set)? {
        let mut found = BTreeMap::new();
        for n in 0..COUNTED {
            let value = keyspace.get(counted_key(n))?;
            let number = value.as_ref().and_then(|value| value.first_chunk()).map(|n| u64::from_le_bytes(*n));
            found.insert(n, number.unwrap_or(0));
        }
        let newest = found.values().copied().max().unwrap_or(0);
        for (n, number) in &found {
            let expected = (1..=newest).rev().take(COUNTED as usize).find(|m| m % COUNTED == *n).unwrap_or(0);
            ensure!(*number == expected, "key {n} has {number} instead of {expected}");
        }
        let of_other = *of_all.get_or_insert(newest);
        ensure!(of_other == newest, "one keyspace ends at {newest}, and another at {of_other}");
    }
    Ok(of_all.unwrap_or(0))
}
