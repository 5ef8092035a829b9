//! How the errors of jobs are taken.

use base::{Error, ErrorKind};

/// Whether an error concerns one keyspace, and not the disk or the database.
pub(super) fn concerns_one(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::Closed)
}
