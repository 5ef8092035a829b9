//! Loom runs the interleavings of a few threads, with a bound on preemptions, in the two small concurrent parts of a commit, with every
//! value that weak memory may show: `RUSTFLAGS="--cfg loom" cargo test --release -p cairn-kv --lib loom`. Shuttle runs the same code in whole
//! databases, see `crates/sim/tests/shuttle`. With `--features planted-bugs` the tests prove that they can fail: first
//! `loom -- --skip planted`, then `loom_planted`.

use crate::parts::{Member, VisibleSeq, Waiter, Wake, WriteQueue};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// Preemptions are bounded, or the search takes hours: almost all bugs need only a few.
fn check(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(test);
}

/// The inserted data of commits, with relaxed stores as a memtable may use them: only publishing orders them.
struct Inserted {
    visible: VisibleSeq,
    entries: [AtomicU64; 4],
}

impl Inserted {
    fn new() -> Arc<Inserted> {
        let entries = std::array::from_fn(|_| AtomicU64::new(0));
        Arc::new(Inserted { visible: VisibleSeq::new(0), entries })
    }

    fn commit(&self, first: u64, last: u64) {
        (first..=last).for_each(|seq| self.entries[seq as usize - 1].store(seq, Ordering::Relaxed));
        self.visible.publish(first, last);
        self.look(last);
    }

    /// Checks that everything up to the visible number is inserted. Sequence number 2 is inside of a commit of two entries.
    fn look(&self, least: u64) -> u64 {
        let seq = self.visible.newest();
        assert!(seq != 2 && seq >= least, "{seq} after {least}");
        (1..=seq).for_each(|s| assert_eq!(self.entries[s as usize - 1].load(Ordering::Relaxed), s));
        seq
    }
}

/// Two commits, the second with two entries, insert concurrently. A reader sees whole commits, in order, with their data.
#[test]
fn loom_commits_become_visible_in_order_and_whole() {
    check(2, || {
        let (inserted, younger, reader) = {
            let inserted = Inserted::new();
            (inserted.clone(), inserted.clone(), inserted)
        };
        let younger = thread::spawn(move || younger.commit(2, 3));
        let reader = thread::spawn(move || {
            let seq = reader.look(0);
            reader.look(seq);
        });
        inserted.commit(1, 1);
        younger.join().unwrap();
        reader.join().unwrap();
        assert_eq!(inserted.look(3), 3);
    });
}

/// Two commits that are inserted before an older one are recorded and sleep: they are published with it, in order, and all threads wake
/// up.
#[test]
fn loom_who_is_early_is_published_by_who_is_late() {
    check(2, || {
        let inserted = Inserted::new();
        let early = [(2, 3), (4, 4)].map(|(first, last)| {
            let inserted = inserted.clone();
            thread::spawn(move || inserted.commit(first, last))
        });
        inserted.commit(1, 1);
        early.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(inserted.look(4), 4);
    });
}

type Jobs = WriteQueue<Vec<u64>, u64, Result<u64, ()>>;

type Members = Vec<Member<u64, Result<u64, ()>>>;

/// The threads to wake when the writer is released.
type Wakes = Vec<Wake<u64, Result<u64, ()>>>;

/// Does all jobs: appends each to the list; the result is the job itself.
fn lead(written: &mut Vec<u64>, members: Members) -> Wakes {
    let done = |member: Member<u64, Result<u64, ()>>| {
        written.push(member.job);
        let job = member.job;
        member.done(Ok(job))
    };
    members.into_iter().map(done).collect()
}

/// A write queue, and an atomic that every thread changes before it looks at the writer and while it holds it: without this loom does not
/// schedule a thread that looks while another one holds the writer.
struct Hall {
    write_queue: Jobs,
    place: AtomicU64,
}

impl Hall {
    fn pass(&self) {
        self.place.fetch_add(1, Ordering::AcqRel);
    }

    /// A synced write: commits at once if the writer is free and the queue empty, otherwise queues.
    fn synced(&self, job: u64) -> Result<u64, ()> {
        self.pass();
        match self.write_queue.try_now() {
            Some(mut lead) => {
                lead.writer.push(job);
                self.pass();
                Ok(job)
            }
            None => self.queue(job),
        }
    }

    /// Any other write: also does the queued jobs that suit it.
    fn plain(&self, job: u64) -> Result<u64, ()> {
        self.pass();
        match self.write_queue.try_briefly() {
            Some(mut held) => {
                held.writer.push(job);
                self.pass();
                let wakes = match self.write_queue.has_queue() {
                    true => lead(&mut held.writer, self.write_queue.take_while(|job| *job != UNSUITED)),
                    false => Wakes::new(),
                };
                drop(held);
                drop(wakes);
                Ok(job)
            }
            None => self.queue(job),
        }
    }

    /// A flush, or another operation that needs the writer for more than a job.
    fn other(&self, job: u64) {
        let mut lead = self.write_queue.wait();
        lead.writer.push(job);
        self.pass();
    }

    fn queue(&self, job: u64) -> Result<u64, ()> {
        self.write_queue.queue(&Arc::new(Waiter::default()), job, |written, members| {
            self.pass();
            lead(written, members)
        })
    }
}

/// A job that only its own thread may do, as leader.
const UNSUITED: u64 = 1;

/// Every queued thread is served or leads, whichever thread releases the writer meanwhile. A forgotten one is a deadlock.
#[test]
fn loom_nobody_queues_for_ever() {
    for threads in [1, 2] {
        check(2, move || {
            let hall =
                Arc::new(Hall { write_queue: Jobs::new(Vec::new(), || Err(())), place: AtomicU64::new(0) });
            let queue = |job| {
                let hall = hall.clone();
                thread::spawn(move || assert_eq!(hall.synced(job), Ok(job)))
            };
            let threads: Vec<_> = (1..=threads).map(queue).collect();
            hall.other(9);
            let jobs = threads.len() + 1;
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let mut written = hall.write_queue.writer.lock().clone();
            written.sort_unstable();
            assert_eq!(written.len(), jobs, "each job is done once: {written:?}");
        });
    }
}

/// The same with writers that do queued jobs, except for those that do not suit them.
#[test]
fn loom_nobody_who_is_not_served_is_forgotten() {
    check(2, move || {
        let hall =
            Arc::new(Hall { write_queue: Jobs::new(Vec::new(), || Err(())), place: AtomicU64::new(0) });
        let threads = [true, false].map(|synced| {
            let hall = hall.clone();
            let write = move || match synced {
                true => assert_eq!(hall.synced(UNSUITED), Ok(UNSUITED)),
                false => assert_eq!(hall.plain(2), Ok(2)),
            };
            thread::spawn(write)
        });
        assert_eq!(hall.plain(3), Ok(3));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut written = hall.write_queue.writer.lock().clone();
        written.sort_unstable();
        assert_eq!(written, [1, 2, 3], "each job is done once");
    });
}

/// A leader that fails gives every job in its group a result, and the next leader does the others.
#[test]
fn loom_a_failing_leader_fails_those_it_leads() {
    check(2, || {
        let write_queue = Arc::new(Jobs::new(Vec::new(), || Err(())));
        let failing = |written: &mut Vec<u64>, members: Members| {
            written.push(members.len() as u64);
            members.into_iter().map(|member| member.done(Err(()))).collect::<Wakes>()
        };
        let other = write_queue.clone();
        let thread = thread::spawn(move || other.queue(&Arc::new(Waiter::default()), 1, failing));
        assert_eq!(write_queue.queue(&Arc::new(Waiter::default()), 2, failing), Err(()));
        assert_eq!(thread.join().unwrap(), Err(()));
        assert_eq!(write_queue.writer.lock().iter().sum::<u64>(), 2, "each job is answered once");
    });
}

/// Closing: a thread that queues while the writer is held for the last time is refused, or finds out by itself.
#[test]
fn loom_closing_turns_everybody_away() {
    check(3, || {
        let write_queue = Arc::new(Jobs::new(Vec::new(), || Err(())));
        let closed = Arc::new(AtomicBool::new(false));
        let (other, stopped) = (write_queue.clone(), closed.clone());
        let thread = thread::spawn(move || {
            other.queue(&Arc::new(Waiter::default()), 1, |written, members| {
                match stopped.load(Ordering::Acquire) {
                    true => members.into_iter().map(|member| member.done(Err(()))).collect(),
                    false => lead(written, members),
                }
            })
        });
        let writer = write_queue.writer.lock();
        closed.store(true, Ordering::SeqCst);
        drop(writer);
        write_queue.turn_away(|| Err(()));
        let written = thread.join().unwrap().is_ok();
        assert_eq!(write_queue.writer.lock().len(), usize::from(written));
    });
}

/// Each planted bug is switched on for the whole process, and its test must fail.
#[cfg(feature = "planted-bugs")]
#[test]
fn loom_planted_bugs_are_found() {
    use base::planted::{Bug, plant};
    let tests: [(Bug, fn()); 5] = [
        (Bug::ForgetToWake, loom_who_is_early_is_published_by_who_is_late),
        (Bug::ForgetToWakeServed, loom_nobody_who_is_not_served_is_forgotten),
        (Bug::PublishOutOfOrder, loom_commits_become_visible_in_order_and_whole),
        (Bug::ForgetToPassOn, loom_nobody_queues_for_ever),
        (Bug::CloseWithoutTurningAway, loom_closing_turns_everybody_away),
    ];
    for (bug, test) in tests {
        plant(Some(bug));
        let found = std::thread::spawn(test).join().is_err();
        plant(None);
        assert!(found, "{bug:?} is not found");
    }
}
