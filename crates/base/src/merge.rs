//! Merge operators: how a value and the operands that were written after it become one value.

use crate::limits::MAX_VALUE_LEN;
use crate::planted::{Bug, planted};
use crate::{Error, Result, Slice, Trailer};

/// Joins operands to the values of a keyspace.
///
/// An operand joins the value that its key has. Operands that have not met their value yet are joined with each other, so the operator must be
/// *associative*: to join `a`, then `b` to a value is to join what `b` joined to `a` makes. The first operand of a key without a value is its
/// value. Operators need not be commutative: operands are joined in the order in which they were written.
///
/// An operator must always do the same, also in later versions of the application: what it does is stored.
pub trait MergeOperator: Send + Sync {
    /// Whether these bytes are a value, and an operand, which have one format: those of puts and of merges are both checked, before they are written.
    ///
    /// # Errors
    /// Why they are not; the write fails with this error.
    fn check(&self, value: &[u8]) -> Result<()>;

    /// Joins `operand` to `value`, which was written before it and may be an operand itself. Both were found good by
    /// [`MergeOperator::check`], or come from this method, whose result must be such, too.
    ///
    /// It is called by reads, merges, flushes, compactions and openings, on their threads, by several at once. It must not call the database, and must not panic.
    fn merge(&self, key: &[u8], value: &mut Vec<u8>, operand: &[u8]);
}

/// Operands are joined once so many bytes of them are gathered, or as many as those have that were joined before: so few of them are in memory,
/// and the joined ones are copied a few times only.
const MAX_GATHERED: usize = 1 << 20;

/// The operands of one key, gathered from the newest to the oldest.
#[derive(Default)]
pub struct Operands {
    /// What the newest ones, which are not in `entries`, have become.
    newer: Option<(Trailer, Vec<u8>)>,
    /// From new to old: each with the end of its bytes.
    entries: Vec<(Trailer, usize)>,
    bytes: Vec<u8>,
}

impl Operands {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.newer.is_none() && self.entries.is_empty()
    }

    /// Forgets them; the memory is kept.
    pub fn clear(&mut self) {
        self.newer = None;
        self.entries.clear();
        self.bytes.clear();
    }

    /// The trailer of the newest one.
    pub fn newest(&self) -> Option<Trailer> {
        let newer = self.newer.as_ref().map(|(trailer, _)| *trailer);
        newer.or_else(|| self.entries.first().map(|(trailer, _)| *trailer))
    }

    /// Adds an operand that is older than all others.
    pub fn push(&mut self, trailer: Trailer, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.entries.push((trailer, self.bytes.len()));
    }

    /// Whether they should be joined before more are added.
    pub fn are_many(&self) -> bool {
        let joined = self.newer.as_ref().map_or(0, |(_, newer)| newer.len());
        self.bytes.len() >= MAX_GATHERED.max(joined) && self.entries.len() > 1
    }

    /// Joins them with each other.
    ///
    /// # Errors
    /// As for [`Operands::fold`]. They are then as before.
    pub fn condense(&mut self, operator: &dyn MergeOperator, key: &[u8]) -> Result<()> {
        if let Some(newest) = self.newest() {
            let folded = self.fold(operator, key, None)?;
            self.clear();
            self.newer = Some((newest, folded));
        }
        Ok(())
    }

    /// What they make of `base`, the value that was written before them, if there is one.
    ///
    /// # Errors
    /// `InvalidArgument` if it is longer than a value may be.
    pub fn fold(&self, operator: &dyn MergeOperator, key: &[u8], base: Option<&[u8]>) -> Result<Vec<u8>> {
        // With each other first: the base may be much longer.
        let mut value = None::<Vec<u8>>;
        let mut add = |operand: &[u8]| match &mut value {
            None => {
                value = Some(operand.to_vec());
                Ok(())
            }
            Some(value) => {
                operator.merge(key, value, operand);
                check_len(key, value)
            }
        };
        let operand = |at: usize| {
            let from = if at == 0 { 0 } else { self.entries[at - 1].1 };
            &self.bytes[from..self.entries[at].1]
        };
        match planted(Bug::JoinNewestFirst) {
            true => (0..self.entries.len()).try_for_each(|at| add(operand(at)))?,
            false => (0..self.entries.len()).rev().try_for_each(|at| add(operand(at)))?,
        }
        if let Some((_, newer)) = &self.newer {
            add(newer)?;
        }
        match (base, value) {
            (Some(base), Some(operands)) => join(operator, key, base, &operands),
            (base, operands) => Ok(operands.or(base.map(<[u8]>::to_vec)).unwrap_or_default()),
        }
    }

    /// Takes them out, from new to old.
    pub fn drain(&mut self) -> impl Iterator<Item = (Trailer, Vec<u8>)> {
        let Operands { newer, entries, bytes } = std::mem::take(self);
        let mut from = 0;
        newer.into_iter().chain(entries.into_iter().map(move |(trailer, end)| {
            let operand = bytes[from..end].to_vec();
            from = end;
            (trailer, operand)
        }))
    }
}

/// What an operator makes of a value and an operand.
///
/// # Errors
/// `InvalidArgument` if it is longer than a value may be.
pub fn join(operator: &dyn MergeOperator, key: &[u8], value: &[u8], operand: &[u8]) -> Result<Vec<u8>> {
    let mut value = value.to_vec();
    operator.merge(key, &mut value, operand);
    check_len(key, &value)?;
    Ok(value)
}

fn check_len(key: &[u8], value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE_LEN { Err(too_long(key, value.len())) } else { Ok(()) }
}

#[cold]
fn too_long(key: &[u8], len: usize) -> Error {
    let key = Slice::copy_from(key);
    Error::invalid(format!(
        "the operands of key {key:?} make a value of {len} bytes; {MAX_VALUE_LEN} are allowed"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryKind;

    struct Append;

    impl MergeOperator for Append {
        fn check(&self, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn merge(&self, _: &[u8], value: &mut Vec<u8>, operand: &[u8]) {
            value.extend_from_slice(operand);
        }
    }

    fn gathered(operands: &[&str]) -> Operands {
        let mut all = Operands::default();
        for (i, operand) in operands.iter().enumerate().rev() {
            all.push(Trailer::new(i as u64 + 1, EntryKind::Merge), operand.as_bytes());
        }
        all
    }

    #[test]
    fn operands_are_joined_in_the_order_of_their_writes() {
        let mut all = gathered(&["a", "", "bc", "d"]);
        assert_eq!(all.fold(&Append, b"k", None).unwrap(), b"abcd");
        assert_eq!(all.fold(&Append, b"k", Some(b"0")).unwrap(), b"0abcd");
        all.condense(&Append, b"k").unwrap();
        assert_eq!(all.newest().unwrap().seq(), 4);
        all.push(Trailer::new(0, EntryKind::Merge), b"older");
        assert_eq!(all.fold(&Append, b"k", Some(b"0")).unwrap(), b"0olderabcd");
        let drained: Vec<_> = all.drain().map(|(trailer, bytes)| (trailer.seq(), bytes)).collect();
        assert_eq!(drained, [(4, b"abcd".to_vec()), (0, b"older".to_vec())]);
        assert!(all.is_empty() && all.newest().is_none());
    }

    #[test]
    fn a_value_that_is_too_long_leaves_the_operands_as_they_are() {
        let half = vec![7; MAX_VALUE_LEN / 2 + 1];
        let mut all = Operands::default();
        all.push(Trailer::new(2, EntryKind::Merge), &half);
        assert!(!all.are_many());
        all.push(Trailer::new(1, EntryKind::Merge), &half);
        assert!(all.are_many());
        assert_eq!(all.condense(&Append, b"k").unwrap_err().kind(), crate::ErrorKind::InvalidArgument);
        assert_eq!(all.drain().map(|(_, operand)| operand.len()).sum::<usize>(), 2 * half.len());
    }
}
