//! A forked child must not use the lock of its parent. This program has one thread, so that the child may run any
//! code.
#![allow(unsafe_code)]

use base::ErrorKind;
use env::{ForkGuard, RealEnv};

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("LOCK");
    let env = RealEnv::new();
    let lock = env.lock(&path).expect("no other process has it");

    let origin = ForkGuard::here();
    assert!(origin.is_here() && origin.process() == std::process::id());
    // Append much data, so that the log has a window.
    let log_path = dir.path().join("log");
    let mut log = env.create_log(&log_path).expect("a log");
    (0..500).for_each(|_| log.append(&[7; 1000]).expect("room"));
    let reach = env.len(&log_path).expect("it is there");

    // SAFETY: no other thread exists that could hold a lock or be in the middle of an allocation.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let cannot_lock = env.lock(&path).is_err_and(|e| e.kind() == ErrorKind::Locked);
        let elsewhere = !origin.is_here();
        drop(lock);
        drop(log);
        let untouched = env.len(&log_path).is_ok_and(|len| len == reach);
        let still_held = env.lock(&path).is_err_and(|e| e.kind() == ErrorKind::Locked);
        let code = i32::from(!cannot_lock) | i32::from(!still_held) << 1;
        let code = code | i32::from(!elsewhere) << 2 | i32::from(!untouched) << 3;
        // SAFETY: ends the process at once, without the exit handlers of the parent.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above; `status` outlives the call.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(
        (waited, status),
        (pid, 0),
        "cannot lock, still held, elsewhere, untouched: a set bit is a failure"
    );

    assert!(origin.is_here());
    drop(log);
    assert_eq!(env.len(&log_path).expect("it is there"), 500_000);
    assert!(env.lock(&path).is_err());
    drop(lock);
    env.lock(&path).expect("released");
}
