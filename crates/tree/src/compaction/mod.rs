//! Picks compactions: pure functions of a version, the options, the plans in progress, the oldest reader and the free disk space.
//! They return a [`Plan`], and are tested without a disk.
//!
//! [`Tree`](crate::Tree) calls [`pick`] for the most urgent plan, [`pick_range`] for the next plan of a requested compaction, and
//! [`debt`] for write stalls. Each policy is a file:
//!
//! ```text
//!   pick, manual                                        the order of the policies; requested compactions
//!      |
//!   low_space                                           only plans that fit on a nearly full disk
//!      |
//!   guard, level0                                       a plan for a guard, for level 0
//!      |
//!   complete, trivial_move, unreadable                  tables merged along and cuts; moves; around unreadable tables
//!      |
//!   seqno_order                                         which cuts keep newer data above older
//!      |
//!   shape, read_triggered, space_amp, idle,             which guards are due
//!   range_tombstones, expired
//!      |
//!   picker, plan                                        the input and the output of all of them
//! ```
//!
//! Imports `guards`, `read` (for the prices of reads only) and `version`. What is absent: files, the reading of blocks, and anything
//! that changes a version.

mod complete;
mod expired;
mod guard;
mod idle;
mod level0;
mod low_space;
mod manual;
mod pick;
mod picker;
mod plan;
mod range_tombstones;
mod read_triggered;
mod seqno_order;
mod shape;
mod space_amp;
mod trivial_move;
mod unreadable;

#[cfg(test)]
mod expired_tests;
#[cfg(test)]
mod idle_tests;
#[cfg(test)]
mod manual_tests;
#[cfg(test)]
mod pick_tests;
#[cfg(test)]
mod read_triggered_tests;
#[cfg(test)]
mod seqno_order_tests;
#[cfg(test)]
mod space_amp_tests;
#[cfg(test)]
mod trivial_move_tests;
#[cfg(test)]
mod unordered_tests;

pub use expired::expired_bytes;
pub(crate) use expired::next_horizon;
pub(crate) use level0::debt;
pub(crate) use manual::pick_range;
pub(crate) use pick::pick;
pub(crate) use picker::Picker;
pub use plan::{PickBlocked, Plan, Reason};
pub(crate) use seqno_order::describe_misplaced;
pub use space_amp::{Space, bytes_beyond, stale_bytes};
pub(crate) use trivial_move::level_of_newest;
