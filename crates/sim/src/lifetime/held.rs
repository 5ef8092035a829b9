//! Iterators, cursors and snapshots that threads hold and use until long after the database was closed.
//!
//! The expected content is known: only the thread that holds one writes the keys that it covers. They do not keep the
//! database open: once it is closed, each use fails with `Closed`.

use super::ledger::{Content, NAMES, number_of, parse};
use crate::finding::{Finding, Outcome, ensure};
use crate::random::{Draw, Rng};
use cairn::{Cursor, Keyspace, Range, RangeAt, Retention, Slice, Snapshot, Time, Versions};

/// A held object with its expected content.
pub enum Held {
    /// An iterator with the entries that it has not returned yet.
    Range(Box<Range>, Content),
    /// A cursor with all entries that it covers.
    Cursor(Box<Cursor>, Content),
    /// An iterator over entries with their times, with those that it has not returned yet.
    Recent(Box<RangeAt>, Content),
    /// An iterator over all versions, with the newest ones of the keys that it has not reached yet, and the last key.
    Versions(Box<Versions>, Content, String),
    /// A snapshot with the thread's entries in each keyspace, and their prefix.
    Snapshot(Snapshot, [Content; 2], String),
}

/// The result of a use.
pub type Moved = cairn::Result<Outcome<Step>>;

/// The outcome of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The answer was right.
    Right,
    /// The end had been reached before, or there was nothing to do.
    Ended,
}

fn right(is: bool, words: impl FnOnce() -> String) -> Moved {
    Ok(if is { Ok(Step::Right) } else { Err(Finding::new(words())) })
}

impl Held {
    /// A name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Held::Range(..) => "a move of a held iterator",
            Held::Cursor(..) => "a seek of a held cursor",
            Held::Recent(..) => "a move of a held iterator with times",
            Held::Versions(..) => "a move of a held iterator over versions",
            Held::Snapshot(..) => "a read of a held snapshot",
        }
    }

    /// Whether it ends with the first error.
    pub fn is_iterator(&self) -> bool {
        matches!(self, Held::Range(..) | Held::Recent(..) | Held::Versions(..))
    }

    /// Uses the object once. A snapshot needs keyspaces; without them nothing is done.
    pub fn advance(&mut self, spaces: Option<&[Keyspace; 2]>, rng: &mut Rng) -> Moved {
        match self {
            Held::Range(range, left) => step(&mut **range, left, rng.chance(1, 3)),
            Held::Recent(recent, left) => {
                let mut entries = recent.map(|found| found.map(|entry| (entry.key, entry.value)));
                step(&mut entries, left, rng.chance(1, 3))
            }
            Held::Versions(versions, left, last) => next_version(versions, left, last),
            Held::Cursor(cursor, content) => seek(cursor, content, rng),
            Held::Snapshot(snapshot, contents, prefix) => match spaces {
                Some(spaces) => look(snapshot, spaces, contents, prefix, rng),
                None => Ok(Ok(Step::Ended)),
            },
        }
    }
}

fn step(
    range: &mut impl DoubleEndedIterator<Item = cairn::Result<(Slice, Slice)>>,
    left: &mut Content,
    backward: bool,
) -> Moved {
    let entry = if backward { range.next_back() } else { range.next() };
    let wanted = if backward { left.pop_last() } else { left.pop_first() };
    let Some(entry) = entry else {
        return match wanted {
            None => Ok(Ok(Step::Ended)),
            Some(wanted) => Ok(Err(Finding::new(format!("an iterator ends before {wanted:?}")))),
        };
    };
    let entry = parse(&entry?);
    right(entry.as_ref().ok() == wanted.as_ref(), || {
        format!("an iterator gives {entry:?} instead of {wanted:?}")
    })
}

/// The first version of each key, which is its newest, must be what the thread has written.
fn next_version(versions: &mut Versions, left: &mut Content, last: &mut String) -> Moved {
    let Some(version) = versions.next() else {
        return match left.first_key_value() {
            None => Ok(Ok(Step::Ended)),
            Some(wanted) => {
                Ok(Err(Finding::new(format!("an iterator over versions ends before {wanted:?}"))))
            }
        };
    };
    let version = version?;
    let number = version.value.as_ref().map(|value| number_of(value)).transpose();
    let Ok(key) = String::from_utf8(version.key.to_vec()) else {
        return Ok(Err(Finding::new("a version of a key of no thread")));
    };
    let is_newest = key != *last;
    let wanted = if is_newest { left.remove(&key) } else { None };
    let is_right = match (&number, is_newest) {
        (Ok(number), true) => *number == wanted && left.first_key_value().is_none_or(|(next, _)| *next > key),
        (number, false) => number.is_ok(),
        (Err(_), true) => false,
    };
    last.clone_from(&key);
    right(is_right, || format!("versions: {key} is {number:?} instead of {wanted:?}, before {left:?}"))
}

fn seek(cursor: &mut Cursor, content: &Content, rng: &mut Rng) -> Moved {
    let keys: Vec<&String> = content.keys().collect();
    let at = rng.between(0, keys.len());
    let wanted = match rng.below(4) {
        0 => {
            cursor.seek_to_first()?;
            content.first_key_value()
        }
        1 => {
            cursor.seek_to_last()?;
            content.last_key_value()
        }
        2 => {
            let key = keys.get(at).map_or("~", |key| key.as_str());
            cursor.seek(key)?;
            content.range(key.to_owned()..).next()
        }
        _ => {
            let Some(key) = keys.get(at) else { return Ok(Ok(Step::Ended)) };
            cursor.seek(key)?;
            cursor.next()?;
            content.range::<String, _>(*key..).nth(1)
        }
    };
    let found = cursor.valid().then(|| (cursor.key().to_vec(), number_of(cursor.value())));
    let is = match (&found, wanted) {
        (None, None) => true,
        (Some((key, number)), Some((k, n))) => key == k.as_bytes() && number.as_ref() == Ok(n),
        _ => false,
    };
    right(is, || format!("a cursor stands on {found:?} instead of {wanted:?}"))
}

fn look(
    snapshot: &Snapshot,
    spaces: &[Keyspace; 2],
    contents: &[Content; 2],
    prefix: &str,
    rng: &mut Rng,
) -> Moved {
    let which = rng.between(0, 1);
    let (space, content) = (&spaces[which], &contents[which]);
    if rng.chance(1, 2) {
        let entries = snapshot.prefix(space, prefix).collect::<cairn::Result<Vec<(Slice, Slice)>>>()?;
        let found = entries.iter().map(parse).collect::<Outcome<Content>>();
        return right(found.as_ref() == Ok(content), || {
            format!("a snapshot shows {found:?} in {:?} instead of {content:?}", NAMES[which])
        });
    }
    let Some(key) = content.keys().nth(rng.between(0, content.len())) else {
        let found = snapshot.get(space, format!("{prefix}never"))?;
        return right(found.is_none(), || format!("a snapshot has {found:?} where nothing was ever"));
    };
    let found = match rng.below(4) {
        0 => snapshot.get(space, key)?,
        2 => snapshot.get_with_expiry(space, key)?.map(|(value, _)| value),
        1 if has_history(space) => snapshot.get_at(space, key, Time::MAX)?.and_then(|version| version.value),
        _ => snapshot.multi_get(space, &[key])?.pop().flatten(),
    };
    let number = found.as_ref().map(|value| number_of(value)).transpose();
    right(number == Ok(content.get(key).copied()), || format!("a snapshot shows {key} as {number:?}"))
}

/// Creates an iterator or cursor to hold.
pub fn hold(space: &Keyspace, prefix: &str, content: Content, rng: &mut Rng) -> cairn::Result<Held> {
    let end = format!("{prefix}~");
    Ok(match rng.below(4) {
        2 if has_history(space) => {
            Held::Versions(Box::new(space.changes(prefix..&end, ..)?), content, String::new())
        }
        0 => Held::Range(Box::new(space.prefix(prefix)), content),
        1 if has_history(space) => Held::Recent(Box::new(space.recent(prefix..&end)?), content),
        _ => Held::Cursor(Box::new(space.cursor_bounded(prefix..&end)), content),
    })
}

/// Whether older versions are kept.
pub fn has_history(space: &Keyspace) -> bool {
    space.options().history != Retention::None
}

/// Fails unless the result of `name` is what the thread expects.
pub fn compare(name: &str, found: &Content, wanted: &Content) -> Outcome {
    ensure!(found == wanted, "{name} shows {found:?} instead of {wanted:?}");
    Ok(())
}
