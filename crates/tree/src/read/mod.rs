//! Reads of a version: point lookups, cursors, and the charges by which reads trigger compactions.
//!
//! ```text
//!   sources                    all cursors of a version
//!      |
//!   level_cursor               one level of guards
//!      |
//!   lookup                     point lookups
//!      |
//!   table_cursor   merge   charge
//!      |
//!   key_range                  what a reader wants
//! ```
//!
//! The library reads with [`Version::get_above`](crate::Version::get_above) and [`Version::sources`](crate::Version::sources);
//! compactions read their inputs with [`MergeCursor`]. Imports `version`. What is absent: plans, locks, and the consultation of range
//! tombstones, which the library does.

mod charge;
mod estimate;
mod key_range;
mod level_cursor;
mod lookup;
mod merge;
mod sources;
mod table_cursor;

#[cfg(test)]
pub(crate) use charge::LEVEL0_CHECK;
pub(crate) use charge::{JOB_COST, MAX_INLINE_LEN};
pub use charge::{ReadCharges, SkipCharge, charge, flush_price};
pub use estimate::Estimate;
pub use key_range::KeyRange;
pub use level_cursor::LevelCursor;
pub use lookup::{LookupKey, PendingLookup};
pub use merge::MergeCursor;
pub use sources::TreeSource;
pub(crate) use table_cursor::LiveTableCursor;
