//! [`Walks`]: readers of whole files, and the files that must stay until they have ended.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The walks that have begun, and what was emptied beside them.
#[derive(Default)]
pub(crate) struct Walks {
    running: BTreeSet<u64>,
    newest: u64,
    /// The names of files that nothing refers to, with the number of the newest walk that had begun before.
    emptied: Vec<(u64, Vec<String>)>,
}

/// While it lives, the files that were there when it began are not removed, although collections may move what is in them.
pub struct Walk {
    walks: Arc<Mutex<Walks>>,
    number: u64,
}

impl Walk {
    pub(crate) fn begin(walks: &Arc<Mutex<Walks>>) -> Walk {
        Walk { walks: walks.clone(), number: walks.lock().begin() }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.walks.lock().end(self.number);
    }
}

impl Walks {
    fn begin(&mut self) -> u64 {
        self.newest += 1;
        self.running.insert(self.newest);
        self.newest
    }

    fn end(&mut self, number: u64) {
        self.running.remove(&number);
    }

    /// Nothing refers to these files any more: those that can be removed are returned by [`Walks::take`].
    pub(crate) fn add(&mut self, names: Vec<String>) {
        self.emptied.push((self.newest, names));
    }

    /// The names of the files that no walk reads.
    pub(crate) fn take(&mut self) -> Vec<String> {
        let oldest = self.running.first().copied().unwrap_or(u64::MAX);
        self.emptied.extract_if(.., |(newest, _)| *newest < oldest).flat_map(|(_, names)| names).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_until_all_walks_that_may_read_them_have_ended() {
        let mut walks = Walks::default();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        walks.add(names(&["0"]));
        assert_eq!(walks.take(), names(&["0"]));
        let first = walks.begin();
        walks.add(names(&["1", "2"]));
        let second = walks.begin();
        walks.add(names(&["3"]));
        assert_eq!(walks.take(), names(&[]));
        walks.end(first);
        assert_eq!(walks.take(), names(&["1", "2"]));
        let third = walks.begin();
        walks.end(second);
        assert_eq!(walks.take(), names(&["3"]));
        walks.end(third);
        assert_eq!(walks.take(), names(&[]));
    }
}
