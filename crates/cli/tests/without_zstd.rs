//! A program that was built without Zstandard: `cargo test -p cairn-cli --no-default-features without_zstd`. It refuses what it cannot read,
//! says what it needs, and loses nothing.

use crate::common::{Cairn, program, run};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const NEEDED: [&str; 2] = ["feature zstd", "cairn-kv"];

/// A copy of a database that a program with Zstandard has written.
fn fixture(name: &str) -> Cairn {
    let cairn = Cairn::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cairn/tests/fixtures/v1/good").join(name);
    fs::create_dir(cairn.db()).unwrap();
    for file in fs::read_dir(from).unwrap().map(|file| file.unwrap()) {
        if file.file_name() != "contents.txt" {
            fs::copy(file.path(), cairn.db().join(file.file_name())).unwrap();
        }
    }
    fs::write(cairn.db().join("LOCK"), "").unwrap();
    cairn
}

/// All files that hold data, by name.
fn files(cairn: &Cairn) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(cairn.db()).unwrap().map(|file| file.unwrap());
    let named = files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
    named.filter(|(name, _)| name != "LOCK").collect()
}

fn salvage(cairn: &Cairn) -> crate::common::Run {
    let mut salvage = program();
    salvage.arg("salvage").arg(cairn.db()).arg(cairn.path("new"));
    run(salvage, b"")
}

#[test]
fn a_keyspace_is_not_created_or_altered_to_use_it() {
    let cairn = Cairn::new();
    cairn.run("put", &["-k", "new", "--create", "--set", "compression=zstd", "a", "1"]).fails(2, &NEEDED);
    cairn.ok("put", &["a", "1"]);
    cairn.run("alter", &["default", "--set", "compression=zstd"]).fails(2, &NEEDED);
    assert_eq!((cairn.ok("get", &["a"]), cairn.ok("check", &[]).contains("zstd")), ("1\n".into(), false));
    assert!(!cairn.ok("keyspaces", &[]).contains("new"));
    // Without order there is no table, and nothing is compressed.
    cairn.ok(
        "put",
        &["-k", "log", "--create", "--set", "engine=hash_log", "--set", "compression=zstd", "a", "2"],
    );
    assert_eq!(cairn.ok("get", &["-k", "log", "a"]), "2\n");
}

/// Not only that it is locked: waiting would not help.
#[test]
fn a_database_that_is_open_elsewhere_is_refused_with_what_it_needs() {
    let cairn = fixture("zstd");
    let lock = fs::OpenOptions::new().write(true).open(cairn.db().join("LOCK")).unwrap();
    lock.lock().unwrap();
    cairn.run("get", &["-k", "fruit", "key/000"]).fails(4, &["\"fruit\"", NEEDED[0], NEEDED[1]]);
}

#[test]
fn a_database_with_a_keyspace_that_uses_it_is_not_opened_and_not_changed() {
    let cairn = fixture("zstd");
    let before = files(&cairn);
    for (command, args) in [
        ("get", &["-k", "fruit", "key/000"][..]),
        ("put", &["-k", "fruit", "key/000", "x"]),
        ("scan", &["-k", "stones"]),
        ("stats", &[]),
        ("check", &[]),
    ] {
        cairn.run(command, args).fails(3, &["\"fruit\"", "compression = zstd", NEEDED[0], NEEDED[1]]);
    }
    salvage(&cairn).fails(3, &NEEDED);
    assert!(files(&cairn) == before && !cairn.path("new").exists());
}

/// Nothing of the keyspace is in a table: what the option says is enough.
#[test]
fn a_salvage_of_a_keyspace_in_the_log_is_refused_before_it_creates_anything() {
    let cairn = fixture("zstd-in-log");
    salvage(&cairn).fails(3, &["\"fruit\"", NEEDED[0], NEEDED[1]]);
    assert!(!cairn.path("new").exists());
}

#[test]
fn tables_from_before_an_alteration_are_refused_alone() {
    let cairn = fixture("zstd-altered");
    let before = files(&cairn);
    assert_eq!(cairn.ok("get", &["-k", "fruit", "key/30"]), format!("{}\n", "number 30, ".repeat(9)));
    assert_eq!(cairn.ok("scan", &["-k", "stones"]).lines().count(), 5);
    cairn.run("get", &["-k", "fruit", "key/03"]).fails(3, &[".tbl", "offset", NEEDED[0], NEEDED[1]]);
    let scan = cairn.run("scan", &["-k", "fruit"]);
    assert!(scan.code == 3 && scan.err.contains(NEEDED[0]), "{scan:?}");
    let check = cairn.run("check", &[]);
    assert!(check.text().contains(NEEDED[0]), "{check:?}");
    check.fails(3, &["cannot be checked in 1 place"]);
    let backups = cairn.path("backups");
    cairn.run("backup", &[backups.to_str().unwrap()]).fails(3, &[".tbl", NEEDED[0], NEEDED[1]]);
    salvage(&cairn).fails(3, &[".tbl", NEEDED[0], NEEDED[1]]);
    assert!(!cairn.path("new").exists());
    let tables = |files: BTreeMap<String, Vec<u8>>| -> Vec<_> {
        files.into_iter().filter(|(name, _)| name.ends_with(".tbl")).collect()
    };
    assert!(tables(files(&cairn)) == tables(before.clone()));
    // Compactions leave what they cannot read where it is.
    cairn.ok("put", &["-k", "fruit", "key/03", "new"]);
    cairn.run("compact", &["-k", "fruit"]).fails(3, &[".tbl", NEEDED[0], NEEDED[1]]);
    let unreadable = "000002.tbl";
    assert!(files(&cairn)[unreadable] == before[unreadable]);
    assert_eq!(cairn.ok("get", &["-k", "fruit", "key/03"]), "new\n");
    cairn.run("get", &["-k", "fruit", "key/04"]).fails(3, &NEEDED);
}
