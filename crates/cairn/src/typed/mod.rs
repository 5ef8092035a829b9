//! Keyspaces whose keys and values have types, over keyspaces of bytes.
//!
//! A [`TypedKeyspace`] encodes keys so that bytes compare as the keys do, and values with a byte that tells their type: a value that was written with
//! another type is an error, not a wrong number. (All types of `Serde` have one byte in common, and are not told apart.)
//!
//! ```
//! use cairn::typed::TypedKeyspace;
//! use cairn::{Database, ErrorKind, KeyspaceOptions};
//!
//! # fn main() -> cairn::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("db");
//! let db = Database::open(path)?;
//! // By sensor and time.
//! let readings = TypedKeyspace::<(String, i64), f64>::new(db.keyspace("readings", KeyspaceOptions::default())?);
//! readings.put(&("roof".into(), -5), &21.5)?;
//! readings.put(&("roof".into(), 60), &22.0)?;
//! readings.put(&("cellar".into(), 0), &12.0)?;
//! let roof = readings.prefix("roof").collect::<cairn::Result<Vec<_>>>()?;
//! assert_eq!(roof, [(("roof".into(), -5), 21.5), (("roof".into(), 60), 22.0)]);
//!
//! let other = TypedKeyspace::<(String, i64), i64>::new(readings.keyspace().clone());
//! let error = other.get(&("cellar".into(), 0)).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::WrongType);
//! # Ok(())
//! # }
//! ```
//!
//! # Keys
//!
//! | type | bytes |
//! | --- | --- |
//! | `u8` to `u128` | big-endian |
//! | `i8` to `i128` | big-endian, with the sign bit flipped |
//! | `f32`, `f64` | the bits, big-endian: all of them flipped if the number is negative, otherwise the sign bit. -0.0 is equal to 0.0, and encoded as 0.0. NaN is one value, whatever its bits (0x7fc00000, 0x7ff8000000000000), and comes after infinity |
//! | `bool` | 0 or 1 |
//! | `char` | its code point, as `u32` |
//! | `String`, `Vec<u8>` | the bytes, each 0 followed by 1; then 0, 0 |
//! | `[u8; N]` | the bytes |
//! | `Option<T>` | 0 for `None`; 1, then the value |
//! | tuples of up to eight elements | one after the other |
//!
//! The order of the bytes is the order of the values: of tuples by their first elements, of strings by their bytes, `None` before `Some`. The
//! elements that a tuple begins with are a prefix of its encoding ([`TypedKeyspace::prefix`]). Two types may have the same encodings; keys do not tell
//! which one they are of.
//!
//! # Values
//!
//! A byte for the type, and then: 1, `i64`; 2, `f64`; 3, `f32` (little-endian); 4, `bool` (0 or 1); 5, `String` (UTF-8); 6, `Vec<u8>`. All bits of
//! floating-point values are kept. With the feature `typed-serde`, `Serde<T>` is any type that `serde` can serialize and
//! [postcard](https://docs.rs/postcard) can read back: 7, then the format of postcard. That format has no names, so types that need
//! them cannot be read: enums with `untagged`, structs with `flatten` or `skip_serializing_if`, and values of any type, such as those of JSON.
//! It limits neither depth nor length: where others may write the bytes of values, keep to types that do not contain themselves, nor sequences of
//! elements without bytes (`Vec<()>`).
//!
//! For calls that are not here, those with times among them, [`Key::to_bytes`] and [`TypedKeyspace::keyspace`] give what they need.
//!
//! Source: the types are those of Pristupin, "High Performance Key-Value Stores" (2023), section 2.3. The order-preserving encodings of
//! tuples and strings are like those of FoundationDB's tuple layer.

mod keys;
mod values;

pub use keys::{EncodeKey, Key};
#[cfg(feature = "typed-serde")]
pub use values::Serde;
pub use values::{AnyValue, EncodeValue, Value};

use crate::{
    Batch, Durability, Entries, Error, ErrorKind, Keyspace, Merge, Range, Result, Slice, Snapshot,
    Transaction,
};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

/// A keyspace with keys of type `K` and values of type `V`. See the [module](self).
///
/// A clone is another handle of the same keyspace. The types of keys are not stored: a keyspace must be used with the same ones each time.
pub struct TypedKeyspace<K, V> {
    keyspace: Keyspace,
    types: PhantomData<fn() -> (K, V)>,
}

/// A double-ended iterator over typed entries. An error is yielded once for each entry that is not of the types; after an error of the
/// keyspace the iterator ends.
pub struct TypedRange<K, V> {
    range: Range,
    of: TypedKeyspace<K, V>,
}

/// An iterator over all typed entries of a keyspace, in the order of keys if it has one. See [`TypedRange`] for errors.
pub struct TypedEntries<K, V> {
    entries: Entries,
    of: TypedKeyspace<K, V>,
}

/// A typed keyspace in a transaction.
pub struct TypedTransaction<'a, K, V> {
    of: &'a TypedKeyspace<K, V>,
    transaction: &'a mut Transaction,
}

/// A typed keyspace as of a snapshot.
pub struct TypedView<'a, K, V> {
    of: &'a TypedKeyspace<K, V>,
    snapshot: &'a Snapshot,
}

fn encoded<Q: EncodeKey + ?Sized>(key: &Q) -> Vec<u8> {
    let mut out = Vec::new();
    key.encode_key(&mut out);
    out
}

fn encoded_value<W: EncodeValue + ?Sized>(keyspace: &Keyspace, value: &W) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    value.encode_value(&mut out)?;
    check_value(keyspace, &out)?;
    Ok(out)
}

fn encoded_operand<W: EncodeValue + ?Sized>(keyspace: &Keyspace, operand: &W) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    operand.encode_value(&mut out)?;
    check_operand(keyspace, &out)?;
    Ok(out)
}

/// Checks that a value, encoded as in this [module](self), can be put into a keyspace: where integers are merged, a value of eight bytes would be taken
/// for an integer without a type. The calls of [`TypedKeyspace`] check this; it is for programs that encode values themselves.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_value(keyspace: &Keyspace, encoded: &[u8]) -> Result<()> {
    use Merge::{I64Add, I64Max, I64Min, U64Add, U64Max, U64Min};
    if encoded.len() != size_of::<u64>() {
        return Ok(());
    }
    match &keyspace.inner.settings.load().options.merge {
        merge @ (I64Add | I64Max | I64Min | U64Add | U64Max | U64Min) => Err(only_integers(keyspace, merge)),
        _ => Ok(()),
    }
}

/// Checks that an operand, encoded as in this [module](self), can be merged into the values of a keyspace: that its operator makes typed values of
/// typed values, and of an `i64` if it is one on integers. The calls of [`TypedKeyspace`] check this; it is for programs that encode values themselves.
///
/// # Errors
/// `InvalidArgument`.
pub fn check_operand(keyspace: &Keyspace, encoded: &[u8]) -> Result<()> {
    match &keyspace.inner.settings.load().options.merge {
        // No merge is possible, or the operator knows what it takes.
        Merge::None | Merge::Own(_) => Ok(()),
        Merge::I64Add | Merge::I64Max | Merge::I64Min if i64::decode_value(encoded).is_some() => Ok(()),
        merge @ (Merge::I64Add | Merge::I64Max | Merge::I64Min) => Err(only_integers(keyspace, merge)),
        merge => Err(Error::invalid(format!(
            "keyspace {:?}: the merge operator {:?} does not know the types of values",
            keyspace.name(),
            merge.to_string()
        ))),
    }
}

#[cold]
fn only_integers(keyspace: &Keyspace, merge: &Merge) -> Error {
    let (name, merge) = (keyspace.name(), merge.to_string());
    Error::invalid(format!("keyspace {name:?}: the merge operator {merge:?} takes integers of 64 bits only"))
}

fn encoded_bounds<K: EncodeKey>(bounds: &impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (bounds.start_bound().map(encoded), bounds.end_bound().map(encoded))
}

impl<K: Key, V: Value> TypedKeyspace<K, V> {
    /// The keyspace, with types. Reads nothing.
    pub fn new(keyspace: Keyspace) -> Self {
        TypedKeyspace { keyspace, types: PhantomData }
    }

    /// The keyspace of bytes.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// As for [`Keyspace::put`]; those of encoding the value; `InvalidArgument` for another value than an `i64` where integers are merged.
    pub fn put(&self, key: &K::Borrowed, value: &V::Borrowed) -> Result<()> {
        self.keyspace.put(encoded(key), encoded_value(&self.keyspace, value)?)
    }

    /// Joins an operand to the value of a key: see [`Keyspace::merge`]. The operators `i64_add`, `i64_max` and `i64_min` take values of the type `i64`, and
    /// one of the application what it takes, with the byte of the type before the value. The others do not know types.
    ///
    /// # Errors
    /// As for [`Keyspace::merge`]; `InvalidArgument` for an operator that does not know types, or takes another one; those of encoding the operand.
    pub fn merge(&self, key: &K::Borrowed, operand: &V::Borrowed) -> Result<()> {
        self.keyspace.merge(encoded(key), encoded_operand(&self.keyspace, operand)?)
    }

    /// [`TypedKeyspace::put`] with a durability of its own.
    ///
    /// # Errors
    /// See there.
    pub fn put_with(&self, key: &K::Borrowed, value: &V::Borrowed, durability: Durability) -> Result<()> {
        self.keyspace.put_with(encoded(key), encoded_value(&self.keyspace, value)?, durability)
    }

    /// Sets the value of a key for the duration `ttl`: see [`Keyspace::put_with_ttl`].
    ///
    /// # Errors
    /// As for [`Keyspace::put_with_ttl`]; those of encoding the value.
    pub fn put_with_ttl(&self, key: &K::Borrowed, value: &V::Borrowed, ttl: Duration) -> Result<()> {
        self.keyspace.put_with_ttl(encoded(key), encoded_value(&self.keyspace, value)?, ttl)
    }

    /// Adds a put to a batch.
    ///
    /// # Errors
    /// Those of encoding the value. Those of the batch are reported by its write.
    pub fn put_in(&self, batch: &mut Batch, key: &K::Borrowed, value: &V::Borrowed) -> Result<()> {
        batch.put(&self.keyspace, encoded(key), encoded_value(&self.keyspace, value)?);
        Ok(())
    }

    /// Adds a merge to a batch: see [`TypedKeyspace::merge`].
    ///
    /// # Errors
    /// `InvalidArgument` for an operator that does not know types, or takes another one; those of encoding the operand. Those of the batch are reported by
    /// its write.
    pub fn merge_in(&self, batch: &mut Batch, key: &K::Borrowed, operand: &V::Borrowed) -> Result<()> {
        batch.merge(&self.keyspace, encoded(key), encoded_operand(&self.keyspace, operand)?);
        Ok(())
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As for [`Keyspace::delete`].
    pub fn delete(&self, key: &K::Borrowed) -> Result<()> {
        self.keyspace.delete(encoded(key))
    }

    /// [`TypedKeyspace::delete`] with a durability of its own.
    ///
    /// # Errors
    /// See there.
    pub fn delete_with(&self, key: &K::Borrowed, durability: Durability) -> Result<()> {
        self.keyspace.delete_with(encoded(key), durability)
    }

    /// Adds a delete to a batch.
    pub fn delete_in(&self, batch: &mut Batch, key: &K::Borrowed) {
        batch.delete(&self.keyspace, encoded(key));
    }

    /// Deletes the entries between two keys, as one write.
    ///
    /// # Errors
    /// As for [`Keyspace::delete_range`].
    pub fn delete_range(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.keyspace.delete_range(encoded_bounds(&bounds))
    }

    /// Deletes the entries whose keys begin with some elements, as one write: see [`TypedKeyspace::prefix`].
    ///
    /// # Errors
    /// As for [`Keyspace::delete_prefix`].
    pub fn delete_prefix<P: EncodeKey + ?Sized>(&self, prefix: &P) -> Result<()> {
        self.keyspace.delete_prefix(encoded(prefix))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As for [`Keyspace::get`]; `WrongType` if the value is of another type.
    pub fn get(&self, key: &K::Borrowed) -> Result<Option<V>> {
        let key = encoded(key);
        self.keyspace.get(&key)?.map(|value| self.value(&key, &value)).transpose()
    }

    /// Whether the key has a value, of any type.
    ///
    /// # Errors
    /// As for [`Keyspace::contains`].
    pub fn contains(&self, key: &K::Borrowed) -> Result<bool> {
        self.keyspace.contains(encoded(key))
    }

    /// The values of several keys, as of one moment.
    ///
    /// # Errors
    /// As for [`Keyspace::multi_get`]; `WrongType` if a value is of another type.
    pub fn multi_get(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let keys: Vec<Vec<u8>> = keys.iter().map(encoded).collect();
        self.values(&keys, self.keyspace.multi_get(&keys)?)
    }

    /// The entries between two keys, in the order of keys.
    pub fn range(&self, bounds: impl RangeBounds<K>) -> TypedRange<K, V> {
        self.typed(self.keyspace.range(encoded_bounds(&bounds)))
    }

    /// The entries whose keys begin with some elements: `prefix` is the first element of a tuple, or a tuple of the first ones.
    ///
    /// It is up to the caller that these have the types of the elements: `prefix(&5u64)`, because 5 alone is an `i32`, which is a prefix of other keys
    /// or of none. An element is there as a whole: the keys of strings that begin with some text are a range.
    pub fn prefix<P: EncodeKey + ?Sized>(&self, prefix: &P) -> TypedRange<K, V> {
        self.typed(self.keyspace.prefix(encoded(prefix)))
    }

    /// All entries, in the order of keys.
    pub fn iter(&self) -> TypedRange<K, V> {
        self.typed(self.keyspace.iter())
    }

    /// All entries, also of a keyspace without order: see [`Keyspace::entries`].
    pub fn entries(&self) -> TypedEntries<K, V> {
        TypedEntries { entries: self.keyspace.entries(), of: self.clone() }
    }

    /// The keyspace as of a snapshot.
    pub fn view<'a>(&'a self, snapshot: &'a Snapshot) -> TypedView<'a, K, V> {
        TypedView { of: self, snapshot }
    }

    /// The keyspace in a transaction: reads with its own writes, and writes.
    ///
    /// ```
    /// use cairn::typed::TypedKeyspace;
    ///
    /// # fn main() -> cairn::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = cairn::Database::open(dir.path())?;
    /// let counts = TypedKeyspace::<String, i64>::new(db.keyspace("counts", Default::default())?);
    /// db.transaction(|tx| {
    ///     let mut counts = counts.within(tx);
    ///     let visits = counts.get("visits")?.unwrap_or(0);
    ///     counts.put("visits", &(visits + 1))
    /// })?;
    /// assert_eq!(counts.get("visits")?, Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn within<'a>(&'a self, transaction: &'a mut Transaction) -> TypedTransaction<'a, K, V> {
        TypedTransaction { of: self, transaction }
    }

    fn typed(&self, range: Range) -> TypedRange<K, V> {
        TypedRange { range, of: self.clone() }
    }

    fn value(&self, key: &[u8], value: &[u8]) -> Result<V> {
        V::decode_value(value).ok_or_else(|| self.wrong_type(key, "its value", V::NAME))
    }

    fn values(&self, keys: &[Vec<u8>], values: Vec<Option<Slice>>) -> Result<Vec<Option<V>>> {
        let value = |(key, value): (&Vec<u8>, Option<Slice>)| value.map(|v| self.value(key, &v)).transpose();
        keys.iter().zip(values).map(value).collect()
    }

    fn entry(&self, (key, value): (Slice, Slice)) -> Result<(K, V)> {
        let typed =
            K::from_bytes(&key).ok_or_else(|| self.wrong_type(&key, "it", std::any::type_name::<K>()))?;
        Ok((typed, self.value(&key, &value)?))
    }

    #[cold]
    fn wrong_type(&self, key: &[u8], what: &str, name: &str) -> Error {
        let (keyspace, key) = (self.keyspace.name(), key[..key.len().min(100)].escape_ascii());
        Error::new(
            ErrorKind::WrongType,
            format!("keyspace {keyspace:?}, key {key}: {what} is not of type {name}"),
        )
    }
}

impl<K: Key, V: Value> TypedTransaction<'_, K, V> {
    /// The value of a key.
    ///
    /// # Errors
    /// As for [`Transaction::get`]; `WrongType` if the value is of another type.
    pub fn get(&self, key: &K::Borrowed) -> Result<Option<V>> {
        let key = encoded(key);
        let found = self.transaction.get(&self.of.keyspace, &key)?;
        found.map(|value| self.of.value(&key, &value)).transpose()
    }

    /// Whether the key has a value, of any type.
    ///
    /// # Errors
    /// As for [`Transaction::contains`].
    pub fn contains(&self, key: &K::Borrowed) -> Result<bool> {
        self.transaction.contains(&self.of.keyspace, encoded(key))
    }

    /// The entries between two keys, in the order of keys: see [`Transaction::range`].
    pub fn range(&self, bounds: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = Result<(K, V)>> {
        let range = self.transaction.range(&self.of.keyspace, encoded_bounds(&bounds));
        range.map(|entry| self.of.entry(entry?))
    }

    /// The entries whose keys begin with some elements: see [`TypedKeyspace::prefix`] and [`Transaction::range`].
    pub fn prefix<P: EncodeKey + ?Sized>(
        &self,
        prefix: &P,
    ) -> impl DoubleEndedIterator<Item = Result<(K, V)>> {
        let range = self.transaction.prefix(&self.of.keyspace, encoded(prefix));
        range.map(|entry| self.of.entry(entry?))
    }

    /// Sets the value of a key for the duration `ttl`: see [`Keyspace::put_with_ttl`].
    ///
    /// # Errors
    /// As for [`Transaction::put_with_ttl`]; those of encoding the value.
    pub fn put_with_ttl(&mut self, key: &K::Borrowed, value: &V::Borrowed, ttl: Duration) -> Result<()> {
        let value = encoded_value(&self.of.keyspace, value)?;
        self.transaction.put_with_ttl(&self.of.keyspace, encoded(key), value, ttl)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// As for [`Transaction::put`]; those of encoding the value.
    pub fn put(&mut self, key: &K::Borrowed, value: &V::Borrowed) -> Result<()> {
        let value = encoded_value(&self.of.keyspace, value)?;
        self.transaction.put(&self.of.keyspace, encoded(key), value)
    }

    /// Joins an operand to the value of a key: see [`TypedKeyspace::merge`].
    ///
    /// # Errors
    /// As for [`Transaction::merge`] and [`TypedKeyspace::merge`].
    pub fn merge(&mut self, key: &K::Borrowed, operand: &V::Borrowed) -> Result<()> {
        let operand = encoded_operand(&self.of.keyspace, operand)?;
        self.transaction.merge(&self.of.keyspace, encoded(key), operand)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As for [`Transaction::delete`].
    pub fn delete(&mut self, key: &K::Borrowed) -> Result<()> {
        self.transaction.delete(&self.of.keyspace, encoded(key))
    }
}

impl<K: Key, V: Value> TypedView<'_, K, V> {
    /// Whether the key has a value, of any type.
    ///
    /// # Errors
    /// As for [`Snapshot::contains`].
    pub fn contains(&self, key: &K::Borrowed) -> Result<bool> {
        self.snapshot.contains(&self.of.keyspace, encoded(key))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// As for [`TypedKeyspace::get`].
    pub fn get(&self, key: &K::Borrowed) -> Result<Option<V>> {
        let key = encoded(key);
        self.snapshot.get(&self.of.keyspace, &key)?.map(|value| self.of.value(&key, &value)).transpose()
    }

    /// The values of several keys.
    ///
    /// # Errors
    /// As for [`TypedKeyspace::multi_get`].
    pub fn multi_get(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let keys: Vec<Vec<u8>> = keys.iter().map(encoded).collect();
        self.of.values(&keys, self.snapshot.multi_get(&self.of.keyspace, &keys)?)
    }

    /// The entries between two keys, in the order of keys.
    pub fn range(&self, bounds: impl RangeBounds<K>) -> TypedRange<K, V> {
        self.of.typed(self.snapshot.range(&self.of.keyspace, encoded_bounds(&bounds)))
    }

    /// The entries whose keys begin with some elements: see [`TypedKeyspace::prefix`].
    pub fn prefix<P: EncodeKey + ?Sized>(&self, prefix: &P) -> TypedRange<K, V> {
        self.of.typed(self.snapshot.prefix(&self.of.keyspace, encoded(prefix)))
    }

    /// All entries, in the order of keys.
    pub fn iter(&self) -> TypedRange<K, V> {
        self.of.typed(self.snapshot.iter(&self.of.keyspace))
    }

    /// All entries, also of a keyspace without order.
    pub fn entries(&self) -> TypedEntries<K, V> {
        TypedEntries { entries: self.snapshot.entries(&self.of.keyspace), of: self.of.clone() }
    }
}

impl<K, V> Clone for TypedKeyspace<K, V> {
    fn clone(&self) -> Self {
        TypedKeyspace { keyspace: self.keyspace.clone(), types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for TypedKeyspace<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TypedKeyspace").field(&self.keyspace).finish()
    }
}

impl<K: Key, V: Value> Iterator for TypedRange<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.range.next()?.and_then(|entry| self.of.entry(entry)))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for TypedRange<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.range.next_back()?.and_then(|entry| self.of.entry(entry)))
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for TypedRange<K, V> {}

impl<K: Key, V: Value> Iterator for TypedEntries<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.entries.next()?.and_then(|entry| self.of.entry(entry)))
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for TypedEntries<K, V> {}

crate::types::debug_of! {
    [K, V] TypedRange<K, V>, "TypedRange";
    [K, V] TypedEntries<K, V>, "TypedEntries";
    ['a, K, V] TypedTransaction<'a, K, V>, "TypedTransaction";
    ['a, K, V] TypedView<'a, K, V>, "TypedView";
}
