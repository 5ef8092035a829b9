//! Hooks and fault injection for the operations of a simulated disk.

use base::Error;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of an operation on a simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OpKind {
    /// `Env::create`.
    Create,
    /// `WriteFile::append`.
    Append,
    /// `WriteFile::sync` and `Env::sync_file`.
    Sync,
    /// `WriteFile::truncate`.
    Truncate,
    /// `Env::allocate`.
    Allocate,
    /// `Env::rename`.
    Rename,
    /// `Env::remove`.
    Remove,
    /// `Env::create_dir`.
    CreateDir,
    /// `Env::sync_dir`.
    SyncDir,
    /// `Env::lock`.
    Lock,
    /// `Env::open`.
    Open,
    /// `ReadFile::read_exact_at`.
    Read,
    /// `Env::list`.
    List,
    /// `Env::exists`, `Env::len`, `ReadFile::len`.
    Stat,
}

impl OpKind {
    /// Whether the operation changes what may survive a crash, so that a crash before it is worth testing.
    pub fn is_write(self) -> bool {
        !matches!(self, OpKind::Lock | OpKind::Open | OpKind::Read | OpKind::List | OpKind::Stat)
    }
}

/// Whether an operation is about to run or has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the operation. The verdict decides how it runs.
    Before,
    /// After the operation. The verdict is ignored.
    After {
        /// Whether it succeeded.
        ok: bool,
    },
}

/// One operation, as passed to the hook.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo<'a> {
    /// Position in the order of all operations of this disk, from 0.
    pub index: u64,
    /// The kind of the operation.
    pub kind: OpKind,
    /// Its file or directory.
    pub path: &'a Path,
    /// Before or after it runs.
    pub phase: Phase,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// With an error of this kind and no effect.
    Kind(io::ErrorKind),
    /// With this error number of the operating system and no effect.
    Errno(i32),
    /// An append writes only this many bytes, then returns EIO. Any other operation fails with [`Fault::EIO`].
    ShortWrite(usize),
}

impl Fault {
    /// The device failed.
    pub const EIO: Fault = Fault::Errno(5);
    /// Too many open files.
    pub const EMFILE: Fault = Fault::Errno(24);
    /// No space left on the device.
    pub const ENOSPC: Fault = Fault::Errno(28);

    /// Whether the operation failed before it started, for lack of a file handle.
    pub(super) fn is_out_of_handles(self) -> bool {
        matches!(self, Fault::Errno(23 | 24))
    }

    /// The error that the operating system would return.
    pub(super) fn error(self) -> io::Error {
        match self {
            Fault::Kind(kind) => kind.into(),
            Fault::Errno(number) => io::Error::from_raw_os_error(number),
            Fault::ShortWrite(_) => Fault::EIO.error(),
        }
    }
}

/// The decision of a hook about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run it.
    Proceed,
    /// Fail it.
    Fail(Fault),
    /// Let an append write this many bytes and then fail with EIO.
    ShortWrite(usize),
}

/// To which operations a rule of [`super::SimEnv::fail_op`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The named operation only.
    Once,
    /// The named operation and all later ones of its kind.
    SameKind,
    /// The named operation and all later ones.
    Forever,
}

/// Called before and after each operation, in the thread that runs it, without a lock of the disk. It may clone the
/// disk, read and change it with the helpers of [`super::SimEnv`], and set another hook. It must not run operations.
pub type Hook = Box<dyn Fn(OpInfo<'_>) -> Verdict + Send + Sync>;

struct Rule {
    index: u64,
    fault: Fault,
    repeat: Repeat,
    /// The kind of the named operation, once it was reached.
    kind: Option<OpKind>,
}

/// The operation counter, the hook and the rules of a disk.
#[derive(Default)]
pub(super) struct Faults {
    next: AtomicU64,
    hook: RwLock<Option<Arc<Hook>>>,
    rules: Mutex<Vec<Rule>>,
    /// Operations from this index on fail as after a crash. Stored plus one; 0 means never.
    crash_at: AtomicU64,
}

impl Faults {
    pub(super) fn count(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    pub(super) fn set_hook(&self, hook: Option<Hook>) {
        *self.hook.write() = hook.map(Arc::new);
    }

    pub(super) fn fail_op(&self, index: u64, fault: Fault, repeat: Repeat) {
        self.rules.lock().push(Rule { index, fault, repeat, kind: None });
    }

    pub(super) fn crash_at(&self, index: u64) {
        self.crash_at.store(index.saturating_add(1), Ordering::SeqCst);
    }

    pub(super) fn clear(&self) {
        self.rules.lock().clear();
        self.crash_at.store(0, Ordering::SeqCst);
    }

    /// Counts an operation and decides whether it may run.
    pub(super) fn begin(&self, kind: OpKind, path: &Path) -> (u64, Result<(), Stop>) {
        let index = self.next.fetch_add(1, Ordering::SeqCst);
        let crash_at = self.crash_at.load(Ordering::SeqCst);
        if crash_at != 0 && index >= crash_at - 1 {
            return (index, Err(Stop::Crashed));
        }
        let verdict = self.call(OpInfo { index, kind, path, phase: Phase::Before });
        let stop = match verdict {
            Verdict::Fail(fault) => Some(fault),
            Verdict::ShortWrite(len) => Some(Fault::ShortWrite(len)),
            Verdict::Proceed => self.rule_for(index, kind),
        };
        (index, stop.map_or(Ok(()), |fault| Err(Stop::Fault(fault))))
    }

    pub(super) fn end(&self, index: u64, kind: OpKind, path: &Path, ok: bool) {
        self.call(OpInfo { index, kind, path, phase: Phase::After { ok } });
    }

    fn call(&self, op: OpInfo<'_>) -> Verdict {
        let hook = self.hook.read().clone();
        hook.map_or(Verdict::Proceed, |hook| hook(op))
    }

    fn rule_for(&self, index: u64, kind: OpKind) -> Option<Fault> {
        for rule in self.rules.lock().iter_mut() {
            if rule.index == index {
                rule.kind = Some(kind);
            }
            let applies = match rule.repeat {
                Repeat::Once => index == rule.index,
                Repeat::SameKind => index >= rule.index && rule.kind == Some(kind),
                Repeat::Forever => index >= rule.index,
            };
            if applies {
                return Some(rule.fault);
            }
        }
        None
    }
}

/// Why an operation does not run.
#[derive(Clone, Copy)]
pub(super) enum Stop {
    Fault(Fault),
    Crashed,
}

impl Stop {
    /// Whether a sync had started when it failed: its data is then lost to later syncs.
    pub(super) fn hits_the_sync(self) -> bool {
        matches!(self, Stop::Fault(fault) if !fault.is_out_of_handles())
    }

    pub(super) fn error(self, operation: &str, path: &Path) -> Error {
        match self {
            Stop::Fault(fault) => Error::io(operation, path, fault.error()),
            Stop::Crashed => Error::io(operation, path, io::Error::other("simulated crash")),
        }
    }
}
