//! Checkpoints and backups, of the database that writes and of a reader beside it, compared with maps of their moments, while the database and its copies go on: under flushes, compactions, collections,
//! recycled logs, reopening, and power cuts at any operation of a copy.
//!
//! A copy that was finished must have its moment, at any later time and after any power cut. One that was cut off must be whole, or none; and the
//! database, older copies and older generations must be as before.

use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use crate::random::{Draw, Rng};
use crate::sets::{OptionSet, option_sets};
use cairn::env::{SimEnv, Survival};
use cairn::{
    BackupOptions, Backups, Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Preset,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Calls of a run.
const STEPS: u64 = 3000;

const KEYS: u64 = 300;

/// The directories of the database and of its backups.
const DB: &str = "/db";
const BACKUP: &str = "/backup";

/// Checkpoints that are kept at most.
const KEPT: usize = 4;

/// The n-th job. It counts copies that were compared.
pub fn job(n: u64) -> Job {
    let replay = format!("cargo run --release -p sim -- copies --seed {n}");
    Job { name: format!("copies, seed {n}"), replay, run: Box::new(move || run(n)) }
}

/// Runs the n-th job. Returns the number of copies that were compared.
pub fn run(n: u64) -> Outcome<u64> {
    let mut rng = Rng::new(n);
    let sets: Vec<OptionSet> = option_sets().into_iter().filter(|set| !set.real).collect();
    let mut set = sets[n as usize % sets.len()].clone();
    if rng.chance(1, 2) {
        // Then the manifest keeps old edits, which name value files that are gone.
        set.options.manifest_cap = Options::default().manifest_cap;
    }
    let env = SimEnv::new(n);
    env.set_has_links(!rng.chance(1, 4));
    let name = set.name;
    let world = World::open(env, set);
    let run = world.and_then(|mut world| {
        for _ in 0..STEPS {
            world.step(&mut rng)?;
        }
        world.compare_all()?;
        Ok(world.compared)
    });
    run.map_err(|f| f.context(format_args!("option set {name}")))
}

/// What is in each keyspace.
pub(crate) type Moment = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

struct World {
    env: Arc<SimEnv>,
    set: OptionSet,
    db: Database,
    keyspaces: Vec<Keyspace>,
    model: Moment,
    /// Is opened now and then, and follows.
    reader: Option<Database>,
    /// Checkpoints, by directory.
    checkpoints: BTreeMap<String, Moment>,
    /// Generations of the backup.
    generations: BTreeMap<u64, Moment>,
    copies: u64,
    compared: u64,
}

pub(crate) fn options(set: &OptionSet) -> Options {
    set.options.clone().durability(Durability::Buffered)
}

pub(crate) fn open_keyspaces(db: &Database, set: &OptionSet) -> Outcome<Vec<Keyspace>> {
    let all = set.keyspaces.iter().zip(0..);
    Ok(all
        .map(|(options, n)| db.keyspace(&format!("k{n}"), options.clone()))
        .collect::<cairn::Result<_>>()?)
}

pub(crate) fn contents(keyspaces: &[Keyspace]) -> Outcome<Moment> {
    let content = |keyspace: &Keyspace| {
        keyspace.entries().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
    };
    Ok(keyspaces.iter().map(content).collect::<cairn::Result<_>>()?)
}

/// Fails unless both are the same.
pub(crate) fn compare(what: &str, found: &Moment, moment: &Moment) -> Outcome {
    for (at, (found, moment)) in found.iter().zip(moment).enumerate() {
        let differs = |(key, value): &(&Vec<u8>, &Vec<u8>)| moment.get(*key) != Some(*value);
        let wrong =
            found.iter().find(differs).or_else(|| moment.iter().find(|(key, _)| !found.contains_key(*key)));
        let key = wrong.map(|(key, _)| String::from_utf8_lossy(key));
        ensure!(
            wrong.is_none(),
            "{what}: keyspace {at} has {} entries instead of {}, and key {:?} is wrong",
            found.len(),
            moment.len(),
            key
        );
    }
    Ok(())
}

impl World {
    fn open(env: Arc<SimEnv>, set: OptionSet) -> Outcome<World> {
        let db = Database::open_in(env.clone(), DB, options(&set))?;
        let keyspaces = open_keyspaces(&db, &set)?;
        let model = vec![BTreeMap::new(); keyspaces.len()];
        let (checkpoints, generations) = Default::default();
        let (reader, copies, compared) = (None, 0, 0);
        Ok(World { env, set, db, keyspaces, model, reader, checkpoints, generations, copies, compared })
    }

    /// Opens the database anew, on another disk if there is one.
    fn reopen(&mut self, disk: Option<Arc<SimEnv>>) -> Outcome {
        self.keyspaces.clear();
        self.db.clone().close()?;
        if let Some(disk) = disk {
            (self.env, self.reader) = (disk, None);
        }
        self.db = Database::open_in(self.env.clone(), DB, options(&self.set))?;
        self.keyspaces = open_keyspaces(&self.db, &self.set)?;
        compare("the database, reopened", &contents(&self.keyspaces)?, &self.model)
    }

    fn step(&mut self, rng: &mut Rng) -> Outcome {
        match rng.below(1000) {
            0..900 => write(&self.db, &self.keyspaces, &mut self.model, rng),
            900..930 => Ok(rng.pick(&self.keyspaces).flush()?),
            930..940 => Ok(rng.pick(&self.keyspaces).compact()?),
            940..942 => Ok(self.db.wait_idle()?),
            942..945 => self.pass(rng),
            945..958 if self.checkpoints.len() < KEPT => self.checkpoint(rng),
            945..970 => self.backup(rng),
            970..980 => self.compare_one(rng),
            980..986 => self.restore(rng),
            986..990 => self.reopen(None),
            990..993 => {
                self.db.sync()?;
                let disk = self.env.crash_clone(*rng.pick(&Survival::ALL), rng.next_u64());
                self.reopen(Some(disk))
            }
            993..998 => self.cut_off(rng),
            _ => Ok(()),
        }
    }

    fn new_directory(&mut self) -> String {
        self.copies += 1;
        format!("/copy{}", self.copies)
    }

    /// What makes a copy: the database, or a reader beside it, for which a last write hands over all that was written.
    fn source(&mut self, rng: &mut Rng) -> Outcome<Database> {
        if rng.chance(1, 2) {
            return Ok(self.db.clone());
        }
        write_with(&self.db, &self.keyspaces, &mut self.model, Durability::Os, rng)?;
        let reader = match &self.reader {
            Some(reader) if rng.chance(7, 8) => reader.refresh()?,
            _ => {
                let builder = Database::builder().env(self.env.clone()).options(options(&self.set));
                builder.open_read_only(DB)?
            }
        };
        self.reader = Some(reader.clone());
        Ok(reader)
    }

    /// Creates a keyspace whose values are outside of tables, or drops it: then nothing refers to its files.
    fn pass(&mut self, rng: &mut Rng) -> Outcome {
        if self.db.keyspaces().iter().any(|name| name == "passing") {
            return Ok(self.db.drop_keyspace("passing")?);
        }
        let preset = *rng.pick(&[Preset::HashLog, Preset::Parallax]);
        let passing = self.db.keyspace("passing", KeyspaceOptions::preset(preset).memtable_bytes(8 << 10))?;
        for n in 0..rng.between(1, 40) {
            passing.put(n.to_string(), [7; 600])?;
        }
        if rng.chance(1, 2) {
            passing.flush()?;
        }
        if rng.chance(1, 2) {
            drop(passing);
            self.reopen(None)?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, rng: &mut Rng) -> Outcome {
        let dir = self.new_directory();
        self.source(rng)?.checkpoint(&dir)?;
        if rng.chance(1, 4) {
            // All of it is durable, also what the database has not synced.
            let disk = self.env.crash_clone(Survival::Nothing, rng.next_u64());
            self.compare_copy(&disk, &dir, &mut self.model.clone(), None)?;
            self.compared += 1;
        }
        self.checkpoints.insert(dir, self.model.clone());
        Ok(())
    }

    fn backup(&mut self, rng: &mut Rng) -> Outcome {
        let keep = rng.chance(1, 3).then(|| rng.between(1, 3));
        let source = self.source(rng)?;
        let generation = source.backup_with(BACKUP, &BackupOptions::default().keep(keep), &mut |_| ())?;
        if rng.chance(1, 8) {
            let disk = self.env.crash_clone(Survival::Nothing, rng.next_u64());
            let dir = self.new_directory();
            Backups::open_in(disk.clone(), BACKUP)?.restore(Some(generation.number), &dir, &mut |_| ())?;
            self.compare_copy(&disk, &dir, &mut self.model.clone(), None)?;
            self.compared += 1;
        }
        self.note_backup(generation.number, keep)
    }

    fn note_backup(&mut self, number: u64, keep: Option<usize>) -> Outcome {
        self.generations.insert(number, self.model.clone());
        while keep.is_some_and(|keep| self.generations.len() > keep) {
            self.generations.pop_first();
        }
        let found = self.find_generations(&self.env)?;
        let expected: Vec<u64> = self.generations.keys().copied().collect();
        ensure!(found == expected, "the generations {found:?} are there instead of {expected:?}");
        Ok(())
    }

    fn find_generations(&self, env: &Arc<SimEnv>) -> Outcome<Vec<u64>> {
        let backups = match Backups::open_in(env.clone(), BACKUP) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            backups => backups?,
        };
        let problems = backups.verify(&mut |_| ())?;
        ensure!(problems.is_empty(), "the backup is damaged: {problems:?}");
        Ok(backups.generations()?.iter().map(|generation| generation.number).collect())
    }

    /// Opens a directory and compares it with a moment; may write to it.
    fn compare_copy(
        &self,
        env: &Arc<SimEnv>,
        dir: &str,
        moment: &mut Moment,
        rng: Option<&mut Rng>,
    ) -> Outcome {
        let check = cairn::check_in(env.clone(), dir, &mut |_| ())?;
        ensure!(check.problems.is_empty(), "{dir} is damaged: {:?}", check.problems);
        let copy = Database::open_in(env.clone(), dir, options(&self.set).create_if_missing(false))?;
        let keyspaces = open_keyspaces(&copy, &self.set)?;
        compare(dir, &contents(&keyspaces)?, moment)?;
        if let Some(rng) = rng {
            for _ in 0..rng.between(1, 200) {
                write(&copy, &keyspaces, moment, rng)?;
            }
        }
        drop(keyspaces);
        Ok(copy.close()?)
    }

    /// Compares a checkpoint, and may write to it or forget it.
    fn compare_one(&mut self, rng: &mut Rng) -> Outcome {
        let dirs: Vec<String> = self.checkpoints.keys().cloned().collect();
        if dirs.is_empty() {
            return Ok(());
        }
        let dir = rng.pick(&dirs);
        let mut moment = self.checkpoints.remove(dir).unwrap_or_default();
        let writes = rng.chance(1, 2);
        self.compare_copy(&self.env, dir, &mut moment, writes.then_some(&mut *rng))?;
        self.compared += 1;
        if rng.chance(2, 3) {
            self.checkpoints.insert(dir.clone(), moment);
        }
        Ok(())
    }

    fn restore(&mut self, rng: &mut Rng) -> Outcome {
        let numbers: Vec<u64> = self.generations.keys().copied().collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let number = *rng.pick(&numbers);
        let dir = self.new_directory();
        Backups::open_in(self.env.clone(), BACKUP)?.restore(Some(number), &dir, &mut |_| ())?;
        let mut moment = self.generations[&number].clone();
        self.compare_copy(&self.env, &dir, &mut moment, None)?;
        self.compared += 1;
        if rng.chance(1, 3) {
            // The copy takes the place of the database: its files get numbers that others in the backup have.
            self.checkpoints.insert(dir, moment);
        }
        Ok(())
    }

    /// A power cut in the midst of a copy. The run goes on with what is left, without the copy.
    fn cut_off(&mut self, rng: &mut Rng) -> Outcome {
        let source = self.source(rng)?;
        self.db.sync()?;
        let is_checkpoint = rng.chance(1, 2);
        let dir = self.new_directory();
        self.env.crash_at(self.env.op_count() + rng.below(150));
        let finished = match is_checkpoint {
            true => source.checkpoint(&dir).map(|_| 0),
            false => source.backup(BACKUP).map(|generation| generation.number),
        };
        let disk = self.env.crash_clone(*rng.pick(&Survival::ALL), rng.next_u64());
        self.env.clear_faults();
        if is_checkpoint {
            let create = Database::open_in(disk.clone(), &dir, options(&self.set).create_if_missing(false));
            match create {
                Ok(copy) => drop(copy),
                Err(e) if e.kind() == ErrorKind::NotFound && finished.is_err() => {}
                Err(e) => return Err(Finding::from(e).context(format_args!("{dir}, {finished:?}"))),
            }
            if disk.list_files().iter().any(|path| is_manifest(path, &dir)) {
                let mut moment = self.model.clone();
                self.compare_copy(&disk, &dir, &mut moment, None)?;
                self.compared += 1;
                self.checkpoints.insert(dir, moment);
            }
        } else {
            let found = self.find_generations(&disk)?;
            let newest = self.generations.keys().last().copied().unwrap_or(0);
            if let Some(number) = found.iter().find(|number| **number > newest) {
                self.generations.insert(*number, self.model.clone());
            }
            let expected: Vec<u64> = self.generations.keys().copied().collect();
            ensure!(
                found == expected,
                "after a power cut there are the generations {found:?}, not {expected:?}"
            );
            let number = finished.as_ref().ok();
            ensure!(number.is_none_or(|number| found.contains(number)), "generation {number:?} is lost");
        }
        // The processes are gone: what they still hold is of the old disk.
        self.keyspaces.clear();
        let _ = source.close();
        let _ = self.db.clone().close();
        (self.env, self.reader) = (disk, None);
        self.db = Database::open_in(self.env.clone(), DB, options(&self.set))?;
        self.keyspaces = open_keyspaces(&self.db, &self.set)?;
        compare("the database after a power cut", &contents(&self.keyspaces)?, &self.model)?;
        for (dir, moment) in &self.checkpoints {
            self.compare_copy(&self.env, dir, &mut moment.clone(), None)?;
            self.compared += 1;
        }
        Ok(())
    }

    fn compare_all(&mut self) -> Outcome {
        for (dir, moment) in &self.checkpoints {
            self.compare_copy(&self.env, dir, &mut moment.clone(), None)?;
        }
        for (number, moment) in &self.generations {
            let dir = format!("/last{number}");
            Backups::open_in(self.env.clone(), BACKUP)?.restore(Some(*number), &dir, &mut |_| ())?;
            self.compare_copy(&self.env, &dir, &mut moment.clone(), None)?;
        }
        self.compared += (self.checkpoints.len() + self.generations.len()) as u64;
        compare("the database", &contents(&self.keyspaces)?, &self.model)
    }
}

fn is_manifest(path: &std::path::Path, dir: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.starts_with(dir) && name.starts_with("manifest-") && !name.ends_with(".tmp")
}

/// A value. Operators of some sets take values of certain lengths only.
pub(crate) fn draw_value(keyspace: &Keyspace, rng: &mut Rng) -> Vec<u8> {
    match keyspace.options().merge {
        cairn::Merge::None | cairn::Merge::Append => {
            let mut value = vec![0; *rng.pick(&[8, 60, 600])];
            rng.fill(&mut value);
            value
        }
        _ => rng.next_u64().to_le_bytes().to_vec(),
    }
}

/// A put, a delete or a batch, which the model follows.
pub(crate) fn write(db: &Database, keyspaces: &[Keyspace], model: &mut Moment, rng: &mut Rng) -> Outcome {
    let durability = *rng.pick(&[Durability::Buffered, Durability::Os]);
    write_with(db, keyspaces, model, durability, rng)
}

fn write_with(
    db: &Database,
    keyspaces: &[Keyspace],
    model: &mut Moment,
    durability: Durability,
    rng: &mut Rng,
) -> Outcome {
    let mut batch = db.batch();
    let single = rng.chance(9, 10);
    for at in 0..keyspaces.len() {
        if single && at != 0 {
            break;
        }
        let at = if single { rng.below(keyspaces.len() as u64) as usize } else { at };
        let key = format!("{:04}", rng.below(KEYS)).into_bytes();
        if rng.chance(1, 6) {
            batch.delete(&keyspaces[at], &key);
            model[at].remove(&key);
        } else {
            let value = draw_value(&keyspaces[at], rng);
            batch.put(&keyspaces[at], &key, &value);
            model[at].insert(key, value);
        }
    }
    Ok(db.write(batch, durability)?)
}
