//! load and dump: records survive a round trip unchanged, and records that a format cannot express are named.

use crate::common::{Cairn, cities, hex, json_lines};
use std::collections::BTreeMap;

/// Keys and values with all kinds of bytes, some of them longer than 10 KB.
fn hostile() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut records = BTreeMap::new();
    let pieces: [&[u8]; 14] = [
        b"\t",
        b"\n",
        b"\r",
        b"\\",
        b"\"",
        b",",
        b"\xff",
        b"\0",
        "é".as_bytes(),
        b"key",
        b"\x1b[1m",
        b" ",
        b"x'",
        b"\\x",
    ];
    for n in 0..3000u64 {
        let mut key: Vec<u8> =
            (0..random() % 8).flat_map(|_| pieces[(random() % 14) as usize].to_vec()).collect();
        key.extend_from_slice(n.to_string().as_bytes());
        let len = if n % 100 == 0 { 12_000 } else { random() % 60 };
        let value = match n % 3 {
            0 => (0..len).map(|_| random() as u8).collect(),
            1 => (0..len / 2).flat_map(|_| pieces[(random() % 14) as usize].to_vec()).collect(),
            _ => b"plain text ".repeat(len as usize / 11),
        };
        records.insert(key, value);
    }
    records
}

#[test]
fn hostile_records_go_round_in_every_format() {
    let cairn = Cairn::new();
    let records = hostile();
    let text: String = records.iter().map(|(k, v)| format!("{}\t{}\n", hex(k), hex(v))).collect();
    let loaded = cairn.run_with("load", &["--hex", "--json", "-"], text.as_bytes()).ok();
    let summary = &json_lines(&loaded)[0];
    assert_eq!((summary["records"].as_u64(), summary["bad"].as_u64()), (Some(3000), Some(0)));
    assert_eq!(cairn.ok("dump", &["--hex"]), text);
    for format in ["tsv", "csv", "jsonl"] {
        let file = cairn.path(&format!("dump.{format}"));
        cairn.ok("dump", &["--output", file.to_str().unwrap()]);
        let copy = Cairn::new();
        assert!(copy.ok("load", &[file.to_str().unwrap()]).contains("loaded 3,000 records"));
        assert_eq!(copy.ok("dump", &["--hex"]), text, "{format}");
        let dumped = std::fs::read(&file).unwrap();
        assert!(copy.run("dump", &["--format", format]).out == dumped, "{format}");
        if format != "csv" {
            std::str::from_utf8(&dumped).expect("formats other than CSV are text");
        }
    }
    // Read each key, from a list; and a few as raw bytes.
    let keys = cairn.ok("scan", &["--parts", "key", "--hex"]);
    assert_eq!(cairn.run_with("get", &["--hex", "--keys-from", "-"], keys.as_bytes()).ok(), text);
    for (key, value) in records.iter().step_by(300) {
        assert!(hex(value) + "\n" == cairn.ok("get", &["--hex", &hex(key)]));
    }
}

#[test]
fn a_bulk_load_is_all_or_nothing() {
    let cairn = Cairn::new();
    let bulk = ["--bulk", cities().to_str().unwrap()].map(str::to_owned);
    let bulk: Vec<&str> = bulk.iter().map(String::as_str).collect();
    assert!(cairn.ok("load", &bulk).contains("loaded 20,035 records"));
    let original = std::fs::read(cities()).unwrap();
    assert!(cairn.run("dump", &[]).out == original);
    // Records in any order, of which the last with a key counts; or in order, which is checked.
    let lines = b"b\t1\na\t2\nb\t3\n";
    cairn.run_with("load", &["-k", "any", "--create", "--bulk"], lines).ok();
    assert_eq!(cairn.ok("dump", &["-k", "any"]), "a\t2\nb\t3\n");
    let refused = cairn.run_with("load", &["-k", "in-order", "--create", "--bulk", "--sorted"], lines);
    assert!(refused.err.contains("cannot follow"), "{}", refused.err);
    assert_eq!(cairn.ok("scan", &["-k", "in-order", "--count"]), "0\n");
    // A bad line: nothing, or all others.
    let bad = b"c\t1\nd\ne\t2\n";
    let args = ["-k", "any", "--bulk", "--key", "1", "--value", "2"];
    assert_eq!(cairn.run_with("load", &args, bad).code, 6);
    assert_eq!(cairn.ok("scan", &["-k", "any", "--count"]), "2\n");
    let skipped = cairn.run_with("load", &[&args[..], &["--skip-bad"]].concat(), bad);
    assert!(skipped.text().contains("loaded 2 records"), "{}", skipped.text());
    assert_eq!(cairn.ok("scan", &["-k", "any", "--count"]), "4\n");
    let load = |set: &str| cairn.run_with("load", &["-k", set, "--create", "--set", set, "--bulk"], lines);
    load("history=all").ok();
    assert_eq!(cairn.ok("history", &["-k", "history=all", "b"]).lines().count(), 1);
    load("engine=hash_log").fails(2, &["no order"]);
}

#[test]
fn the_cities_go_round() {
    let cairn = Cairn::new();
    assert!(cairn.ok("load", &[cities().to_str().unwrap()]).contains("20,035"));
    let original = std::fs::read(cities()).unwrap();
    assert!(cairn.run("dump", &[]).out == original);
    assert!(cairn.ok("get", &["IS/Reykjavík"]).contains("\"population\":118918"));
    assert_eq!(cairn.ok("scan", &["--prefix", "US/Springfield/", "--count"]), "6\n");
    // Copied through a pipe, by column names.
    let copy = Cairn::new();
    let csv = cairn.run("dump", &["--format", "csv"]).out;
    copy.run_with("load", &["--format", "csv", "--key", "key", "--value", "value", "-"], &csv).ok();
    assert!(copy.run("dump", &[]).out == original);
}

#[test]
fn paragraphs_go_round() {
    let index: String = (0..500)
        .map(|n| {
            let text = " a line of text\n .\n".repeat(n % 7 * 100);
            format!("Package: p{:03}\nVersion: 1:{n}~é\nDescription: number {n}\n{text}Tag: x\n", n / 2)
        })
        .collect::<Vec<_>>()
        .join("\n");
    let cairn = Cairn::new();
    let args = ["--format", "paragraphs", "--key", "Package,Version"];
    cairn.run_with("load", &args, index.as_bytes()).ok();
    let mut paragraphs: Vec<&str> = index.trim_end().split("\n\n").collect();
    let get = |key: &str| cairn.ok("get", &["--raw", key]);
    assert_eq!(get("p007/1:15~é"), paragraphs[15]);
    let dumped = cairn.ok("dump", &args);
    let mut dumped: Vec<&str> = dumped.trim_end().split("\n\n").collect();
    dumped.sort_unstable();
    paragraphs.sort_unstable();
    assert!(dumped == paragraphs);
    cairn.run("dump", &["--format", "paragraphs"]).fails(6, &["p000/1:0", "--key"]);
    cairn
        .run_with("load", &["--format", "paragraphs", "--unique"], index.as_bytes())
        .fails(6, &["line 6", "p000", "exists already", "loaded before it: 1 record"]);
}

#[test]
fn word_lists_go_round() {
    let cairn = Cairn::new();
    let words = cairn.file("words.txt", "pear\r\napple\n\nZürich\napple\nfig");
    assert!(cairn.ok("load", &[&words]).contains("loaded 5 records"));
    assert_eq!(cairn.ok("dump", &["--format", "lines"]), "Zürich\napple\nfig\npear\n");
    cairn.ok("put", &["apple", "red"]);
    cairn.run("dump", &["--format", "lines"]).fails(6, &["\"apple\" has a value"]);
}

#[test]
fn a_bad_line_ends_the_load_and_says_what_was_loaded() {
    let cairn = Cairn::new();
    let file = cairn.file("bad.tsv", "a\t1\nb\t2\nc\nd\t4\ne\\q\t5\nf\t6\n");
    cairn
        .run("load", &[&file])
        .fails(6, &["bad.tsv, line 3: has 1 column, where line 1 has 2", "loaded before it: 2 records"]);
    assert_eq!(cairn.ok("scan", &[]), "a\t1\nb\t2\n");
    let loaded = cairn.run("load", &["--skip-bad", "--json", &file]);
    assert_eq!(loaded.code, 0);
    assert!(loaded.err.contains("skipped 2 bad lines; the first: ") && loaded.err.contains("line 3"));
    let summary = &json_lines(loaded.text())[0];
    assert_eq!((summary["records"].as_u64(), summary["bad"].as_u64()), (Some(4), Some(2)));
    assert_eq!(cairn.ok("scan", &["--parts", "key"]), "a\nb\nd\nf\n");
    // A bad line far into the file, after several batches.
    let mut text: String = (0..3500).map(|n| format!("k{n:05}\tv\n")).collect();
    text.push_str("no value\n");
    let other = Cairn::new();
    other.run_with("load", &["-"], text.as_bytes()).fails(6, &["line 3501", "3,500 records"]);
    assert_eq!(other.ok("scan", &["--count"]), "3500\n");
}

#[test]
fn foreign_files() {
    let cairn = Cairn::new();
    let people = cairn.file("people.csv", "name,mail,note\r\nAda,ada@x,\"a, \"\"b\"\"\"\r\nBob,bob@x,\r\n");
    cairn.ok("load", &[&people, "--key", "mail"]);
    assert_eq!(cairn.ok("get", &["--raw", "ada@x"]), "Ada,ada@x,\"a, \"\"b\"\"\"");
    cairn.ok(
        "load",
        &["-k", "notes", "--create", &people, "--key", "name,2", "--key-separator", "|", "--value", "note"],
    );
    assert_eq!(cairn.ok("scan", &["-k", "notes"]), "Ada|ada@x\ta, \"b\"\nBob|bob@x\t\n");
    cairn.run("load", &[&people, "--key", "email"]).fails(2, &["name, mail, note"]);
    let events = cairn.file("events.jsonl", "{\"id\": 7, \"x\": [1, 2]}\n{\"id\": \"é\"}\n");
    cairn.ok("load", &["-k", "events", "--create", &events, "--key", "id"]);
    assert_eq!(cairn.ok("get", &["-k", "events", "--raw", "7"]), "{\"id\": 7, \"x\": [1, 2]}");
    let backslashes = cairn.file("paths.tsv", "C:\\new\tx\n");
    cairn.run("load", &["-k", "paths", "--create", &backslashes]).ok(); // \n is an escape
    cairn.ok("load", &["-k", "raw-paths", "--create", "--no-escapes", &backslashes]);
    assert_eq!(cairn.ok("get", &["-k", "raw-paths", "C:\\new"]), "x\n");
}

#[test]
fn odd_inputs() {
    let cairn = Cairn::new();
    for format in ["tsv", "csv", "jsonl", "lines", "paragraphs"] {
        assert!(cairn.run_with("load", &["--format", format], b"").ok().contains("loaded 0 records"));
    }
    cairn.run("load", &["/nonexistent/file.tsv"]).fails(2, &["/nonexistent/file.tsv"]);
    cairn.run("load", &["/"]).fails(2, &["directory"]);
    cairn.run_with("load", &[], b"\x1f\x8b\x08rest").fails(2, &["zcat"]);
    let huge = [b"a\t1\n".to_vec(), b"k".repeat(100_000), b"\t2\n".to_vec()].concat();
    cairn.run_with("load", &[], &huge).fails(6, &["line 2", "the key has 100000 bytes", "1 record"]);
    cairn
        .run_with("load", &["--format", "jsonl"], b"{\"key\":\"\xff\",\"value\":\"\"}")
        .fails(6, &["line 1"]);
    let empty = Cairn::new();
    empty.run_with("load", &[], b"").ok();
    assert_eq!(empty.ok("dump", &["--format", "csv"]), "key,value\n");
    assert_eq!(empty.ok("dump", &[]), "");
}

#[test]
fn no_progress_without_a_terminal() {
    let cairn = Cairn::new();
    let run = cairn.run("load", &[cities().to_str().unwrap()]);
    assert!(run.err.is_empty() && !run.text().contains('\u{1b}') && run.text().lines().count() == 1);
}

#[test]
fn expiries_are_copied_by_dump_and_load() {
    let cairn = Cairn::new();
    for (name, engine) in [("tree", "tree"), ("hashed", "hash_log")] {
        let set = format!("engine={engine}");
        cairn.ok("put", &["-k", name, "--create", "--set", &set, "a", "for ever", "d\te", ""]);
        cairn.ok("put", &["-k", name, "--until", "2100-01-01T00:00:00.5Z", "b", "long"]);
        cairn.ok("put", &["-k", name, "--until", "2001-01-01T00:00:00Z", "c", "gone"]);
        for (format, column) in [("tsv", "2"), ("csv", "expiry"), ("jsonl", "expiry")] {
            let text = cairn.ok("dump", &["-k", name, "--expiry", "--format", format]);
            let copy = format!("{name} {format}");
            let load = ["-k", &copy, "--create", "--set", "ttl=1h", "--expiry", column, "--format", format];
            let loaded = cairn.run_with("load", &load, text.as_bytes()).ok();
            assert!(loaded.contains("3 records"), "{loaded}");
            assert_eq!(
                cairn.ok("get", &["-k", &copy, "--expiry", "a", "b", "d\te"]),
                "never\n2100-01-01T00:00:00.5Z\nnever\n"
            );
        }
    }
    let lines = "a\tnever\tfor ever\nb\t2100-01-01T00:00:00.5Z\tlong\nd\\te\tnever\t\n";
    assert_eq!(cairn.ok("dump", &["-k", "tree", "--expiry"]), lines);
    let part = ["-k", "tree", "--expiry", "--reverse", "--from", "b", "--limit", "1"];
    assert_eq!(cairn.ok("dump", &part), "d\\te\tnever\t\n");
    assert_eq!(cairn.ok("dump", &["-k", "tree", "--expiry", "--from", "c", "--to", "b"]), "");
    let seconds = ["-k", "tree", "--expiry", "2", "--time-unit", "s"];
    cairn.run_with("load", &seconds, b"s\t4102444800\tx\n").ok();
    assert_eq!(cairn.ok("get", &["-k", "tree", "--expiry", "s"]), "2100-01-01T00:00:00Z\n");
    let wrong = cairn.run_with("load", &["-k", "tree", "--expiry", "2"], b"s\tsoon\tx\n");
    wrong.fails(6, &["line 1", "column 2", "never"]);
    cairn.run("dump", &["-k", "tree", "--expiry", "--format", "lines"]).fails(6, &["expiries"]);
    assert_eq!(cairn.run("load", &["-k", "tree", "--expiry", "2", "--timestamp", "2"]).code, 2);
    cairn.run("put", &["-k", "history", "--create", "--set", "history=all", "a", "1"]).ok();
    cairn.run_with("load", &["-k", "history", "--expiry", "2"], lines.as_bytes()).ok();
    assert_eq!(cairn.ok("dump", &["-k", "history", "--expiry"]), lines);
}

#[test]
fn versions_that_expire_are_copied_by_dump_and_load() {
    let cairn = Cairn::new();
    let history = "a\t1000000\tput\t1\na\t2000000\tuntil 1970-01-01T00:00:03Z\t2\na\t5000000\tuntil 2100-01-01T00:00:00Z\t3\n\
        b\t1000000\tuntil 1970-01-01T00:00:02Z\tx\n";
    let load = |name: &str, text: &str, format: &str| {
        let args = ["-k", name, "--create", "--set", "history=all", "--history", "--format", format];
        cairn.run_with("load", &args, text.as_bytes()).ok();
    };
    load("first", history, "tsv");
    assert_eq!(cairn.ok("get", &["-k", "first", "--expiry", "a"]), "2100-01-01T00:00:00Z\n");
    let shown = cairn.ok("history", &["-k", "first", "a"]);
    let expected = "1970-01-01T00:00:05Z\t2100-01-01T00:00:00Z\tput\t3\n\
        1970-01-01T00:00:03Z\t1970-01-01T00:00:05Z\tdelete\n\
        1970-01-01T00:00:02Z\t1970-01-01T00:00:03Z\tput\t2\n\
        1970-01-01T00:00:01Z\t1970-01-01T00:00:02Z\tput\t1\n";
    assert_eq!(shown, expected);
    let dumped = cairn.ok("dump", &["-k", "first", "--history"]);
    assert_eq!(dumped.lines().count(), 4, "{dumped}");
    for format in ["tsv", "csv", "jsonl"] {
        load(format, &cairn.ok("dump", &["-k", "first", "--history", "--format", format]), format);
        assert_eq!(cairn.ok("dump", &["-k", format, "--history"]), dumped);
        assert_eq!(cairn.ok("history", &["-k", format, "a"]), expected);
    }
    // The end of the second version is none of the records.
    let first: Vec<_> = dumped.lines().take(3).map(|line| format!("{line}\n")).collect();
    assert_eq!(cairn.ok("dump", &["-k", "first", "--history", "--limit", "3"]), first.concat());
    let back: Vec<_> = dumped.lines().rev().map(|line| format!("{line}\n")).collect();
    assert_eq!(cairn.ok("dump", &["-k", "first", "--history", "--reverse"]), back.concat());
}

#[test]
fn the_shell_puts_records_that_expire() {
    let cairn = Cairn::new();
    let put = ["--create", "ttl 7d put a 1 b 2; until 2100-01-01T00:00:00Z put c 3; put d 4; expiry c d"];
    assert_eq!(cairn.ok("shell", &put), "2100-01-01T00:00:00Z\nnever\n");
    assert!(cairn.ok("get", &["--expiry", "a"]).contains('T'));
    let gone = cairn.run("shell", &["until 2001-01-01T00:00:00Z put c 3; get c"]);
    assert_eq!((gone.code, &gone.err[..]), (1, "not found: c\n"));
    let open = cairn.ok("shell", &["begin; ttl 7d put t 1; until -1s put a 1; commit; scan keys; expiry d"]);
    assert_eq!(open, "b\nd\nt\nnever\n");
    let within = cairn.ok("shell", &["begin; until 2100-01-01T00:00:00Z put d new; expiry d; rollback"]);
    assert!(within.contains("2100-01-01T00:00:00"), "{within}");
    cairn.run("shell", &["ttl 7d del a"]).fails(6, &["ttl DURATION put"]);
}
