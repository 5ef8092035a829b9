//! Every engine must do what the trait says before its speed means anything: each is compared with an ordered map, used
//! by several threads at once, killed and opened again, and watched for its syncs.
//!
//! Without features, only Cairn is built in. For all: `cargo test --release -p cairn-bench --features peers --test
//! adapters`. With `ADAPTER=redb`, only the engine of that name is tested.

use bench::engine::{Engine, Kind, RequestedSettings, split_version_key, version_key};
use bench::generate::mix;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Included, Unbounded};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Small memtables and caches, so that a few megabytes are flushed and compacted many times.
const ASKED: RequestedSettings = RequestedSettings {
    memtable_bytes: 64 << 10,
    cache_bytes: 1 << 20,
    background_threads: 2,
    filter_bits_per_key: 10,
    data_bytes_max: 64 << 20,
};

/// An engine that settles may watch the whole process until nothing happens in it: so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a test on each engine in an empty directory, but not on prototypes: these recover nothing, and scan forward only. Nor on engines
/// without order.
fn for_each_store(test: impl Fn(&Kind, &Path)) {
    for_each_kind(|kind, dir| {
        if !["range-merge", "cairn-hash-log"].contains(&kind.name) && !kind.name.starts_with("memory-") {
            test(kind, dir);
        }
    });
}

/// Runs a test on each engine in an empty directory.
fn for_each_kind(test: impl Fn(&Kind, &Path)) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let only = std::env::var("ADAPTER").ok();
    let kinds = bench::engines::all();
    for kind in kinds.iter().filter(|kind| only.as_deref().is_none_or(|only| only == kind.name)) {
        let dir = tempfile::tempdir().unwrap();
        let start = std::time::Instant::now();
        test(kind, dir.path());
        println!("{}: {:.1?}", kind.name, start.elapsed());
    }
}

fn open(kind: &Kind, dir: &Path) -> Box<dyn Engine> {
    (kind.open)(dir, &ASKED).unwrap_or_else(|e| panic!("{}: cannot open: {e}", kind.name))
}

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.0) % end as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// 1 to 40 bytes. Many share a prefix, or are the prefix of another, and the lowest and highest bytes are frequent.
    fn key(&mut self) -> Vec<u8> {
        const PREFIXES: [&[u8]; 5] =
            [b"", b"shared", b"shared prefix that fills some", &[0xff; 12], &[0; 12]];
        const BYTES: [u8; 8] = [0x00, 0x01, b'a', b'b', 0x7f, 0x80, 0xfe, 0xff];
        let mut key = self.one_of(&PREFIXES).to_vec();
        let more_max = self.one_of(&[4, 12, 40]).min(40 - key.len());
        for _ in 0..=self.below(more_max) {
            key.push(self.one_of(&BYTES));
        }
        key
    }

    /// 0 to 5000 bytes, most of them few.
    fn value(&mut self) -> Vec<u8> {
        let end = self.one_of(&[1, 100, 600, 2000, 5001]);
        let len = self.below(end);
        self.bytes(len)
    }
}

/// What an engine must hold, and what was done to it.
struct Model<'a> {
    kind: &'a Kind,
    dir: &'a Path,
    engine: Option<Box<dyn Engine>>,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keys to write and to look for. Some are never written.
    keys: Vec<Vec<u8>>,
    random: Random,
    step: usize,
}

type Entry = (Vec<u8>, Vec<u8>);

impl Model<'_> {
    fn new<'a>(kind: &'a Kind, dir: &'a Path, seed: u64) -> Model<'a> {
        let mut random = Random(seed);
        let keys = (0..800).map(|_| random.key()).collect();
        Model { kind, dir, engine: Some(open(kind, dir)), entries: BTreeMap::new(), keys, random, step: 0 }
    }

    fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().unwrap()
    }

    fn at(&self) -> String {
        format!("{}, step {}", self.kind.name, self.step)
    }

    fn step(&mut self) {
        self.step += 1;
        let sync = self.random.chance(200);
        // The last eighth of the keys is never written.
        let written = self.keys.len() * 7 / 8;
        match self.random.below(100) {
            0..60 => {
                let key = self.keys[self.random.below(written)].clone();
                let value = self.random.value();
                self.engine().put(&key, &value, sync).unwrap_or_else(|e| panic!("{}: put: {e}", self.at()));
                self.entries.insert(key, value);
            }
            60..78 => {
                let key = self.keys[self.random.below(written)].clone();
                self.engine().delete(&key, sync).unwrap_or_else(|e| panic!("{}: delete: {e}", self.at()));
                self.entries.remove(&key);
            }
            78..90 => {
                let key = self.probe();
                self.check_get(&key);
            }
            _ => {
                let from = if self.random.chance(8) { None } else { Some(self.probe()) };
                let limit = 1 + self.random.below(30);
                self.check_scan(from.as_deref(), limit);
                self.check_scan_back(from.as_deref(), limit);
            }
        }
    }

    /// A key that is there or was there, or one beside it.
    fn probe(&mut self) -> Vec<u8> {
        let mut key = self.keys[self.random.below(self.keys.len())].clone();
        match self.random.below(4) {
            0 => key.push(self.random.one_of(&[0x00, 0xff])),
            1 if key.len() > 1 => _ = key.pop(),
            _ => {}
        }
        key
    }

    fn check_get(&self, key: &[u8]) {
        let mut shown = None;
        let show = &mut |value: &[u8]| {
            assert!(shown.replace(value.to_vec()).is_none(), "{}: shown twice", self.at())
        };
        let found = self.engine().get(key, show).unwrap_or_else(|e| panic!("{}: get: {e}", self.at()));
        assert_eq!(
            found,
            shown.is_some(),
            "{}: get {key:02x?}: found, but not shown, or the reverse",
            self.at()
        );
        assert!(shown.as_ref() == self.entries.get(key), "{}: get {key:02x?}: found {found}", self.at());
    }

    fn check_scan(&self, from: Option<&[u8]>, limit: usize) {
        let expected = self.entries.range::<[u8], _>((from.map_or(Unbounded, Included), Unbounded));
        let found = collect(limit, |visit| self.engine().scan(from, visit));
        self.check_entries(&format!("scan from {from:02x?}"), expected.take(limit), found);
    }

    fn check_scan_back(&self, from: Option<&[u8]>, limit: usize) {
        let expected = self.entries.range::<[u8], _>((Unbounded, from.map_or(Unbounded, Included))).rev();
        let found = collect(limit, |visit| self.engine().scan_back(from, visit));
        self.check_entries(&format!("scan back from {from:02x?}"), expected.take(limit), found);
    }

    fn check_entries<'a>(
        &self,
        what: &str,
        expected: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
        found: Vec<Entry>,
    ) {
        let expected: Vec<(&[u8], &[u8])> = expected.map(|(key, value)| (&key[..], &value[..])).collect();
        for (nth, ((key, value), expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(key, expected.0, "{}: {what}: key {nth}", self.at());
            assert!(value == expected.1, "{}: {what}: the value of {key:02x?}", self.at());
        }
        assert_eq!(found.len(), expected.len(), "{}: {what}: entries", self.at());
    }

    /// Compares everything, in each of the ways to read.
    fn check_all(&self) {
        self.check_scan(None, usize::MAX);
        self.check_scan_back(None, usize::MAX);
        for key in &self.keys {
            self.check_get(key);
        }
    }

    fn settle(&self) {
        let start = std::time::Instant::now();
        let idle = self.engine().settle().unwrap_or_else(|e| panic!("{}: settle: {e}", self.at()));
        assert!(idle <= start.elapsed(), "{}: more idle time than there was", self.at());
    }

    fn reopen(&mut self) {
        let engine = self.engine.take().unwrap();
        engine.close().unwrap_or_else(|e| panic!("{}, step {}: close: {e}", self.kind.name, self.step));
        self.engine = Some(open(self.kind, self.dir));
    }
}

/// The first entries that a scan visits.
fn collect(
    limit: usize,
    scan: impl FnOnce(&mut bench::engine::Visit<'_>) -> bench::engine::Result<()>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    scan(&mut |key, value| {
        assert!(entries.len() < limit, "visited after it was told to stop");
        entries.push((key.to_vec(), value.to_vec()));
        entries.len() < limit
    })
    .unwrap();
    entries
}

#[test]
fn engines_are_as_an_ordered_map() {
    for_each_store(|kind, dir| {
        let mut model = Model::new(kind, dir, 1);
        model.check_all();
        for part in 1..=4 {
            for _ in 0..1500 {
                model.step();
            }
            model.check_all();
            model.settle();
            model.check_all();
            if part % 2 == 0 {
                model.reopen();
                model.check_all();
            }
        }
        assert!(model.entries.len() > 300, "nearly nothing was left to compare");
        assert!(!model.engine().settings().is_empty() && !(kind.version)().is_empty());
        model.engine.take().unwrap().close().unwrap();
    });
}

/// The value of a key in a round of writing: it names both, and is long enough to fill memtables.
fn stamped(key: u32, round: u32) -> Vec<u8> {
    let mut value = [key.to_be_bytes(), round.to_be_bytes()].concat();
    value.resize(8 + (key as usize * 31 + round as usize) % 700, key as u8);
    value
}

/// The round of a value, which must be one of this key and whole.
fn round_of(kind: &Kind, key: &[u8], value: &[u8]) -> u32 {
    let key = u32::from_be_bytes(key.try_into().unwrap());
    let round = u32::from_be_bytes(value[4..8].try_into().unwrap());
    assert!(value == stamped(key, round), "{}: key {key} has a value that was never written", kind.name);
    round
}

const KEYS: u32 = 400;
const ROUNDS: u32 = 20;

/// Two threads write, each its half of the keys, round by round and in order; two read. A get never sees an older round
/// than the one before. A scan sees all keys, as they were at one moment: in each half, a later key is of the same round
/// or of the one before.
#[test]
fn engines_are_used_by_threads_at_once() {
    for_each_store(|kind, dir| {
        let engine = open(kind, dir);
        for key in 0..KEYS {
            engine.put(&key.to_be_bytes(), &stamped(key, 0), false).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers = [0, 1].map(|half| {
                let engine = &engine;
                scope.spawn(move || {
                    for (round, key) in (1..=ROUNDS).flat_map(|round| (0..KEYS).map(move |key| (round, key)))
                    {
                        if key % 2 == half {
                            engine.put(&key.to_be_bytes(), &stamped(key, round), key == 100 + half).unwrap();
                        }
                    }
                })
            });
            for reader in 0..2 {
                let (engine, done) = (&engine, &done);
                scope.spawn(move || {
                    let mut seen = HashMap::new();
                    let mut random = Random(reader);
                    while !done.load(Ordering::Acquire) {
                        for _ in 0..50 {
                            get_newer(kind, engine.as_ref(), random.below(KEYS as usize) as u32, &mut seen);
                        }
                        scan_moment(kind, engine.as_ref(), reader == 0);
                    }
                });
            }
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Release);
        });
        for key in 0..KEYS {
            let mut round = None;
            let key = key.to_be_bytes();
            engine.get(&key, &mut |value| round = Some(round_of(kind, &key, value))).unwrap();
            assert_eq!(round, Some(ROUNDS), "{}: the last write was lost", kind.name);
        }
        engine.close().unwrap();
    });
}

fn get_newer(kind: &Kind, engine: &dyn Engine, key: u32, seen: &mut HashMap<u32, u32>) {
    let bytes = key.to_be_bytes();
    let mut round = None;
    engine.get(&bytes, &mut |value| round = Some(round_of(kind, &bytes, value))).unwrap();
    let round = round.unwrap_or_else(|| panic!("{}: key {key} is gone", kind.name));
    let before = seen.insert(key, round).unwrap_or(0);
    assert!(round >= before, "{}: key {key} went back from round {before} to {round}", kind.name);
}

fn scan_moment(kind: &Kind, engine: &dyn Engine, forward: bool) {
    let mut rounds = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        rounds.push((u32::from_be_bytes(key.try_into().unwrap()), round_of(kind, key, value)));
        true
    };
    if forward {
        engine.scan(None, visit).unwrap();
    } else {
        engine.scan_back(None, visit).unwrap();
        rounds.reverse();
    }
    assert!(rounds.iter().map(|&(key, _)| key).eq(0..KEYS), "{}: a scan missed keys: {rounds:?}", kind.name);
    for half in [0, 1] {
        let half: Vec<u32> =
            rounds.iter().filter(|(key, _)| key % 2 == half).map(|&(_, round)| round).collect();
        let one_moment = half.is_sorted_by(|a, b| a >= b) && half[0] - half[half.len() - 1] <= 1;
        assert!(one_moment, "{}: a scan saw several moments: {half:?}", kind.name);
    }
}

/// Says what a process of its own is to do: `sync`, `engine` and `directory`, with a colon between them.
const VICTIM: &str = "CAIRN_ADAPTER_VICTIM";

/// Which writes the victim syncs.
const ALL: &str = "all";
const NONE: &str = "none";
const MIDDLE: &str = "middle";

/// Not a test: the process that the tests below start. It writes, and dies before anything can be closed.
#[test]
#[ignore = "the tests that need it start it"]
fn victim() {
    let task = std::env::var(VICTIM).expect("a test starts it");
    let [sync, name, dir] = task.splitn(3, ':').collect::<Vec<_>>().try_into().unwrap();
    let kind = bench::engines::all().into_iter().find(|kind| kind.name == name).unwrap();
    let engine = open(&kind, Path::new(dir));
    for key in 0..KEYS {
        let sync = sync == ALL || sync == MIDDLE && key == KEYS / 2 - 1;
        engine.put(&key.to_be_bytes(), &stamped(key, 7), sync).unwrap();
    }
    println!("all is written");
    std::process::abort()
}

/// Lets the victim do its work, with a command before its own: this, or another program that runs it.
fn run_victim(kind: &Kind, dir: &Path, sync: &str, wrapper: &[&str]) {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let command = [wrapper, &[program, "--exact", "victim", "--ignored", "--nocapture"]].concat();
    let task = format!("{sync}:{}:{}", kind.name, dir.display());
    let victim = Command::new(command[0]).args(&command[1..]).env(VICTIM, task).output().unwrap();
    let said =
        String::from_utf8_lossy(&victim.stdout).into_owned() + &String::from_utf8_lossy(&victim.stderr);
    assert!(said.contains("all is written"), "{}: the victim failed: {said}", kind.name);
}

/// Writes that were not synced outlive the process; one that was synced, and those before it, do anyway.
#[test]
fn writes_outlive_the_process() {
    for_each_store(|kind, dir| {
        run_victim(kind, dir, MIDDLE, &[]);
        let engine = open(kind, dir);
        let last = if loses_unsynced(kind) { KEYS / 2 } else { KEYS };
        for key in 0..last {
            let mut round = None;
            let key = key.to_be_bytes();
            engine.get(&key, &mut |value| round = Some(round_of(kind, &key, value))).unwrap();
            assert_eq!(round, Some(7), "{}: {key:?} is lost", kind.name);
        }
        engine.close().unwrap();
    });
}

/// Engines that say in their settings that what is not synced may be lost with the process.
fn loses_unsynced(kind: &Kind) -> bool {
    ["redb"].contains(&kind.name)
}

/// Each write that is to be synced makes a system call that syncs, and the others make none, as a rule: an engine that
/// mistook one for the other would be much too fast, or much too slow. `strace` counts; without it, nothing is tested.
#[test]
fn writes_are_synced_when_they_are_to_be() {
    const STRACE: [&str; 6] = ["strace", "-f", "-q", "-e", "trace=fsync,fdatasync,msync", "-o"];
    let log = tempfile::NamedTempFile::new().unwrap();
    let strace = [&STRACE[..], &[log.path().to_str().unwrap()]].concat();
    let works =
        Command::new(strace[0]).args(&strace[1..]).arg("true").status().is_ok_and(|status| status.success());
    if !works {
        println!("strace is not there, or must not trace: nothing was tested");
        return;
    }
    for_each_store(|kind, dir| {
        let count = |sync: &str| {
            let dir = dir.join(sync);
            std::fs::create_dir(&dir).unwrap();
            run_victim(kind, &dir, sync, &strace);
            // A call that was interrupted has a second line, in which its name is followed by a blank.
            std::fs::read_to_string(log.path()).unwrap().matches("sync(").count()
        };
        let (all, none) = (count(ALL), count(NONE));
        println!("{}: {all} calls that sync for {KEYS} synced writes, {none} for as many others", kind.name);
        assert!(all >= KEYS as usize, "{}: {all} calls that sync for {KEYS} writes", kind.name);
        assert!(none <= KEYS as usize / 4, "{}: {none} calls that sync for none", kind.name);
    });
}

/// Versions of keys of one length, put in the order of time, as the histories do.
#[test]
fn versions_are_found_by_key_and_time() {
    for_each_kind(|kind, dir| {
        if kind.name == "cairn-hash-log" {
            return;
        }
        let engine = open(kind, dir);
        let (mut random, mut versions) = (Random(7), BTreeMap::new());
        for time in 0..3000u64 {
            let key = format!("key/{:04}", random.below(40)).into_bytes();
            let value = random.value();
            engine.put_version(&key, time, &value, false).unwrap();
            versions.insert(version_key(&key, time), value);
        }
        for settled in [false, true] {
            if settled {
                engine.settle().unwrap();
            }
            for _ in 0..200 {
                let key = format!("key/{:04}", random.below(41)).into_bytes();
                let from = random.below(3000) as u64;
                let to = from + random.below(3001 - from as usize) as u64;
                let range = (Included(version_key(&key, to)), Included(version_key(&key, from)));
                let expected: Vec<Entry> =
                    versions.range(range).map(|(k, v)| (k.clone(), v.clone())).collect();
                let mut found = Vec::new();
                let visit = &mut |version: &[u8], value: &[u8]| {
                    found.push((version.to_vec(), value.to_vec()));
                    true
                };
                engine.versions(&key, (from, to), visit).unwrap();
                assert!(found == expected, "{}: {} from {from} to {to}", kind.name, key.escape_ascii());
            }
        }
        if ["cairn-history", "rocksdb-timestamps"].contains(&kind.name) {
            let as_of = 1500;
            let mut expected = BTreeMap::new();
            for (version, value) in &versions {
                let (key, time) = split_version_key(version).unwrap();
                if time <= as_of {
                    expected.entry(key.to_vec()).or_insert(value.clone());
                }
            }
            let mut found = BTreeMap::new();
            let visit = &mut |key: &[u8], value: &[u8]| found.insert(key.to_vec(), value.to_vec()).is_none();
            engine.scan_as_of(as_of, b"key/0010", visit).unwrap();
            assert!(found == expected.split_off(&b"key/0010"[..]));
        }
        engine.close().unwrap();
    });
}

/// The engine without order gives back what was put, by key and as a whole.
#[test]
fn a_hash_log_answers_by_key_and_shows_everything() {
    let kinds = bench::engines::all();
    let kind = kinds.iter().find(|kind| kind.name == "cairn-hash-log").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (mut random, mut model) = (Random(3), BTreeMap::new());
    for _ in 0..2 {
        let engine = open(kind, dir.path());
        for _ in 0..20_000 {
            let (key, value) = (format!("key/{:05}", random.below(3000)).into_bytes(), random.value());
            if random.below(5) == 0 {
                engine.delete(&key, false).unwrap();
                model.remove(&key);
            } else {
                engine.put(&key, &value, false).unwrap();
                model.insert(key, value);
            }
        }
        engine.settle().unwrap();
        for key in (0..3000).map(|n| format!("key/{n:05}").into_bytes()) {
            let mut found = None;
            engine.get(&key, &mut |value| found = Some(value.to_vec())).unwrap();
            assert!(found.as_ref() == model.get(&key), "{}", key.escape_ascii());
        }
        let mut found = BTreeMap::new();
        engine.scan(None, &mut |key, value| found.insert(key.to_vec(), value.to_vec()).is_none()).unwrap();
        assert!(found == model);
        assert!(engine.scan(Some(b"key"), &mut |_, _| true).is_err());
        engine.close().unwrap();
    }
}
