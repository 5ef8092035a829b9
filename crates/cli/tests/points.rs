//! put, get, delete, scan: values, forms, bounds, exit codes, pipes.

use crate::common::{Cairn, cities, hex, json_lines, program, run};
use std::process::Stdio;

#[test]
fn values_come_back_as_they_went_in() {
    let cairn = Cairn::new();
    cairn.ok("put", &["a", "1", "b", "two words", "ü", ""]);
    assert_eq!(cairn.ok("get", &["a"]), "1\n");
    assert_eq!(cairn.ok("get", &["b", "a", "ü"]), "two words\n1\n\n");
    assert_eq!(cairn.ok("get", &["--raw", "a"]), "1");
    cairn.ok("put", &["a", "2"]);
    assert_eq!(cairn.ok("get", &["--json", "a"]), "{\"key\":\"a\",\"value\":\"2\"}\n");
    cairn.ok("put", &["--", "-k", "-v"]);
    cairn.ok("put", &["-5", "-7"]);
    assert_eq!(cairn.ok("get", &["--", "-k"]), "-v\n");
    assert_eq!(cairn.ok("get", &["-5"]), "-7\n");
}

#[test]
fn operands_are_joined_by_the_operator_of_the_keyspace() {
    let cairn = Cairn::new();
    cairn
        .run("merge", &["-k", "lists", "--create", "--set", "merge=append", "a", "1", "b", "2", "a", "3"])
        .ok();
    cairn.ok("merge", &["-k", "lists", "b", "4"]);
    assert_eq!(cairn.ok("scan", &["-k", "lists"]), "a\t13\nb\t24\n");
    let sums = ["-k", "sums", "--create", "--set", "merge=i64_add", "--type", "int"];
    cairn.ok("merge", &[&sums[..], &["n", "40", "n", "2"]].concat());
    assert_eq!(cairn.ok("get", &["-k", "sums", "--type", "int", "n"]), "42\n");
    cairn.run("merge", &["-k", "sums", "n", "x"]).fails(2, &["\"sums\"", "i64_add", "8 bytes"]);
    cairn.run("merge", &["-k", "sums", "n", "1", "m"]).fails(2, &["takes pairs"]);
    cairn.run("merge", &["n", "x"]).fails(2, &["no keyspace \"default\""]);
    cairn.run("merge", &["--create", "n", "x"]).fails(2, &["\"default\"", "no merge operator"]);
    let script = "begin\nmerge a 5 c 6\nget a\nrollback\nmerge c 7\nget a c";
    assert_eq!(cairn.run_with("shell", &["-k", "lists"], script.as_bytes()).ok(), "135\n13\n7\n");
    // An operator of an application, which this program does not know.
    cairn
        .run("put", &["-k", "own", "--create", "--set", "merge=longest", "a", "b"])
        .fails(2, &["\"longest\""]);
}

#[test]
fn a_value_from_standard_input_keeps_every_byte() {
    let cairn = Cairn::new();
    let value: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert_eq!(cairn.run_with("put", &["blob", "-"], &value).code, 0);
    assert!(cairn.run("get", &["--raw", "blob"]).out == value);
    let hex = cairn.ok("get", &["--hex", "626c6f62"]);
    assert!(
        hex.len() == value.len() * 2 + 1 && hex.starts_with(&format!("{:02x}{:02x}", value[0], value[1]))
    );
    assert_eq!(cairn.run_with("put", &["--hex", "00ff", "-"], b"0a0D\n").code, 0);
    assert_eq!(cairn.ok("scan", &["--hex", "--to", "01"]), "00ff\t0a0d\n");
}

#[test]
fn missing_keys_and_wrong_usage_have_codes() {
    let cairn = Cairn::new();
    cairn.run("get", &["a"]).fails(2, &[]); // no database
    cairn.run("scan", &[]).fails(2, &[]);
    cairn.run("delete", &["a"]).fails(2, &[]);
    assert!(!cairn.db().exists(), "reading creates nothing");
    cairn.ok("put", &["a", "1"]);
    let got = cairn.run("get", &["x", "a", "y\n"]).fails(1, &["not found: x and 1 more"]);
    assert_eq!(got.text(), "1\n");
    let got = cairn.run("get", &["--json", "x"]).fails(1, &[]);
    assert_eq!(got.text(), "{\"key\":\"x\",\"value\":null}\n");
    cairn.run("get", &["-k", "other", "a"]).fails(2, &["other"]);
    cairn.run("put", &["a", "1", "b"]).fails(2, &["pairs"]);
    cairn.run("get", &["--hex", "abc"]).fails(2, &["hexadecimal"]);
    cairn.run("put", &["--set", "block_sizes=1", "a", "1"]).fails(2, &["block_sizes"]);
    cairn.run("scan", &["--prefix", "zz", "--hex"]).fails(2, &["--prefix"]);
    assert_eq!(cairn.run("put", &["a", "--preset", "huge", "1"]).code, 2);
    assert_eq!(cairn.run("fly", &[]).code, 2);
    assert_eq!(run(program(), b"").code, 2);
}

#[test]
fn deletes() {
    let cairn = Cairn::new();
    cairn.ok("put", &["a", "1", "b", "2", "c", "3"]);
    cairn.run("delete", &["--check", "a", "x"]).fails(1, &["x"]);
    assert_eq!(cairn.ok("scan", &["--count"]), "3\n");
    cairn.ok("delete", &["a", "x"]);
    assert_eq!(cairn.ok("delete", &["--json", "--check", "b"]), "{\"deleted\":1}\n");
    assert_eq!(cairn.ok("scan", &[]), "c\t3\n");
}

#[test]
fn writes_with_conditions() {
    let cairn = Cairn::new();
    cairn.ok("put", &["--if-absent", "a", "1", "b", "2"]);
    cairn
        .run("put", &["--if-absent", "c", "3", "b", "4"])
        .fails(1, &["nothing was written", "b has a value"]);
    cairn.run("put", &["--if-value", "2", "a", "5", "b", "5"]).fails(1, &["the value of a is 1"]);
    cairn.run("put", &["--if-value", "", "c", "5"]).fails(1, &["c has no value"]);
    assert_eq!(cairn.ok("scan", &[]), "a\t1\nb\t2\n");
    cairn.ok("put", &["--if-value", "1", "--ttl", "1h", "a", "5"]);
    assert_ne!(cairn.ok("get", &["--expiry", "a"]), "never\n");
    cairn.run("delete", &["--if-value", "5", "a", "b"]).fails(1, &["the value of b is 2"]);
    assert_eq!(cairn.ok("delete", &["--json", "--if-value", "5", "a"]), "{\"deleted\":1}\n");
    assert_eq!(cairn.ok("scan", &[]), "b\t2\n");
    let typed = ["-k", "t", "--key-type", "u64", "--type", "int"];
    cairn.ok("put", &[&typed[..], &["--create", "7", "1"]].concat());
    cairn.ok("put", &[&typed[..], &["--if-value", "1", "7", "2"]].concat());
    cairn.run("put", &[&typed[..], &["--if-value", "x", "7", "2"]].concat()).fails(2, &["x"]);
    cairn.run("delete", &[&typed[..], &["--if-value", "1", "7"]].concat()).fails(1, &[]);
    cairn.ok("delete", &[&typed[..], &["--if-value", "2", "7"]].concat());
    for both in [&["--if-absent", "--if-value", "1", "a", "1"][..], &["--if-absent", "--at", "-1h", "a", "1"]]
    {
        let run = cairn.run("put", both);
        assert!(run.code == 2 && run.err.contains("cannot be used with"), "{}", run.err);
    }
}

#[test]
fn deletes_ranges() {
    let cairn = Cairn::new();
    let fill = || cairn.ok("put", &["a/1", "1", "a/2", "2", "b", "3", "c", "4"]);
    fill();
    cairn.ok("delete-range", &["--prefix", "a/"]);
    assert_eq!(cairn.ok("scan", &["--parts", "key"]), "b\nc\n");
    fill();
    assert_eq!(
        cairn.ok("delete-range", &["--json", "--from", "a/2", "--to", "c"]),
        "{\"deleted_range\":true}\n"
    );
    assert_eq!(cairn.ok("scan", &["--parts", "key"]), "a/1\nc\n");
    cairn.run("delete-range", &["--from", "b", "--to", "a"]).fails(2, &["ends before it begins"]);
    for (args, named) in [(&[][..], "--from"), (&["--all", "--from", "a"], "--all")] {
        let run = cairn.run("delete-range", args);
        assert!(run.code == 2 && run.err.contains(named), "{}: {}", run.code, run.err);
    }
    // An empty variable in a script must not delete everything.
    let typed = ["--key-type", "string,i64", "--from", ""];
    for all in [&["--prefix", ""][..], &["--from", ""], &typed] {
        cairn.run("delete-range", all).fails(2, &["--all"]);
    }
    assert_eq!(cairn.ok("scan", &["--count"]), "2\n");
    cairn.ok("delete-range", &["--all", "--durability", "sync"]);
    assert_eq!(cairn.ok("scan", &["--count"]), "0\n");
}

#[test]
fn keyspaces_are_apart() {
    let cairn = Cairn::new();
    cairn.ok("put", &["k", "1"]);
    cairn
        .ok("put", &["-k", "other", "--create", "--preset", "leveled", "--set", "block_size=1024", "k", "2"]);
    assert_eq!(cairn.ok("get", &["k"]), "1\n");
    assert_eq!(cairn.ok("get", &["--keyspace", "other", "k"]), "2\n");
}

/// A name that is not there may be a typing error: only `default` is created without `--create`.
#[test]
fn a_mistyped_keyspace_is_not_created() {
    let cairn = Cairn::new();
    let file = cairn.file("a.tsv", "k\tv\n");
    let writes = [("put", vec!["k", "v"]), ("load", vec![&*file]), ("shell", vec!["put k v"])];
    for (command, args) in &writes[..2] {
        let args = [&["-k", "cities"], &args[..]].concat();
        cairn.run(command, &args).fails(2, &["no database", "\"cities\"", "--create"]);
        assert!(!cairn.db().exists(), "{command}");
    }
    for (command, args) in &writes {
        cairn.ok(command, &[&["-k", "cities", "--create"], &args[..]].concat());
        cairn.ok(command, &[&["-k", "cities"], &args[..]].concat());
    }
    let keyspaces = || cairn.ok("shell", &["-k", "cities", ".keyspaces"]);
    let others =
        [("delete", vec!["k"]), ("delete-range", vec!["--all"]), ("get", vec!["k"]), ("scan", vec![])];
    for (command, args) in writes.iter().chain(&others).chain(&[("dump", vec![]), ("stats", vec![])]) {
        let run = cairn.run(command, &[&["-k", "citis"], &args[..]].concat());
        let run = run.fails(2, &["no keyspace \"citis\"", "has \"cities\""]);
        assert_eq!(run.err.contains("--create"), writes.iter().any(|w| w.0 == *command), "{}", run.err);
    }
    cairn.run("shell", &["-k", "cities", ".use citis"]).fails(2, &["\"citis\"", "\"cities\"", ".create"]);
    assert!(!keyspaces().contains("citis") && !keyspaces().contains("default"), "{}", keyspaces());
    // The default keyspace needs no flag, not even in a database that has others.
    cairn.ok("put", &["k", "v"]);
    assert!(keyspaces().contains("default"));
}

#[test]
fn bounds() {
    let cairn = Cairn::new();
    cairn.ok("put", &["a", "1", "ab", "2", "b", "3", "ba", "4", "c", "5"]);
    let keys = |args: &[&str]| cairn.ok("scan", &[args, &["--parts", "key"]].concat()).replace('\n', " ");
    assert_eq!(keys(&[]), "a ab b ba c ");
    assert_eq!(keys(&["--from", "ab", "--to", "c"]), "ab b ba ");
    assert_eq!(keys(&["--prefix", "b"]), "b ba ");
    assert_eq!(keys(&["--prefix", "b", "--from", "b0"]), "ba ");
    assert_eq!(keys(&["--reverse", "--limit", "2"]), "c ba ");
    assert_eq!(keys(&["--from", "b", "--to", "b"]), "");
    assert_eq!(keys(&["--from", "c", "--to", "a"]), "");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(cairn.ok("scan", &["--parts", "value", "--prefix", "a"]), "1\n2\n");
    assert_eq!(cairn.ok("scan", &["--count", "--json", "--from", "b"]), "{\"count\":3}\n");
    let objects = json_lines(&cairn.ok("scan", &["--json", "--to", "ab"]));
    assert_eq!(objects, [serde_json::json!({"key": "a", "value": "1"})]);
}

#[test]
fn a_list_of_keys() {
    let cairn = Cairn::new();
    assert_eq!(cairn.run_with("put", &["--hex", "0a5c", "ff00"], b"").code, 0);
    cairn.ok("put", &["plain", "1"]);
    let keys = cairn.ok("scan", &["--parts", "key"]);
    let all = cairn.ok("scan", &[]);
    let got = cairn.run_with("get", &["--keys-from", "-"], keys.as_bytes()).ok();
    assert_eq!(got, all);
    let got = cairn.run_with("get", &["--keys-from", "-"], b"plain\nnone\n").fails(1, &["none"]);
    assert_eq!(got.text(), "plain\t1\n");
    let got = cairn.run_with("get", &["--keys-from", "-", "--json"], b"none\n").fails(1, &[]);
    assert_eq!(got.text(), "{\"key\":\"none\",\"value\":null}\n");
    // Both ends of a pipe use one database: the second waits until the first has closed it.
    let mut scan = cairn.command("scan").args(["--parts", "key"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut get = cairn.command("get");
    let got = get.args(["--keys-from", "-"]).stdin(scan.stdout.take().unwrap()).output().unwrap();
    assert!(scan.wait().unwrap().success() && got.stdout == all.as_bytes());
    cairn.run_with("get", &["--keys-from", "-"], b"plain\n\\q\n").fails(6, &["line 2"]);
    // The empty key, and keys that are longer when they are printed: untyped, as text, and as bytes.
    let long = |key: u8| hex(&vec![key; 65_000]);
    assert_eq!(cairn.run_with("put", &["--hex", "", "aa", &long(0), "bb"], b"").code, 0);
    let listed = cairn.ok("scan", &["--parts", "key"]);
    let got = cairn.run_with("get", &["--keys-from", "-"], listed.as_bytes()).ok();
    assert!(listed.starts_with("\n") && got == cairn.ok("scan", &[]));
    for (kind, keys) in [
        ("string", ["".to_owned(), "\\x00".repeat(30_000)]),
        ("bytes", ["".to_owned(), long(1)]),
        ("i64", ["5".to_owned(), "-7".to_owned()]),
    ] {
        let typed = ["--key-type", kind, "-k", kind, "--type", "int"];
        cairn.ok("put", &[&typed[..], &["--create", "--", &keys[0], "1", &keys[1], "2"]].concat());
        let listed = cairn.ok("scan", &["--key-type", kind, "-k", kind, "--parts", "key"]);
        let got =
            cairn.run_with("get", &[&typed[..], &["--keys-from", "-"]].concat(), listed.as_bytes()).ok();
        assert!(listed.lines().count() == 2 && got == cairn.ok("scan", &typed), "{kind}");
    }
    let typed = ["--key-type", "i64", "-k", "i64", "--keys-from", "-"];
    cairn.run_with("get", &typed, b"5\n\n").fails(2, &["line 2", "i64"]);
    let too_long = format!("plain\n{}\n", "x".repeat(65_537));
    cairn.run_with("get", &["--keys-from", "-"], too_long.as_bytes()).fails(6, &["line 2", "limit is 65536"]);
}

/// Typed operands are merged by operators that know their types, and typed values that these would misread are not put.
#[test]
fn typed_merges() {
    let cairn = Cairn::new();
    for (merge, kind, operand, reason) in [
        ("append", "string", "b", "does not know the types"),
        ("bytes_max", "int", "256", "does not know the types"),
        ("or", "bytes", "ff", "does not know the types"),
        ("u64_add", "int", "1", "does not know the types"),
        ("i64_add", "string", "1234567", "integers of 64 bits only"),
        ("i64_max", "bytes", "01020304050607", "integers of 64 bits only"),
        ("i64_min", "double", "1", "integers of 64 bits only"),
    ] {
        let set = format!("merge={merge}");
        let new = ["-k", merge, "--create", "--set", &set, "--type", kind];
        cairn.run("merge", &[&new[..], &["key", operand]].concat()).fails(2, &[reason]);
    }
    cairn
        .run("put", &["-k", "i64_add", "--type", "string", "key", "1234567"])
        .fails(2, &["integers of 64 bits"]);
    cairn.run("get", &["-k", "i64_add", "key"]).fails(1, &["key"]);
    cairn.ok("merge", &["-k", "i64_add", "--type", "int", "key", "7"]);
    assert_eq!(cairn.ok("get", &["-k", "i64_add", "--type", "int", "key"]), "7\n");
}

/// The value of type bytes is digits on standard input, too.
#[test]
fn typed_values_from_standard_input() {
    let cairn = Cairn::new();
    assert_eq!(cairn.run_with("put", &["--type", "bytes", "a", "-"], b" 00ff10\n").code, 0);
    assert_eq!(cairn.run_with("put", &["--type", "string", "b", "-"], b"two\nlines\n").code, 0);
    assert_eq!(cairn.ok("scan", &["--type", "any"]), "a\t00ff10\nb\ttwo\\nlines\\n\n");
    cairn.run_with("put", &["--type", "bytes", "a", "-"], b"0g").fails(6, &["0g"]);
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let cairn = Cairn::new();
    cairn.ok("load", &[cities().to_str().unwrap()]);
    for (command, args) in [("scan", &[][..]), ("dump", &["--format", "csv"]), ("scan", &["--json"])] {
        let mut child =
            cairn.command(command).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0u8; 10];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
        drop(child.stdout.take()); // as `head` does
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{command}");
    }
}

#[test]
fn a_database_that_is_open_can_be_read_and_is_locked_for_the_rest() {
    let cairn = Cairn::new();
    cairn.ok("put", &["a", "1"]);
    let mut shell = cairn.command("shell").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut say = |words: &str, answer: &str| {
        std::io::Write::write_all(shell.stdin.as_mut().unwrap(), words.as_bytes()).unwrap();
        let mut found = vec![0; answer.len()];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut found).unwrap();
        assert_eq!(found, answer.as_bytes());
    };
    say("get a\n", "1\n");
    cairn.run("put", &["a", "2"]).fails(4, &["open in process"]);
    cairn.run("compact", &[]).fails(4, &["open in process"]);
    assert_eq!(cairn.ok("get", &["a"]), "1\n");
    say("put b 2\nget b\n", "2\n");
    assert_eq!(cairn.ok("scan", &[]), "a\t1\nb\t2\n");
    assert_eq!(cairn.ok("scan", &["--count"]), "2\n");
    assert!(cairn.ok("dump", &[]).contains('b'));
    assert!(cairn.ok("stats", &[]).contains("default"));
    assert!(cairn.ok("keyspaces", &[]).contains("default"));
    assert!(cairn.ok("size", &[]).contains("about"));
    let [copy, backup, restored] = ["copy", "backup", "restored"].map(|name| cairn.path(name));
    let [copy, backup, restored] = [&copy, &backup, &restored].map(|path| path.to_str().unwrap());
    cairn.ok("checkpoint", &[copy]);
    say("put c 3\nget c\n", "3\n");
    cairn.ok("backup", &[backup]);
    say("del a\nget c\n", "3\n");
    let mut restore = program();
    restore.args(["restore", backup, restored]);
    run(restore, b"").ok();
    for (path, content) in [(copy, "a\t1\nb\t2\n"), (restored, "a\t1\nb\t2\nc\t3\n")] {
        let mut scan = program();
        scan.args(["scan", "--db", path]);
        assert_eq!(run(scan, b"").ok(), content);
    }
    assert_eq!(cairn.ok("scan", &["--count"]), "2\n");
    let checked = cairn.ok("check", &[]);
    assert!(checked.contains("a moment of it") && checked.contains("no problems found"), "{checked}");
    drop(shell.stdin.take());
    assert!(shell.wait().unwrap().success());
    assert!(!cairn.ok("check", &[]).contains("a moment of it"));
    cairn.ok("put", &["a", "2"]);
}

/// Keys and values with types: in order, in all forms, and errors for others.
#[test]
fn typed_keys_and_values() {
    let cairn = Cairn::new();
    let keys = ["--key-type", "string,i64"];
    let with =
        |more: &[&str]| -> Vec<String> { keys.iter().chain(more).map(|text| (*text).to_owned()).collect() };
    let ok = |command: &str, more: &[&str]| {
        let args = with(more);
        cairn.ok(command, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    ok("put", &["--type", "double", "roof,-5", "21.5", "roof,60", "-0", "a\\,b,7", "1e300"]);
    ok("put", &["--type", "int", "roof,7", "-9"]);
    ok("put", &["--type", "bool", "roof,8", "true"]);
    ok("put", &["--type", "string", "roof,9", "two\twords, \"quoted\""]);
    ok("put", &["--type", "float", "roof,10", "0.1"]);
    ok("put", &["--type", "bytes", "roof,11", "00ff"]);
    let all = "a\\,b,7\t1e+300\nroof,-5\t21.5\nroof,7\t-9\nroof,8\ttrue\nroof,9\ttwo\\twords, \"quoted\"\nroof,10\t0.1\n\
               roof,11\t00ff\nroof,60\t-0.0\n";
    assert_eq!(ok("scan", &["--type", "any"]), all);
    assert_eq!(ok("scan", &["--parts", "key", "--prefix", "roof", "--limit", "2"]), "roof,-5\nroof,7\n");
    assert_eq!(ok("scan", &["--parts", "key", "--from", "roof,8", "--to", "roof,10"]), "roof,8\nroof,9\n");
    assert_eq!(ok("get", &["--type", "any", "roof,-5", "a\\,b,7"]), "21.5\n1e+300\n");
    assert_eq!(
        ok("get", &["--json", "--type", "double", "roof,-5"]),
        "{\"key\":[\"roof\",-5],\"value\":21.5}\n"
    );
    let fails = |command: &str, more: &[&str], code: i32, says: &[&str]| {
        let args = with(more);
        cairn.run(command, &args.iter().map(String::as_str).collect::<Vec<_>>()).fails(code, says);
    };
    fails("get", &["--json", "--type", "int", "roof,99"], 1, &["not found"]);
    fails("get", &["--type", "int", "roof,-5"], 2, &["not of this --type"]);
    fails("put", &["--type", "int", "roof,1", "1.5"], 2, &["\"1.5\" is not of type int"]);
    fails("put", &["--type", "int", "roof", "1"], 2, &["2 elements, not 1"]);
    fails("put", &["--type", "any", "roof,1", "1"], 2, &["any"]);
    fails("put", &["--type", "int", "roof,x", "1"], 2, &["\"x\" is not of type i64"]);
    assert_eq!(cairn.run("put", &["--key-type", "i64", "--hex", "00", "00"]).code, 2);
    cairn.run("scan", &["--key-type", "i64"]).fails(2, &["not of this --key-type"]);
    assert_eq!(cairn.run("scan", &["--key-type", "i63"]).code, 2);
    // A prefix of text; of a whole element; bounds of first elements; negative numbers; what is printed, given again.
    assert_eq!(ok("scan", &["--count", "--prefix", "ro"]), "7\n");
    assert_eq!(ok("scan", &["--count", "--prefix", "ro,"]), "0\n");
    assert_eq!(ok("scan", &["--count", "--prefix", "roof,"]), "7\n");
    assert_eq!(ok("scan", &["--count", "--from", "roof"]), "7\n");
    assert_eq!(ok("delete-range", &["--from", "roof,8", "--to", "roof,10"]), "");
    assert_eq!(
        ok("scan", &["--parts", "key", "--prefix", "roof", "--limit", "4"]),
        "roof,-5\nroof,7\nroof,10\nroof,11\n"
    );
    assert_eq!(ok("delete-range", &["--prefix", "a\\,"]), "");
    assert_eq!(ok("scan", &["--count"]), "5\n");
    ok("put", &["-k", "versions", "--create", "--set", "history=all", "--type", "int", "roof,1", "7"]);
    ok("put", &["-k", "versions", "--type", "double", "roof,1", "7.5"]);
    let versions = ok("history", &["-k", "versions", "--type", "any", "roof,1"]);
    assert!(versions.contains("\tput\t7.5\n") && versions.ends_with("\tput\t7\n"), "{versions}");
    let json = ok("history", &["-k", "versions", "--json", "--type", "any", "--limit", "1", "roof,1"]);
    assert!(json.contains("\"value\":7.5"), "{json}");
    fails("history", &["-k", "versions", "--type", "int", "roof,1"], 2, &["not of this --type"]);
    let number = ["--key-type", "i64", "-k", "numbers"];
    let on_numbers = |command: &str, more: &[&str]| cairn.ok(command, &[&number, more].concat());
    on_numbers("put", &["--create", "--type", "string", "--", "-7", "a\\\\b\\tc", "5", "x"]);
    assert_eq!(on_numbers("scan", &["--type", "string", "--from", "-8", "--to", "-1"]), "-7\ta\\\\b\\tc\n");
    on_numbers(
        "put",
        &["--type", "string", "6", on_numbers("get", &["--type", "string", "--", "-7"]).trim_end()],
    );
    assert_eq!(
        on_numbers("get", &["--type", "string", "6"]),
        on_numbers("get", &["--type", "string", "--", "-7"])
    );
    let listed = on_numbers("scan", &["--parts", "key"]);
    let args = [&number[..], &["--type", "string", "--keys-from", "-"]].concat();
    let found = cairn.run_with("get", &args, listed.as_bytes());
    assert_eq!((found.code, found.text().lines().count()), (0, 3));
    let too_large = |key: &str, kind: &str, args: [&str; 2]| {
        cairn
            .run("put", &[&["--key-type", key, "--type", kind], &args[..]].concat())
            .fails(2, &["too large"]);
    };
    too_large("string", "float", ["big", "1e39"]);
    too_large("string", "double", ["big", "-1e400"]);
    too_large("f32", "int", ["1e39", "1"]);
    too_large("i64,f64", "int", ["1,1e309", "1"]);
    assert_eq!(cairn.run("put", &["--key-type", "f32", "--type", "double", "--", "inf", "-inf"]).code, 0);
    assert_eq!(cairn.ok("get", &["--key-type", "f32", "--type", "double", "inf"]), "-inf\n");
    assert_eq!(cairn.run("delete", &["--key-type", "f32", "inf"]).code, 0);
    ok("delete", &["roof,60", "a\\,b,7"]);
    assert_eq!(ok("scan", &["--count"]), "4\n");
    assert_eq!(cairn.run_with("put", &["--type", "int", "--key-type", "char", " ", "-"], b"12").code, 0);
    assert_eq!(cairn.ok("get", &["--type", "int", "--key-type", "char", " "]), "12\n");
}

#[test]
fn entries_are_put_with_a_time_to_live() {
    let cairn = Cairn::new();
    cairn.ok("put", &["--create", "--ttl", "7d", "a", "1"]);
    cairn.ok("put", &["--until", "2100-01-01T00:00:00Z", "b", "2", "c", "3"]);
    cairn.ok("put", &["--until", "-1s", "gone", "4"]);
    cairn.ok("put", &["for ever", "5"]);
    assert_eq!(cairn.ok("get", &["--expiry", "b", "for ever"]), "2100-01-01T00:00:00Z\nnever\n");
    assert!(cairn.ok("get", &["--expiry", "a"]).contains('T'));
    cairn.run("get", &["--expiry", "gone"]).fails(1, &["not found"]);
    assert_eq!(cairn.ok("scan", &["--parts", "key"]), "a\nb\nc\nfor ever\n");
    for (args, says) in [(["--ttl", "soon", "x", "y"], "7d"), (["--until", "soon", "x", "y"], "RFC 3339")] {
        let wrong = cairn.run("put", &args);
        assert!(wrong.code == 2 && wrong.err.contains(says), "{}", wrong.err);
    }
    assert_eq!(cairn.run("put", &["--ttl", "1s", "--until", "now", "x", "y"]).code, 2);
    cairn.ok("put", &["-k", "short", "--create", "--set", "ttl=50ms", "x", "y"]);
    std::thread::sleep(std::time::Duration::from_millis(60));
    cairn.run("get", &["-k", "short", "x"]).fails(1, &["not found"]);
}

#[test]
fn keyspaces_are_listed_measured_and_dropped() {
    let cairn = Cairn::new();
    cairn.run("keyspaces", &[]).fails(2, &[]);
    cairn.ok("put", &["a/1", "x", "a/2", "x", "b/1", "x"]);
    cairn.ok("put", &["-k", "hashed", "--create", "--set", "engine=hash_log", "k", "v"]);
    let listed = cairn.ok("keyspaces", &[]);
    let words: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["keys", "bytes", "engine", "name"]);
    assert_eq!((words[1][0], *words[1].last().unwrap(), words.len()), ("3", "default", 3), "{listed}");
    assert!(words[2].ends_with(&["hash_log", "hashed"]), "{listed}");
    let json = json_lines(&cairn.ok("keyspaces", &["--json"]));
    assert_eq!((&json[0]["name"], &json[0]["keys"]), (&"default".into(), &3.into()));

    assert!(cairn.ok("size", &["--prefix", "a/"]).starts_with("about 2 keys, "));
    let size = json_lines(&cairn.ok("size", &["--from", "a/2", "--to", "c", "--json"]));
    assert_eq!(size[0]["keys"], 2);
    assert!(size[0]["bytes"].as_u64().unwrap() > 0);
    assert!(cairn.ok("size", &["--from", "c", "--to", "a"]).starts_with("about 0 keys, 0 B"));
    cairn.run("size", &["-k", "hashed"]).fails(2, &["order"]);
    cairn.run("size", &["--limit", "1"]).fails(2, &["--prefix"]);

    cairn.ok("rename", &["hashed", "by hash"]);
    cairn.run("rename", &["hashed", "x"]).fails(2, &["hashed", "by hash"]);
    assert_eq!(cairn.run("rename", &["by hash", "default"]).code, 2);
    cairn.ok("rename", &["by hash", "hashed"]);
    cairn.ok("clone", &["default", "twin"]);
    assert_eq!(cairn.ok("scan", &["-k", "twin"]), cairn.ok("scan", &[]));
    cairn.ok("put", &["-k", "twin", "a/1", "another"]);
    assert_ne!(cairn.ok("get", &["-k", "twin", "a/1"]), cairn.ok("get", &["a/1"]));
    cairn.run("clone", &["default", "twin"]).fails(2, &["twin", "exists"]);
    cairn.run("clone", &["nothing", "x"]).fails(2, &["nothing", "default"]);
    cairn.run("clone", &["hashed", "x"]).fails(2, &["order"]);
    cairn.ok("drop", &["twin", "--yes"]);
    cairn.ok("alter", &["default", "--set", "compression=none", "--set", "ttl=1h"]);
    cairn.run("alter", &["default", "--set", "levels=3"]).fails(2, &["levels is 6", "cannot be changed"]);
    cairn.run("alter", &["default", "--set", "compression"]).fails(2, &["NAME=VALUE"]);
    cairn.run("alter", &["default", "--set", "compression=rar"]).fails(2, &["rar", "cairn options"]);
    cairn.run("alter", &["nothing", "--set", "ttl=1h"]).fails(2, &["nothing", "default"]);
    assert_eq!(cairn.run("alter", &["default"]).code, 2);
    cairn.ok("compact", &["--rewrite"]);
    cairn.ok("put", &["a/3", "expires"]);
    assert_eq!(cairn.ok("get", &["a/1", "--expiry"]), "never\n");
    assert_ne!(cairn.ok("get", &["a/3", "--expiry"]), "never\n");
    cairn.ok("delete", &["a/3"]);
    cairn.ok("compact", &[]);

    cairn.run("drop", &["default"]).fails(2, &["about 3 keys", "--yes"]);
    cairn.run("drop", &["nothing", "--yes"]).fails(2, &["nothing", "default"]);
    assert_eq!(cairn.run("drop", &[]).code, 2);
    cairn.ok("drop", &["default", "--yes"]);
    cairn.run("get", &["a/1"]).fails(2, &["default"]);
    assert_eq!(cairn.ok("get", &["-k", "hashed", "k"]), "v\n");
}
