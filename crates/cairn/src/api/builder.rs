//! [`Builder`]: opens a database with more than its options.

use super::close::Handle;
use super::database::Database;
use crate::background::Background;
use crate::state::check_name;
use crate::sync::Mutex;
use crate::types::{Filters, Options};
use base::Result;
use env::{Env, RealEnv};
use std::path::Path;
use std::sync::Arc;
use tree::CompactionFilter;

/// Opens a database with what cannot be an option: functions of the application. See [`Database::builder`].
///
/// ```
/// use cairn::{Database, FilterDecision, FilterEntry, KeyspaceOptions};
///
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let oldest_height = 1000u64;
/// let db = Database::builder()
///     .compaction_filter("blocks", move |entry: &FilterEntry| {
///         let height = entry.key().first_chunk().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
///         Ok(if height < oldest_height { FilterDecision::Drop } else { FilterDecision::Keep })
///     })
///     .open(dir.path().join("db"))?;
/// let blocks = db.keyspace("blocks", KeyspaceOptions::default())?;
/// for height in 900..1100u64 {
///     blocks.put(height.to_be_bytes(), "block")?;
/// }
/// blocks.compact()?;
/// assert_eq!(blocks.iter().count(), 100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until it opens a database"]
pub struct Builder {
    options: Options,
    env: Option<Arc<dyn Env>>,
    filters: Filters,
}

impl Database {
    /// [`Database::open`] with options, in an environment that the caller provides, such as a simulated disk.
    ///
    /// # Errors
    /// As for [`Database::open_with`].
    pub fn open_in(env: Arc<dyn Env>, path: impl AsRef<Path>, options: Options) -> Result<Database> {
        Database::builder().options(options).env(env).open(path)
    }

    /// Opens a database with what cannot be an option, such as compaction filters.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// The options: those of [`Database::open_with`].
    pub fn options(mut self, options: Options) -> Builder {
        self.options = options;
        self
    }

    /// The environment, such as a simulated disk: see [`Database::open_in`].
    pub fn env(mut self, env: Arc<dyn Env>) -> Builder {
        self.env = Some(env);
        self
    }

    /// The compaction filter of the keyspace `keyspace`, which need not exist yet: it decides about entries as compactions meet them. It
    /// replaces an earlier one for the same name. Filters are not stored: an opening without one leaves the entries as they are.
    /// `docs/compaction-filters.md` says when a filter is asked, and what readers see.
    pub fn compaction_filter(
        mut self,
        keyspace: impl Into<String>,
        filter: impl CompactionFilter + 'static,
    ) -> Builder {
        self.filters.insert(keyspace.into(), Arc::new(filter));
        self
    }

    /// Opens the database in `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// As for [`Database::open_with`]; `InvalidArgument` if there is a compaction filter for a keyspace with history or without order, or for a name
    /// that no keyspace can have.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        let Builder { options, env, filters } = self;
        filters.names().try_for_each(check_name)?;
        let db = crate::open::open(env.unwrap_or_else(RealEnv::new), path.as_ref(), options, filters)?;
        let background = Mutex::new(Background::start(&db)?);
        Ok(Database { handle: Arc::new(Handle { db, background }) })
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Builder { options, filters, .. } = self;
        f.debug_struct("Builder").field("options", options).field("filters", filters).finish_non_exhaustive()
    }
}
