//! Conditions of writes: what keys must have for a command to write anything.

use crate::args::TypeArgs;
use crate::failure::{Failure, Result};
use crate::text::escape_short;
use cairn::{Keyspace, Transaction};
use std::ffi::OsString;

/// Bytes of a key or a value that a message shows.
const SHOWN: usize = 200;

/// What each key of a write must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No value.
    Absent,
    /// This value.
    Value(Vec<u8>),
}

impl Condition {
    /// That of the options `--if-absent` and `--if-value`.
    ///
    /// # Errors
    /// If the value cannot be read as a value of its type.
    pub fn of(
        absent: bool,
        value: Option<&OsString>,
        hex: bool,
        types: &TypeArgs,
    ) -> Result<Option<Condition>> {
        match value {
            Some(value) => Ok(Some(Condition::Value(types.value(value, hex)?))),
            None => Ok(absent.then_some(Condition::Absent)),
        }
    }

    /// Why a key with this value does not meet the condition, if it does not.
    pub fn unmet(&self, key: &[u8], found: Option<&[u8]>) -> Option<String> {
        let key = || escape_short(key, SHOWN);
        match (self, found) {
            (Condition::Absent, None) => None,
            (Condition::Value(value), Some(found)) if value == found => None,
            (Condition::Absent, Some(_)) => Some(format!("nothing was written: {} has a value", key())),
            (Condition::Value(_), None) => Some(format!("nothing was written: {} has no value", key())),
            (Condition::Value(_), Some(found)) => {
                let found = escape_short(found, SHOWN);
                Some(format!("nothing was written: the value of {} is {found}", key()))
            }
        }
    }
}

/// Looks whether all keys meet the condition. Returns the failure of the first one that does not.
///
/// # Errors
/// Those of reading.
pub fn first_unmet<'a>(
    transaction: &Transaction,
    keyspace: &Keyspace,
    condition: Option<&Condition>,
    keys: impl IntoIterator<Item = &'a [u8]>,
) -> cairn::Result<Option<Failure>> {
    let Some(condition) = condition else { return Ok(None) };
    for key in keys {
        if let Some(why) = condition.unmet(key, transaction.get(keyspace, key)?.as_deref()) {
            return Ok(Some(Failure::not_found(why)));
        }
    }
    Ok(None)
}
