//! Closing concurrently with other calls, and reopening immediately.

use crate::stage::{check, entries, tiny, wide};
use cairn::env::SimEnv;
use cairn::{Database, Durability, ErrorKind, Keyspace, Options};
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::thread;
use sim::lifetime::gate::Gate;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Number of threads beside the one that closes.
const THREADS: usize = 3;

/// Number of calls of each thread.
const CALLS: usize = 3;

/// Traps 34 and 35: threads put, flush, compact, create and drop keyspaces and iterate while the database is closed,
/// and continue while it is reopened and used. Acknowledged writes exist; late calls get an error; the disk does not
/// change after the lock is released.
#[test]
fn closing_ends_every_call_before_the_next_opening_begins() {
    check(lifetimes, 2400);
}

/// The acknowledged writes of a thread: keys in both keyspaces, and keyspaces that it created.
#[derive(Default)]
struct Told {
    keys: Vec<String>,
    /// Whether each still exists.
    created: BTreeMap<String, bool>,
}

struct Actor {
    number: usize,
    db: Database,
    spaces: [Keyspace; 2],
    closed: Arc<AtomicBool>,
    told: Told,
}

impl Actor {
    /// Whether a call succeeded. A call made after the close must not.
    fn judge(&self, what: &str, was_closed: bool, result: cairn::Result<()>) -> bool {
        match result {
            Ok(()) => assert!(!was_closed, "{what} succeeds after close"),
            Err(ref e) => assert_eq!(e.kind(), ErrorKind::Closed, "{what}: {e}"),
        }
        result.is_ok()
    }

    fn put(&mut self, call: usize) {
        let (key, was_closed) = (format!("{}/{call}", self.number), self.is_closed());
        let mut batch = self.db.batch();
        self.spaces.iter().for_each(|space| batch.put(space, &key, wide("1")));
        let written = self.db.write(batch, Durability::Buffered);
        if self.judge("a batch", was_closed, written) {
            self.told.keys.push(key);
        }
    }

    fn create(&mut self, call: usize) {
        let (name, was_closed) = (format!("own-{}-{call}", self.number), self.is_closed());
        let created = self.db.create_keyspace(&name, tiny()).map(drop);
        if self.judge("create_keyspace", was_closed, created) {
            self.told.created.insert(name, true);
        }
    }

    fn drop_one(&mut self) {
        let Some(name) = self.told.created.iter().find(|c| *c.1).map(|c| c.0.clone()) else { return };
        let was_closed = self.is_closed();
        if self.judge("drop_keyspace", was_closed, self.db.drop_keyspace(&name)) {
            self.told.created.insert(name, false);
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn run(mut self) -> Told {
        let mut range = self.spaces[0].iter();
        for call in 0..CALLS {
            let was_closed = self.is_closed();
            match thread_rng().r#gen::<u8>() % 8 {
                0 | 1 => self.put(call),
                2 => drop(self.judge("flush", was_closed, self.db.flush())),
                3 | 4 => drop(self.judge("compact", was_closed, self.spaces[0].compact())),
                5 => self.create(call),
                6 => self.drop_one(),
                _ => match range.next() {
                    Some(Ok((key, _))) => assert!(!was_closed, "an iterator gives {key:?} after close"),
                    Some(Err(e)) => assert_eq!(e.kind(), ErrorKind::Closed, "an iterator: {e}"),
                    None => {}
                },
            }
        }
        // Only calls that do not use the database can succeed now, and only before the close.
        let was_closed = self.is_closed();
        self.judge("flush", was_closed, self.spaces[1].flush());
        self.told
    }
}

/// Opens the database. Without background threads, all work is done in the calling threads.
fn open(disk: &Arc<SimEnv>, threads: usize) -> (Arc<Gate>, Database) {
    let gate = Gate::new(disk.clone(), None);
    let options = Options::default().memory_budget(1 << 20).background_threads(threads).manifest_cap(1 << 10);
    let db = Database::open_in(gate.clone(), "/db", options).expect("it opens");
    (gate, db)
}

/// The keys of the two keyspaces, and the names of all keyspaces.
fn read(db: &Database) -> ([BTreeSet<String>; 2], BTreeSet<String>) {
    let keys =
        |name: &str| entries(&db.open_keyspace(name).unwrap()).into_iter().map(|entry| entry.0).collect();
    (["left", "right"].map(keys), db.keyspaces().into_iter().collect())
}

pub fn lifetimes() {
    let disk = SimEnv::new(1);
    let threads = usize::from(thread_rng().r#gen::<bool>());
    let (gate, db) = open(&disk, threads);
    let spaces = ["left", "right"].map(|name| db.create_keyspace(name, tiny()).unwrap());
    for number in 0..3 {
        spaces.iter().for_each(|space| space.put(format!("before/{number}"), wide("1")).unwrap());
    }
    let switch = AtomicUsize::new(0);
    disk.set_hook(Some(Box::new(move |_| {
        switch.load(Ordering::SeqCst);
        None
    })));
    let closed = Arc::new(AtomicBool::new(false));
    let actors: Vec<_> = (0..THREADS)
        .map(|number| {
            let (db, spaces, closed) = (db.clone(), spaces.clone(), closed.clone());
            let actor = Actor { number, db, spaces, closed, told: Told::default() };
            thread::spawn(move || actor.run())
        })
        .collect();
    drop(spaces);
    db.close().unwrap();
    closed.store(true, Ordering::SeqCst);
    let (next_gate, next) = open(&disk, threads);
    let found = read(&next);
    next.compact().unwrap();
    let told: Vec<Told> = actors.into_iter().map(|actor| actor.join().unwrap()).collect();
    gate.check().unwrap();
    assert_eq!(found.0[0], found.0[1], "half a batch");
    for told in &told {
        let lost = told.keys.iter().find(|key| !found.0[0].contains(*key));
        assert!(lost.is_none(), "{lost:?} was acknowledged, and is lost");
        let wrong = told.created.iter().find(|(name, there)| found.1.contains(*name) != **there);
        assert!(wrong.is_none(), "keyspace {wrong:?} is not as it was acknowledged");
    }
    // Dropping the last handle of the first opening must not affect the second one.
    assert_eq!(read(&next), found);
    let report = next.check(&mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    next.close().unwrap();
    next_gate.check().unwrap();
}

/// A keyspace whose creation is acknowledged while another thread closes the database exists afterwards; a rejected
/// one does not.
#[test]
fn a_keyspace_that_is_created_beside_closing_is_there_or_refused() {
    check(late_creation, 2400);
}

pub fn late_creation() {
    let disk = SimEnv::new(1);
    let (gate, db) = open(&disk, 0);
    let switch = AtomicUsize::new(0);
    disk.set_hook(Some(Box::new(move |_| {
        switch.load(Ordering::SeqCst);
        None
    })));
    let other = db.clone();
    let creator = thread::spawn(move || other.create_keyspace("late", tiny()).map(drop));
    db.close().unwrap();
    let (_next_gate, next) = open(&disk, 0);
    let names = next.keyspaces();
    match creator.join().unwrap() {
        Ok(()) => assert_eq!(names, ["late"], "it was acknowledged"),
        Err(e) => assert!(e.kind() == ErrorKind::Closed && names.is_empty(), "{e}: {names:?}"),
    }
    gate.check().unwrap();
    next.close().unwrap();
}
