//! The documents are checked against the code: worked examples, options, limits, links, and the tests that they name.
//!
//! `UPDATE_DOCS=1 cargo test -p cairn-kv --test all docs` rewrites `docs/options.md`; `SHOW_EXAMPLES=1 ... -- --nocapture` prints the bytes of
//! the worked examples.

use cairn::env::{Env, SimEnv};
use cairn::{
    Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, OptionSpec, Options, Preset, limits,
};
use record::{SegmentKind, SegmentReader};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A line of hex: the offset of its bytes, from the start or (negative) from the end, and the bytes.
type HexLine = (isize, Vec<u8>);

/// The lines of the `n`-th block of hex in a document. A line of dots stands for omitted bytes; offsets after it count from the end.
fn hex_block(document: &str, n: usize) -> Vec<HexLine> {
    let block = document.split("```hex\n").nth(n + 1).expect("a block of hex");
    let block = block.split("```").next().unwrap();
    let mut lines = Vec::new();
    let mut expected = Some(0);
    for line in block.lines() {
        if line.trim_start().starts_with("...") {
            expected = None;
            continue;
        }
        let (offset, rest) = line.split_once(':').expect("an offset");
        let offset: isize = offset.trim().parse().unwrap();
        assert!(expected.is_none_or(|e| e == offset), "the offset in {line:?} does not follow");
        let hex = rest.split('|').next().unwrap().split_whitespace();
        let bytes: Vec<u8> = hex.map(|byte| u8::from_str_radix(byte, 16).expect(line)).collect();
        expected = Some(offset + bytes.len() as isize);
        lines.push((offset, bytes));
    }
    lines
}

/// Compares a block of a document with the bytes that the code wrote.
fn compare(what: &str, documented: &[HexLine], written: &[u8]) {
    if std::env::var_os("SHOW_EXAMPLES").is_some() {
        println!("{what}:");
        for (i, line) in written.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
            println!("{:4}: {:<48} | {}", i * 16, hex.join(" "), line.escape_ascii());
        }
        return;
    }
    let start = |offset: isize| offset + if offset < 0 { written.len() as isize } else { 0 };
    for (offset, bytes) in documented {
        let at = start(*offset) as usize;
        assert_eq!(written.get(at..at + bytes.len()), Some(&bytes[..]), "{what}, offset {offset}");
    }
    let (offset, bytes) = documented.last().unwrap();
    assert_eq!(start(*offset) as usize + bytes.len(), written.len(), "{what}: length");
}

/// The database of the examples: two commits, the second a batch, then a flush. Everything runs in this thread, so that the
/// bytes follow from the calls.
fn example() -> (Arc<SimEnv>, Database, Keyspace) {
    let sim = SimEnv::new(1);
    let options = Options::default().background_threads(0);
    let db = Database::open_in(sim.clone(), "/db", options).unwrap();
    let users = db.keyspace("users", KeyspaceOptions::default()).unwrap();
    users.put_with("alice", "1", Durability::Sync).unwrap();
    let mut batch = db.batch();
    batch.put(&users, "bob", "22");
    batch.delete(&users, "alice");
    db.write(batch, Durability::Os).unwrap();
    (sim, db, users)
}

#[test]
fn the_log_is_as_documented() {
    let (sim, _db, _users) = example();
    let written = sim.read_file("/db/wal-000001.log");
    compare("log", &hex_block(&document("docs/format/log.md"), 0), &written);
}

#[test]
fn the_manifest_is_as_documented() {
    let (sim, db, users) = example();
    users.flush().unwrap();
    db.sync().unwrap();
    let env: Arc<dyn Env> = sim;
    let path = Path::new("/db/manifest-000001");
    let mut reader = SegmentReader::open(&env, path, SegmentKind::Manifest, 1, None).unwrap();
    let mut records = Vec::new();
    let mut record = Vec::new();
    while reader.next(&mut record).unwrap().is_some() {
        if !record.is_empty() {
            records.push(record.clone());
        }
    }
    let text = document("docs/format/manifest.md");
    assert_eq!(records.len(), 5);
    for (n, record) in records.iter().enumerate() {
        compare(&format!("manifest, edit {n}"), &hex_block(&text, n), record);
    }
    // The bytes that the dots in the third edit stand for.
    let mut options = vec![KeyspaceOptions::specs().len() as u8];
    for (name, value) in KeyspaceOptions::default().to_pairs() {
        for text in [name, &value] {
            base::codec::put_bytes(&mut options, text.as_bytes());
        }
    }
    assert!(records[2][9..].starts_with(&options), "the options are kept as names and texts, in order");
    assert_eq!(records[2].len(), 9 + options.len() + 4);
}

fn option_rows(out: &mut String, specs: &[OptionSpec], changes: bool) {
    for spec in specs {
        let doc = spec.doc.split_whitespace().collect::<Vec<_>>().join(" ");
        let OptionSpec { name, default, range, .. } = spec;
        let changes = if changes { format!(" {} |", spec.changes) } else { String::new() };
        writeln!(out, "| `{name}` | {default} | {range} |{changes} {doc} |").unwrap();
    }
}

/// The expected content of `docs/options.md`.
fn options_document() -> String {
    let mut out = String::from(
        "# Options

<!-- Written by `UPDATE_DOCS=1 cargo test -p cairn-kv --test all docs`; the tables of crates/cairn/src/types/options.rs are the source. -->

Every option has a default for most workloads; `memory_budget` is the first to set. Sizes are in bytes. A value outside of the
range is an error when the database is opened or the keyspace created. `cairn options` prints the same list, and
`--set NAME=VALUE` sets an option on the command line.

## Database options

They are given at each opening of the database, which does not keep them.

| option | default | allowed | what it does |
| --- | --- | --- | --- |
",
    );
    option_rows(&mut out, &Options::specs(), false);
    out += "
## Keyspace options

They are given when the keyspace is created, and kept in the manifest. [`Keyspace::alter` and `cairn alter`](keyspaces.md#options) change them; the column
says from when a change holds. To change those that are fixed, copy the data to a new keyspace.

| option | default | allowed | change holds from | what it does |
| --- | --- | --- | --- | --- |
";
    let pairs = Preset::ALL.map(|p| (p, KeyspaceOptions::preset(p).to_pairs()));
    let value = |pairs: &[(&'static str, String)], name: &str| {
        pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone()).unwrap()
    };
    option_rows(&mut out, &KeyspaceOptions::specs(), true);
    out += "
## Presets

A preset is a set of values for the keyspace options:

- `balanced`, the default: a guard holds up to eight overlapping runs while there are many writes, and about one when writers
  pause; guards are chosen from the data; space amplification is kept at about 1.5; levels that would be nearly empty are skipped.
  ADRs [2](adr/0002-balanced-shape.md), [6](adr/0006-moves-and-adaptive-guards.md) and [8](adr/0008-cost-model.md) give the reasons.
- `pebblesdb`: the tree of the PebblesDB paper with its parameters: guards by the hash of the keys, all levels in use, a level is
  compacted at a quarter of the next. One difference: a guard is compacted when the cost of its seeks reaches that of its
  compaction, not after ten seeks ([ADR 5](adr/0005-read-triggered-compaction.md)).
- `leveled`: one table per guard, a leveled LSM tree. Fewest tables for a read to search, most writes.
- `parallax`: the thresholds and the tree of the Parallax thesis: a leveled tree that grows by 8, large values in the log. Medium values are
  in place ([ADR 23](adr/0023-no-transient-segments.md)); `large_up_to` = 0.2 puts them into the log, too. With `balanced` and `placement`
  = `hybrid`, less is written.
- `mneme`: `balanced` with `history` = `all`: older versions in a tree of their own ([ADR 25](adr/0025-history.md)). Any preset with a tree
  can have a history.
- `hash_log`: `engine` = `hash_log`: a hash table in memory over entries that stay in the log ([ADR 27](adr/0027-hash-log.md)).
- `sstable`: the balanced tree over tables with `table_format` = `size_class`, not compressed ([ADR 28](adr/0028-size-class-tables.md)).

Options that a preset does not mention have their default:

";
    let names = Preset::ALL.map(|preset| match preset {
        Preset::Balanced => "balanced (the default)".to_string(),
        other => other.to_string(),
    });
    writeln!(out, "| option | {} |", names.join(" | ")).unwrap();
    writeln!(out, "| --- |{}", " --- |".repeat(names.len())).unwrap();
    for spec in KeyspaceOptions::specs() {
        let values = pairs.each_ref().map(|(_, pairs)| value(pairs, spec.name));
        if values.iter().any(|v| *v != values[0]) {
            writeln!(out, "| `{}` | {} |", spec.name, values.join(" | ")).unwrap();
        }
    }
    out
}

#[test]
fn the_options_are_as_documented() {
    let expected = options_document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join("docs/options.md"), &expected).unwrap();
    }
    assert!(
        document("docs/options.md") == expected,
        "docs/options.md is out of date: UPDATE_DOCS=1 cargo test -p cairn-kv --test all docs"
    );
}

/// The numbers in the rows of `docs/limits.md`. A test of each limit follows.
#[test]
fn the_limits_are_as_documented() {
    let text = document("docs/limits.md");
    for row in [
        format!("| key | {} bytes |", limits::MAX_KEY_LEN),
        format!("| value | {} bytes |", limits::MAX_VALUE_LEN),
        format!("| batch | {} bytes |", limits::MAX_BATCH_LEN),
        format!("| name of a keyspace | {} bytes |", limits::MAX_KEYSPACE_NAME_LEN),
        format!("| levels of guards | {} |", limits::MAX_LEVELS),
        format!("| commits | {} |", base::MAX_SEQ),
    ] {
        assert!(text.contains(&row), "docs/limits.md lacks {row:?}");
    }
}

fn small_database() -> (tempfile::TempDir, Database, Keyspace) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (dir, db, keyspace)
}

#[track_caller]
fn refused<T>(result: cairn::Result<T>, words: &str) {
    let error = result.err().expect("an error");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn keys_have_a_limit() {
    let (_dir, db, keyspace) = small_database();
    let longest = vec![b'k'; limits::MAX_KEY_LEN];
    keyspace.put(&longest, "v").unwrap();
    assert_eq!(keyspace.get(&longest).unwrap().unwrap(), "v");
    let longer = [&longest[..], b"k"].concat();
    refused(keyspace.put(&longer, "v"), "65536 bytes; this one has 65537");
    refused(keyspace.delete(&longer), "65537");
    let mut batch = db.batch();
    batch.put(&keyspace, "fine", "v");
    batch.put(&keyspace, &longer, "v");
    refused(db.write(batch, Durability::Os), "65537");
    assert!(!keyspace.contains("fine").unwrap(), "nothing of a refused batch is applied");
    assert!(keyspace.get(&longer).unwrap().is_none());
}

#[test]
fn values_have_a_limit() {
    let (_dir, _db, keyspace) = small_database();
    let longer = vec![0u8; limits::MAX_VALUE_LEN + 1];
    refused(keyspace.put("k", &longer), "268435456 bytes; this one has 268435457");
    let longest = &longer[1..];
    keyspace.put("k", longest).unwrap();
    assert!(keyspace.get("k").unwrap().unwrap() == *longest);
}

#[test]
fn batches_have_a_limit() {
    let (_dir, db, keyspace) = small_database();
    let value = vec![0u8; limits::MAX_VALUE_LEN];
    let mut batch = db.batch();
    (0..4).for_each(|_| batch.put(&keyspace, "k", &value));
    refused(db.write(batch, Durability::Os), "1073741824 bytes");
    assert!(keyspace.get("k").unwrap().is_none());
}

#[test]
fn names_of_keyspaces_have_a_limit() {
    let (_dir, db, _) = small_database();
    let longest = "n".repeat(limits::MAX_KEYSPACE_NAME_LEN);
    db.create_keyspace(&longest, KeyspaceOptions::default()).unwrap();
    refused(db.create_keyspace(&format!("{longest}n"), KeyspaceOptions::default()), "255 bytes");
    refused(db.create_keyspace("", KeyspaceOptions::default()), "empty");
}

#[test]
fn levels_have_a_limit() {
    let (_dir, db, _) = small_database();
    let levels = |levels| KeyspaceOptions::default().levels(levels);
    db.create_keyspace("most", levels(limits::MAX_LEVELS)).unwrap();
    refused(db.create_keyspace("more", levels(limits::MAX_LEVELS + 1)), "levels: 16 is not allowed");
    refused(db.create_keyspace("none", levels(0)), "levels: 0 is not allowed");
}

/// All Markdown files of the project.
fn documents() -> Vec<PathBuf> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                walk(&path, found);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    assert!(found.len() > 10);
    found
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let outside = link.contains("://") || link.starts_with("mailto:");
            if !link.is_empty() && !outside && !document.parent().unwrap().join(link).exists() {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Every test that a document names as `crates/x/tests/y.rs::name` exists.
#[test]
fn tests_that_are_named_exist() {
    let mut missing = Vec::new();
    let mut named = 0;
    for document in documents() {
        for quoted in std::fs::read_to_string(&document).unwrap().split('`') {
            let Some((file, test)) =
                quoted.split_once(".rs::").filter(|(file, _)| file.starts_with("crates/"))
            else {
                continue;
            };
            named += 1;
            let source = std::fs::read_to_string(root().join(format!("{file}.rs"))).unwrap_or_default();
            if !source.contains(&format!("fn {test}(")) {
                missing.push(format!("{}: {quoted}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(named > 20);
}

/// Manifests list the test programs, so a file in `tests` runs only if it is one, or a module of one.
#[test]
fn every_test_file_belongs_to_a_test_program() {
    let read =
        |path: PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let crates: Vec<PathBuf> = crates.chain([root().join("bench")]).collect();
    let manifests: String = crates.iter().map(|dir| read(dir.join("Cargo.toml"))).collect();
    let (mut unused, mut seen) = (Vec::new(), 0);
    for dir in crates.iter().map(|dir| dir.join("tests")).filter(|dir| dir.is_dir()) {
        let manifest = read(dir.with_file_name("Cargo.toml"));
        if !manifest.contains("autotests = false") {
            continue;
        }
        let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let (programs, others): (Vec<_>, Vec<_>) =
            files.filter(|file| file.extension().is_some_and(|e| e == "rs")).partition(|file| {
                let name = file.file_stem().unwrap().to_str().unwrap();
                manifest.contains(&format!("[[test]]\nname = \"{name}\""))
                    || manifests.contains(&format!("/tests/{name}.rs\""))
            });
        let modules: String = programs.into_iter().map(read).collect();
        for file in others {
            seen += 1;
            if !modules.contains(&format!("mod {};", file.file_stem().unwrap().to_str().unwrap())) {
                unused.push(file);
            }
        }
    }
    assert!(unused.is_empty() && seen > 50, "{seen} modules; these are in no program: {unused:?}");
}

#[path = "../examples/batches_and_snapshots.rs"]
mod batches_and_snapshots;
#[path = "../examples/bulk_load.rs"]
mod bulk_load;
#[path = "../examples/queue.rs"]
mod queue;
#[path = "../examples/quickstart.rs"]
mod quickstart;
#[path = "../examples/time_series.rs"]
mod time_series;

#[test]
fn the_examples_run() {
    for (name, run) in [
        ("quickstart", quickstart::main as fn() -> cairn::Result<()>),
        ("batches_and_snapshots", batches_and_snapshots::main),
        ("queue", queue::main),
        ("time_series", time_series::main),
        ("bulk_load", bulk_load::main),
    ] {
        run().unwrap_or_else(|e| panic!("{name}: {e}"));
        let listed = document("README.md").contains(&format!("crates/cairn/examples/{name}.rs"));
        assert!(listed, "the README lists {name}");
    }
}
