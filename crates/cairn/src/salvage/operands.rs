//! The operands of a key in a damaged database.

use base::{Cursor, Error, ErrorKind, Result, Seq, Slice, Trailer};

/// The operands of a key above its value. Tables from before a compaction may be there beside its result, where operands are joined under the
/// number of the newest.
pub(super) struct FoundOperands {
    /// From new to old.
    found: Vec<(Trailer, Vec<u8>)>,
    /// Two different ones have one number: one of them is joined with others, and it is not known which.
    pub is_ambiguous: bool,
}

impl FoundOperands {
    /// Those at which the cursor stands, which moves behind them. What is older than `deleted` is deleted.
    pub(super) fn gather(cursor: &mut impl Cursor, key: &[u8], deleted: Seq) -> Result<FoundOperands> {
        let mut operands = FoundOperands { found: Vec::new(), is_ambiguous: false };
        let is_here = |cursor: &dyn Cursor| cursor.valid() && cursor.key() == key;
        while is_here(cursor) && cursor.trailer().is_merge() && cursor.trailer().seq() >= deleted {
            match operands.found.last() {
                Some((last, operand)) if *last == cursor.trailer() => {
                    operands.is_ambiguous |= operand != cursor.value();
                }
                _ => operands.found.push((cursor.trailer(), cursor.value().to_vec())),
            }
            cursor.next()?;
        }
        let oldest = operands.found.last().map(|(trailer, _)| trailer.seq());
        if is_here(cursor) && oldest == Some(cursor.trailer().seq()) {
            // The value is already joined with it.
            operands.found.pop();
        }
        Ok(operands)
    }

    pub(super) fn are_found(&self) -> bool {
        !self.found.is_empty()
    }

    pub(super) fn oldest_first(&self) -> impl Iterator<Item = &[u8]> {
        self.found.iter().rev().map(|(_, operand)| &operand[..])
    }

    /// The error of a key whose operands are ambiguous.
    pub(super) fn ambiguous(key: &[u8]) -> Error {
        let what = "its operands are there both joined and apart, so its value is not known";
        Error::new(ErrorKind::Corruption, format!("key {:?}: {what}", Slice::copy_from(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::EntryKind::{self, Delete, Merge, Put};
    use memtable::Memtable;
    use tree::MergeCursor;

    fn run(entries: &[(Seq, EntryKind, &str)]) -> memtable::MemtableCursor {
        let table = Memtable::new(1 << 16);
        for (seq, kind, value) in entries {
            assert!(table.reserve(Memtable::entry_cost(1, value.len())));
            table.insert(b"k", Trailer::new(*seq, *kind), value.as_bytes());
        }
        table.cursor()
    }

    /// The operands of `k`, from the oldest, and the number of what is below them.
    fn gathered(runs: &[&[(Seq, EntryKind, &str)]], deleted: Seq) -> (String, Option<Seq>, bool) {
        let mut merge = MergeCursor::new(runs.iter().map(|entries| run(entries)).collect(), 0);
        merge.seek_to_first().unwrap();
        let found = FoundOperands::gather(&mut merge, b"k", deleted).unwrap();
        let text = found.oldest_first().map(|operand| String::from_utf8(operand.to_vec()).unwrap()).collect();
        (text, merge.valid().then(|| merge.trailer().seq()), found.is_ambiguous)
    }

    #[test]
    fn operands_that_are_there_twice_count_once() {
        let apart: [&[_]; 3] = [&[(5, Merge, "c")], &[(4, Merge, "b")], &[(3, Put, "a")]];
        assert_eq!(gathered(&apart, 0), ("bc".into(), Some(3), false));
        assert_eq!(gathered(&[apart[0], apart[0], apart[1], apart[2]], 0), ("bc".into(), Some(3), false));
        // The result of their compaction, with the value and without.
        assert_eq!(
            gathered(&[apart[0], apart[1], apart[2], &[(5, Put, "abc")]], 0),
            (String::new(), Some(5), false)
        );
        assert!(gathered(&[apart[0], apart[1], apart[2], &[(5, Merge, "bc")]], 0).2);
        assert_eq!(gathered(&apart, 4), ("bc".into(), Some(3), false));
        assert_eq!(gathered(&apart, 5), ("c".into(), Some(4), false));
        assert_eq!(gathered(&[apart[0], &[(4, Delete, "")], apart[2]], 0), ("c".into(), Some(4), false));
    }
}
