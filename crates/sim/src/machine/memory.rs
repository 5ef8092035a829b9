//! Little memory: a control group with a limit, and a database many times as large.
//!
//! The limit includes the page cache, but the kernel evicts that first. It cannot evict the memory of the process
//! itself: if that exceeded the limit, the process would be killed.

use super::load::Load;
use super::start;
use crate::finding::{Finding, Outcome, ensure};
use cairn::{Database, Durability, KeyspaceOptions, Options};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The limit of the group, in bytes.
const LIMIT: u64 = 64 << 20;

/// The memory budget of the database, in bytes.
const BUDGET: u64 = 16 << 20;

/// Memory of the process beside the budget: blocks being built, index roots, buffers, allocator overhead, what the child keeps of its data. (The pages of
/// the program do not count: they are page cache, and their number depends on how it was built.)
const BESIDE_BUDGET_KIB: u64 = 18 << 10;

/// The arguments that the parent passes to the child.
#[derive(Args)]
pub struct MemoryArgs {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// The file that adds a process to the group.
    #[arg(long)]
    pub procs: Option<PathBuf>,
    /// Seed of the data.
    #[arg(long)]
    pub seed: u64,
    /// Number of values, of 2 KB on average.
    #[arg(long)]
    pub values: u64,
}

/// A control group with a limit. Removed on drop.
pub struct Group(PathBuf);

impl Group {
    /// Creates the group below that of this program. The error says what is missing.
    pub fn create() -> Result<Group, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
        let v1 = own.lines().find_map(|l| l.split_once(":memory:").map(|(_, group)| group));
        let v2 = own.lines().find_map(|l| l.strip_prefix("0::"));
        let (root, name) = match (v1, v2) {
            (Some(group), _) => {
                (Path::new("/sys/fs/cgroup/memory").join(&group[1..]), "memory.limit_in_bytes")
            }
            (None, Some(group)) => (Path::new("/sys/fs/cgroup").join(&group[1..]), "memory.max"),
            (None, None) => return Err("the kernel has no control groups".into()),
        };
        // In version 2, a group with processes cannot delegate controllers to child groups.
        let parents = root.ancestors().filter(|dir| dir.starts_with("/sys/fs/cgroup"));
        let mut trouble = String::new();
        for parent in parents {
            let dir = parent.join(format!("cairn-sim-{}", std::process::id()));
            let made = fs::create_dir(&dir).and_then(|()| {
                let limited = fs::write(dir.join(name), LIMIT.to_string());
                limited.inspect_err(|_| drop(fs::remove_dir(&dir)))
            });
            match made {
                Ok(()) => return Ok(Group(dir)),
                Err(e) => trouble = format!("{}: {e}", dir.display()),
            }
        }
        Err(trouble)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Drops the rest of the page cache. Only version 1 has this file.
        let _ = fs::write(self.0.join("memory.force_empty"), "0");
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("the control group {} could not be removed", self.0.display());
    }
}

/// Loads, overwrites, reads and reopens within the limit. Returns the peak memory of the process without the page
/// cache, in KiB.
pub fn run(program: &Path, group: &Group, seed: u64, values: u64) -> Outcome<u64> {
    let dir = TempDir::new().map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
    let mut command = Command::new(program);
    command.arg("memory-child").arg("--dir").arg(dir.path().join("db"));
    command.arg("--procs").arg(group.0.join("cgroup.procs"));
    command.args(["--seed", &seed.to_string(), "--values", &values.to_string()]);
    let words = start(&mut command)?;
    let peak_kib: u64 =
        words.trim().parse().map_err(|_| Finding::new(format!("the child says {words:?}")))?;
    let most_kib = BUDGET / 1024 + BESIDE_BUDGET_KIB;
    ensure!(peak_kib <= most_kib, "the process took {peak_kib} KiB; {most_kib} were expected at most");
    Ok(peak_kib)
}

/// The child.
pub fn child(args: &MemoryArgs) -> Outcome {
    if let Some(procs) = &args.procs {
        let joined = fs::write(procs, std::process::id().to_string());
        joined.map_err(|e| Finding::new(format!("{}: {e}", procs.display())))?;
    }
    let options = Options::default().memory_budget(BUDGET).background_threads(2);
    let open = || -> cairn::Result<_> {
        let db = Database::open_with(&args.dir, options.clone())?;
        let keyspace = db.keyspace("k", KeyspaceOptions::default().memtable_bytes(2 << 20))?;
        Ok((db, keyspace))
    };
    let mut load = Load::new(args.seed, 0, Durability::Os, (100, 4000));
    let (db, keyspace) = open()?;
    for _ in 0..args.values {
        load.put(&keyspace)?;
    }
    load.verify(&keyspace)?;
    drop((db, keyspace));
    let (db, keyspace) = open()?;
    load.verify(&keyspace).map_err(|f| f.context("reopened"))?;
    drop(keyspace);
    db.close()?;
    // Pages of the program stay once they were used.
    let (peak, of_files) = peak_and_file_kib()?;
    println!("{}", peak.saturating_sub(of_files));
    Ok(())
}

/// The peak memory of this process, and how much of its present memory are pages of files.
fn peak_and_file_kib() -> Outcome<(u64, u64)> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    let found = kib("VmHWM:").zip(kib("RssFile:"));
    found.ok_or_else(|| Finding::new("the kernel does not tell how much memory the process took"))
}

/// The peak memory of this process, with the pages of the program.
pub(crate) fn peak_kib() -> Outcome<u64> {
    Ok(peak_and_file_kib()?.0)
}
