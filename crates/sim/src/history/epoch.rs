//! An epoch: threads work until the database is closed, the process is killed, the power fails, or a sync fails. Then
//! the database is reopened, and its content starts the next epoch.
//!
//! A crash is a copy of the simulated disk during one of its operations, while the threads continue. So one run gives
//! two histories: the complete one, and the one that ends at the copy. The next epoch uses the copy.

use super::actor::{Actor, Ended, Held};
use super::check::{self, Cut, Epoch};
use super::operation::{Clock, State};
use super::world::{Site, World};
use crate::finding::{Finding, Outcome, ensure};
use crate::ordering::has_order;
use crate::random::{Draw, Rng, derive};
use cairn::env::{Fault, OpInfo, OpKind, Phase, SimEnv, Survival};
use cairn::{Durability, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of recorded threads. Another thread flushes and compacts.
pub const THREADS: usize = 5;

/// Maximum number of operations of each thread in an epoch.
pub const STEPS: u64 = 120;

/// How an epoch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All threads end, then the database is closed.
    Close,
    /// The database is closed while threads use it.
    CloseDuring,
    /// The process is killed: the data that the operating system has remains.
    Kill,
    /// The power fails.
    Power(Survival),
    /// A sync fails, which disables writes; then the power fails.
    FailedSync(Survival),
}

impl Ending {
    /// Draws an ending that needs a simulated disk.
    pub fn draw_crash(rng: &mut Rng) -> Ending {
        let survival = *rng.pick(&Survival::ALL);
        match rng.below(6) {
            0 | 1 => Ending::Kill,
            2 => Ending::FailedSync(survival),
            _ => Ending::Power(survival),
        }
    }

    /// Draws an ending for any disk.
    pub fn draw_close(rng: &mut Rng) -> Ending {
        if rng.chance(1, 3) { Ending::CloseDuring } else { Ending::Close }
    }

    fn expected(self) -> &'static [ErrorKind] {
        match self {
            Ending::CloseDuring => &[ErrorKind::Closed],
            Ending::FailedSync(_) => &[ErrorKind::ReadOnly],
            _ => &[],
        }
    }

    /// The lowest durability for which acknowledged writes survive.
    fn survives(self) -> Durability {
        match self {
            Ending::Close | Ending::CloseDuring => Durability::Buffered,
            Ending::Kill => Durability::Os,
            Ending::Power(_) | Ending::FailedSync(_) => Durability::Sync,
        }
    }

    fn is_crash(self) -> bool {
        !matches!(self, Ending::Close | Ending::CloseDuring)
    }
}

/// A copy of the disk, and the clock values before and after it was made.
struct Copy {
    before: u64,
    after: u64,
    disk: Arc<SimEnv>,
}

/// State shared by the I/O hook and the thread that waits for the crash.
struct Crash {
    ending: Ending,
    seed: u64,
    /// The index of the operation at which the crash happens, and the index from which on a sync fails.
    at: u64,
    fails_at: u64,
    phase: bool,
    clock: Arc<Clock>,
    copy: Mutex<Option<Copy>>,
    sync_failed: AtomicBool,
}

impl Crash {
    fn take(&self, disk: &SimEnv) {
        let mut copy = self.copy.lock().unwrap_or_else(|e| e.into_inner());
        if copy.is_none() {
            let before = self.clock.tick();
            let disk = match self.ending {
                Ending::Power(survival) | Ending::FailedSync(survival) => {
                    disk.crash_clone(survival, self.seed)
                }
                _ => disk.process_clone(),
            };
            *copy = Some(Copy { before, after: self.clock.tick(), disk });
        }
    }

    fn is_taken(&self) -> bool {
        self.copy.lock().unwrap_or_else(|e| e.into_inner()).is_some()
    }

    /// What the hook returns for an operation.
    fn verdict(&self, disk: &SimEnv, op: OpInfo<'_>) -> Option<Fault> {
        let draw = derive(self.seed, op.index) % 16;
        let is_before = op.phase == Phase::Before;
        if is_before && op.kind == OpKind::Sync && draw < 8 {
            // Give other threads time to queue behind the leader.
            std::thread::sleep(Duration::from_micros(50));
        } else if draw < 3 {
            std::thread::yield_now();
        }
        if self.ending.is_crash() && op.index >= self.at && is_before == self.phase {
            self.take(disk);
        }
        let fails = matches!(self.ending, Ending::FailedSync(_)) && op.index >= self.fails_at;
        if fails && is_before && op.kind == OpKind::Sync && !self.sync_failed.swap(true, Ordering::SeqCst) {
            return Some(Fault::EIO);
        }
        None
    }
}

/// The result of an epoch.
pub struct Next {
    /// Where the next epoch opens the database.
    pub site: Site,
    /// The recovered values of all keys.
    pub state: State,
    /// Number of operations checked.
    pub operations: u64,
    /// Numbers of flushes and compactions.
    pub jobs: [u64; 2],
    /// Numbers of transactions that have committed, and of conflicts.
    pub transactions: [u64; 2],
}

/// Runs and checks one epoch that starts with the values `start`, then reopens the database and reads its content.
/// `disk` is the disk of the site if it is simulated.
pub fn run(
    site: &Site,
    disk: Option<&Arc<SimEnv>>,
    start: &State,
    ending: Ending,
    world: World,
    rng: &mut Rng,
) -> Outcome<(Next, Option<Arc<SimEnv>>)> {
    let (clock, values) = (world.clock.clone(), world.values.clone());
    let reach = STEPS * THREADS as u64 / 2;
    let (begun, length) = (disk.map_or(0, |disk| disk.op_count()), rng.below(reach));
    let crash = Arc::new(Crash {
        ending,
        seed: rng.next_u64(),
        at: begun + length,
        fails_at: begun + length * 3 / 4,
        phase: rng.chance(1, 2),
        clock: clock.clone(),
        copy: Mutex::default(),
        sync_failed: AtomicBool::new(false),
    });
    if let Some(disk) = disk {
        let (crash, weak) = (crash.clone(), Arc::downgrade(disk));
        disk.set_hook(Some(Box::new(move |op| weak.upgrade().and_then(|disk| crash.verdict(&disk, op)))));
    }
    let mut epoch = Epoch { start: start.clone(), record: Vec::new(), snapshots: Vec::new() };
    let mut open = Vec::new();
    let (ends, reopened) = work(&world, site, ending, &crash, rng)?;
    for ended in ends {
        epoch.record.extend(ended.record);
        epoch.snapshots.extend(ended.snapshots);
        open.extend(ended.open);
    }
    if let (Some(disk), true) = (disk, ending.is_crash()) {
        crash.take(disk);
    }
    // Half of the iterators is read to the end now. The other half is moved after the database is closed.
    let later = open.split_off(open.len() / 2);
    let exhaust = |held: Held| held.exhaust(ending.expected());
    epoch.record.extend(open.into_iter().map(exhaust).collect::<Outcome<Vec<_>>>()?.into_iter().flatten());
    let stats = world.db.stats();
    let closed = world.db.clone().close();
    match ending {
        Ending::FailedSync(_) => ensure!(
            closed.is_err() || !crash.sync_failed.load(Ordering::SeqCst),
            "closing says nothing of the sync that failed"
        ),
        _ => closed?,
    }
    later.into_iter().try_for_each(Held::refuse)?;
    if let Some(disk) = disk {
        disk.set_hook(None);
    }
    drop(world);

    let copy = crash.copy.lock().unwrap_or_else(|e| e.into_inner()).take();
    let (site, disk) = match &copy {
        Some(copy) => (site.on(copy.disk.clone()), Some(copy.disk.clone())),
        None => (site.clone(), disk.cloned()),
    };
    let state = site.open(&clock, &values)?.state()?;
    ensure!(
        reopened.as_ref().is_none_or(|early| *early == state),
        "the content read right after reopening differs from the content after all threads have ended"
    );
    let cut = Cut {
        before: copy.as_ref().map_or(u64::MAX, |copy| copy.before),
        after: copy.as_ref().map_or(u64::MAX, |copy| copy.after),
        recovered: state.clone(),
        survives: ending.survives(),
    };
    check::check(&epoch, &cut)
        .map_err(|what| Finding::new(what).context(format_args!("ending {ending:?}")))?;
    let operations = epoch.record.len() as u64;
    let named = |names: &[&str]| {
        let counted = epoch.record.iter().filter(|o| names.contains(&o.name) && o.returned.is_some());
        counted.count() as u64
    };
    let transactions =
        [named(&["transaction", "fetch_update", "compare_and_swap", "put_if_absent"]), named(&["conflict"])];
    let jobs = [stats.flush.jobs, stats.compaction.jobs];
    Ok((Next { site, state, operations, jobs, transactions }, disk))
}

/// Runs the threads of an epoch. Returns their results, and the content of a database that was closed and reopened
/// while the threads still called it.
fn work(
    world: &World,
    site: &Site,
    ending: Ending,
    crash: &Crash,
    rng: &mut Rng,
) -> Outcome<(Vec<Ended>, Option<State>)> {
    let seed = rng.next_u64();
    let close_after = rng.below(STEPS * THREADS as u64 * 2);
    let begun = world.clock.tick();
    std::thread::scope(|scope| {
        let actors: Vec<_> = (0..THREADS)
            .map(|thread| {
                let actor =
                    Actor::new(world, thread, Rng::new(derive(seed, thread as u64)), ending.expected());
                scope.spawn(move || {
                    let _stop = StopAll(world, false);
                    actor.run(STEPS)
                })
            })
            .collect();
        let disturber = scope.spawn(move || {
            let _stop = StopAll(world, false);
            disturb(world, ending, Rng::new(derive(seed, 99)))
        });
        while !actors.iter().all(|actor| actor.is_finished()) && !crash.is_taken() {
            if ending == Ending::CloseDuring && world.clock.tick() > begun + close_after {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let closed = match ending {
            Ending::CloseDuring => world.db.clone().close(),
            _ => Ok(()),
        };
        let reopened = match (ending, &closed) {
            (Ending::CloseDuring, Ok(())) => Some(site.open(&world.clock, &world.values)),
            _ => None,
        };
        let early = reopened.as_ref().map(|next| next.as_ref().map_err(Finding::clone)?.state());
        // The threads continue for a moment after the crash: what they see must remain consistent.
        if crash.is_taken() {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(StopAll(world, true));
        let panicked = |_| Err(Finding::new("a thread panicked"));
        let ends: Vec<_> = actors.into_iter().map(|t| t.join().unwrap_or_else(panicked)).collect();
        disturber.join().unwrap_or_else(|_| Err(Finding::new("a thread panicked")))?;
        let ends = ends.into_iter().collect::<Outcome<Vec<_>>>()?;
        closed?;
        Ok((ends, early.transpose()?))
    })
}

/// Stops all threads on drop, if the thread panics or if the flag is set.
struct StopAll<'a>(&'a World, bool);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        if self.1 || std::thread::panicking() {
            self.0.stop.store(true, Ordering::SeqCst);
        }
    }
}

/// Flushes and compacts while the threads work.
fn disturb(world: &World, ending: Ending, mut rng: Rng) -> Outcome {
    while world.running() {
        let keyspace = match rng.below(3) {
            0 => &world.timed,
            _ => rng.pick(&world.spaces),
        };
        let result = match rng.below(10) {
            0 => world.db.flush(),
            1 => keyspace.compact(),
            2 if has_order(keyspace) => keyspace.compact_range("key/1".."key/3"),
            3 => keyspace.flush(),
            _ => {
                std::thread::sleep(Duration::from_micros(rng.below(400)));
                Ok(())
            }
        };
        match result {
            Err(e) if ending.expected().contains(&e.kind()) => break,
            other => other?,
        }
    }
    Ok(())
}
