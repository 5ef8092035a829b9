//! The commands: one module each, with the arguments of the command, its examples, and the function that runs it.
//!
//! They import the modules beside this folder and may use one another's output (`scrub` prints the report of `check`, the shell
//! prints `stats`). They must not import `command_line`, which imports all of them.

pub mod bench;
pub mod check;
pub mod compact;
pub mod condition;
pub mod copies;
pub mod delete_range;
pub mod demo;
pub mod dump;
pub mod history;
pub mod info;
pub mod keyspaces;
pub mod load;
pub mod model;
pub mod point;
pub mod salvage;
pub mod scan;
pub mod scrub;
pub mod shell;
pub mod stats;
pub mod top;
