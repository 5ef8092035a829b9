//! Effects of process limits on files. Each test runs its body in a child process, because a lowered limit cannot be
//! raised again.

use env::RealEnv;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::Command;

/// Runs the test `name` of this module in a child process, which finds its directory in the environment.
fn in_child(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("limits::{name}"), "--nocapture"]).env("CAIRN_LIMITS_DIR", dir.path());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("child done"), "{text}");
}

fn child_dir() -> Option<PathBuf> {
    std::env::var_os("CAIRN_LIMITS_DIR").map(PathBuf::from)
}

fn lower(resource: Resource, to: u64) {
    let Rlimit { maximum, .. } = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(to), maximum }).unwrap();
}

#[test]
fn a_write_beyond_the_limit_on_files_is_an_error_and_no_signal() {
    let Some(dir) = child_dir() else {
        return in_child("a_write_beyond_the_limit_on_files_is_an_error_and_no_signal");
    };
    let env = RealEnv::new();
    lower(Resource::Fsize, 10_000);
    assert_eq!(env.max_file_len(), 10_000);
    let mut file = env.create(&dir.join("long")).unwrap();
    file.append(&[1; 9_000]).unwrap();
    for _ in 0..2 {
        let error = file.append(&[2; 1_001]).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::NoSpace, "{error}");
        assert!(error.is_file_too_large() && error.to_string().contains("long"), "{error}");
        assert_eq!(env.len(&dir.join("long")).unwrap(), 9_000, "no part of it was written");
    }
    file.append(&[3; 1_000]).unwrap();
    file.sync().unwrap();
    let error = env.allocate(&dir.join("aside"), 10_001).unwrap_err();
    assert!(error.is_file_too_large(), "{error}");
    assert!(!env.exists(&dir.join("aside")).unwrap());
    env.allocate(&dir.join("aside"), 10_000).unwrap();
    println!("child done");
}

#[test]
fn a_lock_is_taken_where_its_note_may_not_be_written() {
    let Some(dir) = child_dir() else { return in_child("a_lock_is_taken_where_its_note_may_not_be_written") };
    let env = RealEnv::new();
    lower(Resource::Fsize, 0);
    let _lock = env.lock(&dir.join("LOCK")).unwrap();
    assert_eq!(env.lock(&dir.join("LOCK")).map(drop).unwrap_err().kind(), base::ErrorKind::Locked);
    println!("child done");
}

#[test]
fn a_directory_is_synced_though_no_handle_is_left() {
    let Some(dir) = child_dir() else { return in_child("a_directory_is_synced_though_no_handle_is_left") };
    let env = RealEnv::new();
    lower(Resource::Nofile, 40);
    assert_eq!(env.max_open_files(), 40);
    drop(env.create(&dir.join("file")).unwrap());
    let mut open = Vec::new();
    let error = loop {
        match env.open(&dir.join("file")) {
            Ok(file) => open.push(file),
            Err(e) => break e,
        }
    };
    assert!(error.is_too_many_open_files() && error.to_string().contains("file"), "{error}");
    for _ in 0..3 {
        env.sync_dir(&dir).unwrap();
        env.sync_file(&dir.join("file")).unwrap();
    }
    assert!(env.create(&dir.join("other")).is_err(), "the spare handle is for syncs only");
    println!("child done");
}
