//! Generates the history of a crash test: random calls on a tiny database, recorded in the [`Ledger`] before and
//! after each.

use super::ledger::Ledger;
use super::setup::{Coverage, Focus, PATH, draw_options};
use super::trials::Trials;
use crate::alterations::altered;
use crate::data::{Value, appended, far_expiry, operand, put_or_merge};
use crate::finding::{Finding, Outcome};
use crate::jobs::Job;
use crate::model::{Incarnation, Write};
use crate::ordering::has_order;
use crate::random::{Draw, Rng, derive};
use cairn::env::SimEnv;
use cairn::{Database, Durability, Keyspace, Options};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

const DURABILITIES: [Durability; 3] = [Durability::Buffered, Durability::Os, Durability::Sync];

struct History {
    env: Arc<SimEnv>,
    rng: Rng,
    ledger: Arc<Mutex<Ledger>>,
    options: Options,
    /// Weight of each durability: some histories hardly sync, others sync almost always.
    durabilities: [u32; 3],
    /// Number of distinct keys.
    keys: u64,
    trace: bool,
    db: Option<Database>,
    open: BTreeMap<String, (Keyspace, Incarnation)>,
}

/// Runs the history of `seed` and recovers from a crash at each of its operations. Returns the number of recoveries.
pub fn run(seed: u64, coverage: Coverage, focus: Focus) -> Outcome<u64> {
    let mut rng = Rng::new(seed);
    let env = SimEnv::new(derive(seed, 1));
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let options = Options::default()
        .memory_budget(1 << 20)
        .log_cap(64 << 10)
        .manifest_cap(1 << 10)
        .value_garbage_percent(5)
        .background_threads(0);
    let trials = Arc::new(Trials::new(seed, coverage, focus, &env, ledger.clone(), options.clone()));
    let hook = trials.clone();
    env.set_hook(Some(Box::new(move |op| hook.visit(op))));
    let durabilities = *rng.pick(&[[1, 1, 1], [5, 5, 1], [0, 8, 1], [1, 1, 8], [10, 1, 0]]);
    let keys = *rng.pick(&[6, 20, 60]);
    let steps = rng.between(60, 150);
    let mut history = History {
        env,
        rng,
        ledger,
        options,
        durabilities,
        keys,
        trace: focus.trace,
        db: None,
        open: BTreeMap::new(),
    };
    let outcome = history.play(steps, &trials);
    history.env.set_hook(None);
    let findings = trials.findings();
    match (findings.is_empty(), outcome) {
        (true, Ok(())) => Ok(trials.recoveries()),
        (true, Err(finding)) => Err(finding.context("without a crash")),
        (false, _) => Err(Finding::new(findings.join("\n"))),
    }
}

/// [`run`] as a job, which counts recoveries.
pub fn job(seed: u64, coverage: Coverage) -> Job {
    let turn = match coverage {
        Coverage::EveryKind => String::new(),
        Coverage::InTurn(first) => format!(" --turn {first}"),
    };
    let replay = format!(
        "cargo run --release -p sim -- crash --seed {seed}{turn}   (--at N: at operation N only; --trace: what happens)"
    );
    Job {
        name: format!("crash, seed {seed}"),
        replay,
        run: Box::new(move || run(seed, coverage, Focus::default())),
    }
}

impl History {
    fn play(&mut self, steps: usize, trials: &Trials) -> Outcome {
        self.reopen()?;
        for name in ["a", "b"] {
            self.create(name)?;
        }
        for _ in 0..steps {
            if trials.gave_up() {
                return Ok(());
            }
            self.step()?;
        }
        self.close()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is opened again before it is used")
    }

    fn note(&self, call: impl FnOnce() -> String) {
        if self.trace {
            println!("{}", call());
        }
    }

    fn step(&mut self) -> Outcome {
        match self.rng.weighted(&[60, 20, 3, 3, 3, 2, 1, 3, 2, 2, 2]) {
            0 => self.commit(1),
            1 => {
                let len = self.rng.between(2, 6);
                self.commit(len)
            }
            2 => {
                self.note(|| "sync".into());
                self.db().sync()?;
                self.ledger().all_durable();
                Ok(())
            }
            3 => {
                self.note(|| "flush".into());
                self.db().flush()?;
                self.ledger().all_durable();
                Ok(())
            }
            4 => {
                let (keyspace, incarnation) = self.draw_keyspace();
                self.note(|| format!("flush {}", keyspace.name()));
                keyspace.flush()?;
                self.ledger().keyspace_durable(incarnation);
                Ok(())
            }
            5 => {
                let keyspace = self.draw_keyspace().0;
                self.note(|| format!("compact {}", keyspace.name()));
                Ok(keyspace.compact()?)
            }
            6 => {
                self.note(|| "compact".into());
                Ok(self.db().compact()?)
            }
            7 => self.create_or_drop(),
            8 => self.reopen(),
            9 => self.clone_keyspace(),
            _ => {
                let keyspace = self.draw_keyspace().0;
                let options = altered(keyspace.options(), &mut self.rng);
                self.note(|| format!("alter {} to {options:?}", keyspace.name()));
                Ok(keyspace.alter(|_| options.clone())?)
            }
        }
    }

    fn draw_keyspace(&mut self) -> (Keyspace, Incarnation) {
        let names: Vec<&String> = self.open.keys().collect();
        self.open[*self.rng.pick(&names)].clone()
    }

    /// A single write or a batch over the keyspaces.
    fn commit(&mut self, len: usize) -> Outcome {
        let mut batch = self.db().batch();
        let mut writes = Vec::new();
        let (mut ranges, mut old) = (false, None);
        for _ in 0..len {
            let (keyspace, incarnation) = self.draw_keyspace();
            let key = format!("key/{:03}", self.rng.below(self.keys)).into_bytes();
            if has_order(&keyspace) && self.rng.chance(1, 20) {
                let end = format!("key/{:03}", self.rng.below(self.keys) + 1).into_bytes();
                // Never empty: an empty batch has no durability guarantee.
                let end = end.max([&key[..], &[0]].concat());
                let to = if self.rng.chance(1, 6) { Bound::Unbounded } else { Bound::Excluded(end) };
                batch.delete_range::<Vec<u8>>(&keyspace, (Bound::Included(key.clone()), to.clone()));
                ranges = true;
                let bounds = (Bound::Included(&key[..]), to.as_ref().map(Vec::as_slice));
                let before: Vec<Write> = writes.iter().map(|(_, w): &(Keyspace, Write)| w.clone()).collect();
                let deletes = self.ledger().deletes(incarnation, bounds, &before);
                writes.extend(deletes.into_iter().map(|w| (keyspace.clone(), w)));
                continue;
            }
            let value = if self.rng.chance(1, 5) { None } else { Some(draw_value(&mut self.rng)) };
            let before: Vec<Write> = writes.iter().map(|(_, w): &(Keyspace, Write)| w.clone()).collect();
            old = self.ledger().value(incarnation, &key, &before);
            let value = value.map(|value| appended(&keyspace, old.as_ref(), value));
            match &value {
                Some(value) => put_or_merge(&mut batch, &keyspace, &key, old.as_ref(), value),
                None => batch.delete(&keyspace, &key),
            }
            writes.push((keyspace, Write { keyspace: incarnation, key, value }));
        }
        let durability = DURABILITIES[self.rng.weighted(&self.durabilities)];
        let single = len == 1 && !ranges && self.rng.chance(1, 2);
        self.note(|| {
            let words = writes.iter().map(|(k, w)| {
                let value = w.value.as_ref().map_or("deleted".into(), |v| format!("{} bytes", v.len()));
                format!("{} {} {value}", k.name(), w.key.escape_ascii())
            });
            let number = self.ledger().commits() + 1;
            format!("commit {number}, {durability}: {}", words.collect::<Vec<_>>().join(", "))
        });
        self.ledger().begin_commit(writes.iter().map(|(_, w)| w.clone()).collect());
        if single {
            let (keyspace, write) = &writes[0];
            match &write.value {
                Some(value) => match operand(keyspace, old.as_ref(), value) {
                    Some(operand) => keyspace.merge_with(&write.key, operand, durability)?,
                    None => {
                        let expiry = far_expiry(keyspace, value);
                        keyspace.put_until_with(&write.key, &value[..], expiry, durability)?;
                    }
                },
                None => keyspace.delete_with(&write.key, durability)?,
            }
        } else {
            self.db().write(batch, durability)?;
        }
        self.ledger().end_commit(durability);
        Ok(())
    }

    fn create_or_drop(&mut self) -> Outcome {
        let names = ["a", "b", "c", "d"];
        let name = *self.rng.pick(&names);
        if !self.open.contains_key(name) {
            return self.create(name);
        }
        if self.open.len() == 1 {
            return Ok(());
        }
        self.open.remove(name);
        self.note(|| format!("drop {name}"));
        self.ledger().begin_drop(name);
        self.db().drop_keyspace(name)?;
        self.ledger().end_change();
        Ok(())
    }

    fn create(&mut self, name: &str) -> Outcome {
        let options = draw_options(&mut self.rng);
        self.note(|| format!("create {name} {options:?}"));
        let incarnation = self.ledger().begin_create(name);
        let keyspace = self.db().create_keyspace(name, options)?;
        self.ledger().end_change();
        self.open.insert(name.to_owned(), (keyspace, incarnation));
        Ok(())
    }

    fn clone_keyspace(&mut self) -> Outcome {
        let (source, of_source) = self.draw_keyspace();
        let new = ["a", "b", "c", "d"].into_iter().find(|name| !self.open.contains_key(*name));
        let Some(new) = new.filter(|_| has_order(&source)) else { return self.create_or_drop() };
        self.note(|| format!("clone {} as {new}", source.name()));
        let incarnation = self.ledger().begin_clone(of_source, new);
        let keyspace = self.db().clone_keyspace(&source.name(), new)?;
        self.ledger().end_change();
        self.ledger().keyspace_durable(incarnation);
        self.open.insert(new.to_owned(), (keyspace, incarnation));
        Ok(())
    }

    fn close(&mut self) -> Outcome {
        self.open.clear();
        if let Some(db) = self.db.take() {
            self.note(|| "close".into());
            if self.rng.chance(2, 3) {
                db.close()?;
            } else {
                // Dropping the last handle closes the database too.
                drop(db);
            }
            self.ledger().all_durable();
        }
        Ok(())
    }

    fn reopen(&mut self) -> Outcome {
        self.close()?;
        self.note(|| "open".into());
        let db = Database::open_in(self.env.clone(), Path::new(PATH), self.options.clone())?;
        let catalog = self.ledger().catalog().clone();
        for (name, incarnation) in catalog {
            self.open.insert(name.clone(), (db.open_keyspace(&name)?, incarnation));
        }
        self.db = Some(db);
        Ok(())
    }
}

/// Mostly small values; some that fill a memtable, and a few that span blocks of the log.
fn draw_value(rng: &mut Rng) -> Value {
    let len = match rng.weighted(&[2, 40, 20, 4, 1]) {
        0 => 0,
        1 => rng.between(8, 80),
        2 => rng.between(80, 600),
        3 => rng.between(600, 6000),
        _ => rng.between(20_000, 70_000),
    };
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes.into()
}
