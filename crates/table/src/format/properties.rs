//! The properties block: the content of [`TableMeta`], as a list of tagged fields.
//!
//! ```text
//! properties := (tag:u8  len:varint  bytes[len]) *
//! ```
//!
//! Numbers are varints inside their fields. A reader skips unknown tags. The first seven are required; the owner of the table, which
//! salvage uses, is optional.

use crate::format::decode_error::DecodeError;
use crate::format::options::{TableExpiry, TableMeta, TableOwner};
use base::codec::{Reader, put_bytes, put_varint};
use base::limits::MAX_KEY_LEN;
use base::{SegmentShare, Time};

/// Maximum bytes of the block.
pub(crate) const MAX_LEN: usize = 4 * MAX_KEY_LEN + (1 << 20);

const ENTRIES: u8 = 1;
const TOMBSTONES: u8 = 2;
const MIN_SEQ: u8 = 3;
const MAX_SEQ: u8 = 4;
const USER_BYTES: u8 = 5;
const MIN: u8 = 6;
const MAX: u8 = 7;
const OWNER: u8 = 8;
const OWNER_NAME: u8 = 9;
const SEGMENTS: u8 = 10;
const HISTORY_OF: u8 = 11;
const SHADOWED: u8 = 12;
const HAS_HISTORY: u8 = 13;
const EXPIRY: u8 = 14;
const MERGE: u8 = 15;

/// Appends the block's payload.
pub(crate) fn encode(meta: &TableMeta, owner: Option<&TableOwner>, out: &mut Vec<u8>) {
    let numbers = [
        (ENTRIES, meta.entries),
        (TOMBSTONES, meta.tombstones),
        (MIN_SEQ, meta.min_seq),
        (MAX_SEQ, meta.max_seq),
        (USER_BYTES, meta.user_bytes),
    ];
    for (tag, number) in numbers {
        let mut field = Vec::with_capacity(10);
        put_varint(&mut field, number);
        out.push(tag);
        put_bytes(out, &field);
    }
    for (tag, key) in [(MIN, &meta.smallest), (MAX, &meta.largest)] {
        out.push(tag);
        put_bytes(out, key);
    }
    if meta.shadowed > 0 {
        let mut number = Vec::with_capacity(10);
        put_varint(&mut number, meta.shadowed);
        out.push(SHADOWED);
        put_bytes(out, &number);
    }
    if let Some(TableExpiry { entries, first, last }) = meta.expiry {
        let mut expiry = Vec::with_capacity(30);
        [entries, first.micros(), last.micros()].into_iter().for_each(|n| put_varint(&mut expiry, n));
        out.push(EXPIRY);
        put_bytes(out, &expiry);
    }
    if !meta.segments.is_empty() {
        let mut segments = Vec::new();
        SegmentShare::encode(&meta.segments, &mut segments);
        out.push(SEGMENTS);
        put_bytes(out, &segments);
    }
    if let Some(owner) = owner {
        let mut number = Vec::with_capacity(10);
        put_varint(&mut number, owner.number);
        out.push(OWNER);
        put_bytes(out, &number);
        out.push(OWNER_NAME);
        put_bytes(out, owner.name.as_bytes());
        if owner.has_history {
            out.push(HAS_HISTORY);
            put_bytes(out, &[]);
        }
        if let Some(merge) = &owner.merge {
            out.push(MERGE);
            put_bytes(out, merge.as_bytes());
        }
        if let Some(history_of) = owner.history_of {
            let mut number = Vec::with_capacity(10);
            put_varint(&mut number, history_of);
            out.push(HISTORY_OF);
            put_bytes(out, &number);
        }
    }
}

const BAD: DecodeError = DecodeError::Corrupt("properties are malformed");

/// The fields of the block's payload, by tag.
struct Fields<'a>([Option<&'a [u8]>; 16]);

impl<'a> Fields<'a> {
    fn of(payload: &'a [u8]) -> Result<Fields<'a>, DecodeError> {
        let mut fields = [None; 16];
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let tag = reader.u8().ok_or(BAD)?;
            let bytes = reader.bytes(MAX_KEY_LEN).ok_or(BAD)?;
            if let Some(field) = fields.get_mut(usize::from(tag)) {
                *field = Some(bytes);
            }
        }
        Ok(Fields(fields))
    }

    fn bytes(&self, tag: u8) -> Result<&'a [u8], DecodeError> {
        self.0[usize::from(tag)].ok_or(DecodeError::Corrupt("a property is missing"))
    }

    fn number(&self, tag: u8) -> Result<u64, DecodeError> {
        let mut reader = Reader::new(self.bytes(tag)?);
        reader.varint().filter(|_| reader.is_empty()).ok_or(BAD)
    }
}

/// The owner of the table, if the block names it, even if other fields are malformed.
pub(crate) fn owner(payload: &[u8]) -> Option<TableOwner> {
    let fields = Fields::of(payload).ok()?;
    let name = std::str::from_utf8(fields.bytes(OWNER_NAME).ok()?).ok()?;
    let has_history = fields.0[usize::from(HAS_HISTORY)].is_some();
    let history_of = match fields.0[usize::from(HISTORY_OF)] {
        Some(_) => Some(fields.number(HISTORY_OF).ok()?),
        None => None,
    };
    let merge = fields.0[usize::from(MERGE)].and_then(|name| std::str::from_utf8(name).ok()).map(Into::into);
    Some(TableOwner { number: fields.number(OWNER).ok()?, name: name.into(), history_of, has_history, merge })
}

/// Decodes the block's payload; the caller gives number and size of the file.
pub(crate) fn decode(payload: &[u8], number: u64, file_size: u64) -> Result<TableMeta, DecodeError> {
    let fields = Fields::of(payload)?;
    Ok(TableMeta {
        number,
        file_size,
        entries: fields.number(ENTRIES)?,
        tombstones: fields.number(TOMBSTONES)?,
        smallest: fields.bytes(MIN)?.to_vec(),
        largest: fields.bytes(MAX)?.to_vec(),
        min_seq: fields.number(MIN_SEQ)?,
        max_seq: fields.number(MAX_SEQ)?,
        seq_shift: 0,
        user_bytes: fields.number(USER_BYTES)?,
        cleared_seq: 0,
        shadowed: fields.0[usize::from(SHADOWED)].map_or(Ok(0), |_| fields.number(SHADOWED))?,
        times: None,
        expiry: fields.0[usize::from(EXPIRY)].map(|bytes| read_expiry(bytes).ok_or(BAD)).transpose()?,
        segments: fields.0[usize::from(SEGMENTS)]
            .map_or(Some(Vec::new()), SegmentShare::decode)
            .ok_or(BAD)?,
    })
}

fn read_expiry(bytes: &[u8]) -> Option<TableExpiry> {
    let mut reader = Reader::new(bytes);
    let (entries, first, last) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let sound = entries > 0 && first <= last && reader.is_empty();
    sound.then_some(TableExpiry { entries, first: Time::from_micros(first), last: Time::from_micros(last) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_skips_new_tags_and_refuses_missing_ones() {
        let meta = TableMeta {
            number: 5,
            file_size: 6,
            entries: 300,
            tombstones: 1,
            smallest: Vec::new(),
            largest: b"zz".to_vec(),
            min_seq: 9,
            max_seq: 1 << 50,
            seq_shift: 0,
            user_bytes: 4000,
            cleared_seq: 0,
            shadowed: 0,
            times: None,
            expiry: None,
            segments: vec![SegmentShare { segment: 7, count: 2, bytes: 300 }],
        };
        let mut out = vec![200, 2, 1, 1];
        let us =
            TableOwner { number: 300, name: "us".into(), history_of: None, has_history: false, merge: None };
        let mut historical = Vec::new();
        let of_us = TableOwner { number: 301, history_of: Some(300), ..us.clone() };
        encode(&meta, Some(&of_us), &mut historical);
        assert_eq!(owner(&historical), Some(of_us));
        historical.clear();
        let with_history = TableOwner { has_history: true, ..us.clone() };
        encode(&meta, Some(&with_history), &mut historical);
        assert_eq!(owner(&historical), Some(with_history));
        historical.clear();
        let with_merges = TableOwner { merge: Some("u64_add".into()), ..us.clone() };
        encode(&meta, Some(&with_merges), &mut historical);
        assert_eq!(owner(&historical), Some(with_merges));
        encode(&meta, Some(&us), &mut out);
        assert_eq!(owner(&out), Some(us.clone()));
        // Without the first required field.
        assert_eq!((decode(&out[8..], 5, 6).is_err(), owner(&out[8..])), (true, Some(us)));
        out.truncate(out.len() - 8);
        assert_eq!((decode(&out, 5, 6), owner(&out)), (Ok(meta), None));
        assert!(decode(&out[7..], 5, 6).is_err());
        // The segments come last, and are missing in tables without references.
        let required = out.len() - 6;
        for len in 0..out.len() {
            assert_eq!(decode(&out[..len], 5, 6).is_err(), len != required, "{len}");
        }
        assert!(decode(&out[..required], 5, 6).unwrap().segments.is_empty());
    }
}
