//! The program `cairn-bench`: see [`program`]. What is measured, and how, is in the library beside it.

mod program;

use std::process::ExitCode;

fn main() -> ExitCode {
    program::main()
}
