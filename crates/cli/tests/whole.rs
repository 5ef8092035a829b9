//! Commands on a whole database (check, stats, compact, demo), and the help of the program.

use crate::common::{Cairn, cities, json_lines, program, run};
use std::collections::BTreeMap;

fn loaded() -> Cairn {
    let cairn = Cairn::new();
    let args = [
        "--set",
        "memtable_bytes=65536",
        "--set",
        "top_level_bits=10",
        "--set",
        "bit_decrement=4",
        "--set",
        "levels=2",
    ];
    cairn.ok("load", &[&args[..], &[cities().to_str().unwrap()]].concat());
    cairn.ok("compact", &[]);
    cairn
}

/// All files of the database with their content, except for the lock, which has the id of the last process.
fn files(cairn: &Cairn) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(cairn.db())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name() != "LOCK")
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

/// The largest table. Other files may be larger, such as the reserve, but have no data.
fn largest_table(files: BTreeMap<String, Vec<u8>>) -> (String, Vec<u8>) {
    let tables = files.into_iter().filter(|(name, _)| name.ends_with(".tbl"));
    tables.max_by_key(|(_, content)| content.len()).unwrap()
}

#[test]
fn check_of_a_sound_database_writes_nothing() {
    let cairn = loaded();
    let before = files(&cairn);
    let text = cairn.ok("check", &[]);
    assert!(text.contains("no problems found"), "{text}");
    let report = &json_lines(&cairn.ok("check", &["--json"]))[0];
    assert!(report["problems"].as_array().unwrap().is_empty());
    assert!(report["bytes"].as_u64().unwrap() > 100_000 && report["entries"].as_u64().unwrap() >= 20_035);
    assert!(files(&cairn) == before, "check wrote to the database");
    Cairn::new().run("check", &[]).fails(2, &[]);
}

#[test]
fn check_names_what_is_damaged() {
    let cairn = loaded();
    let (name, mut content) = largest_table(files(&cairn));
    // In the first block, which `dump` reads, too. Between blocks there are bytes that only `check` reads.
    content[1000] ^= 0x10;
    std::fs::write(cairn.db().join(&name), content).unwrap();
    let run = cairn.run("check", &[]).fails(3, &["damaged"]);
    assert!(run.text().contains(&name), "{}", run.text());
    let run = cairn.run("check", &["--json"]).fails(3, &[]);
    let problems = json_lines(run.text())[0]["problems"].as_array().unwrap().clone();
    assert!(problems.iter().any(|p| p["file"].as_str().unwrap().contains(&name)), "{problems:?}");
    cairn.run("dump", &[]).fails(3, &[&name]);
}

#[test]
fn scrub_holds_its_rate_and_finds_what_check_finds() {
    let cairn = loaded();
    let bytes = json_lines(&cairn.ok("check", &["--json"]))[0]["bytes"].as_u64().unwrap();
    let started = std::time::Instant::now();
    let rate = format!("{}", bytes * 2);
    assert!(cairn.ok("scrub", &["--rate", &rate]).contains("no problems found"));
    assert!(started.elapsed().as_secs_f64() > 0.45, "faster than the limit: {:?}", started.elapsed());
    let (name, mut content) = largest_table(files(&cairn));
    content[1000] ^= 1;
    std::fs::write(cairn.db().join(&name), content).unwrap();
    let run = cairn.run("scrub", &["--rate", "0", "--rounds", "3"]).fails(3, &["damaged in 1 place"]);
    assert!(run.text().contains(&name));
}

#[test]
fn salvage_copies_what_is_sound_and_tells_what_is_not() {
    let cairn = loaded();
    let (from, to) = (cairn.db(), cairn.path("new"));
    let salvage = |to: &std::path::Path, json: bool| {
        let mut salvage = program();
        salvage.arg("salvage").arg(&from).arg(to).args(json.then_some("--json"));
        run(salvage, b"")
    };
    let dumped = cairn.ok("dump", &[]);
    let before = files(&cairn);
    let text = salvage(&to, false).ok();
    assert!(text.contains("nothing is lost") && text.contains("20035 entries"), "{text}");
    assert!(files(&cairn) == before, "the source was changed");
    let mut dump = program();
    dump.args(["dump", "--db"]).arg(&to);
    assert!(run(dump, b"").ok() == dumped);
    salvage(&to, false).fails(2, &["not empty"]);

    let (name, mut content) = largest_table(before);
    content[1000] ^= 1;
    std::fs::write(from.join(&name), content).unwrap();
    let run = salvage(&cairn.path("newer"), true).fails(3, &["1 part of it is lost"]);
    let report = &json_lines(run.text())[0];
    let loss = &report["losses"][0];
    assert_eq!((loss["file"].as_str(), loss["keyspace"].as_str()), (Some(&*name), Some("default")));
    assert!(loss["to_hex"].is_string() && loss["offset"].is_u64() && report["complete"] == false, "{report}");
    let there = report["keyspaces"][0]["entries"].as_u64().unwrap();
    assert!((19_000..20_035).contains(&there), "{there} entries");
}

#[test]
fn copies_are_made_listed_verified_and_restored() {
    let cairn = loaded();
    let (copy, backup, restored) = (cairn.path("copy"), cairn.path("backup"), cairn.path("restored"));
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let on = |command: &str, path: &std::path::Path, more: &[&str]| {
        let mut program = program();
        program.arg(command).arg(path).args(more);
        run(program, b"")
    };
    let dumped = cairn.ok("dump", &[]);
    let dump = |path: &std::path::Path| {
        let mut dump = program();
        dump.args(["dump", "--db"]).arg(path);
        run(dump, b"").ok()
    };
    let report = cairn.ok("checkpoint", &[&text(&copy)]);
    assert!(report.contains("files, "), "{report}");
    assert!(dump(&copy) == dumped);
    cairn.run("checkpoint", &[&text(&copy)]).fails(2, &["not empty"]);

    let first = cairn.ok("backup", &[&text(&backup)]);
    assert!(first.contains("generation 1 of 20"), "{first}");
    cairn.ok("put", &["new", "1"]);
    let second = cairn.ok("backup", &[&text(&backup), "--json"]);
    let second = &json_lines(&second)[0];
    assert!(second["number"] == 2 && second["new_bytes"].as_u64() < second["bytes"].as_u64(), "{second}");
    let listed = on("backups", &backup, &["--verify"]).ok();
    assert!(listed.lines().count() == 3 && listed.ends_with("no problems found\n"), "{listed}");
    on("restore", &backup, &[&text(&restored), "--generation", "1"]).ok();
    assert!(dump(&restored) == dumped);
    on("restore", &backup, &[&text(&restored)]).fails(2, &["not empty"]);
    on("restore", &backup, &[&text(&cairn.path("other")), "--generation", "7"])
        .fails(2, &["no generation 7"]);
    on("backups", &copy, &[]).fails(2, &["there is no backup"]);

    let run = on("backups", &backup, &["--keep", "1"]);
    assert!(run.err.contains("removed generation 1"), "{}", run.err);
    let files = std::fs::read_dir(backup.join("files")).unwrap().map(|file| file.unwrap().path());
    let largest = files.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut content = std::fs::read(&largest).unwrap();
    content[1000] ^= 1;
    std::fs::write(&largest, content).unwrap();
    on("backups", &backup, &["--verify"]).fails(3, &["1 file damaged"]);
    let to = cairn.path("damaged");
    on("restore", &backup, &[&text(&to)]).fails(3, &[largest.file_name().unwrap().to_str().unwrap()]);
    assert!(!to.exists() || std::fs::read_dir(&to).unwrap().next().is_none());
}

/// `cairn salvage | head -1`: a reader that closes the pipe must not turn damage into success.
#[test]
fn damage_is_told_by_the_exit_code_though_nobody_reads() {
    let cairn = loaded();
    let (name, mut content) = largest_table(files(&cairn));
    content[1000] ^= 1;
    std::fs::write(cairn.db().join(&name), content).unwrap();
    let unread = |mut command: std::process::Command, with_errors: bool| {
        let pipe = std::process::Stdio::piped;
        command.stdin(std::process::Stdio::null()).stdout(pipe());
        command.stderr(if with_errors { pipe() } else { std::process::Stdio::null() });
        let mut child = command.spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        child.wait().unwrap().code()
    };
    for (n, with_errors) in [false, true].into_iter().enumerate() {
        let mut salvage = program();
        salvage.arg("salvage").arg(cairn.db()).arg(cairn.path(&format!("new{n}")));
        assert_eq!(unread(salvage, with_errors), Some(3), "salvage");
        assert_eq!(unread(cairn.command("check"), with_errors), Some(3), "check");
        let mut scrub = cairn.command("scrub");
        scrub.args(["--rate", "0"]);
        assert_eq!(unread(scrub, with_errors), Some(3), "scrub");
    }
}

#[test]
fn stats_show_the_tree() {
    let cairn = loaded();
    let text = cairn.ok("stats", &[]);
    for part in [
        "keyspace \"default\"",
        "level 1",
        "guards of level",
        "files on disk",
        "written",
        "cache",
        "memory",
        "█",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let list = cairn.ok("stats", &["--guards", "--keyspace", "default"]);
    assert!(list.contains("from the first key") && list.contains("entries"), "{list}");
    let all = &json_lines(&cairn.ok("stats", &["--json", "--guards"]))[0];
    let keyspace = &all["stats"]["keyspaces"][0];
    assert!(keyspace["levels"].as_array().unwrap().iter().any(|l| l["guards"].as_u64().unwrap() > 1));
    assert_eq!(all["keyspaces"]["default"]["options"]["top_level_bits"], "10");
    assert!(!all["keyspaces"]["default"]["guards"].as_array().unwrap().is_empty());
    cairn.run("stats", &["--keyspace", "none"]).fails(2, &["none"]);
}

#[test]
fn compaction_keeps_the_content() {
    let cairn = loaded();
    let before = cairn.run("dump", &[]).out;
    let text = cairn.ok("compact", &["--from", "FR/", "--to", "GB/"]);
    assert!(text.contains("before") && text.contains("after"), "{text}");
    let report = &json_lines(&cairn.ok("compact", &["--json"]))[0];
    assert!(report["after"]["levels"].is_array());
    cairn.ok("compact", &["--all"]);
    assert!(cairn.run("dump", &[]).out == before);
    cairn.run("compact", &["-k", "none"]).fails(2, &["none"]);
}

#[test]
fn options_outlive_the_process() {
    let cairn = Cairn::new();
    cairn.ok("put", &["--preset", "pebblesdb", "--set", "compression=none", "a", "1"]);
    let metrics = cairn.ok("stats", &["--prometheus"]);
    assert!(
        metrics.contains("\ncairn_last_sequence_number ") && metrics.contains("{keyspace=\""),
        "{metrics}"
    );
    assert_eq!(cairn.run("stats", &["--prometheus", "--json"]).code, 2);
    let all = &json_lines(&cairn.ok("stats", &["--json"]))[0];
    let options = &all["keyspaces"]["default"]["options"];
    assert_eq!(
        (options["compression"].as_str(), options["level_size_percent"].as_str()),
        (Some("none"), Some("25"))
    );
    let run = cairn.run("put", &["--set", "compression=lz4", "a", "2"]);
    assert!(run.code == 0 && run.err.contains("keeps its options"), "{}", run.err);
}

#[test]
fn the_demonstration() {
    let mut demo = program();
    demo.args(["demo", "--rounds", "2"]);
    let text = run(demo, b"").ok();
    for part in [
        "20,035 records",
        "XX/Atlantis",
        "in the snapshot",
        "killed process",
        "Nothing acknowledged was lost",
        "invariant holds",
        "Done in",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let dir = text.lines().next().unwrap().rsplit_once(" in ").unwrap().1;
    assert!(!std::path::Path::new(dir).exists(), "{dir} was left behind");
}

#[test]
fn the_demonstration_twice_in_one_directory() {
    let cairn = Cairn::new();
    for _ in 0..2 {
        let mut demo = program();
        demo.args(["demo", "--rounds", "1", "--db"]).arg(cairn.db());
        assert!(run(demo, b"").ok().contains("Look around"));
    }
    assert_eq!(cairn.ok("scan", &["-k", "cities", "--count"]), "20035\n");
}

#[test]
fn completion_scripts_and_help() {
    for (shell, part) in [("bash", "complete -F"), ("zsh", "#compdef cairn"), ("fish", "complete -c cairn")] {
        let mut completions = program();
        completions.args(["completions", shell]);
        let script = run(completions, b"").ok();
        assert!(script.contains(part) && script.contains("memory-budget"), "{shell}");
    }
    let mut help = program();
    help.arg("--help");
    let text = run(help, b"").ok();
    assert!(text.contains("Examples:") && text.contains("Exit codes:"));
    let mut options = program();
    options.arg("options");
    assert!(run(options, b"").ok().contains("max_tables_per_guard"));
    let mut options = program();
    options.args(["options", "--json"]);
    let all = &json_lines(&run(options, b"").ok())[0];
    assert!(all["database"].as_array().unwrap().iter().any(|o| o["name"] == "memory_budget"));
}
