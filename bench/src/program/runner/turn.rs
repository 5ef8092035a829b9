//! The turn of one engine: starts the child, reads its messages, and determines how it ended.

use super::child::{Order, Told};
use crate::program::text::{human_bytes, human_seconds};
use bench::cgroup::Cgroup;
use bench::session::Event;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of bytes kept of a child's standard error: the last ones.
const MAX_STDERR: usize = 64 << 10;
/// Maximum delay until an interruption is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why a turn ended early.
#[derive(Debug)]
pub enum Fault {
    /// The engine, or its process, failed.
    Failed {
        /// The reason, on one line.
        message: String,
        /// The end of the process's standard error.
        stderr: String,
    },
    /// The user ended the run.
    Interrupted,
}

/// Runs the group in a child process.
pub fn take(
    mut order: Order,
    memory_limit_bytes: Option<u64>,
    time_limit: Duration,
    interrupted: &AtomicBool,
    on: &mut dyn FnMut(Event),
) -> Result<(), Fault> {
    let failed = |message: String| Fault::Failed { message, stderr: String::new() };
    let group = memory_limit_bytes.map(Cgroup::create).transpose().map_err(failed)?;
    order.procs = group.as_ref().map(Cgroup::procs);
    let order = serde_json::to_vec(&order).map_err(|e| failed(e.to_string()))?;
    let mut child = Running(spawn(&order).map_err(|e| failed(format!("start a process: {e}")))?);
    let stdout = child.0.stdout.take().expect("it is piped");
    let stderr = child.0.stderr.take().expect("it is piped");
    let stderr = thread::spawn(move || tail(stderr));
    let ended = listen(stdout, time_limit, interrupted, on);
    if !matches!(ended, Ended::Closed { .. }) {
        let _ = child.0.kill();
    }
    let status = child.0.wait();
    let stderr = stderr.join().unwrap_or_default();
    let message = match (ended, status) {
        (Ended::Interrupted, _) => return Err(Fault::Interrupted),
        (Ended::TimeLimit, _) => {
            format!("stopped after the time limit of {}", human_seconds(time_limit.as_secs_f64()))
        }
        (Ended::Closed { failed: Some(why) }, _) => why,
        (_, Ok(status)) if status.success() => return Ok(()),
        _ if group.as_ref().is_some_and(Cgroup::out_of_memory) => {
            format!(
                "killed: it used more memory than the limit of {}",
                human_bytes(memory_limit_bytes.unwrap_or(0))
            )
        }
        (_, status) => died(status, &stderr),
    };
    Err(Fault::Failed { message, stderr })
}

/// A child process that is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The running program, even if a newer build has replaced its file.
fn executable() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

fn spawn(order: &[u8]) -> io::Result<Child> {
    let mut child = Command::new(executable()?)
        .arg("child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    // If the child died before it read the order, its output ends, which is handled below.
    let _ = io::Write::write_all(&mut stdin, order);
    Ok(child)
}

enum Ended {
    /// The child closed its output.
    Closed {
        /// The reason of a failure, if the child reported it.
        failed: Option<String>,
    },
    TimeLimit,
    Interrupted,
}

/// Forwards the child's messages until it ends or is killed.
fn listen(
    stdout: impl Read + Send + 'static,
    limit: Duration,
    interrupted: &AtomicBool,
    on: &mut dyn FnMut(Event),
) -> Ended {
    let lines = lines(stdout);
    let start = Instant::now();
    let mut failed = None;
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return Ended::Interrupted;
        }
        if start.elapsed() > limit {
            return Ended::TimeLimit;
        }
        match lines.recv_timeout(POLL_INTERVAL) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(Told::Event(event)) => on(event),
                Ok(Told::Failed(why)) => failed = Some(why),
                // The engine's own output is ignored.
                Err(_) => {}
            },
            Err(RecvTimeoutError::Timeout) => {}
            // An interruption at the terminal also ends the child.
            Err(RecvTimeoutError::Disconnected) if interrupted.load(Ordering::Relaxed) => {
                return Ended::Interrupted;
            }
            Err(RecvTimeoutError::Disconnected) => return Ended::Closed { failed },
        }
    }
}

fn lines(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The end of the input.
fn tail(mut from: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 8192]);
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..n]);
        let surplus = kept.len().saturating_sub(MAX_STDERR);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Describes how a child ended that could not report it: with the last lines of its standard error.
fn died(status: io::Result<ExitStatus>, stderr: &str) -> String {
    let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
    let said = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: run with");
    let mut last: Vec<&str> = stderr.lines().rev().filter(said).take(2).collect();
    last.reverse();
    if last.is_empty() { how } else { format!("{how}: {}", last.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(text: &'static str, limit: Duration, interrupted: bool) -> (Ended, usize) {
        let mut events = 0;
        let ended = listen(text.as_bytes(), limit, &AtomicBool::new(interrupted), &mut |_| events += 1);
        (ended, events)
    }

    #[test]
    fn a_child_says_why_it_failed() {
        let minute = Duration::from_secs(60);
        let (ended, events) = hear("chatter\n{\"Failed\":\"disk full\"}\n", minute, false);
        assert!(matches!(ended, Ended::Closed { failed: Some(why) } if why == "disk full"));
        assert_eq!(events, 0);
        assert!(matches!(hear("", minute, false).0, Ended::Closed { failed: None }));
        assert!(matches!(hear("", minute, true).0, Ended::Interrupted));
        assert!(matches!(hear("", Duration::ZERO, false).0, Ended::TimeLimit));
    }

    #[test]
    fn the_dead_are_asked_what_they_said_last() {
        let status = || Command::new("sh").args(["-c", "kill -9 $$"]).status();
        assert_eq!(died(status(), ""), "signal: 9 (SIGKILL)");
        let stderr = "noise\nthread 'main' panicked at x.rs:1:\nno more\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(died(status(), stderr), "signal: 9 (SIGKILL): thread 'main' panicked at x.rs:1: no more");
        assert_eq!(tail(&b"abc"[..]), "abc");
        assert_eq!(tail(&vec![b'x'; MAX_STDERR + 5][..]).len(), MAX_STDERR);
    }
}
