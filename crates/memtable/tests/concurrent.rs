//! Concurrent writers and readers: a reader finds all entries inserted before it started, in order, whatever is
//! inserted and split meanwhile.

use base::{Cursor, EntryKind, MAX_SEQ, Trailer, hash};
use memtable::{Memtable, Order};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const WRITERS: usize = if cfg!(miri) { 2 } else { 4 };
const READERS: usize = if cfg!(miri) { 1 } else { 3 };
const ENTRIES: usize = if cfg!(miri) { 40 } else { 20_000 };

/// Entry number `i` of a writer: its key and trailer, all distinct.
type Script = fn(writer: usize, i: usize) -> (Vec<u8>, Trailer);

fn put(seq: usize) -> Trailer {
    Trailer::new(seq as u64, EntryKind::Put)
}

fn scattered(writer: usize, i: usize) -> (Vec<u8>, Trailer) {
    let place = hash(&[writer as u8, i as u8, (i >> 8) as u8]) % 1_000_000;
    (format!("{place:016}").into_bytes(), put(i * WRITERS + writer))
}

fn interleaved(writer: usize, i: usize) -> (Vec<u8>, Trailer) {
    (format!("{:08}", i * WRITERS + writer).into_bytes(), put(i))
}

fn opposed(writer: usize, i: usize) -> (Vec<u8>, Trailer) {
    let number = if writer.is_multiple_of(2) { i } else { ENTRIES - i };
    (format!("{number:08}-{writer}").into_bytes(), put(i))
}

fn few_keys(writer: usize, i: usize) -> (Vec<u8>, Trailer) {
    (vec![b'k'; i % 5], put(i * WRITERS + writer))
}

fn value(writer: usize, i: usize) -> Vec<u8> {
    [&[writer as u8][..], &(i as u32).to_le_bytes(), &vec![i as u8; i % 20]].concat()
}

struct Run {
    table: Arc<Memtable>,
    script: Script,
    /// Number of entries that each writer has inserted.
    done: [AtomicUsize; WRITERS],
}

impl Run {
    fn write(&self, writer: usize) {
        for i in 0..ENTRIES {
            let ((key, trailer), value) = ((self.script)(writer, i), value(writer, i));
            assert!(self.table.reserve(Memtable::entry_cost(key.len(), value.len())));
            self.table.insert(&key, trailer, &value);
            self.done[writer].store(i + 1, Ordering::Release);
        }
    }

    fn done(&self) -> [usize; WRITERS] {
        std::array::from_fn(|writer| self.done[writer].load(Ordering::Acquire))
    }

    fn finished(&self) -> bool {
        self.done() == [ENTRIES; WRITERS]
    }

    /// Scans the whole table and counts the entries. They must be in order and include all entries inserted before.
    fn scan(&self, forward: bool) {
        let (before, mut seen) = (self.done(), [0; WRITERS]);
        let mut cursor = self.table.cursor();
        if forward {
            cursor.seek_to_first().unwrap()
        } else {
            cursor.seek_to_last().unwrap()
        }
        let mut last: Option<(Vec<u8>, Trailer)> = None;
        while cursor.valid() {
            let current = (cursor.key().to_vec(), cursor.trailer());
            if let Some(last) = last {
                let (a, b) = if forward { (&last, &current) } else { (&current, &last) };
                let places = self.table.place_of(&a.0).cmp(&self.table.place_of(&b.0));
                let order = places.then(base::compare(&a.0, a.1, &b.0, b.1));
                assert!(order.is_lt(), "{a:?} before {b:?}");
            }
            let (writer, i) = self.check_value(&current.0, current.1, cursor.value());
            seen[writer] += usize::from(i < before[writer]);
            last = Some(current);
            if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
        }
        assert_eq!(seen, before, "forward: {forward}");
    }

    fn check_value(&self, key: &[u8], trailer: Trailer, found: &[u8]) -> (usize, usize) {
        let (writer, i) = (found[0] as usize, u32::from_le_bytes(found[1..5].try_into().unwrap()) as usize);
        assert_eq!((key.to_vec(), trailer), (self.script)(writer, i));
        assert_eq!(found, value(writer, i));
        (writer, i)
    }

    /// Looks up the latest entries of all writers.
    fn get(&self) {
        for (writer, done) in self.done().into_iter().enumerate() {
            for i in done.saturating_sub(3)..done {
                let (key, trailer) = (self.script)(writer, i);
                assert_eq!(self.table.get(&key, trailer.seq()).expect("was inserted").0, trailer);
                let newest = self.table.get(&key, MAX_SEQ).expect("was inserted");
                assert!(newest.0 >= trailer);
                self.check_value(&key, newest.0, newest.1);
                let mut cursor = self.table.cursor();
                cursor.seek(&key, trailer.seq()).unwrap();
                assert_eq!((cursor.key(), cursor.trailer()), (&key[..], trailer));
                cursor.seek_before(&key).unwrap();
                let before =
                    |found: &[u8]| (self.table.place_of(found), found) < (self.table.place_of(&key), &key);
                assert!(!cursor.valid() || before(cursor.key()));
            }
        }
    }

    fn read(&self, reader: usize) {
        let mut round = reader;
        while !self.finished() {
            match round % 64 {
                0 => self.scan(true),
                32 => self.scan(false),
                _ => self.get(),
            }
            round += if cfg!(miri) { 16 } else { 1 };
        }
    }
}

fn run(script: Script) {
    run_in(Order::Key, script);
    run_in(Order::Hash, script);
}

fn run_in(order: Order, script: Script) {
    let capacity = if cfg!(miri) { 64 << 10 } else { 32 << 20 };
    let table = Memtable::try_new_in(capacity, order, &Arc::default()).unwrap();
    let run = Run { table, script, done: std::array::from_fn(|_| AtomicUsize::new(0)) };
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let run = &run;
            scope.spawn(move || run.write(writer));
        }
        for reader in 0..READERS {
            let run = &run;
            scope.spawn(move || run.read(reader * 32));
        }
    });
    run.scan(true);
    run.scan(false);
    run.get();
    assert_eq!(run.table.entries(), WRITERS * ENTRIES);
    let trailers = (0..WRITERS).flat_map(|w| (0..ENTRIES).map(move |i| script(w, i).1.seq()));
    assert_eq!(run.table.max_seq(), trailers.max());
    assert_eq!(run.table.min_seq(), Some(0));
}

#[test]
fn scattered_keys() {
    run(scattered);
}

#[test]
fn interleaved_runs() {
    run(interleaved);
}

#[test]
fn opposed_runs() {
    run(opposed);
}

#[test]
fn versions_of_few_keys() {
    run(few_keys);
}
