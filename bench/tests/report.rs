//! Reports of made-up results: what must be in them, and that they are sound.

use bench::record::{Contents, FileLengths, Latency, Line, Record, RunInfo, Sample, Settings};
use bench::report::{Written, write, write_brief, write_papers};
use bench::suite::{Adjust, Scale, groups};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A name with everything in it that HTML, SVG and Markdown must not take for their own.
const NASTY: &str = "<b>\"R&D\" | `x`</b>";

fn result(engine: &str, group: &str, workload: &str, round: u32, ops_per_s: f64) -> Record {
    Record {
        engine: engine.into(),
        engine_version: "1.2.3".into(),
        group: group.into(),
        workload: workload.into(),
        round,
        ops: 1_000_000,
        ops_asked: 1_000_000,
        seconds: 1e6 / ops_per_s,
        ops_per_s,
        settled_ops_per_s: ops_per_s * 0.8,
        lat_us: Latency { mean: 4.0, p50: 3.0, p95: 9.0, p99: 20.0, p999: 120.0, max: 9000.0 },
        curve_us: vec![(0.0, 1.0), (0.5, 3.0), (0.99, 20.0), (1.0, 9000.0)],
        write_amp: Some(3.25),
        read_bytes: Some(512_000_000),
        disk_reads: Some(120_000),
        disk_share: Some(0.115),
        distinct_keys: Some(3_000_000),
        data_bytes: Some(3 << 30),
        cpu_seconds: 4.0,
        space_bytes: 1 << 30,
        contents: Some(Contents { entries: 7, bytes: 1 << 29, checksum: 0xabcd }),
        engine_settings: BTreeMap::from([("block_size".to_string(), "4096 (default)".to_string())]),
        ..Record::default()
    }
}

fn line(record: Record) -> Line {
    Line::Result(Box::new(record))
}

fn info() -> Line {
    let engines = [("cairn", "Cairn"), ("rocksdb", "RocksDB"), ("lmdb", "LMDB")];
    Line::Run(RunInfo {
        started: "2026-03-01 12:00 UTC".into(),
        scale: "quick".into(),
        rounds: 3,
        cpu: "A processor".into(),
        cpus: 2,
        engines: engines.into_iter().map(|(name, title)| (name.to_string(), title.to_string())).collect(),
        warnings: vec![format!("no memory limit: {NASTY}")],
        ..RunInfo::default()
    })
}

/// Three engines, two workloads, three rounds; LMDB has no `seekrandom`, was cut short once, and failed elsewhere.
fn small() -> Vec<Line> {
    let mut lines = vec![info()];
    for (round, factor) in (1..=3).zip([1.0, 1.3, 0.9]) {
        for (engine, rate) in [("cairn", 400_000.0), ("rocksdb", 200_000.0), ("lmdb", 30_000.0)] {
            let mut record = result(engine, "g", "fillrandom", round, rate * factor);
            if engine == "lmdb" && round == 2 {
                (record.ops, record.cut_short) = (123_000, true);
                record.contents = None;
            }
            lines.push(line(record));
            if engine != "lmdb" {
                let rate = if engine == "cairn" { 50_000.0 } else { 80_000.0 };
                lines.push(line(result(engine, "g", "seekrandom", round, rate * factor)));
            }
        }
    }
    let message = format!("out of space {NASTY}");
    lines.push(Line::Failure { engine: "lmdb".into(), group: "other".into(), round: 1, message });
    lines
}

struct Report {
    page: String,
    tables: String,
    written: Written,
    _dir: Option<tempfile::TempDir>,
}

impl Report {
    fn of(lines: &[Line]) -> Report {
        let dir = tempfile::tempdir().unwrap();
        let report = Report::into(lines, &dir.path().join("new/deep"));
        Report { _dir: Some(dir), ..report }
    }

    fn into(lines: &[Line], dir: &Path) -> Report {
        let written = write(lines, dir).unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let (page, tables) = (read(&written.page), read(written.tables.as_ref().unwrap()));
        Report { page, tables, written, _dir: None }
    }

    fn pictures(&self) -> impl Iterator<Item = (String, String)> {
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let svg = self
            .written
            .pictures
            .iter()
            .filter(|path| path.extension().is_some_and(|ending| ending == "svg"));
        svg.map(move |path| (name(path), fs::read_to_string(path).unwrap()))
    }
}

/// Every tag that is opened is closed, in order; quotes end; nothing is fetched from elsewhere.
fn assert_sound(text: &str, what: &str) {
    const VOID: [&str; 4] = ["meta", "br", "!DOCTYPE", "link"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let mut quoted = false;
        let end = rest.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let tag = &rest[..end.unwrap_or_else(|| panic!("{what}: a tag has no end: {rest:.80}"))];
        rest = &rest[tag.len() + 1..];
        let name = tag.split([' ', '\n']).next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{what}: closed in the wrong order, before {rest:.80}");
        } else if !VOID.contains(&name) {
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{what}: <{tag}> is no tag");
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{what}: left open: {open:?}");
    let without = text.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "src=", "@import", "<script", "<link"] {
        assert!(!without.contains(outside), "{what}: {outside}");
    }
    assert!(
        !text.contains("NaN") && !text.contains("inf,") && !text.contains("\"inf\""),
        "{what}: not a number"
    );
}

/// What is between these, the first time.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let start = text.find(from).unwrap_or_else(|| panic!("{from} is missing")) + from.len();
    &text[start..start + text[start..].find(to).unwrap_or_else(|| panic!("{to} is missing"))]
}

#[test]
fn the_page_tells_all() {
    let report = Report::of(&small());
    assert_sound(&report.page, "page");
    for words in
        ["Cairn", "RocksDB", "LMDB", "1.2.3", "A processor", "2026-03-01", "block_size", "4096 (default)"]
    {
        assert!(report.page.contains(words), "{words}");
    }
    assert!(!report.page.contains("<b>"), "text is escaped");
    assert!(report.page.contains("no memory limit: &lt;b&gt;"), "warnings are shown");
    let failures = between(&report.page, "Failures</h2>", "</section>");
    assert!(
        failures.contains("LMDB") && failures.contains("other") && failures.contains("out of space"),
        "{failures}"
    );
    let files: Vec<String> = report.pictures().map(|(name, _)| name).collect();
    for file in [
        "main.svg",
        "overview.svg",
        "g-throughput.svg",
        "g-latency.svg",
        "g-cpu.svg",
        "g-write-amplification.svg",
    ] {
        assert!(files.iter().any(|name| name == file), "{file} is not among {files:?}");
    }
    report.pictures().for_each(|(name, svg)| assert_sound(&svg, &name));
}

#[test]
fn medians_and_ratios() {
    let report = Report::of(&small());
    let summary = between(&report.page, "All workloads</h3>", "</table>");
    let row = between(summary, ">fillrandom</th>", "</tr>");
    // 400 k times 1, 1.3 and 0.9; the others likewise.
    assert!(row.contains("★ </span>400 k<small>360 to 520 k</small>"), "{row}");
    assert!(row.contains("200 k<small>180 to 260 k</small><small>0.50×</small>"), "{row}");
    assert!(row.contains("<small>0.12 disk reads/op</small>"), "{row}");
    assert!(row.contains("3.00 M keys"), "{row}");
    assert!(row.contains("30.0 k") && row.contains("0.075×"), "{row}");
    assert!(row.contains("† stopped after") && row.contains("123 k of 1.00 M operations"), "{row}");
    let row = between(summary, ">seekrandom</th>", "</tr>");
    assert!(row.contains("★ </span>80.0 k"), "{row}");
    assert!(row.contains("class=\"missing\">not run<"), "a gap, and no zero: {row}");
    assert!(row.contains("0.62×<small>RocksDB</small>"), "{row}");
}

#[test]
fn tables_tell_what_came_from_the_disk() {
    let mut lines = small();
    for line in &mut lines {
        if let Line::Result(record) = line {
            record.settings.memory_limit_bytes = Some(2 << 30);
            if record.engine == "rocksdb" {
                (record.disk_reads, record.disk_share) = (None, None);
            }
        }
    }
    let tables = Report::of(&lines).tables;
    let fill = between(&tables, "## g: fillrandom\n\n", "\n\n");
    let rows: Vec<Vec<&str>> =
        fill.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let column = |head: &str| {
        rows[0].iter().position(|cell| *cell == head).unwrap_or_else(|| panic!("{head}: {fill}"))
    };
    let row = |engine: &str| rows.iter().find(|row| row[0] == engine).unwrap();
    for (head, cairn, rocksdb) in [
        ("disk reads/op", "0.12", "–"),
        ("ops from disk", "11.5 %", "–"),
        ("B read/op", "512 B", "512 B"),
        ("keys", "3.00 M", "3.00 M"),
        ("data / memory", "1.50×", "1.50×"),
    ] {
        assert_eq!((row("Cairn")[column(head)], row("RocksDB")[column(head)]), (cairn, rocksdb), "{head}");
    }
    let summary = between(&tables, "| workload | data / memory |", "\n\n");
    assert!(summary.contains("| g: fillrandom | 1.50×<br>3.00 M keys |"), "{summary}");
    assert!(summary.contains("<br>0.12 disk reads/op"), "{summary}");
}

#[test]
fn tables_begin_with_the_weakest() {
    let tables = Report::of(&small()).tables;
    let (seek, fill) = (tables.find("g: seekrandom").unwrap(), tables.find("g: fillrandom").unwrap());
    assert!(seek < fill, "{tables}");
    assert!(tables.contains("**★ 400 k**<br>360 to 520 k"), "{tables}");
    assert!(tables.contains("&lt;b&gt;\"R&amp;D\" \\| \\`x\\`"), "text is escaped");
    for table in tables.split("\n\n").filter(|part| part.starts_with('|')) {
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let wrong = table.lines().find(|line| columns(line) != columns(table.lines().next().unwrap()));
        assert_eq!(wrong, None, "rows are as wide as the head");
    }
}

#[test]
fn what_was_cut_short_is_marked_in_pictures() {
    let report = Report::of(&small());
    let (_, svg) = report.pictures().find(|(name, _)| name == "g-throughput.svg").unwrap();
    assert!(svg.contains("† LMDB: stopped after") && svg.contains("30.0 k †"), "{svg}");
    assert!(svg.contains("not run"), "{svg}");
}

#[test]
fn contents_are_compared() {
    let verdict = |lines: &[Line]| {
        between(&Report::of(lines).page, "counted and hashed.</p>", "</section>").to_string()
    };
    let all_agree = verdict(&small());
    assert!(
        all_agree.contains("All agree: in all 6 comparisons"),
        "the one cut short does not count: {all_agree}"
    );
    assert!(all_agree.contains("one run that the time limit cut short"), "{all_agree}");

    let mut spoilt = small();
    let other = spoilt.iter_mut().find_map(|line| match line {
        Line::Result(record) if record.engine == "rocksdb" && record.round == 3 => Some(record),
        _ => None,
    });
    other.unwrap().contents = Some(Contents { entries: 6, bytes: 1 << 29, checksum: 0x1234 });
    let differ = verdict(&spoilt);
    assert!(differ.contains("ENGINES DISAGREE in 1 of 6 comparisons"), "{differ}");
    assert!(differ.contains("g: fillrandom, round 3") && differ.contains("0000000000001234"), "{differ}");
    assert!(Report::of(&spoilt).page.contains("Failures</h2><ul><li>ENGINES DISAGREE"));
}

#[test]
fn odd_results_are_reported_as_well() {
    let empty = write(&[info()], Path::new("/nonexistent")).unwrap_err();
    assert!(empty.to_string().contains("nothing to report"), "{empty}");
    // One engine that is not Cairn, one round, no machine, and nothing but zeros; and a group that repeats a workload.
    let zeros = |round| Record { round, ..result("sled", "", "w", round, 0.0) };
    let report = Report::of(&[line(Record { cpu_seconds: 0.0, ..zeros(1) }), line(zeros(1))]);
    assert_sound(&report.page, "page");
    assert!(report.page.contains("w #2"));
    assert!(report.page.contains("do not say on which machine") && report.page.contains("one round only"));
    // Nothing but a failure.
    let failure = Line::Failure { engine: "lmdb".into(), group: "g".into(), round: 1, message: "no".into() };
    assert!(Report::of(&[info(), failure]).page.contains("did not finish"));
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = bench::generate::mix(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The whole suite on nine engines, in three rounds.
fn large() -> Vec<Line> {
    let engines = [
        ("cairn", "Cairn", 1.0),
        ("cairn-leveled", "Cairn, leveled", 0.8),
        ("cairn-pebblesdb", "Cairn, as in the PebblesDB paper", 0.9),
        ("rocksdb", "RocksDB", 0.85),
        ("rocksdb-blob", "RocksDB with blob files", 0.8),
        ("leveldb", "LevelDB", 0.5),
        ("fjall", "fjall", 0.7),
        ("redb", "redb", 0.1),
        ("lmdb", "LMDB", 0.6),
    ];
    let Line::Run(mut run) = info() else { unreachable!() };
    run.scale = "full".into();
    run.cpu = "AMD EPYC 7B13 64-Core Processor".into();
    run.memory_bytes = 24 << 30;
    run.memory_limit_bytes = Some(2 << 30);
    run.file_system = "ext4 on a virtual disk (/dev/vda), no discard".into();
    run.kernel = "Linux 6.1.0-30-amd64".into();
    run.commit = "12c3422, with changes".into();
    run.engines = engines.iter().map(|(name, title, _)| (name.to_string(), title.to_string())).collect();
    run.warnings = vec!["LevelDB cannot tell when it is settled; it is watched from outside.".into()];
    let mut lines = vec![Line::Run(run)];
    let mut dice = Dice(1);
    for group in groups(Scale::Full, &Adjust::default()) {
        for step in &group.steps {
            let rate = 10f64.powf(4.0 + 1.7 * dice.roll());
            for (engine, _, speed) in engines {
                if engine == "leveldb" && group.name.starts_with("history") {
                    continue;
                }
                let rate = rate * speed * (0.4 + dice.roll());
                for round in 1..=3 {
                    let rate = rate * (0.92 + 0.16 * dice.roll());
                    let mut record = result(engine, &group.name, &step.name(), round, rate);
                    let writes = dice.roll() > 0.4;
                    record.write_amp = writes.then(|| 1.5 + 8.0 * dice.roll());
                    record.io_amp = Some(2.0 + 20.0 * dice.roll());
                    record.rss_peak_bytes = Some((dice.roll() * 6e8) as u64);
                    record.busy_others = Some(dice.roll() * 0.06);
                    record.space_bytes = ((1.1 + dice.roll()) * (1u64 << 29) as f64) as u64;
                    record.cut_short = engine == "redb" && dice.roll() > 0.8;
                    if record.cut_short {
                        record.ops = 321_000;
                    }
                    let lat = 1e6 / rate;
                    record.lat_us = Latency {
                        mean: lat,
                        p50: lat * 0.8,
                        p95: lat * 3.0,
                        p99: lat * 8.0,
                        p999: lat * 40.0,
                        max: lat * 900.0,
                    };
                    let curve = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0];
                    let grow = |i: usize| lat * 0.4 * 3.1f64.powi(i as i32) * (0.8 + 0.4 * dice.roll());
                    let heights: Vec<f64> = (0..curve.len()).map(grow).collect();
                    record.curve_us = curve.into_iter().zip(heights).collect();
                    if group.name == "ycsb" {
                        record.lat_us_by_kind = [("read", record.lat_us), ("update", record.lat_us)]
                            .map(|(kind, lat)| (kind.to_string(), lat))
                            .into();
                    }
                    record.samples = samples(&mut dice, rate, lat);
                    record.settings = settings();
                    lines.push(line(record));
                }
            }
        }
    }
    let message = "the process was killed: it used more than its memory limit of 2 GiB".to_string();
    lines.push(Line::Failure { engine: "leveldb".into(), group: "history-zipf".into(), round: 1, message });
    lines
}

fn samples(dice: &mut Dice, rate: f64, lat: f64) -> Vec<Sample> {
    let mut write_bytes = 0.0;
    let sample = |i: u64| {
        let user_bytes = (i + 1) * 1_000_000;
        write_bytes += 1e6 * (2.0 + (i as f64 / 10.0).sqrt() + dice.roll());
        let (mean_us, p95_us, p99_us) =
            (lat * (1.0 + i as f64 / 80.0), lat * 4.0 * (1.0 + dice.roll()), lat * 9.0);
        let ops = (rate * (0.6 + 0.4 * dice.roll())) as u64;
        Sample {
            at: i as f64 + 1.0,
            ops,
            mean_us,
            p95_us,
            p99_us,
            user_bytes,
            write_bytes: write_bytes as u64,
            ..Sample::default()
        }
    };
    (0..40).map(sample).collect()
}

fn settings() -> Settings {
    Settings {
        num: 20_000_000,
        key_size: 16,
        value_sizes: "9:60 104:20 1004:20".into(),
        threads: 4,
        durability: "os".into(),
        memtable_bytes: 64 << 20,
        cache_bytes: 256 << 20,
        background_threads: 2,
        filter_bits_per_key: 10,
        memory_limit_bytes: Some(2 << 30),
        sample_seconds: 1.0,
        ..Settings::default()
    }
}

/// The page that a repository keeps is small, leads nowhere that is not there, and takes the place of the one before.
#[test]
fn the_kept_page_is_small_and_replaces_itself() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("results");
    let names = || -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    // What one makes to keep: Cairn and two peers, the groups that the documents name.
    let kept: Vec<Line> = large()
        .into_iter()
        .filter(|line| match line {
            Line::Result(record) => {
                ["cairn", "rocksdb", "leveldb"].contains(&record.engine.as_str())
                    && ["dbbench", "sequential", "readwhilewriting", "ycsb", "growth"]
                        .contains(&record.group.split('-').next().unwrap())
            }
            _ => true,
        })
        .collect();
    write_brief(&kept, &dir).unwrap();
    assert_eq!(names(), ["README.md", "growth-cost.svg", "main.svg", "overview.svg", "tables.md"]);
    let bytes: u64 = names().iter().map(|name| dir.join(name).metadata().unwrap().len()).sum();
    assert!(bytes < 300_000, "{bytes} bytes");
    let page = fs::read_to_string(dir.join("README.md")).unwrap();
    for words in [
        "AMD EPYC",
        "2.00 GiB",
        "12c3422",
        "dbbench-128-4x",
        "readwhilewriting",
        "cannot tell when it is settled",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    for link in page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        assert!(link == "../README.md" || dir.join(link).exists(), "{link}");
    }
    for name in names().iter().filter(|name| name.ends_with(".svg")) {
        assert_sound(&fs::read_to_string(dir.join(name)).unwrap(), name);
    }
    // No growth, and no peer to look beside.
    let alone: Vec<Line> = kept
        .into_iter()
        .filter(
            |line| matches!(line, Line::Result(record) if record.engine == "cairn" && record.group == "ycsb"),
        )
        .collect();
    fs::write(dir.join("notes.txt"), "stay").unwrap();
    write_brief(&alone, &dir).unwrap();
    assert_eq!(names(), ["README.md", "main.svg", "notes.txt", "tables.md"]);
    let page = fs::read_to_string(dir.join("README.md")).unwrap();
    assert!(page.contains("ycsb-a") && !page.contains("overview") && !page.contains("dbbench"), "{page}");
}

/// The report stays in the target directory's `tmp/report`, to be looked at.
#[test]
fn the_whole_suite_on_nine_engines() {
    let report = Report::into(&large(), &Path::new(env!("CARGO_TARGET_TMPDIR")).join("report"));
    assert_sound(&report.page, "page");
    let names: Vec<String> = report.pictures().map(|(name, _)| name).collect();
    for file in [
        "aging-space.svg",
        "history-queries-p99.svg",
        "history-p99.svg",
        "parallax-io-amplification.svg",
        "ycsb-course.svg",
    ] {
        assert!(names.iter().any(|name| name == file), "{file} is not among {names:?}");
    }
    report.pictures().for_each(|(name, svg)| {
        assert_sound(&svg, &name);
        // The model knows the shapes of some engines only.
        let some = name == "overview.svg" || name.ends_with("-predicted.svg");
        assert!(some || svg.contains("rocksdb-blob") && svg.contains("LMDB"), "{name} names every engine");
    });
    assert!(
        report.page.contains("(16-byte keys") || report.page.contains("16-byte keys"),
        "the suite's words are there"
    );
    assert!(
        report.page.contains("history-zipf") && report.page.contains(">failed<"),
        "a failure leaves a gap with its name"
    );
}

/// The page of the papers' experiments has what was measured beside what the papers say, and the reasons where nothing was.
#[test]
fn the_page_of_the_papers_has_their_figures_and_ours() {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = vec![info()];
    for (engine, rate) in
        [("cairn-sstable", 900_000.0), ("cairn-hash-log", 800_000.0), ("rocksdb", 300_000.0)]
    {
        lines.push(line(result(engine, "sstable-files", "ten-each", 1, rate)));
    }
    lines.push(line(result("lmdb", "sstable-files", "ten-each", 1, 700_000.0)));
    for (engine, mean) in [("cairn", 6e6), ("rocksdb", 58e6)] {
        let files = Some(FileLengths { count: 9, mean, ..FileLengths::default() });
        lines.push(line(Record { files, ..result(engine, "dbbench-1024", "fillrandom", 1, 1000.0) }));
    }
    let written = write_papers(&lines, dir.path()).unwrap();
    let pictures = ["pebblesdb.svg", "report.svg"].map(|name| dir.path().join(name));
    assert_eq!((written.tables, written.pictures), (None, pictures.to_vec()));
    let page = fs::read_to_string(written.page).unwrap();
    let section = page.split("### Section 4.1").nth(1).unwrap().split("###").next().unwrap();
    assert!(section.contains("47.32 s and 55.52 s") && section.contains("**★ 900 k**"), "{section}");
    assert!(
        section.contains("300 k") && !section.contains("700 k"),
        "an engine that is not of the paper: {section}"
    );
    let lengths =
        page.lines().find(|line| line.starts_with("| dbbench-1024: fillrandom, mean file")).unwrap();
    assert!(lengths.contains("MiB") && !lengths.contains('★'), "no length is the best: {lengths}");
    for words in [
        "**Not repeated.** KyotoCabinet",
        "Not in these results.",
        "## Parallax",
        "## Mneme",
        "- PebblesDB, section 2.2: ",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(write_papers(&[info()], dir.path()).is_err(), "there is nothing to report");
}
