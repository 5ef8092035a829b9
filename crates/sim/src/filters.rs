//! A keyspace with a compaction filter, compared with a map: under flushes, compactions in other threads, reopening with and without the filter,
//! power cuts, and readers that begin beside compactions.
//!
//! The filter looks at the first byte of a value: it drops some, and replaces others. When it does is not determined, so the map tells what each key
//! may show: what was written, or what the filter makes of it; once the latter was seen, only that, also after a power cut. With history, readers must show the
//! same versions to their end, and a compaction of everything leaves of each put what the filter makes of it.

use crate::finding::{Outcome, ensure, show, show_option};
use crate::jobs::Job;
use crate::random::{Draw, Rng};
use crate::sets::{OptionSet, option_sets};
use cairn::env::{SimEnv, Survival};
use cairn::{
    Cursor, Database, Engine, FilterDecision, FilterEntry, Keyspace, KeyspaceOptions, Merge, Retention,
    Slice, Snapshot, Version, VersionCursor,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Calls of a run.
const STEPS: u64 = 6000;

const KEYS: u64 = 400;

/// The n-th job. It counts calls.
pub fn job(n: u64) -> Job {
    let replay = format!("cargo run --release -p sim -- filters --seed {n}");
    Job { name: format!("filters, seed {n}"), replay, run: Box::new(move || run(n)) }
}

/// Runs the n-th job.
pub fn run(n: u64) -> Outcome<u64> {
    let mut rng = Rng::new(n);
    let can_filter = |options: &KeyspaceOptions| options.engine == Engine::Tree;
    let sets: Vec<OptionSet> =
        option_sets().into_iter().filter(|set| set.keyspaces.iter().all(can_filter)).collect();
    let mut set = sets[n as usize % sets.len()].clone();
    if n % 4 == 3 {
        set.keyspaces[0] = set.keyspaces[0].clone().history(Retention::All).merge(Merge::None);
    }
    let env = SimEnv::new(n);
    let mut world = World::open(env, set, true)?;
    let mut map = Map::default();
    for _ in 0..STEPS {
        if world.step(&mut map, &mut rng)?.is_break() {
            world = World::open(world.env, world.set, rng.chance(2, 3))?;
        }
    }
    world.held.clear();
    world.db.close()?;
    World::open(world.env, world.set, true)?.is_filtered(&map)?;
    Ok(STEPS)
}

fn filter(entry: &FilterEntry<'_>) -> cairn::Result<FilterDecision> {
    let value = entry.value()?;
    Ok(match filtered(value) {
        None => FilterDecision::Drop,
        Some(new) if new == value => FilterDecision::Keep,
        Some(new) => FilterDecision::Replace(new),
    })
}

/// What the filter makes of a value.
fn filtered(value: &[u8]) -> Option<Vec<u8>> {
    match value.split_first() {
        Some((b'd', _)) => None,
        Some((b'r', rest)) => Some([b"R", rest].concat()),
        _ => Some(value.to_vec()),
    }
}

type Shown = Vec<(Slice, Slice)>;

/// What was written.
#[derive(Clone, Default)]
struct Map {
    newest: BTreeMap<Vec<u8>, Written>,
    /// With history: the values of all puts of each key.
    puts: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
}

#[derive(Clone)]
struct Written {
    value: Vec<u8>,
    /// The filter was seen to have changed it.
    changed: bool,
}

impl Map {
    /// Checks what a reader finds now.
    fn see(&mut self, key: &[u8], found: Option<&[u8]>) -> Outcome {
        let Some(written) = self.newest.get_mut(key) else {
            ensure!(found.is_none(), "key {} shows {}, and has no value", show(key), show_option(found));
            return Ok(());
        };
        let is_filtered = filtered(&written.value).as_deref() == found;
        let is_as_written = found == Some(&written.value[..]);
        ensure!(
            is_filtered || is_as_written && !written.changed,
            "key {} shows {}; {} was written, and the filter was {}seen to have changed it",
            show(key),
            show_option(found),
            show(&written.value),
            if written.changed { "" } else { "not " }
        );
        written.changed |= !is_as_written;
        Ok(())
    }

    fn see_all(&mut self, shown: &Shown) -> Outcome {
        let mut found: BTreeMap<_, _> = shown.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let keys: Vec<_> = self.newest.keys().cloned().collect();
        for key in keys {
            self.see(&key, found.remove(&key[..]))?;
        }
        found.into_iter().try_for_each(|(key, value)| self.see(key, Some(value)))
    }
}

/// A reader that is kept, with what it has shown.
enum Held {
    Snapshot(Snapshot, Shown),
    /// Of a keyspace with history.
    Versions(Snapshot, Vec<Version>),
    VersionCursor(Box<VersionCursor>, Vec<Version>),
    Cursor(Box<Cursor>, Shown),
}

struct World {
    env: Arc<SimEnv>,
    set: OptionSet,
    db: Database,
    keyspace: Keyspace,
    held: Vec<Held>,
}

impl World {
    fn open(env: Arc<SimEnv>, set: OptionSet, with_filter: bool) -> Outcome<World> {
        let builder = Database::builder().env(env.clone()).options(set.options.clone());
        let builder = if with_filter { builder.compaction_filter("k", filter) } else { builder };
        let db = builder.open("/db")?;
        let keyspace = db.keyspace("k", set.keyspaces[0].clone())?;
        Ok(World { env, set, db, keyspace, held: Vec::new() })
    }

    fn keeps_all(&self) -> bool {
        self.set.keyspaces[0].history == Retention::All
    }

    fn has_history(&self) -> bool {
        self.set.keyspaces[0].history != Retention::None
    }

    fn all(&self) -> Outcome<Shown> {
        Ok(self.keyspace.iter().collect::<cairn::Result<_>>()?)
    }

    /// Makes a call. `Break`: the database was closed.
    fn step(&mut self, map: &mut Map, rng: &mut Rng) -> Outcome<ControlFlow<()>> {
        let key = key(rng);
        let k = &self.keyspace;
        match rng.below(1000) {
            0..600 => {
                let len = if rng.chance(1, 4) { 300 } else { rng.between(1, 30) };
                let mut value = vec![*rng.pick(b"abcxyz"); len];
                value[0] = *rng.pick(b"ddrk");
                k.put(&key, &value)?;
                if self.keeps_all() {
                    map.puts.entry(key.clone()).or_default().push(value.clone());
                }
                map.newest.insert(key, Written { value, changed: false });
            }
            600..660 => {
                k.delete(&key)?;
                map.newest.remove(&key);
            }
            660..665 => {
                let end = self::key(rng);
                k.delete_range::<&[u8]>(&key[..]..&end[..])?;
                map.newest.retain(|k, _| *k < key || *k >= end);
            }
            665..880 => map.see(&key, k.get(&key)?.as_deref())?,
            880..940 if self.held.len() < 5 => self.hold(rng)?,
            880..980 if !self.held.is_empty() => {
                let at = rng.below(self.held.len() as u64) as usize;
                self.held[at].check(k, rng)?;
                if rng.chance(1, 2) {
                    self.held.swap_remove(at);
                }
            }
            980..982 => map.see_all(&self.all()?)?,
            982..984 => k.compact()?,
            984..986 => self.db.wait_idle()?,
            986..990 => k.flush()?,
            990 => {
                self.db.sync()?;
                let survival = *rng.pick(&Survival::ALL);
                let disk = self.env.crash_clone(survival, rng.next_u64());
                let mut map = map.clone();
                let recovered = World::open(disk, self.set.clone(), rng.chance(1, 2))?;
                map.see_all(&recovered.all()?)?;
                let World { env, set, db, .. } = recovered;
                db.close()?;
                World::open(env, set, true)?.is_filtered(&map)?;
            }
            991 if rng.chance(1, 3) => {
                self.held.clear();
                self.db.clone().close()?;
                return Ok(ControlFlow::Break(()));
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn hold(&mut self, rng: &mut Rng) -> Outcome {
        let all = || self.keyspace.changes::<&[u8]>(.., ..);
        if self.has_history() && rng.chance(1, 2) {
            self.held.push(match rng.chance(1, 2) {
                true => {
                    let snapshot = self.db.snapshot();
                    let shown =
                        snapshot.changes::<&[u8]>(&self.keyspace, .., ..)?.collect::<cairn::Result<_>>()?;
                    Held::Versions(snapshot, shown)
                }
                false => {
                    let mut cursor = Box::new(all()?.cursor());
                    let shown = walk_versions(&mut cursor)?;
                    Held::VersionCursor(cursor, shown)
                }
            });
        } else if rng.chance(1, 2) {
            let snapshot = self.db.snapshot();
            let shown = snapshot.iter(&self.keyspace).collect::<cairn::Result<_>>()?;
            self.held.push(Held::Snapshot(snapshot, shown));
        } else {
            let mut cursor = Box::new(self.keyspace.cursor());
            let shown = walk(&mut cursor)?;
            self.held.push(Held::Cursor(cursor, shown));
        }
        Ok(())
    }

    /// Checks that the filter has met every entry after a requested compaction.
    fn is_filtered(&self, map: &Map) -> Outcome {
        self.keyspace.compact()?;
        let report = self.db.check(&mut |_| ())?;
        ensure!(report.problems.is_empty(), "{:?}", report.problems);
        if self.keeps_all() {
            let mut left: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
            for version in self.keyspace.changes::<&[u8]>(.., ..)?.rev() {
                let version = version?;
                if let Some(value) = version.value {
                    left.entry(version.key.to_vec()).or_default().push(value.to_vec());
                }
            }
            let of_key = |(key, puts): (&Vec<u8>, &Vec<Vec<u8>>)| {
                let left: Vec<_> = puts.iter().filter_map(|value| filtered(value)).collect();
                (!left.is_empty()).then(|| (key.clone(), left))
            };
            let expected: BTreeMap<_, _> = map.puts.iter().filter_map(of_key).collect();
            ensure!(
                left == expected,
                "after a compaction of all the versions are not those that the filter leaves"
            );
        }
        let left: Vec<_> =
            map.newest.iter().filter_map(|(key, w)| Some((key.clone(), filtered(&w.value)?))).collect();
        let found: Vec<_> =
            self.all()?.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        ensure!(
            found == left,
            "after a compaction of all there are {} entries, not {}",
            found.len(),
            left.len()
        );
        Ok(())
    }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("{:04}", rng.below(KEYS)).into_bytes()
}

/// All that a cursor shows.
fn walk(cursor: &mut Cursor) -> Outcome<Shown> {
    let mut shown = Vec::new();
    cursor.seek_to_first()?;
    while cursor.valid() {
        shown.push((Slice::copy_from(cursor.key()), cursor.value_slice()));
        cursor.next()?;
    }
    Ok(shown)
}

/// All that a cursor over versions shows.
fn walk_versions(cursor: &mut VersionCursor) -> Outcome<Vec<Version>> {
    let mut shown = Vec::new();
    cursor.seek_to_first()?;
    while cursor.valid() {
        shown.push(cursor.version());
        cursor.next()?;
    }
    Ok(shown)
}

impl Held {
    /// Checks that it shows what it has shown.
    fn check(&mut self, keyspace: &Keyspace, rng: &mut Rng) -> Outcome {
        let of_versions = match self {
            Held::Versions(snapshot, shown) => {
                let versions = snapshot.changes::<&[u8]>(keyspace, .., ..)?;
                let all: Vec<Version> = match rng.chance(1, 2) {
                    true => versions.collect::<cairn::Result<_>>()?,
                    false => {
                        let mut back = versions.rev().collect::<cairn::Result<Vec<_>>>()?;
                        back.reverse();
                        back
                    }
                };
                Some((all, shown))
            }
            Held::VersionCursor(cursor, shown) => Some((walk_versions(cursor)?, shown)),
            Held::Snapshot(..) | Held::Cursor(..) => None,
        };
        if let Some((shows, has_shown)) = of_versions {
            let (now, then) = (shows.len(), has_shown.len());
            ensure!(shows == *has_shown, "a reader has shown {then} versions, and shows {now}, or others");
            return Ok(());
        }
        let (shows, has_shown) = match self {
            Held::Versions(..) | Held::VersionCursor(..) => return Ok(()),
            Held::Snapshot(snapshot, shown) => {
                if let Some((key, value)) = shown.get(rng.below(KEYS) as usize) {
                    let found = snapshot.get(keyspace, key)?;
                    ensure!(found.as_ref() == Some(value), "a snapshot has lost {}", show(key));
                }
                let mut all: Shown = match rng.chance(1, 2) {
                    true => snapshot.iter(keyspace).collect::<cairn::Result<_>>()?,
                    false => snapshot.iter(keyspace).rev().collect::<cairn::Result<_>>()?,
                };
                all.sort();
                (all, shown)
            }
            Held::Cursor(cursor, shown) => (walk(cursor)?, shown),
        };
        ensure!(
            shows == *has_shown,
            "a reader has shown {} entries, and shows {}, or others",
            has_shown.len(),
            shows.len()
        );
        Ok(())
    }
}
