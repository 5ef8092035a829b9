//! Writes the seeds of the corpora: `cargo run -p cairn-fuzz-targets --example seeds -- fuzz/corpus`. Keeps existing
//! files.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    let seeds = fuzz_targets::seeds::seeds();
    for seed in &seeds {
        let dir = root.join(seed.target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("seed-{}", seed.name)), &seed.bytes)?;
    }
    println!("{} seeds in {}", seeds.len(), root.display());
    Ok(())
}
