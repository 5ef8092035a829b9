//! Another handle cuts a log short while it is written to. The process must survive.

use env::{Env, RealEnv, WriteFile};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RECORD: [u8; 500] = [7; 500];
/// `O_NONBLOCK`: an open fails if it would have to wait.
const NONBLOCK: i32 = libc::O_NONBLOCK;

fn log(dir: &Path) -> (Box<dyn WriteFile>, PathBuf) {
    let env: Arc<dyn Env> = RealEnv::new();
    let path = dir.join("log");
    let mut log = env.create_log(&path).unwrap();
    log.on_idle();
    (log, path)
}

/// Whether the log holds a lease: other processes then wait to open it.
fn is_kept(path: &Path) -> bool {
    let opened = OpenOptions::new().write(true).custom_flags(NONBLOCK).open(path);
    opened.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
}

/// Appends until `done`, and 4 MiB more.
fn append_until(log: &mut dyn WriteFile, done: impl Fn() -> bool) {
    let mut more: usize = 4 << 20;
    while more > 0 {
        log.append(&RECORD).unwrap();
        if done() {
            more = more.saturating_sub(RECORD.len());
        }
    }
}

/// Cuts the file short, if that is possible without waiting.
fn cut(path: &Path) -> bool {
    let opened = OpenOptions::new().write(true).custom_flags(NONBLOCK).open(path);
    opened.is_ok_and(|file| file.set_len(10).is_ok())
}

#[test]
fn a_log_that_is_cut_short_while_it_is_written_to_does_not_end_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut kept = 0;
    for size in 0..50 {
        let (mut log, path) = log(dir.path());
        // Enough for a part of the file to be mapped, usually, and each time at another offset of that part.
        for _ in 0..1000 + 11 * size {
            log.append(&RECORD).unwrap();
        }
        kept += usize::from(!cut(&path));
        for _ in 0..2000 {
            log.append(&RECORD).unwrap();
        }
        drop(log);
        std::fs::remove_file(path).unwrap();
    }
    println!("{kept} of 50 could not be cut at once");
}

#[test]
fn threads_that_cut_a_log_wait_until_that_is_safe() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, path) = log(dir.path());
    for round in 0..20 {
        append_until(&mut *log, || true);
        let path = path.clone();
        let cutter = std::thread::spawn(move || match round % 2 {
            0 => File::options().write(true).open(path).unwrap().set_len(10).unwrap(),
            _ => drop(File::create(path).unwrap()),
        });
        append_until(&mut *log, || cutter.is_finished());
        cutter.join().unwrap();
    }
}

#[test]
fn a_log_that_rests_can_be_opened_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, path) = log(dir.path());
    let mut tries = 0;
    loop {
        (0..500).for_each(|_| log.append(&RECORD).unwrap());
        if is_kept(&path) {
            break;
        }
        tries += 1;
        if tries == 100 {
            // This file system has no windows, or the machine is too slow.
            return;
        }
    }
    let reader = std::thread::spawn({
        let path = path.clone();
        move || std::fs::read(path).unwrap()
    });
    while !reader.is_finished() {
        std::thread::sleep(std::time::Duration::from_millis(10));
        log.on_idle();
    }
    let (read, appended) = (reader.join().unwrap(), (tries + 1) * 500 * RECORD.len());
    assert!(read.len() >= appended && read[..appended].iter().all(|&byte| byte == 7));
    assert!(!is_kept(&path));
}

#[test]
fn a_log_that_nobody_lets_rest_never_keeps_others_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = RealEnv::new();
    let path = dir.path().join("log");
    let mut log = env.create_log(&path).unwrap();
    for _ in 0..20_000 {
        log.append(&RECORD).unwrap();
    }
    assert!(!is_kept(&path));
}
