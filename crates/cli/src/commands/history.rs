//! `history`: prints the versions of a key.

use crate::args::{DbArgs, FormArgs, KeyspaceArgs, TypeArgs};
use crate::failure::Result;
use crate::output::{Form, json_field, stdout, typed_field};
use crate::store::Store;
use crate::text::{escape_into, hex_into};
use crate::times::{format_time, parse_time};
use crate::types::ValueType;
use cairn::{Time, Version};
use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

const EXAMPLES: &str = "\
Examples:
  cairn put --db /tmp/d --create --set history=all price 3    a keyspace that keeps all versions
  cairn put --db /tmp/d price 4
  cairn history --db /tmp/d price                             the latest first
  cairn history --db /tmp/d price --from -2h --to -1h
  cairn history --db /tmp/d price --from 2026-11-25T10:00:00Z --reverse --limit 10
  cairn history --db /tmp/d --json price | jq .time

A version is a line of fields with tabs between them: its time; the time at which it ended or will expire, or - if there is none; put or delete;
and of a put the value.";

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct HistoryArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    types: TypeArgs,
    /// Only versions of this time and later
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    from: Option<Time>,
    /// Only versions before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    to: Option<Time>,
    /// The earliest first
    #[arg(long)]
    reverse: bool,
    /// Maximum number of versions
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// The key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    key: OsString,
}

/// Prints the versions of a key.
pub fn history(args: HistoryArgs) -> Result<()> {
    let key = args.types.key(&args.key, args.form.hex)?;
    let store = Store::open_to_read(&args.db, &args.keyspace)?;
    let window = Window { from: args.from, to: args.to, reverse: args.reverse, limit: args.limit };
    let mut out = stdout();
    for version in window.of(store.keyspace.history(&key, window.times())?) {
        out.write_all(&version_line(&version?, args.form.into(), args.types.value_type)?)?;
    }
    out.flush()?;
    store.close()
}

/// Which versions of a key to print.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// The first time.
    pub from: Option<Time>,
    /// The end, which is not included.
    pub to: Option<Time>,
    /// The earliest first.
    pub reverse: bool,
    /// How many at most.
    pub limit: Option<u64>,
}

impl Window {
    /// The times.
    pub fn times(&self) -> (Bound<Time>, Bound<Time>) {
        (
            self.from.map_or(Bound::Unbounded, Bound::Included),
            self.to.map_or(Bound::Unbounded, Bound::Excluded),
        )
    }

    /// The versions in the order asked for, up to the limit.
    pub fn of<I: DoubleEndedIterator<Item = cairn::Result<Version>>>(
        &self,
        mut versions: I,
    ) -> impl Iterator<Item = I::Item> + use<I> {
        let (reverse, mut left) = (self.reverse, self.limit.unwrap_or(u64::MAX));
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            if reverse { versions.next_back() } else { versions.next() }
        })
    }
}

/// A version as a line.
///
/// # Errors
/// If its value is not of this type.
pub fn version_line(version: &Version, form: Form, value_type: Option<ValueType>) -> Result<Vec<u8>> {
    let (time, until) = (format_time(version.time), version.until.map(format_time));
    let hex = matches!(form, Form::Hex | Form::JsonHex);
    let mut line = Vec::new();
    if matches!(form, Form::Json | Form::JsonHex) {
        line.push(b'{');
        json_field(&mut line, "time", time.as_bytes(), false);
        line.extend_from_slice(b",\"until\":");
        let until = serde_json::to_string(&until).expect("writing to memory does not fail");
        line.extend_from_slice(until.as_bytes());
        line.push(b',');
        match (&version.value, value_type) {
            (Some(value), Some(value_type)) => {
                typed_field(&mut line, "value", &value_type.json(&version.key, value)?);
            }
            (Some(value), None) => json_field(&mut line, "value", value, hex),
            (None, _) => line.extend_from_slice(b"\"value\":null"),
        }
        line.push(b'}');
    } else {
        line.extend_from_slice(time.as_bytes());
        line.push(b'\t');
        line.extend_from_slice(until.as_deref().unwrap_or("-").as_bytes());
        line.extend_from_slice(if version.value.is_some() { b"\tput\t" } else { b"\tdelete" });
        match (&version.value, value_type) {
            (Some(value), Some(value_type)) => value_type.print(&version.key, value, &mut line)?,
            (Some(value), None) if hex => hex_into(&mut line, value),
            (Some(value), None) => escape_into(&mut line, value),
            (None, _) => {}
        }
    }
    line.push(b'\n');
    Ok(line)
}
