//! The expected content of a database while it is open and after it ends: the states after each acknowledged commit,
//! the failed commits and their positions, and the number of commits that must survive each kind of end.

use crate::data::Value;
use crate::finding::{Finding, Outcome, ensure, first_difference};
use crate::model::{Incarnation, Write};
use crate::ordering::sorted_entries;
use cairn::{Database, Durability, Slice};
use std::collections::BTreeMap;

/// The keyspaces by name.
pub(super) type Catalog = BTreeMap<String, Incarnation>;

/// The contents of keyspaces.
pub(super) type Contents = BTreeMap<Incarnation, BTreeMap<Vec<u8>, Value>>;

/// The content of a database, read completely.
pub(super) type Found = BTreeMap<String, Vec<(Slice, Slice)>>;

/// A commit that returned an error.
#[derive(Clone)]
struct Failed {
    /// Number of commits acknowledged before it.
    after: usize,
    contents: Contents,
}

/// The expected content; see the module.
#[derive(Clone)]
pub(super) struct Expected {
    /// The contents before the first acknowledged commit, and after each.
    states: Vec<Contents>,
    /// The keyspaces that each commit wrote to.
    touched: Vec<Vec<Incarnation>>,
    failed: Vec<Failed>,
    pub(super) catalog: Catalog,
    /// The catalogs of creations and drops that failed since the last success.
    failed_catalogs: Vec<Catalog>,
    incarnations: Incarnation,
    power_floor: usize,
    process_floor: usize,
}

/// How a database ends before it is reopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Power,
    Process,
}

impl Expected {
    pub(super) fn new() -> Expected {
        Expected {
            states: vec![Contents::new()],
            touched: Vec::new(),
            failed: Vec::new(),
            catalog: Catalog::new(),
            failed_catalogs: Vec::new(),
            incarnations: 0,
            power_floor: 0,
            process_floor: 0,
        }
    }

    /// The present contents.
    pub(super) fn now(&self) -> &Contents {
        self.states.last().expect("there is a first state")
    }

    fn commits(&self) -> usize {
        self.touched.len()
    }

    /// Records that a commit returned.
    pub(super) fn commit(&mut self, writes: &[Write], durability: Durability, acknowledged: bool) {
        let mut contents = self.now().clone();
        for write in writes {
            let content = contents.entry(write.keyspace).or_default();
            match &write.value {
                Some(value) => content.insert(write.key.clone(), value.clone()),
                None => content.remove(&write.key),
            };
        }
        if !acknowledged {
            self.failed.push(Failed { after: self.commits(), contents });
            return;
        }
        self.states.push(contents);
        self.touched.push(writes.iter().map(|w| w.keyspace).collect());
        match durability {
            Durability::Buffered => {}
            Durability::Os => self.process_floor = self.commits(),
            Durability::Sync => self.synced(),
        }
    }

    /// Records that a call returned which makes all commits durable.
    pub(super) fn all_durable(&mut self) {
        self.power_floor = self.commits();
        self.process_floor = self.commits();
    }

    /// Records that the log was synced: the remains of failed writes were durably cut off before.
    pub(super) fn synced(&mut self) {
        self.failed.clear();
        self.all_durable();
    }

    /// Records that a flush of one keyspace returned: its commits are durable, and thus all commits before its last
    /// one.
    pub(super) fn keyspace_durable(&mut self, keyspace: Incarnation) {
        let floor = self.touched.iter().rposition(|t| t.contains(&keyspace)).map_or(0, |i| i + 1);
        self.power_floor = self.power_floor.max(floor);
        self.process_floor = self.process_floor.max(floor);
    }

    /// Records a keyspace creation that returned.
    pub(super) fn create(&mut self, name: &str, acknowledged: bool) {
        self.incarnations += 1;
        let mut catalog = self.catalog.clone();
        catalog.insert(name.to_owned(), self.incarnations);
        self.change(catalog, acknowledged);
    }

    /// Records a keyspace drop that returned.
    pub(super) fn drop_keyspace(&mut self, name: &str, acknowledged: bool) {
        let mut catalog = self.catalog.clone();
        catalog.remove(name);
        self.change(catalog, acknowledged);
        if acknowledged {
            // The drop synced the log first.
            self.synced();
        }
    }

    fn change(&mut self, catalog: Catalog, acknowledged: bool) {
        if acknowledged {
            self.catalog = catalog;
            self.failed_catalogs.clear();
        } else {
            self.failed_catalogs.push(catalog);
        }
    }

    /// Judges the content found after an `end`. It becomes the expected content, and all of it is durable.
    pub(super) fn settle(&mut self, found: &Found, end: End) -> Outcome {
        let floor = if end == End::Power { self.power_floor } else { self.process_floor };
        let catalogs = std::iter::once(&self.catalog).chain(&self.failed_catalogs);
        let catalogs: Vec<Catalog> = catalogs.filter(|c| c.keys().eq(found.keys())).cloned().collect();
        ensure!(
            !catalogs.is_empty(),
            "P2: the keyspaces are {:?}, not {:?}, nor any of {:?}",
            found.keys(),
            self.catalog.keys(),
            self.failed_catalogs.iter().map(|c| c.keys()).collect::<Vec<_>>()
        );
        for catalog in catalogs {
            for commits in (floor..=self.commits()).rev() {
                let whole = difference(&self.states[commits], &catalog, found).is_none();
                let failed = self.failed.iter().filter(|f| f.after == commits);
                let revived = failed.map(|f| &f.contents).find(|c| difference(c, &catalog, found).is_none());
                if whole || revived.is_some() {
                    let state = revived.filter(|_| !whole).unwrap_or(&self.states[commits]).clone();
                    self.go_on_from(commits, state, catalog);
                    return Ok(());
                }
            }
        }
        Err(self.no_state(found, floor, end))
    }

    fn go_on_from(&mut self, commits: usize, state: Contents, catalog: Catalog) {
        self.states.truncate(commits + 1);
        self.touched.truncate(commits);
        if self.states[commits] != state {
            self.states.push(state);
            self.touched.push(Vec::new());
        }
        self.failed.clear();
        self.failed_catalogs.clear();
        self.catalog = catalog;
        self.all_durable();
    }

    fn no_state(&self, found: &Found, floor: usize, end: End) -> Finding {
        let lost = (0..floor).rev().find(|&n| difference(&self.states[n], &self.catalog, found).is_none());
        let now = difference(self.now(), &self.catalog, found);
        let (all, now) = (self.commits(), now.unwrap_or_else(|| "nothing".into()));
        Finding::new(match lost {
            Some(n) => {
                format!(
                    "P1 ({end:?}): {n} of {all} commits are there, {floor} were promised; against all: {now}"
                )
            }
            None => {
                format!("P2 ({end:?}): no prefix of {all} commits ({floor} at least); against all: {now}")
            }
        })
    }

    /// Fails unless exactly the present state was found.
    pub(super) fn compare(&self, found: &Found) -> Outcome {
        ensure!(
            found.keys().eq(self.catalog.keys()),
            "the keyspaces are {:?} instead of {:?}",
            found.keys(),
            self.catalog.keys()
        );
        match difference(self.now(), &self.catalog, found) {
            None => Ok(()),
            Some(difference) => Err(Finding::new(difference)),
        }
    }
}

/// The first difference between the content found and `contents`.
fn difference(contents: &Contents, catalog: &Catalog, found: &Found) -> Option<String> {
    catalog.iter().find_map(|(name, incarnation)| {
        let want = contents.get(incarnation).into_iter().flatten().map(|(k, v)| (&k[..], &v[..]));
        let got = found[name].iter().map(|(k, v)| (&k[..], &v[..]));
        first_difference(got, want).map(|difference| format!("keyspace {name}: {difference}"))
    })
}

/// Reads all keyspaces completely.
pub(super) fn read_all(db: &Database) -> cairn::Result<Found> {
    let read = |name: String| {
        let entries = sorted_entries(&db.open_keyspace(&name)?, None)?;
        Ok((name, entries))
    };
    db.keyspaces().into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &str)]) -> Found {
        let entries = pairs.iter().map(|(k, v)| (Slice::from(k.as_bytes()), Slice::from(v.as_bytes())));
        [("a".to_owned(), entries.collect())].into()
    }

    /// Three commits, the second synced, and one that failed after the third.
    fn expected() -> Expected {
        let mut expected = Expected::new();
        expected.create("a", true);
        for (key, durability, acknowledged) in [
            ("1", Durability::Os, true),
            ("2", Durability::Sync, true),
            ("3", Durability::Buffered, true),
            ("4", Durability::Sync, false),
        ] {
            let write = Write { keyspace: 1, key: key.into(), value: Some(key.as_bytes().into()) };
            expected.commit(&[write], durability, acknowledged);
        }
        expected
    }

    #[test]
    fn prefixes_pass_with_or_without_what_failed() {
        let all = [("1", "1"), ("2", "2"), ("3", "3"), ("4", "4")];
        for len in 2..=4 {
            let mut expected = expected();
            expected.settle(&found(&all[..len]), End::Power).unwrap();
            expected.compare(&found(&all[..len])).unwrap();
        }
    }

    #[test]
    fn lost_torn_and_invented_commits_are_found() {
        let judge = |pairs: &[_]| expected().settle(&found(pairs), End::Power).unwrap_err().to_string();
        assert!(judge(&[("1", "1")]).contains("P1"));
        assert!(judge(&[("1", "1"), ("3", "3")]).contains("P2"));
        assert!(judge(&[("1", "1"), ("2", "2"), ("4", "4")]).contains("P2"), "a failed commit behind a hole");
        assert!(expected().settle(&Found::new(), End::Power).unwrap_err().to_string().contains("keyspaces"));
        // A failed commit must be invisible while the database is open.
        assert!(expected().compare(&found(&[("1", "1"), ("2", "2"), ("3", "3"), ("4", "4")])).is_err());
    }
}
