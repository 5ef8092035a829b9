//! Point reads of keys with operands: the value that the merge operator makes of them and of the value below them.

use super::read_cost::may_be_sealed;
use crate::parts::price;
use crate::state::{KeyspaceInner, ReadAt, ReadState, hides, shows};
use crate::sync::Ordering;
use base::{Cursor, Error, ErrorKind, MergeOperator, Operands, Result, Seq, Slice, Trailer, hash};
use memtable::Memtable;
use std::sync::Arc;
use tree::charge;

impl KeyspaceInner {
    /// The value of `key` in the state `at`, in a keyspace with merges; `deleted` is the newest range tombstone over the key.
    ///
    /// Costs a step for each operand in memory, and a look-up for each table with one. The operands are gathered from the newest to the oldest, up
    /// to the first other entry.
    pub(super) fn get_joined(
        &self,
        read_state: &ReadState,
        key: &[u8],
        at: &ReadAt,
        deleted: Seq,
    ) -> Result<Option<Slice>> {
        let mut operands = Operands::default();
        let mut seq = at.seq;
        for memtable in read_state.memtables() {
            let Some((trailer, stored)) = memtable.get(key, seq) else { continue };
            let found = match trailer.is_merge() {
                true => self.gather(memtable, key, &mut seq, deleted, &mut operands)?,
                false => Some((trailer, Slice::copy_from(stored))),
            };
            if found.is_some() {
                return self.join(&operands, key, found, at, deleted);
            }
        }
        let hash = hash(key);
        loop {
            match read_state.version.get_above(key, hash, seq, deleted)? {
                Some((trailer, operand)) if trailer.is_merge() && shows(trailer, deleted) => {
                    self.add_operand(&mut operands, key, trailer, &operand)?;
                    seq = self.before(trailer, seq)?;
                }
                found => return self.join(&operands, key, found, at, deleted),
            }
        }
    }

    /// Gathers the operands of `key` in a memtable, up to `seq`, which becomes the number before the oldest of them. Returns the entry below them if
    /// there is one. Their number is charged to the memtable, so that it is flushed when reads join the same ones again and again.
    fn gather(
        &self,
        memtable: &Arc<Memtable>,
        key: &[u8],
        seq: &mut Seq,
        deleted: Seq,
        operands: &mut Operands,
    ) -> Result<Option<(Trailer, Slice)>> {
        let mut cursor = memtable.cursor();
        cursor.seek(key, *seq)?;
        let (mut steps, mut found) = (0, None);
        while found.is_none() && cursor.valid() && cursor.key() == key {
            let trailer = cursor.trailer();
            if !trailer.is_merge() || hides(deleted, trailer.seq()) {
                found = Some((trailer, Slice::copy_from(cursor.value())));
                break;
            }
            self.add_operand(operands, key, trailer, cursor.value())?;
            *seq = self.before(trailer, *seq)?;
            steps += 1;
            cursor.next()?;
        }
        let cost = self.charges.of_skipped(steps);
        if steps > 1 && charge(memtable.charges(), cost) >= price(memtable) && may_be_sealed(memtable, self) {
            self.memtables_due.store(true, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// The number before that of an operand that a look-up at `seq` has found.
    fn before(&self, operand: Trailer, seq: Seq) -> Result<Seq> {
        // Only a damaged table has another one, and a look-up for it might not end.
        let found = operand.seq().checked_sub(1).filter(|_| operand.seq() <= seq);
        found.ok_or_else(|| {
            let what =
                format!("keyspace {:?}: an operand has the sequence number {}", self.name(), operand.seq());
            Error::new(ErrorKind::Corruption, what)
        })
    }

    /// Adds an operand that is older than the others.
    pub(super) fn add_operand(
        &self,
        operands: &mut Operands,
        key: &[u8],
        trailer: Trailer,
        operand: &[u8],
    ) -> Result<()> {
        operands.push(trailer, operand);
        match operands.are_many() {
            true => operands.condense(self.known_operator()?, key),
            false => Ok(()),
        }
    }

    /// What the operands, if there are any, make of the entry that was found below them.
    fn join(
        &self,
        operands: &Operands,
        key: &[u8],
        found: Option<(Trailer, Slice)>,
        at: &ReadAt,
        deleted: Seq,
    ) -> Result<Option<Slice>> {
        let base = self.value_of(found, at, deleted)?;
        match operands.is_empty() {
            true => Ok(base),
            false => {
                let operator: &dyn MergeOperator = self.known_operator()?;
                operands.fold(operator, key, base.as_deref()).map(|value| Some(Slice::from(value)))
            }
        }
    }
}
