//! Runs the statements of the shell.

use super::interrupt;
use super::parse::{Lives, Show, Statement};
use crate::args::Bounds;
use crate::commands::condition::Condition;
use crate::commands::history::version_line;
use crate::commands::keyspaces::size_in_words;
use crate::commands::{copies, stats};
use crate::draw;
use crate::failure::{Failure, Result};
use crate::output::{Form, Parts, Printer, json_field};
use crate::store::{
    Store, entries, entries_at, entries_in, entries_in_at, entries_of_snapshot, open_keyspace,
};
use crate::text::{escape_short, human_bytes};
use crate::times::format_expiry;
use cairn::{Database, Keyspace, KeyspaceOptions, Slice, Snapshot, Time, Transaction, Version};
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Bound;
use std::path::Path;
use std::time::Instant;

const HELP: &str = "\
  put KEY VALUE [KEY VALUE]...    store values; several at once are stored together or not at all
  merge KEY OPERAND [KEY OPERAND]...   join operands to values, with the merge operator of the keyspace
  cas KEY CURRENT|none NEW|none   set or delete a key if it has this value, or none (a value `none` is quoted)
  get KEY...                      print values
  del KEY...                      delete keys
  ttl DURATION put ..., until TIME put ...    store values that expire (7d, 12h, 30min, 10s, 500ms)
  expiry KEY...                   print when records expire, or `never`
  delrange [FROM [TO]] [prefix P] delete all keys in a range, as one write
  scan [FROM [TO]] [prefix P] [limit N] [reverse] [keys|values]
  count [FROM [TO]] [prefix P]
  begin, commit, rollback         a transaction: reads see one state and its own writes; then it writes all or none
  snapshot NAME, release NAME     keep the present state under a name, release it
  at NAME get|scan|count|history ...      read at a snapshot
  history KEY [from TIME] [to TIME] [limit N] [reverse]    the versions of a key, in a keyspace with history
  at TIME get|scan|count|put|del ...      read or write as of a time, in a keyspace with history
  .keyspaces  .use NAME  .create NAME [OPTION=VALUE]...  .drop NAME
  .rename OLD NEW  .clone NAME NEW  .alter OPTION=VALUE...     (of the keyspace in use)
  .checkpoint DIR  .backup DIR        a second database of this moment; a new generation of a backup
  .size  .stats  .guards  .flush  .compact  .rewrite
  .snapshots  .mode text|hex|json  .timer on|off  .help  .quit
Times are RFC 3339 (2026-11-25T10:00:00Z), relative to now (-2h, -90s) or microseconds since 1970.
Words may be \"quoted\\n\" with escapes, 'quoted' without, or x'00ff' in hexadecimal; a ; separates statements.";

/// The commands that start with a dot, for completion.
pub const DOTS: [&str; 21] = [
    ".help",
    ".keyspaces",
    ".use",
    ".create",
    ".drop",
    ".rename",
    ".clone",
    ".alter",
    ".checkpoint",
    ".backup",
    ".size",
    ".stats",
    ".guards",
    ".flush",
    ".compact",
    ".rewrite",
    ".snapshots",
    ".mode",
    ".timer",
    ".quit",
    ".exit",
];

/// Puts, and deletes, which have no value.
type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// What a statement reads.
enum When {
    /// The present state, or that which the open transaction sees.
    Now,
    /// A snapshot.
    Snapshot(Snapshot),
    /// The versions of a time, with those of the open transaction.
    At(Time),
}

/// What the shell does after a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Run the next statement.
    GoOn,
    /// A requested key does not exist; run the next statement.
    Missing,
    /// `.quit`
    Quit,
}

/// An open database, and the state of the shell.
pub struct Session {
    store: Store,
    form: Form,
    timer: bool,
    transaction: Option<Transaction>,
    snapshots: BTreeMap<String, Snapshot>,
}

impl Session {
    /// A session on an open keyspace.
    pub fn new(store: Store, form: Form) -> Session {
        Session { store, form, timer: false, transaction: None, snapshots: BTreeMap::new() }
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.store.db
    }

    /// The keyspace in use.
    pub fn keyspace(&self) -> &Keyspace {
        &self.store.keyspace
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Closes the database. Drops uncommitted writes and returns their number.
    pub fn close(self) -> Result<usize> {
        let forgotten = self.transaction.map_or(0, |transaction| transaction.len());
        drop(self.snapshots);
        self.store.close()?;
        Ok(forgotten)
    }

    /// Runs a statement.
    pub fn run(&mut self, out: &mut impl Write, statement: Statement) -> Result<Then> {
        let started = Instant::now();
        let then = self.execute(out, statement)?;
        if self.timer {
            writeln!(out, "({:.3} ms)", started.elapsed().as_secs_f64() * 1e3)?;
        }
        out.flush()?;
        Ok(then)
    }

    fn execute(&mut self, out: &mut impl Write, statement: Statement) -> Result<Then> {
        match statement {
            Statement::Put(pairs, lives) => self.put(&pairs, lives)?,
            Statement::Merge(pairs) => self.merge(&pairs)?,
            Statement::Delete(keys) => self.delete(&keys)?,
            Statement::Swap(key, current, new) => return self.swap(out, &key, current, new),
            Statement::Expiry(keys) => return self.expiry(out, &keys),
            Statement::DeleteRange(bounds) => {
                let (keyspace, range) = (&self.store.keyspace, (bounds.lower, bounds.upper));
                match &mut self.transaction {
                    Some(transaction) => transaction.delete_range::<Vec<u8>>(keyspace, range)?,
                    None => keyspace.delete_range::<Vec<u8>>(range)?,
                }
            }
            Statement::Get(keys) => return self.get(out, &keys, &When::Now),
            Statement::Scan(bounds, show) => self.scan(out, &bounds, show, &When::Now)?,
            Statement::History(key, window) => match &self.transaction {
                Some(transaction) => {
                    let versions = transaction.history(self.keyspace(), key, window.times())?;
                    self.history(out, window.of(versions))?;
                }
                None => {
                    let versions = self.keyspace().history(key, window.times())?;
                    self.history(out, window.of(versions))?;
                }
            },
            Statement::AtTime(time, of) => match *of {
                Statement::Get(keys) => return self.get(out, &keys, &When::At(time)),
                Statement::Scan(bounds, show) => self.scan(out, &bounds, show, &When::At(time))?,
                Statement::Put(..) | Statement::Delete(_) if self.in_transaction() => {
                    let what = "at TIME put|del: not allowed between begin and commit";
                    return Err(Failure::bad_input(what));
                }
                Statement::Put(pairs, _) => {
                    self.write_at(time, pairs.into_iter().map(|(k, v)| (k, Some(v))).collect())?;
                }
                Statement::Delete(keys) => {
                    self.write_at(time, keys.into_iter().map(|k| (k, None)).collect())?
                }
                _ => unreachable!("the parser lets only these through"),
            },
            Statement::AtSnapshot(name, read) => {
                let snapshot = self.snapshots.get(&name).cloned();
                let snapshot =
                    snapshot.ok_or_else(|| Failure::bad_input(format!("there is no snapshot {name:?}")))?;
                match *read {
                    Statement::Get(keys) => return self.get(out, &keys, &When::Snapshot(snapshot)),
                    Statement::Scan(bounds, show) => {
                        self.scan(out, &bounds, show, &When::Snapshot(snapshot))?
                    }
                    Statement::History(key, window) => {
                        let versions = snapshot.history(self.keyspace(), key, window.times())?;
                        self.history(out, window.of(versions))?;
                    }
                    _ => unreachable!("the parser lets only reads through"),
                }
            }
            Statement::Begin if self.in_transaction() => {
                return Err(Failure::bad_input("begin: a transaction is open; commit or rollback first"));
            }
            Statement::Begin => self.transaction = Some(self.store.db.begin()),
            Statement::Commit => {
                let open = self.transaction.take();
                open.ok_or_else(|| Failure::bad_input("commit: no transaction is open"))?.commit()?;
            }
            Statement::Rollback => {
                let open = self.transaction.take();
                open.ok_or_else(|| Failure::bad_input("rollback: no transaction is open"))?.rollback();
            }
            Statement::Snapshot(name) => {
                self.snapshots.insert(name, self.store.db.snapshot());
            }
            Statement::Release(name) => {
                let held = self.snapshots.remove(&name);
                held.ok_or_else(|| Failure::bad_input(format!("there is no snapshot {name:?}")))?;
            }
            Statement::Dot(name, arguments) => return self.dot(out, &name, &arguments),
        }
        Ok(Then::GoOn)
    }

    fn put(&mut self, pairs: &[(Vec<u8>, Vec<u8>)], lives: Lives) -> Result<()> {
        let keyspace = &self.store.keyspace;
        if let Some(transaction) = &mut self.transaction {
            for (key, value) in pairs {
                match lives {
                    Lives::Usual => transaction.put(keyspace, key, value)?,
                    Lives::For(ttl) => transaction.put_with_ttl(keyspace, key, value, ttl)?,
                    Lives::Until(expiry) => transaction.put_until(keyspace, key, value, expiry)?,
                }
            }
            return Ok(());
        }
        let mut batch = self.store.db.batch();
        for (key, value) in pairs {
            match lives {
                Lives::Usual => batch.put(keyspace, key, value),
                Lives::For(ttl) => batch.put_with_ttl(keyspace, key, value, ttl),
                Lives::Until(expiry) => batch.put_until(keyspace, key, value, expiry),
            }
        }
        Ok(self.store.db.write(batch, self.store.db.options().durability)?)
    }

    fn merge(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let keyspace = &self.store.keyspace;
        let merge = |transaction: &mut Transaction| {
            pairs.iter().try_for_each(|(key, operand)| transaction.merge(keyspace, key, operand))
        };
        match &mut self.transaction {
            Some(transaction) => merge(transaction)?,
            None => self.store.db.transaction(merge)?,
        }
        Ok(())
    }

    fn delete(&mut self, keys: &[Vec<u8>]) -> Result<()> {
        let keyspace = &self.store.keyspace;
        if let Some(transaction) = &mut self.transaction {
            return Ok(keys.iter().try_for_each(|key| transaction.delete(keyspace, key))?);
        }
        let mut batch = self.store.db.batch();
        keys.iter().for_each(|key| batch.delete(keyspace, key));
        Ok(self.store.db.write(batch, self.store.db.options().durability)?)
    }

    fn swap(
        &mut self,
        out: &mut impl Write,
        key: &[u8],
        current: Option<Vec<u8>>,
        new: Option<Vec<u8>>,
    ) -> Result<Then> {
        let keyspace = &self.store.keyspace;
        let swapped = match &mut self.transaction {
            None => keyspace.compare_and_swap(key, current.as_ref(), new.as_ref())?,
            Some(transaction) => match transaction.get(keyspace, key)? {
                found if found.as_deref() != current.as_deref() => Err(found),
                found => {
                    match &new {
                        Some(new) => transaction.put(keyspace, key, new)?,
                        None if found.is_some() => transaction.delete(keyspace, key)?,
                        // Nothing to nothing is no write.
                        None => {}
                    }
                    Ok(())
                }
            },
        };
        let Err(found) = swapped else { return Ok(Then::GoOn) };
        let condition = current.map_or(Condition::Absent, Condition::Value);
        out.flush()?;
        if let Some(why) = condition.unmet(key, found.as_deref()) {
            eprintln!("{why}");
        }
        Ok(Then::Missing)
    }

    fn expiry(&self, out: &mut impl Write, keys: &[Vec<u8>]) -> Result<Then> {
        let mut then = Then::GoOn;
        for key in keys {
            let keyspace = self.keyspace();
            let found = match &self.transaction {
                Some(transaction) => transaction.get_with_expiry(keyspace, key)?,
                None => keyspace.get_with_expiry(key)?,
            };
            match found {
                Some((_, expiry)) => writeln!(out, "{}", format_expiry(expiry))?,
                None => {
                    then = Then::Missing;
                    tell_missing(out, key)?;
                }
            }
        }
        Ok(then)
    }

    fn write_at(&self, time: Time, writes: Writes) -> Result<()> {
        let (keyspace, mut batch) = (&self.store.keyspace, self.store.db.batch());
        for (key, value) in &writes {
            match value {
                Some(value) => batch.put_at(keyspace, key, value, time),
                None => batch.delete_at(keyspace, key, time),
            }
        }
        Ok(self.store.db.write(batch, self.store.db.options().durability)?)
    }

    fn history(
        &self,
        out: &mut impl Write,
        versions: impl Iterator<Item = cairn::Result<Version>>,
    ) -> Result<()> {
        for version in versions {
            interrupt::check()?;
            out.write_all(&version_line(&version?, self.form, None)?)?;
        }
        Ok(())
    }

    fn value(&self, key: &[u8], when: &When) -> Result<Option<Slice>> {
        let keyspace = self.keyspace();
        Ok(match (when, &self.transaction) {
            (When::Snapshot(snapshot), _) => snapshot.get(keyspace, key)?,
            (When::At(time), Some(transaction)) => {
                transaction.get_at(keyspace, key, *time)?.and_then(|version| version.value)
            }
            (When::At(time), None) => keyspace.get_at(key, *time)?.and_then(|version| version.value),
            (When::Now, Some(transaction)) => transaction.get(keyspace, key)?,
            (When::Now, None) => keyspace.get(key)?,
        })
    }

    fn get(&self, out: &mut impl Write, keys: &[Vec<u8>], when: &When) -> Result<Then> {
        let json = matches!(self.form, Form::Json | Form::JsonHex);
        let mut printer = Printer::new(self.form, if json { Parts::Both } else { Parts::Value });
        let mut then = Then::GoOn;
        for key in keys {
            interrupt::check()?;
            if let Some(value) = self.value(key, when)? {
                printer.print(out, key, &value)?;
                continue;
            }
            then = Then::Missing;
            if json {
                let mut line = vec![b'{'];
                json_field(&mut line, "key", key, self.form == Form::JsonHex);
                line.extend_from_slice(b",\"value\":null}\n");
                out.write_all(&line)?;
            } else {
                tell_missing(out, key)?;
            }
        }
        Ok(then)
    }

    fn scan(&self, out: &mut impl Write, bounds: &Bounds, show: Show, when: &When) -> Result<()> {
        let keyspace = self.keyspace();
        let found: Box<dyn Iterator<Item = cairn::Result<(Slice, Slice)>> + '_> =
            match (when, &self.transaction) {
                (When::Snapshot(snapshot), _) => Box::new(entries_of_snapshot(snapshot, keyspace, bounds)),
                (When::At(time), Some(transaction)) => {
                    let found = entries_in_at(transaction, keyspace, *time, bounds)?;
                    Box::new(found.map(|entry| entry.map(|entry| (entry.key, entry.value))))
                }
                (When::At(time), None) => Box::new(entries_at(keyspace, *time, bounds)?),
                (When::Now, Some(transaction)) => Box::new(entries_in(transaction, keyspace, bounds)),
                (When::Now, None) => Box::new(entries(keyspace, bounds)),
            };
        let parts = match show {
            Show::Keys => Parts::Key,
            Show::Values => Parts::Value,
            Show::Both | Show::Count => Parts::Both,
        };
        let mut printer = Printer::new(self.form, parts);
        let mut count = 0u64;
        for entry in found {
            interrupt::check()?;
            let (key, value) = entry?;
            count += 1;
            if show != Show::Count {
                printer.print(out, &key, &value)?;
            }
        }
        match (show, self.form) {
            (Show::Count, Form::Json | Form::JsonHex) => writeln!(out, "{{\"count\":{count}}}")?,
            (Show::Count, _) => writeln!(out, "{count}")?,
            _ => {}
        }
        Ok(())
    }

    fn dot(&mut self, out: &mut impl Write, name: &str, arguments: &[String]) -> Result<Then> {
        let db = &self.store.db;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match (name, arguments.as_slice()) {
            (".quit" | ".exit", []) => return Ok(Then::Quit),
            (".help", []) => writeln!(out, "{HELP}")?,
            (".keyspaces", []) => {
                for keyspace in &db.stats().keyspaces {
                    let mark = if keyspace.name == self.keyspace().name() { '*' } else { ' ' };
                    let bytes = human_bytes(keyspace.table_bytes + keyspace.memtable_bytes);
                    writeln!(out, "{mark} {}  {bytes}", keyspace.name)?;
                }
            }
            (".use", [keyspace]) => {
                self.store.keyspace = open_keyspace(db, keyspace, "; .create creates one")?;
            }
            (".create", [keyspace, settings @ ..]) => {
                let options = with_settings(KeyspaceOptions::default(), settings)?;
                self.store.keyspace = db.create_keyspace(keyspace, options)?;
            }
            (".rename", [old, new]) => db.rename_keyspace(old, new)?,
            (".clone", [keyspace, new]) => drop(db.clone_keyspace(keyspace, new)?),
            (".alter", settings @ [_, ..]) => {
                let options = with_settings(self.keyspace().options(), settings)?;
                self.keyspace().alter(|_| options.clone())?;
            }
            (".drop", [keyspace]) if *keyspace == self.keyspace().name() => {
                return Err(Failure::bad_input("this keyspace is in use; .use another one first"));
            }
            (".drop", [keyspace]) => db.drop_keyspace(keyspace)?,
            (".checkpoint", [dir]) => {
                let report = db.checkpoint(dir)?;
                writeln!(out, "{}", copies::checkpoint_in_words(Path::new(dir), &report))?;
            }
            (".backup", [dir]) => {
                let generation = db.backup(dir)?;
                writeln!(out, "{dir}: {}", copies::in_words(&generation))?;
            }
            (".size", []) => {
                writeln!(out, "{}", size_in_words(self.keyspace(), (Bound::Unbounded, Bound::Unbounded))?)?
            }
            (".stats", []) => stats::print(out, db, None, false)?,
            (".guards", []) => draw::guard_list(out, &self.keyspace().guards())?,
            (".flush", []) => self.keyspace().flush()?,
            (".compact", []) => {
                self.keyspace().compact()?;
                draw::tree(out, &self.keyspace().stats().levels)?;
            }
            (".rewrite", []) => {
                self.keyspace().rewrite()?;
                draw::tree(out, &self.keyspace().stats().levels)?;
            }
            (".snapshots", []) => {
                for (name, snapshot) in &self.snapshots {
                    writeln!(out, "{name}  as of sequence number {}", snapshot.seq())?;
                }
            }
            (".mode", ["text"]) => self.form = Form::Text,
            (".mode", ["hex"]) => self.form = Form::Hex,
            (".mode", ["json"]) => self.form = Form::Json,
            (".timer", ["on"]) => self.timer = true,
            (".timer", ["off"]) => self.timer = false,
            _ if DOTS.contains(&name) => {
                return Err(Failure::bad_input(format!("{name}: wrong arguments; see .help")));
            }
            _ => return Err(Failure::bad_input(format!("there is no command {name:?}; .help lists them"))),
        }
        Ok(Then::GoOn)
    }
}

fn tell_missing(out: &mut impl Write, key: &[u8]) -> Result<()> {
    out.flush()?;
    eprintln!("not found: {}", escape_short(key, 200));
    Ok(())
}

/// Options with changes, each `NAME=VALUE`.
fn with_settings(mut options: KeyspaceOptions, settings: &[&str]) -> Result<KeyspaceOptions> {
    for setting in settings {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(Failure::bad_input(format!("{setting}: write NAME=VALUE")));
        };
        match name {
            "preset" => options = KeyspaceOptions::preset(value.parse()?),
            _ => options.set(name, value)?,
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interrupts the statement after this many bytes of output.
    struct Interrupted(usize);

    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0 > 0 && self.0 <= bytes.len() {
                interrupt::interrupt();
            }
            self.0 = self.0.saturating_sub(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_interrupted_statement_ends_and_the_session_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path().join("db")).unwrap();
        let keyspace = db.keyspace("default", KeyspaceOptions::default()).unwrap();
        for i in 0..1000u32 {
            keyspace.put(format!("{i:04}"), "1").unwrap();
        }
        let mut session = Session::new(Store { db, keyspace }, Form::Text);
        let mut run = |out: &mut Interrupted, line: &str| {
            let words = super::super::parse::split(line).unwrap();
            let statement = super::super::parse::parse(&words[0]).unwrap();
            interrupt::during(|| session.run(out, statement))
        };
        // Each line has seven bytes.
        let mut out = Interrupted(700);
        let error = run(&mut out, "scan").unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
        let mut all = Interrupted(usize::MAX);
        assert_eq!(run(&mut all, "scan").unwrap(), Then::GoOn);
        assert_eq!(usize::MAX - all.0, 7000, "the next statement runs to its end");
    }
}
