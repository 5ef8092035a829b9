//! `cairn top`: of a program over HTTP, of a database beside its writer, and of neither.

use crate::common::{Cairn, program, run};
use cairn::{Database, KeyspaceOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

/// Answers `requests` requests with `answers`, the last of them again and again.
fn serve(listener: &TcpListener, requests: usize, mut answer: impl FnMut() -> String) {
    for _ in 0..requests {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut request = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while request.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        stream.write_all(answer().as_bytes()).unwrap();
    }
}

fn top_of(answers: impl FnMut() -> String + Send, requests: usize) -> crate::common::Run {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, requests, answers));
        let mut top = program();
        top.args(["top", &address, "--once", "--interval", "0.2"]);
        run(top, b"")
    })
}

fn ok(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

#[test]
fn the_metrics_of_a_program_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let users = db.create_keyspace("users", KeyspaceOptions::default()).unwrap();
    let next = || {
        (0..1000u32).for_each(|n| users.put(n.to_be_bytes(), "value").unwrap());
        ok(&db.metrics())
    };
    let shown = top_of(next, 2).ok();
    for wanted in ["Cairn  http://127.0.0.1:", " Calls ", " Cache and memory ", "sync_write", "│users "] {
        assert!(shown.contains(wanted), "no {wanted} in\n{shown}");
    }
    let writes = shown.lines().find(|line| line.contains(" Writes: ")).unwrap();
    assert!(!writes.contains("Writes: 0 each"), "{shown}");
}

#[test]
fn answers_without_metrics_are_refused() {
    let refused = |answer: String, message: &str| {
        top_of(|| answer.clone(), 1).fails(6, &[message]);
    };
    refused(ok("<html></html>"), "no metric of Cairn");
    refused(ok("cairn_keyspaces\n"), "line 1 of the metrics");
    refused("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(), "404");
    refused("nothing like HTTP\r\n\r\n".to_owned(), "http");
    refused(String::new(), "http");
}

#[test]
fn a_database_is_shown_beside_its_writer() {
    let cairn = Cairn::new();
    let db = Database::open(cairn.db()).unwrap();
    let users = db.create_keyspace("users", KeyspaceOptions::default()).unwrap();
    for n in 0..1000u32 {
        users.put_with(n.to_be_bytes(), "value", cairn::Durability::Os).unwrap();
    }
    let shown = cairn.ok("top", &["--once", "--interval", "0.1"]);
    for wanted in ["newest commit   1,000", "Not known from the directory", "│users "] {
        assert!(shown.contains(wanted), "no {wanted} in\n{shown}");
    }
    assert!(!shown.contains(" Calls "), "{shown}");
}

#[test]
fn without_a_terminal_or_anything_to_show_it_says_so() {
    let cairn = Cairn::new();
    cairn.run("top", &[]).fails(2, &["no terminal; --once"]);
    cairn.run("top", &["--once"]).fails(2, &["there is no database"]);
    cairn.run("top", &["https://example.org", "--once"]).fails(2, &["only http"]);
    let mut top = program();
    top.args(["top", "--once"]);
    run(top, b"").fails(2, &["nothing to show"]);
}
