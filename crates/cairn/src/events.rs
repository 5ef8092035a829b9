//! Events for the log of a program: those of the crate `tracing` with the feature `tracing`, otherwise nothing.

#[cfg(feature = "tracing")]
pub(crate) use tracing::{debug, error, info, trace, warn};

/// An event that is not compiled: its fields are not evaluated, either.
#[cfg(not(feature = "tracing"))]
macro_rules! none {
    ($($field:tt)*) => {{}};
}

#[cfg(not(feature = "tracing"))]
pub(crate) use {none as debug, none as error, none as info, none as trace, none as warn};
