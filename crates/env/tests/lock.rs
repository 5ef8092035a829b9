//! The lock file of the real environment: between processes, and with unusual paths.

use base::ErrorKind;
use env::RealEnv;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Names the lock file in the child process.
const VARIABLE: &str = "CAIRN_TEST_LOCK";

/// Not a test of its own: the body of the child process of the next test.
#[test]
fn child_tries_to_lock() {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    match RealEnv::new().lock(Path::new(&path)) {
        Ok(_) => println!("child got it"),
        Err(error) => println!("child failed: {:?} {error}", error.kind()),
    }
}

fn child(path: &Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lock::child_tries_to_lock", "--nocapture"])
        .env(VARIABLE, path)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_second_process_is_told_who_holds_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let lock = RealEnv::new().lock(&path).unwrap();
    let said = child(&path);
    assert!(said.contains("child failed: Locked"), "{said}");
    assert!(said.contains(&format!("open in process {}", std::process::id())), "{said}");
    drop(lock);
    assert!(child(&path).contains("child got it"));
    // The child is dead, so its lock is gone, although its process id is still in the file.
    RealEnv::new().lock(&path).unwrap();
}

/// Names the file in the child process that holds a shared lock.
const SHARED: &str = "CAIRN_TEST_SHARED_LOCK";

/// Not a test of its own: the body of the child process of the next test.
#[test]
fn child_holds_a_shared_lock() {
    let Some(path) = std::env::var_os(SHARED) else { return };
    let _lock = RealEnv::new().lock_shared(Path::new(&path), 77).unwrap();
    println!("child has it");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_shared_lock_ends_with_its_process_and_needs_no_right_to_write() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("manifest");
    std::fs::write(&path, "x").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let env = RealEnv::new();
    let own = env.lock_shared(&path, 100).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lock::child_holds_a_shared_lock", "--nocapture"])
        .env(SHARED, &path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("child has it")));
    assert_eq!(env.first_shared_lock(&path).unwrap(), Some(77));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(env.first_shared_lock(&path).unwrap(), Some(100));
    drop(own);
    // Another test may be starting a program: until it executes it, the child has a copy of the lock's descriptor.
    let begun = std::time::Instant::now();
    while env.first_shared_lock(&path).unwrap().is_some() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "the lock is still there");
        std::thread::yield_now();
    }
}

#[test]
fn a_symbolic_link_is_refused_as_the_lock_but_not_on_the_way_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("LOCK"), dir.path().join("LINK"));
    let lock = RealEnv::new().lock(&real).unwrap();
    symlink(&real, &link).unwrap();
    let error = RealEnv::new().lock(&link).err().unwrap();
    assert!(error.to_string().contains("symbolic link"), "{error}");

    let alias = dir.path().join("alias");
    symlink(dir.path(), &alias).unwrap();
    let error = RealEnv::new().lock(&alias.join("LOCK")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Locked, "the same file by another path");
    drop(lock);
    RealEnv::new().lock(&alias.join("LOCK")).unwrap();
}

#[test]
fn only_a_regular_file_is_a_lock() {
    let dir = tempfile::tempdir().unwrap();
    let error = RealEnv::new().lock(dir.path()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(RealEnv::new().lock(Path::new("/dev/null")).is_err());
}

#[test]
fn of_many_threads_one_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let locks: Vec<_> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..8).map(|_| s.spawn(|| RealEnv::new().lock(&path))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(locks.iter().filter(|l| l.is_ok()).count(), 1);
}

/// A child between `fork` and `exec` holds a copy of the lock's descriptor for a moment.
#[test]
fn starting_programs_does_not_keep_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            // A working directory makes `Command` use `fork` instead of a faster call that hides this moment.
            let start = || Command::new("true").current_dir("/").status().unwrap();
            (0..200).for_each(|_| assert!(start().success()));
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            drop(RealEnv::new().lock(&path).unwrap());
        }
    });
}
