//! Opens databases according to the arguments.

use crate::args::{Bounds, CreateArgs, DEFAULT_KEYSPACE, DbArgs, KeyspaceArgs};
use crate::failure::{Failure, Result};
use cairn::{
    Database, ErrorKind, Keyspace, KeyspaceOptions, Options, Slice, Snapshot, Time, Transaction,
    TransactionRange, TransactionRangeAt, Versions,
};
use std::ops::Bound;
use std::path::Path;

/// What a command creates if it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    /// Whether to create the database.
    pub database: bool,
    /// Which keyspaces to create.
    pub keyspace: NewKeyspace,
}

/// Which keyspaces a command creates if they are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKeyspace {
    /// None.
    Never,
    /// The default keyspace. Another name may be a typing error.
    DefaultOnly,
    /// Any: the user gave `--create`.
    Any,
}

impl Create {
    /// Nothing: database and keyspace must exist.
    pub const NOTHING: Create = Create { database: false, keyspace: NewKeyspace::Never };
}

impl NewKeyspace {
    /// For a command with the flag `--create`.
    pub fn by_flag(create: bool) -> NewKeyspace {
        if create { NewKeyspace::Any } else { NewKeyspace::DefaultOnly }
    }

    fn includes(self, name: &str) -> bool {
        match self {
            NewKeyspace::Never => false,
            NewKeyspace::DefaultOnly => name == DEFAULT_KEYSPACE,
            NewKeyspace::Any => true,
        }
    }

    /// How to create a keyspace that is not included, for an error message.
    fn hint(self) -> &'static str {
        if self == NewKeyspace::DefaultOnly { "; --create creates it" } else { "" }
    }
}

/// A keyspace of an open database.
pub struct Store {
    /// The database.
    pub db: Database,
    /// The keyspace.
    pub keyspace: Keyspace,
}

impl Store {
    /// Opens an existing database and keyspace; creates nothing.
    pub fn open(db: &DbArgs, keyspace: &KeyspaceArgs) -> Result<Store> {
        let db = open_database(db, &CreateArgs::default(), false)?;
        let keyspace = open_keyspace(&db, &keyspace.keyspace, "")?;
        Ok(Store { db, keyspace })
    }

    /// Opens an existing database and keyspace for reading only: another process may have it open.
    pub fn open_to_read(db: &DbArgs, keyspace: &KeyspaceArgs) -> Result<Store> {
        let db = open_to_read(db)?;
        let keyspace = open_keyspace(&db, &keyspace.keyspace, "")?;
        Ok(Store { db, keyspace })
    }

    /// Opens for writing, with durability and options. Creates database and keyspace according to `create`.
    pub fn open_with(
        db: &DbArgs,
        keyspace: &KeyspaceArgs,
        with: &CreateArgs,
        create: Create,
    ) -> Result<Store> {
        let options = keyspace_options(with)?;
        let (name, may_create) = (&keyspace.keyspace, create.keyspace.includes(&keyspace.keyspace));
        if create.database && !may_create && !holds_database(&db.db)? {
            let dir = db.db.display();
            return Err(Failure::usage(format!(
                "{dir}: there is no database, so there is no keyspace {name:?}; --create creates both"
            )));
        }
        let db = open_database(db, with, create.database)?;
        let keyspace = match db.open_keyspace(name) {
            Err(e) if e.kind() == ErrorKind::NotFound && may_create => db.keyspace(name, options.clone())?,
            Err(_) => open_keyspace(&db, name, create.keyspace.hint())?,
            Ok(keyspace) => keyspace,
        };
        if with.names_keyspace_options() && keyspace.options() != options {
            eprintln!(
                "cairn: note: keyspace {:?} exists and keeps its options (`cairn alter` changes them)",
                keyspace.name()
            );
        }
        Ok(Store { db, keyspace })
    }

    /// Closes the database, and returns errors that only closing can report, such as a failed last flush.
    pub fn close(self) -> Result<()> {
        drop(self.keyspace);
        Ok(self.db.close()?)
    }
}

/// Opens the database or creates it. Prints a note if it creates one, because the path may be a typing error.
pub fn open_database(args: &DbArgs, with: &CreateArgs, create: bool) -> Result<Database> {
    let options = database_options(args, with, create)?;
    let is_new = create && !holds_database(&args.db)?;
    // Merge operators of applications are not known here.
    let db = Database::builder().options(options).without_merge_operators().open(&args.db)?;
    if is_new {
        eprintln!("cairn: note: created a database in {}", args.db.display());
    }
    Ok(db)
}

/// Opens an existing database for reading only: another process may have it open. Changes nothing on disk.
pub fn open_to_read(args: &DbArgs) -> Result<Database> {
    let options = database_options(args, &CreateArgs::default(), false)?;
    let builder = Database::builder().options(options).without_merge_operators();
    match builder.open_read_only(&args.db) {
        // The file system has no locks that readers need. With the lock of the directory no other process writes.
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            let opened = open_database(args, &CreateArgs::default(), false);
            // Or what is there cannot be read by this program at all, which is all that its user needs to know.
            opened.map_err(|failure| if failure.is_locked() { failure.because(&e) } else { failure })
        }
        opened => Ok(opened?),
    }
}

/// Opens an existing keyspace. If there is none of this name, the error lists those there are and ends with `hint`.
pub fn open_keyspace(db: &Database, name: &str, hint: &str) -> Result<Keyspace> {
    db.open_keyspace(name).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::usage(format!(
            "there is no keyspace {name:?}; the database has {}{hint}",
            listed(db.keyspaces())
        )),
        _ => error.into(),
    })
}

/// The first names in order, for a message.
fn listed(mut names: Vec<String>) -> String {
    const MAX_LISTED: usize = 10;
    names.sort();
    let shown: Vec<String> = names.iter().take(MAX_LISTED).map(|name| format!("{name:?}")).collect();
    match names.len() {
        0 => "no keyspaces".to_string(),
        all if all > MAX_LISTED => format!("{} and {} more", shown.join(", "), all - MAX_LISTED),
        _ => shown.join(", "),
    }
}

/// Whether a directory has a database or the remains of one. Fails if the directory has only other files, since the
/// user hardly meant to create a database among them.
pub fn holds_database(dir: &Path) -> Result<bool> {
    let names = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        names => names.map_err(|e| Failure::file("read", dir, &e))?,
    };
    let mut others = false;
    for name in names {
        let name = name.map_err(|e| Failure::file("read", dir, &e))?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("manifest-") || name.ends_with(".tbl") || name.starts_with("wal-") {
            return Ok(true);
        }
        // A database whose creation was interrupted has only a lock file.
        others |= name != "LOCK";
    }
    match others {
        false => Ok(false),
        true => Err(Failure::usage(format!(
            "{}: there is no database, and the directory has other files: name an empty or new directory",
            dir.display()
        ))),
    }
}

/// The options of the database: from its arguments and `--set`.
pub fn database_options(args: &DbArgs, with: &CreateArgs, create: bool) -> Result<Options> {
    let mut options = Options::default().create_if_missing(create);
    if let Some(bytes) = args.memory_budget {
        options.memory_budget = bytes;
    }
    if let Some(durability) = with.durability {
        options.durability = durability;
    }
    for (name, value) in with.settings()?.filter(|(name, _)| is_database_option(name)) {
        options.set(name, value)?;
    }
    options.validate()?;
    Ok(options)
}

/// The options of a new keyspace: the preset with the changes of `--set`.
pub fn keyspace_options(with: &CreateArgs) -> Result<KeyspaceOptions> {
    let settings = with.settings()?.filter(|(name, _)| !is_database_option(name));
    with_settings(KeyspaceOptions::preset(with.preset.unwrap_or_default()), settings)
}

fn with_settings<'a>(
    mut options: KeyspaceOptions,
    settings: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<KeyspaceOptions> {
    for (name, value) in settings {
        options
            .set(name, value)
            .map_err(|e| Failure::from(e).context("--set (`cairn options` lists the options)"))?;
    }
    Ok(options)
}

/// The options of a keyspace with the changes of `--set`.
pub fn altered(options: KeyspaceOptions, set: &[String]) -> Result<KeyspaceOptions> {
    with_settings(options, split_settings(set)?)
}

/// `NAME=VALUE` of `--set`, split.
fn split_settings(set: &[String]) -> Result<impl Iterator<Item = (&str, &str)>> {
    if let Some(bad) = set.iter().find(|s| !s.contains('=')) {
        return Err(Failure::usage(format!("--set {bad}: write NAME=VALUE")));
    }
    Ok(set.iter().filter_map(|s| s.split_once('=')).map(|(name, value)| (name.trim(), value.trim())))
}

fn is_database_option(name: &str) -> bool {
    Options::specs().iter().any(|spec| spec.name == name)
}

impl CreateArgs {
    /// `--set NAME=VALUE`, split.
    fn settings(&self) -> Result<impl Iterator<Item = (&str, &str)>> {
        split_settings(&self.set)
    }

    fn names_keyspace_options(&self) -> bool {
        let named = |s: &String| s.split_once('=').is_some_and(|(name, _)| !is_database_option(name.trim()));
        self.preset.is_some() || self.set.iter().any(named)
    }
}

/// Records or versions inside bounds, in their direction.
pub struct Directed<I> {
    /// `None` if the bounds are empty.
    range: Option<I>,
    reverse: bool,
    left: u64,
}

/// Records, as keys and values.
pub type Entries = Directed<Found>;

/// What has records, in both directions.
type Found = Box<dyn DoubleEndedIterator<Item = cairn::Result<(Slice, Slice)>>>;

/// The present records of a keyspace.
pub fn entries(keyspace: &Keyspace, bounds: &Bounds) -> Entries {
    match is_all_of_unordered(keyspace, bounds) {
        true => Entries::new(bounds, |_| Box::new(Unordered(keyspace.entries()))),
        false => Entries::new(bounds, |ends| Box::new(keyspace.range::<Vec<u8>>(ends))),
    }
}

/// Whether all records of a keyspace without order are asked for, which it can show. It refuses the rest.
fn is_all_of_unordered(keyspace: &Keyspace, bounds: &Bounds) -> bool {
    let all = matches!((&bounds.lower, &bounds.upper), (Bound::Unbounded, Bound::Unbounded));
    keyspace.options().engine == cairn::Engine::HashLog && all && !bounds.reverse
}

/// The records of a keyspace without order, which are never read from the end.
struct Unordered(cairn::Entries);

impl Iterator for Unordered {
    type Item = cairn::Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl DoubleEndedIterator for Unordered {
    fn next_back(&mut self) -> Option<Self::Item> {
        unreachable!("a reverse scan is one of a range, which is refused")
    }
}

/// A record with its expiry, if it has one.
pub type Expiring = (Slice, Slice, Option<Time>);

/// The present records of a keyspace, with their expiries.
pub fn entries_with_expiry(
    keyspace: &Keyspace,
    bounds: &Bounds,
) -> Box<dyn Iterator<Item = cairn::Result<Expiring>>> {
    if bounds.is_empty() {
        return Box::new(std::iter::empty());
    }
    if !is_all_of_unordered(keyspace, bounds) {
        let ends = (bounds.lower.clone(), bounds.upper.clone());
        let cursor = keyspace.cursor_bounded::<Vec<u8>>(ends);
        return Box::new(ByCursor { cursor, reverse: bounds.reverse, left: bounds.limit, begun: false });
    }
    let by_key = keyspace.clone();
    let with_expiry = move |entry: cairn::Result<(Slice, Slice)>| {
        let found = entry.and_then(|(key, _)| {
            let found = by_key.get_with_expiry(&key)?;
            Ok(found.map(|(value, expiry)| (key, value, expiry)))
        });
        // It may have expired since.
        found.transpose()
    };
    Box::new(entries(keyspace, bounds).filter_map(with_expiry))
}

/// The records of a cursor, with their expiries.
struct ByCursor {
    cursor: cairn::Cursor,
    reverse: bool,
    left: u64,
    begun: bool,
}

impl ByCursor {
    fn step(&mut self) -> cairn::Result<()> {
        match (std::mem::replace(&mut self.begun, true), self.reverse) {
            (false, false) => self.cursor.seek_to_first(),
            (false, true) => self.cursor.seek_to_last(),
            (true, false) => self.cursor.next(),
            (true, true) => self.cursor.prev(),
        }
    }
}

impl Iterator for ByCursor {
    type Item = cairn::Result<Expiring>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        if let Err(e) = self.step() {
            self.left = 0;
            return Some(Err(e));
        }
        if !self.cursor.valid() {
            self.left = 0;
            return None;
        }
        let (key, value) = (Slice::copy_from(self.cursor.key()), self.cursor.value_slice());
        Some(Ok((key, value, self.cursor.expiry())))
    }
}

/// The records of a keyspace at a snapshot.
pub fn entries_of_snapshot(snapshot: &Snapshot, keyspace: &Keyspace, bounds: &Bounds) -> Entries {
    match is_all_of_unordered(keyspace, bounds) {
        true => Entries::new(bounds, |_| Box::new(Unordered(snapshot.entries(keyspace)))),
        false => Entries::new(bounds, |ends| Box::new(snapshot.range::<Vec<u8>>(keyspace, ends))),
    }
}

/// The records of a keyspace as a transaction sees them.
pub fn entries_in<'a>(
    transaction: &'a Transaction,
    keyspace: &Keyspace,
    bounds: &Bounds,
) -> Directed<TransactionRange<'a>> {
    Directed::new(bounds, |ends| transaction.range::<Vec<u8>>(keyspace, ends))
}

/// The records of a keyspace with history as of a time.
pub fn entries_at(keyspace: &Keyspace, time: Time, bounds: &Bounds) -> cairn::Result<Entries> {
    let found = keyspace.range_at::<Vec<u8>>(time, (bounds.lower.clone(), bounds.upper.clone()))?;
    let entries = found.map(|found| found.map(|entry| (entry.key, entry.value)));
    Ok(Entries::new(bounds, |_| Box::new(entries)))
}

/// The same as a transaction sees them.
pub fn entries_in_at<'a>(
    transaction: &'a Transaction,
    keyspace: &Keyspace,
    time: Time,
    bounds: &Bounds,
) -> cairn::Result<Directed<TransactionRangeAt<'a>>> {
    let ends = (bounds.lower.clone(), bounds.upper.clone());
    let found = transaction.range_at::<Vec<u8>>(keyspace, time, ends)?;
    Ok(Directed::new(bounds, |_| found))
}

/// All versions of a keyspace with history.
pub fn versions(keyspace: &Keyspace, bounds: &Bounds) -> cairn::Result<Directed<Versions>> {
    let versions = keyspace.changes::<Vec<u8>>((bounds.lower.clone(), bounds.upper.clone()), ..)?;
    Ok(Directed::new(bounds, |_| versions))
}

impl<I> Directed<I> {
    fn new(bounds: &Bounds, range: impl FnOnce((Bound<Vec<u8>>, Bound<Vec<u8>>)) -> I) -> Directed<I> {
        let ends = || (bounds.lower.clone(), bounds.upper.clone());
        Directed {
            range: (!bounds.is_empty()).then(|| range(ends())),
            reverse: bounds.reverse,
            left: bounds.limit,
        }
    }
}

impl<I: DoubleEndedIterator> Iterator for Directed<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let range = self.range.as_mut()?;
        if self.reverse { range.next_back() } else { range.next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &[&str]) -> CreateArgs {
        CreateArgs { set: settings.iter().map(|s| s.to_string()).collect(), ..CreateArgs::default() }
    }

    #[test]
    fn set_reaches_database_and_keyspace() {
        let with = set(&["block_size=8192", "background_threads = 1"]);
        assert_eq!(keyspace_options(&with).unwrap().block_size, 8192);
        let args = DbArgs { db: "x".into(), memory_budget: Some(64 << 20) };
        let options = database_options(&args, &with, false).unwrap();
        assert_eq!(
            (options.background_threads, options.memory_budget, options.create_if_missing),
            (1, 64 << 20, false)
        );
        assert!(with.names_keyspace_options() && !set(&["create_if_missing=true"]).names_keyspace_options());
    }

    #[test]
    fn a_long_list_of_keyspaces_is_cut() {
        let names = |count: usize| (0..count).rev().map(|n| format!("k{n:02}")).collect::<Vec<_>>();
        assert_eq!(listed(Vec::new()), "no keyspaces");
        assert_eq!(listed(names(2)), "\"k00\", \"k01\"");
        assert!(listed(names(10)).ends_with("\"k09\""));
        assert!(listed(names(12)).ends_with("\"k09\" and 2 more"));
    }

    #[test]
    fn wrong_settings_are_named() {
        assert!(keyspace_options(&set(&["block_size"])).unwrap_err().to_string().contains("NAME=VALUE"));
        assert!(keyspace_options(&set(&["blok=1"])).unwrap_err().to_string().contains("blok"));
        assert!(keyspace_options(&set(&["block_size=7"])).unwrap_err().to_string().contains("block_size"));
    }
}
