//! The text formats that `load` reads and `dump` writes. They handle bytes: only JSON requires UTF-8.
//!
//! ```text
//!   tsv         fields separated by tabs; \t \n \r \\ \xHH inside them (see `text`)
//!   csv         RFC 4180: commas, "quoted" fields, quotes doubled, line ends inside quotes; the first line is a header
//!   jsonl       one object per line
//!   lines       each line is a key, with an empty value
//!   paragraphs  records separated by empty lines, with "Field: value" lines inside: a Debian package index, for one
//! ```
//!
//! The *key* of a record is one named field or several. The *value* is the named field; otherwise the other field if
//! there are exactly two (`key` and `value` in JSON); otherwise the whole record in its original form without the
//! line end, so that no data is lost. A named field can have the *time* of the record; it does not count among the two. So can the
//! *expiry*: a time, or `never`.
//!
//! A *history* has one record for each version: key, time, `put` or `delete`, and value. In JSON a delete has the value null.
//!
//! `record` has what the formats share, `lines` splits the input, each format has a module, and `reader` and `writer` choose among them.
//! The folder must not know databases or arguments.
//!
//! Guarantee: [`Reader`] reads back the same keys and values that [`Writer`] wrote, byte for byte. The writer rejects
//! records that the format cannot express.

mod jsonl;
pub mod lines;
mod paragraphs;
mod reader;
mod record;
mod tabular;
mod writer;

pub use reader::Reader;
pub use record::{Format, Mapping, Record, Step};
pub use writer::{Unwritten, Writer};

#[cfg(test)]
mod tests;
