//! Counts words from several threads with merges, keeps the longest line of each word with an operator of the application, and shows that all of it is there after
//! a reopening.
//!
//! `cargo run -p cairn-kv --example counters`

use cairn::{Database, Durability, KeyspaceOptions, Merge, MergeOperator, Result};

const TEXT: [&str; 4] = [
    "the quick brown fox jumps over the lazy dog",
    "the dog sleeps",
    "a fox is quick and the dog is not",
    "no fox sleeps over a dog",
];

/// Keeps the longest value.
struct Longest;

impl MergeOperator for Longest {
    fn check(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn merge(&self, _key: &[u8], value: &mut Vec<u8>, operand: &[u8]) {
        // Of two that are equally long, the smaller one: so the order of the merges does not matter.
        if (operand.len(), std::cmp::Reverse(operand)) > (value.len(), std::cmp::Reverse(value)) {
            *value = operand.to_vec();
        }
    }
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let open = || Database::builder().merge_operator("longest", Longest).open(dir.path());
    let db = open()?;
    let counts = db.keyspace("counts", KeyspaceOptions::default().merge(Merge::U64Add))?;
    let lines = db.keyspace("lines", KeyspaceOptions::default().merge(Merge::own("longest")))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = TEXT
            .iter()
            .map(|line| {
                let (db, counts, lines) = (&db, &counts, &lines);
                scope.spawn(move || -> Result<()> {
                    for word in line.split(' ') {
                        let mut batch = db.batch();
                        batch.merge(counts, word, 1u64.to_le_bytes());
                        batch.merge(lines, word, line);
                        db.write(batch, Durability::Os)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    db.close()?;

    let db = open()?;
    let counts = db.open_keyspace("counts")?;
    for entry in counts.iter() {
        let (word, count) = entry?;
        let count = u64::from_le_bytes(count[..].try_into().expect("eight bytes"));
        println!("{count} {}", word.escape_ascii());
    }
    assert_eq!(counts.get("the")?.expect("it is in the text"), 4u64.to_le_bytes());
    assert_eq!(db.open_keyspace("lines")?.get("sleeps")?.expect("it is in the text"), TEXT[3]);
    db.close()
}
