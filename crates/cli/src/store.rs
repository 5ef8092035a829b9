//! Opens databases according to the arguments.

use crate::args::{Bounds, CreateArgs, DbArgs, KeyspaceArgs};
use crate::failure::{Failure, Result};
use cairn::{Database, Keyspace, KeyspaceOptions, Options, Slice, Snapshot};
use std::ops::Bound;
use std::path::Path;

/// What a command creates if it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Nothing: database and keyspace must exist.
    Nothing,
    /// The keyspace; the database must exist.
    Keyspace,
    /// Database and keyspace.
    Database,
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
        let db = open_database(db, &CreateArgs::default(), Create::Nothing)?;
        let keyspace = db.open_keyspace(&keyspace.keyspace)?;
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
        let db = open_database(db, with, create)?;
        let keyspace = match create {
            Create::Nothing => db.open_keyspace(&keyspace.keyspace)?,
            Create::Keyspace | Create::Database => db.keyspace(&keyspace.keyspace, options.clone())?,
        };
        if with.names_keyspace_options() && *keyspace.options() != options {
            eprintln!(
                "cairn: note: keyspace {:?} exists and keeps the options that it was created with",
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
pub fn open_database(args: &DbArgs, with: &CreateArgs, create: Create) -> Result<Database> {
    let options = database_options(args, with, create == Create::Database)?;
    let is_new = create == Create::Database && !holds_database(&args.db)?;
    let db = Database::open_with(&args.db, options)?;
    if is_new {
        eprintln!("cairn: note: created a database in {}", args.db.display());
    }
    Ok(db)
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
    let mut options = Options::default().create(create);
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
    let mut options = KeyspaceOptions::preset(with.preset.unwrap_or_default());
    for (name, value) in with.settings()?.filter(|(name, _)| !is_database_option(name)) {
        options
            .set(name, value)
            .map_err(|e| Failure::from(e).context("--set (`cairn options` lists the options)"))?;
    }
    Ok(options)
}

fn is_database_option(name: &str) -> bool {
    Options::specs().iter().any(|spec| spec.name == name)
}

impl CreateArgs {
    /// `--set NAME=VALUE`, split.
    fn settings(&self) -> Result<impl Iterator<Item = (&str, &str)>> {
        if let Some(bad) = self.set.iter().find(|s| !s.contains('=')) {
            return Err(Failure::usage(format!("--set {bad}: write NAME=VALUE")));
        }
        Ok(self.set.iter().filter_map(|s| s.split_once('=')).map(|(name, value)| (name.trim(), value.trim())))
    }

    fn names_keyspace_options(&self) -> bool {
        let named = |s: &String| s.split_once('=').is_some_and(|(name, _)| !is_database_option(name.trim()));
        self.preset.is_some() || self.set.iter().any(named)
    }
}

/// The records inside bounds, in their direction.
pub struct Entries {
    /// `None` if the bounds are empty.
    range: Option<cairn::Range>,
    reverse: bool,
    left: u64,
}

impl Entries {
    /// The present records of a keyspace.
    pub fn of(keyspace: &Keyspace, bounds: &Bounds) -> Entries {
        Entries::new(bounds, |ends| keyspace.range::<Vec<u8>>(ends))
    }

    /// The records of a keyspace at a snapshot.
    pub fn of_snapshot(snapshot: &Snapshot, keyspace: &Keyspace, bounds: &Bounds) -> Entries {
        Entries::new(bounds, |ends| snapshot.range::<Vec<u8>>(keyspace, ends))
    }

    fn new(bounds: &Bounds, range: impl FnOnce((Bound<Vec<u8>>, Bound<Vec<u8>>)) -> cairn::Range) -> Entries {
        let ends = || (bounds.lower.clone(), bounds.upper.clone());
        Entries {
            range: (!bounds.is_empty()).then(|| range(ends())),
            reverse: bounds.reverse,
            left: bounds.limit,
        }
    }
}

impl Iterator for Entries {
    type Item = cairn::Result<(Slice, Slice)>;

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
        assert_eq!((options.background_threads, options.memory_budget, options.create), (1, 64 << 20, false));
        assert!(with.names_keyspace_options() && !set(&["create=true"]).names_keyspace_options());
    }

    #[test]
    fn wrong_settings_are_named() {
        assert!(keyspace_options(&set(&["block_size"])).unwrap_err().to_string().contains("NAME=VALUE"));
        assert!(keyspace_options(&set(&["blok=1"])).unwrap_err().to_string().contains("blok"));
        assert!(keyspace_options(&set(&["block_size=7"])).unwrap_err().to_string().contains("block_size"));
    }
}
