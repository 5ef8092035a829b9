//! [`KeptFiles`]: files that the database does not need any more, and that readers in other processes may.
//!
//! A reader has a shared lock on the manifest that it has read: on the byte behind the last edit that it has applied, or on byte 0 while it reads. A
//! file that an edit takes out of the state stays until no lock is before the end of that edit, or on an older manifest. The kernel ends
//! the locks of a process that ends, so none of them lasts for ever. A reader that comes later reads that edit, and does not look for the file.
//!
//! Manifests that were replaced stay as long as there is a lock on them, or else nothing would tell of their readers.

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
    /// Older manifests, and whether they are removed when there is no lock on them.
    manifests: BTreeMap<u64, bool>,
    /// The files, each with the end of an edit by which it is not needed; ascending.
    kept: VecDeque<(EditPlace, Unneeded)>,
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
            files.manifests.insert(before, true);
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
        files.manifests.extend(manifests.iter().filter(|old| **old != number).map(|old| (*old, false)));
        for name in names {
            match parse_manifest_file_name(&name) {
                Some(old) => _ = files.manifests.insert(old, true),
                None => files.kept.push_back(((number, 0), Unneeded::File(name))),
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
        while let Some((&number, &is_removed)) = files.manifests.first_key_value() {
            oldest = self.first_lock(number);
            if oldest.is_some() {
                break;
            }
            files.manifests.remove(&number);
            if is_removed {
                free.push(Unneeded::File(manifest_file_name(number)));
            }
        }
        if files.kept.is_empty() {
            return free;
        }
        let oldest = oldest.or_else(|| self.first_lock(files.end.0)).filter(|_| !planted(Bug::ForgetReaders));
        let is_free = |place: &EditPlace| oldest.is_none_or(|oldest| oldest >= *place);
        let count = files.kept.iter().take_while(|(place, _)| is_free(place)).count();
        free.extend(files.kept.drain(..count).map(|(_, file)| file));
        free
    }

    /// Where the reader is that is furthest behind, of those of a manifest. One that cannot be asked for its readers may have some.
    fn first_lock(&self, number: u64) -> Option<EditPlace> {
        let path = self.dir.join(manifest_file_name(number));
        let first = self.env.first_shared_lock(&path).unwrap_or_else(|e| {
            tracing::warn!(error = %e, "files are kept, because readers of them cannot be looked for");
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
        assert_eq!(kept.release(vec![]), [file("manifest-000003"), file("a")]);
        drop(new);
    }

    #[test]
    fn an_opening_keeps_what_readers_of_the_manifest_before_may_need() {
        let sim = SimEnv::new(1);
        let kept = kept(&sim);
        let old = sim.lock_shared(&manifest(3), 100).unwrap();
        let names = ["manifest-000003", "000005.tbl"].map(str::to_owned);
        assert_eq!(kept.release_leftovers(names.into(), &[3], 7), []);
        kept.note_edit(7, 50);
        assert_eq!((kept.release(vec![file("a")]), kept.count()), (vec![], 3));
        drop(old);
        assert_eq!(kept.release(vec![]), [file("manifest-000003"), file("000005.tbl"), file("a")]);
    }
}
