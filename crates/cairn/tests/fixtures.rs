//! Databases written by earlier versions, kept as files in `tests/fixtures`. Intact ones open with their content; damaged ones give the
//! recorded answers; formats that this version cannot read are refused by name.
//!
//! ```text
//! fixtures/v1/good/NAME/         the files of a database, and contents.txt: keyspace, key, value, one entry a line; with history also
//!                                versions.txt: keyspace, key, time in us, value
//! fixtures/v1/damaged/NAME/      the files of `base`, or of `values`, with one defect, and answers.txt: the results of opening, of gets and of scans
//! ```
//!
//! `UPDATE_FIXTURES=1 cargo test -p cairn-kv --test all fixtures` writes missing fixtures, and rewrites the answers of damaged ones. **It never
//! overwrites the files of a database**: they remain as that version wrote them. A new format gets its own directory beside `v1`.

use base::checksum::{Place, checksum};
use cairn::env::SimEnv;
use cairn::{
    Compression, Database, Durability, Engine, ErrorKind, KeyspaceOptions, Options, PlacementPolicy, Preset,
    Retention, TableFormat, Time,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Files of a directory, by name.
type Files = BTreeMap<String, Vec<u8>>;
/// Keyspace, key, and value; `None` for a key that was deleted.
type Contents = BTreeMap<(String, String), Option<String>>;

const CONTENTS: &str = "contents.txt";
const ANSWERS: &str = "answers.txt";
const VERSIONS: &str = "versions.txt";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

fn updating() -> bool {
    std::env::var_os("UPDATE_FIXTURES").is_some()
}

// ---- creating fixtures

/// A database that is being written, and its expected content.
struct Maker {
    sim: Arc<SimEnv>,
    db: Database,
    contents: Contents,
}

impl Maker {
    fn new() -> Maker {
        let sim = SimEnv::new(1);
        let db = Database::open_in(sim.clone(), "/db", options().create_if_missing(true)).unwrap();
        Maker { sim, db, contents: Contents::new() }
    }

    fn keyspace(&self, name: &str, compression: Compression) {
        self.keyspace_with(name, KeyspaceOptions::default().compression(compression));
    }

    /// The two keyspaces of most fixtures.
    fn keyspaces(&self, options: &KeyspaceOptions) {
        ["fruit", "stones"].into_iter().for_each(|name| self.keyspace_with(name, options.clone()));
    }

    fn keyspace_with(&self, name: &str, options: KeyspaceOptions) {
        let options = options.block_size(256).top_level_bits(8).bit_decrement(1).levels(3).level0_tables(2);
        self.db.create_keyspace(name, options).unwrap();
    }

    /// Writes some entries as one batch; an empty value is a delete.
    fn write(&mut self, entries: &[(&str, String, String)], durability: Durability) {
        let mut batch = self.db.batch();
        for (name, key, value) in entries {
            let keyspace = self.db.open_keyspace(name).unwrap();
            match value.is_empty() {
                true => batch.delete(&keyspace, key),
                false => batch.put(&keyspace, key, value),
            }
            let value = Some(value.clone()).filter(|v| !v.is_empty());
            self.contents.insert((name.to_string(), key.clone()), value);
        }
        self.db.write(batch, durability).unwrap();
    }

    /// Two keyspaces with tables in level 0 and below, old versions, tombstones, batches across both, a large value, and newer
    /// entries in the log.
    fn fill(&mut self, compression: Compression) {
        self.fill_with(&KeyspaceOptions::default().compression(compression));
    }

    fn fill_with(&mut self, options: &KeyspaceOptions) {
        self.keyspaces(options);
        for round in 0..4u32 {
            for i in (round..48).step_by(2 + round as usize) {
                let value =
                    if (i + round) % 7 == 3 { String::new() } else { format!("round {round}, number {i}") };
                let both =
                    [("fruit", format!("key/{i:03}"), value.clone()), ("stones", format!("{i}"), value)];
                self.write(&both, Durability::Os);
            }
            if round == 1 {
                self.write(&[("stones", "large".into(), "granite, ".repeat(300))], Durability::Os);
            }
            if round < 3 {
                self.db.flush().unwrap();
            }
            if round == 1 {
                self.db.compact().unwrap();
            }
        }
        self.write(&[("fruit", "synced".into(), "the last but one".into())], Durability::Sync);
        self.write(&[("fruit", "unsynced".into(), "the last".into())], Durability::Os);
    }

    /// Large values in logs that are kept for them and in value files, small ones and another keyspace beside them, and newer entries
    /// in the log.
    fn fill_with_large_values(&mut self) {
        let hybrid = KeyspaceOptions::default().placement(PlacementPolicy::Hybrid).large_up_to(0.2);
        self.keyspace_with("fruit", hybrid);
        self.keyspace("stones", Compression::Lz4);
        for round in 0..4u32 {
            for i in (0..24).filter(|i| round == 0 || (i + round) % 4 == 0) {
                let large = format!("round {round}, number {i}. ").repeat(10 + i as usize % 5);
                let both =
                    [("fruit", format!("key/{i:03}"), large), ("stones", format!("{i}"), "small".into())];
                self.write(&both, Durability::Os);
            }
            self.write(&[("fruit", format!("small/{round}"), format!("{round}"))], Durability::Os);
            if round < 3 {
                self.db.flush().unwrap();
            }
            if round == 1 {
                self.db.compact().unwrap();
            }
        }
        self.write(&[("fruit", "synced".into(), "the last but one, ".repeat(20))], Durability::Sync);
        self.write(&[("fruit", "unsynced".into(), "the last".into())], Durability::Os);
        let values = self.db.stats().values;
        assert!(values.logs > 0 && values.files > 0, "{values:?}");
    }

    /// A keyspace without order beside one with: entries in logs that hint files name, after collections, and newer ones in the log;
    /// overwritten and deleted ones among them.
    fn fill_without_order(&mut self) {
        self.keyspace_with("fruit", KeyspaceOptions::preset(Preset::HashLog));
        self.keyspace("stones", Compression::Lz4);
        for round in 0..5u32 {
            for i in (0..40).filter(|i| round == 0 || (i + round) % 3 == 0) {
                let value = match (i + round) % 7 {
                    3 => String::new(),
                    5 => format!("round {round}, number {i}, at length. ").repeat(20),
                    _ => format!("round {round}, number {i}"),
                };
                let both =
                    [("fruit", format!("key/{i:03}"), value), ("stones", format!("{i}"), "beside it".into())];
                self.write(&both, Durability::Os);
            }
            if round < 4 {
                self.db.flush().unwrap();
            }
            if round == 2 {
                self.db.compact().unwrap();
            }
        }
        self.write(&[("fruit", "synced".into(), "the last but one".into())], Durability::Sync);
        self.write(&[("fruit", "unsynced".into(), "the last".into())], Durability::Os);
        let values = self.db.stats().values;
        assert!(values.logs > 1 && values.collections.jobs > 0, "{values:?}");
    }

    /// Versions in both trees, in tables and in the log: in order and late ones, deletes, range deletes, two of one time, a large value,
    /// some held by a snapshot.
    fn fill_with_history(&mut self, options: KeyspaceOptions) {
        let history = options.history(Retention::All);
        self.keyspace_with("prices", history.placement(PlacementPolicy::Hybrid));
        self.keyspace("stones", Compression::Lz4);
        let prices = self.db.open_keyspace("prices").unwrap();
        let (mut newest, mut snapshot) = (BTreeMap::new(), None);
        for round in 0..4u64 {
            let mut batch = self.db.batch();
            for i in (0..24).filter(|i| (i + round) % 3 > 0) {
                // Odd keys are written backwards in time.
                let at = 1_000_000 * if i % 2 == 0 { round + 1 } else { 9 - round } + i;
                let key = format!("key\x00{i:03}");
                let value = match (i + round) % 7 {
                    3 => None,
                    5 => Some(format!("round {round}, number {i}, at length. ").repeat(20)),
                    _ => Some(format!("round {round}, number {i}")),
                };
                match &value {
                    Some(value) => batch.put_at(&prices, &key, value, Time::from_micros(at)),
                    None => batch.delete_at(&prices, &key, Time::from_micros(at)),
                }
                if newest.get(&key).is_none_or(|(time, _)| *time < at) {
                    newest.insert(key, (at, value));
                }
            }
            self.db.write(batch, Durability::Os).unwrap();
            self.write(&[("stones", format!("{round}"), "beside it".into())], Durability::Os);
            match round {
                0 => snapshot = Some(self.db.snapshot()),
                1 => {
                    self.db.flush().unwrap();
                    self.db.compact().unwrap();
                }
                2 => {
                    prices.delete_range("key\x00004".."key\x00008").unwrap();
                    // No later round writes after this.
                    let deleted = (4..8).map(|i| (format!("key\x00{i:03}"), (u64::MAX, None)));
                    newest.extend(deleted);
                    prices.put_at("key\x00001", "of the same time", Time::from_micros(9_000_001)).unwrap();
                    newest.insert("key\x00001".into(), (9_000_001, Some("of the same time".into())));
                    self.db.flush().unwrap();
                    drop(snapshot.take());
                }
                _ => {}
            }
        }
        for i in 0..24 {
            let key = format!("key\x00{i:03}");
            let value = newest.remove(&key).and_then(|(_, value)| value);
            self.contents.insert(("prices".into(), key), value);
        }
        self.write(&[("stones", "synced".into(), "the last but one".into())], Durability::Sync);
    }

    fn files(&self) -> Files {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let files = self.sim.list_files().into_iter().filter(|path| !path.ends_with("LOCK"));
        files.map(|path| (name(&path), self.sim.read_file(&path))).collect()
    }
}

fn options() -> Options {
    Options::default().background_threads(0).memory_budget(1 << 20).create_if_missing(false)
}

/// All intact fixtures: name, files and content.
fn good() -> Vec<(&'static str, Files, Contents)> {
    let mut all = Vec::new();
    let mut add = |name, make: &dyn Fn(&mut Maker)| {
        let mut maker = Maker::new();
        make(&mut maker);
        all.push((name, maker.files(), maker.contents));
    };
    add("empty", &|_| ());
    add("base", &|m| m.fill(Compression::Lz4));
    add("none", &|m| m.fill(Compression::None));
    add("zstd", &|m| m.fill(Compression::Zstd));
    add("log-only", &|m| {
        m.keyspace("fruit", Compression::Lz4);
        (0..20).for_each(|i| m.write(&[("fruit", format!("{i}"), format!("value {i}"))], Durability::Os));
    });
    // The files after a kill of the process, among them a recycled log.
    add("log-over-another", &|m| {
        m.fill(Compression::Lz4);
        for round in 0..4 {
            for i in 0..60 - 10 * round {
                let both = ["fruit", "stones"].map(|name| (name, format!("{i}"), format!("round {round}")));
                m.write(&both, if i % 16 == 3 { Durability::Sync } else { Durability::Os });
            }
            m.db.flush().unwrap();
        }
        m.write(&[("fruit", "synced".into(), "the last but one".into())], Durability::Sync);
        m.write(&[("fruit", "unsynced".into(), "the last".into())], Durability::Os);
        let log = m.files().into_iter().find(|(name, _)| name.starts_with("wal-") && name.ends_with(".log"));
        assert_eq!(log.unwrap().1[8], 2, "the log is written over another one");
    });
    add("size-class", &|m| m.fill_with(&KeyspaceOptions::default().table_format(TableFormat::SizeClass)));
    add("hash-log", &|m| m.fill_without_order());
    add("values", &|m| m.fill_with_large_values());
    add("history", &|m| m.fill_with_history(KeyspaceOptions::default()));
    // Tables of many blocks, whose index has times.
    add("block-times", &|m| m.fill_with_history(KeyspaceOptions::default().block_size(128)));
    add("dropped-keyspace", &|m| {
        m.keyspace("fruit", Compression::Lz4);
        m.keyspace("gone", Compression::Lz4);
        for i in 0..20 {
            m.write(
                &[("gone", format!("{i}"), "x".into()), ("fruit", format!("{i}"), "y".into())],
                Durability::Os,
            );
        }
        m.db.drop_keyspace("gone").unwrap();
        m.contents.retain(|(name, _), _| name != "gone");
    });
    add("cloned", &|m| {
        m.keyspace("fruit", Compression::None);
        let entry = |name, i: usize| (name, format!("key/{i}"), format!("number {i}"));
        m.write(&(0..6).map(|i| entry("fruit", i)).collect::<Vec<_>>(), Durability::Os);
        m.db.clone_keyspace("fruit", "apples").unwrap();
        let content = m.contents.clone().into_iter();
        m.contents.extend(content.map(|((_, key), value)| (("apples".to_owned(), key), value)));
        m.write(&[entry("apples", 7), entry("fruit", 8)], Durability::Os);
        m.db.flush().unwrap();
    });
    add("altered", &|m| {
        m.keyspace("fruit", Compression::Lz4);
        m.keyspace_with("stones", KeyspaceOptions::default().history(Retention::All));
        for round in 0..3 {
            let entry = |name, i: usize| (name, format!("key/{i}"), format!("round {round}, number {i}"));
            m.write(&(0..20).map(|i| entry("fruit", i)).collect::<Vec<_>>(), Durability::Os);
            m.write(&(0..20).map(|i| entry("stones", i)).collect::<Vec<_>>(), Durability::Os);
            m.db.flush().unwrap();
            let (fruit, stones) =
                (m.db.open_keyspace("fruit").unwrap(), m.db.open_keyspace("stones").unwrap());
            fruit.alter(|options| options.table_format(TableFormat::SizeClass).level0_tables(3)).unwrap();
            stones.alter(|options| options.compression(Compression::None)).unwrap();
        }
        m.db.rename_keyspace("fruit", "apples").unwrap();
        m.db.rename_keyspace("stones", "rocks").unwrap();
        let renamed = |name: &str| if name == "fruit" { "apples" } else { "rocks" }.to_owned();
        m.contents =
            std::mem::take(&mut m.contents).into_iter().map(|((n, k), v)| ((renamed(&n), k), v)).collect();
    });
    // An earlier retention has removed a delete: a late write from before it is refused.
    add("retention", &|m| {
        let at = |seconds: u64| Time::from_micros((1 << 50) + seconds * 1_000_000);
        let age = Retention::Age(Duration::from_secs(5));
        let entry = |name, i: usize| (name, format!("key/{i}"), format!("number {i}"));
        m.keyspace_with("fruit", KeyspaceOptions::default().history(age));
        let fruit = m.db.open_keyspace("fruit").unwrap();
        m.sim.set_wall_clock(at(1));
        m.write(&[entry("fruit", 1), entry("fruit", 2)], Durability::Os);
        fruit.put("gone", "1").unwrap();
        fruit.delete("gone").unwrap();
        for seconds in [2, 20, 40] {
            m.sim.set_wall_clock(at(seconds));
            fruit.rewrite().unwrap();
        }
        assert!(fruit.history("gone", ..).unwrap().next().is_none());
        fruit.alter(|options| options.history(Retention::All)).unwrap();
        m.sim.set_wall_clock(at(50));
        m.write(&[entry("fruit", 2), entry("fruit", 3)], Durability::Os);
        m.db.flush().unwrap();
        fruit.put_at("gone", "late", at(1)).unwrap_err();
    });
    add("zstd-in-log", &|m| {
        m.keyspace("stones", Compression::Lz4);
        m.keyspace("fruit", Compression::Zstd);
        let both = ["stones", "fruit"].map(|name| (name, "key".to_owned(), "value".to_owned()));
        m.write(&both, Durability::Os);
    });
    // Tables of both compressions in one keyspace.
    add("zstd-altered", &|m| {
        m.keyspace("fruit", Compression::Zstd);
        m.keyspace("stones", Compression::Lz4);
        let entry = |name, i: usize| (name, format!("key/{i:02}"), format!("number {i}, ").repeat(9));
        m.write(&(0..20).map(|i| entry("fruit", i)).collect::<Vec<_>>(), Durability::Os);
        m.write(&(0..5).map(|i| entry("stones", i)).collect::<Vec<_>>(), Durability::Os);
        m.db.flush().unwrap();
        let fruit = m.db.open_keyspace("fruit").unwrap();
        fruit.alter(|options| options.compression(Compression::Lz4)).unwrap();
        m.write(&(20..40).map(|i| entry("fruit", i)).collect::<Vec<_>>(), Durability::Os);
        m.db.flush().unwrap();
    });
    // A crash during the last write, which was not synced.
    let mut torn = Maker::new();
    torn.fill(Compression::Lz4);
    let mut files = torn.files();
    let log = files.values_mut().next_back().unwrap();
    log.truncate(log.len() - 3);
    torn.contents.remove(&("fruit".into(), "unsynced".into()));
    all.push(("torn-tail", files, torn.contents));
    // A crash during a switch of the manifest: the old one and a half-written one still exist.
    let mut switched = Maker::new();
    switched.fill(Compression::Lz4);
    let old = switched.files();
    let old = old
        .iter()
        .find(|(name, _)| name.starts_with("manifest"))
        .map(|(n, f)| (n.clone(), f.clone()))
        .unwrap();
    switched.db.close().unwrap();
    switched.db = Database::open_in(switched.sim.clone(), "/db", options()).unwrap();
    let mut files = switched.files();
    files.insert("manifest-900000.tmp".into(), old.1[..40].to_vec());
    files.insert(old.0, old.1);
    all.push(("two-manifests", files, switched.contents));
    all
}

/// The largest file of `base` with `part` in its name.
fn named<'a>(files: &'a mut Files, part: &str) -> (String, &'a mut Vec<u8>) {
    let of_kind = files.iter().filter(|(name, _)| name.contains(part));
    let name = of_kind.max_by_key(|(_, content)| content.len()).unwrap().0.clone();
    let number: String = name.chars().filter(char::is_ascii_digit).collect();
    (number, files.get_mut(&name).unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// Changes the format version of a segment and its checksum, so that it is otherwise intact.
fn future_segment((number, bytes): (String, &mut Vec<u8>), version: u8) {
    bytes[8] = version;
    let header = 24 + bytes[12] as usize;
    let place = Place { file: number.parse().unwrap(), offset: 0, kind: 0 };
    let sum = checksum(place, &bytes[..header]);
    bytes[header..header + 4].copy_from_slice(&sum.to_le_bytes());
}

type Damage = (&'static str, fn(&mut Files));

/// The intact fixture that a damaged one is made from.
fn base_of(damaged: &str) -> &'static str {
    match damaged.split_once('-') {
        Some(("value", _)) => "values",
        Some(("rows", _)) => "size-class",
        Some(("hash", _)) => "hash-log",
        _ => "base",
    }
}

/// The place of `text` in the files whose names end like this: the last one.
fn of_text<'a>(files: &'a mut Files, extension: &str, text: &str) -> (&'a mut Vec<u8>, usize) {
    let of_kind = files.iter_mut().filter(|(name, _)| name.ends_with(extension));
    let found = of_kind.filter_map(|(_, bytes)| {
        let at = bytes.windows(text.len()).rposition(|part| part == text.as_bytes())?;
        Some((bytes, at))
    });
    found.last().unwrap()
}

/// A name, and the damage done to the files of the fixture that [`base_of`] names.
fn damages() -> Vec<Damage> {
    vec![
        ("table-data", |f| named(f, ".tbl").1[30] ^= 1),
        ("hash-hints", |f| {
            let hints = named(f, ".hnt").1;
            let middle = hints.len() / 2;
            hints[middle] ^= 1;
        }),
        ("hash-hints-missing", |f| {
            let name = f.keys().find(|name| name.ends_with(".hnt")).unwrap().clone();
            f.remove(&name);
        }),
        ("hash-entry", |f| {
            let (log, at) = of_text(f, ".log", "round 3, number 3");
            log[at] ^= 1;
        }),
        ("rows-page", |f| {
            let table = named(f, ".tbl").1;
            let footer = table.len() - 80;
            let directory = u64_at(table, footer + 24);
            table[directory - 4096 + 40] ^= 1;
        }),
        ("rows-directory", |f| {
            let table = named(f, ".tbl").1;
            let footer = table.len() - 80;
            let directory = u64_at(table, footer + 24);
            table[directory + 9] ^= 1;
        }),
        ("rows-values", |f| named(f, ".tbl").1[30] ^= 1),
        ("table-index", |f| {
            let table = named(f, ".tbl").1;
            let footer = table.len() - 80;
            let root = u64_at(table, footer + 24);
            table[root + 12] ^= 1;
        }),
        ("table-filter", |f| {
            let table = named(f, ".tbl").1;
            let footer = table.len() - 80;
            let filter = u64_at(table, footer + 16);
            table[filter + 12] ^= 1;
        }),
        ("table-footer", |f| {
            let table = named(f, ".tbl").1;
            let at = table.len() - 60;
            table[at] ^= 1;
        }),
        ("table-short", |f| {
            let table = named(f, ".tbl").1;
            table.truncate(table.len() / 2);
        }),
        ("table-missing", |f| {
            let number = named(f, ".tbl").0;
            f.remove(&format!("{number}.tbl"));
        }),
        ("table-of-another-number", |f| {
            let mut tables = f.iter().filter(|(name, _)| name.contains(".tbl"));
            let (first, last) = (tables.next().unwrap().0.clone(), tables.next_back().unwrap().1.clone());
            f.insert(first, last);
        }),
        ("log-middle", |f| {
            let log = named(f, "wal").1;
            let middle = log.len() / 2;
            log[middle] ^= 1;
        }),
        ("log-header", |f| named(f, "wal").1[20] ^= 1),
        ("log-missing", |f| f.retain(|name, _| !name.contains("wal"))),
        ("manifest-middle", |f| {
            let manifest = named(f, "manifest").1;
            let middle = manifest.len() / 2;
            manifest[middle] ^= 1;
        }),
        ("manifest-empty", |f| named(f, "manifest").1.clear()),
        ("manifest-missing", |f| f.retain(|name, _| !name.contains("manifest"))),
        ("manifest-renamed", |f| {
            let name = f.keys().find(|name| name.contains("manifest")).unwrap().clone();
            let content = f.remove(&name).unwrap();
            f.insert("manifest-000777".into(), content);
        }),
        ("value-in-log", |f| {
            let (log, at) = of_text(f, ".log", "round 2, number 6");
            log[at] ^= 1;
        }),
        ("value-in-file", |f| {
            let (file, at) = of_text(f, ".val", "round 0, number 8");
            file[at] ^= 1;
        }),
        ("value-maps", |f| {
            let file = named(f, ".val").1;
            let at = file.len() - 3;
            file[at] ^= 1;
        }),
        ("value-file-missing", |f| {
            let number = named(f, ".val").0;
            f.remove(&format!("{number}.val"));
        }),
        ("future-table", |f| {
            let (number, table) = named(f, ".tbl");
            let footer = table.len() - 80;
            table[footer + 64] = 2;
            let place = Place { file: number.parse().unwrap(), offset: footer as u64, kind: 6 };
            let sum = checksum(place, &table[footer + 64..footer + 68]);
            table[footer + 68..footer + 72].copy_from_slice(&sum.to_le_bytes());
        }),
        ("future-log", |f| future_segment(named(f, "wal"), 3)),
        ("future-manifest", |f| future_segment(named(f, "manifest"), 2)),
    ]
}

// ---- reading and writing fixtures

fn listing(contents: &Contents) -> String {
    let mut text = String::new();
    for ((keyspace, key), value) in contents {
        let value = value.as_ref().map_or("-".to_owned(), |value| format!("={value}"));
        writeln!(text, "{keyspace}\t{key}\t{value}").unwrap();
    }
    text
}

/// All versions in the keyspaces with history. Compares with them what each keyspace was at each of their times.
fn versions(db: &Database) -> String {
    let mut text = String::new();
    for name in db.keyspaces() {
        let keyspace = db.open_keyspace(&name).unwrap();
        let Ok(versions) = keyspace.changes::<&str>(.., ..) else { continue };
        let versions: Vec<_> = versions.map(Result::unwrap).collect();
        for time in versions.iter().map(|version| version.time).collect::<BTreeSet<_>>() {
            // Those of a key come from the newest to the oldest.
            let until = versions.iter().rev().filter(|version| version.time <= time);
            let newest: BTreeMap<_, _> = until.map(|v| (v.key.to_vec(), v.value.clone())).collect();
            let right = newest.into_iter().filter_map(|(key, value)| Some((key, value?)));
            let found = keyspace.range_at::<&str>(time, ..).unwrap().map(Result::unwrap);
            let found: Vec<_> = found.map(|e| (e.key.to_vec(), e.value)).collect();
            assert!(found.iter().cloned().eq(right), "{name} at {time:?}");
            let back = keyspace.range_at::<&str>(time, ..).unwrap().rev().map(Result::unwrap);
            assert!(back.map(|e| (e.key.to_vec(), e.value)).eq(found.into_iter().rev()), "{name}, backward");
        }
        for version in versions {
            let (key, at) = (String::from_utf8(version.key.to_vec()).unwrap(), version.time.micros());
            let value = version.value.map(|value| format!("={}", String::from_utf8(value.to_vec()).unwrap()));
            writeln!(text, "{name}\t{key}\t{at}\t{}", value.unwrap_or("-".into())).unwrap();
        }
    }
    text
}

fn parse_listing(text: &str) -> Contents {
    let line = |line: &str| {
        let mut parts = line.splitn(3, '\t').map(str::to_owned);
        let (keyspace, key, value) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        ((keyspace, key), value.strip_prefix('=').map(str::to_owned))
    };
    text.lines().map(line).collect()
}

/// The files of a fixture, without its text file.
fn read(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())).map(|e| e.unwrap());
    let name = |e: &fs::DirEntry| e.file_name().into_string().unwrap();
    let files = entries.filter(|e| !name(e).ends_with(".txt"));
    files.map(|e| (name(&e), fs::read(e.path()).unwrap())).collect()
}

fn create(dir: &Path, files: &Files) {
    fs::create_dir_all(dir).unwrap();
    files.iter().for_each(|(name, content)| fs::write(dir.join(name), content).unwrap());
}

fn names(kind: &str) -> Vec<String> {
    let dirs =
        fs::read_dir(root().join(kind)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = dirs.collect();
    names.sort();
    names
}

/// Writes missing fixtures.
fn update() {
    if !updating() {
        return;
    }
    for (name, files, contents) in good() {
        let dir = root().join("good").join(name);
        if !dir.exists() {
            create(&dir, &files);
            fs::write(dir.join(CONTENTS), listing(&contents)).unwrap();
            let written = copy("good", name);
            let versions = versions(&Database::open_with(written.path().join("db"), options()).unwrap());
            if !versions.is_empty() {
                fs::write(dir.join(VERSIONS), versions).unwrap();
            }
        }
    }
    for (name, wound) in damages() {
        let dir = root().join("damaged").join(name);
        if !dir.exists() {
            let mut files = read(&root().join("good").join(base_of(name)));
            wound(&mut files);
            create(&dir, &files);
        }
    }
}

fn base_contents(damaged: &str) -> Contents {
    let file = root().join("good").join(base_of(damaged)).join(CONTENTS);
    parse_listing(&fs::read_to_string(file).unwrap())
}

/// A copy of a fixture in a temporary directory.
fn copy(kind: &str, name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    create(&dir.path().join("db"), &read(&root().join(kind).join(name)));
    dir
}

fn described(error: &cairn::Error, dir: &Path) -> String {
    format!("! {:?}: {}", error.kind(), error.to_string().replace(&*dir.to_string_lossy(), "DB"))
}

/// The results of opening, of the gets that fail, and of all scans, as text. Panics if a get or a scan returns a wrong answer.
fn answers(dir: &Path, contents: &Contents) -> String {
    let mut text = String::new();
    let db = match Database::open_with(dir, options()) {
        Ok(db) => db,
        Err(e) => return format!("open\t{}\n", described(&e, dir)),
    };
    writeln!(text, "open\tok").unwrap();
    for ((keyspace, key), value) in contents {
        let found = db.open_keyspace(keyspace).unwrap().get(key);
        match found {
            Ok(found) => {
                let found = found.map(|v| String::from_utf8(v.to_vec()).unwrap());
                assert_eq!(found, *value, "{}: {keyspace} {key}", dir.display());
            }
            Err(e) => writeln!(text, "{keyspace}\t{key}\t{}", described(&e, dir)).unwrap(),
        }
    }
    for name in db.keyspaces() {
        let expected = contents.iter().filter(|((keyspace, _), value)| *keyspace == name && value.is_some());
        let expected: Vec<_> =
            expected.map(|((_, key), value)| (key.clone(), value.clone().unwrap())).collect();
        let mut read = 0;
        let mut failed = None;
        let keyspace = db.open_keyspace(&name).unwrap();
        for entry in keyspace.entries() {
            match entry {
                Ok((key, value)) => {
                    let at = match keyspace.options().engine {
                        Engine::Tree => read,
                        Engine::HashLog => expected.iter().position(|e| e.0.as_bytes() == &key[..]).unwrap(),
                    };
                    assert_eq!(
                        (&key[..], &value[..]),
                        (expected[at].0.as_bytes(), expected[at].1.as_bytes())
                    );
                    read += 1;
                }
                Err(e) => failed = Some(described(&e, dir)),
            }
        }
        assert!(failed.is_some() || read == expected.len(), "{}: a scan ends early", dir.display());
        writeln!(
            text,
            "scan\t{name}\t{read} entries{}",
            failed.map_or(String::new(), |e| format!(", then {e}"))
        )
        .unwrap();
    }
    let _ = db.close();
    text
}

// ---- the tests

#[test]
fn sound_databases_open_with_what_was_in_them() {
    update();
    let names = names("good");
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let contents = fs::read_to_string(root().join("good").join(&name).join(CONTENTS)).unwrap();
        let contents = parse_listing(&contents);
        let dir = copy("good", &name);
        let path = dir.path().join("db");
        // Fixtures come without the file.
        fs::write(path.join("LOCK"), "").unwrap();
        match cairn::check(&path, &mut |_| ()) {
            Ok(report) => assert!(report.problems.is_empty(), "{name}: {:?}", report.problems),
            // A directory that the first opening has only begun with.
            Err(e) => assert!(contents.is_empty() && e.kind() == ErrorKind::NotFound, "{name}: {e}"),
        }
        fs::remove_file(path.join("LOCK")).unwrap();
        for _ in 0..2 {
            let text = answers(&path, &contents);
            assert!(text.starts_with("open\tok") && !text.contains('!'), "{name}: {text}");
        }
        let all_versions =
            fs::read_to_string(root().join("good").join(&name).join(VERSIONS)).unwrap_or_default();
        // The database can be used.
        let db = Database::open_with(&path, options()).unwrap();
        assert!(versions(&db) == all_versions, "{name}: {}", versions(&db));
        let keyspace = db.keyspace("new", KeyspaceOptions::default()).unwrap();
        keyspace.put("a", "b").unwrap();
        db.compact().unwrap();
        db.close().unwrap();
        drop(keyspace);
        let report = cairn::check(&path, &mut |_| ()).unwrap();
        assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
        let db = Database::open_with(&path, options()).unwrap();
        db.drop_keyspace("new").unwrap();
        assert!(versions(&db) == all_versions, "{name}, compacted: {}", versions(&db));
        db.close().unwrap();
        assert!(!answers(&path, &contents).contains('!'), "{name}, compacted");
    }
}

/// Every answer is right or an error, and the errors are those reviewed when the fixture was created.
#[test]
fn damaged_databases_say_what_is_wrong() {
    update();
    let names = names("damaged");
    assert!(names.len() >= damages().len(), "{names:?}");
    for name in names {
        let contents = base_contents(&name);
        let dir = copy("damaged", &name);
        let text = answers(&dir.path().join("db"), &contents);
        assert!(text.contains('!'), "{name}: the damage was not noticed");
        let file = root().join("damaged").join(&name).join(ANSWERS);
        if updating() {
            fs::write(&file, &text).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap();
        assert!(text == expected, "{name} says:\n{text}\nand not:\n{expected}");
        let future = name.starts_with("future");
        assert_eq!(text.contains("! Unsupported"), future, "{name}: {text}");
        assert!(!future || text.contains("version"), "{name} is not refused by name: {text}");
    }
}

/// Salvage of each damaged database restores nothing that was never written, and reports what is missing.
#[test]
fn damaged_databases_can_be_salvaged() {
    update();
    for name in names("damaged") {
        let contents = base_contents(&name);
        let dir = copy("damaged", &name);
        let (from, to) = (dir.path().join("db"), dir.path().join("new"));
        let report = match cairn::salvage(&from, &to) {
            Ok(report) => report,
            Err(e) => {
                assert!(name.starts_with("future") && e.kind() == ErrorKind::Unsupported, "{name}: {e}");
                continue;
            }
        };
        let db = Database::open_with(&to, options()).unwrap();
        let mut wrong = 0;
        for ((keyspace, key), value) in &contents {
            let found = db.open_keyspace(keyspace).ok().and_then(|k| k.get(key).unwrap());
            wrong += usize::from(found.map(|v| String::from_utf8(v.to_vec()).unwrap()) != *value);
        }
        assert!(
            wrong == 0 || !report.is_complete(),
            "{name}: {wrong} answers are wrong and nothing is reported"
        );
        assert!(wrong <= contents.len() / 2, "{name}: {wrong} of {} are lost\n{report}", contents.len());
        db.close().unwrap();
    }
}

#[test]
fn fixtures_stay_small() {
    let mut bytes = 0;
    for kind in ["good", "damaged"] {
        for name in names(kind) {
            let dir = fs::read_dir(root().join(kind).join(name)).unwrap();
            bytes += dir.map(|e| e.unwrap().metadata().unwrap().len()).sum::<u64>();
        }
    }
    assert!(bytes < 600 << 10, "{bytes} bytes");
}

#[test]
fn a_late_write_from_before_what_was_kept_is_refused() {
    let dir = copy("good", "retention");
    let db = Database::open_with(dir.path().join("db"), options()).unwrap();
    let fruit = db.open_keyspace("fruit").unwrap();
    let at = |seconds: u64| Time::from_micros((1 << 50) + seconds * 1_000_000);
    let late = |seconds| fruit.put_at("gone", "late", at(seconds)).map_err(|e| e.kind());
    assert_eq!((late(1), late(30)), (Err(ErrorKind::Expired), Err(ErrorKind::Expired)));
    assert_eq!(late(36), Ok(()));
}
