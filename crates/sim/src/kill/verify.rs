//! Verifies a database after its process was killed.

use super::bank::{BANK, Bank};
use super::reports::{ANY, KillCounts, Progress, Reports};
use super::script::{
    BACKUP, BATCHES, CATALOG, CHECKPOINT, COUNTS, LOADED, LOADED_KEYS, LOADER, NAMES, WRITERS, contents,
    number_of, options, temporary,
};
use crate::finding::{Finding, Outcome, ensure, first_difference, show};
use crate::ordering::sorted_entries;
use crate::random::Rng;
use cairn::{Backups, Database, ErrorKind, Slice};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Inspects the files, opens the database and verifies its content. Sets `known` to what was found, since the next
/// child continues from there. `has_reader`: a reader may hold moments.
pub(super) fn verify(
    path: &Path,
    seed: u64,
    known: &mut Reports,
    rng: &mut Rng,
    counts: &KillCounts,
    has_reader: bool,
) -> Outcome {
    let left = file_names(path)?;
    if rng.chance(1, 5) {
        check_as_it_lies(path)?;
    }
    let options = options(seed).0.background_threads(0);
    let db = Database::open_with(path, options).map_err(|e| Finding::from(e).context("P3: opening"))?;
    let kept = file_names(path)?;
    let is_table = |name: &str| name.starts_with(|c: char| c.is_ascii_digit());
    if left.difference(&kept).any(|name| is_table(name)) {
        counts.tables.fetch_add(1, Ordering::Relaxed);
    }
    if left.iter().any(|n| n.ends_with(".tmp"))
        || left.iter().filter(|n| n.starts_with("manifest-")).count() > 1
    {
        counts.manifests.fetch_add(1, Ordering::Relaxed);
    }
    let for_readers = db.stats().files_for_readers;
    ensure!(has_reader || for_readers == 0, "{for_readers} files are kept for readers, which are dead");
    verify_catalog(&db, temporary_names(&db), known)?;
    verify_contents(&db, known, counts)?;
    let report = db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "P3: check finds {:?}", report.problems);
    db.close()?;
    verify_copies(path, seed, counts)
}

/// The keyspaces that come and go.
pub(super) fn temporary_names(db: &Database) -> BTreeSet<String> {
    let is_other = |name: &str| {
        NAMES.contains(&name) || BANK.contains(&name) || LOADED.contains(&name) || name == COUNTS
    };
    db.keyspaces().into_iter().filter(|name| !is_other(name)).collect()
}

/// Verifies all but the keyspaces that come and go.
pub(super) fn verify_contents(db: &Database, known: &mut Reports, counts: &KillCounts) -> Outcome {
    let names: BTreeSet<String> = db.keyspaces().into_iter().collect();
    verify_bank(db, known, counts)?;
    verify_loads(db, known, counts)?;
    if NAMES.iter().all(|name| names.contains(*name)) {
        for thread in 0..WRITERS {
            verify_thread(db, thread, known).map_err(|f| f.context(format_args!("thread {thread}")))?;
        }
        let batches = (0..WRITERS).filter_map(|t| known.get(&t)).map(|p| p.reported / 3).sum::<u64>();
        if names.contains(COUNTS) || batches > 0 {
            let count = db.open_keyspace(COUNTS)?.get(BATCHES)?.and_then(|sum| sum[..].try_into().ok());
            let count = count.map_or(0, u64::from_le_bytes);
            ensure!(count == batches, "P2: {batches} batches are there, and {count} were counted by merges");
        }
        for name in temporary_names(db) {
            verify_temporary(db, &name).map_err(|f| f.context(format_args!("keyspace {name}")))?;
        }
    } else {
        let written =
            (0..WRITERS).filter_map(|t| known.get(&t)).map(|p| p.reported).filter(|n| *n != ANY).sum::<u64>();
        ensure!(written == 0, "P1: the keyspaces are {names:?}, and {written} writes were reported");
    }
    Ok(())
}

/// A checkpoint that the kill has cut off is none, the others and all generations of the backup are whole. Removes the checkpoints.
fn verify_copies(path: &Path, seed: u64, counts: &KillCounts) -> Outcome {
    let beside = path.parent().unwrap_or(path);
    for name in file_names(beside)?.iter().filter(|name| name.starts_with(CHECKPOINT)) {
        verify_copy(&beside.join(name), seed, true, counts)?;
    }
    let backup = beside.join(BACKUP);
    let backups = match Backups::open(&backup) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        backups => backups?,
    };
    let problems = backups.verify(&mut |_| {})?;
    ensure!(problems.is_empty(), "P3: a kill has damaged the backup: {problems:?}");
    if let Some(newest) = backups.generations()?.last() {
        let restored = beside.join("restored");
        backups.restore(Some(newest.number), &restored, &mut |_| {})?;
        verify_copy(&restored, seed, false, counts)?;
    }
    Ok(())
}

fn verify_copy(path: &Path, seed: u64, may_be_none: bool, counts: &KillCounts) -> Outcome {
    let options = options(seed).0.background_threads(0).create_if_missing(false);
    let copy = match Database::open_with(path, options) {
        Err(e) if e.kind() == ErrorKind::NotFound && may_be_none => None,
        copy => Some(copy.map_err(|e| Finding::from(e).context("P3: a copy"))?),
    };
    if let Some(copy) = copy {
        Bank::verify(&copy).map_err(|f| f.context("in a copy"))?;
        let report = copy.check(&mut |_| {})?;
        ensure!(report.problems.is_empty(), "P3: in a copy check finds {:?}", report.problems);
        copy.close()?;
        counts.copies.fetch_add(1, Ordering::Relaxed);
    }
    std::fs::remove_dir_all(path).map_err(|e| Finding::new(format!("{}: {e}", path.display())))
}

fn file_names(path: &Path) -> Outcome<BTreeSet<String>> {
    match std::fs::read_dir(path) {
        // The child was killed before it created the directory.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(e) => Err(Finding::new(format!("{}: {e}", path.display()))),
        Ok(entries) => Ok(entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect()),
    }
}

/// Checks the files before recovery: the effects of a kill are not damage.
fn check_as_it_lies(path: &Path) -> Outcome {
    match cairn::check(path, &mut |_| {}) {
        Ok(report) => {
            let problems = &report.problems;
            ensure!(problems.is_empty(), "P3: the files as the kill left them: {problems:?}");
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Finding::from(e).context("P3: checking")),
    }
}

fn verify_catalog(db: &Database, names: BTreeSet<String>, known: &mut Reports) -> Outcome {
    let progress = known.entry(CATALOG).or_default();
    let candidates = [progress.reported, progress.reported + 1];
    let Some(&steps) = candidates.iter().find(|&&steps| temporary(steps) == names) else {
        let wanted = candidates.map(temporary);
        return Err(Finding::new(format!(
            "P1: the temporary keyspaces are {names:?}, not one of {wanted:?}"
        )));
    };
    if let Some(name) = names.first() {
        let keyspace = db.open_keyspace(name)?;
        if keyspace.get("in")?.is_none() {
            ensure!(
                steps > progress.promised,
                "P1: keyspace {name} lost the write that followed its creation"
            );
            // The child was killed between the two writes. Complete the second one, so that later rounds can require
            // it.
            keyspace.put("in", name)?;
        }
    }
    *progress = Progress { promised: steps, reported: steps };
    Ok(())
}

fn verify_bank(db: &Database, known: &mut Reports, counts: &KillCounts) -> Outcome {
    for (teller, last) in Bank::verify(db)?.unwrap_or_default() {
        let progress = known.entry(teller).or_default();
        let Progress { promised, reported } = *progress;
        ensure!(
            (promised..=reported + 1).contains(&last),
            "P1: teller {teller} has made {last} transfers; {promised} were acknowledged, {reported} had returned"
        );
        counts.banks.fetch_add(u64::from(last > 0), Ordering::Relaxed);
        *progress = Progress { promised: last, reported: last };
    }
    Ok(())
}

/// The last load is there as a whole, in all keyspaces.
fn verify_loads(db: &Database, known: &mut Reports, counts: &KillCounts) -> Outcome {
    let mut last = BTreeSet::new();
    for name in LOADED {
        let entries = match db.open_keyspace(name) {
            Ok(keyspace) => sorted_entries(&keyspace, None)?,
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e.into()),
        };
        last.extend(entries.iter().map(|(_, value)| String::from_utf8_lossy(value).parse().unwrap_or(0)));
        match entries.len() as u64 {
            0 => last.extend([0]),
            LOADED_KEYS => {}
            many => return Err(Finding::new(format!("P2: {name} has {many} keys of a load"))),
        }
    }
    let progress = known.entry(LOADER).or_default();
    let Progress { promised, reported } = *progress;
    let last: Vec<u64> = last.into_iter().collect();
    match last[..] {
        [last] if (promised..=reported + 1).contains(&last) => {
            counts.loads.fetch_add(u64::from(last > 0), Ordering::Relaxed);
            *progress = Progress { promised: last, reported: last };
            Ok(())
        }
        _ => Err(Finding::new(format!(
            "P1, P2: the loads {last:?} are there; {promised} was acknowledged, {reported} had returned"
        ))),
    }
}

/// A keyspace that comes and goes has nothing of the writers, or is a clone and has what each of them had written at some time.
fn verify_temporary(db: &Database, name: &str) -> Outcome {
    let entries = sorted_entries(&db.open_keyspace(name)?, None)?;
    for thread in 0..WRITERS {
        let own = format!("{thread}/");
        let found: Vec<_> = entries.iter().filter(|(key, _)| key.starts_with(own.as_bytes())).collect();
        let last = found.last().and_then(|(key, _)| number_of(key)).unwrap_or(0);
        let [want, ..] = contents(thread, last);
        let found = found.iter().map(|(k, v)| (&k[..], &v[..]));
        if let Some(difference) = first_difference(found, want.iter().map(|(k, v)| (&k[..], &v[..]))) {
            return Err(Finding::new(format!(
                "P2: a clone after write {last} of thread {thread}: {difference}"
            )));
        }
    }
    Ok(())
}

fn verify_thread(db: &Database, thread: u32, known: &mut Reports) -> Outcome {
    let mut got: Vec<Vec<(Slice, Slice)>> = Vec::new();
    for name in NAMES {
        let own = if name == "state" { thread.to_string() } else { format!("{thread}/") };
        let mut entries = sorted_entries(&db.open_keyspace(name)?, None)?;
        entries.retain(|(key, _)| key.starts_with(own.as_bytes()));
        got.push(entries);
    }
    let last = got[0].last().and_then(|(key, _)| number_of(key)).unwrap_or(0);
    let progress = known.entry(thread).or_default();
    let Progress { promised, reported } = *progress;
    ensure!(last >= promised, "P1: write {last} is the last one there, and {promised} was acknowledged");
    ensure!(last <= reported + 1, "P2: write {last} is there, and {reported} was the last that returned");
    for (i, want) in contents(thread, last).iter().enumerate() {
        let found = got[i].iter().map(|(k, v)| (&k[..], &v[..]));
        let want = want.iter().map(|(k, v)| (&k[..], &v[..]));
        if let Some(difference) = first_difference(found, want) {
            let last = show(last.to_string().as_bytes());
            return Err(Finding::new(format!("P2: keyspace {}, after write {last}: {difference}", NAMES[i])));
        }
    }
    // Content that recovery returned must not be lost later.
    *progress = Progress { promised: last, reported: last };
    Ok(())
}
