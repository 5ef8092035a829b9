//! One recovery: opens the surviving disk, judges the content, writes more, and verifies that those writes last. In a
//! fifth of the cases a second crash happens during the open.

use super::ledger::{Content, Cut, Expectation, Histories, Ledger, Recovered, Versions, add_version};
use super::setup::{PATH, draw_options, lock};
use crate::data::far_expiry;
use crate::finding::{Finding, Outcome, ensure, first_difference, show};
use crate::ordering::{has_order, sorted_entries};
use crate::random::{Draw, Rng, derive};
use cairn::env::{SimEnv, Survival};
use cairn::{Database, Durability, Keyspace, Options, Result, Retention, Slice, Time};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Maximum number of consecutive crashes.
const MAX_DEPTH: u32 = 3;

/// The inputs of the verdict on a recovery.
pub(super) struct Recovery<'a> {
    pub(super) ledger: &'a Mutex<Ledger>,
    pub(super) expectation: Expectation,
    pub(super) options: &'a Options,
}

/// The exact contents that the database must have from now on, by keyspace.
type Exact = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Recovers the disk of `env` after `cut`. Returns the number of recoveries.
pub(super) fn recover(
    recovery: &Recovery<'_>,
    env: &Arc<SimEnv>,
    cut: Cut,
    seed: u64,
    depth: u32,
) -> Outcome<u64> {
    let mut rng = Rng::new(derive(seed, 2));
    let again =
        (depth + 1 < MAX_DEPTH && rng.chance(1, 5)).then(|| crash_while_opening(env, derive(seed, 3)));
    let db = open(recovery, env).map_err(|f| f.context("P3: opening after the crash"))?;
    env.set_hook(None);
    let recovered = read_all(&db)?;
    lock(recovery.ledger).judge(&recovered, &recovery.expectation, cut)?;
    check(&db)?;
    look_up(&db, &recovered, &mut rng)?;
    write_on(recovery, env, db, recovered, &mut rng).map_err(|f| f.context("going on after recovery"))?;
    let second = again.and_then(|again| lock(&again).take());
    let Some(Second { env, cut: second_cut, at }) = second else { return Ok(1) };
    // A kill after a power failure leaves the effects of the power failure.
    let cut = if cut == Cut::Power { cut } else { second_cut };
    let recoveries = recover(recovery, &env, cut, derive(seed, 4), depth + 1)
        .map_err(|f| f.context(format_args!("and again ({second_cut:?}) at step {at} of the recovery")))?;
    Ok(recoveries + 1)
}

fn open(recovery: &Recovery<'_>, env: &Arc<SimEnv>) -> Outcome<Database> {
    Ok(Database::open_in(env.clone(), Path::new(PATH), recovery.options.clone())?)
}

/// The disk after a second crash.
struct Second {
    env: Arc<SimEnv>,
    cut: Cut,
    at: u64,
}

/// Picks one of the moments at which the following recovery writes to the disk, all equally likely, and keeps the
/// disk that would survive a crash there.
fn crash_while_opening(env: &Arc<SimEnv>, seed: u64) -> Arc<Mutex<Option<Second>>> {
    let kept = Arc::new(Mutex::new(None));
    let (disk, keep) = (Arc::downgrade(env), kept.clone());
    let state = Mutex::new((Rng::new(seed), 0u64));
    env.set_hook(Some(Box::new(move |op| {
        if op.kind.is_write()
            && let Some(disk) = disk.upgrade()
        {
            let (rng, moments) = &mut *lock(&state);
            *moments += 1;
            // Reservoir sampling: the n-th moment replaces the kept one with probability 1/n.
            if rng.below(*moments) == 0 {
                let kill = rng.chance(1, 6);
                let kind = *rng.pick(&Survival::ALL);
                let (env, cut) = match kill {
                    true => (disk.process_clone(), Cut::Process),
                    false => (disk.crash_clone(kind, rng.next_u64()), Cut::Power),
                };
                *lock(&keep) = Some(Second { env, cut, at: *moments });
            }
        }
        None
    })));
    kept
}

fn read_all(db: &Database) -> Outcome<Recovered> {
    let mut recovered = Recovered::new();
    for name in db.keyspaces() {
        let content = read(&db.open_keyspace(&name)?);
        recovered.insert(name, content.map_err(|e| Finding::from(e).context("P3: reading after the crash"))?);
    }
    Ok(recovered)
}

fn read(keyspace: &Keyspace) -> Result<Content> {
    let entries = sorted_entries(keyspace, None)?;
    let retention = keyspace.options().history;
    if retention == Retention::None {
        return Ok(Content { entries, versions: None });
    }
    let mut by_key = Histories::new();
    // From the end: the oldest version of a key first.
    for version in keyspace.changes::<&[u8]>(.., ..)?.rev() {
        let version = version?;
        add_version(&mut by_key, &version.key, version.value);
    }
    Ok(Content { entries, versions: Some(Versions { all: retention == Retention::All, by_key }) })
}

fn check(db: &Database) -> Outcome {
    let report = db.check(&mut |_| {})?;
    ensure!(report.problems.is_empty(), "P3: check finds problems: {:?}", report.problems);
    Ok(())
}

/// Other reads must agree with the full scan.
fn look_up(db: &Database, recovered: &Recovered, rng: &mut Rng) -> Outcome {
    for (name, Content { entries, .. }) in recovered {
        let keyspace = db.open_keyspace(name)?;
        if has_order(&keyspace) && rng.chance(1, 4) {
            let mut backward = keyspace.iter().rev().collect::<Result<Vec<_>>>()?;
            backward.reverse();
            ensure!(backward == *entries, "keyspace {name} reads differently from the end");
        }
        for _ in 0..entries.len().min(3) {
            let (key, value) = rng.pick(entries);
            let expiry = Some(far_expiry(&keyspace, value)).filter(|expiry| *expiry < Time::MAX);
            let found = keyspace.get_with_expiry(key)?;
            ensure!(
                found == Some((value.clone(), expiry)),
                "get of {} misses what a scan shows, or its expiry: {:?} instead of {expiry:?}",
                show(key),
                found.map(|(_, expiry)| expiry)
            );
        }
        ensure!(keyspace.get("key/never")?.is_none(), "a key that was never written is there");
    }
    Ok(())
}

/// Writes new commits after the recovery, then ends the database in one of several ways. Exactly these contents must
/// be found afterwards. This reveals sequence numbers or file numbers that are used twice.
fn write_on(
    recovery: &Recovery<'_>,
    env: &Arc<SimEnv>,
    db: Database,
    recovered: Recovered,
    rng: &mut Rng,
) -> Outcome {
    let owned =
        |entries: Vec<(Slice, Slice)>| entries.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    let mut exact: Exact =
        recovered.into_iter().map(|(name, content)| (name, owned(content.entries))).collect();
    if exact.len() < 2 || rng.chance(1, 8) {
        db.create_keyspace("new", draw_options(rng))?;
        exact.insert("new".into(), BTreeMap::new());
    } else if rng.chance(1, 8) {
        let name = exact.keys().next().cloned().unwrap_or_default();
        db.drop_keyspace(&name)?;
        exact.remove(&name);
    }
    for _ in 0..rng.between(1, 3) {
        commit(&db, &mut exact, rng)?;
        match rng.below(12) {
            0 => db.flush()?,
            1 => db.compact()?,
            _ => {}
        }
    }
    compare(&db, &exact).map_err(|f| f.context("at once"))?;
    let survivor = match rng.below(4) {
        0 | 1 => {
            db.close()?;
            env.clone()
        }
        2 => {
            db.sync()?;
            env.crash_clone(*rng.pick(&Survival::ALL), rng.next_u64())
        }
        _ => env.process_clone(),
    };
    let db = open(recovery, &survivor).map_err(|f| f.context("opening once more"))?;
    compare(&db, &exact).map_err(|f| f.context("opened once more"))?;
    if rng.chance(1, 4) {
        check(&db)?;
    }
    db.close()?;
    if rng.chance(1, 4) {
        let report = cairn::check_in(survivor, Path::new(PATH), &mut |_| {})?;
        ensure!(report.problems.is_empty(), "check of the closed database finds {:?}", report.problems);
    }
    Ok(())
}

/// A batch over all keyspaces: overwrites, deletes, new keys. The operating system has it on return.
fn commit(db: &Database, exact: &mut Exact, rng: &mut Rng) -> Outcome {
    let mut batch = db.batch();
    for (name, content) in exact.iter_mut() {
        let keyspace = db.open_keyspace(name)?;
        for _ in 0..rng.between(1, 3) {
            let key = format!("key/{:03}", rng.below(30)).into_bytes();
            if rng.chance(1, 4) {
                batch.delete(&keyspace, &key);
                content.remove(&key);
            } else {
                let value = format!("after recovery {}", rng.next_u64()).into_bytes();
                batch.put_until(&keyspace, &key, &value, far_expiry(&keyspace, &value));
                content.insert(key, value);
            }
        }
    }
    Ok(db.write(batch, *rng.pick(&[Durability::Os, Durability::Sync]))?)
}

fn compare(db: &Database, exact: &Exact) -> Outcome {
    let recovered = read_all(db)?;
    ensure!(
        recovered.keys().eq(exact.keys()),
        "the keyspaces are {:?} instead of {:?}",
        recovered.keys(),
        exact.keys()
    );
    for (name, want) in exact {
        let got = recovered[name].entries.iter().map(|(k, v)| (&k[..], &v[..]));
        if let Some(difference) = first_difference(got, want.iter().map(|(k, v)| (&k[..], &v[..]))) {
            return Err(Finding::new(format!("keyspace {name}: {difference}")));
        }
    }
    Ok(())
}
