//! A keyspace with history: writes with times in any order from the input, compared with a map from keys to times to values, on a simulated
//! disk that crashes.

use crate::Source;
use crate::database::{options, small};
use cairn::{Database, Durability, Keyspace, Result, Retention, Snapshot, Time, Version, check_in};
use env::{SimEnv, Survival};
use sim::versions::Model;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of operations of an input.
const OPERATIONS: usize = 96;

const FINE: &str = "the disk works";

/// All keys.
const ALL: (&[u8], Option<&[u8]>) = (b"", None);

struct Timed<'a> {
    source: Source<'a>,
    sim: Arc<SimEnv>,
    clock: Time,
    /// `None` while the database is closed.
    open: Option<(Database, Keyspace)>,
    snapshots: Vec<(Snapshot, Model)>,
    model: Model,
}

/// Runs the operations in the input. Compares all versions after each opening and at the end.
pub(crate) fn timed(data: &[u8]) -> bool {
    let source = Source::new(data);
    let (sim, clock) = (SimEnv::new(1), Time::from_micros(1000));
    sim.set_wall_clock(clock);
    let mut timed = Timed { source, sim, clock, open: None, snapshots: Vec::new(), model: Model::default() };
    timed.begin();
    let mut operations = 0;
    while !timed.source.is_empty() && operations < OPERATIONS {
        timed.step();
        operations += 1;
    }
    timed.compare();
    timed.reopen(false);
    let report = check_in(timed.sim.process_clone(), "/db", &mut |_| {}).expect(FINE);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    operations > 0
}

impl Timed<'_> {
    fn begin(&mut self) {
        let db = Database::open_in(self.sim.clone(), Path::new("/db"), options()).expect(FINE);
        let keyspace = db.keyspace("k", small().history(Retention::All)).expect(FINE);
        self.open = Some((db, keyspace));
    }

    fn db(&self) -> &Database {
        &self.open.as_ref().expect("it is open").0
    }

    fn keyspace(&self) -> &Keyspace {
        &self.open.as_ref().expect("it is open").1
    }

    fn key(&mut self) -> Vec<u8> {
        let shape = self.source.u8();
        match shape {
            0..=199 => vec![b'k', shape % 6],
            // Zero bytes are escaped in the keys of versions.
            200..=239 => vec![0; usize::from(shape % 5)],
            _ => self.source.bytes().to_vec(),
        }
    }

    /// A value, or none for a delete.
    fn value(&mut self) -> Option<Vec<u8>> {
        let shape = self.source.u8();
        let len = match shape {
            0..=49 => return None,
            50..=249 => usize::from(shape),
            // Larger than a memtable.
            250.. => 5000,
        };
        Some(vec![shape; len])
    }

    /// A time of a caller: long ago, near the last one, or later.
    fn time(&mut self) -> Time {
        let (shape, last) = (self.source.u8(), self.model.last.micros());
        Time::from_micros(match shape {
            0..=99 => shape.into(),
            100..=199 => (last + 150).saturating_sub(shape.into()),
            200..=254 => last + u64::from(shape - 200),
            // Within a day of the clock.
            255 => (last * 2).min(self.clock.micros() + 80_000_000_000).max(last),
        })
    }

    /// The time of a batch with these times of callers.
    fn time_of_batch(&self, own: impl Iterator<Item = Time>) -> Time {
        let latest = own.max().unwrap_or(Time::MIN).max(self.model.last);
        self.clock.max(Time::from_micros(latest.micros() + 1))
    }

    fn step(&mut self) {
        match self.source.u8() {
            0..=119 => {
                let (key, time, value) = (self.key(), self.time(), self.value());
                match &value {
                    Some(value) => self.keyspace().put_at(&key, value, time),
                    None => self.keyspace().delete_at(&key, time),
                }
                .expect(FINE);
                self.model.write(&key, time, value);
            }
            120..=149 => {
                let (key, value) = (self.key(), self.value());
                let time = self.time_of_batch([].into_iter());
                match &value {
                    Some(value) => self.keyspace().put(&key, value),
                    None => self.keyspace().delete(&key),
                }
                .expect(FINE);
                self.model.write(&key, time, value);
            }
            150..=174 => self.batch(),
            175..=179 => {
                let (from, to) = (self.key(), self.key());
                if from < to {
                    let time = self.time_of_batch([].into_iter());
                    self.keyspace().delete_range(&from[..]..&to[..]).expect(FINE);
                    self.model.delete_range(&from, &to, time);
                }
            }
            180..=189 => self.keyspace().flush().expect(FINE),
            190..=199 => self.keyspace().compact().expect(FINE),
            200..=204 => {
                let (from, to) = (self.key(), self.key());
                self.keyspace().compact_range(from..to).expect(FINE);
            }
            205..=209 => {
                // The clock steps back, too.
                self.clock = Time::from_micros(u64::from(self.source.u16()) * 10);
                self.sim.set_wall_clock(self.clock);
            }
            210..=217 => self.snapshots.push((self.db().snapshot(), self.model.clone())),
            218..=223 => self.look_back(),
            224..=235 => self.look_up(),
            236..=241 => self.compare(),
            242..=248 => self.reopen(false),
            249.. => self.reopen(true),
        }
    }

    fn batch(&mut self) {
        let (mut batch, mut writes) = (self.db().batch(), Vec::new());
        for _ in 0..2 + self.source.below(5) {
            let (key, own) = (self.key(), self.source.below(3));
            let (time, value) = ((own > 0).then(|| self.time()), self.value());
            match (&value, time) {
                (Some(value), Some(time)) => batch.put_at(self.keyspace(), &key, value, time),
                (None, Some(time)) => batch.delete_at(self.keyspace(), &key, time),
                (Some(value), None) => batch.put(self.keyspace(), &key, value),
                (None, None) => batch.delete(self.keyspace(), &key),
            }
            writes.push((key, time, value));
        }
        let time = self.time_of_batch(writes.iter().filter_map(|write| write.1));
        self.db().write(batch, Durability::Os).expect(FINE);
        for (key, own, value) in writes {
            self.model.write(&key, own.unwrap_or(time), value);
        }
    }

    /// Compares a snapshot with the versions when it was taken, then releases it.
    fn look_back(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let (snapshot, model) = self.snapshots.swap_remove(self.source.below(self.snapshots.len()));
        let found = snapshot.changes::<&[u8]>(self.keyspace(), .., ..).expect(FINE);
        assert_eq!(found.collect::<Result<Vec<_>>>().expect(FINE), model.changes(ALL, Time::MIN, Time::MAX));
    }

    fn look_up(&mut self) {
        let (key, a, b) = (self.key(), self.time(), self.time());
        let (from, to) = (a.min(b), a.max(b));
        let right = self.model.of_key(&key, from, to);
        let found = |back: bool| -> Result<Vec<Version>> {
            let versions = self.keyspace().history(&key, from..=to)?;
            if back { versions.rev().collect() } else { versions.collect() }
        };
        assert_eq!(found(false).expect(FINE), right, "{key:?} from {from:?} to {to:?}");
        let mut back = found(true).expect(FINE);
        back.reverse();
        assert_eq!(back, right, "{key:?} from {from:?} to {to:?}, backward");
        let at = self.keyspace().get_at(&key, to).expect(FINE).map(|version| (version.time, version.value));
        let newest = self.model.of_key(&key, Time::MIN, to).into_iter().next();
        assert_eq!(
            at,
            newest.filter(|version| version.value.is_some()).map(|v| (v.time, v.value)),
            "{key:?}"
        );
    }

    fn compare(&mut self) {
        let (from, to) = (self.time(), Time::MAX);
        for from in [Time::MIN, from] {
            let changes = self.keyspace().changes::<&[u8]>(.., from..=to).expect(FINE);
            let found = changes.collect::<Result<Vec<_>>>().expect(FINE);
            assert_eq!(found, self.model.changes(ALL, from, to), "since {from:?}");
        }
        for time in [from, to] {
            let entries = self.keyspace().range_at::<&[u8]>(time, ..).expect(FINE);
            let found = entries.collect::<Result<Vec<_>>>().expect(FINE);
            assert_eq!(found, self.model.range_at(ALL, time), "as of {time:?}");
        }
    }

    /// Opens the database again, after its end or a power cut.
    fn reopen(&mut self, cut: bool) {
        self.snapshots.clear();
        let (db, keyspace) = self.open.take().expect("it is open");
        drop(keyspace);
        match cut {
            true => {
                db.sync().expect(FINE);
                let survival = self.source.pick(&Survival::ALL);
                self.sim = self.sim.crash_clone(survival, self.source.u8().into());
                self.sim.set_wall_clock(self.clock);
            }
            false => db.close().expect(FINE),
        }
        self.begin();
        self.compare();
    }
}
