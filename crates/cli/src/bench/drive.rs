//! Runs one workload: splits its operations among threads, times each of them, and adds up what came of it.
//!
//! A thread reads the clock once per operation: where one operation ends the next begins. Making a key or a value takes a
//! few nanoseconds and counts with the operation, as in `db_bench`.

use super::bar::Bar;
use super::generate::{Key, Order, Values, is_value, seed_of};
use super::workload::{Operation, Workload};
use cairn::{Cursor, Durability, Error, ErrorKind, Keyspace, Result};
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Every so many reads the value is compared, whole, with what was written.
const VERIFY_EVERY: u64 = 64;

/// What is to be run.
pub struct Job<'a> {
    pub keyspace: &'a Keyspace,
    pub workload: Workload,
    /// The seed of this run of this workload.
    pub seed: u64,
    /// Operations of all threads together.
    pub ops: u64,
    /// Keys are those of the numbers below this.
    pub num: u64,
    pub key_size: usize,
    pub values: &'a Values,
    /// Entries that a seek walks on.
    pub seek_nexts: u64,
    pub threads: usize,
    pub durability: Durability,
}

/// What operations did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations.
    pub ops: u64,
    /// Reads that found the key they asked for.
    pub found: u64,
    /// Bytes of keys and values that were put, and of keys that were deleted.
    pub bytes_put: u64,
    /// Bytes of keys and values that reads gave.
    pub bytes_got: u64,
    /// Values that were compared with what was written.
    pub verified: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.ops += other.ops;
        self.found += other.found;
        self.bytes_put += other.bytes_put;
        self.bytes_got += other.bytes_got;
        self.verified += other.verified;
    }
}

/// What a run took and did.
pub struct Outcome {
    /// When the first thread began.
    pub started: Instant,
    /// From then until the last one ended.
    pub time: Duration,
    /// Nanoseconds of each operation.
    pub latency: Histogram<u64>,
    pub tally: Tally,
    /// What the thread that writes beside the readers did.
    pub writer: Option<Tally>,
}

/// What one thread measured.
struct Share {
    started: Instant,
    ended: Instant,
    latency: Histogram<u64>,
    tally: Tally,
}

/// A counter with a cache line of its own, so that the threads do not slow each other down.
#[repr(align(128))]
struct Counter(AtomicU64);

/// What the threads of a run share.
struct Common {
    start: Barrier,
    /// Set when a thread fails, or when the last reader has ended and the writer beside it may.
    stop: AtomicBool,
    readers_left: AtomicUsize,
    done: Vec<Counter>,
}

/// Runs a workload.
pub fn run(job: &Job<'_>, bar: &Bar) -> Result<Outcome> {
    let with_writer = job.workload == Workload::ReadWhileWriting;
    let common = Common {
        start: Barrier::new(job.threads + usize::from(with_writer)),
        stop: AtomicBool::new(false),
        readers_left: AtomicUsize::new(job.threads),
        done: (0..job.threads).map(|_| Counter(AtomicU64::new(0))).collect(),
    };
    let common = &common;
    let (shares, writer) = thread::scope(|scope| {
        let _shown = bar.follow(scope, move || common.done.iter().map(|n| n.0.load(Ordering::Relaxed)).sum());
        let threads: Vec<_> = (0..job.threads).map(|t| scope.spawn(move || worker(job, common, t))).collect();
        let writer = with_writer.then(|| scope.spawn(move || write_until_stopped(job, common)));
        let shares: Vec<_> = threads.into_iter().map(join).collect();
        (shares, writer.map(join))
    });
    let shares = shares.into_iter().collect::<Result<Vec<Share>>>()?;
    let writer = writer.transpose()?;
    let mut all = shares.into_iter();
    let mut sum = all.next().expect("there is at least one thread");
    for share in all {
        sum.started = sum.started.min(share.started);
        sum.ended = sum.ended.max(share.ended);
        sum.latency.add(&share.latency).expect("all histograms have the same bounds");
        sum.tally.add(&share.tally);
    }
    Ok(Outcome {
        started: sum.started,
        time: sum.ended - sum.started,
        latency: sum.latency,
        tally: sum.tally,
        writer,
    })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The part of `whole` that falls to thread `t` of `threads`.
fn part(whole: u64, t: usize, threads: usize) -> Range<u64> {
    let cut = |t: usize| (u128::from(whole) * t as u128 / threads as u128) as u64;
    cut(t)..cut(t + 1)
}

fn worker(job: &Job<'_>, common: &Common, t: usize) -> Result<Share> {
    let share = operate(job, common, t);
    // A writer beside us, and after a failure everybody, has no reason to go on.
    let last = common.readers_left.fetch_sub(1, Ordering::AcqRel) == 1;
    if last || share.is_err() {
        common.stop.store(true, Ordering::Relaxed);
    }
    share
}

/// The operations of one thread.
fn operate(job: &Job<'_>, common: &Common, t: usize) -> Result<Share> {
    let (keyspace, num) = (job.keyspace, job.num);
    let order = job.workload.order(job.seed);
    let ops = part(job.ops, t, job.threads);
    let done = &common.done[t].0;
    match job.workload.operation() {
        Operation::Put => {
            let mut put = putter(job, order);
            repeat(common, done, ops, |op, tally| put(op, tally).map(|()| true))
        }
        Operation::Delete => {
            let mut key = Key::new(job.key_size, num);
            repeat(common, done, ops, |op, tally| {
                let key = key.of(order.key_of(op, num));
                keyspace.delete_with(key, job.durability)?;
                tally.bytes_put += key.len() as u64;
                Ok(true)
            })
        }
        Operation::Get { missing } => {
            let mut key = if missing { Key::missing(job.key_size, num) } else { Key::new(job.key_size, num) };
            repeat(common, done, ops, |op, tally| {
                let key = key.of(order.key_of(op, num));
                if let Some(value) = keyspace.get(key)? {
                    tally.found += 1;
                    got(op, key, &value, tally)?;
                }
                Ok(true)
            })
        }
        Operation::Seek => {
            let mut key = Key::new(job.key_size, num);
            repeat(common, done, ops, |op, tally| {
                let key = key.of(order.key_of(op, num));
                let mut cursor = keyspace.cursor();
                cursor.seek(key)?;
                tally.found += u64::from(cursor.valid() && cursor.key() == key);
                walk(op, &mut cursor, job.seek_nexts, tally)?;
                Ok(true)
            })
        }
        Operation::Step { back } => {
            let mut cursor = slice_cursor(job, t);
            let mut begun = false;
            repeat(common, done, ops, |op, tally| {
                match (begun, back) {
                    (false, false) => cursor.seek_to_first()?,
                    (false, true) => cursor.seek_to_last()?,
                    (true, false) => cursor.next()?,
                    (true, true) => cursor.prev()?,
                }
                begun = true;
                if !cursor.valid() {
                    return Ok(false);
                }
                tally.found += 1;
                got(op, cursor.key(), cursor.value(), tally)?;
                Ok(true)
            })
        }
    }
}

/// The thread that puts random keys while others read; one at least, however late it gets its turn.
fn write_until_stopped(job: &Job<'_>, common: &Common) -> Result<Tally> {
    let mut put = putter(job, Order::Random { seed: seed_of(job.seed, "writer", 0) });
    let mut tally = Tally::default();
    common.start.wait();
    loop {
        put(tally.ops, &mut tally)?;
        tally.ops += 1;
        if common.stop.load(Ordering::Relaxed) {
            return Ok(tally);
        }
    }
}

/// The operation that stores a value.
fn putter(job: &Job<'_>, order: Order) -> impl FnMut(u64, &mut Tally) -> Result<()> {
    let mut key = Key::new(job.key_size, job.num);
    move |op, tally| {
        let (key, value) = (key.of(order.key_of(op, job.num)), job.values.of(op));
        job.keyspace.put_with(key, value, job.durability)?;
        tally.bytes_put += (key.len() + value.len()) as u64;
        Ok(())
    }
}

/// A cursor over the keys that fall to thread `t`; the first and the last have whatever lies outside of them, too.
fn slice_cursor(job: &Job<'_>, t: usize) -> Cursor {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let slice = part(job.num, t, job.threads);
    let key = |number| Key::new(job.key_size, job.num).of(number).to_vec();
    let from = if t == 0 { Unbounded } else { Included(key(slice.start)) };
    let to = if t + 1 == job.threads { Unbounded } else { Excluded(key(slice.end)) };
    job.keyspace.cursor_bounded::<Vec<u8>>((from, to))
}

/// Looks at the entry that the cursor stands on, and at up to `nexts` behind it.
#[inline]
fn walk(op: u64, cursor: &mut Cursor, nexts: u64, tally: &mut Tally) -> Result<()> {
    let mut left = nexts;
    while cursor.valid() {
        got(op, cursor.key(), cursor.value(), tally)?;
        if left == 0 {
            break;
        }
        left -= 1;
        cursor.next()?;
    }
    Ok(())
}

/// Counts an entry that was read, and now and then looks whether it is what was written.
#[inline]
fn got(op: u64, key: &[u8], value: &[u8], tally: &mut Tally) -> Result<()> {
    tally.bytes_got += (key.len() + value.len()) as u64;
    black_box(value);
    if op.is_multiple_of(VERIFY_EVERY) {
        tally.verified += 1;
        if !is_value(value) {
            let message =
                format!("the value of {:?} is not one that bench wrote", key.escape_ascii().to_string());
            return Err(Error::new(ErrorKind::Corruption, message));
        }
    }
    Ok(())
}

/// Does the operations `ops` one after another and times each. One that says `false` found the end: it does not count.
#[inline]
fn repeat(
    common: &Common,
    done: &AtomicU64,
    ops: Range<u64>,
    mut operation: impl FnMut(u64, &mut Tally) -> Result<bool>,
) -> Result<Share> {
    let mut latency = new_histogram();
    let mut tally = Tally::default();
    common.start.wait();
    let started = Instant::now();
    let mut last = started;
    for op in ops {
        if common.stop.load(Ordering::Relaxed) || !operation(op, &mut tally)? {
            break;
        }
        let now = Instant::now();
        latency.saturating_record((now - last).as_nanos() as u64);
        last = now;
        tally.ops += 1;
        done.store(tally.ops, Ordering::Relaxed);
    }
    Ok(Share { started, ended: Instant::now(), latency, tally })
}

/// From 1 ns to an hour, three digits: about 250 KiB.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are constant and right")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_whole() {
        for (whole, threads) in [(0, 1), (1, 4), (10, 3), (1000, 7), (u64::MAX, 5)] {
            let parts: Vec<_> = (0..threads).map(|t| part(whole, t, threads)).collect();
            assert_eq!((parts[0].start, parts[threads - 1].end), (0, whole));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            let lengths = || parts.iter().map(|p| p.end - p.start);
            assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1);
        }
    }
}
