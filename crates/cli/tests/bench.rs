//! bench: every workload, the reports, the counters of the kernel, and the directories that bench must not empty.

use crate::common::{Cairn, json_lines};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const ALL: &str = "fillseq,overwrite,readrandom,readmissing,readseq,readreverse,seekrandom,readwhilewriting,deleterandom,\
                   fillrandom,readrandom,deleteseq,readseq,fillsync";

/// Runs with `--json`; returns the reports.
#[track_caller]
fn bench(cairn: &Cairn, workloads: &str, args: &[&str]) -> Vec<Value> {
    let reports = json_lines(&cairn.ok("bench", &[&["--json", "--workloads", workloads], args].concat()));
    assert_eq!(
        reports.iter().map(|r| r["workload"].as_str().unwrap()).collect::<Vec<_>>().join(","),
        workloads
    );
    reports
}

#[track_caller]
fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("{field} of {report}"))
}

/// Every field exists and is plausible by itself.
#[track_caller]
fn looks_right(report: &Value) {
    assert_eq!(report["engine"], "cairn");
    for field in
        ["ops", "seconds", "ops_per_s", "settled_seconds", "settled_ops_per_s", "space_bytes", "cpu_seconds"]
    {
        assert!(number(report, field) > 0.0, "{field} of {report}");
    }
    for field in [
        &["user_bytes", "user_bytes_read", "write_bytes", "engine_write_bytes", "found", "verified"][..],
        &["num", "reads", "seek_nexts", "seed", "key_size", "threads", "memory_budget", "background_threads"],
        &["memtable_bytes", "filter_bits_per_key"],
    ]
    .concat()
    {
        assert!(report[field].is_u64(), "{field} of {report}");
    }
    for field in ["engine_version", "preset", "durability", "compression", "value_sizes"] {
        assert!(report[field].is_string(), "{field} of {report}");
    }
    assert!(report["settings"].is_null(), "the settings are top-level fields: {report}");
    assert!(report["options"].is_object() && report["engine_settings"].is_object(), "{report}");
    let (ops, seconds) = (number(report, "ops"), number(report, "seconds"));
    assert!((number(report, "ops_per_s") * seconds - ops).abs() < ops / 1000.0);
    assert!(number(report, "settled_seconds") >= seconds);
    let lat: Vec<f64> = ["p50", "p95", "p99", "p999", "max"].map(|p| number(&report["lat_us"], p)).into();
    assert!(lat[0] > 0.0 && lat.is_sorted(), "{lat:?}");
    match number(report, "user_bytes") {
        0.0 => assert!(report["write_amp"].is_null()),
        user => assert!((number(report, "write_amp") - number(report, "write_bytes") / user).abs() < 1e-9),
    }
    kernel_agrees(report);
}

/// The bytes counted by the engine agree with those counted by the kernel, except for the header of the first log,
/// for zeros written ahead of the ends of logs (some per log and per tenth of a second), and for bytes written to
/// recycled logs.
#[track_caller]
fn kernel_agrees(report: &Value) {
    if cfg!(target_os = "linux") {
        let (ours, kernel) = (number(report, "engine_write_bytes"), number(report, "kernel_wchar"));
        let (user, ops) = (number(report, "user_bytes"), number(report, "ops"));
        let logs = 2.0 + (user + 120.0 * ops) / number(report, "memtable_bytes");
        let ahead = (logs + number(report, "settled_seconds") * 10.0) * 262_144.0;
        let slack = kernel * 0.02 + 100.0;
        // Not in the kernel's count: zeros that an earlier workload wrote ahead.
        let unseen = 262_144.0 + user + 40.0 * ops;
        let counted = ours - unseen - slack..=ours + ahead + slack;
        assert!(counted.contains(&kernel), "{ours} and {kernel}: {report}");
        for field in ["read_bytes", "rss_peak_bytes", "cancelled_write_bytes"] {
            assert!(report[field].is_u64(), "{field} of {report}");
        }
    }
}

#[test]
fn every_workload_does_what_its_name_says() {
    for threads in ["1", "3"] {
        let cairn = Cairn::new();
        let args = ["--num", "3000", "--reads", "2000", "--seek-nexts", "5", "--threads", threads];
        let reports = bench(&cairn, ALL, &[&args[..], &["--set", "memtable_bytes=32768"]].concat());
        let [fillseq, overwrite, readrandom, readmissing, readseq, readreverse, seekrandom, mixed, rest @ ..] =
            &reports[..]
        else {
            panic!("{} reports", reports.len())
        };
        let [deleterandom, fillrandom, read_again, deleteseq, empty, fillsync] = rest else { panic!() };
        for report in reports.iter().filter(|r| !std::ptr::eq(*r, empty)) {
            looks_right(report);
            assert_eq!((&report["key_size"], &report["value_size"]), (&16.into(), &128.into()));
            assert_eq!(report["threads"].to_string(), threads);
        }
        for fill in [fillseq, overwrite, fillrandom] {
            assert_eq!((&fill["ops"], &fill["user_bytes"]), (&3000.into(), &(3000 * 144).into()));
            let amplification = number(fill, "engine_write_bytes") / number(fill, "user_bytes");
            assert!(amplification > 1.5, "memtables are small enough for flushes: {fill}");
        }
        assert_eq!((&readrandom["ops"], &readrandom["found"]), (&2000.into(), &2000.into()));
        assert_eq!(readrandom["user_bytes_read"], 2000 * 144);
        assert_eq!((&readmissing["ops"], &readmissing["found"]), (&2000.into(), &0.into()));
        for walk in [readseq, readreverse] {
            assert_eq!((&walk["ops"], &walk["found"]), (&2000.into(), &2000.into()));
        }
        assert_eq!(seekrandom["found"], 2000);
        let entries = number(seekrandom, "user_bytes_read") / 144.0;
        assert!(
            (11_950.0..=12_000.0).contains(&entries),
            "six entries per seek, except at the end: {entries}"
        );
        assert_eq!((&mixed["ops"], &mixed["found"]), (&2000.into(), &2000.into()));
        assert!(number(&mixed["writer"], "ops") > 0.0);
        assert_eq!(number(mixed, "user_bytes"), number(&mixed["writer"], "ops") * 144.0);
        assert_eq!((&deleterandom["ops"], &deleterandom["user_bytes"]), (&3000.into(), &(3000 * 16).into()));
        assert_eq!(
            (&read_again["ops"], &read_again["found"]),
            (&2000.into(), &2000.into()),
            "every key is there"
        );
        assert_eq!(deleteseq["ops"], 3000);
        assert_eq!((&empty["ops"], &empty["found"]), (&0.into(), &0.into()));
        assert_eq!((&fillsync["ops"], &fillsync["durability"]), (&3.into(), &"sync".into()));
        assert!(number(readrandom, "verified") > 0.0 && number(readseq, "verified") > 0.0);
    }
}

#[test]
fn workloads_of_ycsb_and_others() {
    let cairn = Cairn::new();
    let args = ["--num", "2000", "--reads", "1000", "--threads", "2", "--value-size", "9:60 104:20 1004:20"];
    let reports = bench(
        &cairn,
        "ycsb-load,ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f,overwrite,aging-insert,aging-read,ten-each",
        &args,
    );
    reports.iter().for_each(looks_right);
    let of = |name: &str| reports.iter().find(|r| r["workload"] == name).unwrap();
    for report in &reports {
        assert_eq!((&report["key_size"], &report["threads"]), (&24.into(), &2.into()));
        assert_eq!((&report["value_size"], &report["value_sizes"]), (&args[7].into(), &args[7].into()));
    }
    assert_eq!((&of("ycsb-load")["ops"], &of("ycsb-c")["found"]), (&2000.into(), &1000.into()));
    let mean = number(of("ycsb-load"), "user_bytes") / 2000.0 - 24.0;
    assert!((200.0..256.0).contains(&mean), "the mix has a mean of 227: {mean}");
    for (name, kinds) in [("ycsb-a", ["read", "update"]), ("ycsb-e", ["insert", "scan"])] {
        let by_kind = of(name)["lat_us_by_kind"].as_object().unwrap();
        assert_eq!(by_kind.keys().collect::<Vec<_>>(), kinds);
    }
    // The workload doubled the number of keys, and the read finds all of them.
    let read = of("aging-read");
    assert_eq!((&read["num"], &read["found"]), (&4000.into(), &1000.into()));
    assert_eq!(of("ten-each")["ops"], 20_000);
    // A separate run reads the keys of the existing database.
    bench(&cairn, "ycsb-load", &["--num", "100"]);
    let read = &bench(&cairn, "readrandom", &["--num", "100"])[0];
    assert_eq!((&read["found"], &read["key_size"]), (&100.into(), &24.into()));
    cairn.run("bench", &["--workloads", "deleteseq"]).fails(2, &["deleteseq needs other keys", "ycsb-load"]);
}

#[test]
fn a_history_keeps_its_timetable() {
    let cairn = Cairn::new();
    let args = ["--num", "1000", "--puts-per-second", "2000", "--queries-per-second", "100"];
    for name in ["history-zipf", "history-uniform"] {
        let report = &bench(&cairn, name, &args)[0];
        looks_right(report);
        assert_eq!((&report["ops"], &report["writer"]["ops"]), (&50.into(), &1000.into()));
        assert!((0.4..10.0).contains(&number(report, "seconds")), "{report}");
        // The keys contain a time of eight bytes.
        let read = &bench(&cairn, "readseq", &["--num", "1000"])[0];
        assert_eq!((&read["found"], &read["user_bytes_read"]), (&1000.into(), &(1000 * 152).into()));
        cairn
            .run("bench", &["--workloads", "readrandom"])
            .fails(2, &["readrandom needs other keys", "history-zipf"]);
    }
}

#[test]
fn the_kernel_counts_the_same_bytes_whatever_the_options() {
    let cairn = Cairn::new();
    for options in [
        &["--durability", "buffered", "--compression", "none"][..],
        &["--preset", "leveled", "--memory-budget", "2MiB", "--compression", "lz4"],
        &["--preset", "pebblesdb", "--background-threads", "1", "--value-size", "3000", "--num", "5000"],
    ] {
        let small = ["--num", "50000", "--set", "memtable_bytes=262144"];
        let args = if options.contains(&"--num") { options.to_vec() } else { [&small[..], options].concat() };
        for report in bench(&cairn, "fillrandom,overwrite,readrandom,deleterandom", &args) {
            looks_right(&report);
        }
    }
}

#[test]
fn settings_are_reported_as_they_were() {
    let cairn = Cairn::new();
    let args = ["--num", "100", "--preset", "leveled", "--compression", "none", "--durability", "buffered"];
    let more =
        ["--background-threads", "3", "--memory-budget", "64MiB", "--seed", "9", "--set", "block_size=8192"];
    let report = &bench(&cairn, "fillseq", &args)[0];
    assert_eq!((&report["preset"], &report["reads"]), (&"leveled".into(), &100.into()));
    let report = &bench(&cairn, "fillseq", &[&args[..], &more[..]].concat())[0];
    assert_eq!((&report["compression"], &report["durability"]), (&"none".into(), &"buffered".into()));
    assert_eq!((&report["background_threads"], &report["seed"]), (&3.into(), &9.into()));
    assert_eq!(report["memory_budget"], 64 << 20);
    assert_eq!(report["options"]["block_size"], "8192");
    // An existing database keeps its options, and the report has them.
    let report = &bench(&cairn, "readseq", &["--num", "100"])[0];
    assert_eq!((&report["preset"], &report["options"]["block_size"]), (&"custom".into(), &"8192".into()));
}

#[test]
fn one_line_for_people() {
    let cairn = Cairn::new();
    let text = cairn.ok("bench", &["--workloads", "fillseq,readseq,readwhilewriting", "--num", "1000"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, name) in lines.iter().zip(["fillseq ", "readseq ", "readwhilewriting "]) {
        assert!(line.starts_with(name) && line.contains("ops/s") && line.contains("p99.9"), "{line}");
    }
    assert!(lines[1].contains("found 1,000 of 1,000") && lines[2].contains("puts/s"), "{text}");
}

fn keys(cairn: &Cairn) -> BTreeSet<String> {
    let out = cairn.ok("scan", &["--keyspace", "bench", "--json"]);
    json_lines(&out).iter().map(|entry| entry["key"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_seed_gives_the_same_keys_whatever_the_threads() {
    let cairn = Cairn::new();
    // A fill puts every key; the seed decides which of them the deletes leave.
    let mut sets = [("1", "5"), ("4", "5"), ("1", "6")].into_iter().map(|(threads, seed)| {
        bench(
            &cairn,
            "fillrandom,deleterandom",
            &["--num", "2000", "--threads", threads, "--seed", seed, "--key-size", "20"],
        );
        keys(&cairn)
    });
    let (one, four, other) = (sets.next().unwrap(), sets.next().unwrap(), sets.next().unwrap());
    assert!(one.iter().all(|key| key.len() == 20 && key.bytes().all(|b| b.is_ascii_digit())));
    assert_eq!(one, four);
    assert_ne!(one, other);
}

#[test]
fn a_fill_begins_anew_unless_told_otherwise() {
    let cairn = Cairn::new();
    bench(&cairn, "fillseq", &["--num", "100"]);
    bench(&cairn, "fillseq", &["--num", "50", "--use-existing"]);
    assert_eq!(keys(&cairn).len(), 100);
    bench(&cairn, "fillseq", &["--num", "50"]);
    assert_eq!(keys(&cairn).len(), 50);
    // The same with an empty directory, and with one that does not exist yet.
    fs::create_dir(cairn.path("empty")).unwrap();
    for name in ["empty", "new/deep"] {
        let path = cairn.path(name);
        cairn.ok("bench", &["--db", path.to_str().unwrap(), "--workloads", "fillseq", "--num", "10"]);
    }
}

/// The files of a directory, by name.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.display().to_string(), fs::read(&path).unwrap_or_default())
    };
    let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(entry).collect();
    all.sort();
    all
}

#[test]
fn directories_of_others_are_left_alone() {
    let cairn = Cairn::new();
    let fill = ["--workloads", "fillrandom", "--num", "100"];
    let refused = |what: &[&str]| {
        let before = contents(&cairn.db());
        cairn.run("bench", &fill).fails(2, what);
        assert_eq!(contents(&cairn.db()), before);
    };
    // A database that bench did not create.
    cairn.ok("put", &["key", "value"]);
    refused(&["that bench did not make", "--use-existing"]);
    assert_eq!(cairn.ok("get", &["key"]), "value\n");
    fs::remove_dir_all(cairn.db()).unwrap();
    // A directory with other files.
    fs::create_dir(cairn.db()).unwrap();
    fs::write(cairn.db().join("thesis.tex"), "years of work").unwrap();
    refused(&["\"thesis.tex\""]);
    fs::remove_file(cairn.db().join("thesis.tex")).unwrap();
    // A database that bench filled, with other entries added: a file, a directory.
    bench(&cairn, "fillseq", &["--num", "10"]);
    fs::write(cairn.db().join("000001.tbl.bak"), "").unwrap();
    refused(&["\"000001.tbl.bak\""]);
    fs::remove_file(cairn.db().join("000001.tbl.bak")).unwrap();
    fs::create_dir(cairn.db().join("wal-000009.log")).unwrap();
    refused(&["\"wal-000009.log\""]);
    fs::remove_dir(cairn.db().join("wal-000009.log")).unwrap();
    bench(&cairn, "fillseq", &["--num", "10"]);
    // A database that is open.
    let db = cairn::Database::open(cairn.db()).unwrap();
    let before = contents(&cairn.db());
    cairn.run("bench", &fill).fails(4, &[]);
    assert_eq!(contents(&cairn.db()), before);
    db.close().unwrap();
}

#[test]
fn wrong_arguments_are_told_before_anything_happens() {
    let cairn = Cairn::new();
    cairn
        .run("bench", &["--workloads", "fillseq", "--num", "1001", "--key-size", "3"])
        .fails(2, &["--key-size 3"]);
    cairn.run("bench", &["--workloads", "fillseq", "--value-size", "300000000"]).fails(2, &["--value-size"]);
    cairn.run("bench", &["--workloads", "fillseq", "--set", "blok=1"]).fails(2, &["blok"]);
    cairn.run("bench", &["--workloads", "readrandom"]).fails(2, &["readrandom needs a database"]);
    cairn.run("bench", &["--workloads", "ycsb-a"]).fails(2, &["--workloads ycsb-load,ycsb-a"]);
    cairn
        .run("bench", &["--workloads", "fillseq,ycsb-a"])
        .fails(2, &["ycsb-a needs other keys", "ycsb-load"]);
    cairn.run("bench", &["--workloads", "ycsb-load", "--key-size", "20"]).fails(2, &["24 bytes"]);
    for args in [["--workloads", "fillsq"], ["--num", "0"], ["--threads", "0"], ["--value-size", "9:50 8:51"]]
    {
        assert_eq!(cairn.run("bench", &args).code, 2);
    }
    assert!(!cairn.db().exists());
}

#[test]
fn a_wrong_value_ends_the_run() {
    let cairn = Cairn::new();
    bench(&cairn, "fillseq", &["--num", "100"]);
    bench(&cairn, "readseq", &["--num", "100"]);
    cairn.ok("put", &["--keyspace", "bench", "0000000000000000", "not a value of the benchmark"]);
    cairn
        .run("bench", &["--workloads", "readseq", "--num", "100"])
        .fails(3, &["readseq", "0000000000000000", "not one that was written"]);
}
