//! The harness can fail: it distinguishes states that a broken store would recover from right ones.

use cairn::env::{Env, SimEnv, Survival};
use cairn::{Database, Durability, KeyspaceOptions, Options, Slice};
use sim::crash::{Content, Cut, Expectation, Ledger, Recovered, Versions};
use sim::model::Write;
use std::sync::Arc;

/// Five commits on keyspaces `a` and `b`: three singles, a batch over both, a delete. The second one was synced, the
/// fourth one reached the operating system, the fifth one is in flight.
fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    for name in ["a", "b"] {
        ledger.begin_create(name);
        ledger.end_change();
    }
    let put = |keyspace, key: &str, value: &str| Write {
        keyspace,
        key: key.into(),
        value: Some(value.as_bytes().into()),
    };
    ledger.begin_commit(vec![put(1, "x", "1")]);
    ledger.end_commit(Durability::Buffered);
    ledger.begin_commit(vec![put(2, "y", "2")]);
    ledger.end_commit(Durability::Sync);
    ledger.begin_commit(vec![put(1, "x", "3")]);
    ledger.end_commit(Durability::Buffered);
    ledger.begin_commit(vec![put(1, "z", "4"), put(2, "z", "4")]);
    ledger.end_commit(Durability::Os);
    ledger.begin_commit(vec![Write { keyspace: 2, key: "y".into(), value: None }]);
    ledger
}

fn state(a: &[(&str, &str)], b: &[(&str, &str)]) -> Recovered {
    let slices = |pairs: &[(&str, &str)]| {
        let entries = pairs.iter().map(|(k, v)| (Slice::from(k.as_bytes()), Slice::from(v.as_bytes())));
        Content { entries: entries.collect(), versions: None }
    };
    [("a".to_owned(), slices(a)), ("b".to_owned(), slices(b))].into()
}

/// The verdict: the number of commits found, or the finding.
fn verdict(recovered: &Recovered, cut: Cut) -> Result<usize, String> {
    let ledger = ledger();
    ledger.judge(recovered, &ledger.expectation(), cut).map_err(|f| f.to_string())
}

#[track_caller]
fn finds(recovered: &Recovered, cut: Cut, words: &str) {
    let finding = verdict(recovered, cut).expect_err("a broken state passed");
    assert!(finding.contains(words), "{finding}");
}

#[test]
fn right_states_pass() {
    assert_eq!(verdict(&state(&[("x", "1")], &[("y", "2")]), Cut::Power), Ok(2));
    assert_eq!(verdict(&state(&[("x", "3")], &[("y", "2")]), Cut::Power), Ok(3));
    let four = state(&[("x", "3"), ("z", "4")], &[("y", "2"), ("z", "4")]);
    assert_eq!((verdict(&four, Cut::Power), verdict(&four, Cut::Process)), (Ok(4), Ok(4)));
    // The commit in flight may exist.
    assert_eq!(verdict(&state(&[("x", "3"), ("z", "4")], &[("z", "4")]), Cut::Process), Ok(5));
}

#[test]
fn a_lost_synced_commit_is_found() {
    finds(&state(&[("x", "1")], &[]), Cut::Power, "P1: only the first 1 of 5 commits");
    finds(&state(&[], &[]), Cut::Power, "P1: only the first 0");
}

#[test]
fn a_commit_that_a_kill_must_not_lose_is_found() {
    finds(&state(&[("x", "3")], &[("y", "2")]), Cut::Process, "P1: only the first 3 of 5 commits");
}

#[test]
fn a_hole_is_found() {
    // The third commit is missing, the fourth one exists.
    finds(
        &state(&[("x", "1"), ("z", "4")], &[("y", "2"), ("z", "4")]),
        Cut::Power,
        "P2: the state is that of no prefix",
    );
}

#[test]
fn half_a_batch_is_found() {
    finds(&state(&[("x", "3"), ("z", "4")], &[("y", "2")]), Cut::Power, "P2: the state is that of no prefix");
}

#[test]
fn wrong_resurrected_and_invented_entries_are_found() {
    finds(&state(&[("x", "9")], &[("y", "2")]), Cut::Power, "\"x\" has \"9\" instead of");
    finds(&state(&[("x", "3"), ("x2", "")], &[("y", "2")]), Cut::Power, "\"x2\" = \"\" should not be there");
}

#[test]
fn lost_invented_and_exchanged_versions_are_found() {
    let with_versions = |all: bool, of_x: &[Option<&str>]| {
        let mut recovered = state(&[("x", "3"), ("z", "4")], &[("y", "2"), ("z", "4")]);
        let of_x = of_x.iter().map(|value| value.map(|value| Slice::from(value.as_bytes()))).collect();
        let z = vec![Some(Slice::copy_from(b"4"))];
        let by_key = [(b"x".to_vec(), of_x), (b"z".to_vec(), z)].into();
        recovered.get_mut("a").unwrap().versions = Some(Versions { all, by_key });
        recovered
    };
    for (all, of_x, is_right) in [
        (true, &[Some("1"), Some("3")][..], true),
        (false, &[Some("1"), Some("3")], true),
        (false, &[Some("3")], true),
        (true, &[Some("3")], false),
        (false, &[Some("3"), Some("1")], false),
        (true, &[Some("1"), Some("1"), Some("3")], false),
        (true, &[Some("1"), None, Some("3")], false),
        (false, &[Some("2"), Some("3")], false),
    ] {
        let recovered = with_versions(all, of_x);
        match is_right {
            true => assert_eq!(verdict(&recovered, Cut::Process), Ok(4), "{of_x:?}"),
            false => finds(&recovered, Cut::Process, "keyspace a, key x: versions of"),
        }
    }
}

#[test]
fn wrong_lists_of_keyspaces_are_found() {
    let mut recovered = state(&[("x", "1")], &[("y", "2")]);
    recovered.remove("b");
    finds(&recovered, Cut::Power, "the keyspaces are [\"a\"]");
    recovered = state(&[("x", "1")], &[("y", "2")]);
    recovered.insert("c".into(), Content::default());
    finds(&recovered, Cut::Power, "the keyspaces are [\"a\", \"b\", \"c\"]");
}

#[test]
fn a_creation_in_flight_may_be_there_or_not() {
    let mut ledger = ledger();
    ledger.begin_create("c");
    let expectation = ledger.expectation();
    let mut recovered = state(&[("x", "1")], &[("y", "2")]);
    assert_eq!(ledger.judge(&recovered, &expectation, Cut::Power).ok(), Some(2));
    recovered.insert("c".into(), Content::default());
    assert_eq!(ledger.judge(&recovered, &expectation, Cut::Power).ok(), Some(2));
    ledger.end_change();
    recovered.remove("c");
    assert!(ledger.judge(&recovered, &ledger.expectation(), Cut::Power).is_err());
}

/// A real database on a disk that loses synced data, as if the log had not been synced.
#[test]
fn a_disk_that_lies_about_a_sync_is_found() {
    let env = SimEnv::new(1);
    let mut ledger = Ledger::default();
    let options = || Options::default().background_threads(0).memory_budget(1 << 20);
    let open = |env: Arc<dyn Env>| Database::open_in(env, "/db", options()).unwrap();
    let db = open(env.clone());
    let incarnation = ledger.begin_create("a");
    let keyspace = db.create_keyspace("a", KeyspaceOptions::default()).unwrap();
    ledger.end_change();
    let mut before = env.process_clone();
    for key in ["x", "y"] {
        before = env.crash_clone(Survival::Everything, 1);
        ledger.begin_commit(vec![Write {
            keyspace: incarnation,
            key: key.into(),
            value: Some(key.as_bytes().into()),
        }]);
        keyspace.put_with(key, key, Durability::Sync).unwrap();
        ledger.end_commit(Durability::Sync);
    }
    let judge = |env: Arc<SimEnv>, expectation: &Expectation| {
        let entries =
            open(env).open_keyspace("a").unwrap().iter().collect::<cairn::Result<Vec<_>>>().unwrap();
        ledger.judge(&[("a".to_owned(), Content { entries, versions: None })].into(), expectation, Cut::Power)
    };
    let expectation = ledger.expectation();
    assert_eq!(judge(env.crash_clone(Survival::Nothing, 2), &expectation), Ok(2));
    let finding = judge(before, &expectation).expect_err("a lost sync passed");
    assert!(finding.to_string().contains("P1: only the first 1 of 2"), "{finding}");
}
