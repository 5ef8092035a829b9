//! The first steps: open a database, write, read, look at a range, close.
//!
//! `cargo run -p cairn-kv --example quickstart`

use cairn::{Database, KeyspaceOptions};

/// The example.
pub fn main() -> cairn::Result<()> {
    let dir = std::env::temp_dir().join(format!("cairn-quickstart-{}", std::process::id()));

    // A database is a directory, created when there is none. A keyspace is a named map in it, with options
    // of its own.
    let db = Database::open(&dir)?;
    let users = db.keyspace("users", KeyspaceOptions::default())?;

    // Keys and values are bytes. A put replaces; deleting what is not there is no error.
    users.put("alice", "Oslo")?;
    users.put("bob", "Bergen")?;
    users.put("carol", "Oslo")?;
    users.delete("dave")?;

    // What is not there is None. A value that is there is a view into memory that the store holds anyway.
    let city = users.get("alice")?.expect("she was just put");
    assert_eq!(city, "Oslo");
    assert!(users.get("dave")?.is_none());

    // Ranges are in the order of the bytes of the keys, and see the moment at which they were made.
    for entry in users.range("a".."c") {
        let (name, city) = entry?;
        println!("{name:?} lives in {city:?}");
    }
    let last = users.iter().next_back().transpose()?.expect("there are three");
    assert_eq!(last.0, "carol");

    // Dropping the last handle closes the database, too; close() also tells of errors.
    drop(users);
    db.close()?;

    let db = Database::open(&dir)?;
    assert_eq!(db.open_keyspace("users")?.iter().count(), 3);
    db.close()?;
    std::fs::remove_dir_all(&dir).expect("the directory is ours");
    Ok(())
}
