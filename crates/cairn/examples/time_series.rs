//! Measurements of many sensors over time: keys that sort by sensor, then by time; the newest first with a reversed iterator.
//!
//! `cargo run -p cairn-kv --example time_series`

use cairn::{Compression, Database, Durability, Keyspace, KeyspaceOptions, Options, Result};

/// The key: the sensor's name, a zero byte (so that no name is a prefix of another's keys), the time, big-endian.
fn key(sensor: &str, seconds: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(sensor.len() + 9);
    key.extend_from_slice(sensor.as_bytes());
    key.push(0);
    key.extend_from_slice(&seconds.to_be_bytes());
    key
}

fn decode(value: &[u8]) -> f64 {
    f64::from_be_bytes(value.try_into().expect("values have eight bytes"))
}

/// The mean over `[from, to)`; `None` when there is no measurement.
fn mean(series: &Keyspace, sensor: &str, from: u64, to: u64) -> Result<Option<f64>> {
    let (mut sum, mut count) = (0.0, 0u32);
    for entry in series.range(key(sensor, from)..key(sensor, to)) {
        sum += decode(&entry?.1);
        count += 1;
    }
    Ok((count > 0).then(|| sum / f64::from(count)))
}

/// The example.
pub fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("cairn-series-{}", std::process::id()));
    // A measurement more or less is no loss: writes go to the log in groups. Those of the last moment are lost if the process dies.
    let db = Database::open_with(&dir, Options::default().durability(Durability::Buffered))?;
    // Neighbours resemble each other, so larger blocks and zstd pay.
    let options = KeyspaceOptions::default().compression(Compression::Zstd).block_size(16 << 10);
    let series = db.keyspace("measurements", options)?;

    for seconds in 0..20_000u64 {
        for (n, sensor) in ["cellar", "garden", "roof"].iter().enumerate() {
            let value = 10.0 * n as f64 + (seconds as f64 / 1000.0).sin();
            series.put(key(sensor, seconds), value.to_be_bytes())?;
        }
    }
    // Everything up to here survives a power cut from now on.
    db.sync()?;

    let whole = mean(&series, "garden", 0, 20_000)?.expect("there are measurements");
    assert!((9.0..11.0).contains(&whole));
    assert!(mean(&series, "garden", 50_000, 60_000)?.is_none());

    let newest = series.prefix(b"roof\0").next_back().transpose()?.expect("there are measurements");
    println!("garden: {whole:.3} on average; roof: {:.3} at last", decode(&newest.1));

    // Dropping what is old: a range for each sensor, all of them at once.
    let mut batch = db.batch();
    for sensor in ["cellar", "garden", "roof"] {
        batch.delete_range(&series, key(sensor, 0)..key(sensor, 10_000));
    }
    db.write(batch, Durability::Os)?;
    // Compaction frees the space in its own time; this asks for it now.
    series.compact()?;
    assert_eq!(series.iter().count(), 3 * 10_000);

    drop(series);
    db.close()?;
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    Ok(())
}
