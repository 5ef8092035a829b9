//! A history of a database: operations from the input, compared with a sorted map, on a simulated disk that crashes.

use crate::Source;
use crate::database::{contents, options, small};
use crate::history_model::{Model, State, Write};
use cairn::{Compression, Database, Durability, Keyspace, Snapshot, check_in};
use env::{SimEnv, Survival};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of operations in a history.
const OPERATIONS: usize = 96;

const FINE: &str = "the disk works";

struct History<'a> {
    source: Source<'a>,
    sim: Arc<SimEnv>,
    /// The database and its keyspaces; `None` while it is closed.
    open: Option<(Database, [Keyspace; 2])>,
    snapshots: Vec<(Snapshot, State)>,
    model: Model,
}

/// Runs the history in the input. Compares all content after each reopening and at the end.
pub(crate) fn history(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let sim = SimEnv::new(source.u8().into());
    let mut history = History { source, sim, open: None, snapshots: Vec::new(), model: Model::new() };
    let compression = history.source.pick(&[Compression::None, Compression::None, Compression::Lz4]);
    let tables = 1 + history.source.below(3);
    let db = Database::open_in(history.sim.clone(), Path::new("/db"), options()).expect(FINE);
    let keyspaces = ["one", "two"].map(|name| {
        let options = small().compression(compression).max_tables_per_guard(tables);
        db.create_keyspace(name, options).expect(FINE)
    });
    history.open = Some((db, keyspaces));
    let mut operations = 0;
    while !history.source.is_empty() && operations < OPERATIONS {
        history.step();
        operations += 1;
    }
    history.compare();
    history.reopen();
    let report = check_in(history.sim.process_clone(), "/db", &mut |_| {}).expect(FINE);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    operations > 0
}

impl History<'_> {
    fn db(&self) -> &Database {
        &self.open.as_ref().expect("it is open").0
    }

    fn keyspace(&self, which: usize) -> &Keyspace {
        &self.open.as_ref().expect("it is open").1[which]
    }

    fn key(&mut self) -> Vec<u8> {
        let shape = self.source.u8();
        match shape {
            0..=199 => format!("k{:02}", shape % 50).into_bytes(),
            200..=239 => vec![b'k'; usize::from(shape - 200)],
            _ => self.source.bytes().to_vec(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let shape = self.source.u8();
        let len = match shape {
            0..=199 => usize::from(shape % 32),
            200..=249 => usize::from(shape) * 3,
            // Larger than a memtable, and larger than a block of the log.
            250..=254 => 5000,
            255 => 40_000,
        };
        self.source.take(3).iter().copied().cycle().take(len).collect()
    }

    fn write(&mut self) -> Write {
        let which = self.source.u8();
        let (keyspace, key) = (usize::from(which & 1), self.key());
        let value = (!which.is_multiple_of(5)).then(|| self.value());
        (keyspace, key, value)
    }

    fn durability(&mut self) -> Durability {
        self.source.pick(&[Durability::Buffered, Durability::Os, Durability::Sync])
    }

    fn step(&mut self) {
        match self.source.u8() {
            0..=109 => {
                let write = self.write();
                let durability = self.durability();
                self.commit(vec![write], durability).expect(FINE);
            }
            110..=139 => {
                let writes = (0..2 + self.source.below(6)).map(|_| self.write()).collect();
                let durability = self.durability();
                self.commit(writes, durability).expect(FINE);
            }
            140..=154 => {
                let which = self.source.below(2);
                self.keyspace(which).flush().expect(FINE);
            }
            155..=164 => {
                let which = self.source.below(2);
                let (from, to) = (self.key(), self.key());
                self.keyspace(which).compact_range(from..to).expect(FINE);
            }
            165..=169 => self.db().compact().expect(FINE),
            170..=179 => {
                self.db().sync().expect(FINE);
                self.model.all_durable();
            }
            180..=189 => self.snapshots.push((self.db().snapshot(), self.model.now().clone())),
            190..=194 => self.delete_range().expect(FINE),
            195..=204 => self.look_back(),
            205..=219 => self.look_up(),
            220..=229 => self.walk(),
            230..=237 => self.reopen(),
            238..=246 => self.crash(),
            247.. => self.crash_amid(),
        }
    }

    fn commit(&mut self, writes: Vec<Write>, durability: Durability) -> cairn::Result<()> {
        self.model.begin(&writes);
        if let [(which, key, value)] = &writes[..] {
            match value {
                Some(value) => self.keyspace(*which).put_with(key, value, durability)?,
                None => self.keyspace(*which).delete_with(key, durability)?,
            }
        } else {
            let mut batch = self.db().batch();
            for (which, key, value) in &writes {
                match value {
                    Some(value) => batch.put(self.keyspace(*which), key, value),
                    None => batch.delete(self.keyspace(*which), key),
                }
            }
            self.db().write(batch, durability)?;
        }
        self.model.acknowledge(durability);
        Ok(())
    }

    /// Deletes a range. In the model, deletes each key in it.
    fn delete_range(&mut self) -> cairn::Result<()> {
        let which = self.source.below(2);
        let (from, to) = (self.key(), self.key());
        let durability = self.durability();
        if from >= to {
            return Ok(()); // an empty write has no durability guarantee
        }
        let there = self.model.now()[which].keys().filter(|key| (&from..&to).contains(key));
        let deletes: Vec<Write> = there.map(|key| (which, key.clone(), None)).collect();
        self.model.begin(&deletes);
        self.keyspace(which).delete_range_with(from..to, durability)?;
        self.model.acknowledge(durability);
        Ok(())
    }

    /// Compares a snapshot with the state when it was taken, then releases it.
    fn look_back(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = self.source.below(self.snapshots.len());
        let (snapshot, state) = self.snapshots.swap_remove(at);
        for (which, map) in state.iter().enumerate() {
            let found: Result<_, _> = snapshot.iter(self.keyspace(which)).map(|e| e.map(pair)).collect();
            assert_eq!(map, &found.expect(FINE), "a snapshot of keyspace {which}");
        }
    }

    fn look_up(&mut self) {
        let (which, key) = (self.source.below(2), self.key());
        let found = self.keyspace(which).get(&key).expect(FINE);
        assert_eq!(found.as_deref(), self.model.now()[which].get(&key).map(Vec::as_slice), "{key:?}");
        let from: Vec<_> =
            self.keyspace(which).range(key.as_slice()..).take(3).map(|e| pair(e.expect(FINE))).collect();
        let right: Vec<_> = self.model.now()[which]
            .range(key.clone()..)
            .take(3)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert_eq!(from, right, "from {key:?} on");
    }

    /// Moves a cursor forward and back according to the input, and compares it with an index into the model.
    fn walk(&mut self) {
        let (which, key) = (self.source.below(2), self.key());
        let all: Vec<_> = self.model.now()[which].clone().into_iter().collect();
        let mut cursor = self.keyspace(which).cursor();
        cursor.seek(&key).expect(FINE);
        let mut at = Some(all.partition_point(|e| e.0 < key)).filter(|at| *at < all.len());
        for _ in 0..self.source.below(16) {
            let here = cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
            assert_eq!(here.as_ref(), at.map(|at| &all[at]));
            let Some(place) = at else { break };
            if self.source.u8().is_multiple_of(3) {
                cursor.prev().expect(FINE);
                at = place.checked_sub(1);
            } else {
                cursor.next().expect(FINE);
                at = Some(place + 1).filter(|at| *at < all.len());
            }
        }
    }

    fn state(&self) -> State {
        [0, 1].map(|which| contents(self.keyspace(which)).expect(FINE))
    }

    fn compare(&self) {
        assert_eq!(&self.state(), self.model.now());
    }

    fn open_again(&mut self) {
        let db =
            Database::open_in(self.sim.clone(), Path::new("/db"), options()).expect("no disk was damaged");
        let keyspaces = ["one", "two"].map(|name| db.open_keyspace(name).expect("it was created"));
        self.open = Some((db, keyspaces));
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        if let Some((db, keyspaces)) = self.open.take() {
            drop(keyspaces);
            db.close().expect(FINE);
        }
        self.model.all_durable();
        self.open_again();
        self.compare();
    }

    /// A process kill or power failure between two operations.
    fn crash(&mut self) {
        let power_cut = self.source.u8() & 1 != 0;
        self.end(power_cut);
    }

    /// A power failure during a write and the work that it triggers.
    fn crash_amid(&mut self) {
        let after = u64::from(self.source.u8() % 32);
        let writes = (0..1 + self.source.below(4)).map(|_| self.write()).collect();
        let durability = self.durability();
        self.sim.crash_at(self.sim.op_count() + after);
        // The write may fail. Then it is in flight, and a crash may keep all of it.
        let _ = self.commit(writes, durability);
        let _ = self.keyspace(0).flush();
        self.end(true);
    }

    fn end(&mut self, power_cut: bool) {
        let seed = u64::from(self.source.u8());
        let survival = self.source.pick(&Survival::ALL);
        let after = match power_cut {
            true => self.sim.crash_clone(survival, seed),
            false => self.sim.process_clone(),
        };
        self.snapshots.clear();
        self.open = None;
        self.sim = after;
        self.open_again();
        self.model.recovered(self.state(), power_cut);
    }
}

fn pair((key, value): (cairn::Slice, cairn::Slice)) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}
