//! Runs groups on Cairn, small, and looks at what is reported.

use bench::engine::{Kind, RequestedSettings};
use bench::record::Record;
use bench::session::{Event, run_group};
use bench::suite::{Adjust, Group, Scale, groups};
use bench::workload::Workload;

fn cairn() -> Kind {
    bench::engines::all().into_iter().find(|kind| kind.name == "cairn").unwrap()
}

/// All groups, so small that each takes a moment.
fn small() -> Vec<Group> {
    groups(Scale::Quick, &Adjust { factor: Some(0.01), ..Adjust::default() })
}

fn group(name: &str) -> Group {
    small().into_iter().find(|group| group.name == name).unwrap()
}

fn run(group: &Group) -> Vec<Record> {
    let dir = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    let requested = RequestedSettings { memtable_bytes: 64 << 10, ..RequestedSettings::new(group) };
    run_group(&cairn(), group, &requested, dir.path(), 1, &mut |event| {
        if let Event::Done(record) = event {
            records.push(*record);
        }
    })
    .unwrap();
    records
}

fn looks_right(group: &Group, record: &Record) {
    let what = format!("{} of {}: {record:?}", record.workload, group.name);
    assert_eq!((record.engine.as_str(), &record.group, record.round), ("cairn", &group.name, 1), "{what}");
    assert!(record.ops > 0 && record.seconds > 0.0, "{what}");
    let settles = group.steps.iter().any(|step| step.name() == record.workload && step.settles);
    match settles {
        true => assert!(record.settled_seconds >= record.seconds, "{what}"),
        false => assert_eq!((record.settled_seconds, record.settled_ops_per_s), (0.0, 0.0), "{what}"),
    }
    let is_timed =
        group.steps.iter().any(|step| step.name() == record.workload && step.timed && !record.cut_short);
    let ends_early = record.cut_short || is_timed || record.workload.starts_with("read");
    assert!(record.ops == record.ops_asked || ends_early, "{what}");
    let lat = &record.lat_us;
    assert!(lat.p50 > 0.0 && [lat.p50, lat.p95, lat.p99, lat.p999, lat.max].is_sorted(), "{what}");
    assert!(record.curve_us.last().is_some_and(|last| (last.1 - lat.max).abs() < 1.0), "{what}");
    let ops: u64 = record.samples.iter().map(|sample| sample.ops).sum();
    assert!(ops <= record.ops && ops + record.ops / 10 + 100 >= record.ops, "{ops} in samples: {what}");
    assert!(
        record.space_bytes > 0 && record.cpu_seconds > 0.0 && !record.engine_settings.is_empty(),
        "{what}"
    );
    if cfg!(target_os = "linux") {
        assert!(record.read_bytes.is_some() && record.rss_peak_bytes.is_some(), "{what}");
        let looks = record.workload.starts_with("readrandom") || record.workload.starts_with("seekrandom");
        assert_eq!(record.disk_share.is_some(), record.disk_share_of > 0, "{what}");
        assert!(!looks || record.disk_share_of == (record.ops + 254) / 256, "{what}");
        assert!(record.disk_share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{what}");
    }
}

#[test]
fn every_workload_of_every_group() {
    let mut seen: Vec<String> = Vec::new();
    for group in small() {
        let records = run(&group);
        assert_eq!(records.len(), group.steps.len(), "{}", group.name);
        for (record, step) in records.iter().zip(&group.steps) {
            looks_right(&group, record);
            assert_eq!(record.workload, step.name());
            assert_eq!(record.contents.is_some(), step.sum_up, "{}", record.workload);
            seen.push(step.workload.name().to_string());
        }
    }
    for workload in Workload::ALL {
        assert!(seen.iter().any(|seen| seen == workload.name()), "no group runs {workload}");
    }
}

/// What the database holds in the end depends on the seed alone: neither on the number of threads nor on their speed.
#[test]
fn contents_follow_from_the_seed() {
    let contents = |group: &Group| {
        let records = run(group);
        records.iter().filter_map(|record| record.contents).collect::<Vec<_>>()
    };
    for name in ["dbbench-128", "ycsb", "parallax-md", "history-zipf", "history-uniform", "report", "aging"] {
        let (once, again) = (contents(&group(name)), contents(&group(name)));
        assert!(!once.is_empty() && once.iter().all(|contents| contents.entries > 0), "{name}: {once:?}");
        assert_eq!(once, again, "{name}");
        let other = contents(&Group { seed: 1, ..group(name) });
        assert_ne!(once, other, "{name}");
    }
    // Without inserts beside updates, which thread makes which operation changes nothing.
    let mut one_thread = group("parallax-ld");
    one_thread.steps.iter_mut().for_each(|step| step.threads = 1);
    assert_eq!(contents(&group("parallax-ld")), contents(&one_thread));
}

/// What `readwhilewriting` writes is what `overwrite` wrote: the database is the same afterwards.
#[test]
fn the_writer_beside_readers_changes_nothing() {
    let whole = group("dbbench-128");
    let mut without = whole.clone();
    without.steps.truncate(1 + without.steps.iter().position(|s| s.workload == Workload::Overwrite).unwrap());
    without.steps.last_mut().unwrap().sum_up = true;
    let overwritten = run(&without).pop().unwrap().contents;
    let records = run(&whole);
    let of = |name: &str| records.iter().find(|record| record.workload == name).unwrap();
    assert_eq!(of("readwhilewriting").contents, overwritten);
    assert_ne!(of("fillrandom").contents, overwritten);
    assert!(of("readwhilewriting").writer.unwrap().ops > 0);
    assert_eq!(of("readmissing").found, 0);
}

/// Every key of the fill is there once, so every read finds its key; and records say how many there are.
#[test]
fn the_fill_puts_every_key_once() {
    for name in
        ["dbbench-128", "dbbench-128-memory", "dbbench-128-4x", "dbbench-1024", "readwhilewriting-1024"]
    {
        let group = group(name);
        let records = run(&group);
        let fill = &records[0];
        assert_eq!(fill.contents.unwrap().entries, group.num, "{name}");
        let size = (group.key_size + group.sizes.max()) as u64;
        for record in &records {
            let what = format!("{name}, {record:?}");
            match record.workload.as_str() {
                "readmissing" => assert_eq!(record.found, 0, "{what}"),
                "readrandom" | "readwhilewriting" | "seekrandom" | "seekrandom-50" => {
                    assert_eq!(record.found, record.ops, "{what}");
                }
                _ => {}
            }
            if record.workload == "deleterandom" {
                assert!(record.distinct_keys.is_some_and(|keys| keys < group.num), "{what}");
            } else {
                assert_eq!(record.distinct_keys, Some(group.num), "{what}");
                assert_eq!(record.data_bytes, Some(group.num * size), "{what}");
            }
        }
    }
}

/// After deletes and inserts with uncounted results, the number of keys is unknown.
#[test]
fn keys_that_were_not_counted_are_not_told() {
    let mut group = group("dbbench-128");
    group.steps.iter_mut().for_each(|step| step.sum_up = false);
    for record in run(&group) {
        assert_eq!(record.distinct_keys.is_none(), record.workload == "deleterandom", "{record:?}");
    }
}

/// Several writers beside several readers: together they repeat the `overwrite`, whatever part each has.
#[test]
fn writers_share_what_they_put() {
    let mut group = group("dbbench-128");
    let overwrite = group.steps.iter().position(|step| step.workload == Workload::Overwrite).unwrap();
    group.steps.truncate(overwrite + 2);
    group.steps[overwrite].sum_up = true;
    (group.steps[overwrite + 1].threads, group.steps[overwrite + 1].writers) = (2, 3);
    let records = run(&group);
    let (before, beside) = (&records[overwrite], &records[overwrite + 1]);
    assert_eq!(beside.workload, "readwhilewriting");
    assert_eq!(beside.contents, before.contents);
    assert_eq!((beside.ops, beside.settings.threads, beside.settings.writers), (beside.ops_asked, 2, 3));
    assert!(beside.writer.unwrap().ops >= 3, "each writer puts");
}

#[test]
fn time_cuts_a_workload_short() {
    let mut group = group("dbbench-128");
    group.seconds_max = Some(0.01);
    group.steps.truncate(2);
    group.steps.iter_mut().for_each(|step| step.ops = u64::MAX);
    for record in run(&group) {
        assert!(record.cut_short && record.ops < record.ops_asked, "{record:?}");
        assert!(record.seconds < 5.0);
    }
}

/// Behind a fill that was cut short, operations are about the keys that it put.
#[test]
fn reads_find_what_a_fill_put_that_was_cut_short() {
    use Workload::*;
    let mut group = group("dbbench-128");
    group
        .steps
        .retain(|step| matches!(step.workload, FillRandom | ReadRandom | Overwrite | ReadWhileWriting));
    group.seconds_max = Some(0.1);
    group.num = 100_000_000;
    group.steps.iter_mut().for_each(|step| step.num = group.num);
    group.steps[0].ops = group.num;
    let [fill, read, overwrite, beside] = &run(&group)[..] else { panic!() };
    assert!(fill.cut_short && fill.ops < group.num && overwrite.ops > 0, "{fill:?}");
    for record in [read, beside] {
        assert!(record.ops > 0 && record.found == record.ops, "{record:?}");
    }
}

#[test]
fn kinds_of_operations_are_told_apart() {
    let records = run(&group("ycsb"));
    let kinds = |name: &str| {
        let record = records.iter().find(|record| record.workload == name).unwrap();
        record.lat_us_by_kind.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(kinds("ycsb-a"), ["read", "update"]);
    assert_eq!(kinds("ycsb-e"), ["insert", "scan"]);
    assert_eq!(kinds("ycsb-f"), ["modify", "read"]);
    assert!(kinds("ycsb-c").is_empty());
}

/// Contents that depend on the speed of an engine are not hashed, because they must not be compared.
#[test]
fn contents_are_compared_only_where_they_must_agree() {
    let mut group = group("dbbench-128");
    group.steps.retain(|step| step.workload != Workload::Overwrite);
    let summed_up = |records: &[Record]| {
        let with = records.iter().filter(|record| record.contents.is_some());
        with.map(|record| record.workload.clone()).collect::<Vec<_>>()
    };
    assert_eq!(summed_up(&run(&group)), ["fillrandom"]);
    group.seconds_max = Some(0.002);
    assert!(summed_up(&run(&group)).is_empty());
}
