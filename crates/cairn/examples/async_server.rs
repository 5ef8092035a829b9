//! A server with tokio: a line `set KEY VALUE` is answered when the write is durable, `get KEY` without blocking a thread of the runtime.
//!
//! `cargo run --release -p cairn-kv --example async_server` serves 64 clients of its own, says how fast, and ends.
//! `cargo run --release -p cairn-kv --example async_server -- 127.0.0.1:6380` goes on: try it with `nc 127.0.0.1 6380`.
//!
//! The runtime has two threads, for however many clients; the database has one that commits for all of them.

use cairn::{Database, Durability, Keyspace, KeyspaceOptions};
use std::error::Error;
use std::task::Poll;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Own clients, and writes of each.
const CLIENTS: u32 = 64;
const WRITES: u32 = 100;

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path().join("db"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    runtime.block_on(serve(db.clone(), address))?;
    // Tasks have handles of the database: they end with the runtime. Closing blocks, so it is not for a task.
    drop(runtime);
    Ok(db.close()?)
}

async fn serve(db: Database, address: Option<String>) -> Result<()> {
    let keyspace = db.keyspace("default", KeyspaceOptions::default())?;
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let own_address = listener.local_addr()?;
    println!("listening at {own_address}");
    let accepting = tokio::spawn({
        let db = db.clone();
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (db, keyspace) = (db.clone(), keyspace.clone());
                tokio::spawn(async move {
                    if let Err(error) = talk(stream, &db, &keyspace).await {
                        eprintln!("a client: {error}");
                    }
                });
            }
        }
    });
    if address.is_some() {
        accepting.await?;
        return Ok(());
    }
    let begun = Instant::now();
    let clients: Vec<_> = (0..CLIENTS).map(|n| tokio::spawn(ask(own_address, n))).collect();
    for client in clients {
        client.await??;
    }
    let rate = f64::from(CLIENTS * WRITES) / begun.elapsed().as_secs_f64();
    println!(
        "{rate:.0} durable writes a second, with {} syncs for {}",
        db.stats().log.syncs,
        CLIENTS * WRITES
    );
    Ok(())
}

/// Answers the lines of a client.
async fn talk(mut stream: TcpStream, db: &Database, keyspace: &Keyspace) -> Result<()> {
    let (input, mut output) = stream.split();
    let mut lines = BufReader::new(input).lines();
    while let Some(line) = lines.next_line().await? {
        let mut words = line.splitn(3, ' ');
        let answer = match (words.next(), words.next(), words.next()) {
            (Some("set"), Some(key), Some(value)) => {
                let mut batch = db.batch();
                batch.put(keyspace, key, value);
                match db.write_async(batch, Durability::Sync).await {
                    Ok(()) => "ok\n".to_owned(),
                    Err(error) => format!("error {error}\n"),
                }
            }
            (Some("get"), Some(key), None) => match get(keyspace, key).await? {
                Some(value) => format!("value {}\n", String::from_utf8_lossy(&value)),
                None => "none\n".to_owned(),
            },
            _ => "error write `set KEY VALUE` or `get KEY`\n".to_owned(),
        };
        output.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// What is in memory is read here. What is not is read in a thread that may wait for the disk.
async fn get(keyspace: &Keyspace, key: &str) -> Result<Option<cairn::Slice>> {
    if let Poll::Ready(value) = keyspace.try_get(key)? {
        return Ok(value);
    }
    let (keyspace, key) = (keyspace.clone(), key.to_owned());
    Ok(tokio::task::spawn_blocking(move || keyspace.get(key)).await??)
}

/// A client that writes, and reads what it has written.
async fn ask(address: std::net::SocketAddr, client: u32) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let (input, mut output) = stream.split();
    let mut lines = BufReader::new(input).lines();
    for n in 0..WRITES {
        output.write_all(format!("set {client}/{n} {n}\n").as_bytes()).await?;
        assert_eq!(lines.next_line().await?.as_deref(), Some("ok"));
        output.write_all(format!("get {client}/{n}\n").as_bytes()).await?;
        assert_eq!(lines.next_line().await?, Some(format!("value {n}")));
    }
    Ok(())
}
