//! The merge operators of keyspaces: those that are built in, and those with which a database is opened.

use base::codec::{Reader, put_varint};
use base::{Error, MergeOperator, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum length of the name of an operator, in bytes.
const MAX_NAME_LEN: usize = 64;

/// What joins the operands of [`Keyspace::merge`](crate::Keyspace::merge) to the values of a keyspace: the option `merge`.
///
/// Integers are 8 bytes, little-endian. Signed ones may also be the values of a [typed keyspace](crate::typed): a byte for the type, and these. A key
/// keeps the form of its first value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Merge {
    /// Nothing: the keyspace has no merges.
    #[default]
    None,
    /// The sum of unsigned integers. It wraps around.
    U64Add,
    /// The sum of signed integers. It wraps around.
    I64Add,
    /// The largest of unsigned integers.
    U64Max,
    /// The smallest of unsigned integers.
    U64Min,
    /// The largest of signed integers.
    I64Max,
    /// The smallest of signed integers.
    I64Min,
    /// The largest value, in the order of bytes.
    BytesMax,
    /// The smallest value, in the order of bytes.
    BytesMin,
    /// All of them, one after the other.
    Append,
    /// Bitwise or. Shorter values are as if zeros followed them.
    Or,
    /// The union of sets of byte strings: see [`ByteSet`].
    SetUnion,
    /// An operator of the application, by its name: see [`Builder::merge_operator`](crate::Builder::merge_operator).
    Own(Arc<str>),
}

const BUILT_IN: [(Merge, &str); 11] = [
    (Merge::U64Add, "u64_add"),
    (Merge::I64Add, "i64_add"),
    (Merge::U64Max, "u64_max"),
    (Merge::U64Min, "u64_min"),
    (Merge::I64Max, "i64_max"),
    (Merge::I64Min, "i64_min"),
    (Merge::BytesMax, "bytes_max"),
    (Merge::BytesMin, "bytes_min"),
    (Merge::Append, "append"),
    (Merge::Or, "or"),
    (Merge::SetUnion, "set_union"),
];

impl Merge {
    /// An operator of the application.
    pub fn own(name: impl Into<Arc<str>>) -> Merge {
        Merge::Own(name.into())
    }

    /// Whether it is one that text can name: not an operator of the application with the name of another one.
    pub(super) fn is_valid(&self) -> bool {
        self.to_string().parse().is_ok_and(|parsed: Merge| parsed == *self)
    }
}

/// As options are written: `none`, `u64_add`.
impl fmt::Display for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Merge::None => "none",
            Merge::Own(name) => name,
            merge => BUILT_IN.iter().find(|(built_in, _)| built_in == merge).map_or("", |(_, name)| *name),
        })
    }
}

impl FromStr for Merge {
    type Err = Error;

    fn from_str(text: &str) -> Result<Merge> {
        if text == "none" {
            return Ok(Merge::None);
        }
        let is_built_in = |(_, name): &&(Merge, &str)| *name == text;
        if let Some((merge, _)) = BUILT_IN.iter().find(is_built_in) {
            return Ok(merge.clone());
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        match (1..=MAX_NAME_LEN).contains(&text.len()) && text.chars().all(is_plain) {
            true => Ok(Merge::Own(text.into())),
            false => Err(Error::invalid(format!(
                "{text:?} cannot name a merge operator: 1 to {MAX_NAME_LEN} letters, digits, and _ - . can"
            ))),
        }
    }
}

/// The merge operators of the application, by name.
#[derive(Clone, Default)]
pub(crate) struct Operators {
    own: BTreeMap<String, Arc<dyn MergeOperator>>,
    /// Whether a keyspace may have an operator that is not known: its operands stay apart.
    pub may_lack: bool,
    /// Whether such a keyspace takes values and operands unchecked, because they were in a database before.
    pub takes_unchecked: bool,
}

impl Operators {
    pub(crate) fn insert(&mut self, name: String, operator: Arc<dyn MergeOperator>) {
        self.own.insert(name, operator);
    }

    /// # Errors
    /// `InvalidArgument` if an operator has a name that none can have.
    pub(crate) fn check_names(&self) -> Result<()> {
        for name in self.own.keys() {
            if !matches!(name.parse()?, Merge::Own(_)) {
                return Err(Error::invalid(format!("the merge operator {name:?} is built in")));
            }
        }
        Ok(())
    }

    /// The operator of a keyspace; `None` if it has none, or it is not known and need not be.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not known.
    pub(crate) fn of(&self, keyspace: &str, merge: &Merge) -> Result<Option<Arc<dyn MergeOperator>>> {
        self.find_or(self.may_lack, keyspace, merge)
    }

    /// The same of a keyspace that is created: its operator need not be known only if the keyspace was in a database before.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not known.
    pub(crate) fn of_new(&self, keyspace: &str, merge: &Merge) -> Result<Option<Arc<dyn MergeOperator>>> {
        self.find_or(self.takes_unchecked, keyspace, merge)
    }

    fn find_or(
        &self,
        may_lack: bool,
        keyspace: &str,
        merge: &Merge,
    ) -> Result<Option<Arc<dyn MergeOperator>>> {
        match self.find(merge) {
            None if *merge != Merge::None && !may_lack => {
                let what = "which Builder::merge_operator has not registered";
                let name = merge.to_string();
                Err(Error::invalid(format!(
                    "keyspace {keyspace:?} needs the merge operator {name:?}, {what}"
                )))
            }
            found => Ok(found),
        }
    }

    fn find(&self, merge: &Merge) -> Option<Arc<dyn MergeOperator>> {
        Some(match merge {
            Merge::None => return None,
            Merge::U64Add => Arc::new(Integers("u64", |a, b| a.wrapping_add(b))),
            Merge::I64Add => Arc::new(Integers("i64", |a, b| a.wrapping_add(b))),
            Merge::U64Max => Arc::new(Integers("u64", u64::max)),
            Merge::U64Min => Arc::new(Integers("u64", u64::min)),
            Merge::I64Max => Arc::new(Integers("i64", |a, b| (a as i64).max(b as i64) as u64)),
            Merge::I64Min => Arc::new(Integers("i64", |a, b| (a as i64).min(b as i64) as u64)),
            Merge::BytesMax => Arc::new(Bytes(|value, operand| {
                if operand > &value[..] {
                    replace(value, operand);
                }
            })),
            Merge::BytesMin => Arc::new(Bytes(|value, operand| {
                if operand < &value[..] {
                    replace(value, operand);
                }
            })),
            Merge::Append => Arc::new(Bytes(|value, operand| value.extend_from_slice(operand))),
            Merge::Or => Arc::new(Bytes(|value, operand| {
                value.resize(value.len().max(operand.len()), 0);
                value.iter_mut().zip(operand).for_each(|(byte, more)| *byte |= more);
            })),
            Merge::SetUnion => Arc::new(SetUnion),
            Merge::Own(name) => return self.own.get(&**name).cloned(),
        })
    }
}

impl fmt::Debug for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.own.keys()).finish()
    }
}

fn replace(value: &mut Vec<u8>, other: &[u8]) {
    value.clear();
    value.extend_from_slice(other);
}

/// The first byte of an integer in a typed keyspace.
const TYPED_INT: u8 = 1;

/// An operator on integers of 8 bytes, with the name of their type.
struct Integers(&'static str, fn(u64, u64) -> u64);

impl MergeOperator for Integers {
    fn check(&self, value: &[u8]) -> Result<()> {
        match (value.len(), value.first()) {
            (8, _) => Ok(()),
            (9, Some(&TYPED_INT)) if self.0 == "i64" => Ok(()),
            (len, _) => Err(Error::invalid(format!("a value of type {} has 8 bytes, not {len}", self.0))),
        }
    }

    fn merge(&self, _: &[u8], value: &mut Vec<u8>, operand: &[u8]) {
        // Shorter ones do not pass the check.
        let number = |bytes: &[u8]| bytes.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let merged = (self.1)(number(value), number(operand));
        if let Some(bytes) = value.last_chunk_mut() {
            *bytes = merged.to_le_bytes();
        }
    }
}

/// An operator on any bytes.
struct Bytes(fn(&mut Vec<u8>, &[u8]));

impl MergeOperator for Bytes {
    fn check(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn merge(&self, _: &[u8], value: &mut Vec<u8>, operand: &[u8]) {
        (self.0)(value, operand);
    }
}

/// A set of byte strings, as the operator [`Merge::SetUnion`] has it: a value for [`Keyspace::put`](crate::Keyspace::put) and an operand for
/// [`Keyspace::merge`](crate::Keyspace::merge).
///
/// Its bytes are the members, in order and each once, with their lengths as varints before them.
///
/// ```
/// use cairn::{ByteSet, KeyspaceOptions, Merge};
///
/// # fn main() -> cairn::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = cairn::Database::open(dir.path())?;
/// let tags = db.keyspace("tags", KeyspaceOptions::default().merge(Merge::SetUnion))?;
/// tags.merge("page", ByteSet::from_iter(["red", "blue"]))?;
/// tags.merge("page", ByteSet::from_iter(["green", "red"]))?;
/// let found = ByteSet::decode(&tags.get("page")?.unwrap()).unwrap();
/// assert_eq!(found.iter().collect::<Vec<_>>(), [b"blue" as &[u8], b"green", b"red"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteSet(Vec<u8>);

impl ByteSet {
    /// The set with these bytes; `None` if they are not those of a set.
    pub fn decode(bytes: &[u8]) -> Option<ByteSet> {
        let mut reader = Reader::new(bytes);
        let mut last = None;
        while !reader.is_empty() {
            let member = reader.bytes(base::limits::MAX_VALUE_LEN)?;
            if last.is_some_and(|last| last >= member) {
                return None;
            }
            last = Some(member);
        }
        // A varint that is longer than it need be would give a set two forms.
        let set = ByteSet(bytes.to_vec());
        (ByteSet::sorted(set.iter()) == set).then_some(set)
    }

    /// The members, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        members(&self.0)
    }

    /// Whether it has this member.
    pub fn contains(&self, member: impl AsRef<[u8]>) -> bool {
        self.iter().any(|other| other == member.as_ref())
    }

    /// Of members in order.
    fn sorted<'a>(members: impl Iterator<Item = &'a [u8]>) -> ByteSet {
        let mut bytes = Vec::new();
        members.for_each(|member| put_member(&mut bytes, member));
        ByteSet(bytes)
    }
}

impl<M: AsRef<[u8]>> FromIterator<M> for ByteSet {
    fn from_iter<I: IntoIterator<Item = M>>(members: I) -> ByteSet {
        let mut all: Vec<M> = members.into_iter().collect();
        all.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
        all.dedup_by(|a, b| a.as_ref() == b.as_ref());
        ByteSet::sorted(all.iter().map(AsRef::as_ref))
    }
}

impl AsRef<[u8]> for ByteSet {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn put_member(out: &mut Vec<u8>, member: &[u8]) {
    put_varint(out, member.len() as u64);
    out.extend_from_slice(member);
}

/// The members in the bytes of a set. It ends where these are malformed.
fn members(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(move || if reader.is_empty() { None } else { reader.bytes(bytes.len()) })
}

struct SetUnion;

impl MergeOperator for SetUnion {
    fn check(&self, value: &[u8]) -> Result<()> {
        match ByteSet::decode(value) {
            Some(_) => Ok(()),
            None => Err(Error::invalid("the value is not the bytes of a set: see ByteSet")),
        }
    }

    fn merge(&self, _: &[u8], value: &mut Vec<u8>, operand: &[u8]) {
        let mut union = Vec::with_capacity(value.len() + operand.len());
        let (mut old, mut new) = (members(value).peekable(), members(operand).peekable());
        while let Some(member) = match (old.peek(), new.peek()) {
            (Some(a), Some(b)) if a == b => {
                old.next();
                new.next()
            }
            (Some(a), Some(b)) if a < b => old.next(),
            (Some(_), None) => old.next(),
            _ => new.next(),
        } {
            put_member(&mut union, member);
        }
        drop((old, new));
        *value = union;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(merge: Merge, values: &[&[u8]]) -> Vec<u8> {
        let operator = Operators::default().of("k", &merge).unwrap().unwrap();
        let mut value = values[0].to_vec();
        values.iter().for_each(|value| operator.check(value).unwrap());
        values[1..].iter().for_each(|operand| operator.merge(b"key", &mut value, operand));
        operator.check(&value).unwrap();
        value
    }

    #[test]
    fn names_are_those_of_options() {
        for (merge, name) in BUILT_IN {
            assert_eq!((merge.to_string(), name.parse::<Merge>().unwrap()), (name.to_owned(), merge));
        }
        assert_eq!("none".parse::<Merge>().unwrap(), Merge::None);
        assert_eq!("longest-2.x".parse::<Merge>().unwrap(), Merge::own("longest-2.x"));
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<Merge>().is_err() && !Merge::own(bad).is_valid(), "{bad}");
        }
        assert!(!Merge::own("none").is_valid() && !Merge::own("or").is_valid() && Merge::own("x").is_valid());
    }

    #[test]
    fn integers_are_joined() {
        let bytes = |number: i64| number.to_le_bytes();
        let of = |merge: Merge, numbers: [i64; 3]| {
            let all = numbers.map(bytes);
            i64::from_le_bytes(merged(merge, &[&all[0], &all[1], &all[2]]).try_into().unwrap())
        };
        assert_eq!(of(Merge::U64Add, [1, 2, 40]), 43);
        assert_eq!(of(Merge::I64Add, [1, -2, -40]), -41);
        assert_eq!(of(Merge::I64Add, [i64::MAX, 1, 0]), i64::MIN);
        assert_eq!(of(Merge::U64Max, [5, -1, 7]), -1);
        assert_eq!(of(Merge::U64Min, [5, -1, 7]), 5);
        assert_eq!(of(Merge::I64Max, [5, -1, 7]), 7);
        assert_eq!(of(Merge::I64Min, [5, -1, 7]), -1);
        let operator = Operators::default().of("k", &Merge::U64Add).unwrap().unwrap();
        assert!(operator.check(b"1234567").is_err());
    }

    #[test]
    fn bytes_are_joined() {
        assert_eq!(merged(Merge::Append, &[b"a", b"", b"bc"]), b"abc");
        assert_eq!(merged(Merge::BytesMax, &[b"b", b"a", b"bb"]), b"bb");
        assert_eq!(merged(Merge::BytesMin, &[b"b", b"a", b"bb"]), b"a");
        assert_eq!(merged(Merge::Or, &[b"\x01", b"\x02\x80", b""]), b"\x03\x80");
    }

    #[test]
    fn sets_are_joined_and_other_bytes_refused() {
        let set = |members: &[&str]| ByteSet::from_iter(members).as_ref().to_vec();
        let all = merged(Merge::SetUnion, &[&set(&["b", "a", "b"]), &set(&[]), &set(&["", "c", "a"])]);
        assert_eq!(all, set(&["", "a", "b", "c"]));
        let found = ByteSet::decode(&all).unwrap();
        assert!(found.contains("c") && !found.contains("d") && found.iter().count() == 4);
        for bad in [&b"\x02a"[..], b"\x01b\x01a", b"\x01a\x01a", b"\x81\x00a"] {
            assert!(ByteSet::decode(bad).is_none(), "{bad:?}");
        }
    }
}
