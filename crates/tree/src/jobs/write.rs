//! The loop of flushes and compactions: entries come in order, and those that a reader can see are written as tables.

use super::eviction::EvictionSink;
use super::job::{JobContext, JobOutput};
use super::output::Output;
use super::retention::Retention;
use crate::compaction::Plan;
use base::expiry::split_expiry;
use base::planted::{Bug, planted};
use base::{Cursor, Error, ErrorKind, Result, Time};

/// Which entries a job keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Those that a reader can see.
    Seen,
    /// All.
    All,
}

/// Writes the entries of `cursor` as the pieces of `plan`, and adds the tables to `done`. Shows `sink` all entries. Calls `note` for each
/// entry that is written, with the key, its hash and the length of the value. The tables are durable on return, their directory entries
/// are not. On an error the files are removed.
///
/// No allocation per record.
pub(super) fn write_tables(
    cursor: &mut impl Cursor,
    plan: &Plan,
    context: &JobContext<'_>,
    done: JobOutput,
    kept: Kept,
    mut sink: Option<&mut (dyn EvictionSink + '_)>,
    mut note: impl FnMut(&[u8], u64, usize),
) -> Result<JobOutput> {
    let merges = !plan.inputs.is_empty();
    let snapshots = if merges && planted(Bug::IgnoreSnapshots) { &[] } else { context.snapshots };
    let drops_early = merges && planted(Bug::DropTombstoneEarly);
    let drops_expired = merges && planted(Bug::DropExpiredEarly);
    let mut retention = Retention::new(snapshots, context.range_tombstones);
    let mut output = Output::new(context, done);
    let mut piece = 0;
    let result = (|| {
        cursor.seek_to_first()?;
        while cursor.valid() {
            let (key, mut trailer) = (cursor.key(), cursor.trailer());
            while plan.cuts.get(piece).is_some_and(|cut| is_at_or_after(key, cut)) {
                output.finish()?;
                piece += 1;
            }
            let bottom = plan.bottom[piece];
            // All versions of a key stay in one table: in two tables, the older ones could hide the newer.
            if (plan.piece_bytes > 0 && output.len() >= plan.piece_bytes
                || merges && output.has_many_segments())
                && (!retention.has_seen(key) || planted(Bug::CutBetweenVersions))
            {
                output.finish()?;
            }
            // Where another tree gets what is dropped, an expired entry moves there as a whole, or stays as it is.
            let takes = |sink: &mut &mut (dyn EvictionSink + '_)| {
                (bottom || drops_expired) && sink.takes_expired(key, trailer)
            };
            let expired = kept == Kept::Seen
                && trailer.expires()
                && has_expired(cursor.value(), context.expired_by)?
                && sink.as_mut().is_none_or(takes);
            let kind = if expired { trailer.as_delete() } else { trailer };
            let keeps = kept == Kept::All
                || retention.keeps(key, kind, bottom || drops_early || expired && drops_expired);
            let expired = expired && !(keeps && sink.is_some());
            if expired {
                trailer = kind;
                output.done.expired += 1;
            }
            let keeps = match &mut sink {
                Some(sink) if expired => {
                    sink.take_expired(key, cursor.trailer(), cursor.value())?;
                    false
                }
                Some(sink) => {
                    let stays = sink.see(key, trailer, cursor.value(), keeps)?;
                    stays && (keeps || !bottom && planted(Bug::KeepEvictedVersion))
                }
                None => keeps,
            };
            if keeps {
                let value = if expired { &[] } else { cursor.value() };
                let hash = context.options.table.filter_hash(key);
                output.add(bottom, key, hash, trailer, value)?;
                note(key, hash, value.len());
            }
            output.tick()?;
            cursor.next()?;
        }
        output.finish()?;
        output.call_rate_limiter();
        Ok(())
    })();
    match result {
        Ok(()) => Ok(output.done),
        Err(e) => {
            output.abandon();
            Err(e)
        }
    }
}

/// Whether an entry with an expiry has expired by `time`.
#[cold]
fn has_expired(stored: &[u8], time: Time) -> Result<bool> {
    let expiry = split_expiry(stored).map(|(_, expiry)| expiry);
    let expiry = expiry.ok_or_else(|| Error::new(ErrorKind::Corruption, "an entry has no expiry"))?;
    Ok(expiry <= time)
}

/// Whether `key` belongs to the piece that begins with `cut`, or to a later piece.
#[inline]
fn is_at_or_after(key: &[u8], cut: &[u8]) -> bool {
    match planted(Bug::GuardKeyToTheLeft) {
        true => key > cut,
        false => key >= cut,
    }
}
