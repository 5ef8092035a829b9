//! What can be read of a damaged table file, in numbers.

use crate::check::intact_blocks::IntactBlocks;
use crate::format::decode_error::DecodeError;
use crate::format::footer::{self, Footer};
use crate::format::frame::Kind;
use crate::format::options::TableOwner;
use crate::format::properties;
use base::{Result, Seq};

/// Bytes of a table file that are not part of an intact block, and may have held entries or values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The last key before the gap: missing entries have this key (in an older version) or a larger one. `None` at the beginning.
    pub after: Option<Vec<u8>>,
    /// The first key after the gap; `None` at the end.
    pub before: Option<Vec<u8>>,
}

/// The readable content of a table file, in numbers.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Length of the file, in bytes.
    pub file_size: u64,
    /// Entries that can be read.
    pub entries: u64,
    /// Their [`SalvageCursor::fingerprint`](crate::SalvageCursor::fingerprint).
    pub fingerprint: u64,
    /// Number of entries that were written, if the properties can be read.
    pub promised: Option<u64>,
    /// Smallest key that can be read.
    pub smallest: Vec<u8>,
    /// Largest key that can be read.
    pub largest: Vec<u8>,
    /// Smallest sequence number that can be read.
    pub min_seq: Seq,
    /// Largest sequence number that can be read; 0 if there is none.
    pub max_seq: Seq,
    /// Places where entries may be missing.
    pub gaps: Vec<Gap>,
    /// Whether a part without entries is damaged: footer, index, filter or properties.
    pub other_damage: bool,
    /// The owner of the table, if the properties can be read and name it.
    pub owner: Option<TableOwner>,
}

/// The end of a file: what is known of it beside its entries.
pub(super) struct FileEnd {
    pub(super) footer: Option<Footer>,
    pub(super) properties: Properties,
    /// Whether footer or properties are damaged.
    pub(super) damaged: bool,
}

/// What the properties say, as far as they can be read.
#[derive(Default)]
pub(super) struct Properties {
    pub(super) promised: Option<u64>,
    pub(super) owner: Option<TableOwner>,
}

impl Properties {
    /// From the payload of the block that was read last.
    pub(super) fn of(blocks: &IntactBlocks) -> Properties {
        let meta = properties::decode(&blocks.payload, blocks.number, blocks.len).ok();
        Properties { promised: meta.map(|meta| meta.entries), owner: properties::owner(&blocks.payload) }
    }
}

impl FileEnd {
    /// Reads footer and properties, as far as they are intact.
    pub(super) fn read(blocks: &mut IntactBlocks) -> Result<FileEnd> {
        let mut end = FileEnd { footer: None, properties: Properties::default(), damaged: true };
        let Some(start) = blocks.len.checked_sub(footer::LEN as u64) else { return Ok(end) };
        let mut bytes = [0; footer::LEN];
        bytes.copy_from_slice(blocks.read(start, footer::LEN as u64));
        match Footer::decode(&bytes, blocks.number, blocks.len) {
            Ok(footer) => {
                end.footer = Some(footer);
                if blocks.block(footer.properties.offset, &[Kind::Properties]).is_some() {
                    end.properties = Properties::of(blocks);
                    end.damaged = false;
                }
                Ok(end)
            }
            Err(unknown @ DecodeError::Unknown(..)) => Err(unknown.at(&blocks.path, start)),
            Err(_) => Ok(end),
        }
    }
}

/// What one format found out beside its entries.
pub(super) struct Found {
    pub(super) properties: Properties,
    pub(super) gaps: Vec<Gap>,
    pub(super) other_damage: bool,
}
