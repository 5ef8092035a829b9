//! Which database a command uses: paths with typing errors, directories with other content, and the ways to name a

//! database.

use crate::common::{Cairn, Run, program, run};
use std::path::Path;

fn on(command: &str, path: &Path, args: &[&str]) -> Run {
    let mut cairn = program();
    cairn.arg(command).arg("--db").arg(path).args(args);
    run(cairn, b"put a 1\n")
}

fn names(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn commands_that_create_nothing_leave_nothing() {
    let cairn = Cairn::new();
    let (empty, full) = (cairn.path("empty"), cairn.path("full"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("notes.txt"), "mine").unwrap();
    let nowhere = cairn.path("nowhere/else");
    for (command, args) in [
        ("get", &["a"][..]),
        ("scan", &[]),
        ("dump", &[]),
        ("stats", &[]),
        ("delete", &["a"]),
        ("delete-range", &["--all"]),
        ("compact", &[]),
        ("compact", &["--all"]),
        ("check", &[]),
        ("scrub", &[]),
        ("shell", &[]),
        ("shell", &["put a 1"]),
    ] {
        on(command, &empty, args).fails(2, &["there is no database"]);
        on(command, &full, args).fails(2, &["there is no database"]);
        on(command, &nowhere, args).fails(2, &["there is no database"]);
        assert_eq!((names(&empty), names(&full)), (vec![], vec!["notes.txt".into()]), "{command}");
        assert!(!nowhere.exists(), "{command}");
    }
}

#[test]
fn a_database_that_is_created_is_told_of() {
    for (command, args) in [("put", &["a", "1"][..]), ("load", &[]), ("shell", &["--create", "put a 1"])] {
        let cairn = Cairn::new();
        let first = on(command, &cairn.db(), args);
        assert!(first.created && first.code == 0, "{command}: {first:?}");
        let second = on(command, &cairn.db(), args);
        assert!(!second.created && second.code == 0, "{command}: {second:?}");
        // Not among other files.
        let home = cairn.path("home");
        std::fs::create_dir(&home).unwrap();
        std::fs::write(home.join("notes.txt"), "mine").unwrap();
        on(command, &home, args).fails(2, &["has other files"]);
        assert_eq!(names(&home), ["notes.txt"], "{command}");
    }
}

#[test]
fn check_and_scrub_take_the_directory_as_it_is_written() {
    let cairn = Cairn::new();
    cairn.ok("put", &["a", "1"]);
    let other = Cairn::new();
    for command in ["check", "scrub"] {
        let mut plain = program();
        plain.arg(command).arg(cairn.db());
        assert!(run(plain, b"").ok().contains("no problems found"), "{command}");
        // The argument wins over the environment.
        let mut both = other.command(command);
        both.arg(cairn.db());
        assert!(run(both, b"").ok().contains("no problems found"), "{command}");
        assert!(cairn.ok(command, &[]).contains("no problems found"), "{command}");
        let mut none = program();
        none.arg(command);
        run(none, b"").fails(2, &["no database named", "CAIRN_DB"]);
    }
}

#[test]
fn delete_range_names_all_that_it_takes() {
    let cairn = Cairn::new();
    cairn.ok("put", &["a", "1"]);
    let run = cairn.run("delete-range", &[]);
    assert_eq!(run.code, 2);
    for option in ["--from", "--to", "--prefix", "--all"] {
        assert!(run.err.split("Usage").next().unwrap().contains(option), "{option} is not in: {}", run.err);
    }
    assert_eq!(cairn.ok("scan", &["--count"]), "1\n");
}

/// The help of the program says which commands take --db.
#[test]
fn help_tells_the_truth_about_db() {
    let help = |args: &[&str]| {
        let mut asked = program();
        asked.args(args).arg("--help");
        run(asked, b"").ok()
    };
    let text = help(&[]);
    assert!(!text.contains("Every command names the database with --db"), "{text}");
    let takes = |command: &&str| help(&[command]).contains("--db <DIR>");
    assert!(!["salvage", "restore", "backups", "options", "completions"].iter().any(takes));
    let on_databases = [
        "put",
        "get",
        "delete",
        "delete-range",
        "scan",
        "load",
        "dump",
        "stats",
        "check",
        "scrub",
        "compact",
        "checkpoint",
        "backup",
        "shell",
    ];
    assert!(on_databases.iter().chain(&["bench", "demo"]).all(takes));
    for command in ["check", "scrub"] {
        assert!(help(&[command]).contains("[PATH]"), "{command}");
    }
}
