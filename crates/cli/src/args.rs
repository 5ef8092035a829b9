//! Groups of arguments that several commands share, and what they mean: directories, keyspaces, bounds, forms of output.

use crate::failure;
use crate::text::{parse_size, unhex};
use crate::types::{KeyType, ValueType};
use std::ffi::OsString;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// The database.
#[derive(Clone, Debug, clap::Args)]
pub struct DbArgs {
    /// Directory of the database
    #[arg(long, value_name = "DIR", env = "CAIRN_DB", hide_env_values = true)]
    pub db: PathBuf,
    /// Memory for memtables and the block cache together, such as 64MiB or 1G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_budget: Option<u64>,
}

/// The database, for commands without other arguments: an argument, `--db` or the environment variable.
#[derive(Clone, Debug, clap::Args)]
pub struct DirArgs {
    /// Directory of the database
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// The same directory
    #[arg(long, value_name = "DIR", env = "CAIRN_DB", hide_env_values = true)]
    db: Option<PathBuf>,
}

impl DirArgs {
    /// The directory. The argument wins over the option, which may come from the environment.
    pub fn path(&self) -> failure::Result<&Path> {
        let no_path = || {
            failure::Failure::usage(
                "no database named: give its directory as an argument, as --db DIR, or in CAIRN_DB",
            )
        };
        self.path.as_deref().or(self.db.as_deref()).ok_or_else(no_path)
    }
}

/// The keyspace.
#[derive(Clone, Debug, clap::Args)]
pub struct KeyspaceArgs {
    /// Name of the keyspace
    #[arg(short, long, value_name = "NAME", default_value = DEFAULT_KEYSPACE)]
    pub keyspace: String,
}

/// The keyspace of commands that name none.
pub const DEFAULT_KEYSPACE: &str = "default";

/// Permission to create the keyspace, for commands that create a missing database.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct NewKeyspaceArgs {
    /// Create the keyspace if it does not exist; only the keyspace `default` is created without this
    #[arg(long = "create")]
    pub create_keyspace: bool,
}

/// Options for writing to a database and for creating a keyspace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CreateArgs {
    /// What an acknowledged write survives: buffered (nothing), os (the end of the process) or sync (a power failure)
    #[arg(long, value_name = "D")]
    pub durability: Option<cairn::Durability>,
    /// Option preset of a new keyspace: balanced, pebblesdb, leveled, parallax, mneme, hash_log or sstable
    #[arg(long, value_name = "PRESET")]
    pub preset: Option<cairn::Preset>,
    /// Set an option (repeatable); `cairn options` lists them. Options of a keyspace apply only when it is created
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

/// The form of keys and values in input and output.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct FormArgs {
    /// Print JSON: one object per line
    #[arg(long)]
    pub json: bool,
    /// Keys and values are hexadecimal, in arguments and output
    #[arg(long)]
    pub hex: bool,
}

/// The types of keys and values, for keyspaces of typed keys or values.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TypeArgs {
    /// Type of the keys: u64, i64, u32, i32, f64, f32, bool, char, string or bytes, or several with commas between them for keys of several elements,
    /// which have commas between them, too. Text has the escapes that `scan` prints, and `\,` for a comma
    #[arg(long, value_name = "TYPES", conflicts_with = "hex")]
    pub key_type: Option<KeyType>,
    /// Type of the values
    #[arg(long = "type", value_name = "TYPE", value_enum, conflicts_with = "hex")]
    pub value_type: Option<ValueType>,
}

impl TypeArgs {
    /// The bytes of a key that is an argument.
    pub fn key(&self, argument: &OsString, hex: bool) -> failure::Result<Vec<u8>> {
        match &self.key_type {
            Some(types) => {
                let named = |f: failure::Failure| f.context(format!("key {}", argument.display()));
                types.encode(argument.as_encoded_bytes(), false).map_err(named)
            }
            None => bytes_of(argument, hex),
        }
    }

    /// The bytes of a bound: the first elements of a key are one, too.
    fn bound(&self, argument: &OsString, hex: bool) -> failure::Result<Vec<u8>> {
        match &self.key_type {
            Some(types) => types.encode(argument.as_encoded_bytes(), true),
            None => bytes_of(argument, hex),
        }
    }

    /// The bytes of a value that is an argument.
    pub fn value(&self, argument: &OsString, hex: bool) -> failure::Result<Vec<u8>> {
        match self.value_type {
            Some(value_type) => {
                let named = |f: failure::Failure| f.context(format!("value {}", argument.display()));
                value_type.encode_argument(argument.as_encoded_bytes()).map_err(named)
            }
            None => bytes_of(argument, hex),
        }
    }
}

/// A part of a keyspace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BoundsArgs {
    /// First key (inclusive)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub from: Option<OsString>,
    /// End key (exclusive)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub to: Option<OsString>,
    /// Only keys with this prefix
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    pub prefix: Option<OsString>,
    /// Maximum number of records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// In descending order of keys
    #[arg(long)]
    pub reverse: bool,
}

/// The bytes of an argument, decoded from hexadecimal if `hex`.
pub fn bytes_of(argument: &OsString, hex: bool) -> failure::Result<Vec<u8>> {
    let bytes = argument.as_encoded_bytes();
    match hex {
        true => unhex(bytes).map_err(failure::Failure::usage),
        false => Ok(bytes.to_vec()),
    }
}

/// A part of the key space: both ends, a limit and a direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// The lower bound.
    pub lower: Bound<Vec<u8>>,
    /// The upper bound.
    pub upper: Bound<Vec<u8>>,
    /// Maximum number of records.
    pub limit: u64,
    /// Descending order.
    pub reverse: bool,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded, limit: u64::MAX, reverse: false }
    }
}

impl Bounds {
    /// Restricts to keys from `key` on.
    pub fn from(&mut self, key: Vec<u8>) {
        let higher = match &self.lower {
            Bound::Included(lower) => key > *lower,
            _ => true,
        };
        if higher {
            self.lower = Bound::Included(key);
        }
    }

    /// Restricts to keys before `key`.
    pub fn to(&mut self, key: Vec<u8>) {
        let lower = match &self.upper {
            Bound::Excluded(upper) => key < *upper,
            _ => true,
        };
        if lower {
            self.upper = Bound::Excluded(key);
        }
    }

    /// Restricts to keys that start with `prefix`.
    pub fn prefix(&mut self, prefix: Vec<u8>) {
        if let Some(end) = prefix_end(&prefix) {
            self.to(end);
        }
        self.from(prefix);
    }

    /// Whether no key can lie inside.
    pub fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Excluded(upper)) => lower >= upper,
            _ => false,
        }
    }
}

/// The smallest key above all keys that start with `prefix`; `None` if there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

impl BoundsArgs {
    /// The bounds, with keys decoded according to `hex`.
    pub fn bounds(&self, hex: bool) -> failure::Result<Bounds> {
        self.typed_bounds(&TypeArgs::default(), hex)
    }

    /// The bounds, with keys of some types.
    pub fn typed_bounds(&self, types: &TypeArgs, hex: bool) -> failure::Result<Bounds> {
        let mut bounds =
            Bounds { limit: self.limit.unwrap_or(u64::MAX), reverse: self.reverse, ..Bounds::default() };
        let named = |name: &'static str| move |f: failure::Failure| f.context(name);
        if let Some(key) = &self.from {
            bounds.from(types.bound(key, hex).map_err(named("--from"))?);
        }
        if let Some(key) = &self.to {
            bounds.to(types.bound(key, hex).map_err(named("--to"))?);
        }
        if let Some(prefix) = &self.prefix {
            let bytes = match &types.key_type {
                Some(types) => types.encode_prefix(prefix.as_encoded_bytes()),
                None => bytes_of(prefix, hex),
            };
            bounds.prefix(bytes.map_err(named("--prefix"))?);
        }
        Ok(bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(from: &str, to: &str, prefix: &str) -> Bounds {
        let some = |s: &str| (!s.is_empty()).then(|| OsString::from(s));
        BoundsArgs { from: some(from), to: some(to), prefix: some(prefix), ..BoundsArgs::default() }
            .bounds(false)
            .unwrap()
    }

    #[test]
    fn bounds_narrow_each_other() {
        let b = bounds("b", "y", "m");
        assert_eq!((b.lower, b.upper), (Bound::Included(b"m".to_vec()), Bound::Excluded(b"n".to_vec())));
        let b = bounds("m5", "m7", "m");
        assert_eq!((b.lower, b.upper), (Bound::Included(b"m5".to_vec()), Bound::Excluded(b"m7".to_vec())));
        assert!(bounds("n", "", "m").is_empty() && bounds("b", "a", "").is_empty());
        assert!(!bounds("", "a", "").is_empty());
    }

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
