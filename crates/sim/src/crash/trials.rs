//! The I/O hook of a history: crashes and recovers at each operation that changes the disk.

use super::ledger::{Cut, Ledger};
use super::recover::{Recovery, recover};
use super::setup::{Coverage, Focus, lock};
use crate::jobs::panicked;
use crate::random::derive;
use cairn::Options;
use cairn::env::{Fault, OpInfo, Phase, SimEnv, Survival};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Number of findings after which a history stops: they usually have the same cause.
const MAX_FINDINGS: usize = 3;

/// Kinds of crashes: the five kinds of surviving disks, and a process kill.
const WAYS: u64 = Survival::ALL.len() as u64 + 1;

/// The crash points of one history.
pub(super) struct Trials {
    seed: u64,
    coverage: Coverage,
    focus: Focus,
    env: Arc<SimEnv>,
    ledger: Arc<Mutex<Ledger>>,
    options: Options,
    /// Number of crash points so far.
    points: AtomicU64,
    recoveries: AtomicU64,
    findings: Mutex<Vec<String>>,
}

impl Trials {
    pub(super) fn new(
        seed: u64,
        coverage: Coverage,
        focus: Focus,
        env: &Arc<SimEnv>,
        ledger: Arc<Mutex<Ledger>>,
        options: Options,
    ) -> Trials {
        Trials {
            seed,
            coverage,
            focus,
            env: env.clone(),
            ledger,
            options,
            points: AtomicU64::new(0),
            recoveries: AtomicU64::new(0),
            findings: Mutex::default(),
        }
    }

    pub(super) fn recoveries(&self) -> u64 {
        self.recoveries.load(Ordering::Relaxed)
    }

    pub(super) fn findings(&self) -> Vec<String> {
        lock(&self.findings).clone()
    }

    pub(super) fn gave_up(&self) -> bool {
        lock(&self.findings).len() >= MAX_FINDINGS
    }

    /// Called before and after an operation: crashes here.
    pub(super) fn visit(&self, op: OpInfo<'_>) -> Option<Fault> {
        if op.kind.is_write() {
            let point = self.points.fetch_add(1, Ordering::Relaxed);
            if self.focus.trace && op.phase == Phase::Before {
                println!("    {} {:?} {}", op.index, op.kind, op.path.display());
            }
            if !self.gave_up() && self.focus.at.is_none_or(|at| at == op.index) {
                match self.coverage {
                    Coverage::EveryKind => (0..WAYS).for_each(|way| self.crash(op, point, way)),
                    Coverage::InTurn(first) => self.crash(op, point, (point + first) % WAYS),
                }
            }
        }
        None
    }

    fn crash(&self, op: OpInfo<'_>, point: u64, way: u64) {
        let seed = derive(self.seed, 1000 + point * WAYS + way);
        let (name, cut, env) = match Survival::ALL.get(way as usize) {
            Some(&kind) => (format!("{kind:?}"), Cut::Power, self.env.crash_clone(kind, seed)),
            None => ("kill".into(), Cut::Process, self.env.process_clone()),
        };
        let expectation = lock(&self.ledger).expectation();
        let recovery = Recovery { ledger: &self.ledger, expectation, options: &self.options };
        // Recover in another thread: this one is inside a call to the library, which does not support calls from its
        // own I/O. A panic becomes a finding that names the crash point.
        let recovered = std::thread::scope(|scope| {
            let thread = scope.spawn(|| recover(&recovery, &env, cut, seed, 0));
            thread.join().unwrap_or_else(|payload| Err(panicked(&*payload)))
        });
        match recovered {
            Ok(recoveries) => {
                self.recoveries.fetch_add(recoveries, Ordering::Relaxed);
            }
            Err(finding) => {
                let when = if op.phase == Phase::Before { "before" } else { "after" };
                lock(&self.findings).push(format!(
                    "crash {when} operation {} ({:?} {}), surviving: {name}: {finding}",
                    op.index,
                    op.kind,
                    op.path.display()
                ));
            }
        }
    }
}
