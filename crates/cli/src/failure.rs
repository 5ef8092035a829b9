//! How a command fails: one line on standard error, and an exit code that a script can act on.

use cairn::ErrorKind;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// The exit codes, for `cairn help` and the documents.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the answer is no: a key that was asked for is not there
  2  wrong usage: arguments, options, or no such database or keyspace
  3  damage: bytes on disk are not what was written, or of an unknown version
  4  locked: the database is open elsewhere
  5  the system failed: an I/O error, a full disk
  6  bad input: a line that cannot be loaded, a statement that cannot be read";

/// Why a command ends without having done its work.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// What to tell; `None` ends in silence.
    message: Option<String>,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The answer is no, and `message` says to what.
    pub fn no(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: Some(message.into()) }
    }

    /// The arguments are wrong.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: 2, message: Some(message.into()) }
    }

    /// Something on disk is damaged.
    pub fn damage(message: impl Into<String>) -> Failure {
        Failure { code: 3, message: Some(message.into()) }
    }

    /// What came in cannot be read.
    pub fn bad_input(message: impl Into<String>) -> Failure {
        Failure { code: 6, message: Some(message.into()) }
    }

    /// The operating system failed `operation` on `path`. A file that is not there is wrong usage.
    pub fn file(operation: &str, path: &Path, error: &io::Error) -> Failure {
        let code = if error.kind() == io::ErrorKind::NotFound { 2 } else { 5 };
        Failure { code, message: Some(format!("{operation} {}: {error}", path.display())) }
    }

    /// The same failure with `context` in front.
    pub fn context(mut self, context: impl Display) -> Failure {
        self.message = self.message.map(|m| format!("{context}: {m}"));
        self
    }

    /// The same failure with `note` behind.
    pub fn with_note(mut self, note: impl Display) -> Failure {
        self.message = self.message.map(|m| format!("{m}{note}"));
        self
    }

    /// Tells the message and gives the exit code. The message is kept to one line, whatever file names are in it.
    pub fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            // Nobody may be there to read it: the exit code is still due.
            let _ = writeln!(io::stderr(), "cairn: {}", one_line(&message));
        }
        ExitCode::from(self.code)
    }
}

fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or("ended"))
    }
}

impl From<cairn::Error> for Failure {
    fn from(error: cairn::Error) -> Failure {
        Failure { code: code_of(error.kind()), message: Some(error.to_string()) }
    }
}

/// What went wrong while a workload ran.
impl From<::bench::engine::Error> for Failure {
    fn from(error: ::bench::engine::Error) -> Failure {
        Failure { code: code_of(error.kind()), message: Some(error.to_string()) }
    }
}

fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidArgument | ErrorKind::NotFound | ErrorKind::AlreadyExists => 2,
        ErrorKind::Corruption | ErrorKind::Unsupported => 3,
        ErrorKind::Locked => 4,
        _ => 5,
    }
}

/// Errors of standard output. A reader that went away (`| head`) has what it wanted: the command ends quietly and well.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure { code: 0, message: None },
            _ => Failure { code: 5, message: Some(format!("write to standard output: {error}")) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[m é"), "a\\nb\\u{1b}[m é");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.code, failure.message), (0, None));
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)).code, 5);
    }
}
