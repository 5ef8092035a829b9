//! Metrics in the text format of Prometheus, and events.

use crate::child;
use cairn::env::SimEnv;
use cairn::{Database, Durability, KeyspaceOptions, Options, Preset, Retention};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, Subscriber, span};

/// The samples of a text by name and labels, which must be as the format asks: lines of a metric together, after its help and its type, each sample once.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut metrics, mut metric) = (BTreeMap::new(), BTreeSet::new(), "");
    let mut is_histogram = false;
    let mut lines = text.lines();
    assert!(text.ends_with('\n'));
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            is_histogram = kind == "histogram";
            assert!(name.starts_with("cairn_") && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            assert!(help.ends_with('.') && metrics.insert(name), "{line}");
            metric = name;
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let mut labels = sample.strip_prefix(metric).unwrap_or_else(|| panic!("{line} is no {metric}"));
        if is_histogram {
            let parts = ["_bucket", "_sum", "_count"];
            labels = parts.iter().find_map(|part| labels.strip_prefix(part)).unwrap();
        }
        assert!(labels.is_empty() || labels.starts_with('{') && labels.ends_with("\"}"), "{line}");
        let value: f64 = value.parse().unwrap();
        assert!(value >= 0.0 && value.is_finite(), "{line}");
        assert_eq!(samples.insert(sample.to_string(), value), None, "{line}");
    }
    samples
}

#[test]
fn metrics_are_in_the_text_format_and_say_what_the_statistics_say() {
    let db = Database::open_in(SimEnv::new(1), "/db", Options::default().background_threads(0)).unwrap();
    let small = |preset| KeyspaceOptions::preset(preset).memtable_bytes(8 << 10);
    let odd = db.create_keyspace("a \"b\"\\\n", small(Preset::Parallax)).unwrap();
    let past = db.create_keyspace("past", small(Preset::Balanced).history(Retention::All)).unwrap();
    let hashed = db.create_keyspace("hashed", small(Preset::HashLog)).unwrap();
    for round in 0..3 {
        for n in 0..200u32 {
            [&odd, &past, &hashed].iter().for_each(|k| k.put(n.to_be_bytes(), vec![round; 300]).unwrap());
        }
        db.flush().unwrap();
    }
    odd.compact().unwrap();
    (0..200u32).for_each(|n| assert!(past.get(n.to_be_bytes()).unwrap().is_some()));
    let begun = odd.iter();
    let samples = parse(&db.metrics());
    let stats = db.stats();
    let of = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("no {name} in {samples:#?}"));
    assert_eq!(of("cairn_user_writes_total"), 1800.0);
    assert_eq!(of("cairn_keyspaces"), 3.0);
    assert_eq!(of("cairn_cursors"), 1.0);
    assert_eq!(of("cairn_jobs_total{job=\"flush\"}"), stats.flush.jobs as f64);
    assert_eq!(of("cairn_stalls_total{reason=\"log\"}"), 0.0);
    assert_eq!(of("cairn_memory_bytes{part=\"cache\"}"), stats.memory.cache as f64);
    let odd_labels = r#"keyspace="a \"b\"\\\n",tree="newest""#;
    let levels = &stats.keyspaces.iter().find(|k| k.name == odd.name()).unwrap().levels;
    for level in levels {
        let name = format!("cairn_level_bytes{{{odd_labels},level=\"{}\"}}", level.level);
        assert_eq!(of(&name), level.bytes as f64);
    }
    assert!(of("cairn_table_bytes{keyspace=\"past\",tree=\"newest\"}") > 0.0);
    assert!(samples.contains_key("cairn_table_bytes{keyspace=\"past\",tree=\"older\"}"));
    assert!(!samples.contains_key("cairn_table_bytes{keyspace=\"hashed\",tree=\"older\"}"));
    assert!(of("cairn_index_entries{keyspace=\"hashed\",tree=\"newest\"}") >= 200.0);
    assert!(
        samples
            .keys()
            .any(|name| name.starts_with(&format!("cairn_compactions_total{{{odd_labels},reason=")))
    );
    drop(begun);
    let lookups = |result: &str| {
        let wanted = format!("result=\"{result}\"");
        let mine = samples
            .iter()
            .filter(|(name, _)| name.starts_with("cairn_cache_lookups") && name.contains(&wanted));
        mine.map(|(_, n)| n).sum::<f64>()
    };
    assert!(lookups("hit") + lookups("miss") > 0.0);
}

/// Calls each operation 128,000 times, of which about 2,000 are measured: 220 more or less are five standard deviations. Without one of the six ways
/// to get a value they would be 333 less.
#[test]
fn the_times_of_calls_are_in_the_statistics_and_the_metrics() {
    let db = Database::open_in(SimEnv::new(1), "/db", Options::default().background_threads(0)).unwrap();
    let users = db.create_keyspace("users", KeyspaceOptions::default()).unwrap();
    assert_eq!(db.stats().latency, Default::default());
    let calls = 128_000u32;
    let (key, is_about) = (|n: u32| (n % 100).to_be_bytes(), |samples: u64| (1780..=2220).contains(&samples));
    (0..calls).for_each(|n| users.put(key(n), "value").unwrap());
    let wrote = db.stats().latency;
    assert!(is_about(wrote.write.samples()), "{wrote:?}");
    let snapshot = db.snapshot();
    let mut cursor = users.cursor();
    for n in 0..calls {
        match n % 6 {
            0 => drop(users.get(key(n)).unwrap()),
            1 => drop(users.get_with_expiry(key(n)).unwrap()),
            2 => drop(users.contains(key(n)).unwrap()),
            3 => drop(snapshot.get(&users, key(n)).unwrap()),
            4 => drop(snapshot.contains(&users, key(n)).unwrap()),
            _ => db.transaction(|tx| tx.get(&users, key(n)).map(drop)).unwrap(),
        }
        match n % 3 {
            0 => cursor.seek(key(n)).unwrap(),
            1 => cursor.seek_for_prev(key(n)).unwrap(),
            _ => assert!(users.iter().next_back().is_some()),
        }
        match n % 3 {
            0 => drop(users.multi_get(&[key(n)]).unwrap()),
            1 => drop(snapshot.multi_get(&users, &[key(n)]).unwrap()),
            _ => db.transaction(|tx| tx.multi_get(&users, &[key(n)]).map(drop)).unwrap(),
        }
        match n % 4 {
            0 => users.put_with(key(n), "value", Durability::Sync).unwrap(),
            1 => users.delete_with(key(n + 1), Durability::Sync).unwrap(),
            2 => users.put_with(key(n - 1), "value", Durability::Sync).unwrap(),
            _ => {
                let mut batch = db.batch();
                batch.put(&users, key(n), "value");
                db.write(batch, Durability::Sync).unwrap();
            }
        }
    }
    let latency = db.stats().latency;
    for (operation, histogram) in latency.operations() {
        assert!(is_about(histogram.samples()), "{operation}: {histogram:?}");
        let [half, most, max] = [0.5, 0.99, 1.0].map(|quantile| histogram.quantile(quantile));
        assert!(!half.is_zero() && half <= most && most <= max && max == histogram.max(), "{histogram:?}");
        assert!(histogram.mean() <= max, "{operation}: {histogram:?}");
    }
    assert_eq!(latency.write, wrote.write);
    assert!(latency.write.since(&wrote.write).samples() == 0);
    let samples = parse(&db.metrics());
    let of = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("no {name} in {samples:#?}"));
    for (operation, histogram) in latency.operations() {
        let calls = of(&format!("cairn_operation_seconds_count{{operation=\"{operation}\"}}"));
        assert_eq!(calls, histogram.calls() as f64);
        let bucket =
            |le: &str| format!("cairn_operation_seconds_bucket{{operation=\"{operation}\",le=\"{le}\"}}");
        assert_eq!(of(&bucket("+Inf")), calls);
        // A power of two of nanoseconds.
        assert_eq!(of(&bucket("34.359738368")), calls);
        assert!(of(&bucket("0.000000256")) <= of(&bucket("0.001048576")));
        let sum = of(&format!("cairn_operation_seconds_sum{{operation=\"{operation}\"}}"));
        assert!((sum / calls - histogram.mean().as_secs_f64()).abs() < 1e-8);
    }
    assert!(db.stats().to_string().contains("sync_write      half within "));
}

/// Collects the events of this thread: level, message and fields.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Event>>>);

type Event = (Level, String, BTreeMap<String, String>);

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_string(), format!("{value:?}"));
    }
}

impl Subscriber for Events {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap();
        self.0.lock().unwrap().push((*event.metadata().level(), message, fields.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn each_job_tells_of_its_end_in_fields() {
    // Alone: what is enabled is known to the process, and other tests have no subscriber.
    if child::dir().is_none() {
        return child::run(each_job_tells_of_its_end_in_fields);
    }
    let events = Events::default();
    let sim = SimEnv::new(1);
    let options = Options::default().background_threads(0).value_garbage_percent(10);
    let small = KeyspaceOptions::preset(Preset::Parallax).level0_tables(2);
    tracing::subscriber::with_default(events.clone(), || {
        let db = Database::open_in(sim.clone(), "/db", options).unwrap();
        let users = db.create_keyspace("users", small).unwrap();
        for round in 0..6u8 {
            // The first log stays half alive.
            let first = if round == 0 { 0 } else { 25 };
            (first..50u32).for_each(|n| users.put(n.to_be_bytes(), vec![round; 4_000]).unwrap());
            db.flush().unwrap();
        }
        users.compact().unwrap();
        db.wait_idle().unwrap();
        users.alter(|options| options.block_size(1024)).unwrap();
        db.rename_keyspace("users", "people").unwrap();
        drop(db.clone_keyspace("people", "others").unwrap());
        db.drop_keyspace("others").unwrap();
        let loaded = db.create_keyspace("loaded", KeyspaceOptions::default()).unwrap();
        loaded.ingest([("a", "1"), ("b", "2")]).unwrap();
        db.checkpoint("/copy").unwrap();
        db.backup("/backup").unwrap();
        db.close().unwrap();
    });
    let events = events.0.lock().unwrap();
    let all = |message: &str| events.iter().filter(|event| event.1 == message).collect::<Vec<_>>();
    for (message, level, times, fields) in [
        ("opened", Level::INFO, 1..=1, &["path", "keyspaces", "last_seq", "seconds"][..]),
        ("flush", Level::DEBUG, 6..=20, &["keyspace", "tables_written", "bytes_written", "seconds"]),
        ("compaction", Level::DEBUG, 1..=20, &["keyspace", "reason", "from_level", "to_level", "bytes_read"]),
        ("collection", Level::DEBUG, 1..=20, &["files_read", "bytes_read", "bytes_written", "seconds"]),
        ("keyspace created", Level::INFO, 2..=2, &["keyspace"]),
        ("keyspace altered", Level::INFO, 1..=1, &["keyspace", "changes"]),
        ("keyspace renamed", Level::INFO, 1..=1, &["keyspace", "new_name"]),
        ("keyspace cloned", Level::INFO, 1..=1, &["keyspace", "clone"]),
        ("keyspace dropped", Level::INFO, 1..=1, &["keyspace"]),
        ("bulk load", Level::INFO, 1..=1, &["seq", "entries", "tables", "bytes", "seconds"]),
        ("checkpoint", Level::INFO, 1..=1, &["to", "seq", "files", "bytes", "copied_bytes"]),
        ("backup", Level::INFO, 1..=1, &["to", "generation", "seq", "files"]),
        ("closed", Level::INFO, 1..=1, &["path", "last_seq"]),
    ] {
        let found = all(message);
        assert!(times.contains(&found.len()), "{} times {message}", found.len());
        for event in found {
            assert_eq!(event.0, level, "{message}");
            assert!(fields.iter().all(|field| event.2.contains_key(*field)), "{event:?}");
        }
    }
    assert_eq!(all("keyspace altered")[0].2["changes"], "\"block_size=1024\"");
    assert_eq!(all("bulk load")[0].2["entries"], "2");
    let written = |message: &str| -> u64 {
        all(message).iter().map(|event| event.2["bytes_written"].parse::<u64>().unwrap()).sum()
    };
    assert!(written("flush") > 0 && written("compaction") > 0);
    child::done();
}
