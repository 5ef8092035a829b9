//! A program that gives its metrics over HTTP, to Prometheus and to `cairn top`.
//!
//! `cargo run --release -p cairn-kv --example metrics` writes for a second, asks itself once, and ends.
//! `cargo run --release -p cairn-kv --example metrics -- 127.0.0.1:9000` goes on: look at it with `cairn top http://127.0.0.1:9000/metrics`.

use cairn::{Database, Durability, KeyspaceOptions, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Database::open(dir.path().join("db"))?;
    let events = db.keyspace("events", KeyspaceOptions::default())?;
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).expect("an address");
    let own_address = listener.local_addr().expect("an address");
    println!("metrics at http://{own_address}/metrics");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| work(&db, &events, &ended));
        let server = scope.spawn(|| serve(&listener, &db, &ended));
        if address.is_none() {
            std::thread::sleep(Duration::from_secs(1));
            let text = ask(own_address).expect("an answer");
            let wanted =
                ["cairn_user_writes_total", "cairn_log_syncs_total", "cairn_operation_seconds_count"];
            text.lines()
                .filter(|line| wanted.iter().any(|name| line.starts_with(name)))
                .for_each(|line| println!("{line}"));
            ended.store(true, Ordering::Relaxed);
            // The server may wait for a request. It may also have ended already, and then nothing would answer one.
            TcpStream::connect(own_address).expect("a connection");
        }
        server.join().expect("the server");
        work.join().expect("the work")
    })?;
    db.close()
}

/// Writes and reads events, and makes each thousandth write durable.
fn work(db: &Database, events: &cairn::Keyspace, ended: &AtomicBool) -> Result<()> {
    let begun = Instant::now();
    let mut n = 0u64;
    while !ended.load(Ordering::Relaxed) {
        // A key is written again after a while.
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 300_000;
        let durability = if n.is_multiple_of(1000) { Durability::Sync } else { Durability::Buffered };
        events.put_with(key.to_be_bytes(), [7; 200], durability)?;
        if n.is_multiple_of(4) {
            events.get((key / 2).to_be_bytes())?;
        }
        n += 1;
    }
    println!("{n} writes in {:?}, sequence number {}", begun.elapsed(), db.stats().last_seq);
    Ok(())
}

/// Answers one request after the other, whatever it asks for.
fn serve(listener: &TcpListener, db: &Database, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else { return };
        if ended.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = answer(stream, db) {
            eprintln!("a request: {error}");
        }
    }
}

fn answer(mut stream: TcpStream, db: &Database) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut request = BufReader::new(&stream).take(8 << 10);
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let text = db.metrics();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

fn ask(address: std::net::SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
