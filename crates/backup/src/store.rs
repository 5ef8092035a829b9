//! [`Store`]: a directory with generations.

use crate::copy::{Digest, copy_file, digest_file};
use crate::generation::{Generation, StoredFile, list_file_name, parse_list_file_name};
use base::planted::{Bug, planted};
use base::{Error, ErrorKind, Result, Seq, Time};
use env::{Env, FileLock, FileStamp};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOCK_FILE_NAME: &str = "LOCK";

/// The file that says that a directory is a store. It comes first.
const MARK: &str = "BACKUP";

const TEXT: &[u8] = b"Backups of Cairn databases: `cairn backups DIR` lists them.\n";

/// The directory of the contents.
const FILES: &str = "files";

/// The ending of names of files that are being written.
const TEMPORARY: &str = ".tmp";

/// A file that a generation is to have.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Its name.
    pub name: String,
    /// How many of its bytes belong to it.
    pub len: u64,
}

/// A generation that is to be made.
#[derive(Clone, Debug)]
pub struct NewGeneration {
    /// The present time.
    pub time: Time,
    /// The newest sequence number in it.
    pub seq: Seq,
    /// The directory with the files, which must not change meanwhile.
    pub dir: PathBuf,
    /// What belongs to the files.
    pub state: Vec<u8>,
    /// Its files.
    pub files: Vec<SourceFile>,
}

/// What happens while a generation is made.
pub trait Added {
    /// Called for each file that is copied, because no generation has its content, before that. An error ends the making.
    fn check(&mut self, file: &SourceFile) -> Result<()>;
    /// Called when all files are there, before the generation is. An error ends the making.
    fn copied(&mut self) -> Result<()>;
    /// So many bytes of the files are there. An error ends the making.
    fn step(&mut self, bytes: u64, file: &SourceFile) -> Result<()>;
}

/// A content or a list that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file, below the directory of the store.
    pub file: String,
    /// What is wrong with it.
    pub what: String,
    /// The generations that need it, ascending.
    pub generations: Vec<u64>,
}

/// A directory with generations. It is locked while this value lives.
pub struct Store {
    env: Arc<dyn Env>,
    dir: PathBuf,
    _lock: Box<dyn FileLock>,
}

impl Store {
    /// Opens the store in `dir`, which may be on a read-only file system.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Locked` while it is open elsewhere.
    pub fn open(env: &Arc<dyn Env>, dir: &Path) -> Result<Store> {
        let dir = env.canonical(dir)?;
        if !env.exists(&dir.join(MARK))? {
            return Err(Error::new(ErrorKind::NotFound, format!("{}: there is no backup", dir.display())));
        }
        let lock = env.lock_read_only(&dir.join(LOCK_FILE_NAME))?;
        Ok(Store { env: env.clone(), dir, _lock: lock })
    }

    /// Opens the store in `dir`, and creates it if the directory is absent or empty.
    ///
    /// # Errors
    /// `AlreadyExists` when the directory has other files; `Locked` while the store is open elsewhere.
    pub fn open_or_create(env: &Arc<dyn Env>, dir: &Path) -> Result<Store> {
        let dir = env.canonical(dir)?;
        let mark = dir.join(MARK);
        env.create_dir(&dir)?;
        if !env.exists(&mark)? {
            if !env.is_empty_dir(&dir)? {
                let what =
                    "there is no backup, and the directory is not empty: name an empty or new directory";
                return Err(Error::new(ErrorKind::AlreadyExists, format!("{}: {what}", dir.display())));
            }
            match env.create(&mark) {
                Ok(mut file) => file.append(TEXT).and_then(|()| file.sync())?,
                // Another process creates it.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
            // Before anything else is there: a directory with other files and without the mark is no store.
            env.sync_dir(&dir)?;
        }
        let lock = env.lock(&dir.join(LOCK_FILE_NAME))?;
        env.create_dir(&dir.join(FILES))?;
        env.sync_dir(&dir)?;
        Ok(Store { env: env.clone(), dir, _lock: lock })
    }

    fn files(&self) -> PathBuf {
        self.dir.join(FILES)
    }

    /// The path of a content.
    fn content(&self, digest: Digest) -> PathBuf {
        self.files().join(digest.to_string())
    }

    fn list_path(&self, number: u64) -> PathBuf {
        self.dir.join(list_file_name(number))
    }

    /// The numbers of all generations, ascending.
    pub fn numbers(&self) -> Result<Vec<u64>> {
        let mut numbers: Vec<u64> =
            self.env.list(&self.dir)?.iter().filter_map(|name| parse_list_file_name(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Generation `number`.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Corruption` when its list is damaged.
    pub fn generation(&self, number: u64) -> Result<Generation> {
        Generation::read(&self.env, &self.list_path(number), number).map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let what = format!("{}: there is no generation {number}", self.dir.display());
                Error::new(ErrorKind::NotFound, what)
            }
            _ => e,
        })
    }

    /// All generations, ascending; of a damaged list the error.
    ///
    /// # Errors
    /// Those of reading that say nothing of the content.
    pub fn generations(&self) -> Result<Vec<(u64, Result<Generation>)>> {
        let read = |number| match self.generation(number) {
            Err(e) if !matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported) => Err(e),
            generation => Ok((number, generation)),
        };
        self.numbers()?.into_iter().map(read).collect()
    }

    /// Makes a generation. What an earlier one has is shared: a file that has not changed since, by its name and its stamp, is not read.
    ///
    /// # Errors
    /// Those of reading the files, of `added`, and of writing. Then there is no new generation, and the others are as they were; if the last
    /// sync fails, the new one may be there, and is whole.
    pub fn add(&self, new: NewGeneration, added: &mut dyn Added) -> Result<Generation> {
        let generations = self.generations()?;
        self.collect(&generations)?;
        let last = generations.last().map_or(0, |(number, _)| *number);
        let number =
            last.checked_add(1).ok_or_else(|| Error::invalid(format!("there is a generation {last}")))?;
        // The newest ones count.
        let mut known: HashMap<(String, FileStamp), StoredFile> = HashMap::new();
        for file in
            generations.into_iter().filter_map(|(_, generation)| generation.ok()).flat_map(|g| g.files)
        {
            if let Some(stamp) = file.stamp {
                known.insert((file.name.clone(), stamp), file);
            }
        }
        let mut made = Vec::new();
        let generation = self.try_add(new, number, &known, added, &mut made);
        // After an error their names may not be durable, and a later sync of the directory proves nothing of them.
        made.iter().for_each(|digest| _ = self.env.remove(&self.content(*digest)));
        generation
    }

    /// The same, with what is known of files. After an error, contents that it has made and that no list may name are in `made`.
    fn try_add(
        &self,
        new: NewGeneration,
        number: u64,
        known: &HashMap<(String, FileStamp), StoredFile>,
        added: &mut dyn Added,
        made: &mut Vec<Digest>,
    ) -> Result<Generation> {
        let (mut files, mut done, mut new_bytes) = (Vec::new(), 0, 0);
        for source in &new.files {
            added.step(done, source)?;
            let path = new.dir.join(&source.name);
            let stamp = self.env.stamp(&path).map_err(|e| match e.kind() {
                ErrorKind::NotFound => Error::corruption(&path, 0, "the file is missing"),
                _ => e,
            })?;
            let shared = stamp.and_then(|stamp| known.get(&(source.name.clone(), stamp)));
            let shared = shared.filter(|file| file.len == source.len && self.has(file.digest, file.len));
            let digest = match shared {
                Some(file) => file.digest,
                None => {
                    added.check(source)?;
                    let (digest, is_new) =
                        self.copy(&path, source.len, &mut |at| added.step(done + at, source))?;
                    if is_new {
                        new_bytes += source.len;
                        made.push(digest);
                    }
                    digest
                }
            };
            files.push(StoredFile { name: source.name.clone(), len: source.len, digest, stamp });
            done += source.len;
        }
        added.copied()?;
        let source = new.dir.to_string_lossy().into_owned();
        let NewGeneration { time, seq, state, .. } = new;
        let generation = Generation { number, time, seq, source, state, new_bytes, files };
        // The contents, before a list names them.
        if !planted(Bug::ListBeforeContents) {
            self.env.sync_dir(&self.files())?;
        }
        let (path, temporary) =
            (self.list_path(number), self.dir.join(format!("{}{TEMPORARY}", list_file_name(number))));
        if self.env.exists(&temporary)? {
            self.env.remove(&temporary)?;
        }
        let written =
            generation.write(&self.env, &temporary).and_then(|()| self.env.rename(&temporary, &path));
        written.inspect_err(|_| _ = self.env.remove(&temporary))?;
        made.clear();
        self.env.sync_dir(&self.dir)?;
        Ok(generation)
    }

    /// Whether a content is there, with this length.
    fn has(&self, digest: Digest, len: u64) -> bool {
        self.env.len(&self.content(digest)).is_ok_and(|found| found == len)
    }

    /// Copies a file into the store, unless it has its content. Returns the digest, and whether the content is new.
    fn copy(&self, from: &Path, len: u64, step: &mut dyn FnMut(u64) -> Result<()>) -> Result<(Digest, bool)> {
        let temporary = self.files().join(format!("new{TEMPORARY}"));
        if self.env.exists(&temporary)? {
            self.env.remove(&temporary)?;
        }
        let digest = copy_file(&self.env, from, &temporary, len, step)?;
        if self.has(digest, len) {
            self.env.remove(&temporary)?;
            return Ok((digest, false));
        }
        self.env.rename(&temporary, &self.content(digest))?;
        Ok((digest, true))
    }

    /// Removes all generations but the newest `keep` that are intact: older ones, and the contents that none of the others has. Returns the
    /// numbers of those that are gone.
    ///
    /// # Errors
    /// `InvalidArgument` when `keep` is 0; those of reading and removing files. What is left is removed by the next call.
    pub fn keep_newest(&self, keep: usize) -> Result<Vec<u64>> {
        if keep == 0 {
            return Err(Error::invalid("no generation would be kept: keep at least one"));
        }
        let mut generations = self.generations()?;
        let intact = generations.iter().rev().filter(|(_, generation)| generation.is_ok());
        let Some(oldest) = intact.map(|(number, _)| *number).nth(keep - 1) else { return Ok(Vec::new()) };
        let gone: Vec<u64> = generations.iter().map(|(number, _)| *number).filter(|n| *n < oldest).collect();
        for number in &gone {
            self.env.remove(&self.list_path(*number))?;
        }
        // The lists, before contents that they name.
        self.env.sync_dir(&self.dir)?;
        generations.retain(|(number, _)| *number >= oldest);
        self.collect(&generations)?;
        Ok(gone)
    }

    /// Removes what no generation needs, such as what an interrupted one has left. While a list cannot be read all contents stay, because it may
    /// name any.
    fn collect(&self, generations: &[(u64, Result<Generation>)]) -> Result<()> {
        for name in self.env.list(&self.dir)? {
            if name.strip_suffix(TEMPORARY).is_some_and(|name| parse_list_file_name(name).is_some()) {
                self.env.remove(&self.dir.join(name))?;
            }
        }
        let mut named = HashSet::new();
        let counted = if planted(Bug::CollectByNewest) { generations.len().saturating_sub(1) } else { 0 };
        for (_, generation) in &generations[counted..] {
            match generation {
                Ok(generation) => named.extend(generation.files.iter().map(|file| file.digest)),
                Err(_) => return Ok(()),
            }
        }
        for name in self.env.list(&self.files())? {
            let is_dead = match Digest::parse(&name) {
                Some(digest) => !named.contains(&digest),
                None => name.ends_with(TEMPORARY),
            };
            if is_dead {
                self.env.remove(&self.files().join(name))?;
            }
        }
        Ok(())
    }

    /// Copies the content of a file of a generation to `to`, which must not exist, and syncs it, but not its directory.
    ///
    /// # Errors
    /// `Corruption` when the content is missing or not what it was; those of copying.
    pub fn restore(
        &self,
        file: &StoredFile,
        to: &Path,
        step: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let content = self.content(file.digest);
        let copied = copy_file(&self.env, &content, to, file.len, step).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::corruption(&content, 0, format_args!("{} is missing", file.name)),
            _ => e,
        })?;
        if copied != file.digest {
            let _ = self.env.remove(to);
            return Err(changed(&content, &file.name, copied));
        }
        Ok(())
    }

    /// Reads all contents and lists. `step` is called with bytes read, bytes in all, and the file; its error ends it.
    ///
    /// # Errors
    /// Those of `step`, and of listing the directory. Damage is in the result, in the order of names.
    pub fn verify(&self, step: &mut dyn FnMut(u64, u64, &str) -> Result<()>) -> Result<Vec<Damage>> {
        let mut damage = Vec::new();
        let mut needed: BTreeMap<(Digest, u64), (String, Vec<u64>)> = BTreeMap::new();
        for (number, generation) in self.generations()? {
            match generation {
                Ok(generation) => {
                    for file in generation.files {
                        let need =
                            needed.entry((file.digest, file.len)).or_insert_with(|| (file.name, Vec::new()));
                        // A generation may have a content twice.
                        if need.1.last() != Some(&number) {
                            need.1.push(number);
                        }
                    }
                }
                Err(e) => damage.push(Damage {
                    file: list_file_name(number),
                    what: e.to_string(),
                    generations: vec![number],
                }),
            }
        }
        let total = needed.keys().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len));
        let mut done = 0;
        for ((digest, len), (name, generations)) in needed {
            let content = self.content(digest);
            let mut ended = Ok(());
            let found = digest_file(&self.env, &content, len, &mut |at| {
                ended = step(at.saturating_add(done), total, &name);
                ended.clone()
            });
            ended?;
            let what = match (found, self.env.len(&content)) {
                (Err(e), _) if e.kind() == ErrorKind::NotFound => Some(format!("{name} is missing")),
                (Err(e), _) | (_, Err(e)) => Some(e.to_string()),
                (Ok(found), _) if found != digest => Some(changed(&content, &name, found).to_string()),
                (Ok(_), Ok(found)) if found != len => {
                    Some(format!("{name} has {found} bytes instead of {len}"))
                }
                (Ok(_), Ok(_)) => None,
            };
            if let Some(what) = what {
                damage.push(Damage { file: format!("{FILES}/{digest}"), what, generations });
            }
            done = len.saturating_add(done);
        }
        Ok(damage)
    }
}

fn changed(content: &Path, name: &str, found: Digest) -> Error {
    Error::corruption(
        content,
        0,
        format_args!("the content of {name} has changed: its digest is {found} now"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{SimEnv, Survival};

    const STORE: &str = "/backup";

    /// Counts what was checked.
    #[derive(Default)]
    struct Checked(Vec<String>);

    impl Added for Checked {
        fn check(&mut self, file: &SourceFile) -> Result<()> {
            self.0.push(file.name.clone());
            Ok(())
        }
        fn copied(&mut self) -> Result<()> {
            Ok(())
        }
        fn step(&mut self, _: u64, _: &SourceFile) -> Result<()> {
            Ok(())
        }
    }

    fn disk() -> (Arc<SimEnv>, Arc<dyn Env>) {
        let sim = SimEnv::new(1);
        sim.create_dir(Path::new("/db")).unwrap();
        (sim.clone(), sim)
    }

    fn store(env: &Arc<dyn Env>) -> Result<Store> {
        Store::open_or_create(env, Path::new(STORE))
    }

    /// Makes a generation of these files of `/db`. Returns the names of those that were copied.
    fn add(sim: &SimEnv, env: &Arc<dyn Env>, names: &[&str]) -> Result<Vec<String>> {
        let file = |name: &&str| SourceFile {
            name: (*name).to_owned(),
            len: sim.read_file(Path::new("/db").join(name)).len() as u64,
        };
        let new = NewGeneration {
            time: Time::from_micros(1),
            seq: 1,
            dir: "/db".into(),
            state: b"state".to_vec(),
            files: names.iter().map(file).collect(),
        };
        let mut checked = Checked::default();
        store(env)?.add(new, &mut checked)?;
        Ok(checked.0)
    }

    /// The contents of a generation, by name.
    fn restored(sim: &SimEnv, env: &Arc<dyn Env>, number: u64) -> Result<BTreeMap<String, Vec<u8>>> {
        let store = Store::open(env, Path::new(STORE))?;
        sim.create_dir(Path::new("/to")).unwrap();
        let mut contents = BTreeMap::new();
        for file in store.generation(number)?.files {
            let to = Path::new("/to").join(&file.name);
            store.restore(&file, &to, &mut |_| Ok(()))?;
            contents.insert(file.name, sim.read_file(&to));
            sim.remove_file(&to);
        }
        Ok(contents)
    }

    fn contents(sim: &SimEnv) -> usize {
        sim.list_files().iter().filter(|path| path.starts_with("/backup/files")).count()
    }

    #[test]
    fn generations_share_what_has_not_changed_and_are_restored() {
        let (sim, env) = disk();
        sim.write_file("/db/a", "first");
        sim.write_file("/db/b", "second");
        assert_eq!(add(&sim, &env, &["a", "b"]).unwrap(), ["a", "b"]);
        sim.write_file("/db/c", "third");
        // The same length, and another content.
        sim.write_file("/db/b", "SECOND");
        assert_eq!(add(&sim, &env, &["a", "b", "c"]).unwrap(), ["b", "c"]);
        // Another file with a content that is there.
        sim.write_file("/db/d", "first");
        assert_eq!(add(&sim, &env, &["d"]).unwrap(), ["d"]);
        assert_eq!(contents(&sim), 4);
        let first = restored(&sim, &env, 1).unwrap();
        assert_eq!((&first["a"][..], &first["b"][..]), (&b"first"[..], &b"second"[..]));
        assert_eq!(restored(&sim, &env, 2).unwrap()["b"], b"SECOND");
        assert_eq!(restored(&sim, &env, 3).unwrap()["d"], b"first");
        let numbers = |store: &Store| store.numbers().unwrap();
        let of_store = store(&env).unwrap();
        assert_eq!(of_store.generation(2).unwrap().new_bytes, 11);
        assert_eq!(of_store.generation(3).unwrap().new_bytes, 0);
        assert_eq!(of_store.keep_newest(2).unwrap(), [1]);
        assert_eq!((numbers(&of_store), contents(&sim)), (vec![2, 3], 3));
        assert!(of_store.keep_newest(0).is_err() && of_store.keep_newest(5).unwrap().is_empty());
        assert!(of_store.generation(1).is_err_and(|e| e.kind() == ErrorKind::NotFound));
        assert_eq!(store(&env).err().unwrap().kind(), ErrorKind::Locked);
    }

    #[test]
    fn damage_is_found_and_keeps_contents_from_being_removed() {
        let (sim, env) = disk();
        for (n, text) in ["one", "two"].iter().enumerate() {
            sim.write_file("/db/a", *text);
            sim.write_file("/db/b", "shared");
            add(&sim, &env, &["a", "b"]).unwrap();
            let _ = n;
        }
        let verify = || store(&env).unwrap().verify(&mut |_, _, _| Ok(())).unwrap();
        assert_eq!(verify(), []);
        let digest = |text: &str| Digest(xxhash_rust::xxh3::xxh3_128(text.as_bytes()));
        let path = |text: &str| format!("/backup/files/{}", digest(text));
        sim.flip_bit(path("shared"), 2, 1);
        let damage = verify();
        assert_eq!((damage.len(), &damage[0].generations[..]), (1, &[1, 2][..]), "{damage:?}");
        assert!(path("shared").ends_with(&damage[0].file));
        assert_eq!(restored(&sim, &env, 1).unwrap_err().kind(), ErrorKind::Corruption);
        sim.remove_file(path("shared"));
        assert!(verify()[0].what.contains("missing"));
        // It is copied anew.
        assert_eq!(add(&sim, &env, &["a", "b"]).unwrap(), ["b"]);
        assert_eq!(verify(), []);
        sim.truncate_file(path("two"), 9);
        assert_eq!(verify()[0].generations, [2, 3]);
        sim.truncate_file(path("two"), 3);
        sim.flip_bit("/backup/generation-000001", 20, 1);
        let damage = verify();
        assert_eq!((damage.len(), &damage[0].file[..]), (1, "generation-000001"));
        assert_eq!(store(&env).unwrap().keep_newest(3).unwrap(), [0; 0], "one of three is not intact");
        assert!(env.exists(Path::new(&path("one"))).unwrap());
        assert_eq!(store(&env).unwrap().keep_newest(2).unwrap(), [1]);
        assert!(!env.exists(Path::new(&path("one"))).unwrap());
        assert_eq!(verify(), []);
    }

    #[test]
    fn other_directories_are_left_alone() {
        let (sim, env) = disk();
        sim.write_file("/db/a", "mine");
        let of = |opened: Result<Store>| opened.err().map(|e| e.kind());
        assert_eq!(of(Store::open_or_create(&env, Path::new("/db"))), Some(ErrorKind::AlreadyExists));
        for path in ["/db", "/no"] {
            assert_eq!(of(Store::open(&env, Path::new(path))), Some(ErrorKind::NotFound));
        }
        assert_eq!(sim.list_files(), [Path::new("/db/a")]);
        // Another directory that has one of the name of ours.
        sim.create_dir(Path::new("/mine/files")).unwrap();
        sim.write_file("/mine/files/0123456789abcdef0123456789abcdef", "mine");
        sim.write_file("/mine/LOCK", "mine");
        assert_eq!(of(Store::open_or_create(&env, Path::new("/mine"))), Some(ErrorKind::AlreadyExists));
        assert_eq!(sim.read_file("/mine/files/0123456789abcdef0123456789abcdef"), b"mine");
        // An interrupted creation.
        sim.create_dir(Path::new("/new")).unwrap();
        sim.write_file("/new/BACKUP", "");
        assert_eq!(of(Store::open_or_create(&env, Path::new("/new"))), None);
    }

    /// A crash at each operation of a backup and of a retention, and each disk that may survive it: earlier generations are whole, a new one is
    /// there or not, and the next one removes the rest.
    #[test]
    fn a_crash_leaves_the_other_generations_whole() {
        let prepare = || {
            let (sim, env) = disk();
            sim.write_file("/db/a", "one");
            sim.write_file("/db/b", "shared");
            add(&sim, &env, &["a", "b"]).unwrap();
            sim.write_file("/db/a", "two");
            add(&sim, &env, &["a", "b"]).unwrap();
            sim.write_file("/db/c", "new");
            (sim, env)
        };
        let steps = |sim: &SimEnv, env: &Arc<dyn Env>| -> Result<()> {
            add(sim, env, &["a", "b", "c"])?;
            store(env)?.keep_newest(2).map(|_| ())
        };
        let (sim, env) = prepare();
        let begin = sim.op_count();
        steps(&sim, &env).unwrap();
        let operations = sim.op_count() - begin;
        let (mut crashes, mut numbers) = (0, HashSet::new());
        for n in 0..operations {
            let (sim, env) = prepare();
            sim.crash_at(sim.op_count() + n);
            steps(&sim, &env).unwrap_err();
            for (kind, seed) in
                Survival::ALL.into_iter().flat_map(|kind| (0..4).map(move |seed| (kind, seed)))
            {
                let left = sim.crash_clone(kind, seed);
                let env: Arc<dyn Env> = left.clone();
                let of_store = store(&env).unwrap();
                assert_eq!(
                    of_store.verify(&mut |_, _, _| Ok(())).unwrap(),
                    [],
                    "operation {n}, {kind:?}, {seed}"
                );
                let found = of_store.numbers().unwrap();
                assert!(
                    found.contains(&2) && found.len() >= 2 - usize::from(found.contains(&3)),
                    "{found:?}"
                );
                drop(of_store);
                for number in &found {
                    restored(&left, &env, *number).unwrap();
                }
                add(&left, &env, &["a", "b", "c"]).unwrap();
                store(&env).unwrap().keep_newest(1).unwrap();
                assert_eq!(contents(&left), 3, "operation {n}, {kind:?}, {seed}");
                crashes += 1;
                numbers.insert(found);
            }
        }
        assert!(crashes > 400 && numbers.len() == 3, "{crashes} {numbers:?}");
    }
}
