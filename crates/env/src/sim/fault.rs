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
    /// `WriteFile::sync`, `WriteFile::write_back` and `Env::sync_file`.
    Sync,
    /// `WriteFile::truncate`.
    Truncate,
    /// `Env::allocate`.
    Allocate,
    /// `Env::rename`.
    Rename,
    /// `Env::link`.
    Link,
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
    /// `Env::exists`, `Env::len`, `Env::name_count`, `Env::stamp`, `ReadFile::len`.
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
    /// Before the operation. The hook decides how it runs.
    Before,
    /// After the operation. What the hook returns is ignored.
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
    /// As after a crash: with "simulated crash" and no effect.
    Crash,
}

impl Fault {
    /// The device failed.
    pub const EIO: Fault = Fault::Errno(5);
    /// Too many open files.
    pub const EMFILE: Fault = Fault::Errno(24);
    /// No space left on the device.
    pub const ENOSPC: Fault = Fault::Errno(28);

    /// Whether a sync had started when it failed: its data is then lost to later syncs. It had not if there was no file
    /// handle for it.
    pub(super) fn hits_the_sync(self) -> bool {
        !matches!(self, Fault::Crash | Fault::Errno(23 | 24))
    }

    /// The error that the operating system would return.
    pub(super) fn cause(self) -> io::Error {
        match self {
            Fault::Kind(kind) => kind.into(),
            Fault::Errno(number) => io::Error::from_raw_os_error(number),
            Fault::ShortWrite(_) => Fault::EIO.cause(),
            Fault::Crash => io::Error::other("simulated crash"),
        }
    }

    pub(super) fn error(self, operation: &str, path: &Path) -> Error {
        Error::io(operation, path, self.cause())
    }
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
/// disk, read and change it with the helpers of [`super::SimEnv`], and set another hook. It must not run operations. Returns how
/// the operation fails; `None` to run it.
pub type Hook = Box<dyn Fn(OpInfo<'_>) -> Option<Fault> + Send + Sync>;

pub(super) struct Rule {
    index: u64,
    fault: Fault,
    repeat: Repeat,
    /// The kind of the named operation, once it was reached.
    kind: Option<OpKind>,
}

/// The operation counter, the hook and the rules of a disk.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) next: AtomicU64,
    pub(super) hook: RwLock<Option<Arc<Hook>>>,
    pub(super) rules: Mutex<Vec<Rule>>,
}

impl Faults {
    pub(super) fn fail_op(&self, index: u64, fault: Fault, repeat: Repeat) {
        self.rules.lock().push(Rule { index, fault, repeat, kind: None });
    }

    /// Counts an operation and decides whether it may run.
    pub(super) fn begin(&self, kind: OpKind, path: &Path) -> (u64, Option<Fault>) {
        let index = self.next.fetch_add(1, Ordering::SeqCst);
        let fault = self.call(OpInfo { index, kind, path, phase: Phase::Before });
        (index, fault.or_else(|| self.rule_for(index, kind)))
    }

    pub(super) fn end(&self, index: u64, kind: OpKind, path: &Path, ok: bool) {
        self.call(OpInfo { index, kind, path, phase: Phase::After { ok } });
    }

    fn call(&self, op: OpInfo<'_>) -> Option<Fault> {
        let hook = self.hook.read().clone();
        hook.and_then(|hook| hook(op))
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
