//! The process that runs one group of workloads on one engine.
//!
//! It gets its [`Order`] on standard input and tells what happens on standard output, a JSON object a line. A process for each:
//! what the kernel counts, the memory and a crash are that engine's alone.

use bench::engine::{Asked, Error, Kind, Result};
use bench::session::{self, Event};
use bench::suite::Group;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// What a child is to do.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The engine, by name.
    pub engine: String,
    /// The workloads.
    pub group: Group,
    /// The engine's settings.
    pub asked: Asked,
    /// Where the database goes; not there yet.
    pub dir: PathBuf,
    /// Which round this is.
    pub round: u32,
    /// The file that makes the process a member of its control group.
    pub procs: Option<PathBuf>,
}

/// What a child tells.
#[derive(Serialize, Deserialize)]
pub enum Told {
    /// How far it is, or a result.
    Event(Event),
    /// Why it ends.
    Failed(String),
}

/// The child's `main`.
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
    // A reader that is gone does not want to know; it ends this process, too.
    let mut on = |event| drop(tell(&Told::Event(event)));
    session::run_group(&kind, &order.group, &order.asked, &order.dir, order.round, &mut on)
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

/// Whatever ends the runner ends this process.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}
