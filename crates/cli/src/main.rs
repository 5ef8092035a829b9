//! The program `cairn`: see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    cairn_cli::main()
}
