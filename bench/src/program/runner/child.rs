//! The process that runs one group of workloads on one engine.
//!
//! It reads its [`Order`] from standard input and writes events to standard output, one JSON object per line. Each
//! engine has its own process, so that the kernel's counters, the memory and a crash belong to that engine.

use bench::engine::{Error, Kind, RequestedSettings, Result};
use bench::session::{self, Event};
use bench::suite::Group;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The order for a child.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The engine, by name.
    pub engine: String,
    /// The workloads.
    pub group: Group,
    /// The settings requested of the engine.
    pub requested: RequestedSettings,
    /// Path of the database; must not exist.
    pub dir: PathBuf,
    /// The round.
    pub round: u32,
    /// The file that makes the process a member of its control group.
    pub procs: Option<PathBuf>,
}

/// A message of a child.
#[derive(Serialize, Deserialize)]
pub enum Told {
    /// Progress, or a result.
    Event(Event),
    /// The reason of a failure.
    Failed(String),
}

/// The main function of the child.
pub fn main() -> ExitCode {
    die_with_parent();
    match obey() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = tell(&Told::Failed(e.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn obey() -> Result<()> {
    let order: Order = serde_json::from_reader(io::stdin().lock())?;
    if let Some(procs) = &order.procs {
        bench::cgroup::join(procs).map_err(Error::new)?;
    }
    let kind = engine(&order.engine)?;
    fs::create_dir_all(&order.dir)?;
    // Ignore errors: if the parent is gone, this process is killed too.
    let mut on = |event| drop(tell(&Told::Event(event)));
    session::run_group(&kind, &order.group, &order.requested, &order.dir, order.round, &mut on)
}

fn engine(name: &str) -> Result<Kind> {
    let found = bench::engines::all().into_iter().find(|kind| kind.name == name);
    found.ok_or_else(|| Error::new(format!("no engine is called {name}")))
}

fn tell(told: &Told) -> io::Result<()> {
    let mut line = serde_json::to_vec(told)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

/// Makes the kernel kill this process when its parent ends.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}
