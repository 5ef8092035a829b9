//! Memtables, compared with a sorted list.

use crate::Source;
use crate::tables::{Entry, entries};
use base::{Cursor, MAX_SEQ};
use memtable::{Memtable, Order};
use std::sync::Arc;

/// Inserts entries, in sorted or another order according to the input, and reads all of them.
pub(crate) fn memtable(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let (stride, probe) = (source.below(64) | 1, source.bytes());
    let entries = entries(&mut source, 1024);
    let inserted = [Order::Key, Order::Hash].map(|order| of_order(order, &entries, stride, probe));
    assert_eq!(inserted[0], inserted[1]);
    inserted[0] > 0
}

/// The same in one order of entries in memory. Returns how many are inserted.
fn of_order(order: Order, entries: &[Entry], stride: usize, probe: &[u8]) -> usize {
    let memtable = Memtable::try_new_in(256 << 10, order, &Arc::default()).expect("memory for a memtable");
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
    inserted.sort_by(|a, b| {
        let places = memtable.place_of(&a.0).cmp(&memtable.place_of(&b.0));
        places.then_with(|| base::compare(&a.0, a.1, &b.0, b.1))
    });
    assert_eq!(memtable.entries(), inserted.len());
    assert_eq!(memtable.max_seq(), inserted.iter().map(|e| e.1.seq()).max());
    assert_eq!(memtable.min_seq(), inserted.iter().map(|e| e.1.seq()).min());
    for (key, trailer, value) in &inserted {
        assert_eq!(memtable.get(key, trailer.seq()), Some((*trailer, &value[..])));
    }
    let newest = inserted.iter().find(|e| e.0 == probe);
    assert_eq!(memtable.get(probe, MAX_SEQ), newest.map(|e| (e.1, &e.2[..])));
    check_cursor(&memtable, &inserted, probe);
    inserted.len()
}

/// Moves a cursor through all entries, forward and back, and seeks `probe`.
fn check_cursor(memtable: &Arc<Memtable>, entries: &[&Entry], probe: &[u8]) {
    const FINE: &str = "memory does not fail";
    let here = |cursor: &dyn Cursor| (cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec());
    let mut cursor = memtable.cursor();
    cursor.seek_to_first().expect(FINE);
    for entry in entries {
        assert!(cursor.valid() && here(&cursor) == **entry);
        cursor.next().expect(FINE);
    }
    assert!(!cursor.valid());
    cursor.seek_to_last().expect(FINE);
    for entry in entries.iter().rev() {
        assert!(cursor.valid() && here(&cursor) == **entry);
        cursor.prev().expect(FINE);
    }
    assert!(!cursor.valid());
    let place = |key| (memtable.place_of(key), key);
    let at = entries.partition_point(|e| place(&e.0) < place(probe));
    cursor.seek(probe, MAX_SEQ).expect(FINE);
    assert_eq!(cursor.valid().then(|| here(&cursor)).as_ref(), entries.get(at).copied());
    cursor.seek_before(probe).expect(FINE);
    let before = at.checked_sub(1).map(|i| entries[i]);
    assert_eq!(cursor.valid().then(|| here(&cursor)).as_ref(), before);
}
