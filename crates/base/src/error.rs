//! The error type of all crates. A caller decides by its [`ErrorKind`]; the message names the file, the offset or the argument.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible operation in Cairn.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Correct the call: an argument is out of its range, a name is malformed, or an option does not exist.
    InvalidArgument,
    /// Create the database, keyspace or file, or name another one: it does not exist.
    NotFound,
    /// Choose another name: the name is taken.
    AlreadyExists,
    /// Wait, or close the other handle: the database is open elsewhere.
    Locked,
    /// Restore from a copy, or run `cairn check`: bytes on disk differ from those that were written.
    Corruption,
    /// Use a newer Cairn, or a program that was built with the feature that the message names: this one does not know the file's format version
    /// or its compression.
    Unsupported,
    /// Read it with the type that it was written with: a typed key or value has another one.
    WrongType,
    /// Leave the write out, or keep versions longer: its time lies before what the retention of the keyspace keeps.
    Expired,
    /// Run the transaction again: another commit has changed what it has read. Or the bulk load: its keyspace, which has history, was written to.
    Conflict,
    /// Free disk space, then continue: the disk or a quota is full. No acknowledged write is lost.
    NoSpace,
    /// Raise `memory_budget`, or delete keys: the index of a keyspace without order does not fit into it.
    NoMemory,
    /// Close and reopen the database: a sync or a background thread failed, and writes stay disabled until then; or it was opened for reading
    /// only. Reads work.
    ReadOnly,
    /// Open the database or keyspace again: the handle was closed or the keyspace was dropped.
    Closed,
    /// Check the system: the operating system reported an error.
    Io,
}

/// The reason why an operation failed. Cheap to clone. Displayed as one line that names the file, offset or argument.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    place: Option<(PathBuf, u64)>,
    source: Option<Arc<io::Error>>,
}

impl Error {
    /// An error of the given kind. `message` is text for a person.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner { kind, message: message.into(), place: None, source: None }))
    }

    /// An argument or option is wrong.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// Bytes on disk are wrong: `what` describes the damage, `file` and `offset` locate it.
    pub fn corruption(file: &Path, offset: u64, what: impl fmt::Display) -> Error {
        let message = format!("{}, offset {offset}: {what}", file.display());
        let place = Some((file.to_owned(), offset));
        Error(Arc::new(Inner { kind: ErrorKind::Corruption, message, place, source: None }))
    }

    /// A file was written by a newer version.
    pub fn unsupported(file: &Path, what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Unsupported, format!("{}: {what}", file.display()))
    }

    /// The operating system failed `operation` on `file`. A full disk or quota, or a file that is too large, becomes
    /// [`ErrorKind::NoSpace`]; a missing file becomes [`ErrorKind::NotFound`].
    pub fn io(operation: &str, file: &Path, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ErrorKind::NoSpace
            }
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        let message = format!("{operation} {}: {source}", file.display());
        Error(Arc::new(Inner { kind, message, place: None, source: Some(Arc::new(source)) }))
    }

    /// The same error with `context` before its message.
    pub fn context(&self, context: impl fmt::Display) -> Error {
        self.derive(self.0.kind, format!("{context}: {}", self.0.message))
    }

    /// The same error with `reason` after its message.
    pub fn because(&self, reason: impl fmt::Display) -> Error {
        self.derive(self.0.kind, format!("{}: {reason}", self.0.message))
    }

    /// The same error with another kind. For example, an I/O error that disables writes becomes
    /// [`ErrorKind::ReadOnly`].
    pub fn with_kind(&self, kind: ErrorKind) -> Error {
        self.derive(kind, self.0.message.clone())
    }

    /// The error of a failed sync. The caller must disable writes for good: the durable state of the file is unknown,
    /// and a retry that succeeds proves nothing.
    ///
    /// A sync that failed for lack of a file handle keeps its kind: the sync did not start, nothing is lost, and a
    /// retry is allowed.
    pub fn sync_failed(&self) -> Error {
        match self.is_too_many_open_files() {
            true => self.clone(),
            false => self.with_kind(ErrorKind::ReadOnly),
        }
    }

    /// Whether the process or the system is out of file handles. The condition ends when files are closed.
    pub fn is_too_many_open_files(&self) -> bool {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        matches!(self.0.source.as_deref().and_then(io::Error::raw_os_error), Some(ENFILE | EMFILE))
    }

    /// Whether the file reached the maximum size that the process or the file system allows. Other files may still
    /// grow.
    pub fn is_file_too_large(&self) -> bool {
        self.0.source.as_ref().is_some_and(|e| e.kind() == io::ErrorKind::FileTooLarge)
    }

    fn derive(&self, kind: ErrorKind, message: String) -> Error {
        let (place, source) = (self.0.place.clone(), self.0.source.clone());
        Error(Arc::new(Inner { kind, message, place, source }))
    }

    /// The file and the offset of damaged bytes, if the error is a corruption.
    pub fn place(&self) -> Option<(&Path, u64)> {
        self.0.place.as_ref().map(|(file, offset)| (file.as_path(), *offset))
    }

    /// The kind, which says what the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

/// For functions that return [`io::Error`]. The error itself stays inside: `io::Error::downcast` gives it back.
///
/// ```
/// # use base::{Error, ErrorKind};
/// # use std::io;
/// let error = io::Error::from(Error::new(ErrorKind::NoSpace, "the disk is full"));
/// assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::StorageFull, "the disk is full".to_owned()));
/// assert_eq!(error.downcast::<Error>().unwrap().kind(), ErrorKind::NoSpace);
/// ```
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::Expired => io::ErrorKind::InvalidInput,
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            ErrorKind::Locked => io::ErrorKind::ResourceBusy,
            ErrorKind::Corruption | ErrorKind::WrongType => io::ErrorKind::InvalidData,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::NoMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::Io => error.0.source.as_ref().map_or(io::ErrorKind::Other, |source| source.kind()),
            ErrorKind::Conflict | ErrorKind::ReadOnly | ErrorKind::Closed => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}
