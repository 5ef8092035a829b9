//! Reads of whole keyspaces, whether or not they have an order.

use cairn::{Engine, Keyspace, Result, Slice, Snapshot};

/// Whether the keys of a keyspace have an order.
pub fn has_order(keyspace: &Keyspace) -> bool {
    keyspace.options().engine == Engine::Tree
}

/// All entries of a keyspace, now or in a snapshot, ascending by key.
pub fn sorted_entries(keyspace: &Keyspace, snapshot: Option<&Snapshot>) -> Result<Vec<(Slice, Slice)>> {
    let entries = match snapshot {
        Some(snapshot) => snapshot.entries(keyspace),
        None => keyspace.entries(),
    };
    let mut entries = entries.collect::<Result<Vec<_>>>()?;
    if !has_order(keyspace) {
        entries.sort();
    }
    Ok(entries)
}
