//! Decides which damage is undetectable: whether the intact bytes prove that data is missing.
//!
//! A log that lost its end looks like a log that was being written during a power failure. Three things can prove
//! otherwise: chunks written after a sync, each of which states the synced length of the segment; later logs, which
//! are synced only after the older ones; and the header of the next log, which states the synced length of the
//! previous one. So damage may go unnoticed only in a log or in the manifest, and only if all such proofs are gone
//! too. Then exactly the commits (or the creations and drops of keyspaces) before the damage must be found.

use super::fixture::{Catalog, Fixture, file_name, is_log, is_manifest};
use super::layout::{Layout, first_replayed_log};
use cairn::env::SimEnv;
use std::path::{Path, PathBuf};

/// The content that must be found where damage may go unnoticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowedLoss {
    /// Number of remaining commits.
    pub(super) commits: usize,
    /// The remaining keyspaces.
    pub(super) catalog: Catalog,
}

/// The changed bytes of a file: from the first one to the end of the last one.
struct Change {
    path: PathBuf,
    from: usize,
    to: usize,
}

/// The content that is allowed without an error; `None` if any loss must be reported.
pub(super) fn allowed_loss(fixture: &Fixture, image: &SimEnv) -> Option<AllowedLoss> {
    let whole = AllowedLoss { commits: fixture.commits.len(), catalog: fixture.catalog.clone() };
    let mut allowed = whole.clone();
    let changes = changes(fixture, image)?;
    let manifests = fixture.files.iter().filter(|(path, _)| is_manifest(path) && fixture.needs(path));
    let first_replayed = manifests.map(|(_, bytes)| first_replayed_log(bytes)).max().unwrap_or(0);
    let manifest_changed = changes.iter().any(|change| is_manifest(&change.path));
    for change in &changes {
        if is_log(&change.path) {
            // Tables refer to the values in it: damage is always detectable, as that to a table.
            if log_number(&change.path) < first_replayed {
                continue;
            }
            // All is synced, so the manifest durably names each log.
            if !manifest_changed && change.from < Layout::of(&fixture.files[&change.path]).header_len {
                return None;
            }
            allowed.commits = allowed.commits.min(commits_before(fixture, change, &changes)?);
        } else if is_manifest(&change.path) {
            allowed.catalog = catalog_before(fixture, change)?;
        }
        // Damage to a table is always detectable: its loss would not leave a prefix of the commits.
    }
    (allowed != whole).then_some(allowed)
}

/// The changed files; `None` if a required file is gone.
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

fn log_number(path: &Path) -> u64 {
    let name = file_name(path);
    let digits = name.strip_prefix("wal-").and_then(|name| name.strip_suffix(".log"));
    digits.and_then(|digits| digits.parse().ok()).expect("logs have numbers")
}

/// The number of commits that remain if a log ends at the change. What `all` changes have damaged in later logs proves nothing.
fn commits_before(fixture: &Fixture, change: &Change, all: &[Change]) -> Option<usize> {
    let logs: Vec<_> = fixture.files.iter().filter(|(path, _)| is_log(path) && fixture.needs(path)).collect();
    let layouts: Vec<_> = logs.iter().map(|(path, bytes)| (*path, Layout::of(bytes))).collect();
    let at = layouts.iter().position(|(path, _)| **path == change.path)?;
    let (own, later) = (&layouts[at].1, &layouts[at + 1..]);
    let lost_from = own.start_of(change.from);
    let proven = own.proven_from(change.to) > lost_from
        || later.first().is_some_and(|(_, layout)| layout.previous_synced > lost_from)
        || later.iter().any(|(path, layout)| {
            let changed = all.iter().find(|other| other.path == **path);
            let changed = changed.map_or(usize::MAX..usize::MAX, |other| other.from..other.to);
            layout.proven_beside(changed) > layout.header_len
        });
    if proven {
        return None;
    }
    let records = |layout: &Layout| layout.records_up_to(usize::MAX);
    let in_logs: usize = layouts.iter().map(|(_, layout)| records(layout)).sum();
    let before: usize = layouts[..at].iter().map(|(_, layout)| records(layout)).sum();
    // The logs have the newest commits, one per record.
    Some(fixture.commits.len() - in_logs + before + own.records_up_to(change.from))
}

/// The keyspaces that remain if the manifest ends at the change.
fn catalog_before(fixture: &Fixture, change: &Change) -> Option<Catalog> {
    let layout = Layout::of(&fixture.files[&change.path]);
    if layout.proven_from(change.to) > layout.start_of(change.from) {
        return None;
    }
    let left = layout.records_up_to(change.from);
    // The first record of a manifest is the whole state. Without it, the manifest is always damaged.
    let noted = fixture.catalogs.iter().rev();
    let mut known =
        noted.filter(|noted| left > 0 && (noted.manifest != change.path || noted.records <= left));
    known.next().map(|noted| noted.catalog.clone())
}
