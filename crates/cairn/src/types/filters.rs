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
        if !options.is_hash_log() {
            return Ok(());
        }
        match self.get(keyspace) {
            Some(_) => {
                let what = "has no compactions, by the option engine: it can have no compaction filter";
                Err(Error::invalid(format!("keyspace {keyspace:?} {what}")))
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
