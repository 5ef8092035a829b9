//! The writes of one thread with its own keys, and incompressible values.

use crate::finding::{Finding, Outcome, ensure, show, show_option};
use crate::ordering::{has_order, sorted_entries};
use crate::random::{Draw, Rng, derive};
use cairn::{Durability, Keyspace, Slice};
use std::collections::BTreeMap;

/// The writes of one thread, and their results.
pub struct Load {
    rng: Rng,
    thread: u64,
    durability: Durability,
    value_len: (usize, usize),
    next: u64,
    /// The acknowledged version of each number.
    present: BTreeMap<u64, u64>,
    /// Failed versions of a number since its last acknowledged one; `None` is a delete.
    doubtful: BTreeMap<u64, Vec<Option<u64>>>,
}

impl Load {
    /// The load of a thread, with values of this range of lengths.
    pub fn new(seed: u64, thread: u64, durability: Durability, value_len: (usize, usize)) -> Load {
        let rng = Rng::new(derive(seed, 31));
        let (present, doubtful) = (BTreeMap::new(), BTreeMap::new());
        Load { rng, thread, durability, value_len, next: 0, present, doubtful }
    }

    fn key(&self, number: u64) -> String {
        format!("{}/{number:08}", self.thread)
    }

    fn value(&self, number: u64, version: u64) -> Vec<u8> {
        let mut rng = Rng::new(derive(number << 32 | version, self.thread));
        let mut value = vec![0; rng.between(self.value_len.0, self.value_len.1)];
        rng.fill(&mut value);
        value
    }

    /// The present numbers, in order.
    pub fn numbers(&self) -> Vec<u64> {
        self.present.keys().copied().collect()
    }

    /// Puts the next key, or in a quarter of the calls an earlier one.
    pub fn put(&mut self, keyspace: &Keyspace) -> cairn::Result<()> {
        let old = self.next > 0 && self.rng.chance(1, 4);
        let number = if old { self.rng.below(self.next) } else { self.next };
        self.next = self.next.max(number + 1);
        // Differs from all older versions, including failed ones.
        let version = self.rng.next_u64() >> 32;
        let (key, value) = (self.key(number), self.value(number, version));
        let done = keyspace.put_with(key, value, self.durability);
        self.note(number, Some(version), &done);
        done
    }

    /// Deletes a key.
    pub fn delete(&mut self, keyspace: &Keyspace, number: u64) -> cairn::Result<()> {
        let done = keyspace.delete_with(self.key(number), self.durability);
        self.note(number, None, &done);
        done
    }

    fn note(&mut self, number: u64, version: Option<u64>, done: &cairn::Result<()>) {
        if done.is_err() {
            return self.doubtful.entry(number).or_default().push(version);
        }
        self.doubtful.remove(&number);
        match version {
            Some(version) => self.present.insert(number, version),
            None => self.present.remove(&number),
        };
    }

    /// Fails unless reads and a scan show exactly the acknowledged writes.
    pub fn verify(&self, keyspace: &Keyspace) -> Outcome {
        let prefix = format!("{}/", self.thread);
        let mut scan: Box<dyn Iterator<Item = cairn::Result<(Slice, Slice)>>> = match has_order(keyspace) {
            true => Box::new(keyspace.prefix(prefix)),
            false => {
                let entries = sorted_entries(keyspace, None)?.into_iter();
                Box::new(entries.filter(move |(key, _)| key.starts_with(prefix.as_bytes())).map(Ok))
            }
        };
        for (&number, &version) in &self.present {
            let (key, value) = (self.key(number), self.value(number, version));
            let found = keyspace.get(&key)?;
            let wrong = || {
                Finding::new(format!(
                    "P1: {key} has {} instead of {}",
                    show_option(found.as_ref()),
                    show(&value)
                ))
            };
            ensure!(found.as_deref() == Some(&value[..]), "{}", wrong());
            let pair = scan.next().transpose()?;
            let pair = pair.as_ref().map(|(k, v)| (&k[..], &v[..]));
            ensure!(pair == Some((key.as_bytes(), &value[..])), "P3: a scan and a lookup of {key} differ");
        }
        let more = scan.next().transpose()?;
        ensure!(
            more.is_none(),
            "P2: {} was never acknowledged",
            show(&more.map(|p| p.0.to_vec()).unwrap_or_default())
        );
        Ok(())
    }

    /// Looks up this many keys. Passes failed reads to `judge` and counts them.
    pub fn look_up_some(
        &mut self,
        keyspace: &Keyspace,
        many: u64,
        judge: &mut dyn FnMut(&cairn::Error) -> Outcome,
    ) -> Outcome<u64> {
        let mut failed = 0;
        for _ in 0..many {
            let number = self.rng.below(self.next.max(1));
            let want = self.present.get(&number).map(|&version| self.value(number, version));
            match keyspace.get(self.key(number)) {
                Ok(found) => {
                    ensure!(found.as_deref() == want.as_deref(), "P3: key {number} is not what it was")
                }
                Err(e) => {
                    judge(&e)?;
                    failed += 1;
                }
            }
        }
        Ok(failed)
    }

    /// After a reopen: each failed write may exist or not. Accepts what exists, and verifies the rest.
    pub fn settle(&mut self, keyspace: &Keyspace) -> Outcome {
        for (number, versions) in std::mem::take(&mut self.doubtful) {
            let found = keyspace.get(self.key(number))?;
            for version in versions {
                if version.map(|v| self.value(number, v)).as_deref() == found.as_deref() {
                    match version {
                        Some(version) => self.present.insert(number, version),
                        None => self.present.remove(&number),
                    };
                }
            }
        }
        self.verify(keyspace)
    }
}
