//! Failures of commands: one line on standard error, and an exit code that scripts can use.

use cairn::ErrorKind;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// The exit codes, for `cairn help` and the documentation.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  not found: a requested key does not exist, or has not the value that a write asks for
  2  wrong usage: arguments, options, or no such database or keyspace
  3  damage: bytes on disk differ from those written; or they need another program: a newer version, or one with another feature
  4  locked: the database is open elsewhere
  5  system failure: an I/O error, a full disk
  6  bad input: a line that cannot be loaded, or a statement that cannot be parsed";

/// The reason why a command failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// The message; `None` prints nothing.
    message: Option<String>,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A requested key does not exist, or has another value than a write asks for.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: Some(message.into()) }
    }

    /// The arguments are wrong.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: 2, message: Some(message.into()) }
    }

    /// Data on disk is damaged.
    pub fn damage(message: impl Into<String>) -> Failure {
        Failure { code: 3, message: Some(message.into()) }
    }

    /// Whether the database is open elsewhere.
    pub fn is_locked(&self) -> bool {
        self.code == 4
    }

    /// The same, with a reason after its message.
    pub fn because(self, reason: &dyn std::fmt::Display) -> Failure {
        Failure { message: self.message.map(|message| format!("{message}; {reason}")), ..self }
    }

    /// The input cannot be read.
    pub fn bad_input(message: impl Into<String>) -> Failure {
        Failure { code: 6, message: Some(message.into()) }
    }

    /// The operating system failed `operation` on `path`. A missing file counts as wrong usage.
    pub fn file(operation: &str, path: &Path, error: &io::Error) -> Failure {
        let code = if error.kind() == io::ErrorKind::NotFound { 2 } else { 5 };
        Failure { code, message: Some(format!("{operation} {}: {error}", path.display())) }
    }

    /// The same failure with `context` before its message.
    pub fn context(mut self, context: impl Display) -> Failure {
        self.message = self.message.map(|m| format!("{context}: {m}"));
        self
    }

    /// The same failure with `note` after its message.
    pub fn with_note(mut self, note: impl Display) -> Failure {
        self.message = self.message.map(|m| format!("{m}{note}"));
        self
    }

    /// Prints the message and returns the exit code. The message is one line, even if file names contain line breaks.
    pub fn report(self) -> ExitCode {
        if let Some(message) = self.message {
            // Ignore the error: standard error may be closed, and the exit code is still needed.
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

/// An error of a workload.
impl From<::bench::engine::Error> for Failure {
    fn from(error: ::bench::engine::Error) -> Failure {
        Failure { code: code_of(error.kind()), message: Some(error.to_string()) }
    }
}

fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidArgument
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::Expired
        | ErrorKind::WrongType => 2,
        ErrorKind::Corruption | ErrorKind::Unsupported => 3,
        ErrorKind::Locked => 4,
        _ => 5,
    }
}

/// Errors of standard output. If the reader closed the pipe (`| head`), the command ends silently with success.
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
