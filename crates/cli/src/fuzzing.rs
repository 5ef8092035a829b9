//! Entry points for the fuzz targets of `crates/fuzz-targets`: the readers of text, with input from anywhere, and
//! checks of their results. Each function returns whether it accepted any part of the input.

use crate::commands::shell::parse::{self, Statement, Unreadable};
use crate::commands::top::metrics::Metrics;
use crate::commands::top::view::Screen;
use crate::format::{Format, Mapping, Reader, Record, Step, Unwritten, Writer};
use crate::text;
use crate::times::TimeUnit;
use cairn::Time;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::io::BufReader;
use std::time::Duration;

/// Maximum number of records read from one input.
const RECORDS: usize = 512;

const FORMATS: [Format; 5] = [Format::Tsv, Format::Csv, Format::Jsonl, Format::Lines, Format::Paragraphs];

/// The result of reading a text: records, and rejected lines with their numbers.
#[derive(Debug, PartialEq)]
struct Outcome {
    records: Vec<Record>,
    refused: Vec<(u64, String)>,
    /// Why no record can be read.
    unfit: Option<String>,
    bytes: u64,
}

fn read(input: &[u8], buffer: usize, format: Format, mapping: &Mapping) -> Result<Outcome, String> {
    let mut reader = Reader::new(BufReader::with_capacity(buffer, input), format, mapping.clone())?;
    let mut outcome = Outcome { records: Vec::new(), refused: Vec::new(), unfit: None, bytes: 0 };
    let mut record = Record::default();
    let mut line = 0;
    while outcome.records.len() + outcome.refused.len() < RECORDS {
        match reader.next(&mut record).expect("reading memory does not fail") {
            Step::Record => outcome.records.push(record.clone()),
            Step::Bad(why) => outcome.refused.push((record.line, why)),
            Step::Unfit(why) => {
                outcome.unfit = Some(why);
                break;
            }
            Step::End => {
                assert_eq!(reader.bytes_read(), input.len() as u64, "the reader reports the end too early");
                assert_eq!(reader.next(&mut record).expect("the same"), Step::End, "the end is final");
                break;
            }
        }
        assert!(record.line > line && record.line <= reader.lines_read(), "lines go on");
        line = record.line;
    }
    outcome.bytes = reader.bytes_read();
    Ok(outcome)
}

/// The mapping chosen by two bytes of the input.
fn mapping(kind: u8, names: u8) -> Mapping {
    let columns =
        [&[][..], &["1"], &["2"], &["id"], &["id", "name"], &["2", "1"], &["key"], &["Package", "0"]];
    let values = [None, Some("value"), Some("2"), Some("name")];
    Mapping {
        key: columns[usize::from(names & 7)].iter().map(|name| (*name).to_owned()).collect(),
        separator: "/".to_owned(),
        value: values[usize::from(names >> 3 & 3)].map(str::to_owned),
        header: [None, Some(true), Some(false), None][usize::from(names >> 5 & 3)],
        no_escapes: kind & 0x40 != 0,
        hex: kind & 0x80 != 0,
        time: (kind & 0x10 != 0).then(|| "time".to_owned()),
        expiry: (names & 0x80 != 0).then(|| "expiry".to_owned()),
        time_unit: TimeUnit::default(),
        versions: kind & 0x20 != 0,
    }
}

/// Input of `load`: a byte for the format, one for the mapping, one for the size of the reader's buffer, and the
/// text.
///
/// The result must not depend on the size of the buffer, and records that can be dumped must be loaded again
/// unchanged.
pub fn load(data: &[u8]) -> bool {
    let [kind, names, buffer, text @ ..] = data else { return false };
    let format = FORMATS[usize::from(kind & 0x0f) % FORMATS.len()];
    let mapping = mapping(*kind, *names);
    let whole = read(text, text.len().max(1), format, &mapping);
    let pieces = read(text, usize::from(*buffer % 16) + 1, format, &mapping);
    assert_eq!(
        whole.as_ref().map(|o| (&o.records, &o.refused, &o.unfit)),
        pieces.as_ref().map(|o| (&o.records, &o.refused, &o.unfit))
    );
    let Ok(outcome) = whole else { return false };
    let held: usize = outcome.records.iter().map(|r| r.key.len() + r.value.len()).sum();
    let keys = outcome.records.len() * (mapping.key.len() + 1) + 1;
    assert!(
        held <= text.len().saturating_mul(mapping.key.len() + 2) + keys,
        "records contain only bytes of the input"
    );
    round_trip(format, &mapping, &outcome.records);
    !outcome.records.is_empty()
}

/// The expiry of a version.
fn expiry_of(record: &Record) -> Option<Time> {
    record.expiry.filter(|expiry| !record.is_delete && *expiry < Time::MAX)
}

/// Writes records and reads them back.
fn round_trip(format: Format, mapping: &Mapping, records: &[Record]) {
    let written = match format {
        Format::Paragraphs => Mapping { value: None, hex: false, ..mapping.clone() },
        _ => {
            let versions = mapping.versions || mapping.time.is_some();
            let expiry = mapping.expiry.as_ref().filter(|_| !versions).map(|_| match format {
                Format::Jsonl => "expiry".to_owned(),
                _ => "2".to_owned(),
            });
            Mapping { hex: mapping.hex, versions, expiry, ..Mapping::default() }
        }
    };
    let mut writer = Writer::new(format, written.clone());
    let mut out = Vec::new();
    let mut kept = Vec::new();
    for record in records {
        let done = match record.time {
            None if written.expiry.is_some() => {
                let expiry = record.expiry.filter(|expiry| *expiry < Time::MAX);
                writer.write_expiring(&mut out, &record.key, expiry, &record.value)
            }
            None => writer.write(&mut out, &record.key, &record.value),
            Some(time) => {
                let value = (!record.is_delete).then_some(&record.value[..]);
                writer.write_version(&mut out, &record.key, time, value, expiry_of(record))
            }
        };
        // The value of a delete means nothing.
        let value = if record.is_delete { &[][..] } else { &record.value[..] };
        match done {
            Ok(()) => {
                let expiry = match record.time {
                    Some(_) => expiry_of(record),
                    None => written.expiry.as_ref().and(record.expiry),
                };
                kept.push((&record.key, value, record.time, expiry, record.is_delete));
            }
            Err(Unwritten::Refused(why)) => {
                assert!(
                    matches!(format, Format::Lines | Format::Paragraphs),
                    "{format:?} can express any record: {why}"
                );
            }
            Err(Unwritten::Io(error)) => panic!("writing to memory: {error}"),
        }
    }
    writer.finish(&mut out).expect("writing to memory");
    let again = read(&out, 64, format, &written).expect("the mapping of the writer fits");
    assert!(again.refused.is_empty() && again.unfit.is_none(), "{again:?} of {out:?}");
    let again: Vec<_> =
        again.records.iter().map(|r| (&r.key, &r.value[..], r.time, r.expiry, r.is_delete)).collect();
    assert_eq!(again, kept, "{format:?}: {:?}", String::from_utf8_lossy(&out));
}

/// A line of the shell. Quoted words, and statements spelled from their words, must be read back unchanged.
pub fn shell(data: &[u8]) -> bool {
    let quoted = parse::quote(data);
    let statements = parse::split(&format!("get {quoted}")).expect("a quoted word can be read");
    assert_eq!(statements.len(), 1);
    assert_eq!(parse::parse(&statements[0]), Ok(Statement::Get(vec![data.to_vec()])), "{quoted}");

    let line = String::from_utf8_lossy(data);
    let statements = match parse::split(&line) {
        Ok(statements) => statements,
        Err(Unreadable::OpenQuote) => {
            assert!(line.contains(['"', '\'']));
            return false;
        }
        Err(Unreadable::Wrong(why)) => {
            assert!(!why.is_empty());
            return false;
        }
    };
    let mut accepted = false;
    for words in &statements {
        assert!(!words.is_empty());
        let statement = parse::parse(words);
        accepted |= statement.is_ok();
        // Keywords stay unquoted. All other words may be quoted.
        let spelled = |word: &parse::Word| match word.quoted {
            true => format!("\"{}\"", text::escape(&word.bytes).replace('"', "\\\"")),
            false => String::from_utf8_lossy(&word.bytes).into_owned(),
        };
        let again = words.iter().map(spelled).collect::<Vec<_>>().join(" ");
        let split = parse::split(&again).expect("words that were read can be read");
        assert_eq!(split.first(), Some(words), "{again:?}");
    }
    accepted
}

/// Metrics, and the screen that shows them.
pub fn metrics(data: &[u8]) -> bool {
    let Ok(metrics) = Metrics::parse(&String::from_utf8_lossy(data)) else { return false };
    let written = metrics.to_text();
    let again = Metrics::parse(&written).expect("what was written can be read");
    assert_eq!(again.to_text(), written);
    let mut screen = Screen::new(String::new(), data.len().is_multiple_of(2));
    screen.add(Duration::ZERO, metrics);
    screen.add(Duration::from_secs(1), again);
    screen.scroll(data.len() as isize);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("memory does not fail");
    terminal.draw(|frame| screen.draw(frame)).expect("memory does not fail");
    true
}

/// Escapes, hexadecimal digits and sizes.
pub fn escapes(data: &[u8]) -> bool {
    let escaped = text::escape(data);
    assert!(!escaped.contains(|c: char| c.is_control()));
    assert_eq!(text::unescape(escaped.as_bytes()).as_deref(), Ok(data));
    assert_eq!(text::unhex(text::hex(data).as_bytes()).as_deref(), Ok(data));
    let unescaped = text::unescape(data);
    if let Ok(bytes) = &unescaped {
        assert!(bytes.len() <= data.len());
    }
    if let Ok(bytes) = text::unhex(data) {
        assert!(text::hex(&bytes).as_bytes().eq_ignore_ascii_case(data));
    }
    let line = String::from_utf8_lossy(data);
    if let Ok(size) = text::parse_size(&line)
        && let Ok(number) = line.trim().parse::<u64>()
    {
        assert_eq!(size, number, "a number without a unit counts bytes");
    }
    unescaped.is_ok() && data.contains(&b'\\')
}
