use super::*;
use cairn::Time;
use std::io;
use std::path::Path;

fn map(key: &[&str], value: Option<&str>) -> Mapping {
    Mapping {
        key: key.iter().map(|k| k.to_string()).collect(),
        separator: "/".into(),
        value: value.map(String::from),
        ..Mapping::default()
    }
}

/// The results of reading `input`: records as `line key=value`, bad lines as `line! reason`.
fn read(input: &[u8], format: Format, mapping: Mapping) -> Vec<String> {
    let mut reader = match Reader::new(io::BufReader::with_capacity(7, input), format, mapping) {
        Ok(reader) => reader,
        Err(why) => return vec![format!("refused: {why}")],
    };
    let mut record = Record::default();
    let mut out = Vec::new();
    loop {
        match reader.next(&mut record).unwrap() {
            Step::Record => out.push(format!(
                "{} {}={}",
                record.line,
                crate::text::escape(&record.key),
                crate::text::escape(&record.value)
            )),
            Step::Bad(why) => out.push(format!("{}! {why}", record.line)),
            Step::Unfit(why) => {
                out.push(format!("unfit: {why}"));
                return out;
            }
            Step::End => return out,
        }
    }
}

#[test]
fn tsv_of_two_columns_is_key_and_value() {
    let expect = ["1 a=1", "3 b\\n=\\x00", "4 c=", "5 =d"];
    assert_eq!(read(b"a\t1\n\nb\\n\t\\x00\r\nc\t\n\td", Format::Tsv, map(&[], None)), expect);
}

#[test]
fn tsv_of_many_columns_keeps_the_line() {
    let input = b"id\tname\tsize\n7\ta\\\\b\t1\n8\tc\t2\n";
    assert_eq!(
        read(input, Format::Tsv, map(&["name"], None)),
        ["2 a\\\\b=7\\ta\\\\\\\\b\\t1", "3 c=8\\tc\\t2"]
    );
    assert_eq!(
        read(input, Format::Tsv, map(&["3", "1"], Some("2"))),
        ["1 size/id=name", "2 1/7=a\\\\b", "3 2/8=c"]
    );
    let raw = Mapping { no_escapes: true, ..map(&["name"], Some("id")) };
    assert_eq!(read(input, Format::Tsv, raw), ["2 a\\\\\\\\b=7", "3 c=8"]);
    assert_eq!(read(b"word\n", Format::Tsv, map(&[], None)), ["1 word="]);
}

#[test]
fn bad_lines_are_named_and_passed_over() {
    let got = read(b"a\t1\nb\nc\t2\t3\nd\\q\t4\ne\t5", Format::Tsv, map(&[], None));
    assert_eq!(got[0], "1 a=1");
    assert_eq!(got[1], "2! has 1 column, where line 1 has 2");
    assert_eq!(got[2], "3! has 3 columns, where line 1 has 2");
    assert!(got[3].starts_with("4! column 1: unknown escape \\q"), "{}", got[3]);
    assert_eq!(got[4], "5 e=5");
}

#[test]
fn columns_that_are_not_there() {
    for (key, why) in [("4", "no column 4"), ("nam", "header names id, name"), ("0", "count from 1")] {
        let got = read(b"id,name\n1,2\n", Format::Csv, map(&[key], None));
        assert!(got.len() == 1 && got[0].contains(why), "{got:?}");
    }
    let headless = Mapping { header: Some(false), ..map(&["name"], None) };
    assert!(read(b"id,name\n", Format::Csv, headless)[0].contains("refused"));
}

#[test]
fn csv_quotes() {
    let input = b"\xef\xbb\xbfkey,value\r\n\"a,\"\"b\"\"\",\"line 1\r\nline 2\"\r\nc,\"\"\nd,e \"f\"\n";
    assert_eq!(
        read(input, Format::Csv, map(&[], None)),
        ["2 a,\"b\"=line 1\\r\\nline 2", "4 c=", "5 d=e \"f\""]
    );
    let input = b"k,v\n\"a\"b,1\nc,2\n\"d,3\ne,4\n";
    assert_eq!(
        read(input, Format::Csv, map(&[], None)),
        ["2! column 1: text after the closing quote", "3 c=2", "4! a quote is opened here and never closed"]
    );
    let whole = read(b"a,b,c\n1,\"x\ny\",3\n", Format::Csv, map(&["c"], None));
    assert_eq!(whole, ["2 3=1,\"x\\ny\",3"]);
}

#[test]
fn jsonl() {
    let input = "{\"key\":\"é\\n\",\"value\":\"v\"}\n{\"key_hex\":\"00ff\",\"value\":{\"a\": [1]}}\n\n{\"key\":7,\"value\":1.50}\n";
    assert_eq!(
        read(input.as_bytes(), Format::Jsonl, map(&[], None)),
        ["1 é\\n=v", "2 \\x00\\xff={\"a\": [1]}", "4 7=1.50"]
    );
    let input = b"{\"id\":1, \"name\":\"x\"}\n{\"id\":2}\n[1]\n{\"id\":3,\"name\":\"\xff\"}\n{\"id\":null,\"name\":\"y\"}";
    let got = read(input, Format::Jsonl, map(&["id"], None));
    assert_eq!(got[..2], ["1 1={\"id\":1, \"name\":\"x\"}", "2 2={\"id\":2}"]);
    assert!(
        got[2].starts_with("3! not a JSON object") && got[3].starts_with("4! not a JSON object"),
        "{got:?}"
    );
    assert_eq!(got[4], "5! field \"id\": a key is a string or a number");
    assert_eq!(read(input, Format::Jsonl, map(&["name", "id"], Some("id")))[0], "1 x/1=1");
    assert!(read(b"{\"k\":1}", Format::Jsonl, map(&[], None))[0].contains("--key"));
}

#[test]
fn lines_and_paragraphs() {
    assert_eq!(read(b"b\n\na\r\n\xff", Format::Lines, map(&[], None)), ["1 b=", "3 a=", "4 \\xff="]);
    assert!(read(b"b\n", Format::Lines, map(&["x"], None))[0].contains("refused"));
    let input = b"\n\nPackage: a\nVersion:1\n more: text\n\n\nPackage: b\nDescription: d\n\nno field\n\nPackage: c\nversion: 2";
    assert_eq!(
        read(input, Format::Paragraphs, map(&["package", "Version"], None)),
        [
            "3 a/1=Package: a\\nVersion:1\\n more: text",
            "8! there is no field \"Version\"",
            "11! \"no field\" is neither a field nor a continuation of the line above",
            "13 c/2=Package: c\\nversion: 2"
        ]
    );
    assert_eq!(read(b"A: 1\nB: 2\n", Format::Paragraphs, map(&[], Some("b"))), ["1 1=2"]);
}

#[test]
fn limits_make_bad_lines() {
    let long = [&b"a\t1\n"[..], &b"k".repeat(70_000), b"\t2\nb\t3\n"].concat();
    let got = read(&long, Format::Tsv, map(&[], None));
    assert_eq!(got, ["1 a=1", "2! the key has 70000 bytes; the limit is 65536", "3 b=3"]);
}

#[test]
fn empty_input_has_no_records() {
    for format in [Format::Tsv, Format::Csv, Format::Jsonl, Format::Lines, Format::Paragraphs] {
        assert!(read(b"", format, map(&[], None)).is_empty());
        assert!(read(b"\n\r\n\n", format, map(&[], None)).is_empty());
    }
}

/// Keys and values that often break text formats.
fn hostile() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        "",
        "a",
        "\t",
        "\n",
        "\r",
        "\r\n",
        "\\",
        "\\n",
        "\\x41",
        "\"",
        "\"\"",
        ",",
        "a,b",
        " ",
        "#",
        "null",
        "{}",
        "é",
        "東京",
        "\u{feff}",
        "\u{0}",
        "\u{7f}",
        "\u{85}",
        "\u{2028}",
        "\u{1b}[31m",
        "key",
        "value",
        "''",
        "a\r",
    ]
    .iter()
    .map(|s| s.as_bytes().to_vec())
    .collect();
    all.push((0..=255).collect());
    all.push(b"\xef\xbb".to_vec());
    all.push(b"\xed\xa0\x80".to_vec());
    all.push(vec![b'"'; 9]);
    all.push(vec![0xff; 40_000]);
    all
}

fn round_trip(format: Format, hex: bool, records: &[(Vec<u8>, Vec<u8>)]) {
    let mapping = Mapping { hex, ..map(&[], None) };
    let mut writer = Writer::new(format, mapping.clone());
    let mut text = Vec::new();
    for (key, value) in records {
        if let Err(e) = writer.write(&mut text, key, value) {
            panic!("{format:?}: {e:?}");
        }
    }
    writer.finish(&mut text).unwrap();
    let mut reader = Reader::new(&text[..], format, mapping).unwrap();
    let mut record = Record::default();
    for (key, value) in records {
        assert_eq!(reader.next(&mut record).unwrap(), Step::Record, "{format:?} {key:?} {value:?}");
        assert!(record.key == *key && record.value == *value, "{format:?}: {key:?} {value:?}: {record:?}");
    }
    assert_eq!(reader.next(&mut record).unwrap(), Step::End);
}

#[test]
fn hostile_records_survive_a_round_trip() {
    let parts = hostile();
    let all: Vec<_> = parts.iter().flat_map(|k| parts.iter().map(|v| (k.clone(), v.clone()))).collect();
    for format in [Format::Tsv, Format::Csv, Format::Jsonl] {
        for hex in [false, true] {
            round_trip(format, hex, &all);
            all.iter().for_each(|record| round_trip(format, hex, std::slice::from_ref(record)));
            round_trip(format, hex, &[]);
        }
    }
}

#[test]
fn lines_and_paragraphs_carry_it_or_refuse() {
    for key in hostile() {
        let mut text = Vec::new();
        match Writer::new(Format::Lines, map(&[], None)).write(&mut text, &key, b"") {
            Ok(()) => round_trip(Format::Lines, false, &[(key, Vec::new())]),
            Err(_) => assert!(key.is_empty() || key.contains(&b'\n') || key.ends_with(b"\r")),
        }
    }
    let value = b"Package: a\nDescription: long\n text\n \xff".to_vec();
    round_trip(Format::Paragraphs, false, &[(b"a".to_vec(), value.clone()), (b"a".to_vec(), value.clone())]);
    for (key, value) in
        [(&b"b"[..], &value[..]), (b"a", b"Package: a\n"), (b"a", b"Package: a\n\nB: c"), (b"", b"")]
    {
        assert!(Writer::new(Format::Paragraphs, map(&[], None)).write(&mut Vec::new(), key, value).is_err());
    }
}

#[test]
fn another_reader_of_csv_agrees() {
    let parts = hostile();
    let mut writer = Writer::new(Format::Csv, map(&[], None));
    let mut text = Vec::new();
    let records: Vec<_> = parts.iter().flat_map(|k| parts.iter().map(move |v| (k, v))).collect();
    records.iter().for_each(|(k, v)| writer.write(&mut text, k, v).unwrap_or_else(|e| panic!("{e:?}")));
    let mut reader = csv::Reader::from_reader(&text[..]);
    let read: Vec<_> = reader.byte_records().map(|r| r.unwrap()).collect();
    assert_eq!(read.len(), records.len());
    for (record, (key, value)) in read.iter().zip(&records) {
        assert!(&record[0] == key.as_slice() && &record[1] == value.as_slice(), "{key:?} {value:?}");
    }
}

#[test]
fn formats_follow_file_names() {
    for (name, format) in
        [("a.TSV", Some(Format::Tsv)), ("b.jsonl", Some(Format::Jsonl)), ("c", None), ("d.x", None)]
    {
        assert_eq!(Format::of_file(Path::new(name)), format);
    }
}

#[test]
fn expiries_survive_a_round_trip() {
    let parts = hostile();
    let expiries = [None, Some(0), Some(1_764_064_800_000_001), Some(u64::MAX - 1)];
    let expiries = expiries.map(|expiry| expiry.map(Time::from_micros));
    for (format, name) in
        [(Format::Tsv, "2"), (Format::Csv, "expiry"), (Format::Csv, "2"), (Format::Jsonl, "expiry")]
    {
        for hex in [false, true] {
            let mapping = Mapping { hex, expiry: Some(name.into()), ..map(&[], None) };
            let (mut writer, mut text) = (Writer::new(format, mapping.clone()), Vec::new());
            let records = || parts.iter().zip(expiries.iter().cycle()).zip(parts.iter().rev());
            for ((key, expiry), value) in records() {
                writer.write_expiring(&mut text, key, *expiry, value).unwrap();
            }
            writer.finish(&mut text).unwrap();
            let mut reader = Reader::new(&text[..], format, mapping).unwrap();
            let mut record = Record::default();
            for ((key, expiry), value) in records() {
                assert_eq!(reader.next(&mut record).unwrap(), Step::Record, "{format:?} {key:?}");
                assert_eq!((&record.key, &record.value), (key, value), "{format:?}");
                assert_eq!(record.expiry, Some(expiry.unwrap_or(Time::MAX)), "{format:?}");
            }
            assert_eq!(reader.next(&mut record).unwrap(), Step::End);
        }
    }
    for format in [Format::Lines, Format::Paragraphs] {
        let mapping = Mapping { expiry: Some("2".into()), ..map(&[], None) };
        assert!(Reader::new(&b""[..], format, mapping.clone()).is_err());
        assert!(Writer::new(format, mapping).write_expiring(&mut Vec::new(), b"a", None, b"").is_err());
    }
    let mapping = Mapping { expiry: Some("2".into()), ..map(&[], None) };
    let mut reader = Reader::new(&b"a\tsoon\tb\n"[..], Format::Tsv, mapping).unwrap();
    match reader.next(&mut Record::default()).unwrap() {
        Step::Bad(why) => assert!(why.contains("column 2") && why.contains("never"), "{why}"),
        step => panic!("{step:?}"),
    }
}

#[test]
fn versions_survive_a_round_trip() {
    let parts = hostile();
    let times = [0, 1, 1_764_064_800_000_001, u64::MAX - 1].map(Time::from_micros);
    for format in [Format::Tsv, Format::Csv, Format::Jsonl] {
        for hex in [false, true] {
            let mapping = Mapping { hex, versions: true, ..map(&[], None) };
            let (mut writer, mut text) = (Writer::new(format, mapping.clone()), Vec::new());
            let versions = || {
                parts.iter().enumerate().flat_map(|(n, key)| {
                    [
                        (key, times[n % 4], None),
                        (key, times[n % 4], Some(key)),
                        (&parts[1], times[0], Some(key)),
                    ]
                })
            };
            for (key, time, value) in versions() {
                let expiry = value.filter(|_| time == times[0]).map(|_| times[1]);
                writer.write_version(&mut text, key, time, value.map(|v| &v[..]), expiry).unwrap();
            }
            writer.finish(&mut text).unwrap();
            let mut reader = Reader::new(&text[..], format, mapping).unwrap();
            let mut record = Record::default();
            for (key, time, value) in versions() {
                assert_eq!(reader.next(&mut record).unwrap(), Step::Record, "{format:?} {key:?}");
                assert_eq!((&record.key, record.time, record.is_delete), (key, Some(time), value.is_none()));
                assert_eq!(record.expiry, value.filter(|_| time == times[0]).map(|_| times[1]));
                assert_eq!(record.value, value.cloned().unwrap_or_default());
            }
            assert_eq!(reader.next(&mut record).unwrap(), Step::End);
        }
    }
    for format in [Format::Lines, Format::Paragraphs] {
        let mapping = Mapping { versions: true, ..map(&[], None) };
        assert!(Reader::new(&b""[..], format, mapping.clone()).is_err());
        let written = Writer::new(format, mapping).write_version(&mut Vec::new(), b"a", times[0], None, None);
        assert!(matches!(written, Err(Unwritten::Refused(_))));
    }
}

#[test]
fn bad_versions_are_named() {
    let versions = Mapping { versions: true, ..map(&[], None) };
    let got = read(
        b"a\t5\tput\t1\na\tx\tput\t1\na\t5\tpush\t1\na\t5\tdelete\na\t5\tuntil x\t1\n",
        Format::Tsv,
        versions.clone(),
    );
    assert_eq!(got[0], "1 a=1");
    assert!(got[1].starts_with("2! column 2: \"x\" is no time"), "{}", got[1]);
    assert_eq!(got[2], "3! column 3: put, delete or until TIME, not \"push\"");
    assert_eq!(got[3], "4! has 3 columns, where line 1 has 4");
    assert!(got[4].starts_with("5! column 3: \"x\" is no time"), "{}", got[4]);
    let got = read(b"a\t1\n", Format::Tsv, versions.clone());
    assert_eq!(got, ["unfit: a history has the columns key, time, operation, value; line 1 has 2"]);
    let input = b"{\"key\":\"a\",\"time\":5,\"value\":null}\n{\"key\":\"a\",\"value\":1}\n{\"key\":\"a\",\"time\":1.5,\"value\":1}\n{\"key\":\"a\",\"time\":5}";
    let got = read(input, Format::Jsonl, versions);
    assert_eq!((&got[0][..], &got[1][..]), ("1 a=", "2! there is no field \"time\""));
    assert!(got[2].starts_with("3! field \"time\": \"1.5\" is no time"), "{}", got[2]);
    assert_eq!(got[3], "4! there is no field \"value\"");
}

#[test]
fn a_column_can_have_the_time() {
    let timed = |time: &str| Mapping { time: Some(time.into()), ..map(&[], None) };
    let check = |input: &[u8], format, mapping, expect: &[(&str, u64, &str)]| {
        let mut reader = Reader::new(input, format, mapping).unwrap();
        let mut record = Record::default();
        for (key, time, value) in expect {
            assert_eq!(reader.next(&mut record).unwrap(), Step::Record);
            assert_eq!((&record.key[..], &record.value[..]), (key.as_bytes(), value.as_bytes()));
            assert_eq!((record.time, record.is_delete), (Some(Time::from_micros(*time)), false));
        }
    };
    check(b"key,when,what\na,7,x\n", Format::Csv, timed("when"), &[("a", 7, "x")]);
    check(b"a\t7\nb\t1970-01-01T00:00:01Z\n", Format::Tsv, timed("2"), &[("a", 7, ""), ("b", 1_000_000, "")]);
    let seconds = Mapping { time_unit: crate::times::TimeUnit::S, ..timed("at") };
    let input =
        b"{\"key\":\"a\",\"at\":1.5,\"value\":null}\n{\"key\":\"a\",\"at\":\"2\",\"more\":1,\"value\":2}";
    let whole = "{\"key\":\"a\",\"at\":\"2\",\"more\":1,\"value\":2}";
    check(input, Format::Jsonl, seconds, &[("a", 1_500_000, "null"), ("a", 2_000_000, whole)]);
}
