//! A thread of a lifetime: makes random calls until the database is closed, and continues to call it afterwards.

use super::held::{Held, Step, compare, has_history, hold};
use super::ledger::{
    Content, KEYS, Ledger, NAMES, PAIRS, bytes_of, key, late_key, number_of, own_prefix, pair, parse, prefix,
};
use super::site::{THREADS, own_options};
use super::stage::{Ending, Stage};
use crate::alterations::altered;
use crate::awaiting;
use crate::data::far_expiry;
use crate::finding::{Finding, Outcome, ensure};
use crate::ordering::has_order;
use crate::random::{Draw, Rng};
use cairn::{
    BackupOptions, Backups, Database, Durability, Engine, ErrorKind, Ingest, IngestOptions, Keyspace, Merge,
    Time, Transaction, TransactionOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

/// Maximum number of iterators, cursors and snapshots that a thread holds.
const MAX_HELD: usize = 6;

/// Maximum number of copies that a thread makes in an opening.
const MAX_COPIES: usize = 3;

/// Maximum number of keyspaces that a thread creates.
const MAX_OWN: usize = 3;

/// The handles of a thread.
pub struct Handles {
    /// The database.
    pub db: Database,
    /// The shared keyspaces.
    pub spaces: [Keyspace; 2],
    /// The keyspaces that the thread created.
    pub own: BTreeMap<String, Keyspace>,
    /// Further handles of the database, unused.
    pub more: Vec<Database>,
}

impl Handles {
    /// The initial handles of a thread.
    pub fn new(db: &Database, ledger: &Ledger) -> cairn::Result<Handles> {
        let spaces = [db.open_keyspace(NAMES[0])?, db.open_keyspace(NAMES[1])?];
        let own = ledger.own().into_iter().map(|name| Ok((name.clone(), db.open_keyspace(&name)?)));
        let own = own.collect::<cairn::Result<_>>()?;
        Ok(Handles { db: db.clone(), spaces, own, more: Vec::new() })
    }
}

/// A thread of an opening.
pub struct Actor {
    stage: Arc<Stage>,
    handles: Option<Handles>,
    ledger: Ledger,
    rng: Rng,
    held: Vec<Held>,
    late_calls: u64,
    copies: usize,
    load: Option<HeldLoad>,
}

/// A bulk load that is not committed.
struct HeldLoad {
    load: Ingest,
    /// Keyspace, key and number of each entry.
    entries: Vec<(usize, String, u64)>,
}

impl Actor {
    /// The thread of this ledger.
    pub fn new(stage: Arc<Stage>, handles: Handles, ledger: Ledger, rng: Rng) -> Actor {
        let (held, late_calls, copies, load) = (Vec::new(), 0, 0, None);
        Actor { stage, handles: Some(handles), ledger, rng, held, late_calls, copies, load }
    }

    /// Makes calls until it is stopped. Returns the number of calls after the close.
    pub fn run(mut self) -> Outcome<u64> {
        let place = |f: Finding, who: usize| f.context(format_args!("thread {who}"));
        let who = self.ledger.thread;
        self.early().map_err(|f| place(f, who))?;
        self.stage.hand_in(self.ledger.clone());
        self.late().map_err(|f| place(f, who).context("after the end"))?;
        Ok(self.late_calls)
    }

    fn early(&mut self) -> Outcome {
        let (dropping, closing) = (
            self.stage.ending == Ending::DropHandles,
            self.stage.ending.is_theirs() && self.ledger.thread == 0,
        );
        while !self.stage.is_closed() && !self.stage.is_stopped() {
            if dropping && self.stage.is_closing() {
                self.stage.note(self.ledger.thread, "dropping its handles");
                self.handles = None;
                self.stage.note_dropped();
                return Ok(());
            }
            if closing
                && self.stage.is_due()
                && let Some(handles) = &self.handles
            {
                self.stage.note(self.ledger.thread, "close");
                return self.stage.close(handles.db.clone());
            }
            self.step()?;
            self.stage.calls.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes a call. `None` if it failed with `Closed` and this is allowed.
    fn call<T>(
        &mut self,
        what: &'static str,
        run: impl FnOnce(&mut Handles, &mut Rng) -> cairn::Result<T>,
    ) -> Outcome<Option<T>> {
        self.stage.note(self.ledger.thread, what);
        let closed = self.stage.is_closed();
        let Some(handles) = &mut self.handles else { return Ok(None) };
        let result = run(handles, &mut self.rng);
        self.judge(what, closed, result)
    }

    fn judge<T>(&mut self, what: &'static str, closed: bool, result: cairn::Result<T>) -> Outcome<Option<T>> {
        match result {
            Ok(_) if closed => {
                Err(Finding::new(format!("{what} succeeds, though the database was closed before it began")))
            }
            Ok(value) => Ok(Some(value)),
            // While the database is being closed, each call may succeed or fail.
            Err(e) if e.kind() == ErrorKind::Closed && self.stage.is_closing() => {
                std::thread::sleep(Duration::from_micros(50));
                Ok(None)
            }
            Err(e) => Err(Finding::from(e).context(what)),
        }
    }

    fn durability(&mut self) -> Durability {
        *self.rng.pick(&[Durability::Buffered, Durability::Os, Durability::Os, Durability::Sync])
    }

    fn step(&mut self) -> Outcome {
        // A change of the manifest beside a close needs both at the same moment: around the end it is every third call.
        if self.stage.is_due() && self.rng.chance(1, 3) {
            return self.create();
        }
        match self.rng.below(64) {
            62 | 63 => self.copy(),
            54..58 => self.transaction(),
            0..12 => self.put(),
            48..50 => self.put_late(),
            50..54 => self.look_at_versions(),
            12..14 => self.delete(),
            14..19 => self.batch(),
            19 => self.delete_range(),
            20..24 => self.get(),
            24..26 => self.scan(),
            26..29 => self.keep(),
            29..34 => self.advance(),
            34 => self.look_at_pair(),
            35..38 => self.work(),
            38..40 => self.create(),
            40 => match self.rng.below(3) {
                0 => self.drop_own(),
                1 => self.rename_own(),
                _ => self.clone_own(),
            },
            41 | 42 | 45 | 46 => self.load(),
            58..60 => self.put_own(),
            60 | 61 => self.read_own(),
            43..45 => self.juggle(),
            _ => self.inspect(),
        }
    }

    fn put(&mut self) -> Outcome {
        let (space, key) = (self.rng.between(0, 1), key(self.ledger.thread, self.rng.below(KEYS)));
        let (number, durability) = (self.ledger.new_number(), self.durability());
        let put = |h: &mut Handles, _: &mut Rng| {
            let (keyspace, value) = (&h.spaces[space], bytes_of(number));
            keyspace.put_until_with(&key, &value, far_expiry(keyspace, &value), durability)
        };
        if self.call("put", put)?.is_some() {
            self.ledger.content_mut(NAMES[space]).insert(key, number);
        }
        Ok(())
    }

    fn delete(&mut self) -> Outcome {
        let (space, key) = (self.rng.between(0, 1), key(self.ledger.thread, self.rng.below(KEYS)));
        let durability = self.durability();
        if self.call("delete", |h, _| h.spaces[space].delete_with(&key, durability))?.is_some() {
            self.ledger.content_mut(NAMES[space]).remove(&key);
        }
        Ok(())
    }

    fn delete_range(&mut self) -> Outcome {
        let (space, first) = (self.rng.between(0, 1), self.rng.below(KEYS));
        let (from, to) = (key(self.ledger.thread, first), key(self.ledger.thread, first + 4));
        let bounds = from.as_str()..to.as_str();
        if self.call("delete_range", |h, _| h.spaces[space].delete_range(bounds))?.is_some() {
            self.ledger.content_mut(NAMES[space]).retain(|key, _| !(from <= *key && *key < to));
        }
        Ok(())
    }

    /// Moves the value of a key to another one, in the other keyspace, by a transaction or by single steps.
    fn transaction(&mut self) -> Outcome {
        let space = self.rng.between(0, 1);
        let [from, to] = [0, 1].map(|_| key(self.ledger.thread, self.rng.below(KEYS)));
        let (number, durability) = (self.ledger.new_number(), self.durability());
        if self.rng.chance(1, 3) {
            let update = |h: &mut Handles, _: &mut Rng| {
                h.spaces[space].fetch_update_with(&from, |_| Some(bytes_of(number)), durability)
            };
            if let Some(before) = self.call("fetch_update", update)? {
                let before = before.map(|value| number_of(&value)).transpose()?;
                let known = self.ledger.content_mut(NAMES[space]).insert(from, number);
                ensure!(before == known, "fetch_update finds {before:?}, not {known:?}");
            }
            return Ok(());
        }
        let options = TransactionOptions::default().durability(durability);
        let (as_task, stage, mut must_succeed) = (self.rng.chance(1, 2), self.stage.clone(), false);
        let transfer = |h: &mut Handles, _: &mut Rng| {
            let write = |tx: &mut Transaction| {
                let found = tx.get(&h.spaces[space], &from)?;
                tx.delete(&h.spaces[space], &from)?;
                tx.put(&h.spaces[1 - space], &to, bytes_of(number))?;
                cairn::Result::Ok(found)
            };
            if !as_task {
                return h.db.transaction_with(&options, write);
            }
            loop {
                let mut transaction = h.db.begin();
                let found = write(&mut transaction)?;
                let queued = transaction.commit_async(durability);
                // What was queued before the database is closed is committed, unless it conflicts.
                must_succeed = !stage.is_closing();
                match awaiting::wait(queued) {
                    Err(error) if error.kind() == ErrorKind::Conflict => must_succeed = false,
                    committed => return committed.map(|()| found),
                }
            }
        };
        let found = self.call("transaction", transfer)?;
        ensure!(found.is_some() || !must_succeed, "closing has refused a transaction that was queued before");
        if let Some(found) = found {
            let found = found.map(|value| number_of(&value)).transpose()?;
            let known = self.ledger.content_mut(NAMES[space]).remove(&from);
            ensure!(found == known, "a transaction finds {found:?}, not {known:?}");
            self.ledger.content_mut(NAMES[1 - space]).insert(to, number);
        }
        Ok(())
    }

    /// Writes one number to both keyspaces, and another key in each.
    fn batch(&mut self) -> Outcome {
        let (both, durability) = (pair(self.ledger.thread, self.rng.below(PAIRS)), self.durability());
        let number = self.ledger.new_number();
        let keys = [0, 1].map(|_| key(self.ledger.thread, self.rng.below(KEYS)));
        let numbers = [0, 1].map(|_| self.ledger.new_number());
        let (as_task, stage, mut must_succeed) = (self.rng.chance(1, 2), self.stage.clone(), false);
        let write = |h: &mut Handles, _: &mut Rng| {
            let mut batch = h.db.batch();
            for (i, space) in h.spaces.iter().enumerate() {
                batch.put(space, &both, bytes_of(number));
                batch.put(space, &keys[i], bytes_of(numbers[i]));
            }
            match as_task {
                false => h.db.write(batch, durability),
                true => {
                    let queued = h.db.write_async(batch, durability);
                    // What was queued before the database is closed is committed.
                    must_succeed = !stage.is_closing();
                    awaiting::wait(queued)
                }
            }
        };
        let written = self.call("write of a batch", write)?;
        ensure!(written.is_some() || !must_succeed, "closing has refused a batch that was queued before");
        if written.is_some() {
            for i in 0..2 {
                let content = self.ledger.content_mut(NAMES[i]);
                content.insert(both.clone(), number);
                content.insert(keys[i].clone(), numbers[i]);
            }
        }
        Ok(())
    }

    /// Begins a bulk load of one number in both keyspaces and another key in each, or ends the one that was begun: commits it or drops it.
    fn load(&mut self) -> Outcome {
        if let Some(HeldLoad { load, entries }) = self.load.take() {
            if self.rng.chance(1, 4) {
                self.stage.note(self.ledger.thread, "drop of a bulk load");
                return Ok(());
            }
            // Others write meanwhile, which keyspaces with history do not take.
            let committed = self.call("commit of a bulk load", |h, _| match load.commit() {
                Err(e) if e.kind() == ErrorKind::Conflict && h.spaces.iter().any(has_history) => Ok(false),
                done => done.map(|_| true),
            })?;
            if committed == Some(true) {
                for (space, key, number) in entries {
                    self.ledger.content_mut(NAMES[space]).insert(key, number);
                }
            }
            return Ok(());
        }
        let takes = |keyspace: &Keyspace| keyspace.options().engine == Engine::Tree;
        if !self.handles.as_ref().is_some_and(|h| h.spaces.iter().all(takes)) {
            return Ok(());
        }
        let (both, number) = (pair(self.ledger.thread, self.rng.below(PAIRS)), self.ledger.new_number());
        let mut entries = Vec::new();
        for space in 0..2 {
            // In order: digits come before the letters of a pair.
            let key = key(self.ledger.thread, self.rng.below(KEYS));
            entries.push((space, key, self.ledger.new_number()));
            entries.push((space, both.clone(), number));
        }
        let begin = |h: &mut Handles, rng: &mut Rng| {
            // A sorted load has files from its first entry on.
            let options = IngestOptions::default();
            let mut load = h.db.ingest(if rng.chance(2, 3) { options } else { options.unsorted(0) });
            for (space, key, number) in &entries {
                load.put(&h.spaces[*space], key, bytes_of(*number))?;
            }
            Ok(load)
        };
        self.load = self.call("a bulk load", begin)?.map(|load| HeldLoad { load, entries });
        Ok(())
    }

    fn get(&mut self) -> Outcome {
        let space = self.rng.between(0, 1);
        let keys = [0, 1, 2].map(|_| key(self.ledger.thread, self.rng.below(KEYS)));
        let values = match self.rng.below(4) {
            0 => match self.call("try_get", |h, _| h.spaces[space].try_get(&keys[0]))? {
                Some(Poll::Ready(value)) => Some(vec![value]),
                Some(Poll::Pending) | None => None,
            },
            1 => self.call("multi_get", |h, _| h.spaces[space].multi_get(&keys))?,
            2 => self.call("get", |h, _| Ok(vec![h.spaces[space].get(&keys[0])?]))?,
            _ => self.call("get_with_expiry", |h, _| {
                Ok(vec![h.spaces[space].get_with_expiry(&keys[0])?.map(|(value, _)| value)])
            })?,
        };
        for (key, value) in keys.iter().zip(values.into_iter().flatten()) {
            let number = value.map(|value| number_of(&value)).transpose()?;
            let wanted = self.ledger.content(NAMES[space]).get(key).copied();
            ensure!(
                number == wanted,
                "{key} of {:?} has value {number:?} instead of {wanted:?}",
                NAMES[space]
            );
        }
        Ok(())
    }

    /// Reads newest versions by time.
    fn look_at_versions(&mut self) -> Outcome {
        let (space, mine) = (self.rng.between(0, 1), prefix(self.ledger.thread));
        if !self.handles.as_ref().is_some_and(|h| has_history(&h.spaces[space])) {
            return Ok(());
        }
        let key = key(self.ledger.thread, self.rng.below(KEYS));
        if self.rng.chance(1, 3) {
            let end = format!("{mine}~");
            let entries = self.call("recent", |h, _| {
                let versions = h.spaces[space].recent(mine.as_str()..end.as_str())?;
                versions.map(|v| v.map(|v| (v.key, v.value))).collect::<cairn::Result<Vec<_>>>()
            })?;
            let Some(entries) = entries else { return Ok(()) };
            let found = entries.iter().map(parse).collect::<Outcome<Content>>()?;
            return compare("recent", &found, self.ledger.content(NAMES[space]));
        }
        let value = match self.rng.below(3) {
            0 => self
                .call("get_at", |h, _| Ok(h.spaces[space].get_at(&key, Time::MAX)?.and_then(|v| v.value)))?,
            1 => self.call("multi_get_at", |h, _| {
                let found = h.spaces[space].multi_get_at(&[&key], Time::MAX)?.pop().flatten();
                Ok(found.and_then(|v| v.value))
            })?,
            _ => self.call("history", |h, _| {
                Ok(h.spaces[space].history(&key, ..)?.next().transpose()?.and_then(|v| v.value))
            })?,
        };
        if let Some(value) = value {
            let number = value.map(|value| number_of(&value)).transpose()?;
            let wanted = self.ledger.content(NAMES[space]).get(&key).copied();
            ensure!(number == wanted, "the newest version of {key} is {number:?} instead of {wanted:?}");
        }
        Ok(())
    }

    /// Puts two versions of a key with times of their own, the later one first.
    fn put_late(&mut self) -> Outcome {
        let (space, durability) = (self.rng.between(0, 1), self.durability());
        if !self.handles.as_ref().is_some_and(|h| has_history(&h.spaces[space])) {
            return Ok(());
        }
        let (key, late, number) =
            (late_key(self.ledger.thread), self.ledger.new_number(), self.ledger.new_number());
        for (number, wins) in [(number, true), (late, false)] {
            let time = Time::from_micros(number);
            let put = |h: &mut Handles, _: &mut Rng| {
                h.spaces[space].put_at_with(&key, bytes_of(number), time, durability)
            };
            match self.call("put_at", put)? {
                Some(()) if wins => drop(self.ledger.content_mut(NAMES[space]).insert(key.clone(), number)),
                Some(()) => {}
                None => return Ok(()),
            }
        }
        if self.rng.chance(1, 3) {
            let time = Time::from_micros(self.ledger.new_number());
            let removed =
                self.call("remove_at", |h, _| h.spaces[space].remove_at_with(&key, time, durability))?;
            if let Some(removed) = removed {
                self.ledger.content_mut(NAMES[space]).remove(&key);
                let removed = removed.and_then(|v| v.value).map(|value| number_of(&value)).transpose()?;
                ensure!(removed == Some(number), "remove_at returns {removed:?} instead of {number}");
            }
        }
        Ok(())
    }

    fn scan(&mut self) -> Outcome {
        let (space, mine, backward) =
            (self.rng.between(0, 1), prefix(self.ledger.thread), self.rng.chance(1, 3));
        let entries = self.call("a scan", |h, _| {
            let range = h.spaces[space].prefix(&mine);
            if backward { range.rev().collect() } else { range.collect::<cairn::Result<Vec<_>>>() }
        })?;
        let Some(entries) = entries else { return Ok(()) };
        let found = entries.iter().map(parse).collect::<Outcome<Content>>()?;
        compare("a scan", &found, self.ledger.content(NAMES[space]))
    }

    /// Creates an iterator, cursor or snapshot to hold.
    fn keep(&mut self) -> Outcome {
        let Some(handles) = &self.handles else { return Ok(()) };
        if self.held.len() >= MAX_HELD {
            let which = self.rng.between(0, MAX_HELD - 1);
            self.held.swap_remove(which);
        }
        let mine = prefix(self.ledger.thread);
        let contents = NAMES.map(|name| self.ledger.content(name).clone());
        if self.rng.chance(1, 3) {
            self.held.push(Held::Snapshot(handles.db.snapshot(), contents, mine));
            return Ok(());
        }
        let (space, [left, right]) = (self.rng.between(0, 1), contents);
        let content = if space == 0 { left } else { right };
        // Some of them are also made after the close, and fail at the first move.
        let held = hold(&handles.spaces[space], &mine, content, &mut self.rng);
        let held = self.judge("a new iterator or cursor", false, held)?;
        self.held.extend(held);
        Ok(())
    }

    fn advance(&mut self) -> Outcome {
        if self.held.is_empty() {
            return Ok(());
        }
        let which = self.rng.between(0, self.held.len() - 1);
        let mut held = self.held.swap_remove(which);
        let what = held.name();
        self.stage.note(self.ledger.thread, what);
        let closed = self.stage.is_closed();
        let moved = held.advance(self.handles.as_ref().map(|h| &h.spaces), &mut self.rng);
        if let Ok(Ok(Step::Ended)) = moved {
            // An iterator that has returned its end will not return an error.
            if !held.is_iterator() {
                self.held.push(held);
            }
            return Ok(());
        }
        let is_iterator = held.is_iterator();
        match self.judge(what, closed, moved)? {
            Some(step) => {
                step?;
                self.held.push(held);
            }
            // An iterator returns the error once.
            None if is_iterator => {}
            None => self.held.push(held),
        }
        Ok(())
    }

    /// A pair that another thread writes in one batch must be equal in both keyspaces.
    fn look_at_pair(&mut self) -> Outcome {
        let both = pair(self.rng.between(0, THREADS - 1), self.rng.below(PAIRS));
        let values = self.call("a read of a pair", |h, _| {
            let snapshot = h.db.snapshot();
            Ok([snapshot.get(&h.spaces[0], &both)?, snapshot.get(&h.spaces[1], &both)?])
        })?;
        if let Some([left, right]) = values {
            ensure!(left == right, "half a batch: {both} is {left:?} left and {right:?} right");
        }
        Ok(())
    }

    /// Flushes, compacts, syncs or waits.
    fn work(&mut self) -> Outcome {
        let space = self.rng.between(0, 1);
        let (from, to) = (key(self.ledger.thread, 3), key(self.ledger.thread, 9));
        let bounds = from.as_str()..to.as_str();
        match self.rng.below(14) {
            0..3 => self.call("flush of a keyspace", |h, _| h.spaces[space].flush())?,
            3..5 => self.call("flush", |h, _| h.db.flush())?,
            5..7 => self.call("compact of a keyspace", |h, _| h.spaces[space].compact())?,
            7..9 => self.call("compact_range", |h, _| h.spaces[space].compact_range(bounds))?,
            9 => self.call("compact", |h, _| h.db.compact())?,
            10 => self.call("wait_idle", |h, _| h.db.wait_idle())?,
            11 => self.call("alter", |h, rng| h.spaces[space].alter(|options| altered(options, rng)))?,
            12 => self.call("rewrite", |h, _| h.spaces[space].rewrite())?,
            _ => self.call("sync", |h, _| h.db.sync())?,
        };
        Ok(())
    }

    /// Makes a checkpoint or a backup, and looks whether the copy has what this thread has written.
    fn copy(&mut self) -> Outcome {
        let who = self.ledger.thread;
        if self.copies >= MAX_COPIES {
            return Ok(());
        }
        self.copies += 1;
        let name = format!("copy-{who}-{}", self.ledger.new_number());
        let env = self.stage.gate.disk().clone();
        let beside = |h: &Handles, name: &str| h.db.path().with_file_name(name);
        let made = if self.rng.chance(1, 2) {
            self.call("checkpoint", |h, _| h.db.checkpoint(beside(h, &name)).map(|_| beside(h, &name)))?
        } else {
            let backup = format!("backup-{who}");
            self.call("backup", |h, _| {
                let options = BackupOptions::default().keep(2);
                h.db.backup_with(beside(h, &backup), &options, &mut |_| ()).map(|_| ())
            })?
            .map(|()| -> cairn::Result<_> {
                let Some(handles) = &self.handles else { return Ok(None) };
                let to = beside(handles, &name);
                let backups = Backups::open_in(env.clone(), beside(handles, &backup))?;
                backups.restore(None, &to, &mut |_| ()).map(|_| Some(to))
            })
            .transpose()?
            .flatten()
        };
        let Some(path) = made else { return Ok(()) };
        let copy = Database::builder().env(env).open(path)?;
        for space in NAMES {
            let mine = prefix(who);
            let end = format!("{mine}~");
            let keyspace = copy.open_keyspace(space)?;
            let entries = keyspace.range(mine.as_str()..end.as_str()).collect::<cairn::Result<Vec<_>>>()?;
            let found = entries.iter().map(parse).collect::<Outcome<Content>>()?;
            compare("a copy", &found, self.ledger.content(space))?;
        }
        Ok(copy.close()?)
    }

    fn create(&mut self) -> Outcome {
        if self.ledger.own().len() >= MAX_OWN {
            return self.drop_own();
        }
        let name = format!("{}{}", own_prefix(self.ledger.thread), self.ledger.new_number());
        let created = self.call("create_keyspace", |h, rng| h.db.create_keyspace(&name, own_options(rng)))?;
        if let (Some(keyspace), Some(handles)) = (created, &mut self.handles) {
            self.ledger.content_mut(&name);
            handles.own.insert(name, keyspace);
        }
        Ok(())
    }

    fn drop_own(&mut self) -> Outcome {
        let names = self.ledger.own();
        if names.is_empty() {
            return Ok(());
        }
        let name = self.rng.pick(&names).clone();
        if self.call("drop_keyspace", |h, _| h.db.drop_keyspace(&name))?.is_some() {
            self.ledger.state.remove(&name);
            let handle = self.handles.as_mut().and_then(|h| h.own.remove(&name));
            let put = handle.map(|handle| handle.put("after", "the end"));
            let refused = put.is_none_or(|put| put.is_err_and(|e| e.kind() == ErrorKind::Closed));
            ensure!(refused, "a keyspace that was dropped takes a put");
        }
        Ok(())
    }

    fn rename_own(&mut self) -> Outcome {
        let names = self.ledger.own();
        if names.is_empty() {
            return Ok(());
        }
        let name = self.rng.pick(&names).clone();
        let new = format!("{}{}", own_prefix(self.ledger.thread), self.ledger.new_number());
        if self.call("rename_keyspace", |h, _| h.db.rename_keyspace(&name, &new))?.is_some() {
            let content = self.ledger.state.remove(&name).unwrap_or_default();
            self.ledger.state.insert(new.clone(), content);
            if let Some(handles) = &mut self.handles
                && let Some(handle) = handles.own.remove(&name)
            {
                ensure!(handle.name() == new, "{name} is called {} and not {new}", handle.name());
                handles.own.insert(new, handle);
            }
        }
        Ok(())
    }

    fn clone_own(&mut self) -> Outcome {
        let names = self.ledger.own();
        if names.is_empty() || names.len() >= MAX_OWN {
            return Ok(());
        }
        let name = self.rng.pick(&names).clone();
        let new = format!("{}{}", own_prefix(self.ledger.thread), self.ledger.new_number());
        if self.handles.as_ref().is_none_or(|h| !has_order(&h.own[&name])) {
            return Ok(());
        }
        let cloned = self.call("clone_keyspace", |h, _| h.db.clone_keyspace(&name, &new))?;
        if let (Some(keyspace), Some(handles)) = (cloned, &mut self.handles) {
            let content = self.ledger.content_mut(&name).clone();
            self.ledger.state.insert(new.clone(), content);
            handles.own.insert(new, keyspace);
        }
        Ok(())
    }

    fn put_own(&mut self) -> Outcome {
        let names = self.ledger.own();
        if names.is_empty() {
            return Ok(());
        }
        let name = self.rng.pick(&names).clone();
        let (key, number, durability) =
            (key(self.ledger.thread, self.rng.below(KEYS)), self.ledger.new_number(), self.durability());
        // The number is larger than all before it, so a merge keeps it. In a batch it may have to be read.
        let put = |h: &mut Handles, rng: &mut Rng| {
            let (keyspace, value) = (&h.own[&name], bytes_of(number));
            match keyspace.options().merge == Merge::BytesMax {
                true if rng.chance(1, 3) => keyspace.merge_with(&key, value, durability),
                true if rng.chance(1, 2) => {
                    let mut batch = h.db.batch();
                    batch.merge(keyspace, &key, value);
                    awaiting::write(&h.db, batch, durability, rng.chance(1, 2))
                }
                _ => keyspace.put_with(&key, value, durability),
            }
        };
        if self.call("put to a new keyspace", put)?.is_some() {
            self.ledger.content_mut(&name).insert(key, number);
        }
        Ok(())
    }

    /// Reads a keyspace of its own, which may have no order, as a whole.
    fn read_own(&mut self) -> Outcome {
        let names = self.ledger.own();
        if names.is_empty() {
            return Ok(());
        }
        let name = self.rng.pick(&names).clone();
        let read = |h: &mut Handles, _: &mut Rng| h.own[&name].entries().collect::<cairn::Result<Vec<_>>>();
        let Some(entries) = self.call("entries", read)? else { return Ok(()) };
        let found = entries.iter().map(parse).collect::<Outcome<Content>>()?;
        ensure!(found.len() == entries.len(), "entries shows a key twice");
        compare("entries", &found, self.ledger.content(&name))
    }

    /// Clones, drops and reopens handles.
    fn juggle(&mut self) -> Outcome {
        let space = self.rng.between(0, 1);
        let Some(handles) = &mut self.handles else { return Ok(()) };
        match self.rng.below(4) {
            0 => {
                handles.more.push(handles.db.clone());
                handles.more.truncate(4);
                Ok(())
            }
            1 => {
                handles.more.pop();
                Ok(())
            }
            _ => {
                let opened = self.call("open_keyspace", |h, _| h.db.open_keyspace(NAMES[space]))?;
                if let (Some(opened), Some(handles)) = (opened, &mut self.handles) {
                    handles.spaces[space] = opened;
                }
                Ok(())
            }
        }
    }

    /// Calls that inspect the database.
    fn inspect(&mut self) -> Outcome {
        let report = match self.rng.below(7) {
            0 => self.call("check", |h, _| h.db.check(&mut |_| {}))?,
            1 => self.call("scrub", |h, _| h.db.scrub(0))?,
            2 => {
                let stats = self.handles.as_ref().map(|h| (h.db.stats(), h.spaces[0].stats()));
                let error = stats.and_then(|(stats, _)| stats.background_error);
                ensure!(error.is_none() || self.stage.is_closing(), "in the background: {error:?}");
                None
            }
            3 => {
                let names = self.handles.as_ref().map(|h| h.db.keyspaces()).unwrap_or_default();
                let gone = self.ledger.own().into_iter().find(|name| !names.contains(name));
                ensure!(gone.is_none() || self.stage.is_closing(), "keyspace {gone:?} is not listed");
                None
            }
            4 => {
                let mine = prefix(self.ledger.thread);
                self.call("ends and sizes", |h, _| {
                    h.spaces[0].approximate_bytes(..mine.clone())?;
                    Ok((h.spaces[0].first()?, h.spaces[0].last()?, h.spaces[0].is_empty()?))
                })?;
                None
            }
            _ => {
                let guards = self.handles.as_ref().map(|h| h.spaces[0].guards());
                ensure!(guards.is_none_or(|g| !g.is_empty()), "there is not even level 0");
                None
            }
        };
        let problems = report.map(|report| report.problems).unwrap_or_default();
        ensure!(problems.is_empty(), "check finds {problems:?}");
        Ok(())
    }

    /// Makes calls that must fail, until the thread is stopped.
    fn late(&mut self) -> Outcome {
        while !self.stage.is_stopped() {
            if self.rng.chance(1, 3) {
                self.advance()?;
            } else if self.handles.is_some() && self.stage.is_closed() {
                self.late_call()?;
            } else {
                self.mix()?;
            }
            self.late_calls += 1;
            std::thread::sleep(Duration::from_micros(self.rng.below(150)));
        }
        Ok(())
    }

    fn late_call(&mut self) -> Outcome {
        match self.rng.below(24) {
            22 | 23 => self.load(),
            19 => self.transaction(),
            20 => self.put_own(),
            21 => self.read_own(),
            0..2 => self.put(),
            16 => self.put_late(),
            17..19 => self.look_at_versions(),
            2 => self.delete(),
            3..5 => self.batch(),
            5 => self.delete_range(),
            6 => self.get(),
            7 => self.scan(),
            8..12 => self.work(),
            12 => self.create(),
            13 => self.drop_own(),
            14 => {
                self.stage.note(self.ledger.thread, "close, again");
                let again = self.handles.as_ref().map(|h| h.db.clone().close());
                let refused = |e: &cairn::Error| e.kind() != ErrorKind::Closed;
                match again {
                    Some(Err(e)) if refused(&e) => Err(Finding::from(e).context("close, again")),
                    _ => Ok(()),
                }
            }
            _ => self.inspect(),
        }
    }

    /// Reads a snapshot of this opening with keyspaces of the next one, which must fail.
    fn mix(&mut self) -> Outcome {
        let next = self.stage.next.lock().unwrap_or_else(|e| e.into_inner());
        let snapshot = self.held.iter().find_map(|held| match held {
            Held::Snapshot(snapshot, ..) => Some(snapshot),
            _ => None,
        });
        let (Some(spaces), Some(snapshot)) = (&*next, snapshot) else { return Ok(()) };
        match snapshot.get(&spaces[0], key(self.ledger.thread, 1)) {
            Err(e) if matches!(e.kind(), ErrorKind::Closed | ErrorKind::InvalidArgument) => Ok(()),
            other => {
                Err(Finding::new(format!("a snapshot of a closed database reads in another: {other:?}")))
            }
        }
    }
}
