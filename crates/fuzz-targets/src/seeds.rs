//! The seeds of the corpora: real files of the engine and parts of them, texts, and damaged copies. The corpora in
//! `fuzz/corpus` are the minimised results of fuzzing from these seeds.

use crate::database::{Files, aged};
use crate::tables::{self, NUMBER};
use crate::{Source, TARGETS};
use base::{RangeTombstone, Reference, SegmentShare, Slice, Time, hash};
use cairn::typed::{EncodeKey, EncodeValue, Serde};
use cairn::{Database, KeyspaceOptions, Options};
use env::{Env, SimEnv};
use hashlog::{Hint, HintOwner, HintWriter, hint_file_name};
use record::{ChunkPlace, SegmentKind, SegmentReader, SegmentWriter};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use table::{Compression, TableFormat, TableMeta, TableOptions};
use tree::{DatabaseEdit, KeyspaceDescription, LogClosed, Manifest, VersionEdit, manifest_file_name};
use values::{Maps, SegmentFile, ValueFile};

/// A named input of a target.
pub struct Seed {
    /// The name of the target.
    pub target: &'static str,
    /// A name that describes the input.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// All seeds of all targets.
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Seeds(Vec::new());
    seeds.segments();
    seeds.records();
    seeds.manifests();
    seeds.tables();
    seeds.values();
    seeds.hints();
    seeds.typed();
    seeds.backups();
    seeds.versions();
    seeds.names_and_options();
    seeds.texts();
    seeds.choices();
    assert!(TARGETS.iter().all(|t| seeds.0.iter().any(|s| s.target == t.name)), "each target has a seed");
    seeds.0
}

struct Seeds(Vec<Seed>);

/// Pseudo-random bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    (0u64..)
        .flat_map(|i| hash(&[seed.to_le_bytes(), i.to_le_bytes()].concat()).to_le_bytes())
        .take(len)
        .collect()
}

impl Seeds {
    /// Adds an input and damaged copies of it.
    fn add(&mut self, target: &'static str, name: &str, bytes: Vec<u8>) {
        let mut flipped = bytes.clone();
        if let Some(byte) = flipped.get_mut(bytes.len() * 2 / 3) {
            *byte ^= 0x10;
            self.push(target, format!("{name}-flipped"), flipped);
        }
        if bytes.len() > 8 {
            self.push(target, format!("{name}-cut"), bytes[..bytes.len() - 5].to_vec());
        }
        self.push(target, name.to_owned(), bytes);
    }

    fn push(&mut self, target: &'static str, name: String, bytes: Vec<u8>) {
        self.0.push(Seed { target, name, bytes });
    }

    fn segments(&mut self) {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        let mut writer =
            SegmentWriter::create(&env, Path::new("/s"), SegmentKind::Wal, 7, b"header").expect("a disk");
        for len in [5, 0, 300, 40_000, 7] {
            writer.append(&[&vec![len as u8; len]]).and_then(|()| writer.sync()).expect("a disk");
        }
        let bytes = sim.read_file("/s");
        self.add("segment", "synced", [&[0], &bytes[..]].concat());
        self.add("segment", "fixed", [&[1], &bytes[..1200]].concat());
        self.add("segment", "short", [&[1], &bytes[..80]].concat());
        self.add("segment_write", "mixed", noise(1, 200));
        self.add(
            "segment_write",
            "long",
            [&[3, b'a', b'b', b'c', 0, 9, 1][..], &[70, 0, 90, 1, 2, 3].repeat(8)].concat(),
        );
        self.add(
            "segment_write",
            "cut",
            [&[0, 1, 200, 3][..], &[100, 1, 2, 3, 4, 5, 6, 7, 8, 0].repeat(9)].concat(),
        );
    }

    /// The records of the logs and manifests of a real database.
    fn records(&mut self) {
        let (files, _) = aged(true);
        let mut batches = all_records(files, "log", SegmentKind::Wal);
        batches.sort_by_key(Vec::len);
        batches.dedup();
        for (i, batch) in batches.iter().step_by(batches.len().div_ceil(4)).enumerate() {
            self.add("batch", &format!("real-{i}"), batch.clone());
        }
        let mut many = vec![0, 0x80, 1, 3];
        many.extend_from_slice(&[1, 1, 1, b'a', 2, b'b', b'c', 0, 1, 1, b'a', 1, 2, 0, 0]);
        self.add("batch", "three", many);
        // Version 1, sequence numbers from 9: deletes the ranges ["a", "k") and ["x", end) of keyspace 1.
        self.add("batch", "ranges", b"\x01\x09\x02\x04\x01\x01a\x01k\x04\x01\x01x\x00".to_vec());
        self.add("log_header", "first", vec![0, 0]);
        self.add("log_header", "later", vec![0x80, 0x20, 0xac, 2]);
        let edits = all_records(files, "", SegmentKind::Manifest);
        for (i, edit) in edits.iter().take(6).enumerate() {
            self.add("edit", &format!("real-{i}"), edit.clone());
        }
        let framed: Vec<u8> =
            edits.iter().flat_map(|e| [&(e.len() as u16).to_le_bytes()[..], e].concat()).collect();
        self.add("manifest", "real", [&[1], &framed[..]].concat());
    }

    fn manifests(&mut self) {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        let meta = |number: u64, from: &str, to: &str, seq: u64| TableMeta {
            number,
            file_size: 1000,
            entries: 10,
            tombstones: 2,
            smallest: from.into(),
            largest: to.into(),
            min_seq: seq,
            max_seq: seq + 9,
            seq_shift: 0,
            user_bytes: 500,
            cleared_seq: 0,
            shadowed: 0,
            times: None,
            expiry: None,
            segments: Vec::new(),
        };
        let range = |from: &str, to: Option<&str>, seq| RangeTombstone {
            from: from.as_bytes().into(),
            to: to.map(|to| to.as_bytes().into()),
            seq,
            time: Time::from_micros((seq % 2) << 50),
        };
        let created = KeyspaceDescription {
            id: 1,
            name: "k".into(),
            levels: 2,
            options: vec![("levels".into(), "2".into())],
            history_of: None,
            kept_since: Time::MIN,
        };
        let historical = KeyspaceDescription { id: 2, history_of: Some(1), ..created.clone() };
        let tree = VersionEdit {
            added: vec![(0, meta(4, "a", "z", 20)), (2, meta(3, "c", "k", 1))],
            guards_added: vec![(2, Slice::copy_from(b"m"))],
            uncommitted_added: vec![(1, Slice::copy_from(b"q"))],
            flushed_seq: Some(29),
            range_tombstones_added: vec![range("b", Some("d"), 21), range("x", None, 28)],
            ..VersionEdit::default()
        };
        let kept_since = Time::from_micros(1 << 49);
        let renamed =
            |of: &KeyspaceDescription| KeyspaceDescription { name: "l".into(), kept_since, ..of.clone() };
        let altered = [&created, &historical].map(renamed).to_vec();
        let first = DatabaseEdit {
            created: vec![created, historical],
            trees: vec![(1, tree)],
            next_file: 5,
            next_keyspace: 3,
            last_seq: 30,
            last_time: Time::from_micros(1_704_067_200_000_000),
            min_log: 6,
            newest_log: 7,
            ..DatabaseEdit::default()
        };
        let tree = VersionEdit {
            added: vec![(2, TableMeta { cleared_seq: 27, seq_shift: 4, ..meta(5, "n", "q", 20) })],
            removed: vec![(0, 4)],
            guards_added: vec![(1, Slice::copy_from(b"q")), (2, Slice::copy_from(b"q"))],
            guards_removed: vec![(2, Slice::copy_from(b"m"))],
            uncommitted_removed: vec![Slice::copy_from(b"q")],
            range_tombstones_removed: vec![range("a", Some("c"), 25)],
            ..VersionEdit::default()
        };
        let closed = vec![LogClosed { number: 6, len: 500 }];
        let second = DatabaseEdit { altered, trees: vec![(1, tree)], closed, ..DatabaseEdit::default() };
        let third = DatabaseEdit { dropped: vec![1], ..DatabaseEdit::default() };
        let mut manifest = Manifest::create(&env, Path::new("/"), 3, &first).expect("a disk");
        for edit in [&second, &third] {
            manifest.log(edit).expect("a disk");
        }
        let path = Path::new("/").join(manifest_file_name(3));
        self.add("manifest", "file", [&[0], &sim.read_file(&path)[..]].concat());
        let files = vec![(path, sim.read_file(Path::new("/").join(manifest_file_name(3))))];
        let edits = all_records(&files, "", SegmentKind::Manifest);
        let framed: Vec<u8> =
            edits.iter().flat_map(|e| [&(e.len() as u16).to_le_bytes()[..], e].concat()).collect();
        self.add("manifest", "edits", [&[1], &framed[..]].concat());
        for (i, edit) in edits.into_iter().enumerate() {
            self.add("edit", &format!("made-{i}"), edit);
        }
    }

    fn tables(&mut self) {
        for (name, len, compression, format) in [
            ("small", 60, Compression::None, TableFormat::BTree),
            ("timed", 700, Compression::None, TableFormat::BTree),
            ("large", 2500, Compression::None, TableFormat::BTree),
            ("lz4", 1500, Compression::Lz4, TableFormat::BTree),
            ("zstd", 1500, Compression::Zstd, TableFormat::BTree),
            ("size-class", 300, Compression::None, TableFormat::SizeClass),
        ] {
            let options = TableOptions {
                format,
                block_size: 512,
                compression,
                filter_bits_per_key: 10,
                ..TableOptions::default()
            };
            let entries = tables::entries(&mut Source::new(&noise(len, len as usize)), 512);
            let (bytes, _) = tables::write(&entries, &options, name == "timed");
            // With all times, and with some.
            let flags: &[u8] = if name == "timed" { &[1, 16, 33, 48] } else { &[0, 1] };
            for flags in flags {
                self.add("table", &format!("{name}-{flags}"), [&[*flags, 1, b'k'], &bytes[..]].concat());
            }
            self.parts(name, &bytes);
        }
    }

    /// Adds the parts of a table, located with its footer.
    fn parts(&mut self, name: &str, bytes: &[u8]) {
        const FOOTER: usize = 80;
        let start = bytes.len() - FOOTER;
        let footer = &bytes[start..];
        let number = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().expect("8 bytes")) as usize;
        let size = |at: usize| u32::from_le_bytes(footer[at..at + 4].try_into().expect("4 bytes")) as usize;
        let front = [NUMBER.to_le_bytes(), (start as u64).to_le_bytes()].concat();
        self.add("footer", &format!("{name}-0"), [&[0], &front[..], footer].concat());
        self.add("footer", &format!("{name}-1"), [&[1], &front[..], footer].concat());
        let data = size_of_frame(bytes);
        let place = [1u64.to_le_bytes(), 0u64.to_le_bytes()].concat();
        let cap = (1u32 << 16).to_le_bytes();
        self.add("block", &format!("{name}-0"), [&[0], &cap[..], &place, &bytes[..data]].concat());
        self.add("block", &format!("{name}-1"), [&[1], &cap[..], &place, &bytes[..data]].concat());
        let (root, properties) = (number(24), number(48));
        if footer[64] == 4 {
            let first = (number(16) + (64 * size(44) + 9) * size(40)).next_multiple_of(4096);
            let page = first + 9..first + size_of_frame(&bytes[first..]);
            self.add("rows", name, [&[2, b'k', b'e'], &bytes[page]].concat());
            let pages = u8::try_from(first / 4096).expect("a small table");
            self.add("directory", name, [&[pages], &bytes[root + 9..root + size(32)]].concat());
            return;
        }
        if bytes[8] == 0 {
            self.add("node", &format!("{name}-leaf"), [&[0, 2, b'k', b'e'], &bytes[9..data]].concat());
        }
        if bytes[root + 8] == 0 {
            let end = root + size(32);
            self.add("node", &format!("{name}-index"), [&[1, 1, b'k'], &bytes[root + 9..end]].concat());
        }
        if bytes[properties + 8] == 0 {
            self.add("properties", name, bytes[properties + 9..properties + size(56)].to_vec());
        }
        let shape = [&0u32.to_le_bytes()[..], &footer[40..48], &footer[37..38]].concat();
        let filter = number(16) + 9..number(16) + 9 + 64 * size(44);
        self.add("filter", name, [&shape[..], &bytes[filter]].concat());
    }

    fn values(&mut self) {
        let mut of = |kind: u8, name: &str, encode: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = vec![kind];
            encode(&mut bytes);
            self.add("values", name, bytes);
        };
        let reference = Reference { segment: 300, offset: 70_000, len: 5000, checksum: 0x1234_5678 };
        of(0, "reference", &|out| reference.encode(out));
        let share = |segment| SegmentShare { segment, count: 3, bytes: 9000 };
        of(1, "shares", &|out| SegmentShare::encode(&[share(2), share(300), share(301)], out));
        let file = ValueFile {
            number: 17,
            len: 1 << 20,
            value_bytes: 1 << 19,
            maps_at: 1_000_000,
            maps_len: 900,
            maps_checksum: 7,
            segments: vec![2, 300, 301],
        };
        of(2, "file", &|out| file.encode(out));
        let mut maps = Maps::default();
        for i in 0..70 {
            maps.push(2, 51 + 1040 * i, 40 + 1033 * i);
            maps.push(300, 900_000 + 7 * i, 200_000 + 5 * i);
        }
        of(3, "maps", &|out| maps.encode(out));
    }

    fn hints(&mut self) {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim;
        let owner = HintOwner { keyspace: 3, name: "sessions".to_owned() };
        let mut writer = HintWriter::create(&env, Path::new("/"), 5, &owner).expect("a disk");
        for (file, entries) in [(SegmentFile::Log(3), 40), (SegmentFile::Values(7), 5)] {
            for n in 0..entries {
                let at = ChunkPlace { chunk: 30 + 70 * n, within: (n % 3) as u16 };
                let key = noise(n, n as usize % 20);
                let hint = Hint { file, at, seq: 9 + n * n % 50, is_delete: n % 4 == 3, key: &key };
                writer.push(&hint, 100).expect("the disk works");
            }
        }
        let file = writer.finish().expect("the disk works").expect("there are hints");
        let mut described = Vec::new();
        file.encode(&mut described);
        self.add("hints", "description", [&[0], &described[..]].concat());
        let path = Path::new("/").join(hint_file_name(5));
        let mut reader = SegmentReader::open(&env, &path, SegmentKind::Hints, 5, None).expect("a hint file");
        let mut bytes = vec![1, described.len() as u8];
        bytes.extend(&described);
        bytes.push(reader.header().len() as u8);
        bytes.extend(reader.header());
        let mut record = Vec::new();
        while reader.next(&mut record).expect("a hint file").is_some() {
            bytes.extend((record.len() as u16).to_le_bytes());
            bytes.extend(&record);
        }
        self.add("hints", "file", bytes);
    }

    fn typed(&mut self) {
        let mut key = |kind: u8, name: &str, keys: &[&dyn EncodeKey]| {
            let mut bytes = vec![kind];
            keys.iter().for_each(|key| key.encode_key(&mut bytes));
            self.add("typed", name, bytes);
        };
        key(0, "u64", &[&7u64, &u64::MAX]);
        key(1, "i32", &[&-7i32, &7i32]);
        key(2, "i128", &[&i128::MIN, &-1i128]);
        key(3, "f64", &[&-1.5f64, &f64::NAN]);
        key(4, "f32", &[&0f32, &f32::NEG_INFINITY]);
        key(5, "bool", &[&true, &false]);
        key(6, "char", &[&'z', &'\u{fc}']);
        key(7, "bytes", &[&b"a\0b"[..].to_vec(), &b"a".to_vec()]);
        key(8, "string", &[&"a\0".to_owned(), &"Z\u{fc}rich".to_owned()]);
        key(9, "array", &[b"12345", b"12344"]);
        key(10, "option", &[&None::<String>, &Some("a".to_owned())]);
        let tuple = |name: &str, n: i16| (b"k".to_vec(), n, Some((name.to_owned(), 3u8)));
        key(11, "tuple", &[&tuple("b", -3), &tuple("a", 4)]);
        let mut value = |kind: u8, name: &str, value: &dyn EncodeValue| {
            let mut bytes = vec![kind];
            value.encode_value(&mut bytes).expect("a value");
            self.add("typed", name, bytes);
        };
        value(12, "int", &-5i64);
        value(12, "double", &f64::INFINITY);
        value(12, "text", &"text".to_owned());
        value(13, "list", &Serde(vec![(1u32, "one".to_owned()), (300, String::new())]));
        let map = [("a".to_owned(), None), ("b".to_owned(), Some(vec![-1i64, 70_000]))];
        value(14, "map", &Serde(BTreeMap::from(map)));
        value(15, "result", &Serde(Err::<f32, _>([true, false, true])));
    }

    fn backups(&mut self) {
        let sim = SimEnv::new(1);
        let db = Database::open_in(sim.clone(), "/db", Options::default().background_threads(0))
            .expect("a database");
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).expect("a keyspace");
        for n in 0..3u8 {
            keyspace.put([n], "value").expect("the disk works");
            db.flush().expect("the disk works");
        }
        db.backup("/backup").expect("the disk works");
        let path = Path::new("/backup/generation-000001");
        let file = sim.read_file(path);
        let env: Arc<dyn Env> = sim;
        let mut reader = SegmentReader::open(&env, path, SegmentKind::Backup, 1, None).expect("a list");
        let (mut records, mut record) = (vec![1], Vec::new());
        while reader.next(&mut record).expect("a list").is_some() {
            records.extend((record.len() as u16).to_le_bytes());
            records.extend(&record);
        }
        self.add("backup", "file", [&[0], &file[..]].concat());
        self.add("backup", "records", records);
    }

    fn versions(&mut self) {
        let mut of = |kind: u8, name: &str, encode: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = vec![kind];
            encode(&mut bytes);
            self.add("versions", name, bytes);
        };
        let time = Time::from_micros(1_704_067_200_000_000);
        of(0, "key", &|out| history::version_key::put_version_key(out, b"us\0er", time));
        let until = Time::from_micros(time.micros() + 3_600_000_000);
        for (name, until) in [("historical", until), ("open", Time::MAX)] {
            of(1, name, &|out| {
                out.extend_from_slice(&time.micros().to_le_bytes());
                out.extend_from_slice(b"value");
                let ended = match until == Time::MAX {
                    true => history::Ended::open(time, true),
                    false => history::Ended::at(until, false),
                };
                history::put_historical(out, time, ended);
            });
        }
        of(2, "primary", &|out| {
            out.extend_from_slice(b"value");
            out.extend_from_slice(&history::primary_suffix(time));
        });
        of(4, "expiring", &|out| {
            out.extend_from_slice(b"value");
            out.extend_from_slice(&history::primary_suffix(time));
            out.extend_from_slice(&base::expiry::expiry_bytes(until));
        });
        of(3, "retention", &|out| out.extend_from_slice(b"versions(3) or age(12h)"));
    }

    fn names_and_options(&mut self) {
        for name in [
            "wal-000001.log",
            "000123.tbl",
            "manifest-000007",
            "wal-1000000.log",
            "manifest-000007.tmp",
            "wal-12.log",
            "+00123.tbl",
            "LOCK",
        ] {
            self.add("file_name", name, name.as_bytes().to_vec());
        }
        self.add("keyspace_name", "plain", b"users\ncities\nusers\n\nZ\xc3\xbcrich".to_vec());
        self.add("keyspace_name", "odd", b"../../etc\n/\n.\n \n\0\n\xff\nLOCK".to_vec());
        self.add("keyspace_name", "long", [vec![b'n'; 255], vec![b'\n'], vec![b'm'; 256]].concat());
        let of = |table: u8, pairs: Vec<(&'static str, String)>| {
            let mut out = vec![table];
            for (i, (_, value)) in pairs.iter().enumerate() {
                out.extend_from_slice(&[i as u8, value.len() as u8]);
                out.extend_from_slice(value.as_bytes());
            }
            out
        };
        self.add("options", "keyspace", of(0, KeyspaceOptions::default().to_pairs()));
        self.add("options", "database", of(1, Options::default().to_pairs()));
        self.add("options", "named", [&[0, 255, 6], &b"levels\x0299\xff\x05bogus\x011"[..]].concat());
    }

    fn texts(&mut self) {
        let samples: [(&str, [u8; 3], &str); 15] = [
            ("tsv", [0, 0, 3], "a\t1\n\nb\\n\t\\x00\r\nc\t\n\td"),
            ("tsv-columns", [0, 4, 1], "id\tname\tsize\n7\ta\\\\b\t1\n8\tc\t2\n9\td\n"),
            ("tsv-raw", [0x40, 0x1d, 7], "1\tC:\\new\tx\n"),
            ("tsv-hex", [0x80, 0, 2], "00ff\t4142\n0g\t00\n"),
            ("csv", [1, 0, 5], "key,value\nk,\"a \"\"b\"\"\nc\"\n\"x\",y\n\"q\"z,1\n"),
            ("csv-named", [1, 0x0c, 5], "\u{feff}id,name,value\n1,\"O,K\",v\n2,n\n"),
            (
                "jsonl",
                [2, 0, 9],
                "{\"key\":\"a\",\"value\":1}\n{\"key_hex\":\"00ff\",\"value\":\"\\u00e9\"}\nnot\n",
            ),
            ("jsonl-fields", [2, 0x03, 9], "{\"id\":7,\"x\":{\"y\":[1,2]}}\n{\"id\":null}\n"),
            ("tsv-history", [0x20, 0, 3], "a\t1970-01-01T00:00:01Z\tput\t1\na\t5\tdelete\t\nb\tx\tput\t\n"),
            ("csv-time", [0x11, 0, 3], "key,time,value\na,7,x\nb,-1,y\n"),
            (
                "jsonl-history",
                [0x22, 0, 9],
                "{\"key\":\"a\",\"time\":5,\"value\":null}\n{\"key\":\"b\",\"time\":\"1970-01-01T00:00:01Z\",\"value\":\"1\"}\n",
            ),
            ("lines", [3, 0, 1], "one\ntwo\r\n\nthree"),
            ("lines-hex", [0x83, 0, 1], "00ff\nabc\n"),
            ("paragraphs", [4, 0, 4], "Package: a\nVersion: 1\n more\n\n# c\nPackage: b\n\n\nnothing\n"),
            ("paragraphs-named", [4, 0x1b, 4], "id: a\nName: b\n\nID: c\n"),
        ];
        for (name, front, text) in samples {
            self.add("load", name, [&front, text.as_bytes()].concat());
        }
        for (i, line) in [
            "put fruit/apple \"deep red\\n\" k v; get fruit/apple",
            "get x'00ff' 'it is' \"\\x41\\\"\" # comment",
            "scan prefix FR/ limit 5 reverse keys; count from a to b; scan a m values",
            "begin; commit; rollback; snapshot s; at s get a; at s scan; release s",
            ".mode json; .USE \"x y\"; del a b; delete \"limit\"",
            "put a \"open",
            "at s put a b; fetch; scan a b c; limit",
            "at -2h get tea; at 7 put tea 4; history tea from 2026-11-25T10:00:00Z to now limit 3 reverse",
        ]
        .iter()
        .enumerate()
        {
            self.add("shell", &format!("line-{i}"), line.as_bytes().to_vec());
        }
        for text in [
            "# HELP cairn_keyspaces Keyspaces.\n# TYPE cairn_keyspaces gauge\ncairn_keyspaces 1\n",
            "cairn_level_tables{keyspace=\"a \\\"b\\\"\\\\\\n\",tree=\"newest\",level=\"0\"} 3\ncairn_level_tables{keyspace=\"x\"} 1\n",
            "cairn_operation_seconds_bucket{operation=\"get\",le=\"0.001\"} 64\ncairn_operation_seconds_bucket{operation=\"get\",le=\"+Inf\"} 128\n\
             cairn_operation_seconds_count{operation=\"get\"} 128\n",
            "cairn_stalls_total { reason = \"log\" , }\t1e300 1700000000\ncairn_disk_full NaN\nother{x=\"y\"} 7\n",
            "cairn_a{b=\"",
        ] {
            self.add("metrics", &format!("{:016x}", hash(text.as_bytes())), text.as_bytes().to_vec());
        }
        for text in [
            "Z\u{fc}rich \\t\\n\\\\\\x00",
            "00ffAB",
            "1.5 MiB",
            "18446744073709551615",
            "\u{feff}\u{9b}\t",
            "\\q",
        ] {
            self.add("escapes", &format!("{:016x}", hash(text.as_bytes())), text.as_bytes().to_vec());
        }
        self.add("escapes", "bytes", vec![0xff, b'a', 0xc3, 0x28, 0x5c, 0]);
    }

    /// Inputs of the targets that read choices from bytes.
    fn choices(&mut self) {
        for target in ["table_write", "memtable", "recovery", "damage", "history", "timed"] {
            for (seed, len) in [(1, 40), (2, 150), (3, 400), (4, 800)] {
                self.push(target, format!("noise-{seed}"), noise(seed, len));
            }
            self.push(target, "zeros".into(), vec![0; 60]);
        }
        for how in 0..8 {
            let at = 17 * u16::from(how);
            self.push(
                "damage",
                format!("kind-{how}"),
                [&[how, how, 1][..], &at.to_le_bytes(), b"\x0a000999.tbl"].concat(),
            );
        }
    }
}

fn size_of_frame(bytes: &[u8]) -> usize {
    9 + u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")) as usize
}

/// The records of all segments of a kind in `files`. For logs, file names must end in `end`.
fn all_records(files: &Files, end: &str, kind: SegmentKind) -> Vec<Vec<u8>> {
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    let mut records = Vec::new();
    for (path, bytes) in files {
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        let ours = match kind {
            SegmentKind::Wal => name.ends_with(end),
            _ => name.starts_with("manifest-"),
        };
        let Some(number) = digits.parse().ok().filter(|_| ours) else { continue };
        sim.write_file("/segment", &bytes[..]);
        let mut reader =
            SegmentReader::open(&env, Path::new("/segment"), kind, number, None).expect("a real file");
        let mut record = Vec::new();
        while reader.next(&mut record).expect("a real file").is_some() {
            records.push(record.clone());
        }
    }
    records.retain(|record| !record.is_empty());
    records
}
