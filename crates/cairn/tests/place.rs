//! A database keeps to the directory in which it was opened, wherever the path leads later, and ends writing when that directory is
//! moved.

use crate::child;
use cairn::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options};
use std::path::Path;

fn open(path: &Path) -> (Database, Keyspace) {
    let db = Database::open_with(path, Options::default().background_threads(0)).unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default().memtable_bytes(4 << 10)).unwrap();
    (db, keyspace)
}

fn put_synced(keyspace: &Keyspace, key: &str) {
    keyspace.put_with(key, "x", Durability::Sync).unwrap();
}

/// Writes so much that memtables are sealed and flushed, and logs are switched and removed.
fn fill(keyspace: &Keyspace) -> cairn::Result<()> {
    (0..200u32).try_for_each(|i| keyspace.put(i.to_be_bytes(), [7; 100]))?;
    keyspace.flush()
}

/// Asserts that the files in `dir` are a database with these keys. Opens a copy of them.
fn holds(dir: &Path, keys: &[&str]) {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let (_db, keyspace) = open(copy.path());
    keys.iter().for_each(|key| assert!(keyspace.get(key).unwrap().is_some(), "{key} of {}", dir.display()));
}

/// Opens `path`, makes it lead to another directory, opens it again, and uses both databases.
fn lead_elsewhere(path: &Path, elsewhere: impl FnOnce(), found: [&Path; 2]) {
    let (first, in_first) = open(path);
    put_synced(&in_first, "first");
    elsewhere();
    let (second, in_second) = open(path);
    put_synced(&in_second, "second");
    fill(&in_first).unwrap();
    drop(in_first);
    first.close().unwrap();
    put_synced(&in_second, "more");
    holds(found[0], &["first"]);
    holds(found[1], &["second", "more"]);
    drop((second, in_second));
}

fn a_working_directory_changes() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
    [&a, &b].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let home = std::env::current_dir().unwrap();
    std::env::set_current_dir(&a).unwrap();
    let go = || std::env::set_current_dir(&b).unwrap();
    lead_elsewhere(Path::new("db"), go, [&a.join("db"), &b.join("db")]);
    std::env::set_current_dir(home).unwrap();
}

fn a_link_changes() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b, link] = ["a", "b", "current"].map(|name| dir.path().join(name));
    [&a, &b].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    std::os::unix::fs::symlink(&a, &link).unwrap();
    let change = || {
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&b, &link).unwrap();
    };
    lead_elsewhere(&link, change, [&a, &b]);
}

/// Files are opened by path, so a database that was moved refuses writes, and a database that takes its place is not touched.
fn the_directory_is_moved(replaced: bool) {
    let dir = tempfile::tempdir().unwrap();
    let [db, old] = ["db", "old"].map(|name| dir.path().join(name));
    let (first, in_first) = open(&db);
    put_synced(&in_first, "first");
    std::fs::rename(&db, &old).unwrap();
    let second = replaced.then(|| open(&db));
    second.iter().for_each(|(_, keyspace)| put_synced(keyspace, "second"));
    let error = fill(&in_first).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("moved or replaced"), "{error}");
    drop(in_first);
    first.close().unwrap_err();
    holds(&old, &["first"]);
    if let Some((_second, keyspace)) = second {
        fill(&keyspace).unwrap();
        put_synced(&keyspace, "more");
        holds(&db, &["second", "more"]);
    }
}

/// In a child process, because the working directory belongs to the process.
#[test]
fn a_database_keeps_to_its_directory() {
    if child::dir().is_none() {
        return child::run(a_database_keeps_to_its_directory);
    }
    a_working_directory_changes();
    a_link_changes();
    the_directory_is_moved(false);
    the_directory_is_moved(true);
    child::done();
}
