//! Runs the real program.
#![allow(dead_code)] // each test file uses a part of it

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program, and a database directory that is removed at the end of the test.
pub struct Cairn {
    dir: tempfile::TempDir,
}

impl Cairn {
    pub fn new() -> Cairn {
        Cairn { dir: tempfile::tempdir().unwrap() }
    }

    pub fn db(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// A path beside the database.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file beside the database.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_string()
    }

    /// The program with this database, ready for more arguments.
    pub fn command(&self, command: &str) -> Command {
        let mut cairn = program();
        cairn.arg(command).env("CAIRN_DB", self.db());
        cairn
    }

    pub fn run(&self, command: &str, args: &[&str]) -> Run {
        self.run_with(command, args, b"")
    }

    /// Runs with the given bytes on standard input.
    pub fn run_with(&self, command: &str, args: &[&str], input: &[u8]) -> Run {
        let mut cairn = self.command(command);
        cairn.args(args);
        run(cairn, input)
    }

    /// Runs and expects success, with no message except that a database was created. Returns standard output.
    pub fn ok(&self, command: &str, args: &[&str]) -> String {
        self.run(command, args).ok()
    }
}

pub fn program() -> Command {
    let mut cairn = Command::new(env!("CARGO_BIN_EXE_cairn"));
    cairn.env_remove("CAIRN_DB");
    cairn
}

pub fn run(mut command: Command, input: &[u8]) -> Run {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input); // a program that ends early need not read it all
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Run::from(output)
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: Vec<u8>,
    /// Standard error, without the note that a database was created.
    pub err: String,
    pub created: bool,
}

/// The start of the note.
const CREATED: &str = "cairn: note: created a database in ";

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        let code = output.status.code().expect("it ended by itself");
        let err = String::from_utf8(output.stderr).unwrap();
        let (notes, lines): (Vec<_>, Vec<_>) =
            err.split_inclusive('\n').partition(|line| line.starts_with(CREATED));
        Run { code, out: output.stdout, err: lines.concat(), created: !notes.is_empty() }
    }
}

impl Run {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.code == 0 && self.err.is_empty(), "code {}: {}", self.code, self.err);
        String::from_utf8(self.out).unwrap()
    }

    /// Expects an exit code and one line on standard error, `cairn: ...`, that contains all of `parts`.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) -> Run {
        assert_eq!(self.code, code, "{}{}", self.err, String::from_utf8_lossy(&self.out));
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("cairn: "), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
        self
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The JSON objects of an output, one per line.
#[track_caller]
pub fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// The data set of the repository.
pub fn cities() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/cities.tsv"))
}
