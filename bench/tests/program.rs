//! The program as a whole: what a run leaves, and what it must not leave.

use bench::record::{Line, Record, RunInfo};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Cairn, and fjall where it was built in.
fn engines() -> &'static [&'static str] {
    if cfg!(feature = "fjall") { &["cairn", "fjall"] } else { &["cairn"] }
}

/// A directory for a run's results.
struct Bed {
    root: TempDir,
}

impl Bed {
    fn new() -> Bed {
        Bed { root: tempfile::tempdir().unwrap() }
    }

    fn out(&self) -> PathBuf {
        self.root.path().join("out")
    }

    /// A run of small sizes.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.args(["run", "--quick", "--wait-seconds", "0", "--out"]).arg(self.out());
        command.args(["--engines", &engines().join(",")]).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it; it must leave nothing but results.
    #[track_caller]
    fn run(&self, args: &[&str], code: i32) -> Output {
        self.end(self.command(args).spawn().unwrap(), code)
    }

    #[track_caller]
    fn end(&self, child: Child, code: i32) -> Output {
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(!self.out().join("db").exists(), "the databases are still there: {stderr}");
        assert_eq!(cgroups(pid), Vec::<PathBuf>::new(), "{stderr}");
        output
    }

    /// Runs, information (the last one), and failures.
    fn results(&self) -> (Vec<Record>, RunInfo, Vec<String>) {
        let text = fs::read_to_string(self.out().join("results.jsonl")).unwrap();
        let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(matches!(lines[0], Line::Run(_)), "{text}");
        let (mut records, mut info, mut failures) = (Vec::new(), RunInfo::default(), Vec::new());
        for line in lines {
            match line {
                Line::Run(run) => info = run,
                Line::Result(record) => records.push(*record),
                Line::Failure { engine, message, .. } => failures.push(format!("{engine}: {message}")),
            }
        }
        (records, info, failures)
    }
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_cairn-bench"))
}

/// Control groups that the process left.
fn cgroups(pid: u32) -> Vec<PathBuf> {
    fn search(dir: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name() == name {
                found.push(entry.path());
            } else if depth > 0 {
                search(&entry.path(), name, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), &format!("cairn-bench-{pid}"), 6, &mut found);
    found
}

/// Whether this process may limit the memory of others.
fn can_limit() -> bool {
    bench::cgroup::Cgroup::create(1 << 30).inspect_err(|why| eprintln!("no memory limit here: {why}")).is_ok()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_run_leaves_results_and_a_report() {
    let bed = Bed::new();
    let output = bed.run(
        &[
            "--factor",
            "0.02",
            "--groups",
            "dbbench-128,sequential-128,report",
            "--workloads",
            "readrandom,overwrite,fillseq,ten-each",
            "--rounds",
            "2",
            "--memory-limit",
            "512MiB",
            "--page",
            bed.root.path().join("kept").to_str().unwrap(),
        ],
        0,
    );
    let (records, info, failures) = bed.results();
    assert_eq!(failures, Vec::<String>::new());
    assert_eq!((info.scale.as_str(), info.rounds, info.engines.len()), ("custom", 2, engines().len()));
    assert_eq!(info.memory_limit_bytes.is_some(), can_limit());
    // The fill runs although it was not named, since readrandom needs it.
    let of = |engine: &str, round: u32| -> Vec<String> {
        let same = |r: &&Record| r.engine == engine && r.round == round;
        records.iter().filter(same).map(|r| format!("{}/{}", r.group, r.workload)).collect()
    };
    for engine in engines() {
        for round in [1, 2] {
            let expected = [
                "dbbench-128/fillrandom",
                "dbbench-128/readrandom",
                "dbbench-128/overwrite",
                "sequential-128/fillseq",
                "report/ten-each",
            ];
            assert_eq!(of(engine, round), expected, "{engine}, round {round}");
        }
    }
    for record in &records {
        assert!(record.ops > 0 && record.ops_per_s > 0.0 && !record.engine_version.is_empty(), "{record:?}");
        assert_eq!(record.settings.memory_limit_bytes, info.memory_limit_bytes);
    }
    let first = |round: u32| records.iter().find(|r| r.round == round).map(|r| r.engine.clone());
    assert_eq!(first(1) == first(2), engines().len() == 1, "the engine that begins changes");
    let stdout = text(&output.stdout);
    let summed_up = records.iter().filter(|r| r.engine == "cairn" && r.contents.is_some()).count();
    assert!(summed_up >= 6, "after each fill of each round");
    let compared = match engines().len() {
        1 => "were not compared".to_string(),
        _ => format!("All agree: in all {summed_up} comparisons"),
    };
    assert!(stdout.contains(&compared) && stdout.contains("fillrandom"), "{stdout}");
    for file in ["index.html", "tables.md", "main.svg"] {
        assert!(bed.out().join(file).exists(), "{file}");
    }

    let kept = bed.root.path().join("kept");
    let table = fs::read_to_string(kept.join("README.md")).unwrap();
    assert!(
        table.contains("readrandom") && kept.join("tables.md").exists() && kept.join("main.svg").exists()
    );

    // The same page can be made anew.
    let page = bed.root.path().join("page");
    let results = bed.out().join("results.jsonl");
    let made = program().arg("report").arg(&results).arg(&results).arg("--out").arg(&page).output().unwrap();
    assert!(made.status.success() && page.join("index.html").exists(), "{}", text(&made.stderr));
    let made = program().arg("report").arg(&results).arg("--page").arg(&page).output().unwrap();
    assert!(made.status.success() && page.join("README.md").exists(), "{}", text(&made.stderr));
    let nowhere = program().arg("report").arg(&results).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2), "neither --out nor --page: {}", text(&nowhere.stderr));

    // A second run adds to the first one only when it is requested to.
    let again = ["--factor", "0.001", "--groups", "report", "--no-report", "--verify", "false"];
    let refused = bed.command(&again).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert_eq!(bed.results().0.len(), records.len());
    bed.run(&[&again[..], &["--append"]].concat(), 0);
    assert_eq!(bed.results().0.len(), records.len() + engines().len());
}

#[test]
fn an_engine_that_hangs_loses_its_turn() {
    let bed = Bed::new();
    bed.run(&["--groups", "report", "--factor", "50", "--group-seconds-max", "0.4", "--no-report"], 1);
    let (records, info, failures) = bed.results();
    assert!(records.is_empty());
    assert_eq!(failures.len(), engines().len(), "{failures:?}");
    assert!(failures[0].contains("the time limit"), "{failures:?}");
    assert!(info.warnings.iter().any(|warning| warning.contains("failed in report")), "{info:?}");
}

#[test]
fn an_engine_without_memory_says_so() {
    if !can_limit() {
        return;
    }
    let bed = Bed::new();
    let output = bed.run(&["--groups", "dbbench-128", "--memory-limit", "16MiB", "--no-report"], 1);
    let (_, _, failures) = bed.results();
    assert!(failures.iter().any(|why| why.contains("more memory than the limit of 16 MiB")), "{failures:?}");
    assert!(text(&output.stderr).contains("failed in dbbench-128"), "{}", text(&output.stderr));
}

/// Waits until the run has started the process of an engine, and returns its number.
fn child_of(pid: u32) -> u32 {
    let end = Instant::now() + Duration::from_secs(30);
    let is_engine = |child: &&str| {
        fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| line.ends_with(b"\0child\0"))
    };
    loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        if let Some(child) = children.split_whitespace().find(is_engine) {
            return child.parse().unwrap();
        }
        assert!(Instant::now() < end, "no child was started");
        thread::sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

#[test]
#[cfg(target_os = "linux")]
fn an_interrupted_run_keeps_what_it_has() {
    let bed = Bed::new();
    let run = bed.command(&["--groups", "report,ycsb", "--factor", "5", "--rounds", "100"]).spawn().unwrap();
    let child = child_of(run.id());
    let end = Instant::now() + Duration::from_secs(120);
    while !fs::read_to_string(bed.out().join("results.jsonl")).is_ok_and(|text| text.contains("\"result\"")) {
        assert!(Instant::now() < end, "there is no first result");
        thread::sleep(Duration::from_millis(20));
    }
    signal("INT", run.id());
    let output = bed.end(run, 130);
    assert!(!Path::new(&format!("/proc/{child}")).exists());
    let (records, info, _) = bed.results();
    assert!(!records.is_empty());
    assert!(info.warnings.iter().any(|warning| warning.contains("interrupted")), "{info:?}");
    assert!(bed.out().join("index.html").exists());
    assert!(text(&output.stderr).contains("interrupted"));
}

#[test]
#[cfg(target_os = "linux")]
fn an_engine_that_dies_does_not_end_the_run() {
    let bed = Bed::new();
    let mut command = program();
    command.args(["run", "--quick", "--wait-seconds", "0", "--no-report", "--out"]).arg(bed.out());
    command.args(["--groups", "ycsb", "--factor", "2", "--engines", "cairn,cairn-leveled"]);
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    signal("ABRT", child_of(run.id()));
    bed.end(run, 1);
    let (records, _, failures) = bed.results();
    assert!(matches!(&failures[..], [one] if one.starts_with("cairn: signal: 6")), "{failures:?}");
    let engines: BTreeSet<&str> = records.iter().map(|r| r.engine.as_str()).collect();
    assert!(engines.contains("cairn-leveled"), "{engines:?}");
}

#[test]
fn directories_of_others_stay_as_they_are() {
    let bed = Bed::new();
    let theirs = bed.root.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("thesis.txt"), "years").unwrap();
    let output = bed.run(&["--dir", theirs.to_str().unwrap()], 2);
    assert!(text(&output.stderr).contains("did not create"), "{}", text(&output.stderr));
    assert_eq!(fs::read(theirs.join("thesis.txt")).unwrap(), b"years");
    assert!(!bed.out().exists(), "nothing was written");
}

#[test]
fn wrong_usage_is_told() {
    let bed = Bed::new();
    for (args, told) in [
        (["--engines", "berkeleydb"], "there is no engine \"berkeleydb\""),
        (["--groups", "tpcc"], "there are dbbench-128"),
        (["--workloads", "fillfast"], "there is no workload"),
        (["--factor", "0"], "--factor"),
        (["--seconds-max", "-1"], "--seconds-max"),
        (["--memory-limit", "much"], "such as 64MiB"),
        (["--rounds", "0"], "1..=1000"),
    ] {
        let mut command = program();
        command.args(["run", "--quick", "--out"]).arg(bed.out()).arg(format!("{}={}", args[0], args[1]));
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(told), "{args:?}: {stderr}");
    }
    let missing = program().args(["report", "nowhere.jsonl", "--out"]).arg(bed.out()).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(!bed.out().exists(), "nothing was written");
}

#[test]
fn everything_is_listed() {
    let output = program().args(["list", "--settings"]).output().unwrap();
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for kind in bench::engines::all() {
        assert!(stdout.contains(kind.title), "{}", kind.name);
    }
    for workload in bench::workload::Workload::ALL {
        assert!(stdout.contains(workload.about()), "{workload}");
    }
    assert!(stdout.contains("write_buffer_size") || stdout.contains("memtable_bytes"), "{stdout}");
}
