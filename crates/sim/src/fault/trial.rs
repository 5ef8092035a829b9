//! One trial: makes the calls of a script while one operation fails, and judges the answers and the content
//! afterwards.

use super::expect::{Contents, End, Expected, read_all};
use super::script::{Call, Change, NAMES, Script};
use super::watch::Watch;
use crate::awaiting;
use crate::data::{Value, appended, far_expiry, operand, put_or_merge};
use crate::finding::{Finding, Outcome, ensure, show};
use crate::model::{Incarnation, Write};
use crate::ordering::{has_order, sorted_entries};
use crate::random::{Draw, Rng, derive};
use cairn::env::{Fault, OpKind, Repeat, SimEnv, Survival};
use cairn::{Database, Durability, Error, ErrorKind, Keyspace, Slice, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Path of the database on the simulated disk.
const PATH: &str = "/db";

/// Number of calls after which a lasting fault ends.
const LASTS: usize = 6;

/// The operation that fails, and the fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Injection {
    pub(super) at: u64,
    pub(super) fault: Fault,
    pub(super) repeat: Repeat,
    /// Seed of the crash that the trial adds.
    pub(super) way: u64,
}

/// The result of a trial without a fault.
pub(super) struct Sound {
    pub(super) kinds: Vec<OpKind>,
}

/// An iteration in progress.
struct Iteration {
    entries: Entries,
    /// Whether they come in the order of their keys.
    in_order: bool,
    rest: BTreeMap<Vec<u8>, Value>,
}

type Entries = Box<dyn Iterator<Item = cairn::Result<(Slice, Slice)>>>;

impl Iteration {
    /// Fails unless the entry is the next one.
    fn take(&mut self, (key, value): &(Slice, Slice)) -> Outcome {
        let in_turn =
            !self.in_order || self.rest.first_key_value().is_some_and(|(next, _)| next[..] == **key);
        let want = self.rest.remove(&key[..]);
        ensure!(in_turn && want.is_some_and(|want| want[..] == **value), "the iterator shows {}", show(key));
        Ok(())
    }
}

/// The state of the fault in a trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The operation was not reached yet.
    Before,
    /// The fault occurred and lasts for this many more calls.
    During(usize),
    /// The fault is over.
    Passed,
}

/// One trial.
pub(super) struct Trial<'a> {
    script: &'a Script,
    injection: Option<Injection>,
    trace: bool,
    env: Arc<SimEnv>,
    watch: Arc<Watch>,
    rng: Rng,
    stage: Stage,
    expected: Expected,
    db: Option<Database>,
    open: BTreeMap<&'static str, (Keyspace, Incarnation)>,
    snapshot: Option<(Snapshot, Contents)>,
    iteration: Option<Iteration>,
    /// Number of failed operations when the database was opened. Closing may report later ones.
    failures_at_opening: u64,
    /// Closing failed, or the last handle was dropped: data that the operating system did not get may be lost.
    unsettled: bool,
}

/// How a commit has ended.
enum Committed {
    /// There is no keyspace to write to.
    NoKeyspace,
    /// A read of a transaction has failed, before it wrote anything.
    ReadFailed(cairn::Error),
    /// With what it was to write, and the result.
    Done(Vec<Write>, cairn::Result<()>),
}

impl<'a> Trial<'a> {
    /// Makes all calls of the script with this fault.
    pub(super) fn run(script: &'a Script, injection: Option<Injection>, trace: bool) -> Outcome<Sound> {
        let env = SimEnv::new(derive(script.seed, 1));
        let out_of_handles = injection.is_some_and(|i| i.fault == Fault::EMFILE);
        let watch = Arc::new(Watch::new(injection.map_or(u64::MAX, |i| i.at), out_of_handles, trace));
        let hook = watch.clone();
        env.set_hook(Some(Box::new(move |op| hook.see(op))));
        if let Some(Injection { at, fault, repeat, .. }) = injection {
            env.fail_op(at, fault, repeat);
        }
        let way = injection.map_or(0, |i| i.way);
        let mut trial = Trial {
            script,
            injection,
            trace,
            env,
            watch,
            rng: Rng::new(derive(script.seed, 1000 + way)),
            stage: Stage::Before,
            expected: Expected::new(),
            db: None,
            open: BTreeMap::new(),
            snapshot: None,
            iteration: None,
            failures_at_opening: 0,
            unsettled: false,
        };
        for (number, call) in script.calls.iter().enumerate() {
            trial.step(call).map_err(|f| f.context(format_args!("call {number} ({call})")))?;
        }
        let kinds = trial.watch.notes().kinds.clone();
        trial.finish().map_err(|f| f.context("at the end"))?;
        ensure!(injection.is_none() || trial.watch.notes().failures > 0, "the operation was never reached");
        Ok(Sound { kinds })
    }

    fn step(&mut self, call: &Call) -> Outcome {
        if self.trace {
            println!("{call}");
        }
        self.ensure_open()?;
        if self.db.is_some() {
            self.call(call)?;
        }
        self.pass_time()
    }

    /// After the fault occurred, checks its effects; ends it when it is due.
    fn pass_time(&mut self) -> Outcome {
        let again = self.watch.notes().synced_again.clone();
        ensure!(again.is_none(), "P4: {again:?} was synced again after a sync of it had failed");
        match self.stage {
            Stage::Before if self.watch.notes().failures > 0 => {
                let lasts = self.injection.is_some_and(|i| i.repeat != Repeat::Once);
                self.stage = if lasts { Stage::During(LASTS) } else { Stage::Passed };
                if !lasts {
                    self.compare()?;
                }
                self.end_clone()
            }
            Stage::During(0) => {
                self.env.clear_faults();
                self.stage = Stage::Passed;
                self.ensure_open()?;
                self.compare()
            }
            Stage::During(left) => {
                self.stage = Stage::During(left - 1);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Judges an error. It is allowed while the fault lasts, or after a failed sync, and must name a file.
    fn judge(&mut self, error: &Error, failures_before: u64) -> Outcome {
        if self.trace {
            println!("  -> {error:?}");
        }
        ensure!(error.to_string().contains(PATH), "the error names no file: {error:?}");
        ensure!(error.kind() != ErrorKind::Corruption, "a fault is taken for damage: {error:?}");
        let notes = self.watch.notes();
        if error.kind() == ErrorKind::ReadOnly {
            // A database that met a full disk while opening is read-only until it is reopened.
            let full = self.injection.is_some_and(|i| i.fault == Fault::ENOSPC)
                && error.to_string().contains("the disk was full when the database was opened");
            ensure!(notes.sync_failed || notes.unknown || full, "writing stopped without a cause: {error:?}");
            return Ok(());
        }
        let met = notes.failures > failures_before || matches!(self.stage, Stage::During(_));
        ensure!(met, "P5: nothing failed any more, but the call does: {error:?}");
        Ok(())
    }

    /// Judges a writing call. After a failed sync it must have been rejected.
    fn judge_write(&mut self, result: cairn::Result<()>, stopped: bool, failures: u64) -> Outcome<bool> {
        match result {
            Ok(()) => {
                ensure!(!stopped, "P4: a sync had failed, but the write is accepted");
                Ok(true)
            }
            Err(error) => {
                ensure!(!stopped || error.kind() == ErrorKind::ReadOnly, "P4: refused as {error:?}");
                self.judge(&error, failures)?;
                Ok(false)
            }
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("a call is only made while it is open")
    }

    fn keyspace(&self, n: usize) -> Option<(Keyspace, Incarnation)> {
        let drawn = self.open.get(NAMES[n]);
        drawn.or_else(|| self.open.values().next()).cloned()
    }

    /// The number of failed operations, and whether a sync failed since the database was opened.
    fn so_far(&self) -> (u64, bool) {
        let notes = self.watch.notes();
        (notes.failures, notes.sync_failed)
    }

    fn call(&mut self, call: &Call) -> Outcome {
        let (failures, stopped) = self.so_far();
        match call {
            Call::Commit { writes, durability, alone } => {
                let (writes, result) = match self.commit(writes, *durability, *alone) {
                    Committed::NoKeyspace => return Ok(()),
                    Committed::ReadFailed(error) => return self.judge(&error, failures),
                    Committed::Done(writes, result) => (writes, result),
                };
                let acknowledged = self.judge_write(result, stopped, failures)?;
                self.expected.commit(&writes, *durability, acknowledged);
            }
            Call::Sync => {
                let result = self.db().sync();
                if self.judge_write(result, stopped, failures)? {
                    self.expected.synced();
                }
            }
            Call::Flush => {
                let result = self.db().flush();
                if self.judge_write(result, stopped, failures)? {
                    self.expected.all_durable();
                }
            }
            Call::FlushOne(n) => {
                let Some((keyspace, incarnation)) = self.keyspace(*n) else { return Ok(()) };
                let result = keyspace.flush();
                if self.judge_write(result, stopped, failures)? {
                    self.expected.keyspace_durable(incarnation);
                }
            }
            Call::Compact(n) => {
                let Some((keyspace, _)) = self.keyspace(*n) else { return Ok(()) };
                let result = keyspace.compact();
                self.judge_write(result, stopped, failures)?;
            }
            Call::CompactAll => {
                let result = self.db().compact();
                self.judge_write(result, stopped, failures)?;
            }
            Call::Create(n) => self.create(NAMES[*n], stopped, failures)?,
            Call::Drop(n) => self.drop_keyspace(NAMES[*n], stopped, failures)?,
            Call::Reopen { close } => self.close(*close, failures)?,
            Call::Snapshot => self.take_snapshot(failures)?,
            Call::Iterate(n) => self.iterate(*n, failures)?,
            Call::Get(n, key) => self.get(*n, key, failures)?,
        }
        Ok(())
    }

    /// Writes.
    fn commit(&self, drawn: &[(usize, Vec<u8>, Change)], durability: Durability, alone: bool) -> Committed {
        if drawn.len() == 3 {
            return self.commit_transaction(drawn, durability);
        }
        let (mut batch, mut writes, mut single) = (self.db().batch(), Vec::new(), None);
        // The operand, if the only write is a merge.
        let mut alone_as: Option<Vec<u8>> = None;
        for (n, key, change) in drawn {
            let Some((keyspace, incarnation)) = self.keyspace(*n) else { return Committed::NoKeyspace };
            let deleted = |key: &[u8]| Write { keyspace: incarnation, key: key.to_vec(), value: None };
            single = None;
            match change {
                Change::DeleteRange(to, keys) => {
                    match has_order(&keyspace) {
                        true => batch.delete_range(&keyspace, &key[..]..&to[..]),
                        false => keys.iter().for_each(|key| batch.delete(&keyspace, key)),
                    }
                    writes.extend(keys.iter().map(|key| deleted(key)));
                    continue;
                }
                Change::Put(value) => {
                    let before =
                        writes.iter().rev().find(|w: &&Write| w.keyspace == incarnation && w.key == *key);
                    let now = || self.expected.now().get(&incarnation)?.get(key).cloned();
                    let old = before.map_or_else(now, |write| write.value.clone());
                    let value = appended(&keyspace, old.as_ref(), value.clone());
                    put_or_merge(&mut batch, &keyspace, key, old.as_ref(), &value);
                    alone_as = operand(&keyspace, old.as_ref(), &value).map(<[u8]>::to_vec);
                    writes.push(Write { keyspace: incarnation, key: key.to_vec(), value: Some(value) });
                }
                Change::Delete => {
                    batch.delete(&keyspace, key);
                    writes.push(deleted(key));
                }
            }
            single = Some(keyspace);
        }
        let result = match (single, &writes[..]) {
            (Some(keyspace), [Write { key, value: Some(_), .. }]) if alone && alone_as.is_some() => {
                keyspace.merge_with(key, alone_as.unwrap_or_default(), durability)
            }
            (Some(keyspace), [Write { key, value: Some(value), .. }]) if alone => {
                keyspace.put_until_with(key, &value[..], far_expiry(&keyspace, value), durability)
            }
            (Some(keyspace), [Write { key, .. }]) if alone => keyspace.delete_with(key, durability),
            _ => awaiting::write(self.db(), batch, durability, drawn.len().is_multiple_of(2)),
        };
        Committed::Done(writes, result)
    }

    /// Makes the same writes by a transaction that reads each key before.
    fn commit_transaction(&self, drawn: &[(usize, Vec<u8>, Change)], durability: Durability) -> Committed {
        let (mut transaction, mut writes) = (self.db().begin(), Vec::new());
        let mut change = |n: usize, key: &[u8], change: &Change| -> cairn::Result<bool> {
            let Some((keyspace, incarnation)) = self.keyspace(n) else { return Ok(false) };
            let mut write = |key: &[u8], value| {
                writes.push(Write { keyspace: incarnation, key: key.to_vec(), value });
            };
            let old: Option<Value> = transaction.get(&keyspace, key)?.map(|old| old.to_vec().into());
            match change {
                Change::DeleteRange(to, keys) => {
                    match has_order(&keyspace) {
                        true => {
                            transaction
                                .range(&keyspace, key..&to[..])
                                .try_for_each(|entry| entry.map(drop))?;
                            transaction.delete_range(&keyspace, key..&to[..])?;
                        }
                        false => keys.iter().try_for_each(|key| transaction.delete(&keyspace, key))?,
                    }
                    keys.iter().for_each(|key| write(key, None));
                }
                Change::Put(value) => {
                    let value = appended(&keyspace, old.as_ref(), value.clone());
                    match operand(&keyspace, old.as_ref(), &value) {
                        Some(operand) => transaction.merge(&keyspace, key, operand)?,
                        None => transaction.put_until(
                            &keyspace,
                            key,
                            &value[..],
                            far_expiry(&keyspace, &value),
                        )?,
                    }
                    write(key, Some(value));
                }
                Change::Delete => {
                    transaction.delete(&keyspace, key)?;
                    write(key, None);
                }
            }
            Ok(true)
        };
        let mut changes = drawn.iter().map(|(n, key, of)| change(*n, key, of));
        let changed = changes.try_fold(true, |all, changed| Ok::<_, cairn::Error>(all && changed?));
        drop(changes);
        match changed {
            Ok(false) => Committed::NoKeyspace,
            Ok(true) => {
                let result = awaiting::commit(transaction, durability, drawn.len().is_multiple_of(2));
                Committed::Done(writes, result)
            }
            Err(error) => Committed::ReadFailed(error),
        }
    }

    fn create(&mut self, name: &'static str, stopped: bool, failures: u64) -> Outcome {
        if self.open.contains_key(name) {
            return Ok(());
        }
        let created = self.db().create_keyspace(name, self.script.keyspace_options.clone());
        let (keyspace, result) = match created {
            Ok(keyspace) => (Some(keyspace), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let acknowledged = self.judge_write(result, stopped, failures)?;
        self.expected.create(name, acknowledged);
        if let Some(keyspace) = keyspace {
            self.open.insert(name, (keyspace, self.expected.catalog[name]));
        }
        Ok(())
    }

    fn drop_keyspace(&mut self, name: &'static str, stopped: bool, failures: u64) -> Outcome {
        if !self.open.contains_key(name) || self.open.len() == 1 {
            return Ok(());
        }
        let result = self.db().drop_keyspace(name);
        let acknowledged = self.judge_write(result, stopped, failures)?;
        self.expected.drop_keyspace(name, acknowledged);
        if acknowledged {
            self.open.remove(name);
        }
        Ok(())
    }

    /// Closes in one of two ways, and opens again.
    fn close(&mut self, close: bool, failures: u64) -> Outcome {
        self.open.clear();
        (self.snapshot, self.iteration) = (None, None);
        let db = self.db.take().expect("a call is only made while it is open");
        if close {
            match db.close() {
                Ok(()) => self.expected.synced(),
                Err(error) => {
                    // Closing also reports background errors since the open.
                    let since = self.failures_at_opening;
                    self.judge(&error, since)?;
                    self.unsettled = true;
                }
            }
        } else {
            drop(db);
            let notes = self.watch.notes();
            let lasts = matches!(self.stage, Stage::During(_));
            let settled = notes.failures == failures && !notes.sync_failed && !notes.unknown && !lasts;
            match settled {
                true => self.expected.synced(),
                false => self.unsettled = true,
            }
        }
        self.ensure_open()
    }

    /// Opens the database if it is closed. This may fail while the fault lasts.
    fn ensure_open(&mut self) -> Outcome {
        if self.db.is_some() {
            return Ok(());
        }
        self.watch.notes().begin_again();
        let failures = self.watch.notes().failures;
        self.failures_at_opening = failures;
        let db = match Database::open_in(self.env.clone(), PATH, self.script.options.clone()) {
            Ok(db) => db,
            Err(error) => return self.judge(&error, failures).map_err(|f| f.context("opening")),
        };
        if self.unsettled {
            // The operating system still has the data that it got, however the database was closed.
            match read_all(&db) {
                Ok(found) => {
                    self.expected.settle(&found, End::Process).map_err(|f| f.context("opened again"))?
                }
                Err(error) => {
                    self.judge(&error, failures)?;
                    return Ok(());
                }
            }
            self.unsettled = false;
        }
        for (name, incarnation) in &self.expected.catalog {
            let name = NAMES.into_iter().find(|n| n == name).expect("there are no other names");
            self.open.insert(name, (db.open_keyspace(name)?, *incarnation));
        }
        self.db = Some(db);
        Ok(())
    }

    fn take_snapshot(&mut self, failures: u64) -> Outcome {
        let new = (self.db().snapshot(), self.expected.now().clone());
        let Some((snapshot, contents)) = self.snapshot.replace(new) else { return Ok(()) };
        let empty = BTreeMap::new();
        for (keyspace, incarnation) in self.open.values().cloned().collect::<Vec<_>>() {
            let mut want = contents.get(&incarnation).unwrap_or(&empty).iter();
            let entries = match sorted_entries(&keyspace, Some(&snapshot)) {
                Ok(entries) => entries,
                Err(error) => return self.judge(&error, failures),
            };
            for (key, value) in entries {
                ensure!(
                    want.next().is_some_and(|w| w.0[..] == key[..] && w.1[..] == value[..]),
                    "the snapshot shows {}",
                    show(&key)
                );
            }
            ensure!(want.next().is_none(), "the snapshot misses something of {}", keyspace.name());
        }
        Ok(())
    }

    /// Finishes the iteration in progress, and starts another one.
    fn iterate(&mut self, n: usize, failures: u64) -> Outcome {
        if let Some(mut iteration) = self.iteration.take() {
            while let Some(entry) = iteration.entries.next() {
                match entry {
                    Ok(entry) => iteration.take(&entry)?,
                    Err(error) => return self.judge(&error, failures),
                }
            }
            ensure!(iteration.rest.is_empty(), "the iterator misses something");
        }
        let Some((keyspace, incarnation)) = self.keyspace(n) else { return Ok(()) };
        let rest = self.expected.now().get(&incarnation).cloned().unwrap_or_default();
        let in_order = has_order(&keyspace);
        let entries: Entries = match in_order {
            true => Box::new(keyspace.iter()),
            false => Box::new(keyspace.entries()),
        };
        let mut iteration = Iteration { entries, in_order, rest };
        match iteration.entries.next() {
            Some(Ok(entry)) => iteration.take(&entry)?,
            Some(Err(error)) => return self.judge(&error, failures),
            None => ensure!(iteration.rest.is_empty(), "an iterator ends at its beginning"),
        }
        self.iteration = Some(iteration);
        Ok(())
    }

    fn get(&mut self, n: usize, key: &[u8], failures: u64) -> Outcome {
        let Some((keyspace, incarnation)) = self.keyspace(n) else { return Ok(()) };
        let want = self.expected.now().get(&incarnation).and_then(|content| content.get(key));
        match keyspace.get(key) {
            Ok(got) => {
                ensure!(got.as_deref() == want.map(|v| &v[..]), "get of {} is wrong", show(key));
                Ok(())
            }
            Err(error) => self.judge(&error, failures),
        }
    }

    /// Compares all content. The fault is over, so no error is allowed.
    fn compare(&self) -> Outcome {
        let Some(db) = &self.db else { return Ok(()) };
        let found = read_all(db).map_err(|e| Finding::from(e).context("reading after the fault"))?;
        self.expected.compare(&found).map_err(|f| f.context("after the fault"))
    }

    /// Copies the disk after a power failure or a kill, and judges the content.
    fn end_clone(&mut self) -> Outcome {
        let end = if self.rng.chance(1, 2) { End::Power } else { End::Process };
        let env = match end {
            End::Power => self.env.crash_clone(*self.rng.pick(&Survival::ALL), self.rng.next_u64()),
            End::Process => self.env.process_clone(),
        };
        let mut expected = self.expected.clone();
        let open = |env: &Arc<SimEnv>| Database::open_in(env.clone(), PATH, self.script.options.clone());
        let db = open(&env).map_err(|e| Finding::from(e).context(format!("opening after {end:?}")))?;
        expected.settle(&read_all(&db)?, end)?;
        if end == End::Process && self.rng.chance(1, 2) {
            // The page cache may have had data that the disk lacked: the open must have written it again.
            let survival = *self.rng.pick(&Survival::ALL);
            let env = env.crash_clone(survival, self.rng.next_u64());
            let found = open(&env).and_then(|db| read_all(&db))?;
            expected.compare(&found).map_err(|f| f.context("a restart, then a power cut"))?;
        } else if self.rng.chance(1, 4) {
            self.write_on(&mut expected, db, &env)?;
        }
        Ok(())
    }

    /// Writes to a recovered database must last.
    fn write_on(&self, expected: &mut Expected, db: Database, env: &Arc<SimEnv>) -> Outcome {
        let Some((name, &incarnation)) = expected.catalog.first_key_value() else { return Ok(()) };
        let value: Value = b"written after recovery".as_slice().into();
        let write = Write { keyspace: incarnation, key: b"k00".to_vec(), value: Some(value.clone()) };
        db.open_keyspace(name)?.put_with("k00", &value[..], Durability::Sync)?;
        expected.commit(&[write], Durability::Sync, true);
        let env = env.crash_clone(Survival::Nothing, 1);
        let db = Database::open_in(env, PATH, self.script.options.clone())?;
        expected.compare(&read_all(&db)?).map_err(|f| f.context("going on after recovery"))
    }

    /// Ends the fault, makes a last write, and closes the database.
    fn finish(&mut self) -> Outcome {
        self.env.clear_faults();
        if matches!(self.stage, Stage::During(_)) {
            self.stage = Stage::Passed;
        }
        self.ensure_open()?;
        self.compare()?;
        let (failures, stopped) = self.so_far();
        if self.open.is_empty() {
            self.create(NAMES[0], stopped, failures)?;
        }
        let writes = vec![(0, b"last".to_vec(), Change::Put(b"write".as_slice().into()))];
        let last = Call::Commit { writes, durability: Durability::Os, alone: true };
        self.call(&last).map_err(|f| f.context("a last write"))?;
        self.end_clone()?;
        self.close(true, failures)?;
        self.pass_time()?;
        self.compare()
    }
}
