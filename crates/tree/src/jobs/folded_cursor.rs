//! [`FoldedCursor`]: the entries of a flush or a compaction with operands joined, as far as no reader sees them apart.

use super::job::JobContext;
use crate::compaction::Plan;
use base::expiry::{MAX_EXPIRING_LEN, expiry_bytes, split_expiry};
use base::planted::{Bug, planted};
use base::{
    Cursor, EntryKind, Error, ErrorKind, MAX_SEQ, MergeOperator, Operands, Reference, Result, Seq, Time,
    Trailer,
};
use std::collections::VecDeque;
use values::Segments;

/// A cursor over the entries of a merge in which the operands of a key that the same readers see are one entry. It is a put if the value
/// below them is known, and an operand otherwise; it has the number of the newest of them. Reads forward only.
///
/// Operands stay apart where they would make a value that is too long, and above a value that cannot be read, or for which the disk has no
/// room.
///
/// Cost: a look at the kind of each entry. An operand is copied, and joined; a value outside of the tree below operands is read.
pub struct FoldedCursor<'a, C> {
    cursor: &'a mut C,
    operator: &'a dyn MergeOperator,
    context: &'a JobContext<'a>,
    segments: Option<&'a Segments>,
    plan: Option<&'a Plan>,
    /// The piece of the plan that has the entry.
    piece: usize,
    /// What the operands of `key` have become, from new to old: the first one is shown, before the entry of `cursor`.
    folded: VecDeque<(Trailer, Vec<u8>)>,
    key: Vec<u8>,
    operands: Operands,
    /// Bytes of values outside of the tree that were read.
    pub(super) values_read: u64,
    /// The first error of reading one.
    pub(super) error: Option<Error>,
}

/// What is below the operands of a key.
enum Below {
    /// Nothing that the readers see.
    Nothing,
    /// The entry on which the cursor stands.
    Value,
    /// It is in another table, or other readers see it.
    Unknown,
}

impl<'a, C: Cursor> FoldedCursor<'a, C> {
    /// Over the entries of memtables that are flushed.
    pub fn of_flush(cursor: &'a mut C, operator: &'a dyn MergeOperator, context: &'a JobContext<'a>) -> Self {
        FoldedCursor {
            cursor,
            operator,
            context,
            segments: None,
            plan: None,
            piece: 0,
            folded: VecDeque::new(),
            key: Vec::new(),
            operands: Operands::default(),
            values_read: 0,
            error: None,
        }
    }

    /// Over the entries of a compaction.
    pub(super) fn of_plan(
        cursor: &'a mut C,
        operator: &'a dyn MergeOperator,
        context: &'a JobContext<'a>,
        segments: Option<&'a Segments>,
        plan: &'a Plan,
    ) -> Self {
        FoldedCursor { segments, plan: Some(plan), ..FoldedCursor::of_flush(cursor, operator, context) }
    }

    /// Which readers see an entry: the number of those that are older.
    fn readers(&self, seq: Seq) -> usize {
        match planted(Bug::JoinAcrossReaders) {
            true => 0,
            false => self.context.snapshots.partition_point(|&reader| reader < seq),
        }
    }

    /// Whether there are no entries of `key` below those of the merge.
    fn is_bottom(&mut self) -> bool {
        let Some(plan) = self.plan else { return false };
        while plan.cuts.get(self.piece).is_some_and(|cut| self.key[..] >= cut[..]) {
            self.piece += 1;
        }
        plan.bottom[self.piece] || planted(Bug::JoinWithoutOlder)
    }

    /// Joins the operands that begin here.
    fn arrive(&mut self) -> Result<()> {
        if !self.cursor.valid() || !self.cursor.trailer().is_merge() {
            return Ok(());
        }
        self.key.clear();
        self.key.extend_from_slice(self.cursor.key());
        let seq = self.cursor.trailer().seq();
        let readers = self.readers(seq);
        // The oldest reader of the entries, which sees the fewest range tombstones.
        let oldest = self.context.snapshots.get(readers).copied().unwrap_or(MAX_SEQ);
        let ranges = self.context.range_tombstones;
        let deleted = if ranges.is_empty() { 0 } else { ranges.newest(&self.key, oldest) };
        if seq < deleted {
            return Ok(());
        }
        let below = self.gather(readers, deleted)?;
        if self.operands.is_empty() {
            // They are too long together, and stay apart.
            return Ok(());
        }
        let (kind, base, expiry) = match below {
            Below::Nothing => (EntryKind::Put, None, None),
            Below::Unknown => (EntryKind::Merge, None, None),
            Below::Value => match self.value_below() {
                Ok(Some((value, None))) => (EntryKind::Put, Some(value), None),
                Ok(Some((value, expiry))) => (EntryKind::ExpiringPut, Some(value), expiry),
                Ok(None) => (EntryKind::Put, None, None),
                Err(e) => {
                    self.error.get_or_insert(e);
                    (EntryKind::Merge, None, None)
                }
            },
        };
        match self.operands.fold(self.operator, &self.key, base.as_deref()) {
            Ok(mut value) if expiry.is_none() || value.len() <= MAX_EXPIRING_LEN => {
                if let Some(expiry) = expiry {
                    value.extend_from_slice(&expiry_bytes(expiry));
                }
                self.operands.clear();
                self.folded.push_back((Trailer::new(seq, kind), value));
            }
            // Too long: a reader gets the error.
            _ => self.folded.extend(self.operands.drain()),
        }
        Ok(())
    }

    /// Gathers the operands that the same readers see, and moves behind them.
    fn gather(&mut self, readers: usize, deleted: Seq) -> Result<Below> {
        loop {
            self.operands.push(self.cursor.trailer(), self.cursor.value());
            if self.operands.are_many() {
                self.context.check_cancelled()?;
                if self.operands.condense(self.operator, &self.key).is_err() {
                    // Those behind them are gathered when these have been taken.
                    self.folded.extend(self.operands.drain());
                    self.cursor.next()?;
                    return Ok(Below::Unknown);
                }
            }
            self.cursor.next()?;
            if !self.cursor.valid() || self.cursor.key() != self.key {
                return Ok(if self.is_bottom() { Below::Nothing } else { Below::Unknown });
            }
            let trailer = self.cursor.trailer();
            if trailer.seq() < deleted && !planted(Bug::JoinToDeletedRange) {
                return Ok(Below::Nothing);
            }
            if self.readers(trailer.seq()) != readers {
                return Ok(Below::Unknown);
            }
            if !trailer.is_merge() {
                return Ok(match trailer.is_delete() {
                    true => Below::Nothing,
                    false if trailer.is_reference() && !self.context.joins_values => Below::Unknown,
                    false => Below::Value,
                });
            }
        }
    }

    /// The value on which the cursor stands, and its expiry; `None` if it has expired.
    fn value_below(&mut self) -> Result<Option<(Vec<u8>, Option<Time>)>> {
        let (trailer, stored) = (self.cursor.trailer(), self.cursor.value());
        let (stored, expiry) = match trailer.expires() {
            true => {
                split_expiry(stored).map(|(value, expiry)| (value, Some(expiry))).ok_or_else(malformed)?
            }
            false => (stored, None),
        };
        if expiry.is_some_and(|expiry| expiry <= self.context.expired_by) {
            return Ok(None);
        }
        let value = match trailer.is_reference() {
            false => stored.to_vec(),
            true => {
                let reference = Reference::decode(stored).ok_or_else(malformed)?;
                let value = self.segments.ok_or_else(malformed)?.read(&reference)?;
                self.values_read += u64::from(reference.len);
                value.to_vec()
            }
        };
        Ok(Some((value, expiry)))
    }
}

#[cold]
fn malformed() -> Error {
    Error::new(ErrorKind::Corruption, "an entry below operands is malformed")
}

impl<C: Cursor> Cursor for FoldedCursor<'_, C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.piece = 0;
        self.folded.clear();
        self.operands.clear();
        self.cursor.seek_to_first()?;
        self.arrive()
    }

    fn next(&mut self) -> Result<()> {
        match self.folded.pop_front() {
            None => self.cursor.next()?,
            Some(_) if !self.folded.is_empty() => return Ok(()),
            Some(_) => {}
        }
        self.arrive()
    }

    fn valid(&self) -> bool {
        !self.folded.is_empty() || self.cursor.valid()
    }

    fn key(&self) -> &[u8] {
        if self.folded.is_empty() { self.cursor.key() } else { &self.key }
    }

    fn trailer(&self) -> Trailer {
        self.folded.front().map_or_else(|| self.cursor.trailer(), |(trailer, _)| *trailer)
    }

    fn value(&self) -> &[u8] {
        self.folded.front().map_or_else(|| self.cursor.value(), |(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::retention::Retention;
    use super::*;
    use crate::compaction::Reason;
    use crate::test_support::{Entry, table_options, tree_options};
    use base::{RangeSet, RangeTombstone};
    use env::{Env, SimEnv};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use table::Compression;

    struct Append;

    impl MergeOperator for Append {
        fn check(&self, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn merge(&self, _: &[u8], value: &mut Vec<u8>, operand: &[u8]) {
            value.extend_from_slice(operand);
        }
    }

    /// Entries in order.
    struct Sorted(Vec<Entry>, usize);

    impl Cursor for Sorted {
        fn seek_to_first(&mut self) -> Result<()> {
            self.1 = 0;
            Ok(())
        }

        fn next(&mut self) -> Result<()> {
            self.1 += 1;
            Ok(())
        }

        fn valid(&self) -> bool {
            self.1 < self.0.len()
        }

        fn key(&self) -> &[u8] {
            &self.0[self.1].0
        }

        fn trailer(&self) -> Trailer {
            self.0[self.1].1
        }

        fn value(&self) -> &[u8] {
            &self.0[self.1].2
        }
    }

    /// What a reader at `seq` sees of `key` in these entries, which are in order.
    fn seen(entries: &[Entry], ranges: &RangeSet, key: &[u8], seq: Seq) -> Option<Vec<u8>> {
        let deleted = if ranges.is_empty() { 0 } else { ranges.newest(key, seq) };
        let mut operands = Operands::default();
        let mut base = None;
        for (_, trailer, value) in entries.iter().filter(|(k, t, _)| k == key && t.seq() <= seq) {
            if trailer.seq() < deleted {
                break;
            }
            if !trailer.is_merge() {
                base = (!trailer.is_delete()).then_some(&value[..]);
                break;
            }
            operands.push(*trailer, value);
        }
        let has_value = base.is_some() || !operands.is_empty();
        has_value.then(|| operands.fold(&Append, key, base).unwrap())
    }

    fn with_context<T>(snapshots: &[Seq], ranges: &RangeSet, use_it: impl FnOnce(&JobContext<'_>) -> T) -> T {
        let env: Arc<dyn Env> = SimEnv::new(1);
        let options = crate::TreeOptions { table: table_options(4096, Compression::None), ..tree_options() };
        use_it(&JobContext {
            env: &env,
            dir: Path::new("/db"),
            options: &options,
            next_number: &|| 1,
            snapshots,
            rate_limiter: &|_| {},
            range_tombstones: ranges,
            inline_values: false,
            joins_values: true,
            cancelled: &AtomicBool::new(false),
            times: None,
            expired_by: Time::MIN,
            late: false,
            filter: None,
            operator: Some(&Append),
        })
    }

    /// Random entries, of which the older ones stay out of the merge: every reader sees after it what it saw before.
    #[test]
    fn readers_see_the_same_after_operands_were_joined() {
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut joined = 0;
        for _ in 0..4000 {
            let mut all: Vec<Entry> = Vec::new();
            let mut ranges = RangeSet::default();
            let entries = random(14);
            for seq in 1..=entries {
                let key = vec![b'a' + random(3) as u8];
                match random(9) {
                    0 if seq > 1 => {
                        let from = [b'a' + random(3) as u8];
                        ranges = ranges.with(RangeTombstone::new(&from, b"z", seq, Time::MIN));
                    }
                    1 => all.push((key, Trailer::new(seq, EntryKind::Delete), Vec::new())),
                    2..4 => {
                        all.push((key, Trailer::new(seq, EntryKind::Put), format!("[{seq}").into_bytes()))
                    }
                    _ => all.push((key, Trailer::new(seq, EntryKind::Merge), format!(" {seq}").into_bytes())),
                }
            }
            all.sort_by(|a, b| base::compare(&a.0, a.1, &b.0, b.1));
            let oldest_merged = random(entries + 1);
            let (merged, below): (Vec<_>, Vec<_>) =
                all.iter().cloned().partition(|(_, trailer, _)| trailer.seq() >= oldest_merged);
            let mut snapshots: Vec<Seq> = (0..random(4)).map(|_| random(entries + 1)).collect();
            snapshots.sort_unstable();
            snapshots.dedup();
            let plan = Plan { bottom: vec![below.is_empty()], ..Plan::empty(Reason::Manual) };
            let after = with_context(&snapshots, &ranges, |context| {
                let mut sorted = Sorted(merged.clone(), 0);
                let mut folded = FoldedCursor::of_plan(&mut sorted, &Append, context, None, &plan);
                let mut retention = Retention::new(&snapshots, &ranges);
                let mut left: Vec<Entry> = below.clone();
                folded.seek_to_first().unwrap();
                while folded.valid() {
                    let (key, trailer) = (folded.key().to_vec(), folded.trailer());
                    if retention.keeps(&key, trailer, below.is_empty()) {
                        left.push((key, trailer, folded.value().to_vec()));
                    }
                    folded.next().unwrap();
                }
                left
            });
            let mut after = after;
            after.sort_by(|a, b| base::compare(&a.0, a.1, &b.0, b.1));
            let operands =
                |entries: &[Entry]| entries.iter().filter(|(_, trailer, _)| trailer.is_merge()).count();
            joined += operands(&all) - operands(&after);
            for key in [b"a", b"b", b"c"] {
                for reader in snapshots.iter().copied().chain([MAX_SEQ]) {
                    let (before, now) =
                        (seen(&all, &ranges, key, reader), seen(&after, &ranges, key, reader));
                    assert_eq!(
                        before, now,
                        "{key:?} at {reader}: {all:?}, {snapshots:?}, from {oldest_merged}: {after:?}"
                    );
                }
            }
            if below.is_empty() && snapshots.is_empty() {
                assert!(after.iter().all(|(_, trailer, _)| !trailer.is_merge()), "{after:?}");
            }
        }
        assert!(joined > 4000, "{joined}");
    }
}
