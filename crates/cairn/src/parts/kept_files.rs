//! [`KeptFiles`]: files that the database does not need any more, and that readers in other processes may.
//!
//! A reader has a shared lock on the manifest that it has read: on the byte behind the last edit that it has applied, or on byte 0 while it reads. A
//! file that an edit takes out of the state stays until no lock is before the end of that edit, or on an older manifest. The kernel ends
//! the locks of a process that ends, so none of them lasts for ever. A reader that comes later reads that edit, and does not look for the file.
//!
//! Manifests that were replaced stay as long as there is a lock on them, or else nothing would tell of their readers: under another name, so that none is
//! taken for the newest if that is lost.

use crate::events;
use crate::sync::Mutex;
use crate::wal::log_file_name;
use base::planted::{Bug, planted};
use env::Env;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::{manifest_file_name, parse_manifest_file_name};

/// A place in the sequence of all edits: the number of a manifest, and an offset in it.
type EditPlace = (u64, u64);

/// A file that is not needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unneeded {
    File(String),
    /// A log, which can be recycled.
    Log {
        number: u64,
        len: u64,
    },
}

impl Unneeded {
    pub(crate) fn name(&self) -> String {
        match self {
            Unneeded::File(name) => name.clone(),
            Unneeded::Log { number, .. } => log_file_name(*number),
        }
    }
}

/// The files that are kept for readers. Its lock may be taken under any other one, and takes none; its holder makes system calls.
pub(crate) struct KeptFiles {
    env: Arc<dyn Env>,
    dir: PathBuf,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    /// The end of the newest durable edit.
    end: EditPlace,
    /// Older manifests.
    manifests: BTreeMap<u64, Replaced>,
    /// The files, each with the end of an edit by which it is not needed; ascending.
    kept: VecDeque<(EditPlace, Unneeded)>,
}

/// A manifest that was replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replaced {
    /// Under its own name. It is removed, or gets the other name.
    Named,
    /// Under the other name.
    Renamed,
    /// Stays under its own name, for salvage.
    Stays,
}

/// File name suffix of a manifest that was replaced.
const SUFFIX: &str = ".old";

/// The number in the name of a manifest that was replaced and stayed.
pub(crate) fn parse_replaced_manifest(name: &str) -> Option<u64> {
    parse_manifest_file_name(name.strip_suffix(SUFFIX)?)
}

/// The name of manifest `number`, which was replaced and stays.
pub(crate) fn replaced_manifest_name(number: u64) -> String {
    format!("{}{SUFFIX}", manifest_file_name(number))
}

impl KeptFiles {
    pub(crate) fn new(env: &Arc<dyn Env>, dir: &Path) -> KeptFiles {
        KeptFiles { env: env.clone(), dir: dir.to_owned(), files: Mutex::default() }
    }

    /// An edit of manifest `number`, which ends at `end`, is durable.
    pub(crate) fn note_edit(&self, number: u64, end: u64) {
        let mut files = self.files.lock();
        let (before, _) = std::mem::replace(&mut files.end, (number, end));
        if before != number && before > 0 {
            files.manifests.insert(before, Replaced::Named);
        }
    }

    /// These files are not needed from the newest durable edit on. Returns those that can be removed now, of them and of earlier ones: no reader
    /// needs them.
    pub(crate) fn release(&self, unneeded: Vec<Unneeded>) -> Vec<Unneeded> {
        let mut files = self.files.lock();
        let end = files.end;
        files.kept.extend(unneeded.into_iter().map(|file| (end, file)));
        self.take(&mut files)
    }

    /// The same for the files that an opening finds and its manifest does not name: manifest `number`, of which nothing was noted. `manifests`: those
    /// before, which stay if they are not among the files.
    pub(crate) fn release_leftovers(
        &self,
        names: Vec<String>,
        manifests: &[u64],
        number: u64,
    ) -> Vec<Unneeded> {
        let mut files = self.files.lock();
        files.end = (number, 0);
        let others = manifests.iter().filter(|old| **old != number);
        // Unless a call before has said what becomes of them.
        others.for_each(|old| _ = files.manifests.entry(*old).or_insert(Replaced::Stays));
        for name in names {
            match (parse_manifest_file_name(&name), parse_replaced_manifest(&name)) {
                (Some(old), _) => _ = files.manifests.insert(old, Replaced::Named),
                (_, Some(old)) => _ = files.manifests.insert(old, Replaced::Renamed),
                (None, None) => files.kept.push_back(((number, 0), Unneeded::File(name))),
            }
        }
        self.take(&mut files)
    }

    fn take(&self, files: &mut Files) -> Vec<Unneeded> {
        if files.kept.is_empty() && files.manifests.is_empty() {
            return Vec::new();
        }
        let mut free = Vec::new();
        let mut oldest = None;
        files.manifests.retain(|&number, how| {
            let first = self.first_lock(number, *how);
            oldest = oldest.or(first);
            let name = manifest_file_name(number);
            match (first, *how) {
                (Some(_), Replaced::Named) => {
                    let (from, to) = (self.dir.join(name), self.dir.join(replaced_manifest_name(number)));
                    if self.env.rename(&from, &to).is_ok() {
                        *how = Replaced::Renamed;
                    }
                }
                (None, Replaced::Named) => free.push(Unneeded::File(name)),
                (None, Replaced::Renamed) => free.push(Unneeded::File(replaced_manifest_name(number))),
                _ => {}
            }
            first.is_some()
        });
        if files.kept.is_empty() {
            return free;
        }
        let oldest = oldest
            .or_else(|| self.first_lock(files.end.0, Replaced::Named))
            .filter(|_| !planted(Bug::ForgetReaders));
        let is_free = |place: &EditPlace| oldest.is_none_or(|oldest| oldest >= *place);
        let count = files.kept.iter().take_while(|(place, _)| is_free(place)).count();
        free.extend(files.kept.drain(..count).map(|(_, file)| file));
        free
    }

    /// Where the reader is that is furthest behind, of those of a manifest. One that cannot be asked for its readers may have some.
    fn first_lock(&self, number: u64, how: Replaced) -> Option<EditPlace> {
        let path = self.dir.join(match how {
            Replaced::Renamed => replaced_manifest_name(number),
            Replaced::Named | Replaced::Stays => manifest_file_name(number),
        });
        let first = self.env.first_shared_lock(&path).unwrap_or_else(|e| {
            events::warn!(error = %e, "files are kept, because readers of them cannot be looked for");
            Some(0)
        });
        first.map(|at| (number, at))
    }

    /// The number of files that are kept for readers.
    pub(crate) fn count(&self) -> usize {
        let files = self.files.lock();
        files.kept.len() + files.manifests.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimEnv;

    const DIR: &str = "/db";

    fn kept(sim: &Arc<SimEnv>) -> KeptFiles {
        sim.create_dir(Path::new(DIR)).unwrap();
        let env: Arc<dyn Env> = sim.clone();
        [3, 7].iter().for_each(|n| drop(sim.create(&manifest(*n)).unwrap()));
        KeptFiles::new(&env, Path::new(DIR))
    }

    fn manifest(number: u64) -> PathBuf {
        Path::new(DIR).join(manifest_file_name(number))
    }

    fn file(name: &str) -> Unneeded {
        Unneeded::File(name.to_owned())
    }

    #[test]
    fn a_file_stays_until_no_reader_is_before_the_edit_that_gave_it_up() {
        let sim = SimEnv::new(1);
        let kept = kept(&sim);
        kept.note_edit(3, 100);
        assert_eq!(kept.release(vec![file("a")]), [file("a")], "there are no readers");
        let at_100 = sim.lock_shared(&manifest(3), 100).unwrap();
        assert_eq!(kept.release(vec![file("b")]), [file("b")], "it has read the edit");
        kept.note_edit(3, 150);
        let log = Unneeded::Log { number: 9, len: 10 };
        assert_eq!(kept.release(vec![file("c"), log.clone()]), []);
        let at_150 = sim.lock_shared(&manifest(3), 150).unwrap();
        kept.note_edit(3, 200);
        assert_eq!((kept.release(vec![file("d")]), kept.count()), (vec![], 3));
        drop(at_100);
        assert_eq!(kept.release(vec![]), [file("c"), log]);
        drop(at_150);
        assert_eq!(kept.release(vec![]), [file("d")]);
        // One that begins may have read anything.
        let begins = sim.lock_shared(&manifest(3), 0).unwrap();
        assert_eq!(kept.release(vec![file("e")]), []);
        drop(begins);
        assert_eq!((kept.release(vec![]), kept.count()), (vec![file("e")], 0));
    }

    #[test]
    fn readers_of_an_older_manifest_keep_it_and_what_came_after_it() {
        let sim = SimEnv::new(1);
        let kept = kept(&sim);
        kept.note_edit(3, 100);
        let old = sim.lock_shared(&manifest(3), 100).unwrap();
        kept.note_edit(7, 50);
        assert_eq!(kept.release(vec![file("a")]), []);
        let new = sim.lock_shared(&manifest(7), 50).unwrap();
        drop(old);
        assert_eq!(kept.release(vec![]), [file("manifest-000003.old"), file("a")]);
        drop(new);
    }

    #[test]
    fn an_opening_keeps_what_readers_of_the_manifest_before_may_need() {
        let sim = SimEnv::new(1);
        let kept = kept(&sim);
        let old = sim.lock_shared(&manifest(3), 100).unwrap();
        let names = ["manifest-000003", "000005.tbl"].map(str::to_owned);
        assert_eq!(kept.release_leftovers(names.into(), &[3], 7), []);
        // An opening on a full disk has called it once before.
        assert_eq!(kept.release_leftovers(vec![], &[3], 7), []);
        kept.note_edit(7, 50);
        assert_eq!((kept.release(vec![file("a")]), kept.count()), (vec![], 3));
        // An opening after it finds it under another name.
        assert!(!sim.exists(&manifest(3)).unwrap());
        let next = KeptFiles::new(&(sim.clone() as Arc<dyn Env>), Path::new(DIR));
        sim.create(&manifest(9)).unwrap();
        let names = ["manifest-000003.old", "manifest-000007", "000005.tbl"].map(str::to_owned);
        assert_eq!(next.release_leftovers(names.into(), &[7], 9), [file("manifest-000007")]);
        drop(old);
        assert_eq!(next.release(vec![]), [file("manifest-000003.old"), file("000005.tbl")]);
        assert_eq!(kept.release(vec![]), [file("manifest-000003.old"), file("000005.tbl"), file("a")]);
    }

    #[test]
    fn a_manifest_that_stays_for_salvage_keeps_its_name_and_its_readers() {
        let sim = SimEnv::new(1);
        let kept = kept(&sim);
        let old = sim.lock_shared(&manifest(3), 100).unwrap();
        assert_eq!(kept.release_leftovers(vec!["wal-000001.log".to_owned()], &[3], 7), []);
        drop(old);
        assert_eq!(kept.release(vec![]), [file("wal-000001.log")]);
        assert!(sim.exists(&manifest(3)).unwrap());
    }
}
