//! The knowledge of a thread: no other thread writes its keys, so its acknowledged writes are the content.

use crate::finding::{Finding, Outcome, ensure, show};
use crate::ordering::has_order;
use crate::random::Rng;
use cairn::{Database, Slice};
use std::collections::BTreeMap;

/// The shared keyspaces.
pub const NAMES: [&str; 2] = ["left", "right"];

/// Number of keys of a thread in each shared keyspace.
pub const KEYS: u64 = 24;

/// Number of pairs of a thread: keys that batches set to the same number in both keyspaces.
pub const PAIRS: u64 = 3;

/// Keys with the numbers of their values.
pub type Content = BTreeMap<String, u64>;

/// Keyspaces by name.
pub type State = BTreeMap<String, Content>;

/// The prefix of all keys of a thread.
pub fn prefix(thread: usize) -> String {
    format!("t{thread}/")
}

/// A key of a thread.
pub fn key(thread: usize, number: u64) -> String {
    format!("t{thread}/{number:02}")
}

/// A key that is written in both keyspaces in one batch.
pub fn pair(thread: usize, number: u64) -> String {
    format!("t{thread}/pair/{number}")
}

/// A key that is only put with times of its own.
pub fn late_key(thread: usize) -> String {
    format!("t{thread}/late")
}

/// The prefix of the names of keyspaces that a thread creates.
pub fn own_prefix(thread: usize) -> String {
    format!("own-{thread}-")
}

/// The encoded number: the number, followed by filler of a length and content that follow from it.
pub fn bytes_of(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut bytes = format!("{number:012}").into_bytes();
    let filling = rng.below(600) as usize;
    bytes.resize_with(12 + filling, || rng.next_u64() as u8);
    bytes
}

/// Decodes a number.
pub fn number_of(bytes: &[u8]) -> Outcome<u64> {
    let number = bytes.get(..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let number = number.filter(|&number| bytes_of(number) == bytes);
    number.ok_or_else(|| Finding::new(format!("{} was never written", show(bytes))))
}

/// Decodes an entry.
pub fn parse(entry: &(Slice, Slice)) -> Outcome<(String, u64)> {
    let key = String::from_utf8(entry.0.to_vec());
    let key = key.map_err(|_| Finding::new(format!("{} is a key of no thread", show(&entry.0))))?;
    Ok((key, number_of(&entry.1)?))
}

/// The whole content of a database.
pub fn read(db: &Database) -> Outcome<State> {
    let mut state = State::new();
    for name in db.keyspaces() {
        let keyspace = db.open_keyspace(&name)?;
        let entries = keyspace.entries().map(|entry| parse(&entry?)).collect::<Outcome<Content>>()?;
        if !has_order(&keyspace) {
            ensure!(keyspace.entries().count() == entries.len(), "{name:?} has a key twice");
            state.insert(name, entries);
            continue;
        }
        let mut back = keyspace.iter().rev().map(|entry| parse(&entry?)).collect::<Outcome<Vec<_>>>()?;
        back.reverse();
        ensure!(back.iter().map(|(k, v)| (k, v)).eq(&entries), "{name:?} reads differently in reverse");
        state.insert(name, entries);
    }
    Ok(state)
}

/// The acknowledged writes of one thread.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The number of the thread.
    pub thread: usize,
    /// Its keys in the shared keyspaces, and the keyspaces that it created.
    pub state: State,
    /// The counter behind the numbers of its values.
    newest: u64,
}

impl Ledger {
    /// The ledger of a thread that has written nothing.
    pub fn new(thread: usize) -> Ledger {
        let state = NAMES.iter().map(|name| ((*name).to_owned(), Content::new())).collect();
        Ledger { thread, state, newest: 0 }
    }

    /// A number that no other value of any thread has.
    pub fn new_number(&mut self) -> u64 {
        self.newest += 1;
        self.newest * 100 + self.thread as u64
    }

    /// The entries of the thread in a keyspace.
    pub fn content(&self, name: &str) -> &Content {
        static EMPTY: Content = Content::new();
        self.state.get(name).unwrap_or(&EMPTY)
    }

    /// The same, mutable.
    pub fn content_mut(&mut self, name: &str) -> &mut Content {
        self.state.entry(name.to_owned()).or_default()
    }

    /// The keyspaces that the thread created.
    pub fn own(&self) -> Vec<String> {
        let own = own_prefix(self.thread);
        self.state.keys().filter(|name| name.starts_with(&own)).cloned().collect()
    }

    fn is_mine(&self, name: &str, key: &str) -> bool {
        name.starts_with(&own_prefix(self.thread)) || key.starts_with(&prefix(self.thread))
    }

    /// Fails unless the thread's part of `found` matches its acknowledged writes.
    pub fn compare(&self, found: &State) -> Outcome {
        for (name, content) in &self.state {
            let Some(there) = found.get(name) else {
                return Err(Finding::new(format!(
                    "thread {}: keyspace {name:?}, whose creation was acknowledged, is gone",
                    self.thread
                )));
            };
            let lost: Vec<_> = content.iter().filter(|(key, _)| !there.contains_key(*key)).collect();
            ensure!(
                lost.is_empty(),
                "thread {}: {} of {} acknowledged keys of {name:?} are lost: {:?}",
                self.thread,
                lost.len(),
                content.len(),
                &lost[..lost.len().min(4)]
            );
            for (key, number) in there.iter().filter(|(key, _)| self.is_mine(name, key)) {
                let want = content.get(key);
                ensure!(
                    want == Some(number),
                    "thread {}: {key} of {name:?} has value {number} instead of {want:?}",
                    self.thread
                );
            }
        }
        let own = own_prefix(self.thread);
        let extra = found.keys().find(|name| name.starts_with(&own) && !self.state.contains_key(*name));
        ensure!(extra.is_none(), "thread {}: keyspace {extra:?} is there, and should not be", self.thread);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_by_their_bytes_and_differences_are_found() {
        for number in [100, 4711, 99_999_901] {
            let mut bytes = bytes_of(number);
            assert_eq!(number_of(&bytes), Ok(number));
            bytes.push(0);
            assert!(number_of(&bytes).is_err());
        }
        let mut ledger = Ledger::new(1);
        ledger.content_mut("left").insert(key(1, 3), 101);
        ledger.content_mut("own-1-0").insert("x".into(), 201);
        let mut found = ledger.state.clone();
        found.get_mut("left").unwrap().insert(key(2, 3), 5);
        ledger.compare(&found).unwrap();
        let differs = |change: &dyn Fn(&mut State)| {
            let mut other = found.clone();
            change(&mut other);
            ledger.compare(&other).unwrap_err().to_string()
        };
        assert!(differs(&|s| s.get_mut("left").unwrap().retain(|key, _| key != "t1/03")).contains("lost"));
        assert!(differs(&|s| s.retain(|name, _| name != "own-1-0")).contains("is gone"));
        assert!(differs(&|s| s.extend([("own-1-1".to_owned(), Content::new())])).contains("should not be"));
        assert!(
            differs(&|s| s.get_mut("left").unwrap().extend([("t1/03".to_owned(), 7)])).contains("instead of")
        );
        assert!(
            differs(&|s| s.get_mut("left").unwrap().extend([("t1/04".to_owned(), 7)])).contains("instead of")
        );
    }
}
