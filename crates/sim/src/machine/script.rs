//! The operations of a child, as a function of a seed. So the parent can derive the required content from the steps
//! that succeeded.
//!
//! All steps run in one thread, in an order that the calls alone determine, so that the k-th system call of a kind is
//! the same in every run.

use crate::finding::{Finding, Outcome, first_difference};
use crate::ordering::sorted_entries;
use crate::random::{Draw, Rng, derive};
use crate::sets::PLACEMENTS;
use cairn::{Database, Durability, KeyspaceOptions, Options};
use std::collections::BTreeMap;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A batch: keyspace, key, and a value or a delete.
    Write(Vec<(&'static str, String, Option<Vec<u8>>)>, Durability),
    /// Create a keyspace.
    Create(&'static str),
    /// Drop a keyspace.
    Drop(&'static str),
    /// Flush all memtables.
    Flush,
    /// Compact all tables.
    Compact,
    /// Sync the log.
    Sync,
    /// Close and reopen the database.
    Reopen,
}

/// The keyspaces that always exist.
pub const NAMES: [&str; 2] = ["one", "two"];

/// The keyspace that is created and dropped.
const GUEST: &str = "guest";

/// The content of the keyspaces.
pub type State = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Options with which a few hundred writes flush, compact, switch the log and switch the manifest.
pub fn options(threads: usize) -> Options {
    Options::default()
        .memory_budget(1 << 20)
        .log_cap(64 << 10)
        .manifest_cap(1 << 10)
        .background_threads(threads)
}

/// The same for keyspace `name`. The second one has large values outside of the tree.
pub fn keyspace_options(name: &str) -> KeyspaceOptions {
    let options = KeyspaceOptions::default().memtable_bytes(8 << 10).block_size(512);
    let options = options.top_level_bits(4).bit_decrement(1).large_up_to(0.1);
    options.placement(PLACEMENTS[usize::from(name == NAMES[1])])
}

/// The steps of a seed. The first ones create the keyspaces.
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut rng = Rng::new(derive(seed, 21));
    let mut steps: Vec<Step> = NAMES.into_iter().map(Step::Create).collect();
    let mut guest = false;
    for number in 0..count {
        if number > 0 && number.is_multiple_of(count / 3) {
            steps.push(Step::Reopen);
        }
        steps.push(match rng.weighted(&[80, 4, 3, 3, 3]) {
            0 => write(&mut rng, number, guest),
            1 => Step::Flush,
            2 => Step::Compact,
            3 => Step::Sync,
            _ => {
                guest = !guest;
                if guest { Step::Create(GUEST) } else { Step::Drop(GUEST) }
            }
        });
    }
    steps
}

fn write(rng: &mut Rng, number: usize, guest: bool) -> Step {
    let entries = if rng.chance(1, 4) { rng.between(2, 5) } else { 1 };
    let mut entry = || {
        let name = if guest && rng.chance(1, 8) { GUEST } else { *rng.pick(&NAMES) };
        let mut value = format!("{number}:").into_bytes();
        if rng.chance(1, 40) {
            // Incompressible: a table that goes to the disk while it is written.
            let start = value.len();
            value.resize(start + rng.between(0, 60_000), 0);
            rng.fill(&mut value[start..]);
        } else {
            let len = *rng.pick(&[0, 20, 200, 900]);
            value.resize(value.len() + rng.between(0, len), b'v');
        }
        (name, format!("k{:02}", rng.below(40)), rng.chance(6, 7).then_some(value))
    };
    let entries = (0..entries).map(|_| entry()).collect();
    Step::Write(entries, if rng.chance(1, 2) { Durability::Sync } else { Durability::Os })
}

impl Step {
    /// Runs the step, except [`Step::Reopen`].
    pub fn run(&self, db: &Database) -> cairn::Result<()> {
        match self {
            Step::Write(entries, durability) => {
                let mut batch = db.batch();
                for (name, key, value) in entries {
                    let keyspace = db.open_keyspace(name)?;
                    match value {
                        Some(value) => batch.put(&keyspace, key, value),
                        None => batch.delete(&keyspace, key),
                    }
                }
                db.write(batch, *durability)
            }
            Step::Create(name) => db.create_keyspace(name, keyspace_options(name)).map(drop),
            Step::Drop(name) => db.drop_keyspace(name),
            Step::Flush => db.flush(),
            Step::Compact => db.compact(),
            Step::Sync => db.sync(),
            Step::Reopen => Ok(()),
        }
    }

    /// Whether the step can succeed in this state: a keyspace must exist to be written, and must not exist to be
    /// created.
    pub fn fits(&self, state: &State) -> bool {
        match self {
            Step::Write(entries, _) => entries.iter().all(|(name, ..)| state.contains_key(*name)),
            Step::Create(name) => !state.contains_key(*name),
            Step::Drop(name) => state.contains_key(*name),
            _ => true,
        }
    }

    /// Applies the step to a state.
    pub fn apply(&self, state: &mut State) {
        match self {
            Step::Write(entries, _) => {
                for (name, key, value) in entries {
                    let Some(content) = state.get_mut(*name) else { continue };
                    match value {
                        Some(value) => content.insert(key.as_bytes().to_vec(), value.clone()),
                        None => content.remove(key.as_bytes()),
                    };
                }
            }
            Step::Create(name) => {
                state.entry((*name).to_owned()).or_default();
            }
            Step::Drop(name) => {
                state.remove(*name);
            }
            _ => {}
        }
    }
}

/// How a database differs from the expected state.
pub enum Mismatch {
    /// A read failed.
    Unreadable(cairn::Error),
    /// The content is wrong.
    Wrong(Finding),
}

/// The whole content of the database.
pub fn read(db: &Database) -> cairn::Result<State> {
    let mut state = State::new();
    for name in db.keyspaces() {
        let pairs = sorted_entries(&db.open_keyspace(&name)?, None)?;
        state.insert(name, pairs.into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect());
    }
    Ok(state)
}

/// The difference between two states, in words.
pub fn difference(got: &State, want: &State) -> Option<String> {
    if !got.keys().eq(want.keys()) {
        let names: Vec<_> = [got, want].map(|s| s.keys().collect::<Vec<_>>()).into();
        return Some(format!("the keyspaces are {:?} instead of {:?}", names[0], names[1]));
    }
    got.iter().find_map(|(name, content)| {
        let found = content.iter().map(|(k, v)| (&k[..], &v[..]));
        let wanted = want[name].iter().map(|(k, v)| (&k[..], &v[..]));
        Some(format!("keyspace {name}: {}", first_difference(found, wanted)?))
    })
}

/// Scans and looks up all data and compares it with `want`.
pub fn compare(db: &Database, want: &State) -> Result<(), Mismatch> {
    let got = read(db).map_err(Mismatch::Unreadable)?;
    let wrong = |what: String| Err(Mismatch::Wrong(Finding::new(what)));
    if let Some(difference) = difference(&got, want) {
        return wrong(difference);
    }
    for (name, content) in want {
        let keyspace = db.open_keyspace(name).map_err(Mismatch::Unreadable)?;
        for (key, value) in content {
            let found = keyspace.get(key).map_err(Mismatch::Unreadable)?;
            if found.as_deref() != Some(&value[..]) {
                return wrong(format!("keyspace {name}: a lookup of {key:?} is not what the scan shows"));
            }
        }
    }
    Ok(())
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was acknowledged.
    Done,
    /// It failed.
    Failed,
    /// It was impossible in the present state, or the run ended before it.
    NotTried,
}

/// Fails unless the database contains every acknowledged step, and each failed step completely or not at all.
pub fn verify(db: &Database, steps: &[Step], endings: &[Ending]) -> Outcome {
    let got = read(db)?;
    let doubtful: Vec<usize> = (0..endings.len()).filter(|&i| endings[i] == Ending::Failed).collect();
    let mut nearest = None;
    for mask in 0..1_u32 << doubtful.len() {
        let mut state = State::new();
        for (i, step) in steps.iter().enumerate().take(endings.len()) {
            let bit = doubtful.iter().position(|&d| d == i);
            let happened = bit.map_or(endings[i] == Ending::Done, |bit| mask >> bit & 1 == 1);
            if happened {
                step.apply(&mut state);
            }
        }
        match difference(&got, &state) {
            None => return Ok(()),
            Some(words) => nearest = nearest.or(Some(words)),
        }
    }
    Err(Finding::new(format!(
        "P1, P2: the state is neither that of the acknowledged steps nor that with some of the {} failed steps: {}",
        doubtful.len(),
        nearest.unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_or_halved_step_is_found() {
        let steps = steps(3, 60);
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open_with(dir.path(), options(0)).unwrap();
        let mut state = State::new();
        let mut endings = Vec::new();
        for step in &steps {
            let fits = step.fits(&state);
            endings.push(if fits { Ending::Done } else { Ending::NotTried });
            if fits {
                step.run(&db).unwrap();
                step.apply(&mut state);
            }
        }
        verify(&db, &steps, &endings).unwrap();
        assert!(compare(&db, &state).is_ok());
        // A failed step may have no effect; an acknowledged one must have its effect.
        let last = Step::Write(
            vec![("one", "a".into(), Some(vec![1])), ("two", "b".into(), Some(vec![2]))],
            Durability::Os,
        );
        let steps = [steps, vec![last.clone()]].concat();
        endings.push(Ending::Failed);
        verify(&db, &steps, &endings).unwrap();
        *endings.last_mut().unwrap() = Ending::Done;
        assert!(verify(&db, &steps, &endings).is_err());
        last.run(&db).unwrap();
        verify(&db, &steps, &endings).unwrap();
        *endings.last_mut().unwrap() = Ending::Failed;
        verify(&db, &steps, &endings).unwrap();
        db.open_keyspace("two").unwrap().delete("b").unwrap();
        assert!(verify(&db, &steps, &endings).is_err(), "half a batch");
    }
}
