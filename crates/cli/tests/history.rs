//! Times on the command line: versions of keys in a keyspace with history.

use crate::common::Cairn;

#[test]
fn versions_are_put_read_and_listed_by_time() {
    let cairn = Cairn::new();
    cairn.run("put", &["--create", "--set", "history=all", "--at", "2026-01-01T10:00:00Z", "tea", "3"]).ok();
    cairn.ok("put", &["--at", "2026-01-01T12:00:00.5+01:00", "tea", "4"]);
    cairn.ok("put", &["--at", "1767261600000000", "tea", "late"]);
    cairn.ok("put", &["tea", "5", "gone", "1"]);
    cairn.ok("delete", &["gone"]);
    let all = cairn.ok("history", &["tea"]);
    let lines: Vec<Vec<&str>> = all.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 3, "{all}");
    assert_eq!(lines[0][1..], ["-", "put", "5"]);
    assert_eq!(lines[1], ["2026-01-01T11:00:00.5Z", lines[0][0], "put", "4"]);
    assert_eq!(
        lines[2],
        ["2026-01-01T10:00:00Z", lines[1][0], "put", "late"],
        "the later write of the same time"
    );
    let part = cairn.ok("history", &["tea", "--to", "2026-01-01T11:00:00.5Z", "--reverse", "--limit", "1"]);
    assert_eq!(part.lines().count(), 1);
    cairn.ok("put", &["gone", "deleted"]);
    let text = cairn.ok("history", &["gone"]);
    let ends: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').skip(2).collect()).collect();
    assert_eq!(ends, [vec!["put", "deleted"], vec!["delete"], vec!["put", "1"]]);
    cairn.ok("delete", &["gone"]);
    let gone = cairn.ok("history", &["--json", "gone"]);
    assert!(gone.lines().next().unwrap().contains("\"until\":null,\"value\":null"), "{gone}");
    assert_eq!(cairn.ok("get", &["--at", "2026-01-01T11:30:00Z", "tea"]), "4\n");
    assert!(
        cairn.ok("check", &[]).contains("in 1 keyspaces"),
        "the older versions are no keyspace of their own"
    );
    cairn.run("get", &["--at", "2025-12-31T00:00:00Z", "tea"]).fails(1, &["not found"]);
    assert_eq!(cairn.ok("get", &["--at", "now", "tea"]), "5\n");
    assert_eq!(cairn.ok("scan", &["--at", "2026-01-01T10:30:00Z"]), "tea\tlate\n");
    assert_eq!(cairn.ok("scan", &["--at", "now", "--reverse"]), "tea\t5\n");
    let wrong = cairn.run("get", &["--at", "yesterday", "tea"]);
    assert!(wrong.code == 2 && wrong.err.contains("RFC 3339"), "{}", wrong.err);
    cairn.ok("put", &["-k", "plain", "--create", "a", "1"]);
    cairn.run("history", &["-k", "plain", "a"]).fails(2, &["plain", "history"]);
}

/// A history with deletes, versions in both trees, and bytes of all kinds.
fn with_history(cairn: &Cairn) {
    cairn.run("shell", &["--create", ".create prices history=all"]).ok();
    let script = "put tea 1 x'00ff' \"a\\tb\"; at -2h put tea 0 cup \"\"; del tea; .flush; put tea 2; at -1h del cup\n\
                  put more 5; delrange a n; .compact\nat -1min put tea late; put tea 3 \"\" empty";
    cairn.run_with("shell", &["-k", "prices"], script.as_bytes()).ok();
}

#[test]
fn a_dumped_history_is_loaded_again() {
    let cairn = Cairn::new();
    with_history(&cairn);
    let dump = |keyspace: &str, format: &str, more: &[&str]| {
        let arguments = [&["-k", keyspace, "--history", "--format", format], more].concat();
        let run = cairn.run("dump", &arguments);
        assert_eq!(run.code, 0, "{}", run.err);
        run.out
    };
    let all = String::from_utf8(dump("prices", "tsv", &[])).unwrap();
    assert_eq!(all.lines().count(), 12, "{all}");
    assert!(all.lines().filter(|line| line.contains("\tdelete\t")).count() == 3, "{all}");
    for format in ["tsv", "csv", "jsonl"] {
        for more in [&[][..], &["--hex"], &["--reverse"]] {
            let text = dump("prices", format, more);
            let name = format!("{format}{}", more.len() + more.concat().len());
            let mut load =
                vec!["-k", &name, "--create", "--set", "history=all", "--history", "--format", format];
            load.extend(more.iter().filter(|m| **m == "--hex"));
            let loaded = cairn.run_with("load", &load, &text).ok();
            assert!(loaded.contains("12 records"), "{loaded}");
            assert!(dump(&name, "tsv", &[]) == all.as_bytes(), "{format} {more:?}");
            assert_eq!(cairn.ok("scan", &["-k", &name]), cairn.ok("scan", &["-k", "prices"]));
        }
    }
    cairn.ok("put", &["-k", "plain", "--create", "a", "1"]);
    cairn.run("dump", &["-k", "plain", "--history"]).fails(2, &["plain", "history"]);
    cairn.run("dump", &["-k", "prices", "--history", "--format", "lines"]).fails(6, &["history"]);
    cairn.run_with("load", &["-k", "plain", "--history"], all.as_bytes()).fails(2, &["plain", "history"]);
    let wrong = cairn.run_with("load", &["-k", "tsv0", "--history"], b"a\tb\n");
    wrong.fails(2, &["key, time, operation, value"]);
}

#[test]
fn a_history_is_copied_whatever_retention_keeps() {
    let cairn = Cairn::new();
    cairn.run("put", &["--create", "--set", "history=age(1d)", "new", "1"]).ok();
    let old = b"old\t2020-01-01T00:00:00Z\tput\t1\n";
    cairn.run_with("load", &["--history"], old).ok();
    assert_eq!(cairn.ok("get", &["old"]), "1\n");
    let expired = cairn.run_with("load", &["--timestamp", "2"], b"old\t2020-01-01T00:00:00Z\t2\n");
    expired.fails(6, &["kept", "--skip-expired"]);
    cairn.run("put", &["--at", "2020-01-01T00:00:00Z", "a", "1"]).fails(2, &["kept"]);
    let input = b"late\t2020-01-01T00:00:00Z\t2\n";
    cairn.run_with("load", &["--timestamp", "2", "--skip-expired"], input).ok();
    cairn.run("get", &["late"]).fails(1, &["not found"]);
}

#[test]
fn records_are_loaded_with_their_times() {
    let cairn = Cairn::new();
    let csv = "item,when,price\ntea,1700000000,3\ncup,1700000001,9\ntea,1600000000,2\ntea,1700000000.25,4\n";
    let arguments =
        ["--create", "--set", "history=all", "--format", "csv", "--timestamp", "when", "--time-unit", "s"];
    cairn.run_with("load", &arguments, csv.as_bytes()).ok();
    assert_eq!(cairn.ok("scan", &[]), "cup\t9\ntea\t4\n");
    assert_eq!(cairn.ok("scan", &["--at", "2021-01-01T00:00:00Z"]), "tea\t2\n");
    let wrong = cairn.run_with("load", &["--timestamp", "2"], b"a\t5\t1\nb\tnoon\t1\n");
    wrong.fails(6, &["line 2", "column 2", "noon", "loaded before it: 1 record"]);
    cairn
        .run_with("load", &["-k", "plain", "--create", "--timestamp", "2"], b"a\t5\t1\n")
        .fails(2, &["history"]);
    let both = cairn.run_with("load", &["--timestamp", "2", "--unique"], b"");
    assert!(both.code == 2 && both.err.contains("--unique"), "{}", both.err);
}

#[test]
fn the_shell_reads_and_writes_as_of_a_time() {
    let cairn = Cairn::new();
    with_history(&cairn);
    let shell = |line: &str| cairn.run("shell", &["-k", "prices", line]);
    let history = shell("history tea").ok();
    assert_eq!(history, cairn.ok("history", &["-k", "prices", "tea"]));
    assert_eq!(history.lines().count(), 6, "{history}");
    assert_eq!(shell("history tea from -1h limit 1 reverse").ok().lines().count(), 1);
    assert_eq!(shell("at -90min get tea cup").ok(), "0\n\n");
    assert_eq!(shell("at -90min scan reverse").ok(), "tea\t0\ncup\t\n");
    assert_eq!(shell("at -30min count").ok(), "1\n");
    let at_snapshot = shell("snapshot s; at -30min put cup x; at s history cup; get cup").ok();
    assert_eq!(at_snapshot.lines().count(), 3, "{at_snapshot}");
    assert!(at_snapshot.ends_with("\nx\n"), "{at_snapshot}");
    assert_eq!(shell("history cup").ok().lines().count(), 3);
    shell("begin; at -1h put cup x").fails(6, &["begin"]);
    // Own writes are the newest versions, but were not there an hour ago.
    let own = shell("begin; put own 1; history own; history own to -1h; rollback").ok();
    assert!(own.starts_with("20") && own.ends_with("\t-\tput\t1\n") && own.lines().count() == 1, "{own}");
    let far = "9999-01-01T00:00:00Z";
    let own = format!(
        "begin; put own 1; del tea; at {far} get own; at {far} scan reverse limit 1 keys; rollback; at {far} scan reverse limit 1 keys"
    );
    assert_eq!(shell(&own).ok(), "1\nown\ntea\n");
    shell("snapshot now").fails(6, &["time"]);
    shell(".use default; history a").fails(2, &["default", "history"]);
}

/// With the feature `serde`, which this program uses.
#[test]
fn versions_are_serialized_with_bytes_and_microseconds() {
    let (key, value) = (cairn::Slice::from("a"), cairn::Slice::from([255]));
    let version = cairn::Version::new(key, cairn::Time::from_micros(5), None, Some(value));
    let expected =
        serde_json::json!({ "key": [97], "time": 5, "until": null, "value": [255], "expiry": null });
    assert_eq!(serde_json::to_value(&version).unwrap(), expected);
}
