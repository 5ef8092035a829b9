//! Single steps that read one key and write it: what a transaction of one key does, without a snapshot of the whole database.

use super::transaction::is_conflict;
use crate::api::Keyspace;
use crate::state::{Batch, ReadSet};
use crate::types::Durability;
use crate::wal::Entry;
use base::{EntryKind, Result, Slice, Time};

/// What to do with a key, after a look at its value.
enum Step<T> {
    /// Leaves it as it is.
    Keep(T),
    /// Sets its value, with an expiry, or deletes it.
    Write(Option<(Vec<u8>, Option<Time>)>, T),
}

impl Keyspace {
    /// Sets `key` to `new` if its value is `current`; `None` is no value, in both places. Both are one step: no other write comes in between.
    /// `Ok(Err(value))`: it has this other value, and nothing was written.
    ///
    /// Costs [`Keyspace::get`] and [`Keyspace::put`]; and the same again for each write of another thread that comes in between.
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// # let locks = db.keyspace("locks", cairn::KeyspaceOptions::default())?;
    /// assert!(locks.compare_and_swap("printer", None::<&str>, Some("alice"))?.is_ok());
    /// let held_by = locks.compare_and_swap("printer", None::<&str>, Some("bob"))?.unwrap_err();
    /// assert_eq!(held_by.unwrap(), "alice");
    /// assert!(locks.compare_and_swap("printer", Some("alice"), None::<&str>)?.is_ok());
    /// assert!(!locks.contains("printer")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::get`] and [`Keyspace::put`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        current: Option<impl AsRef<[u8]>>,
        new: Option<impl AsRef<[u8]>>,
    ) -> Result<std::result::Result<(), Option<Slice>>> {
        let durability = self.database().options.durability;
        self.compare_and_swap_with(key, current, new, durability)
    }

    /// [`Keyspace::compare_and_swap`] with the given durability. A step that writes nothing makes nothing durable.
    ///
    /// # Errors
    /// As for [`Keyspace::compare_and_swap`].
    pub fn compare_and_swap_with(
        &self,
        key: impl AsRef<[u8]>,
        current: Option<impl AsRef<[u8]>>,
        new: Option<impl AsRef<[u8]>>,
        durability: Durability,
    ) -> Result<std::result::Result<(), Option<Slice>>> {
        let (current, new) = (current.as_ref().map(AsRef::as_ref), new.as_ref().map(AsRef::as_ref));
        self.update_key(key.as_ref(), durability, |value, _| match value.as_deref() == current {
            // Nothing to nothing is no write.
            true if value.is_none() && new.is_none() => Step::Keep(Ok(())),
            true => Step::Write(new.map(|new| self.to_put(new.to_vec())), Ok(())),
            false => Step::Keep(Err(value)),
        })
    }

    /// Sets `key` to `value` if it has none. Returns the value that it has, if it has one. See [`Keyspace::compare_and_swap`].
    ///
    /// # Errors
    /// As for [`Keyspace::compare_and_swap`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.put_if_absent_with(key, value, self.database().options.durability)
    }

    /// [`Keyspace::put_if_absent`] with the given durability. A step that writes nothing makes nothing durable.
    ///
    /// # Errors
    /// As for [`Keyspace::compare_and_swap`].
    pub fn put_if_absent_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Option<Slice>> {
        let value = value.as_ref();
        self.update_key(key.as_ref(), durability, |present, _| match present {
            Some(present) => Step::Keep(Some(present)),
            None => Step::Write(Some(self.to_put(value.to_vec())), None),
        })
    }

    /// Sets `key` to what `update` makes of its value; `None` is no value, in both places. Returns the value before. `update` is called again if
    /// another write comes in between. See [`Keyspace::compare_and_swap`].
    ///
    /// ```
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// # let counters = db.keyspace("counters", cairn::KeyspaceOptions::default())?;
    /// let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    /// for _ in 0..3 {
    ///     counters.fetch_update("visits", |value| Some((value.map_or(0, number) + 1).to_be_bytes()))?;
    /// }
    /// assert_eq!(number(&counters.get("visits")?.unwrap()), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::compare_and_swap`].
    pub fn fetch_update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Slice>> {
        self.fetch_update_with(key, update, self.database().options.durability)
    }

    /// [`Keyspace::fetch_update`] with the given durability. A step that writes nothing makes nothing durable.
    ///
    /// # Errors
    /// As for [`Keyspace::compare_and_swap`].
    pub fn fetch_update_with<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        mut update: impl FnMut(Option<&[u8]>) -> Option<V>,
        durability: Durability,
    ) -> Result<Option<Slice>> {
        self.update_key(key.as_ref(), durability, |value, _| {
            let new = update(value.as_deref()).map(|new| new.as_ref().to_vec());
            match (&value, &new) {
                (None, None) => Step::Keep(None),
                _ => Step::Write(new.map(|new| self.to_put(new)), value),
            }
        })
    }

    /// A value to put, with the expiry that a put gives it.
    fn to_put(&self, value: Vec<u8>) -> (Vec<u8>, Option<Time>) {
        (value, self.inner.default_expiry())
    }

    /// [`Keyspace::merge`] as a read of the value and a put. The expiry of the value stays.
    pub(super) fn merge_at_once(&self, key: &[u8], operand: &[u8], durability: Durability) -> Result<()> {
        self.inner.check_kind(EntryKind::Merge, operand)?;
        let operator = self.inner.known_operator()?;
        self.update_key(key, durability, |value, expiry| {
            let merged = match value {
                None => self.to_put(operand.to_vec()),
                Some(value) => {
                    let mut value = value.to_vec();
                    operator.merge(key, &mut value, operand);
                    (value, expiry)
                }
            };
            Step::Write(Some(merged), ())
        })
    }

    /// Repeats a step until no other write comes in between. Each time one does, another thread has got on.
    fn update_key<T>(
        &self,
        key: &[u8],
        durability: Durability,
        mut step: impl FnMut(Option<Slice>, Option<Time>) -> Step<T>,
    ) -> Result<T> {
        self.inner.limits.check(key, &[])?;
        loop {
            // Held until the commit: otherwise a compaction might drop a later delete, as if nothing had been written.
            let (held, _) = self.held();
            let mut reads = ReadSet::new(held.seq);
            reads.of(&self.inner).note_key(key);
            let read_state = self.inner.read_state.load();
            self.inner.check_open()?;
            let at = held.at();
            let found = self.inner.get_in(&read_state, key, &at).map_err(|e| self.read_error(e))?;
            reads.note_expiry(at.soonest());
            drop(read_state);
            let (new, result) = match step(found, at.soonest()) {
                Step::Keep(result) => return Ok(result),
                Step::Write(new, result) => (new, result),
            };
            let mut batch = Batch::default();
            match &new {
                Some((new, expiry)) => batch.push(&self.inner, Entry::put(key, new).until(*expiry)),
                None => batch.push(&self.inner, Entry::delete(key)),
            }
            match self.database().write_batch(batch, Some(Box::new(reads)), durability) {
                Err(error) if is_conflict(&error) => {}
                written => return written.map(|()| result),
            }
        }
    }
}
