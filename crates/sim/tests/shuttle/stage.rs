//! The common parts of the scenarios: the runner, and a small database on a disk that may switch threads at each
//! operation.

use cairn::env::{Fault, OpInfo, OpKind, Phase, SimEnv, Survival};
use cairn::{
    Builder, Database, Durability, Engine, FilterDecision, FilterEntry, Keyspace, KeyspaceOptions, Options,
    PlacementPolicy,
};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use sim::random::fresh_seed;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Number of preemptions in a PCT schedule.
const PCT_DEPTH: usize = 3;

/// A schedule with more steps than this does not end: a thread waits forever.
const MAX_STEPS: usize = 400_000;

/// Runs `scenario` under this many schedules, and prints the number.
pub fn check(scenario: fn(), schedules: usize) {
    if let Ok(path) = std::env::var("CAIRN_SCHEDULE") {
        return replay(scenario, path.as_ref());
    }
    let percent = std::env::var("CAIRN_SHUTTLE_PERCENT").map_or(100, |text| text.parse().expect("a number"));
    let (part, fresh) = ((schedules * percent / 400).max(1), fresh_seed());
    println!("fresh seed: {fresh}");
    let ran = Arc::new(AtomicU64::new(0));
    for seed in [1, fresh] {
        run(RandomScheduler::new_from_seed(seed, part), scenario, &ran);
        run(PctScheduler::new_from_seed(seed, PCT_DEPTH, part), scenario, &ran);
    }
    sim::count("shuttle schedules", ran.load(Ordering::SeqCst));
}

/// The directory for failing schedules.
pub fn failed() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Runs the schedule in this file.
pub fn replay(scenario: fn(), file: &Path) {
    let replay = ReplayScheduler::new_from_file(file).expect("the file of a schedule");
    Runner::new(replay, config()).run(scenario);
}

/// Runs `scenario` under this many schedules. Panics at the first failure.
#[cfg(feature = "planted-bugs")]
pub fn look(scenario: fn(), schedules: usize) {
    let ran = Arc::default();
    run(PctScheduler::new_from_seed(2, PCT_DEPTH, schedules / 2), scenario, &ran);
    run(RandomScheduler::new_from_seed(2, schedules / 2), scenario, &ran);
}

fn run(scheduler: impl Scheduler + 'static, scenario: fn(), ran: &Arc<AtomicU64>) {
    let ran = ran.clone();
    Runner::new(scheduler, config()).run(move || {
        ran.fetch_add(1, Ordering::SeqCst);
        scenario();
    });
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    config.failure_persistence = FailurePersistence::File(Some(failed().to_owned()));
    config.silence_warnings = true;
    config
}

/// A database with two keyspaces, on a simulated disk.
pub struct Stage {
    /// The disk.
    pub disk: Arc<SimEnv>,
    /// The database.
    pub db: Database,
    /// Its keyspaces.
    pub spaces: [Keyspace; 2],
}

/// Small options: three values of [`wide`] fill a memtable, and each level 0 table is compacted at once.
pub fn tiny() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(4 << 10)
        .block_size(128)
        .level0_tables(1)
        .levels(2)
        .max_tables_per_guard(1)
        .top_level_bits(1)
}

fn options(threads: usize) -> Options {
    Options::default().memory_budget(1 << 20).background_threads(threads).dead_range_entries(1)
}

/// A long value: three of them fill a memtable.
pub fn wide(text: &str) -> Vec<u8> {
    let mut value = text.as_bytes().to_vec();
    value.resize(1200, b'.');
    value
}

/// The text of a value.
pub fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('.').to_owned()
}

impl Stage {
    /// A new database with this number of background threads.
    pub fn new(threads: usize) -> Stage {
        Stage::open(options(threads), tiny(), Database::builder())
    }

    /// The same, whose first keyspace has its values outside of the tree, which are collected when few of them are dead.
    pub fn with_values(threads: usize) -> Stage {
        let options = options(threads).value_garbage_percent(1);
        let outside = tiny().placement(PlacementPolicy::Hybrid).large_up_to(1.0);
        Stage::open(options, outside, Database::builder())
    }

    /// The same, whose first keyspace has no order, and is collected when little in it is dead.
    pub fn with_hash_log(threads: usize) -> Stage {
        let hashed = tiny().engine(Engine::HashLog);
        Stage::open(options(threads).value_garbage_percent(1), hashed, Database::builder())
    }

    /// The same, whose first keyspace has a compaction filter that drops all entries.
    pub fn with_filter(threads: usize) -> Stage {
        let drops = |_: &FilterEntry<'_>| Ok(FilterDecision::Drop);
        Stage::open(options(threads), tiny(), Database::builder().compaction_filter("left", drops))
    }

    fn open(options: Options, left: KeyspaceOptions, builder: Builder) -> Stage {
        let disk = SimEnv::new(1);
        let db = builder.env(disk.clone()).options(options).open("/db").unwrap();
        let spaces = [("left", left), ("right", tiny())];
        let spaces = spaces.map(|(name, options)| db.create_keyspace(name, options).unwrap());
        let stage = Stage { disk, db, spaces };
        stage.watch(|_| None);
        stage
    }

    /// Calls `judge` for each operation of the disk, where threads may switch.
    pub fn watch(&self, judge: impl Fn(OpInfo<'_>) -> Option<Fault> + Send + Sync + 'static) {
        let switch = AtomicUsize::new(0);
        self.disk.set_hook(Some(Box::new(move |op| {
            switch.load(Ordering::SeqCst);
            judge(op)
        })));
    }

    /// Makes one sync of a log fail, after `skip` others. Later syncs seem to succeed.
    pub fn fail_log_sync(&self, skip: usize) {
        self.fail_sync("wal-", skip);
    }

    /// The same for a table.
    pub fn fail_table_sync(&self) {
        self.fail_sync(".tbl", 0);
    }

    fn fail_sync(&self, part: &'static str, skip: usize) {
        let left = AtomicUsize::new(skip + 1);
        self.watch(move |op| {
            let meant = op.kind == OpKind::Sync
                && op.phase == Phase::Before
                && op.path.to_string_lossy().contains(part);
            match meant
                && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) == Ok(1)
            {
                true => Some(Fault::EIO),
                false => None,
            }
        });
    }

    /// The entries of both keyspaces after a power failure that loses all unsynced data.
    pub fn after_power_cut(&self) -> [Vec<(String, String)>; 2] {
        let disk = self.disk.crash_clone(Survival::Nothing, 1);
        let db = Database::open_in(disk, "/db", options(0)).unwrap();
        ["left", "right"].map(|name| entries(&db.open_keyspace(name).unwrap()))
    }

    /// A batch that sets these keys in both keyspaces to the same value.
    pub fn write_all(&self, keys: &[&str], value: &str, durability: Durability) -> cairn::Result<()> {
        let mut batch = self.db.batch();
        for space in &self.spaces {
            keys.iter().for_each(|key| batch.put(space, key, value));
        }
        self.db.write(batch, durability)
    }
}

/// All entries of a keyspace.
pub fn entries(keyspace: &Keyspace) -> Vec<(String, String)> {
    let entry = |entry: cairn::Result<(cairn::Slice, cairn::Slice)>| {
        let (key, value) = entry.unwrap();
        (text(&key), text(&value))
    };
    keyspace.iter().map(entry).collect()
}
