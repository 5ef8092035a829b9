//! Tests that change or measure the state of their process run in a child process, alone.

use std::any::type_name_of_val;
use std::path::PathBuf;
use std::process::Command;

/// Names the directory in the child process.
const VARIABLE: &str = "CAIRN_TEST_CHILD_DIR";

/// The temporary directory of the child process; `None` in the parent.
pub(crate) fn dir() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// Runs the test function `test` of this program in a child process. The child must call [`done`] at its end.
pub(crate) fn run<F: Fn()>(test: F) {
    let dir = tempfile::tempdir().unwrap();
    let (_, name) = type_name_of_val(&test).split_once("::").expect("the path of a function");
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(VARIABLE, dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    assert!(text.contains(DONE), "{name} did not run to its end: {text}");
}

const DONE: &str = "child done";

/// Tells the parent that the test ran to its end.
pub(crate) fn done() {
    println!("{DONE}");
}
