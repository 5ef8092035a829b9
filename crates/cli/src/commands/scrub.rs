//! `scrub`: reads and verifies a database at a limited rate, without writing to it. Does the work of `check`, slowly.

use super::check::{print_report, verdict};
use crate::args::DirArgs;
use crate::failure::Result;
use crate::progress::Progress;
use crate::text::parse_size;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  cairn scrub /tmp/d --rate 10MiB
  cairn scrub --db /tmp/d --rate 1MiB --rounds 5

It reads and verifies the same data as `cairn check`, at a limited number of bytes per second. The exit code is 3 if there
is damage. The database must not be open elsewhere: an open database can scrub itself (option scrub_rate).";

/// Arguments of `scrub`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ScrubArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Maximum number of bytes per second, such as 10MiB; 0 for no limit
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "10MiB")]
    rate: u64,
    /// How many times to read the database
    #[arg(long, value_name = "N", default_value = "1")]
    rounds: u64,
    /// Print one JSON object per round
    #[arg(long)]
    json: bool,
}

/// Scrubs a database.
pub fn scrub(args: ScrubArgs) -> Result<()> {
    let path = args.dir.path()?;
    let mut printed = Ok(());
    for _ in 0..args.rounds.max(1) {
        let report = {
            let progress = Progress::bytes(Some(0));
            let started = Instant::now();
            cairn::check(path, &mut |at| {
                progress.total(at.bytes_total);
                progress.at(at.bytes_done, || at.file.clone());
                if args.rate > 0 {
                    let due = Duration::from_secs_f64(at.bytes_done as f64 / args.rate as f64);
                    std::thread::sleep(due.saturating_sub(started.elapsed()));
                }
            })?
        };
        // If the output could not be written, later rounds still determine the exit code.
        printed = printed.and(print_report(&report, args.json));
        verdict(path, &report)?;
    }
    printed
}
