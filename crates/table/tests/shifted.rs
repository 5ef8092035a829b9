//! Tables whose entries got their sequence numbers after they were written.

use crate::common::{DIR, Entry, current, sim, tables, write};
use base::{Cursor, EntryKind, MAX_SEQ, Trailer, hash};
use std::path::Path;
use table::{SalvageCursor, TableFormat, TableOptions};

fn entry(n: usize, seq: u64) -> Entry {
    let key = format!("key {n:05}").into_bytes();
    Entry { key, trailer: Trailer::new(seq, EntryKind::Put), value: vec![n as u8; n % 50] }
}

#[test]
fn every_reader_sees_the_shifted_numbers() {
    for format in [TableFormat::BTree, TableFormat::SizeClass] {
        let (_, env) = sim();
        let options = TableOptions { format, block_size: 256, ..TableOptions::default() };
        // Versions of one key, too, so that blocks and index nodes begin between them.
        let written: Vec<Entry> =
            (0..400).flat_map(|n| (10..=10 + n as u64 % 7).rev().map(move |seq| entry(n, seq))).collect();
        let meta = write(&env, 1, &options, &written).shifted(1_000).unwrap();
        assert_eq!((meta.min_seq, meta.max_seq, meta.seq_shift), (1_010, 1_016, 1_000));
        let expected: Vec<Entry> = (written.iter())
            .map(|e| Entry { trailer: e.trailer.shifted(1_000).unwrap(), ..e.clone() })
            .collect();
        let table = tables(&env, 1 << 20).open(&meta).unwrap();
        assert_eq!(table.meta().unwrap(), meta);
        assert_eq!(table.verify(&mut |_| Ok(())).unwrap(), meta);
        // Walks: through the cache, both ways; past it; and of salvage.
        let mut cursor = table.cursor();
        cursor.seek_to_first().unwrap();
        for e in &expected {
            assert_eq!(current(&cursor).as_ref(), Some(e));
            cursor.next().unwrap();
        }
        cursor.seek_to_last().unwrap();
        for e in expected.iter().rev() {
            assert_eq!(current(&cursor).as_ref(), Some(e));
            cursor.prev().unwrap();
        }
        let mut scan = table.scan();
        scan.seek_to_first().unwrap();
        let mut salvage = SalvageCursor::open(&env, Path::new(DIR), 1, 1_000).unwrap();
        salvage.seek_to_first().unwrap();
        for e in &expected {
            assert_eq!((current(&scan).as_ref(), current(&salvage).as_ref()), (Some(e), Some(e)));
            scan.next().unwrap();
            salvage.next().unwrap();
        }
        assert!(!scan.valid() && !salvage.valid());
        let survey = SalvageCursor::open(&env, Path::new(DIR), 1, 1_000).unwrap().survey().unwrap();
        assert_eq!((survey.min_seq, survey.max_seq), (1_010, 1_016));
        // Look-ups and seeks as of each number.
        for n in (0..400).step_by(13) {
            let key = entry(n, 1).key;
            for seq in [1, 16, 999, 1_009, 1_010, 1_011, 1_013, 1_016, 1_017, MAX_SEQ] {
                let newest = seq.min(1_010 + n as u64 % 7);
                let found = table.get(&key, hash(&key), seq).unwrap().map(|(trailer, _)| trailer.seq());
                assert_eq!(found, (seq >= 1_010).then_some(newest), "{n} as of {seq}");
                cursor.seek(&key, seq).unwrap();
                let at = expected
                    .partition_point(|e| base::compare(&e.key, e.trailer, &key, Trailer::seek(seq)).is_lt());
                assert_eq!(current(&cursor).as_ref(), expected.get(at), "{n} as of {seq}");
            }
        }
        // No number becomes too large unnoticed.
        assert_eq!(meta.clone().shifted(MAX_SEQ), None);
        let too_far = table::TableMeta { seq_shift: MAX_SEQ, ..meta };
        let table = tables(&env, 1 << 20).open(&too_far).unwrap();
        assert!(table.get(b"key 00001", hash(b"key 00001"), MAX_SEQ).is_err());
        assert!(table.meta().is_err() && table.verify(&mut |_| Ok(())).is_err());
    }
}
