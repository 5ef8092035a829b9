//! The compaction filters with which a database is opened.

use super::KeyspaceOptions;
use base::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tree::CompactionFilter;

/// Compaction filters, by the name of the keyspace.
#[derive(Clone, Default)]
pub(crate) struct Filters(BTreeMap<String, Arc<dyn CompactionFilter>>);

impl Filters {
    pub(crate) fn insert(&mut self, keyspace: String, filter: Arc<dyn CompactionFilter>) {
        self.0.insert(keyspace, filter);
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, keyspace: &str) -> Option<&Arc<dyn CompactionFilter>> {
        self.0.get(keyspace)
    }

    /// # Errors
    /// `InvalidArgument` if there is one for a keyspace that can have none.
    pub(crate) fn check(&self, keyspace: &str, options: &KeyspaceOptions) -> Result<()> {
        let why = match (options.has_history(), options.is_hash_log()) {
            (true, _) => "keeps its versions by the option history",
            (_, true) => "has no compactions, by the option engine",
            _ => return Ok(()),
        };
        match self.get(keyspace) {
            Some(_) => {
                Err(Error::invalid(format!("keyspace {keyspace:?} {why}: it can have no compaction filter")))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
