//! The fault test: the k-th operation of a script fails, for every k, in every way that an operating system has.
//!
//! ```text
//!   script of calls, from the seed --> once without a fault: which operations there are
//!                                  --> once for each operation, fault and repetition:
//!
//!      calls ... | the k-th operation fails | clones: the power goes, or the process | calls ... | the fault passes | calls ...
//!                          |                            |                                   |
//!                  answer or error             recover, judge (P1, P2)           right answers, or errors
//! ```
//!
//! Faults last for one operation, for all operations of the kind, or for all of them, until they pass near the end. A call may
//! fail while the fault is there; it may not give a wrong answer (P3). A write that failed is not to be seen, and may come
//! back, whole, only where a crash or a restart finds what it left. After a failed sync every write is refused (P4), and the file is
//! not synced again; the simulated disk then does as Linux does: it takes the pages for clean, shows them, and does not have
//! them. After any other fault that passes writing goes on without a restart (P5).

mod expect;
mod script;
mod trial;
mod watch;

use crate::finding::{Finding, Outcome};
use crate::jobs::{Job, panicked};
use cairn::env::{Fault, OpKind, Repeat};
use script::Script;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trial::{Injection, Trial};

/// Findings after which a script gives up: they are mostly the same bug.
const MAX_FINDINGS: usize = 3;

/// Operations from which on a script is long: then each of them fails in a third of the ways only, in turn.
const LONG: usize = 400;

/// Interrupted by a signal. `env` never lets it through, but an error is an error.
const EINTR: Fault = Fault::Errno(4);

/// What to look at closely, when a finding is replayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Focus {
    /// Fail the operation with this index only.
    pub at: Option<u64>,
    /// Only the fault with this number, of those that the operation has.
    pub fault: Option<usize>,
    /// Print every call and every operation.
    pub trace: bool,
}

/// How operations of a kind fail, and for how long.
fn faults(kind: OpKind) -> Vec<(Fault, Repeat)> {
    let faults: &[Fault] = match kind {
        OpKind::Append => &[
            Fault::EIO,
            Fault::ENOSPC,
            EINTR,
            Fault::ShortWrite(0),
            Fault::ShortWrite(1),
            Fault::ShortWrite(40),
            Fault::ShortWrite(1 << 20),
        ],
        OpKind::Create => &[Fault::EIO, Fault::ENOSPC, Fault::EMFILE, EINTR],
        OpKind::Open | OpKind::SyncDir | OpKind::Lock => &[Fault::EIO, Fault::EMFILE, EINTR],
        OpKind::Sync => &[Fault::EIO, Fault::ENOSPC, EINTR],
        OpKind::Read | OpKind::List | OpKind::Stat => &[Fault::EIO, EINTR],
        _ => &[Fault::EIO, Fault::ENOSPC],
    };
    let repeats = [Repeat::Once, Repeat::SameKind, Repeat::Forever];
    faults.iter().flat_map(|&fault| repeats.map(|repeat| (fault, repeat))).collect()
}

/// Fails each operation of the script of `seed` in each way. Returns how many operations were made to fail.
pub fn run(seed: u64, focus: Focus) -> Outcome<u64> {
    let script = Script::new(seed);
    let sound = Trial::run(&script, None, focus.trace && focus.at.is_none())
        .map_err(|f| f.context("without a fault"))?;
    let (mut failed, mut findings) = (0, Vec::new());
    for (at, &kind) in sound.kinds.iter().enumerate() {
        let at = at as u64;
        if focus.at.is_some_and(|only| only != at) {
            continue;
        }
        for (number, (fault, repeat)) in faults(kind).into_iter().enumerate() {
            let left_out = sound.kinds.len() > LONG && !(at + number as u64).is_multiple_of(3);
            if focus.fault.map_or(left_out, |only| only != number) {
                continue;
            }
            let injection = Injection { at, fault, repeat, way: at + number as u64 };
            let tried = AssertUnwindSafe(|| Trial::run(&script, Some(injection), focus.trace));
            let tried = catch_unwind(tried).unwrap_or_else(|payload| Err(panicked(&*payload)));
            failed += 1;
            if let Err(finding) = tried {
                findings
                    .push(format!("--at {at} --fault {number} ({kind:?}, {fault:?}, {repeat:?}): {finding}"));
            }
            if findings.len() >= MAX_FINDINGS {
                return Err(Finding::new(findings.join("\n  ")));
            }
        }
    }
    match findings.is_empty() {
        true => Ok(failed),
        false => Err(Finding::new(findings.join("\n  "))),
    }
}

/// [`run`] as a job; it counts the operations that were made to fail.
pub fn job(seed: u64) -> Job {
    let replay = format!(
        "cargo run --release -p sim -- fault --seed {seed}   (--at N --fault M: that one only; --trace: what happens)"
    );
    Job { name: format!("fault, seed {seed}"), replay, run: Box::new(move || run(seed, Focus::default())) }
}
