//! The fault test: the k-th operation of a script fails, for every k, in all ways in which an operating system can
//! fail.
//!
//! ```text
//!   script of calls, from the seed --> once without a fault: the list of operations
//!                                  --> once for each operation, fault and repetition:
//!
//!      calls ... | the k-th operation fails | clones: power failure, or kill   | calls ... | the fault ends   | calls ...
//!                          |                            |                                   |
//!                  answer or error             recover, judge (P1, P2)           right answers, or errors
//! ```
//!
//! Faults last for one operation, for all operations of the kind, or for all operations, and end near the end of the
//! script. A call may fail while the fault lasts, but must not give a wrong answer (P3). A failed write must be
//! invisible. It may return, completely, only after a crash or restart that finds its remains. After a failed sync
//! every write is rejected (P4), and the file is not synced again. The simulated disk then behaves like Linux: the
//! pages count as clean and are visible, but are not on the disk. After any other fault that ends, writes work again
//! without a restart (P5).

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

/// Number of findings after which a script stops: they usually have the same cause.
const MAX_FINDINGS: usize = 3;

/// A script with more operations than this is long: each operation fails only in a third of the ways, in turn.
const LONG: usize = 400;

/// Interrupted by a signal. `env` never returns it, but callers must handle any error.
const EINTR: Fault = Fault::Errno(4);

/// What to replay and print for a finding.
#[derive(Clone, Copy, Debug, Default)]
pub struct Focus {
    /// Fail only the operation with this index.
    pub at: Option<u64>,
    /// Use only the fault with this number in the list for the operation.
    pub fault: Option<usize>,
    /// Print each call and each operation.
    pub trace: bool,
}

/// The faults of a kind of operation, with their durations.
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

/// Fails each operation of the script of `seed` in each way. Returns the number of failed operations.
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

/// [`run`] as a job, which counts failed operations.
pub fn job(seed: u64) -> Job {
    let replay = format!(
        "cargo run --release -p sim -- fault --seed {seed}   (--at N --fault M: that one only; --trace: what happens)"
    );
    Job { name: format!("fault, seed {seed}"), replay, run: Box::new(move || run(seed, Focus::default())) }
}
