//! Watching and failing the operations of a simulated disk.

use base::Error;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an operation on a simulated disk does.
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
    /// Whether the operation changes what a crash may leave behind: where a crash is worth trying.
    pub fn is_write(self) -> bool {
        !matches!(self, OpKind::Lock | OpKind::Open | OpKind::Read | OpKind::List | OpKind::Stat)
    }
}

/// Whether an operation is about to run or has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is about to run; the verdict decides how.
    Before,
    /// It has run; the verdict is ignored.
    After {
        /// Whether it succeeded.
        ok: bool,
    },
}

/// One operation, as the hook sees it.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo<'a> {
    /// Its place in the order of all operations of this disk, from 0.
    pub index: u64,
    /// What it does.
    pub kind: OpKind,
    /// On which file or directory.
    pub path: &'a Path,
    /// Before it runs, or after.
    pub phase: Phase,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// With this kind of error, before it did anything.
    Kind(io::ErrorKind),
    /// With this error number of the operating system, before it did anything.
    Errno(i32),
    /// An append writes only so many bytes, then reports an I/O error. Any other operation fails as with [`Fault::EIO`].
    ShortWrite(usize),
}

impl Fault {
    /// The device failed.
    pub const EIO: Fault = Fault::Errno(5);
    /// Too many open files.
    pub const EMFILE: Fault = Fault::Errno(24);
    /// No space left on the device.
    pub const ENOSPC: Fault = Fault::Errno(28);

    /// Whether the operation did not even begin, for want of a handle.
    pub(super) fn is_out_of_handles(self) -> bool {
        matches!(self, Fault::Errno(23 | 24))
    }

    /// The error as the operating system would give it.
    pub(super) fn error(self) -> io::Error {
        match self {
            Fault::Kind(kind) => kind.into(),
            Fault::Errno(number) => io::Error::from_raw_os_error(number),
            Fault::ShortWrite(_) => Fault::EIO.error(),
        }
    }
}

/// What a hook decides before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it run.
    Proceed,
    /// Make it fail.
    Fail(Fault),
    /// Make an append write so many bytes and then fail with EIO.
    ShortWrite(usize),
}

/// How often a rule of [`super::SimEnv::fail_op`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// To that operation only.
    Once,
    /// To it and every later operation of its kind.
    SameKind,
    /// To it and every later operation.
    Forever,
}

/// Called before and after each operation, in the thread that does it and with no lock of the disk held: it may clone the
/// disk, read and change it through the helpers of [`super::SimEnv`], and set another hook. It must not do operations.
pub type Hook = Box<dyn Fn(OpInfo<'_>) -> Verdict + Send + Sync>;

struct Rule {
    index: u64,
    fault: Fault,
    repeat: Repeat,
    /// The kind of the operation that the rule named, once that was reached.
    kind: Option<OpKind>,
}

/// The operation counter, the hook and the rules of a disk.
#[derive(Default)]
pub(super) struct Faults {
    next: AtomicU64,
    hook: RwLock<Option<Arc<Hook>>>,
    rules: Mutex<Vec<Rule>>,
    /// Operations from this one on fail as after a crash; 0 means never, otherwise the index plus one.
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

    /// Counts an operation and says whether it may run.
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

/// Why an operation may not run.
#[derive(Clone, Copy)]
pub(super) enum Stop {
    Fault(Fault),
    Crashed,
}

impl Stop {
    /// Whether a sync was under way when it failed: then what it was to make durable is lost to later ones.
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
