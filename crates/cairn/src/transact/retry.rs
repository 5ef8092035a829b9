//! Transactions that are repeated after conflicts.

use super::transaction::{Transaction, is_conflict};
use crate::api::Database;
use crate::sync::yield_now;
use crate::types::Durability;
use base::Error;

/// How [`Database::transaction_with`] runs a transaction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransactionOptions {
    durability: Option<Durability>,
    retries: u32,
}

impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        TransactionOptions { durability: None, retries: 1_000 }
    }
}

impl TransactionOptions {
    /// The durability of the commit. Default: that of the database.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> TransactionOptions {
        self.durability = Some(durability);
        self
    }

    /// How often the transaction is run again after a conflict, before the conflict is returned. Default: 1,000.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> TransactionOptions {
        self.retries = retries;
        self
    }
}

impl Database {
    /// Runs a transaction: calls `run` and commits what it has written. If another commit has changed what `run` has read, all is done again, up to a
    /// thousand times. An error of `run` rolls back and is returned.
    ///
    /// So `run` should do nothing that must not be repeated, but through the transaction. It may return errors of its own type, if Cairn's can be
    /// converted into it.
    ///
    /// ```
    /// use cairn::{Database, KeyspaceOptions};
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path())?;
    /// let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
    /// let log = db.keyspace("log", KeyspaceOptions::default())?;
    /// accounts.put("alice", 10u64.to_be_bytes())?;
    ///
    /// let moved = db.transaction(|tx| {
    ///     let balance = |of: &str| -> cairn::Result<u64> {
    ///         Ok(tx.get(&accounts, of)?.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap())))
    ///     };
    ///     let (alice, bob) = (balance("alice")?, balance("bob")?);
    ///     tx.put(&accounts, "alice", (alice - 3).to_be_bytes())?;
    ///     tx.put(&accounts, "bob", (bob + 3).to_be_bytes())?;
    ///     tx.put(&log, "1", "alice to bob: 3")?;
    ///     cairn::Result::Ok(3)
    /// })?;
    /// assert_eq!(moved, 3);
    /// assert_eq!(accounts.get("bob")?.unwrap(), 3u64.to_be_bytes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `run`; `Conflict` when there was one each time; otherwise as for [`Transaction::commit`].
    pub fn transaction<T, E: From<Error>>(
        &self,
        run: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.transaction_with(&TransactionOptions::default(), run)
    }

    /// [`Database::transaction`] with options.
    ///
    /// # Errors
    /// As for [`Database::transaction`].
    pub fn transaction_with<T, E: From<Error>>(
        &self,
        options: &TransactionOptions,
        mut run: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let durability = options.durability.unwrap_or(self.options().durability);
        let mut retries = options.retries;
        loop {
            let mut transaction = self.begin();
            let result = run(&mut transaction)?;
            match transaction.commit_with(durability) {
                Err(error) if is_conflict(&error) && retries > 0 => {
                    retries -= 1;
                    yield_now();
                }
                committed => return Ok(committed.map(|()| result)?),
            }
        }
    }
}
