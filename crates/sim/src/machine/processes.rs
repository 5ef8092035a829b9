//! Several processes and one database: one process opens it, and the others get an error that names it (trap 34).

use crate::finding::{Finding, Outcome, ensure};
use cairn::{Database, ErrorKind, KeyspaceOptions};
use clap::Args;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Number of processes that open one database at the same time.
const RIVALS: usize = 8;

/// The arguments that the parent passes to the child.
#[derive(Args)]
pub struct HoldArgs {
    /// Directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
}

/// The child: opens the database, writes, reports the result, and holds the database until its standard input ends.
pub fn child(args: &HoldArgs) -> Outcome {
    match Database::open(&args.dir) {
        Ok(db) => {
            let keyspace = db.keyspace("k", KeyspaceOptions::default())?;
            keyspace.put(std::process::id().to_string(), "was here")?;
            println!("open");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(keyspace);
            Ok(db.close()?)
        }
        Err(e) if e.kind() == ErrorKind::Locked => {
            println!("locked");
            Ok(())
        }
        Err(e) => Err(e.into()),
    }
}

/// A child and its first line of output.
struct Holder {
    child: Child,
    said: String,
}

fn holder(program: &Path, dir: &Path) -> Outcome<Child> {
    let mut command = Command::new(program);
    command.arg("hold-child").arg("--dir").arg(dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().map_err(|e| Finding::new(format!("cannot start {}: {e}", program.display())))
}

fn listen(mut child: Child) -> Outcome<Holder> {
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        let heard = BufReader::new(out).read_line(&mut said);
        heard.map_err(|e| Finding::new(format!("cannot read from the child: {e}")))?;
    }
    Ok(Holder { child, said: said.trim().to_owned() })
}

impl Holder {
    /// Lets the child exit.
    fn release(mut self) -> Outcome {
        drop(self.child.stdin.take());
        let status =
            self.child.wait().map_err(|e| Finding::new(format!("cannot wait for the child: {e}")))?;
        ensure!(status.success(), "a child that {:?} ended with {status}", self.said);
        Ok(())
    }
}

/// Another process is rejected, whatever path it uses, with an error that names the holder. After the holder is
/// killed, the next process can open the database at once.
pub fn exclude(program: &Path, scratch: &Path) -> Outcome {
    let (dir, alias) = (scratch.join("db"), scratch.join("alias"));
    let failed = |e: std::io::Error| Finding::new(format!("the symbolic link: {e}"));
    std::os::unix::fs::symlink(&dir, &alias).map_err(failed)?;
    for kill in [false, true] {
        let mut first = listen(holder(program, &dir)?)?;
        ensure!(first.said == "open", "the first process says {:?}", first.said);
        let pid = first.child.id().to_string();
        let refused = [
            ("opening", Database::open(&dir).map(drop)),
            ("opening by a symbolic link", Database::open(&alias).map(drop)),
            ("checking", cairn::check(&dir, &mut |_| {}).map(drop)),
        ];
        for (what, result) in refused {
            let Err(error) = result else { return Err(Finding::new(format!("{what} succeeds"))) };
            ensure!(error.kind() == ErrorKind::Locked, "{what}: {error:?}");
            ensure!(
                error.to_string().contains(&pid),
                "{what}: the error does not name process {pid}: {error:?}"
            );
        }
        match kill {
            false => first.release()?,
            true => {
                let killed = first.child.kill().and_then(|()| first.child.wait());
                killed.map_err(|e| Finding::new(format!("cannot kill the child: {e}")))?;
            }
        }
        let db = Database::open(&alias)?;
        ensure!(db.open_keyspace("k")?.get(&pid)?.is_some(), "P1: what process {pid} wrote is gone");
        let again = Database::open(&dir).map(drop);
        ensure!(again.is_err_and(|e| e.kind() == ErrorKind::Locked), "the same process gets it twice");
        db.close()?;
    }
    Ok(())
}

/// One of many processes that open a new database at the same time succeeds.
pub fn race(program: &Path, dir: &Path) -> Outcome {
    let children: Vec<Child> = (0..RIVALS).map(|_| holder(program, dir)).collect::<Outcome<_>>()?;
    let holders: Vec<Holder> = children.into_iter().map(listen).collect::<Outcome<_>>()?;
    let said: Vec<String> = holders.iter().map(|h| h.said.clone()).collect();
    holders.into_iter().try_for_each(Holder::release)?;
    ensure!(said.iter().filter(|s| *s == "open").count() == 1, "at once: {said:?}");
    ensure!(said.iter().all(|s| s == "open" || s == "locked"), "at once: {said:?}");
    Ok(())
}
