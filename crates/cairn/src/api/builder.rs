//! [`Builder`]: opens a database with more than its options.

use super::close::{Following, Handle};
use super::database::Database;
use crate::background::Background;
use crate::open::Follower;
use crate::state::check_name;
use crate::sync::Mutex;
use crate::types::{Filters, Operators, Options};
use base::{MergeOperator, Result};
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
    operators: Operators,
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

    /// A merge operator, for keyspaces with the option `merge` = `name`: see [`Merge::own`](crate::Merge::own). It replaces an earlier one of the
    /// same name. A database with such a keyspace opens only if its operator is registered. `docs/merge.md` says what an operator must do.
    ///
    /// ```
    /// use cairn::{Database, KeyspaceOptions, Merge, MergeOperator};
    ///
    /// /// Keeps the longest value.
    /// struct Longest;
    ///
    /// impl MergeOperator for Longest {
    ///     fn check(&self, _: &[u8]) -> cairn::Result<()> {
    ///         Ok(())
    ///     }
    ///     fn merge(&self, _key: &[u8], value: &mut Vec<u8>, operand: &[u8]) {
    ///         if operand.len() > value.len() {
    ///             *value = operand.to_vec();
    ///         }
    ///     }
    /// }
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::builder().merge_operator("longest", Longest).open(dir.path().join("db"))?;
    /// let names = db.keyspace("names", KeyspaceOptions::default().merge(Merge::own("longest")))?;
    /// names.merge("alice", "Al")?;
    /// names.merge("alice", "Alice")?;
    /// assert_eq!(names.get("alice")?.unwrap(), "Alice");
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge_operator(
        mut self,
        name: impl Into<String>,
        operator: impl MergeOperator + 'static,
    ) -> Builder {
        self.operators.insert(name.into(), Arc::new(operator));
        self
    }

    /// Opens the database although merge operators of its keyspaces are not registered. Their operands then stay as they are: a read of a key
    /// that has some fails with `InvalidArgument`, and so do puts and merges in such a keyspace. For tools that do not know the application.
    pub fn without_merge_operators(mut self) -> Builder {
        self.operators.may_lack = true;
        self
    }

    /// The same for a database into which another one is copied: puts and merges are not refused.
    pub(crate) fn with_unchecked_operands(mut self) -> Builder {
        self.operators.takes_unchecked = true;
        self.without_merge_operators()
    }

    /// Opens the database in `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// As for [`Database::open_with`]; `InvalidArgument` if there is a compaction filter for a keyspace without order, or for a name
    /// that no keyspace can have; if a keyspace needs a merge operator that is not registered, or one is registered under a name that
    /// it cannot have.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        let Builder { options, env, filters, operators } = self;
        filters.names().try_for_each(check_name)?;
        operators.check_names()?;
        let env = env.unwrap_or_else(RealEnv::new);
        let db = crate::open::open(env, path.as_ref(), options, (filters, operators))?;
        db.collect_at_opening();
        let background = Mutex::new(Background::start(&db)?);
        Ok(Database { handle: Arc::new(Handle { db, background, follower: None }) })
    }
}

impl Builder {
    /// Opens the database in `path` for reading only, beside a process that may write to it: see [`Database::open_read_only`]. Compaction filters
    /// have no effect.
    ///
    /// # Errors
    /// As for [`Database::open_read_only`].
    pub fn open_read_only(self, path: impl AsRef<Path>) -> Result<Database> {
        let Builder { options, env, operators, .. } = self;
        operators.check_names()?;
        let env = env.unwrap_or_else(RealEnv::new);
        let following = Following::new(Follower::new(env, path.as_ref(), options, operators)?);
        following.next().map(|handle| Database { handle })
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Builder { options, filters, operators, .. } = self;
        let mut builder = f.debug_struct("Builder");
        builder.field("options", options).field("filters", filters).field("operators", operators);
        builder.finish_non_exhaustive()
    }
}
