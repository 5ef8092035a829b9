//! The state of a simulated disk: the page cache, the durable state, and the unsynced changes between them.
//!
//! A file has its present content, its durable content, and the mutations that lead from the durable to the present
//! one. A directory has the same three for its entries. A crash selects, pseudo-randomly, the mutations that reached
//! the disk.

use crate::Rng;
use crate::traits::FileStamp;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which unsynced changes survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// Everything.
    Everything,
    /// For each 512-byte sector, the content after any one of its unsynced writes, or the old content. Lengths may be
    /// extended by zeros. Any subset of the directory operations.
    RandomSectors,
    /// Any subset of the writes, each complete, so that late writes may survive while early ones do not. Gaps read as
    /// zeros or as the old content. Any subset of the directory operations.
    Reordered,
    /// A prefix of the writes, then part of the next one, whose rest is garbage, zeros or missing. A prefix of the
    /// operations of each directory.
    Torn,
}

impl Survival {
    /// All kinds, for tests.
    pub const ALL: [Survival; 5] = [
        Survival::Nothing,
        Survival::Everything,
        Survival::RandomSectors,
        Survival::Reordered,
        Survival::Torn,
    ];
}

/// The unit that a disk writes atomically.
const SECTOR: u64 = 512;

/// An unsynced change to a file.
#[derive(Clone)]
enum Mutation {
    /// Bytes written at an offset, at most the length of the file.
    Write { offset: u64, data: Arc<[u8]> },
    /// The file was cut to this length.
    Truncate(u64),
}

/// A file, independent of its names.
#[derive(Clone)]
pub(super) struct FileState {
    content: Arc<Vec<u8>>,
    /// The pending mutations lead from this to the content, unless a failed sync lost some.
    durable: Arc<Vec<u8>>,
    pending: Vec<Mutation>,
    /// Space that is allocated for the file but was never written. Its content is undefined.
    allocated: u64,
    /// Tells the file from others, also on copies of the disk.
    id: u64,
    /// How many times the content has changed.
    changes: u64,
}

/// The next [`FileState::id`].
static IDS: AtomicU64 = AtomicU64::new(1);

/// A file with its identity, shared by names and handles. The lock of the disk is always taken before that of a file, so that a clone
/// sees all files at one moment.
pub(super) type Inode = Arc<Mutex<FileState>>;

fn inode(state: FileState) -> Inode {
    Arc::new(Mutex::new(state))
}

impl FileState {
    fn durable_file(content: Arc<Vec<u8>>) -> FileState {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        FileState { durable: content.clone(), content, pending: Vec::new(), allocated: 0, id, changes: 0 }
    }

    /// The same file with this content, which is durable.
    fn with_content(&self, content: Arc<Vec<u8>>) -> FileState {
        FileState { id: self.id, changes: self.changes + 1, ..FileState::durable_file(content) }
    }

    /// What tells this state of the file from others.
    pub(super) fn stamp(&self) -> FileStamp {
        FileStamp { device: 1, file: self.id, modified: self.changes, len: self.len() }
    }

    /// Bytes of disk space that the file takes.
    pub(super) fn len(&self) -> u64 {
        (self.content.len() as u64).max(self.allocated)
    }

    pub(super) fn allocate(&mut self, len: u64) {
        self.allocated = len;
    }

    /// The allocated space that survives a crash. It is never synced.
    fn allocated_survivor(&self, kind: Survival, rng: &mut Rng) -> u64 {
        match (self.allocated, kind) {
            (0, _) | (_, Survival::Nothing) => 0,
            (all, Survival::Everything) => all,
            (all, _) if rng.chance(1, 2) => all,
            (all, _) => rng.below(all),
        }
    }

    pub(super) fn content(&self) -> &Arc<Vec<u8>> {
        &self.content
    }

    /// Writes `data` at `offset`, which is at most the length.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.changes += 1;
        write_at(Arc::make_mut(&mut self.content), offset, data);
        self.pending.push(Mutation::Write { offset: offset as u64, data: data.into() });
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.changes += 1;
        Arc::make_mut(&mut self.content).truncate(len);
        self.pending.push(Mutation::Truncate(len as u64));
    }

    /// Makes the pending mutations durable. Changes that a failed sync dropped stay lost.
    pub(super) fn sync(&mut self) {
        let durable = Arc::make_mut(&mut self.durable);
        self.pending.drain(..).for_each(|mutation| apply(durable, &mutation));
    }

    /// Makes the first `to` bytes durable. The bytes behind them keep their durable state and pending mutations.
    pub(super) fn sync_front(&mut self, to: usize) {
        let to = to.min(self.content.len());
        write_at(Arc::make_mut(&mut self.durable), 0, &self.content[..to]);
        for mutation in std::mem::take(&mut self.pending) {
            match mutation {
                Mutation::Truncate(len) => self.pending.push(Mutation::Truncate(len.max(to as u64))),
                Mutation::Write { offset, data } => {
                    let done = to.saturating_sub(offset as usize).min(data.len());
                    if done < data.len() {
                        let offset = offset + done as u64;
                        self.pending.push(Mutation::Write { offset, data: data[done..].into() });
                    }
                }
            }
        }
    }

    /// A failed sync: the pages count as clean, but did not reach the disk.
    pub(super) fn fail_sync(&mut self) {
        self.pending.clear();
    }

    fn survivor(&self, kind: Survival, rng: &mut Rng) -> Arc<Vec<u8>> {
        let mut bytes = self.durable.clone();
        if self.pending.is_empty() || kind == Survival::Nothing {
            return bytes;
        }
        let out = Arc::make_mut(&mut bytes);
        match kind {
            Survival::Nothing => {}
            Survival::Everything => self.pending.iter().for_each(|m| apply(out, m)),
            Survival::RandomSectors => self.random_sectors(out, rng),
            Survival::Reordered => {
                let mut full = out.len();
                for mutation in &self.pending {
                    if rng.chance(1, 2) {
                        apply(out, mutation);
                    }
                    full = full.max(mutation.end());
                }
                extend_maybe(out, full, rng);
            }
            Survival::Torn => self.torn(out, rng),
        }
        bytes
    }

    /// Applies to each sector a random number of the mutations: none, all, or any number between.
    fn random_sectors(&self, out: &mut Vec<u8>, rng: &mut Rng) {
        let all = self.pending.len() as u64;
        let draw = |rng: &mut Rng| match rng.below(3) {
            0 => 0,
            1 => all,
            _ => rng.below(all + 1),
        };
        let truncated = draw(rng);
        let mut caught: BTreeMap<u64, u64> = BTreeMap::new();
        let mut full = out.len();
        for (i, mutation) in self.pending.iter().enumerate() {
            let i = i as u64;
            full = full.max(mutation.end());
            match mutation {
                Mutation::Truncate(_) if i < truncated => apply(out, mutation),
                Mutation::Truncate(_) => {}
                Mutation::Write { offset, data } => {
                    let mut at = 0;
                    while at < data.len() {
                        let position = offset + at as u64;
                        let len = ((SECTOR - position % SECTOR) as usize).min(data.len() - at);
                        if i < *caught.entry(position / SECTOR).or_insert_with(|| draw(rng)) {
                            write_at(out, position as usize, &data[at..at + len]);
                        }
                        at += len;
                    }
                }
            }
        }
        extend_maybe(out, full, rng);
    }

    fn torn(&self, out: &mut Vec<u8>, rng: &mut Rng) {
        let whole = rng.below(self.pending.len() as u64 + 1) as usize;
        self.pending[..whole].iter().for_each(|m| apply(out, m));
        let Some(Mutation::Write { offset, data }) = self.pending.get(whole) else { return };
        let kept = rng.below(data.len() as u64 + 1) as usize;
        let offset = *offset as usize;
        write_at(out, offset, &data[..kept]);
        let mut rest = vec![0; data.len() - kept];
        match rng.below(3) {
            0 => return,
            1 => rng.fill(&mut rest),
            _ => {}
        }
        write_at(out, offset + kept, &rest);
    }
}

impl Mutation {
    fn end(&self) -> usize {
        match self {
            Mutation::Write { offset, data } => *offset as usize + data.len(),
            Mutation::Truncate(_) => 0,
        }
    }
}

fn apply(bytes: &mut Vec<u8>, mutation: &Mutation) {
    match mutation {
        Mutation::Write { offset, data } => write_at(bytes, *offset as usize, data),
        Mutation::Truncate(len) => bytes.truncate(*len as usize),
    }
}

/// Overwrites or extends; fills a gap before `offset` with zeros.
fn write_at(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

/// With probability 1/2, the length reaches the disk although the last bytes do not.
fn extend_maybe(bytes: &mut Vec<u8>, full: usize, rng: &mut Rng) {
    if bytes.len() < full && rng.chance(1, 2) {
        bytes.resize(full, 0);
    }
}

/// An unsynced change to a directory: the file atomically takes the name and loses another one that it has; or, without a file, the
/// name is removed.
type DirOp = (String, Option<Inode>);

type Entries = BTreeMap<String, Inode>;

fn apply_dir(entries: &mut Entries, (name, file): &DirOp) {
    let Some(file) = file else { return drop(entries.remove(name)) };
    // A file never has two names in a directory, whichever of its renames survive.
    entries.retain(|_, other| !Arc::ptr_eq(other, file));
    entries.insert(name.clone(), file.clone());
}

#[derive(Clone, Default)]
struct Dir {
    entries: Entries,
    durable: Entries,
    pending: Vec<DirOp>,
}

impl Dir {
    fn push(&mut self, op: DirOp) {
        apply_dir(&mut self.entries, &op);
        self.pending.push(op);
    }

    fn survivors(&self, kind: Survival, rng: &mut Rng) -> Entries {
        let mut entries = self.durable.clone();
        let first = rng.below(self.pending.len() as u64 + 1) as usize;
        for (i, op) in self.pending.iter().enumerate() {
            let survives = match kind {
                Survival::Nothing => false,
                Survival::Everything => true,
                Survival::RandomSectors | Survival::Reordered => rng.chance(1, 2),
                Survival::Torn => i < first,
            };
            if survives {
                apply_dir(&mut entries, op);
            }
        }
        entries
    }
}

/// All directories. A directory is durable as soon as it is created.
#[derive(Default)]
pub(super) struct Disk {
    dirs: BTreeMap<PathBuf, Dir>,
}

/// Splits a path into its directory and its name; removes `.` and repeated separators.
pub(super) fn split(path: &Path) -> (PathBuf, String) {
    let path: PathBuf = normal(path);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    (path.parent().map(Path::to_path_buf).unwrap_or_default(), name)
}

pub(super) fn normal(path: &Path) -> PathBuf {
    path.components().filter(|c| !matches!(c, std::path::Component::CurDir)).collect()
}

impl Disk {
    /// An empty disk: the root and the working directory, with nothing in them.
    pub(super) fn new() -> Disk {
        let roots = ["/", ""].map(|path| (PathBuf::from(path), Dir::default()));
        Disk { dirs: roots.into() }
    }

    pub(super) fn has_dir(&self, dir: &Path) -> bool {
        self.dirs.contains_key(&normal(dir))
    }

    /// Creates a directory and its parents; `None` if a file has one of their names.
    pub(super) fn create_dir(&mut self, dir: &Path) -> Option<()> {
        let dir = normal(dir);
        for ancestor in dir.ancestors() {
            if self.find(ancestor).is_some() {
                return None;
            }
            self.dirs.entry(ancestor.to_path_buf()).or_default();
        }
        Some(())
    }

    /// The names of the files of a directory, sorted.
    pub(super) fn names(&self, dir: &Path) -> Option<Vec<String>> {
        self.dirs.get(&normal(dir)).map(|d| d.entries.keys().cloned().collect())
    }

    pub(super) fn find(&self, path: &Path) -> Option<&Inode> {
        let (dir, name) = split(path);
        self.dirs.get(&dir)?.entries.get(&name)
    }

    /// Creates an empty file; `None` if its directory does not exist. The path must be unused.
    pub(super) fn create(&mut self, path: &Path) -> Option<Inode> {
        let (dir, name) = split(path);
        let inode = inode(FileState::durable_file(Arc::default()));
        self.dirs.get_mut(&dir)?.push((name, Some(inode.clone())));
        Some(inode)
    }

    /// Renames within a directory; `None` if there is no such file.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Option<()> {
        let ((dir, from), (_, to)) = (split(from), split(to));
        let dir = self.dirs.get_mut(&dir)?;
        let inode = dir.entries.get(&from)?.clone();
        if from != to {
            dir.push((to, Some(inode)));
        }
        Some(())
    }

    /// Gives the file `from` the name `to`, in another directory. The name must be unused.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Option<()> {
        let inode = self.find(from)?.clone();
        let (dir, name) = split(to);
        self.dirs.get_mut(&dir)?.push((name, Some(inode)));
        Some(())
    }

    /// The number of names of the file.
    pub(super) fn name_count(&self, path: &Path) -> Option<u64> {
        let inode = self.find(path)?;
        let named = self.dirs.values().flat_map(|dir| dir.entries.values());
        Some(named.filter(|other| Arc::ptr_eq(other, inode)).count() as u64)
    }

    pub(super) fn remove(&mut self, path: &Path) -> Option<()> {
        let (dir, name) = split(path);
        let dir = self.dirs.get_mut(&dir)?;
        dir.entries.contains_key(&name).then(|| dir.push((name, None)))
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> Option<()> {
        let dir = self.dirs.get_mut(&normal(dir))?;
        for op in dir.pending.drain(..) {
            apply_dir(&mut dir.durable, &op);
        }
        Some(())
    }

    /// A failed directory sync: see [`FileState::fail_sync`].
    pub(super) fn fail_sync_dir(&mut self, dir: &Path) {
        if let Some(dir) = self.dirs.get_mut(&normal(dir)) {
            dir.pending.clear();
        }
    }

    /// Replaces the content of a file, durably and for open handles too. Creates the file and its directory if
    /// needed.
    pub(super) fn put(&mut self, path: &Path, bytes: Vec<u8>) {
        let (dir, name) = split(path);
        let dir = self.dirs.entry(dir).or_default();
        let content = Arc::new(bytes);
        let file = match dir.entries.get(&name) {
            Some(file) => {
                let mut state = file.lock();
                *state = state.with_content(content);
                file.clone()
            }
            None => inode(FileState::durable_file(content)),
        };
        dir.entries.insert(name.clone(), file.clone());
        dir.durable.insert(name, file);
    }

    /// Removes a file durably, even if its directory has unsynced changes. Returns whether the file existed.
    pub(super) fn erase(&mut self, path: &Path) -> bool {
        let (dir, name) = split(path);
        let Some(dir) = self.dirs.get_mut(&dir) else { return false };
        let Some(gone) = dir.entries.remove(&name) else { return false };
        dir.durable.retain(|_, file| !Arc::ptr_eq(file, &gone));
        dir.pending.retain(|(changed, file)| match file {
            Some(file) => !Arc::ptr_eq(file, &gone),
            None => *changed != name,
        });
        true
    }

    /// The complete paths of all files.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.dirs.iter().flat_map(|(path, dir)| dir.entries.keys().map(move |name| path.join(name))).collect()
    }

    /// Bytes in the files that have a name.
    pub(super) fn used(&self) -> u64 {
        let mut counted = HashSet::new();
        let files = self.dirs.values().flat_map(|d| d.entries.values());
        files.filter(|file| counted.insert(Arc::as_ptr(file))).map(|file| file.lock().len()).sum()
    }

    /// One disk that may survive a power failure. All its content is durable.
    pub(super) fn crash(&self, kind: Survival, seed: u64) -> Disk {
        let mut rng = Rng::new(seed);
        let mut disk = Disk::default();
        // By the file that they are of: a file may have names in several directories.
        let mut files: HashMap<_, Inode> = HashMap::new();
        for (path, dir) in &self.dirs {
            let mut survivors = dir.survivors(kind, &mut rng);
            for file in survivors.values_mut() {
                let survivor = files.entry(Arc::as_ptr(file)).or_insert_with(|| {
                    let found = file.lock();
                    let mut survivor = found.with_content(found.survivor(kind, &mut rng));
                    survivor.allocate(found.allocated_survivor(kind, &mut rng));
                    inode(survivor)
                });
                *file = survivor.clone();
            }
            let dir = Dir { durable: survivors.clone(), entries: survivors, pending: Vec::new() };
            disk.dirs.insert(path.clone(), dir);
        }
        disk
    }

    /// An independent copy of the disk, including its unsynced state.
    pub(super) fn fork(&self) -> Disk {
        let mut copies = HashMap::new();
        let mut copy = |file: &Inode| -> Inode {
            copies.entry(Arc::as_ptr(file)).or_insert_with(|| inode(file.lock().clone())).clone()
        };
        let mut entries = |from: &Entries| from.iter().map(|(n, i)| (n.clone(), copy(i))).collect();
        let mut dirs: BTreeMap<PathBuf, Dir> = BTreeMap::new();
        for (path, dir) in &self.dirs {
            let (now, durable) = (entries(&dir.entries), entries(&dir.durable));
            dirs.insert(path.clone(), Dir { entries: now, durable, pending: Vec::new() });
        }
        for (path, dir) in &self.dirs {
            let ops = dir.pending.iter().map(|(name, file)| (name.clone(), file.as_ref().map(&mut copy)));
            dirs.get_mut(path).expect("inserted above").pending = ops.collect();
        }
        Disk { dirs }
    }
}
