//! Why a command of the program fails.

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are wrong.
    Usage(String),
    /// A system call or a file failed.
    System(String),
    /// The user interrupted the run.
    Interrupted,
}
