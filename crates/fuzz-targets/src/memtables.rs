//! Memtables, compared with a sorted list.

use crate::Source;
use crate::tables::{Entry, entries};
use base::{Cursor, MAX_SEQ};
use memtable::Memtable;

/// Inserts entries, in sorted or another order according to the input, and reads all of them.
pub(crate) fn memtable(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let (stride, probe) = (source.below(64) | 1, source.bytes());
    let entries = entries(&mut source, 1024);
    let memtable = Memtable::new(256 << 10);
    let mut inserted: Vec<&Entry> = Vec::new();
    // Odd steps modulo a power of two visit every index once.
    let places = entries.len().next_power_of_two();
    for i in 0..places {
        let Some(entry @ (key, trailer, value)) = entries.get(i * stride % places) else { continue };
        if memtable.reserve(Memtable::entry_cost(key.len(), value.len())) {
            memtable.insert(key, *trailer, value);
            inserted.push(entry);
        }
    }
    inserted.sort_by(|a, b| base::compare(&a.0, a.1, &b.0, b.1));
    assert_eq!(memtable.entries(), inserted.len());
    assert_eq!(memtable.max_seq(), inserted.iter().map(|e| e.1.seq()).max());
    assert_eq!(memtable.min_seq(), inserted.iter().map(|e| e.1.seq()).min());
    for (key, trailer, value) in &inserted {
        assert_eq!(memtable.get(key, trailer.seq()), Some((*trailer, &value[..])));
    }
    let newest = inserted.iter().find(|e| e.0 == probe);
    assert_eq!(memtable.get(probe, MAX_SEQ), newest.map(|e| (e.1, &e.2[..])));
    check_cursor(&mut memtable.cursor(), &inserted, probe);
    !inserted.is_empty()
}

/// Moves a cursor through all entries, forward and back, and seeks `probe`.
fn check_cursor(cursor: &mut impl Cursor, entries: &[&Entry], probe: &[u8]) {
    const FINE: &str = "memory does not fail";
    let here = |cursor: &dyn Cursor| (cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec());
    cursor.seek_to_first().expect(FINE);
    for entry in entries {
        assert!(cursor.valid() && here(cursor) == **entry);
        cursor.next().expect(FINE);
    }
    assert!(!cursor.valid());
    cursor.seek_to_last().expect(FINE);
    for entry in entries.iter().rev() {
        assert!(cursor.valid() && here(cursor) == **entry);
        cursor.prev().expect(FINE);
    }
    assert!(!cursor.valid());
    let at = entries.partition_point(|e| e.0.as_slice() < probe);
    cursor.seek(probe, MAX_SEQ).expect(FINE);
    assert_eq!(cursor.valid().then(|| here(cursor)).as_ref(), entries.get(at).copied());
    cursor.seek_before(probe).expect(FINE);
    let before = at.checked_sub(1).map(|i| entries[i]);
    assert_eq!(cursor.valid().then(|| here(cursor)).as_ref(), before);
}
