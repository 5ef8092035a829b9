//! Picks compactions.

pub(crate) mod idle;
#[cfg(test)]
pub(crate) mod idle_tests;
pub(crate) mod low_space;
#[cfg(test)]
pub(crate) mod manual_tests;
pub(crate) mod pick;
#[cfg(test)]
pub(crate) mod pick_tests;
#[cfg(test)]
pub(crate) mod read_triggered_tests;
pub(crate) mod seqno_order;
#[cfg(test)]
pub(crate) mod seqno_order_tests;
pub(crate) mod space_amp;
#[cfg(test)]
pub(crate) mod space_amp_tests;
pub(crate) mod trivial_move;
#[cfg(test)]
pub(crate) mod trivial_move_tests;
pub(crate) mod unreadable;
