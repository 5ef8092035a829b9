//! A log of events of several tenants: what a tenant has written goes when it leaves, and an old format is replaced, both while tables are compacted.
//!
//! `cargo run -p cairn-kv --example compaction_filter`

use cairn::{CompactionFilter, Database, FilterDecision, FilterEntry, KeyspaceOptions, Result};
use std::collections::HashSet;
use std::sync::{Arc, RwLock};

/// Keys are `tenant/number`. The first byte of a value is the version of its format.
struct Events {
    /// Those that have left.
    gone: Arc<RwLock<HashSet<String>>>,
}

impl CompactionFilter for Events {
    fn filter(&self, entry: &FilterEntry<'_>) -> Result<FilterDecision> {
        let tenant = entry.key().split(|&byte| byte == b'/').next().unwrap_or_default();
        let is_gone = std::str::from_utf8(tenant)
            .is_ok_and(|tenant| self.gone.read().expect("no writer panics").contains(tenant));
        if is_gone {
            return Ok(FilterDecision::Drop);
        }
        Ok(match entry.value()?.split_first() {
            Some((1, old)) => FilterDecision::Replace([&[2], &old.to_ascii_uppercase()[..]].concat()),
            _ => FilterDecision::Keep,
        })
    }
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let gone = Arc::new(RwLock::new(HashSet::new()));
    let db =
        Database::builder().compaction_filter("events", Events { gone: gone.clone() }).open(dir.path())?;
    let events = db.keyspace("events", KeyspaceOptions::default())?;
    for number in 0..1000 {
        for tenant in ["ada", "grace"] {
            events.put(format!("{tenant}/{number:04}"), b"\x01event")?;
        }
    }

    gone.write().expect("no reader panics").insert("ada".to_owned());
    let snapshot = db.snapshot();
    events.compact()?;
    println!("while a snapshot is open: {} events", events.iter().count());
    assert_eq!(events.iter().count(), 2000);
    drop(snapshot);

    events.compact()?;
    println!("afterwards: {}", events.iter().count());
    assert_eq!(events.prefix("ada/").count(), 0);
    assert_eq!(events.get("grace/0007")?.expect("it has not left"), b"\x02EVENT");
    let stats = events.stats();
    println!("{} were dropped, {} replaced", stats.filter_dropped, stats.filter_replaced);
    db.close()
}
