//! An opening in another process between two lifetimes: reads all data, rewrites all files, and reports what it read.

use super::ledger::{State, read};
use super::site::options;
use crate::finding::{Finding, Outcome, ensure};
use crate::ordering::has_order;
use cairn::{Database, Durability};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The arguments that the parent passes to the child.
#[derive(Args)]
pub struct ChildArgs {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// Seed of the options.
    #[arg(long)]
    pub seed: u64,
}

/// Opens and closes the database in `dir` in another process. Returns the content that it read.
pub fn visit(program: &Path, dir: &Path, seed: u64) -> Outcome<State> {
    let mut command = Command::new(program);
    command.arg("lifetime-child").arg("--dir").arg(dir).args(["--seed", &seed.to_string()]);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| Finding::new(format!("cannot start {}: {e}", program.display())))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "in another process ({}): {}", output.status, words.trim());
    understand(&String::from_utf8_lossy(&output.stdout))
}

fn understand(text: &str) -> Outcome<State> {
    let mut state = State::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let understood = match words[..] {
            ["keyspace", name] => {
                state.entry(name.to_owned()).or_default();
                Some(())
            }
            ["entry", name, key, number] => number.parse().ok().map(|number| {
                state.entry(name.to_owned()).or_default().insert(key.to_owned(), number);
            }),
            _ => None,
        };
        ensure!(understood.is_some(), "the other process says {line:?}");
    }
    Ok(state)
}

/// The child.
pub fn child(args: &ChildArgs) -> Outcome {
    let db = Database::open_with(&args.dir, options(args.seed))?;
    let state = read(&db)?;
    for (name, content) in &state {
        println!("keyspace {name}");
        content.iter().for_each(|(key, number)| println!("entry {name} {key} {number}"));
        let keyspace = db.open_keyspace(name)?;
        for number in 0..40 {
            keyspace.put_with(format!("~/{number}"), vec![7; 500], Durability::Os)?;
        }
        match has_order(&keyspace) {
            true => keyspace.delete_prefix("~/")?,
            false => (0..40).try_for_each(|number| keyspace.delete(format!("~/{number}")))?,
        }
    }
    db.flush()?;
    db.compact()?;
    let report = db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "check finds {:?}", report.problems);
    Ok(db.close()?)
}
