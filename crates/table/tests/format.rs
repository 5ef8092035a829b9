//! The worked examples of `docs/format/table.md` and `docs/format/size-class.md` are the output of the writer, and can be read.

use crate::common::*;
use base::{Cursor, Time};
use std::path::Path;
use table::{TableFormat, TableOptions, TableWriter};

fn example() -> Vec<Entry> {
    vec![entry(b"apple", 7, b"red"), entry(b"apple", 4, b"green"), tombstone(b"apricot-jam", 9)]
}

/// The part of a document after the heading of a section, up to the next one.
fn section(document: &str, heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format").join(document);
    let document = std::fs::read_to_string(path).unwrap();
    let (_, part) = document.split_once(&format!("\n{heading}\n")).expect(heading);
    part.split("\n##").next().unwrap_or(part).to_owned()
}

/// The bytes of hex lines: an offset, a colon, pairs of hex digits or a number of zeros, and a comment after two spaces. Returns the first
/// offset, too.
fn documented(section: &str) -> (usize, Vec<u8>) {
    let (mut bytes, mut begin) = (Vec::new(), None);
    for line in section.lines() {
        let Some((offset, rest)) = line.trim().split_once(": ") else { continue };
        let Some(offset) = (offset.len() == 4).then(|| u64::from_str_radix(offset, 16).ok()).flatten() else {
            continue;
        };
        assert_eq!(offset, *begin.get_or_insert(offset) + bytes.len() as u64, "{line}");
        let hex = rest.split("  ").next().unwrap();
        if let Some(zeros) = hex.strip_prefix("00 * ") {
            bytes.resize(bytes.len() + zeros.parse::<usize>().expect(line), 0);
            continue;
        }
        bytes.extend(hex.split(' ').map(|pair| u8::from_str_radix(pair, 16).expect(line)));
    }
    (begin.unwrap() as usize, bytes)
}

fn show(written: &[u8]) {
    if std::env::var_os("SHOW_EXAMPLE").is_some() {
        for (i, line) in written.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0)) {
            let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
            println!("{:04x}: {}", i * 16, hex.join(" "));
        }
    }
}

#[test]
fn the_documented_examples_are_the_tables() {
    for (format, document) in FORMATS.into_iter().zip(["table.md", "size-class.md"]) {
        check(format, document);
    }
}

fn check(format: TableFormat, document: &str) {
    let (sim, env) = sim();
    let meta = write(&env, 7, &TableOptions { format, ..TableOptions::default() }, &example());
    let written = sim.read_file(path(7));
    show(&written);
    let (_, documented) = documented(&section(document, "## A worked example"));
    assert_eq!(documented, written, "{document}");
    // The documented bytes can be read as a table.
    sim.write_file(path(7), documented);
    let table = open(&env, &meta, 0);
    let mut cursor = table.cursor();
    cursor.seek_to_first().unwrap();
    for e in example() {
        assert_eq!(current(&cursor), Some(e));
        cursor.next().unwrap();
    }
    assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
}

#[test]
fn the_documented_index_with_times_is_that_of_the_table() {
    let (sim, env) = sim();
    let options = TableOptions::default();
    let mut writer = TableWriter::create(&env, Path::new(DIR), 7, &options).unwrap();
    let times = [(3_000_000, 4_000_000), (1_000_000, 3_000_000), (2_000_000, 2_500_000)];
    for (Entry { key, trailer, value }, (from, to)) in example().into_iter().zip(times) {
        let times = Some((Time::from_micros(from), Time::from_micros(to)));
        writer.add_timed(&key, options.filter_hash(&key), trailer, &value, times).unwrap();
    }
    writer.finish().unwrap();
    let written = sim.read_file(path(7));
    show(&written);
    let (begin, documented) = documented(&section("table.md", "### Version 5"));
    assert_eq!(documented, written[begin..][..documented.len()]);
    assert_eq!(written[written.len() - 16..][..4], 5u32.to_le_bytes());
}
