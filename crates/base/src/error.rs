use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of everything in Cairn that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Mend the call: an argument is out of its range, a name is malformed, an option does not exist.
    InvalidArgument,
    /// Create it or ask for another: the database, keyspace or file that was named does not exist.
    NotFound,
    /// Choose another name: it exists already.
    AlreadyExists,
    /// Wait, or close the other one: the database is open elsewhere.
    Locked,
    /// Restore from a copy, or look with `cairn check`: bytes on disk are not what was written there.
    Corruption,
    /// Use a newer Cairn: the file was written by a version that this one does not know.
    Unsupported,
    /// Free some space, then go on: the disk or a quota is full. Nothing that was acknowledged is lost.
    NoSpace,
    /// Close and reopen the database: a sync or a background thread failed, and writing stopped for good. Reads go on.
    ReadOnly,
    /// Open it again: the database or keyspace handle was closed or dropped.
    Closed,
    /// Look at the system: the operating system reported an error.
    Io,
}

/// Why an operation failed. Cheap to clone; prints as one line that names the file, offset or argument.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    place: Option<(PathBuf, u64)>,
    source: Option<io::Error>,
}

impl Error {
    /// An error of any kind, with a message for people.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner { kind, message: message.into(), place: None, source: None }))
    }

    /// An argument or option is wrong.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// Bytes on disk are wrong: `what` says how, `file` and `offset` say where.
    pub fn corruption(file: &Path, offset: u64, what: impl fmt::Display) -> Error {
        let message = format!("{}, offset {offset}: {what}", file.display());
        let place = Some((file.to_owned(), offset));
        Error(Arc::new(Inner { kind: ErrorKind::Corruption, message, place, source: None }))
    }

    /// A file was written by a newer version.
    pub fn unsupported(file: &Path, what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Unsupported, format!("{}: {what}", file.display()))
    }

    /// The operating system failed `operation` on `file`. A full disk or quota becomes [`ErrorKind::NoSpace`], a missing
    /// file [`ErrorKind::NotFound`].
    pub fn io(operation: &str, file: &Path, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ErrorKind::NoSpace
            }
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        let message = format!("{operation} {}: {source}", file.display());
        Error(Arc::new(Inner { kind, message, place: None, source: Some(source) }))
    }

    /// The same error with `context` put in front of its message.
    pub fn context(&self, context: impl fmt::Display) -> Error {
        self.derive(self.0.kind, format!("{context}: {}", self.0.message))
    }

    /// The same error with `reason` put behind its message.
    pub fn because(&self, reason: impl fmt::Display) -> Error {
        self.derive(self.0.kind, format!("{}: {reason}", self.0.message))
    }

    /// The same message under another kind: what an I/O error becomes when it ends all writing, for one.
    pub fn with_kind(&self, kind: ErrorKind) -> Error {
        self.derive(kind, self.0.message.clone())
    }

    /// The error of a failed sync: whoever meets it must stop writing for good, because what is on disk is not known
    /// any more, and a sync that is tried again and succeeds proves nothing.
    ///
    /// A sync that had no handle to do it with is none: nothing was tried and nothing is lost, and it may be tried again.
    pub fn sync_failed(&self) -> Error {
        match self.is_too_many_open_files() {
            true => self.clone(),
            false => self.with_kind(ErrorKind::ReadOnly),
        }
    }

    /// Whether the process or the system has no handle for another file at present. It passes when files are closed.
    pub fn is_too_many_open_files(&self) -> bool {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        matches!(self.0.source.as_ref().and_then(io::Error::raw_os_error), Some(ENFILE | EMFILE))
    }

    /// Whether one file has reached the size that the process may give to a file, or that the file system allows. Other
    /// files may still grow.
    pub fn is_file_too_large(&self) -> bool {
        self.0.source.as_ref().is_some_and(|e| e.kind() == io::ErrorKind::FileTooLarge)
    }

    fn derive(&self, kind: ErrorKind, message: String) -> Error {
        let source = self.0.source.as_ref().map(|e| match e.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::from(e.kind()),
        });
        Error(Arc::new(Inner { kind, message, place: self.0.place.clone(), source }))
    }

    /// The file and the offset where bytes are wrong, when the error says so.
    pub fn place(&self) -> Option<(&Path, u64)> {
        self.0.place.as_ref().map(|(file, offset)| (file.as_path(), *offset))
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
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
        self.0.source.as_ref().map(|e| e as &(dyn StdError + 'static))
    }
}
