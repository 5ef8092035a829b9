//! The worked examples of `docs/format/table.md` and `docs/format/size-class.md` are the output of the writer, and can be read.

use crate::common::*;
use base::Cursor;
use std::path::Path;
use table::{TableFormat, TableOptions};

fn example() -> Vec<Entry> {
    vec![entry(b"apple", 7, b"red"), entry(b"apple", 4, b"green"), tombstone(b"apricot-jam", 9)]
}

/// The bytes of the document's hex lines: an offset, a colon, pairs of hex digits or a number of zeros, and a comment after two spaces.
fn documented(document: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format").join(document);
    let document = std::fs::read_to_string(path).unwrap();
    let mut bytes = Vec::new();
    for line in document.lines() {
        let Some((offset, rest)) = line.trim().split_once(": ") else { continue };
        let Some(offset) = (offset.len() == 4).then(|| u64::from_str_radix(offset, 16).ok()).flatten() else {
            continue;
        };
        assert_eq!(offset, bytes.len() as u64, "{line}");
        let hex = rest.split("  ").next().unwrap();
        if let Some(zeros) = hex.strip_prefix("00 * ") {
            bytes.resize(bytes.len() + zeros.parse::<usize>().expect(line), 0);
            continue;
        }
        bytes.extend(hex.split(' ').map(|pair| u8::from_str_radix(pair, 16).expect(line)));
    }
    bytes
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
    if std::env::var_os("SHOW_EXAMPLE").is_some() {
        for (i, line) in written.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0)) {
            let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
            println!("{:04x}: {}", i * 16, hex.join(" "));
        }
    }
    assert_eq!(documented(document), written, "{document}");
    // The documented bytes can be read as a table.
    sim.write_file(path(7), documented(document));
    let table = open(&env, &meta, 0);
    let mut cursor = table.cursor();
    cursor.seek_to_first().unwrap();
    for e in example() {
        assert_eq!(current(&cursor), Some(e));
        cursor.next().unwrap();
    }
    assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
}
