//! Compaction filters: directed cases, readers beside them, and a comparison with a map while compactions run in other threads.

use cairn::env::{Rng, SimEnv};
use cairn::{
    Builder, Cursor, Database, Durability, Engine, Error, ErrorKind, FilterDecision, FilterEntry, Keyspace,
    KeyspaceOptions, Options, PlacementPolicy, Result, Retention, Slice, Snapshot, TableFormat, Time,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Drops values that begin with `d`; those with `r` begin with `R` instead.
pub(crate) fn by_value(entry: &FilterEntry<'_>) -> Result<FilterDecision> {
    let value = entry.value()?;
    assert_eq!(value.len(), entry.value_len());
    Ok(match value.first() {
        Some(b'd') => FilterDecision::Drop,
        Some(b'r') => FilterDecision::Replace([b"R", &value[1..]].concat()),
        _ => FilterDecision::Keep,
    })
}

pub(crate) fn builder(env: &Arc<SimEnv>, threads: usize) -> Builder {
    let options = Options::default().background_threads(threads).memory_budget(1 << 20).disk_reserve(0);
    Database::builder().options(options).env(env.clone())
}

pub(crate) fn plain() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(16 << 10).block_size(256)
}

fn kinds() -> [(&'static str, KeyspaceOptions); 5] {
    [
        ("tree", plain()),
        ("hybrid", plain().placement(PlacementPolicy::Hybrid).large_up_to(0.5)),
        ("size_class", plain().table_format(TableFormat::SizeClass)),
        ("leveled", plain().level0_tables(1).max_tables_per_guard(1).levels(3)),
        ("history", plain().history(Retention::All)),
    ]
}

pub(crate) fn open(options: KeyspaceOptions) -> Result<(Arc<SimEnv>, Database, Keyspace)> {
    let env = SimEnv::new(1);
    let db = builder(&env, 0).compaction_filter("k", by_value).open("/db")?;
    let k = db.keyspace("k", options)?;
    Ok((env, db, k))
}

fn all(entries: impl Iterator<Item = Result<(Slice, Slice)>>) -> Result<Vec<(Slice, Slice)>> {
    entries.collect()
}

#[test]
fn a_filter_keeps_drops_and_replaces() -> Result<()> {
    for (name, options) in kinds() {
        let (env, db, k) = open(options)?;
        let long = |first: &str| [first.as_bytes(), &[b'x'; 300]].concat();
        for (value, first) in [("keep", "k"), ("drop", "d"), ("replace", "r")] {
            k.put(value, first)?;
            k.put(format!("{value} long"), long(first))?;
            k.put_with_ttl(format!("{value} expiring"), long(first), 100 * SECOND)?;
            k.put(format!("{value} empty"), "")?;
        }
        let expiry = k.get_with_expiry("replace expiring")?.unwrap().1;
        k.compact()?;
        for empty in ["keep", "drop", "replace"] {
            assert_eq!(k.get(format!("{empty} empty"))?.unwrap(), "", "{name}");
        }
        assert_eq!(k.get("keep")?.unwrap(), "k", "{name}");
        assert_eq!(k.get("keep long")?.unwrap(), long("k"), "{name}");
        assert_eq!(k.get("drop")?, None, "{name}");
        assert_eq!(k.get("drop long")?, None, "{name}");
        assert_eq!(k.get("drop expiring")?, None, "{name}");
        assert_eq!(k.get("replace")?.unwrap(), "R", "{name}");
        assert_eq!(k.get("replace long")?.unwrap(), long("R"), "{name}");
        let replaced = k.get_with_expiry("replace expiring")?.unwrap();
        assert_eq!(replaced, (long("R").into(), expiry), "{name}: the expiry stays");
        assert_eq!((k.stats().filter_dropped, k.stats().filter_replaced), (3, 3), "{name}");
        assert_eq!(k.iter().count(), 9, "{name}");
        env.set_wall_clock(expiry.unwrap());
        assert_eq!(k.get("replace expiring")?, None, "{name}");
        drop((k, db));
        let db = builder(&env, 0).open("/db")?;
        assert_eq!(db.open_keyspace("k")?.get("replace long")?.unwrap(), long("R"), "{name}");
    }
    Ok(())
}

/// What the filter has been asked about.
type Asked = Arc<Mutex<Vec<(String, Option<Time>)>>>;

fn asking() -> (Asked, impl Fn(&FilterEntry<'_>) -> Result<FilterDecision> + Send + Sync + 'static) {
    let asked = Asked::default();
    let to = asked.clone();
    let filter = move |entry: &FilterEntry<'_>| {
        let key = String::from_utf8(entry.key().to_vec()).unwrap();
        to.lock().unwrap().push((key, entry.expiry()));
        Ok(FilterDecision::Keep)
    };
    (asked, filter)
}

/// [`by_value`], but it waits when it is asked about such an entry for the first time; what tells that it waits, and what lets it go on.
pub(crate) fn waiting_at(
    is_there: impl Fn(&FilterEntry<'_>) -> bool + Send + Sync + 'static,
) -> (impl Fn(&FilterEntry<'_>) -> Result<FilterDecision>, Receiver<()>, Sender<()>) {
    let (at_filter, filter_is_there) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let waits = Mutex::new((Some(at_filter), may_go_on));
    let filter = move |entry: &FilterEntry<'_>| {
        let mut waits = waits.lock().unwrap();
        if let Some(here) = waits.0.take_if(|_| is_there(entry)) {
            here.send(()).unwrap();
            waits.1.recv().unwrap();
        }
        by_value(entry)
    };
    (filter, filter_is_there, go_on)
}

#[test]
fn a_request_shows_it_all_that_is_alive_each_time() -> Result<()> {
    // With history, all versions are.
    for (name, options) in kinds().into_iter().filter(|(name, _)| *name != "history") {
        let env = SimEnv::new(1);
        let (asked, filter) = asking();
        let db = builder(&env, 0).compaction_filter("k", filter).open("/db")?;
        let (k, other) = (db.keyspace("k", options.clone())?, db.keyspace("other", options)?);
        let expiry = env_time(&env).saturating_add(100 * SECOND);
        for key in ["a", "b", "c", "d", "e"] {
            k.put(key, "1")?;
            other.put(key, "1")?;
        }
        k.put_until("f", "", expiry)?;
        k.flush()?;
        assert_eq!(*asked.lock().unwrap(), [], "{name}: a flush asks nothing");
        k.put("a", "2")?;
        k.delete("b")?;
        k.delete_range("c".."d")?;
        k.put_with_ttl("d", "2", SECOND)?;
        env.set_wall_clock(env_time(&env).saturating_add(5 * SECOND));
        other.compact()?;
        assert_eq!(*asked.lock().unwrap(), [], "{name}: it is not its keyspace");
        for _ in 0..3 {
            asked.lock().unwrap().clear();
            k.compact()?;
            let mut seen = std::mem::take(&mut *asked.lock().unwrap());
            seen.sort();
            seen.dedup();
            let seen: Vec<_> = seen.iter().map(|(key, expiry)| (&key[..], *expiry)).collect();
            assert_eq!(seen, [("a", None), ("e", None), ("f", Some(expiry))], "{name}");
        }
    }
    Ok(())
}

pub(crate) fn env_time(env: &Arc<SimEnv>) -> Time {
    cairn::env::Env::wall_clock(&**env)
}

#[test]
fn a_dropped_entry_hides_older_ones() -> Result<()> {
    for (name, options) in kinds() {
        let env = SimEnv::new(1);
        let db = builder(&env, 0).open("/db")?;
        let k = db.keyspace("k", options)?;
        for i in 0..2000u32 {
            k.put(format!("{i:05}"), "the old value")?;
        }
        k.compact()?;
        drop((k, db));
        let db = builder(&env, 0).compaction_filter("k", by_value).open("/db")?;
        let k = db.open_keyspace("k")?;
        for i in 0..2000u32 {
            k.put(format!("{i:05}"), "drop me")?;
        }
        k.flush()?;
        // Some are dropped above the last level.
        db.wait_idle()?;
        for i in 0..2000u32 {
            let found = k.get(format!("{i:05}"))?;
            assert!(found.as_ref().is_none_or(|value| value == "drop me"), "{name} {i}: {found:?}");
        }
        k.compact()?;
        assert_eq!(k.iter().count(), 0, "{name}");
        assert_eq!(k.guards().iter().map(|g| g.tables.len()).sum::<usize>(), 0, "{name}");
    }
    Ok(())
}

#[test]
fn what_a_reader_sees_is_not_asked_about() -> Result<()> {
    let (_env, db, k) = open(plain())?;
    let fill = || -> Result<()> {
        k.put("a", "drop")?;
        k.put("b", "replace")?;
        k.put("c", "drop")
    };
    let sees = |entries: &[(Slice, Slice)]| {
        entries.iter().map(|(_, value)| value.to_vec()).collect::<Vec<_>>()
            == [&b"drop"[..], b"replace", b"drop"]
    };
    fill()?;
    let snapshot = db.snapshot();
    k.compact()?;
    assert!(sees(&all(k.iter())?) && sees(&all(snapshot.iter(&k))?));
    drop(snapshot);
    k.compact()?;
    let left = all(k.iter())?;
    assert!(left.len() == 1 && left[0].1 == "Replace", "{left:?}");
    fill()?;
    let iterator = k.iter();
    k.compact()?;
    assert!(sees(&all(iterator)?));
    fill()?;
    let mut cursor = k.cursor();
    cursor.seek("b")?;
    k.compact()?;
    cursor.next()?;
    assert_eq!(cursor.key(), b"c");
    drop(cursor);
    fill()?;
    let tx = db.begin();
    k.compact()?;
    assert_eq!(tx.get(&k, "a")?.unwrap(), "drop");
    drop(tx);
    k.compact()?;
    assert_eq!(k.iter().count(), 1);
    Ok(())
}

/// Many entries, so that other readers note that they are deleted.
const MANY: u32 = 1000;

#[test]
fn a_reader_that_begins_beside_a_filter_keeps_what_it_sees() -> Result<()> {
    for (name, options) in kinds() {
        let env = SimEnv::new(1);
        let (filter, filter_is_there, go_on) = waiting_at(|_| true);
        // One compaction has all entries.
        let large = Options::default()
            .background_threads(1)
            .memory_budget(16 << 20)
            .disk_reserve(0)
            .dead_range_entries(2);
        let db = builder(&env, 1).options(large).compaction_filter("k", filter).open("/db")?;
        let k = db.keyspace("k", options.memtable_bytes(1 << 20))?;
        let key = |i: u32| format!("{i:05}");
        for i in 0..MANY {
            k.put(key(i), ["drop", "replace", "keep"][usize::from(i % 50 == 0) + usize::from(i % 100 == 0)])?;
        }
        let compacts = thread::spawn({
            let k = k.clone();
            move || k.compact()
        });
        filter_is_there.recv().unwrap();
        for i in (1..MANY).step_by(2) {
            k.delete(key(i))?;
        }
        let before = all(k.iter())?;
        assert_eq!(before.len(), MANY as usize / 2, "{name}");
        let snapshot = db.snapshot();
        let tx = db.begin();
        let (forward, mut backward) = (k.iter(), k.iter());
        let last = backward.next_back().transpose()?;
        let mut cursor = k.cursor();
        cursor.seek_to_first()?;
        go_on.send(()).unwrap();
        compacts.join().unwrap()?;
        let still_see = |cursor: &mut Cursor| -> Result<()> {
            assert_eq!(all(snapshot.iter(&k))?, before, "{name}");
            assert_eq!(all(tx.iter(&k))?, before, "{name}");
            for (key, value) in &before {
                assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]), "{name}");
                cursor.seek_for_prev(key)?;
                assert_eq!(cursor.key(), &key[..], "{name}");
                assert_eq!(snapshot.get(&k, key)?.as_ref(), Some(value), "{name}");
                assert_eq!(tx.get(&k, key)?.as_ref(), Some(value), "{name}");
                assert!(snapshot.contains(&k, key)?, "{name}");
                assert_eq!(snapshot.multi_get(&k, &[key])?[0].as_ref(), Some(value), "{name}");
                cursor.seek(key)?;
                cursor.next()?;
            }
            assert!(!cursor.valid());
            cursor.seek_to_first()
        };
        // Readers that begin now note that ranges are deleted.
        for _ in 0..3 {
            assert_eq!(k.iter().count(), 20, "{name}");
            assert_eq!(k.iter().rev().count(), 20, "{name}");
        }
        assert!(k.stats().dead_ranges > 0);
        assert_eq!(k.get(key(2))?, None, "{name}");
        assert_eq!(k.get(key(50))?.unwrap(), "Replace", "{name}");
        still_see(&mut cursor)?;
        // Other cursors take their sources anew after this.
        k.put("x", "after")?;
        k.flush()?;
        k.compact()?;
        still_see(&mut cursor)?;
        assert_eq!(all(forward)?, before, "{name}");
        let mut reversed: Vec<_> = last.into_iter().chain(all(backward.rev())?).collect();
        reversed.reverse();
        assert_eq!(reversed, before, "{name}");
    }
    Ok(())
}

/// A compaction that began before a request does not count for it: it may have left out what a reader saw that is gone since.
#[test]
fn a_request_waits_for_compactions_that_run() -> Result<()> {
    let env = SimEnv::new(1);
    let (filter, filter_is_there, go_on) = waiting_at(|entry| entry.key() == b"first");
    let large = Options::default().background_threads(1).memory_budget(16 << 20).disk_reserve(0);
    let db = builder(&env, 1).options(large).compaction_filter("k", filter).open("/db")?;
    let k = db.keyspace("k", plain().memtable_bytes(1 << 20))?;
    for i in 0..MANY {
        k.put(format!("seen {i:05}"), "drop")?;
    }
    let snapshot = db.snapshot();
    k.put("first", "keep")?;
    let compact = || {
        let k = k.clone();
        thread::spawn(move || k.compact())
    };
    let earlier = compact();
    filter_is_there.recv().unwrap();
    drop(snapshot);
    let request = compact();
    // Without this the test passes, too, but proves less: the request should begin before the other one has tables.
    thread::sleep(Duration::from_millis(100));
    go_on.send(()).unwrap();
    earlier.join().unwrap()?;
    request.join().unwrap()?;
    assert_eq!(k.iter().count(), 1);
    Ok(())
}

#[test]
fn names_that_no_keyspace_can_have_are_refused() -> Result<()> {
    for name in ["", &"n".repeat(1 << 16)] {
        let e = builder(&SimEnv::new(1), 0).compaction_filter(name, by_value).open("/db").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    }
    let env = SimEnv::new(1);
    let db = builder(&env, 0).compaction_filter("k", by_value).open("/db")?;
    let has_filter = |name| -> Result<bool> { Ok(db.keyspace(name, plain())?.stats().has_filter) };
    assert_eq!((has_filter("k")?, has_filter("another")?), (true, false));
    Ok(())
}

#[test]
fn an_error_leaves_the_entry_as_it_is() -> Result<()> {
    let env = SimEnv::new(1);
    let refuses = |entry: &FilterEntry<'_>| match entry.key() {
        b"b" => Err(Error::new(ErrorKind::InvalidArgument, "not this one")),
        _ => Ok(FilterDecision::Drop),
    };
    let db = builder(&env, 0).compaction_filter("k", refuses).open("/db")?;
    let k = db.keyspace("k", plain())?;
    for key in ["a", "b", "c"] {
        k.put(key, key)?;
    }
    k.compact()?;
    assert_eq!(all(k.iter())?.len(), 1);
    assert_eq!(k.get("b")?.unwrap(), "b");
    Ok(())
}

#[test]
fn keyspaces_without_order_can_have_none() -> Result<()> {
    let options = plain().engine(Engine::HashLog);
    let env = SimEnv::new(1);
    let with_filter = || builder(&env, 0).compaction_filter("k", by_value).open("/db");
    let is_refused = |e: Error| {
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert!(e.to_string().contains("engine") && e.to_string().contains("\"k\""), "{e}");
    };
    let db = with_filter()?;
    is_refused(db.keyspace("k", options.clone()).unwrap_err());
    drop(db);
    let db = builder(&env, 0).open("/db")?;
    db.keyspace("k", options)?.put("a", "drop")?;
    db.close()?;
    is_refused(with_filter().unwrap_err());
    let db = builder(&env, 0).compaction_filter("another", by_value).open("/db")?;
    assert_eq!(db.open_keyspace("k")?.get("a")?.unwrap(), "drop");
    Ok(())
}

#[test]
fn a_clone_has_the_filter_of_its_own_name() -> Result<()> {
    for with_history in [false, true] {
        let env = SimEnv::new(1);
        let db = builder(&env, 0).compaction_filter("clone", by_value).open("/db")?;
        let options = if with_history { plain().history(Retention::All) } else { plain() };
        let k = db.keyspace("k", options)?;
        for value in ["drop", "replace", "keep", "keep"] {
            k.put("older", value)?;
            k.put(value, value)?;
        }
        k.compact()?;
        let clone = db.clone_keyspace("k", "clone")?;
        k.compact()?;
        clone.compact()?;
        assert!(clone.stats().has_filter && !k.stats().has_filter);
        assert_eq!((k.get("drop")?.unwrap(), clone.get("drop")?), ("drop".into(), None));
        assert_eq!(clone.get("replace")?.unwrap(), "Replace");
        if with_history {
            let of = |k: &Keyspace| {
                let found = k.history("older", ..)?.collect::<Result<Vec<_>>>()?;
                Ok::<_, Error>(found.into_iter().map(|v| v.value).collect::<Vec<_>>())
            };
            let some = |value: &str| Some(Slice::from(value));
            assert_eq!(of(&k)?, [some("keep"), some("keep"), some("replace"), some("drop")]);
            assert_eq!(of(&clone)?, [some("keep"), some("keep"), some("Replace"), None]);
        }
        // The filter is that of the name.
        assert_eq!(db.rename_keyspace("clone", "k2").unwrap_err().kind(), ErrorKind::InvalidArgument);
        drop((k, clone, db));
        let db = builder(&env, 0).compaction_filter("k", by_value).open("/db")?;
        db.rename_keyspace("clone", "k2")?;
        assert!(db.open_keyspace("k")?.stats().has_filter && !db.open_keyspace("k2")?.stats().has_filter);
        let report = db.check(&mut |_| ())?;
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
    Ok(())
}

#[test]
fn a_filter_that_panics_loses_nothing() -> Result<()> {
    let env = SimEnv::new(1);
    let panics = |_: &FilterEntry<'_>| -> Result<FilterDecision> { panic!("a filter panics") };
    let db = builder(&env, 1).compaction_filter("k", panics).open("/db")?;
    let k = db.keyspace("k", plain())?;
    for i in 0..100u32 {
        k.put_with(i.to_be_bytes(), "drop", Durability::Sync)?;
    }
    let compacts = thread::spawn({
        let k = k.clone();
        move || k.compact()
    });
    let ended = compacts.join();
    assert!(ended.map_or(true, |result| result.is_err()));
    assert!(k.put("a", "").is_err(), "the database has stopped writing");
    assert_eq!(k.iter().count(), 100, "reads go on");
    drop((k, db));
    let db = builder(&env, 0).open("/db")?;
    assert_eq!(db.open_keyspace("k")?.iter().count(), 100);
    Ok(())
}

/// What a key may show.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    value: Vec<u8>,
    /// The filter has changed it: it does not change back.
    changed: bool,
}

impl Expected {
    fn filtered(&self) -> Option<Vec<u8>> {
        match self.value.first() {
            Some(b'd') => None,
            Some(b'r') => Some([b"R", &self.value[1..]].concat()),
            _ => Some(self.value.clone()),
        }
    }

    fn see(&mut self, found: Option<&[u8]>, what: &str) {
        if self.filtered().as_deref() == found {
            self.changed |= found != Some(&self.value);
        } else {
            assert!(!self.changed && found == Some(&self.value), "{what}: {found:?}, expected {self:?}");
        }
    }
}

/// A snapshot, and what it has shown.
type Held = (Snapshot, Vec<(Slice, Slice)>);

#[test]
fn compared_with_a_map_while_compactions_run() -> Result<()> {
    for (name, options) in kinds() {
        for seed in 0..4 {
            let what = format!("{name}, seed {seed}");
            compared_with_a_map(&what, options.clone(), seed)?;
        }
    }
    Ok(())
}

fn compared_with_a_map(what: &str, options: KeyspaceOptions, seed: u64) -> Result<()> {
    const KEYS: u64 = 400;
    let mut rng = Rng::new(seed);
    let env = SimEnv::new(seed);
    let open = |filters: bool| {
        let builder = builder(&env, 2);
        if filters { builder.compaction_filter("k", by_value) } else { builder }.open("/db")
    };
    let mut db = open(true)?;
    let mut k = db.keyspace("k", options)?;
    let mut map: BTreeMap<Vec<u8>, Expected> = BTreeMap::new();
    let mut held: Vec<Held> = Vec::new();
    for step in 0..8000 {
        let key = format!("{:04}", rng.below(KEYS)).into_bytes();
        match rng.below(100) {
            0..60 => {
                let class = b"ddrk"[rng.below(4) as usize];
                let len = if rng.below(4) == 0 { 300 } else { 1 + rng.below(30) as usize };
                let value = [&[class][..], &vec![b'a' + (step % 26) as u8; len]].concat();
                k.put(&key, &value)?;
                map.insert(key, Expected { value, changed: false });
            }
            60..66 => {
                k.delete(&key)?;
                map.remove(&key);
            }
            66 => {
                let end = format!("{:04}", rng.below(KEYS)).into_bytes();
                if key < end {
                    k.delete_range::<&[u8]>(&key[..]..&end[..])?;
                    map.retain(|k, _| *k < key || *k >= end);
                }
            }
            67..90 => {
                let found = k.get(&key)?;
                match map.get_mut(&key) {
                    Some(expected) => expected.see(found.as_deref(), what),
                    None => assert_eq!(found, None, "{what}"),
                }
            }
            90..94 if held.len() < 4 => {
                let snapshot = db.snapshot();
                let shown = all(snapshot.iter(&k))?;
                held.push((snapshot, shown));
            }
            90..98 if !held.is_empty() => {
                let at = rng.below(held.len() as u64) as usize;
                let (snapshot, shown) = &held[at];
                let mut again = match rng.below(2) {
                    0 => all(snapshot.iter(&k))?,
                    _ => all(snapshot.iter(&k).rev())?,
                };
                again.sort();
                assert_eq!(&again, shown, "{what}: a snapshot");
                if rng.below(2) == 0 {
                    held.swap_remove(at);
                }
            }
            98 if rng.below(8) == 0 => k.compact()?,
            99 if rng.below(20) == 0 => {
                held.clear();
                drop(k);
                db.close()?;
                db = open(rng.below(3) > 0)?;
                k = db.open_keyspace("k")?;
            }
            _ => {}
        }
        if step % 500 == 0 {
            let found: HashMap<Vec<u8>, Slice> =
                all(k.iter())?.into_iter().map(|(key, value)| (key.to_vec(), value)).collect();
            assert!(found.keys().all(|key| map.contains_key(key)), "{what}");
            map.iter_mut().for_each(|(key, expected)| expected.see(found.get(key).map(|v| &v[..]), what));
        }
    }
    drop((held, k));
    db.close()?;
    let db = open(true)?;
    let k = db.open_keyspace("k")?;
    k.compact()?;
    let left: Vec<_> =
        all(k.iter())?.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    let expected: Vec<_> =
        map.iter().filter_map(|(key, e)| e.filtered().map(|value| (key.clone(), value))).collect();
    assert_eq!(left, expected, "{what}: at the end");
    assert!(map.values().any(|e| e.value[0] == b'd'));
    Ok(())
}
