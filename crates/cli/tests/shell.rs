//! The shell in a pipe.

use crate::common::{Cairn, Run, json_lines, program, run};

fn shell(cairn: &Cairn, args: &[&str], script: &str) -> Run {
    let args: Vec<&str> = ["--create"].iter().chain(args).copied().collect();
    cairn.run_with("shell", &args, script.as_bytes())
}

#[test]
fn statements_from_a_pipe() {
    let cairn = Cairn::new();
    let script = "# a script\nput a 1 b \"2\\t2\" x'ff' '3;3'\nget a; get b\n\nscan\ndel a; count\nscan keys reverse limit 1\n";
    assert_eq!(shell(&cairn, &[], script).ok(), "1\n2\\t2\na\t1\nb\t2\\t2\n\\xff\t3;3\n2\n\\xff\n");
    assert_eq!(cairn.ok("shell", &["put c 9; get c", ".quit", "nonsense"]), "9\n");
    assert_eq!(shell(&cairn, &["--hex"], "get c").ok(), "39\n");
    let objects = json_lines(&shell(&cairn, &["--json"], "get c\ncount\nscan x'ff'").ok());
    assert_eq!(objects[0]["value"], "9");
    assert_eq!(objects[1]["count"], 3);
    assert_eq!(objects[2]["key_hex"], "ff");
}

#[test]
fn ranges_are_deleted() {
    let cairn = Cairn::new();
    let script = "put a 1 b 2 c 3 d 4\ndelrange b d\nscan keys\ndelrange prefix a; count\nput e 5\ndelrange from d; count";
    assert_eq!(shell(&cairn, &[], script).ok(), "a\nd\n1\n0\n");
    let script = "put a 1 b 2\nbegin\ndelrange a c\nput aa 3\nscan keys\nrollback\nscan keys\nbegin\ndelrange a c\ncommit\ncount";
    assert_eq!(shell(&cairn, &[], script).ok(), "aa\na\nb\n0\n");
}

#[test]
fn errors_name_the_line_and_end_the_script() {
    let cairn = Cairn::new();
    let run = shell(&cairn, &[], "put a 1\nget a\nfetch b\nput c 3\n").fails(6, &["line 3", "fetch"]);
    assert_eq!(run.text(), "1\n");
    assert_eq!(cairn.ok("scan", &["--count"]), "1\n");
    shell(&cairn, &[], "put \"a").fails(6, &["line 1", "not closed"]);
    shell(&cairn, &[], "get a\n.mode xml").fails(6, &["line 2", ".mode"]);
    shell(&cairn, &[], ".use nowhere").fails(2, &["line 1", "nowhere"]);
    cairn.run_with("shell", &[], b"get a\nget \xff\n").fails(6, &["line 2", "UTF-8"]);
    let missing = shell(&cairn, &[], "get nothing\nget a\n");
    assert_eq!((missing.code, missing.text()), (1, "1\n"));
    assert_eq!(missing.err, "not found: nothing\n");
}

#[test]
fn transactions() {
    let cairn = Cairn::new();
    let script = "put a 1 b 2 c 3\nbegin\nput b 20 d 4\ndel a\nget b\nscan\nscan reverse limit 2 keys\nrollback\ncount\n\
                  begin\ndel c\n.create other\nput x 1\n.use default\ncommit\nscan\n.use other\nscan";
    assert_eq!(shell(&cairn, &[], script).ok(), "20\nb\t20\nc\t3\nd\t4\nd\nc\n3\na\t1\nb\t2\nx\t1\n");
    shell(&cairn, &[], "begin\nput z 1\n").fails(6, &["rolled back: 1 write"]);
    shell(&cairn, &[], "commit").fails(6, &["no transaction"]);
    assert_eq!(cairn.ok("scan", &["--count"]), "2\n");
}

#[test]
fn compare_and_swap() {
    let cairn = Cairn::new();
    assert_eq!(shell(&cairn, &[], "cas a none 1\ncas a 1 2\nget a\ncas a 2 none\ncount").ok(), "2\n0\n");
    let unmet = "cas a none 1\ncas a 2 3\ncas b 1 2\ncas a none none\nget a";
    let unmet = shell(&cairn, &[], unmet);
    assert_eq!((unmet.code, unmet.text()), (1, "1\n"));
    for part in ["the value of a is 1\n", "b has no value\n", "a has a value\n"] {
        assert!(unmet.err.contains(part), "{}", unmet.err);
    }
    let within =
        "begin\ncas a 1 2\ncas b none 3\ncas a 2 none\ncas c none none\nscan\ncas b 4 5\nrollback\nscan";
    let within = shell(&cairn, &[], within);
    assert_eq!((within.code, within.text()), (1, "b\t3\na\t1\n"));
    assert_eq!(within.err, "nothing was written: the value of b is 3\n");
    let nothing = ".create h history=all\nbegin\ncas c none none\ncommit\nhistory c";
    assert_eq!(shell(&cairn, &[], nothing).ok(), "");
}

#[test]
fn snapshots() {
    let cairn = Cairn::new();
    let script = "put a 1 b 2\nsnapshot s\nput a 9\ndel b\nat s get a\nat s scan\nscan\nat s count\nrelease s\nat s get a";
    let run = shell(&cairn, &[], script).fails(6, &["line 10", "snapshot \"s\""]);
    assert_eq!(run.text(), "1\na\t1\nb\t2\na\t9\n2\n");
}

#[test]
fn copies_sizes_and_rewriting() {
    let cairn = Cairn::new();
    let [copy, backup] = ["copy", "backup"].map(|name| cairn.path(name).to_str().unwrap().to_owned());
    let script = format!(
        "put a 1 b 2\n.size\n.checkpoint {copy}\nput c 3\n.backup {backup}\n.rewrite\n.size\n.checkpoint {copy}"
    );
    let failed = shell(&cairn, &[], &script).fails(2, &["line 8", "not empty"]);
    let text = failed.text();
    for part in ["about 2 keys", "copy: ", "backup: generation 1 of", "about 3 keys"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let mut scan = program();
    scan.args(["scan", "--db", &copy]);
    assert_eq!(run(scan, b"").ok(), "a\t1\nb\t2\n");
    shell(&cairn, &[], ".create h engine=hash_log\n.size").fails(2, &["order"]);
}

#[test]
fn the_commands_of_the_shell_itself() {
    let cairn = Cairn::new();
    let script = ".create t preset=leveled block_size=1024\nput a 1\n.keyspaces\n.flush\n.compact\n.stats\n.guards\n\
                  .snapshots\n.timer on\nget a\n.timer off\n.mode json\nget a\n.alter block_size=512 ttl=1h\n.rename t u\n.rename u t\n.help\n.use default\n.drop t\n.keyspaces\n.exit\nbad";
    let text = shell(&cairn, &[], script).ok();
    for part in [
        "* t ",
        "  default ",
        "keyspace \"t\"",
        "written",
        " ms)",
        "{\"key\":\"a\",\"value\":\"1\"}",
        "snapshot NAME",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(text.trim_end().lines().last().unwrap().starts_with("* default"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours in a pipe");
    shell(&cairn, &[], ".drop default").fails(6, &["in use"]);
    shell(&cairn, &[], ".alter levels=3").fails(2, &["levels"]);
    shell(&cairn, &[], ".rename missing x").fails(2, &["missing"]);
}
