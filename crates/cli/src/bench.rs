//! The hook of `cairn bench`.

/// Arguments of `cairn bench`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the workloads.
pub fn run(_args: Args) -> cairn::Result<std::process::ExitCode> {
    Err(cairn::Error::new(cairn::ErrorKind::Unsupported, "bench is not in this build"))
}
