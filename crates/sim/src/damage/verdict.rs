//! Opens a damaged database, reads all of it, and judges its answers.

use super::fixture::{Fixture, PATH, Versions};
use super::undetectable::{AllowedLoss, allowed_loss};
use crate::data::Value;
use crate::finding::{Finding, Outcome, ensure, show, show_option};
use crate::ordering::has_order;
use crate::random::Rng;
use cairn::env::SimEnv;
use cairn::{Database, Error, ErrorKind, Keyspace, Retention};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One image in this many is also compacted and reopened.
const CLOSER_LOOK: u64 = 16;

/// The outcome for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageOutcome {
    /// At least one call reported damage; all other answers were right.
    Detected,
    /// All answers were right.
    Harmless,
    /// The end of a log or of the manifest is lost, and no intact data proves that it existed.
    Tail,
}

/// Judges the image that `make` creates. Creates it again for the check.
pub(super) fn judge(fixture: &Fixture, make: &dyn Fn() -> Arc<SimEnv>, seed: u64) -> Outcome<ImageOutcome> {
    let image = make();
    let allowed = allowed_loss(fixture, &image);
    let db = match Database::open_in(image.clone(), PATH, fixture.options.clone()) {
        Ok(db) => db,
        Err(error) => {
            honest(&error).map_err(|f| f.context("opening"))?;
            check_finds(make, &error)?;
            return Ok(ImageOutcome::Detected);
        }
    };
    let whole = AllowedLoss { commits: fixture.commits.len(), catalog: fixture.catalog.clone() };
    let (expected, errors) = match (read_all(&db, fixture, &whole), allowed) {
        (Ok(errors), _) => (whole, errors),
        (Err(finding), None) => {
            return Err(finding.context("P3, and something intact proves that it was there"));
        }
        (Err(finding), Some(allowed)) => {
            let errors = read_all(&db, fixture, &allowed).map_err(|f| {
                f.context(format!("P2: neither is everything there ({finding}), nor just {allowed:?}"))
            })?;
            (allowed, errors)
        }
    };
    if Rng::new(seed).chance(1, CLOSER_LOOK) {
        look_closer(db, &image, fixture, &expected)?;
    }
    if let Some(error) = errors.into_iter().next() {
        check_finds(make, &error)?;
        return Ok(ImageOutcome::Detected);
    }
    Ok(match expected.commits == fixture.commits.len() && expected.catalog == fixture.catalog {
        true => ImageOutcome::Harmless,
        false => ImageOutcome::Tail,
    })
}

/// An error must report corruption and name a file.
fn honest(error: &Error) -> Outcome {
    ensure!(
        matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported),
        "damage is reported as {error:?}"
    );
    ensure!(error.to_string().contains(PATH), "the error names no file: {error:?}");
    Ok(())
}

/// A check must find all damage that a read finds.
fn check_finds(make: &dyn Fn() -> Arc<SimEnv>, error: &Error) -> Outcome {
    let report = cairn::check_in(make(), PATH, &mut |_| {})
        .map_err(|e| Finding::from(e).context("check of the damaged database fails"))?;
    ensure!(!report.problems.is_empty(), "check finds nothing, but there is {error:?}");
    Ok(())
}

/// Neither a compaction nor a reopen may hide damage.
fn look_closer(db: Database, image: &Arc<SimEnv>, fixture: &Fixture, expected: &AllowedLoss) -> Outcome {
    if let Err(error) = db.compact() {
        honest(&error).map_err(|f| f.context("compacting"))?;
    }
    read_all(&db, fixture, expected).map_err(|f| f.context("after a compaction"))?;
    // Closing reports errors of background work.
    if let Err(error) = db.close() {
        honest(&error).map_err(|f| f.context("closing"))?;
    }
    match Database::open_in(image.clone(), PATH, fixture.options.clone()) {
        Ok(db) => {
            read_all(&db, fixture, expected).map_err(|f| f.context("opened once more"))?;
            Ok(())
        }
        Err(error) => honest(&error).map_err(|f| f.context("opening once more")),
    }
}

/// Reads all data in all ways and returns the errors. Fails if an answer differs from `expected`.
fn read_all(db: &Database, fixture: &Fixture, expected: &AllowedLoss) -> Outcome<Vec<Error>> {
    let names: Vec<String> = expected.catalog.keys().cloned().collect();
    ensure!(db.keyspaces() == names, "the keyspaces are {:?} instead of {names:?}", db.keyspaces());
    let mut errors = Vec::new();
    let contents = fixture.state(expected.commits);
    for (name, incarnation) in &expected.catalog {
        let content = contents.get(incarnation);
        let truth: Vec<(&[u8], &[u8])> =
            content.into_iter().flatten().map(|(key, value)| (&key[..], &value[..])).collect();
        let keyspace = db.open_keyspace(name)?;
        let in_keyspace = |f: Finding| f.context(format!("keyspace {name}"));
        read_keyspace(&keyspace, &truth, &mut errors).map_err(in_keyspace)?;
        let at_least = match keyspace.options().history {
            Retention::None => continue,
            Retention::Versions(count) => count as usize,
            _ => usize::MAX,
        };
        let versions = fixture.versions(expected.commits, *incarnation);
        read_versions(&keyspace, &versions, at_least, &mut errors).map_err(in_keyspace)?;
    }
    errors.iter().try_for_each(honest)?;
    Ok(errors)
}

/// A key and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

fn read_keyspace(keyspace: &Keyspace, truth: &[Pair<'_>], errors: &mut Vec<Error>) -> Outcome {
    match has_order(keyspace) {
        true => {
            scan(keyspace.iter(), truth.iter(), errors).map_err(|f| f.context("scanning"))?;
            scan(keyspace.iter().rev(), truth.iter().rev(), errors)
                .map_err(|f| f.context("scanning backward"))?;
        }
        false => read_entries(keyspace, truth, errors).map_err(|f| f.context("reading all entries"))?,
    }
    // All keys that may exist, the keys between them, and keys outside.
    let could_be = (0..25).map(|i| format!("k{i:02}").into_bytes()).chain([b"".to_vec(), b"zz".to_vec()]);
    for key in could_be {
        let want = truth.binary_search_by_key(&&key[..], |pair| pair.0).ok().map(|i| truth[i].1);
        match keyspace.get(&key) {
            Ok(got) => ensure!(
                got.as_deref() == want,
                "get of {} gives {} instead of {}",
                show(&key),
                show_option(got),
                show_option(want)
            ),
            Err(error) => errors.push(error),
        }
    }
    Ok(())
}

/// A walk over all versions must show at least this number of the newest ones of each key, and no others than existed, up to the end or up
/// to an error. Among those that have expired there may be gaps, at which the version before ends as if it had been deleted.
fn read_versions(keyspace: &Keyspace, truth: &Versions, at_least: usize, errors: &mut Vec<Error>) -> Outcome {
    let mut found = Versions::new();
    let mut failed = false;
    for version in keyspace.changes::<&[u8]>(.., ..)? {
        match version {
            Ok(version) => {
                let value = version.value.map(|value| value.to_vec().into());
                found.entry(version.key.to_vec()).or_default().push(value);
            }
            Err(error) => {
                errors.push(error);
                failed = true;
            }
        }
    }
    let last = found.keys().next_back().cloned();
    for (key, versions) in truth {
        let is_read = !failed || last.as_ref().is_some_and(|last| key < last);
        let shown = found.remove(key).unwrap_or_default();
        let (kept, expired) = versions.split_at(versions.len().min(at_least));
        let (newest, others) = shown.split_at(shown.len().min(kept.len()));
        let mut expired = expired.iter();
        let existed = |version: &Option<Value>| version.is_none() || expired.any(|other| other == version);
        ensure!(
            kept.starts_with(newest)
                && (!is_read || newest.len() == kept.len())
                && others.iter().all(existed),
            "the versions of {} are {shown:?} instead of {versions:?}",
            show(key)
        );
    }
    ensure!(found.is_empty(), "there are versions of {:?}", found.keys());
    Ok(())
}

/// An iteration in no order must return the existing entries, up to the end or up to an error.
fn read_entries(keyspace: &Keyspace, truth: &[Pair<'_>], errors: &mut Vec<Error>) -> Outcome {
    let mut missing: BTreeMap<&[u8], &[u8]> = truth.iter().copied().collect();
    for entry in keyspace.entries() {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error) => {
                errors.push(error);
                return Ok(());
            }
        };
        let want = missing.remove(&key[..]);
        ensure!(
            want == Some(&value[..]),
            "{} = {} instead of {}",
            show(&key),
            show(&value),
            show_option(want)
        );
    }
    ensure!(missing.is_empty(), "{:?} are missing", missing.keys());
    Ok(())
}

/// A scan must return the existing entries in order, up to the end or up to an error.
fn scan<'a>(
    entries: impl Iterator<Item = cairn::Result<(cairn::Slice, cairn::Slice)>>,
    mut truth: impl Iterator<Item = &'a Pair<'a>>,
    errors: &mut Vec<Error>,
) -> Outcome {
    for entry in entries {
        let (key, value) = match entry {
            Ok(entry) => entry,
            Err(error) => {
                errors.push(error);
                return Ok(());
            }
        };
        let want = truth.next();
        ensure!(
            want == Some(&(&key[..], &value[..])),
            "{} = {} instead of {}",
            show(&key),
            show(&value),
            show_option(want.map(|w| w.0))
        );
    }
    let missing = truth.next();
    ensure!(missing.is_none(), "{} is missing", show_option(missing.map(|m| m.0)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::is_log;
    use super::super::layout::Layout;
    use super::*;

    /// The same files with a different true content, as if an overwritten value had returned.
    #[test]
    fn wrong_answers_are_found() {
        let fixture = Fixture::build(1).unwrap();
        assert_eq!(judge(&fixture, &|| fixture.image(), 1), Ok(ImageOutcome::Harmless));
        let forgetful = fixture.without_last_commit();
        let finding = judge(&forgetful, &|| fixture.image(), 1).expect_err("a wrong state passed");
        assert!(finding.to_string().contains("P3"), "{finding}");
    }

    /// The last 11 bytes of a log are a mark. The newest batch is before it; zeros or the content of a recycled log
    /// may follow.
    #[test]
    fn damage_and_lost_ends_are_told_apart() {
        let mut lost = 0;
        for seed in (0..24).filter(|seed| seed % 3 != 2) {
            let fixture = Fixture::build(seed).unwrap();
            let (log, bytes) = fixture.files.iter().rfind(|(path, _)| is_log(path)).unwrap();
            let layout = Layout::of(bytes);
            if layout.records_up_to(usize::MAX) == 0 {
                continue;
            }
            let end = layout.chunks.last().map_or(0, |chunk| chunk.end);
            let cut = |by: usize| {
                let image = fixture.image();
                image.truncate_file(log, (end - by) as u64);
                image
            };
            let flipped = || {
                let image = fixture.image();
                image.flip_bit(log, end as u64 - 14, 0);
                image
            };
            assert_eq!(judge(&fixture, &|| cut(1), 1), Ok(ImageOutcome::Harmless), "{fixture}");
            assert_eq!(judge(&fixture, &flipped, 1), Ok(ImageOutcome::Detected), "{fixture}");
            lost += u64::from(judge(&fixture, &|| cut(14), 1) == Ok(ImageOutcome::Tail));
        }
        assert!(lost > 2, "{lost}");
    }
}
