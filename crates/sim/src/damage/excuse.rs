//! What cannot be told apart: whether the files, as they are, hold any proof that there was more.
//!
//! A log that lost its end looks like one that was being written to when the power went. The only witnesses are chunks that were
//! written after a sync, each of which says how far the segment was synced, later logs, which are synced only after the older ones, and
//! the header of the next log, which says how far the one before it was synced.
//! So a wound may go unnoticed only if it is in a log or in the manifest, and every such witness is gone as well. Then exactly the
//! commits (or creations and drops of keyspaces) before the wound must be found.

use super::fixture::{Catalog, Fixture, is_log, is_manifest};
use super::layout::Layout;
use cairn::env::SimEnv;
use std::path::PathBuf;

/// What must be found where a wound may go unnoticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excuse {
    /// The commits that are left.
    pub(super) commits: usize,
    /// The keyspaces that are left.
    pub(super) catalog: Catalog,
}

/// The bytes of a file that are not what they were: from the first to the one after the last.
struct Change {
    path: PathBuf,
    from: usize,
    to: usize,
}

/// What a wound may do in silence; `None` when it must be told, if it does anything.
pub(super) fn excuse(fixture: &Fixture, image: &SimEnv) -> Option<Excuse> {
    let whole = Excuse { commits: fixture.commits.len(), catalog: fixture.catalog.clone() };
    let mut excuse = whole.clone();
    let changes = changes(fixture, image)?;
    let manifest_changed = changes.iter().any(|change| is_manifest(&change.path));
    for change in changes {
        if is_log(&change.path) {
            // The manifest knew of each log, durably, before there was anything in it.
            if !manifest_changed && change.from < Layout::of(&fixture.files[&change.path]).header_len {
                return None;
            }
            excuse.commits = excuse.commits.min(commits_before(fixture, &change)?);
        } else if is_manifest(&change.path) {
            excuse.catalog = catalog_before(fixture, &change)?;
        }
        // Tables are not excused: what is left out of one would not be what the commits left.
    }
    (excuse != whole).then_some(excuse)
}

/// The changed files; `None` when one that is needed is gone.
fn changes(fixture: &Fixture, image: &SimEnv) -> Option<Vec<Change>> {
    let present = image.list_files();
    let mut changes = Vec::new();
    for (path, old) in fixture.files.iter().filter(|(path, _)| fixture.needs(path)) {
        if !present.contains(path) {
            return None;
        }
        let new = image.read_file(path);
        let same = old.iter().zip(&new).position(|(a, b)| a != b);
        let from = same.unwrap_or(old.len().min(new.len()));
        if from == old.len() && from == new.len() {
            continue;
        }
        let to = match new.len() < old.len() {
            true => usize::MAX,
            false => old.iter().zip(&new).rposition(|(a, b)| a != b).map_or(from, |last| last + 1),
        };
        changes.push(Change { path: path.clone(), from, to });
    }
    Some(changes)
}

/// The commits that are left when a log ends where it was changed.
fn commits_before(fixture: &Fixture, change: &Change) -> Option<usize> {
    let logs: Vec<_> = fixture.files.iter().filter(|(path, _)| is_log(path) && fixture.needs(path)).collect();
    let layouts: Vec<_> = logs.iter().map(|(path, bytes)| (*path, Layout::of(bytes))).collect();
    let at = layouts.iter().position(|(path, _)| **path == change.path)?;
    let (own, later) = (&layouts[at].1, &layouts[at + 1..]);
    let lost_from = own.start_of(change.from);
    let proven = own.proven_from(change.to) > lost_from
        || later.first().is_some_and(|(_, layout)| layout.previous_synced > lost_from)
        || later.iter().any(|(_, layout)| layout.proven_from(0) > layout.header_len);
    if proven {
        return None;
    }
    let records = |layout: &Layout| layout.records_up_to(usize::MAX);
    let all: usize = layouts.iter().map(|(_, layout)| records(layout)).sum();
    let before: usize = layouts[..at].iter().map(|(_, layout)| records(layout)).sum();
    // The logs hold the newest commits, one in each record.
    Some(fixture.commits.len() - all + before + own.records_up_to(change.from))
}

/// The keyspaces that are left when the manifest ends where it was changed.
fn catalog_before(fixture: &Fixture, change: &Change) -> Option<Catalog> {
    let layout = Layout::of(&fixture.files[&change.path]);
    if layout.proven_from(change.to) > layout.start_of(change.from) {
        return None;
    }
    let left = layout.records_up_to(change.from);
    // Without its first record, which is the whole state, a manifest is damaged, whatever else is said of it.
    let noted = fixture.catalogs.iter().rev();
    let mut known =
        noted.filter(|noted| left > 0 && (noted.manifest != change.path || noted.records <= left));
    known.next().map(|noted| noted.catalog.clone())
}
