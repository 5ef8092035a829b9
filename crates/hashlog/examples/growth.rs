//! Measures how long look-ups wait while the index grows: `cargo run --release -p cairn-hashlog --example growth [MILLIONS] [BATCH]`.
//!
//! One thread inserts slots, as flushes do, and one looks up those that are there. So of a look-up the longest time is that of the longest change of a leaf
//! or of the directory beside it, or that for which the machine has run something else. To tell the two apart, the second thread also looks at the clock for as
//! long as it has looked up, and reports how long that was held up.

use hashlog::{HashIndex, NewSlot, Place};
use record::ChunkPlace;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use values::SegmentFile;

/// Entries of a file.
const PER_FILE: u64 = 1 << 20;

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

/// Times of calls: how many, the longest, and how many took more than 1 ms and more than 5 ms.
#[derive(Default)]
struct Times {
    count: u64,
    longest: Duration,
    over_1: u64,
    over_5: u64,
}

impl Times {
    fn note(&mut self, time: Duration) {
        self.count += 1;
        self.longest = self.longest.max(time);
        self.over_1 += u64::from(time > Duration::from_millis(1));
        self.over_5 += u64::from(time > Duration::from_millis(5));
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Times { count, longest, over_1, over_5 } = self;
        write!(
            f,
            "{count}, the longest {:.3} ms, {over_1} over 1 ms, {over_5} over 5 ms",
            longest.as_secs_f64() * 1e3
        )
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let (millions, batch) = (args.next().unwrap_or(50), args.next().unwrap_or(100_000));
    let index = HashIndex::default();
    let (inserted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    let (look_ups, idle, batches) = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut times, mut idle, mut found, mut i) =
                (Times::default(), Times::default(), Vec::new(), 0u64);
            while !done.load(Ordering::Relaxed) {
                let known = inserted.load(Ordering::Acquire);
                if known == 0 {
                    continue;
                }
                i = i.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let tag = index.tag_of(&key((i >> 20) % known));
                found.clear();
                let begun = Instant::now();
                index.candidates(tag, &mut found);
                let took = begun.elapsed();
                times.note(took);
                assert!(!found.is_empty());
                // A look-up that was held up counts as a short one, or the control would last as long as what it is compared with.
                let (begun, usual) = (Instant::now(), took.min(Duration::from_micros(2)));
                while begun.elapsed() < usual {}
                idle.note(begun.elapsed());
            }
            (times, idle)
        });
        let mut times = Times::default();
        let (mut file, mut slots) = (0, Vec::new());
        for i in 0..millions * 1_000_000 {
            if i % PER_FILE == 0 {
                let segment = SegmentFile::Log(i / PER_FILE + 1);
                file = index.add_file(segment, PER_FILE * 100).expect("files are few");
            }
            let at = ChunkPlace { chunk: i % PER_FILE * 100, within: 0 };
            let place = Place::new(file, at, false).expect("the file is small");
            slots.push(NewSlot { tag: index.tag_of(&key(i)), place, seq: i + 1 });
            if slots.len() as u64 == batch || i % PER_FILE == PER_FILE - 1 || i + 1 == millions * 1_000_000 {
                let begun = Instant::now();
                index.insert(&mut slots, &BTreeMap::new());
                times.note(begun.elapsed());
                slots.clear();
                inserted.store(i + 1, Ordering::Release);
            }
        }
        done.store(true, Ordering::Relaxed);
        let (look_ups, idle) = reader.join().expect("the reader ends");
        (look_ups, idle, times)
    });
    let (seconds, slots) = (start.elapsed().as_secs_f64(), index.slots());
    println!("{slots} slots in {seconds:.1} s, {:.2} bytes each", index.memory() as f64 / slots as f64);
    println!("look-ups: {look_ups}");
    println!("of the same time without a look-up: {idle}");
    println!("insertions of {batch}: {batches}");
}
