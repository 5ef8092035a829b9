//! Options as text, and names of keyspaces.

use crate::Source;
use base::ErrorKind;
use cairn::{Database, KeyspaceOptions, Options};
use env::SimEnv;
use std::path::Path;

/// The common interface of both kinds of options.
trait Table: Clone + PartialEq + std::fmt::Debug {
    fn names() -> Vec<&'static str>;
    fn set(&mut self, name: &str, value: &str) -> cairn::Result<()>;
    fn pairs(&self) -> Vec<(&'static str, String)>;
    fn validate(&self) -> cairn::Result<()>;
}

macro_rules! table {
    ($type:ty) => {
        impl Table for $type {
            fn names() -> Vec<&'static str> {
                <$type>::specs().iter().map(|spec| spec.name).collect()
            }
            fn set(&mut self, name: &str, value: &str) -> cairn::Result<()> {
                <$type>::set(self, name, value)
            }
            fn pairs(&self) -> Vec<(&'static str, String)> {
                self.to_pairs()
            }
            fn validate(&self) -> cairn::Result<()> {
                <$type>::validate(self)
            }
        }
    };
}
table!(Options);
table!(KeyspaceOptions);

/// Sets options from text: a byte selects the name, or says that the name follows; then comes the value.
pub(crate) fn options(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    match source.u8() & 1 {
        0 => set_all(KeyspaceOptions::default(), &mut source),
        _ => set_all(Options::default(), &mut source),
    }
}

fn set_all<T: Table>(mut options: T, source: &mut Source<'_>) -> bool {
    let names = T::names();
    let mut accepted = false;
    while !source.is_empty() {
        let choice = usize::from(source.u8());
        let spelled = String::from_utf8_lossy(if choice < 200 { b"" } else { source.bytes() });
        let name = if choice < 200 { names[choice % names.len()] } else { &spelled };
        let value = String::from_utf8_lossy(source.bytes());
        let before = options.clone();
        match options.set(name, &value) {
            Ok(()) => {
                accepted = true;
                options.validate().expect("an accepted value is valid");
            }
            Err(error) => {
                assert!(error.kind() == ErrorKind::InvalidArgument);
                assert!(error.to_string().contains(&format!("{name:?}")) || error.to_string().contains(name));
                assert_eq!(options, before, "a rejected value changes nothing");
            }
        }
        assert!(names.contains(&name) || options == before);
    }
    // The manifest stores options in this text form.
    let pairs = options.pairs();
    for (name, value) in &pairs {
        options.set(name, value).expect("the text of an option can be read");
    }
    assert_eq!(options.pairs(), pairs);
    accepted
}

/// Names of keyspaces, one after the other: each is created or rejected, and all created ones exist after a reopen.
pub(crate) fn keyspace_name(data: &[u8]) -> bool {
    let sim = SimEnv::new(1);
    let path = Path::new("/db");
    let options = Options::default().background_threads(0).memory_budget(1 << 20);
    let db = Database::open_in(sim.clone(), path, options.clone()).expect("the disk works");
    let mut names: Vec<String> = Vec::new();
    for name in String::from_utf8_lossy(data).split('\n').take(8) {
        match db.create_keyspace(name, KeyspaceOptions::default().memtable_bytes(4096)) {
            Ok(keyspace) => {
                assert!((1..=255).contains(&name.len()) && !names.iter().any(|known| known == name));
                keyspace.put("key", name).expect("the disk works");
                names.push(name.to_owned());
            }
            Err(error) => match error.kind() {
                ErrorKind::InvalidArgument => assert!(name.is_empty() || name.len() > 255),
                ErrorKind::AlreadyExists => assert!(names.iter().any(|known| known == name)),
                _ => panic!("{name:?}: {error:?}"),
            },
        }
    }
    names.sort_unstable();
    assert_eq!(db.keyspaces(), names);
    db.close().expect("the disk works");
    // Keyspace names are data and never become file names.
    for file in sim.list_files() {
        let file = file.to_string_lossy().into_owned();
        let ours = file.starts_with("/db/") && !file[4..].contains('/');
        assert!(ours && file.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-.".contains(&b)), "{file}");
    }
    let db = Database::open_in(sim, path, options).expect("it was closed");
    assert_eq!(db.keyspaces(), names);
    for name in &names {
        let keyspace = db.open_keyspace(name).expect("it was created");
        assert_eq!(keyspace.get("key").expect("the disk works").as_deref(), Some(name.as_bytes()));
    }
    !names.is_empty()
}
