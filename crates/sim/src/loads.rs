//! Bulk loads compared with maps, among puts and deletes, flushes, compactions and reopening, and with power cuts at any operation of a load.
//!
//! A load that was committed must be there, as a whole and above everything before it, after any power cut. One that was cut off must be there as a
//! whole, and with it all that was written before, or not at all, and leave no file behind.

use crate::copies::{Moment, compare, contents, draw_value, open_keyspaces, options, write};
use crate::finding::{Outcome, ensure};
use crate::jobs::Job;
use crate::ordering::has_order;
use crate::random::{Draw, Rng};
use crate::sets::{OptionSet, option_sets};
use cairn::env::{SimEnv, Survival};
use cairn::{Database, IngestOptions, Keyspace, Retention, TableBuilder};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls of a run.
const STEPS: u64 = 2500;

const DB: &str = "/db";

/// Writes that are not synced before a load that is cut off.
const UNSYNCED: u64 = 12;

/// The n-th job. It counts loads that were compared.
pub fn job(n: u64) -> Job {
    let replay = format!("cargo run --release -p sim -- loads --seed {n}");
    Job { name: format!("loads, seed {n}"), replay, run: Box::new(move || run(n)) }
}

/// Runs the n-th job. Returns the number of loads that were compared.
pub fn run(n: u64) -> Outcome<u64> {
    let mut rng = Rng::new(n);
    let takes_loads = |set: &OptionSet| {
        let mut keyspaces = set.keyspaces.iter();
        !set.real && keyspaces.any(|k| k.engine == cairn::Engine::Tree)
    };
    let sets: Vec<OptionSet> = option_sets().into_iter().filter(takes_loads).collect();
    let set = sets[n as usize % sets.len()].clone();
    let name = set.name;
    let world = World::open(SimEnv::new(n), set);
    let run = world.and_then(|mut world| {
        for _ in 0..STEPS {
            world.step(&mut rng)?;
        }
        world.reopen(None)?;
        Ok(world.loads)
    });
    run.map_err(|f| f.context(format_args!("option set {name}")))
}

struct World {
    env: Arc<SimEnv>,
    set: OptionSet,
    db: Database,
    keyspaces: Vec<Keyspace>,
    model: Moment,
    loads: u64,
    files: u64,
    openings: u64,
}

/// What a load has, by keyspace, and how it is made.
struct Plan {
    entries: Moment,
    options: IngestOptions,
    is_sorted: bool,
    joined: bool,
    from_file: bool,
}

impl World {
    fn open(env: Arc<SimEnv>, set: OptionSet) -> Outcome<World> {
        let db = Database::open_in(env.clone(), DB, options(&set))?;
        let keyspaces = open_keyspaces(&db, &set)?;
        let model = vec![BTreeMap::new(); keyspaces.len()];
        Ok(World { env, set, db, keyspaces, model, loads: 0, files: 0, openings: 0 })
    }

    /// Opens the database anew, on another disk if there is one, and compares it.
    fn reopen(&mut self, disk: Option<Arc<SimEnv>>) -> Outcome {
        self.open_again(disk)?;
        compare("the database, reopened", &contents(&self.keyspaces)?, &self.model)
    }

    fn open_again(&mut self, disk: Option<Arc<SimEnv>>) -> Outcome {
        self.openings += 1;
        self.keyspaces.clear();
        // On another disk the process is gone.
        let closed = self.db.clone().close();
        if disk.is_none() {
            closed?;
        }
        self.env = disk.unwrap_or_else(|| self.env.clone());
        let check = cairn::check_in(self.env.clone(), DB, &mut |_| ())?;
        ensure!(check.problems.is_empty(), "the database is damaged: {:?}", check.problems);
        self.db = Database::open_in(self.env.clone(), DB, options(&self.set))?;
        self.keyspaces = open_keyspaces(&self.db, &self.set)?;
        self.check_files("after opening")
    }

    /// There are the tables that the database names, and no others: at once, or when background work has ended.
    fn check_files(&self, when: &str) -> Outcome {
        if self.count_files(when).is_ok() {
            return Ok(());
        }
        self.db.wait_idle()?;
        self.count_files(when)
    }

    fn count_files(&self, when: &str) -> Outcome {
        let is_table = |path: &&std::path::PathBuf| {
            path.starts_with(DB) && path.extension().is_some_and(|extension| extension == "tbl")
        };
        let found = self.env.list_files().iter().filter(is_table).count();
        let stats = self.db.stats();
        let trees = stats.keyspaces.iter().flat_map(|k| [Some(k), k.history.as_deref()]).flatten();
        let named: usize = trees.flat_map(|tree| &tree.levels).map(|level| level.tables).sum();
        ensure!(found == named, "{when}: {found} tables are there, and {named} are named");
        Ok(())
    }

    fn step(&mut self, rng: &mut Rng) -> Outcome {
        match rng.below(1000) {
            0..890 => write(&self.db, &self.keyspaces, &mut self.model, rng),
            890..910 => Ok(rng.pick(&self.keyspaces).flush()?),
            910..916 => Ok(rng.pick(&self.keyspaces).compact()?),
            916..920 => Ok(self.db.wait_idle()?),
            920..960 => self.load(rng),
            960..965 => self.give_up(rng),
            965..970 => self.reopen(None),
            970..975 => {
                self.db.sync()?;
                let disk = self.env.crash_clone(*rng.pick(&Survival::ALL), rng.next_u64());
                self.reopen(Some(disk))
            }
            975..995 => self.cut_off(rng),
            _ => compare("the database", &contents(&self.keyspaces)?, &self.model),
        }
    }

    fn plan(&self, rng: &mut Rng) -> Plan {
        let mut entries = vec![BTreeMap::new(); self.keyspaces.len()];
        // In the midst of what the writes have, or beyond it.
        let from = *rng.pick(&[0, 100, 250, 1_000 + 10 * self.loads]);
        for (at, keyspace) in self.keyspaces.iter().enumerate() {
            if has_order(keyspace) && rng.chance(3, 4) {
                for _ in 0..*rng.pick(&[1, 10, 60, 200]) {
                    let key = format!("{:04}", from + rng.below(120)).into_bytes();
                    entries[at].insert(key, draw_value(keyspace, rng));
                }
            }
        }
        let is_sorted = rng.chance(1, 2);
        let options = IngestOptions::default();
        let options = if is_sorted { options } else { options.unsorted(0) };
        Plan { entries, options, is_sorted, joined: rng.chance(1, 4), from_file: rng.chance(1, 5) }
    }

    fn run_plan(&self, plan: &Plan, rng: &mut Rng, file: &str) -> cairn::Result<cairn::Ingested> {
        let mut load = self.db.ingest(plan.options);
        let mut other = self.db.ingest(plan.options);
        for (keyspace, entries) in self.keyspaces.iter().zip(&plan.entries) {
            let mut list: Vec<_> = entries.iter().collect();
            let high = if plan.joined { list.split_off(list.len() / 2) } else { Vec::new() };
            if plan.from_file && !list.is_empty() {
                let path = format!("{file}-{}", keyspace.name());
                let mut table = TableBuilder::create_in(self.env.clone(), &path)?;
                list.iter().try_for_each(|(key, value)| table.put(key, value))?;
                table.finish()?;
                load.put_table(keyspace, &path)?;
                list.clear();
            }
            for (load, mut list) in [(&mut load, list), (&mut other, high)] {
                if !plan.is_sorted {
                    // Of entries with one key the last counts.
                    let twice: Vec<_> = list.iter().step_by(3).map(|(key, _)| *key).collect();
                    for key in twice {
                        load.put(keyspace, key, draw_value(keyspace, rng))?;
                    }
                    list.sort_by_key(|(key, _)| (key.last(), *key));
                }
                list.iter().try_for_each(|(key, value)| load.put(keyspace, key, value))?;
            }
        }
        load.join(other)?;
        load.commit()
    }

    fn load(&mut self, rng: &mut Rng) -> Outcome {
        let (plan, file) = (self.plan(rng), self.new_file());
        let count: u64 = plan.entries.iter().map(|entries| entries.len() as u64).sum();
        let before = self.db.snapshot();
        let opening = self.openings;
        let old = self.model.clone();
        let done = match self.set.options.background_threads > 0 && rng.chance(1, 2) {
            true => self.run_beside_writer(&plan, rng, &file)?,
            false => self.run_plan(&plan, rng, &file)?,
        };
        ensure!(done.entries == count, "a load of {count} entries has had {}", done.entries);
        self.model.iter_mut().zip(plan.entries).for_each(|(model, entries)| model.extend(entries));
        compare("after a load", &contents(&self.keyspaces)?, &self.model)?;
        self.loads += 1;
        if opening != self.openings {
            return Ok(());
        }
        let seen = |keyspace: &Keyspace| {
            let entries = before.entries(keyspace);
            entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
        };
        let seen: Moment = self.keyspaces.iter().map(seen).collect::<cairn::Result<_>>()?;
        compare("a snapshot from before a load", &seen, &old)
    }

    /// Runs a load while another thread puts keys that it does not have, and goes on for a moment; but nothing into keyspaces with history, which
    /// take no load beside other writes.
    fn run_beside_writer(&mut self, plan: &Plan, rng: &mut Rng, file: &str) -> Outcome<cairn::Ingested> {
        let ended = AtomicBool::new(false);
        let mut of_writer = Rng::new(rng.next_u64());
        let write = |at: usize, n: u64, rng: &mut Rng| -> cairn::Result<(Vec<u8>, Vec<u8>)> {
            let (key, value) = (format!("x{n:03}").into_bytes(), draw_value(&self.keyspaces[at], rng));
            self.keyspaces[at].put(&key, &value)?;
            Ok((key, value))
        };
        let (done, written) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut written = vec![BTreeMap::new(); self.keyspaces.len()];
                for n in 0.. {
                    let at = n as usize % written.len();
                    if self.keyspaces[at].options().history == Retention::None || plan.entries[at].is_empty()
                    {
                        written[at].extend([write(at, of_writer.below(60), &mut of_writer)?]);
                    }
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                }
                cairn::Result::Ok(written)
            });
            let done = self.run_plan(plan, rng, file);
            ended.store(true, Ordering::Relaxed);
            (done, writer.join().expect("the writer does not panic"))
        });
        let written: Moment = written?;
        self.model.iter_mut().zip(written).for_each(|(model, written)| model.extend(written));
        let done = done?;
        if rng.chance(1, 2) {
            let mut model = self.model.clone();
            model.iter_mut().zip(&plan.entries).for_each(|(model, entries)| model.extend(entries.clone()));
            std::mem::swap(&mut self.model, &mut model);
            self.reopen(None)?;
        }
        Ok(done)
    }

    fn new_file(&mut self) -> String {
        self.files += 1;
        format!("/made{}", self.files)
    }

    /// A load that is not committed.
    fn give_up(&mut self, rng: &mut Rng) -> Outcome {
        let plan = self.plan(rng);
        let mut load = self.db.ingest(plan.options);
        for (keyspace, entries) in self.keyspaces.iter().zip(&plan.entries) {
            entries.iter().try_for_each(|(key, value)| load.put(keyspace, key, value))?;
        }
        drop(load);
        self.db.wait_idle()?;
        self.check_files("after a load that was given up")
    }

    /// A power cut in the midst of a load, before which not all was synced. The run goes on with what is left.
    fn cut_off(&mut self, rng: &mut Rng) -> Outcome {
        self.db.sync()?;
        let mut moments = vec![self.model.clone()];
        for _ in 0..rng.below(UNSYNCED) {
            write(&self.db, &self.keyspaces, &mut self.model, rng)?;
            moments.push(self.model.clone());
        }
        let (plan, file) = (self.plan(rng), self.new_file());
        let soon = *rng.pick(&[60, 200]);
        self.env.crash_at(self.env.op_count() + rng.below(soon));
        let finished = self.run_plan(&plan, rng, &file);
        let disk = self.env.crash_clone(*rng.pick(&Survival::ALL), rng.next_u64());
        self.env.clear_faults();
        self.model.iter_mut().zip(plan.entries).for_each(|(model, entries)| model.extend(entries));
        let whole = std::mem::take(&mut self.model);
        self.open_again(Some(disk))?;
        let found = contents(&self.keyspaces)?;
        // A load without entries is no commit.
        let is_committed = finished.is_ok_and(|done| done.entries > 0);
        if !is_committed && let Some(moment) = moments.into_iter().find(|moment| *moment == found) {
            self.model = moment;
        } else {
            compare("a load that a power cut met, which is no state from before it", &found, &whole)?;
            self.model = whole;
        }
        self.loads += 1;
        Ok(())
    }
}
