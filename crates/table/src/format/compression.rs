//! Compression of blocks: the codecs, the decision whether a block is stored compressed, and the bound on the memory that a hostile
//! compressed block can claim.
//!
//! A compressed payload is the length of the raw bytes (u32) and the codec's own output. The codecs' contexts are
//! large, so they are created once per writer and once per reading thread.

use crate::format::decode_error::DecodeError;
use base::Error;
use lz4_flex::block::CompressTable;
use std::cell::RefCell;

/// How the blocks of a table are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: about 2 GB/s to read. For data that shrinks.
    Lz4,
    /// Zstandard at level 1: smaller than LZ4 and about three times slower.
    Zstd,
}

/// Codes of the codecs in a block's header.
const NONE: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;
/// The last of them.
pub(crate) const LAST_CODE: u8 = ZSTD;

const ZSTD_LEVEL: i32 = 1;

/// Bytes of the raw length in front of compressed data.
const LEN: usize = 4;

base::named_enum!(Compression, "compression", "none" => Compression::None, "lz4" => Compression::Lz4, "zstd" => Compression::Zstd);

/// A codec with its context and its output buffer.
pub(crate) struct Compressor {
    codec: Codec,
    out: Vec<u8>,
}

enum Codec {
    None,
    Lz4(CompressTable),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Result<Self, Error> {
        let codec = match compression {
            Compression::None => Codec::None,
            Compression::Lz4 => Codec::Lz4(CompressTable::default()),
            Compression::Zstd => {
                let context = zstd::bulk::Compressor::new(ZSTD_LEVEL)
                    .map_err(|e| Error::invalid(format!("zstd level {ZSTD_LEVEL}: {e}")))?;
                Codec::Zstd(Box::new(context))
            }
        };
        Ok(Compressor { codec, out: Vec::new() })
    }

    /// The codec's code and the compressed payload, if it is smaller than `raw` by at least an eighth.
    pub(crate) fn compress(&mut self, raw: &[u8]) -> Option<(u8, &[u8])> {
        // The output buffer ends where the result would be too large to use, so that a codec gives up early.
        let room = (raw.len() - raw.len() / 8).checked_sub(LEN)?;
        let (code, len) = match &mut self.codec {
            Codec::None => return None,
            Codec::Lz4(table) => {
                // This codec's encoder wants room for its worst case.
                let most = lz4_flex::block::get_maximum_output_size(raw.len());
                grow(&mut self.out, LEN + most);
                let out = &mut self.out[LEN..LEN + most];
                (LZ4, lz4_flex::block::compress_into_with_table(raw, out, table).ok()?)
            }
            Codec::Zstd(context) => {
                grow(&mut self.out, LEN + room);
                (ZSTD, context.compress_to_buffer(raw, &mut self.out[LEN..LEN + room]).ok()?)
            }
        };
        if len > room {
            return None;
        }
        self.out[..LEN].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        Some((code, &self.out[..LEN + len]))
    }

    /// Frees memory after an outsized block.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        if self.out.len() > bytes {
            self.out.truncate(bytes);
            self.out.shrink_to_fit();
        }
    }
}

fn grow(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
}

thread_local! {
    static ZSTD_CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Whether blocks with this codec's code are stored uncompressed.
pub(crate) fn is_raw(code: u8) -> bool {
    code == NONE
}

/// Decompresses `payload` to at most `cap` bytes, which replace the content of `out`.
///
/// Allocates no more than `payload` can expand to with its codec.
pub(crate) fn decompress(code: u8, payload: &[u8], cap: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    if code != LZ4 && code != ZSTD {
        return Err(DecodeError::Unknown("compression", code.into()));
    }
    let (len, data) =
        payload.split_first_chunk().ok_or(DecodeError::Corrupt("compressed block without a length"))?;
    let len = u32::from_le_bytes(*len) as usize;
    if len > cap || len > most_raw(code, data.len()) {
        return Err(DecodeError::Corrupt("compressed block claims an impossible length"));
    }
    out.clear();
    let got = match code {
        LZ4 => {
            out.resize(len, 0);
            lz4_flex::block::decompress_into(data, out).ok()
        }
        _ => decompress_zstd(data, len, out),
    };
    if got == Some(len) && out.len() == len {
        Ok(())
    } else {
        Err(DecodeError::Corrupt("block does not decompress"))
    }
}

/// The maximum that `len` compressed bytes can expand to: LZ4 codes at most 255 bytes per byte, Zstandard a block of 128 KiB in four.
fn most_raw(code: u8, len: usize) -> usize {
    if code == LZ4 { len.saturating_mul(255) } else { len.saturating_mul(32 << 10).saturating_add(128 << 10) }
}

fn decompress_zstd(data: &[u8], len: usize, out: &mut Vec<u8>) -> Option<usize> {
    // A slice: for a vector the codec would use its capacity as the bound.
    out.resize(len, 0);
    let mut decompress = |context: &mut Option<zstd::bulk::Decompressor<'static>>| {
        if context.is_none() {
            *context = Some(zstd::bulk::Decompressor::new().ok()?);
        }
        context.as_mut()?.decompress_to_buffer(data, &mut out[..]).ok()
    };
    // The context may be gone when a destructor of another thread-local calls.
    ZSTD_CONTEXT
        .try_with(|context| decompress(&mut context.borrow_mut()))
        .unwrap_or_else(|_| decompress(&mut None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_at_all_sizes_and_leaves_noise_alone() {
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut compressor = Compressor::new(compression).unwrap();
            for len in [100usize, 4096, 65_535, 65_536, 300_000] {
                let raw: Vec<u8> = (0..len).map(|i| (i / 7 % 13) as u8).collect();
                let (code, payload) = compressor.compress(&raw).expect("repetitive data shrinks");
                let mut back = Vec::new();
                decompress(code, payload, len, &mut back).unwrap();
                assert_eq!(back, raw);
                let too_small = decompress(code, payload, len - 1, &mut back);
                assert!(matches!(too_small, Err(DecodeError::Corrupt(_))));
            }
            let noise: Vec<u8> = (0..4096u64).map(|i| (base::hash(&i.to_le_bytes()) >> 9) as u8).collect();
            assert!(compressor.compress(&noise).is_none());
            assert!(compressor.compress(b"").is_none());
        }
    }

    #[test]
    fn hostile_lengths_are_refused() {
        let mut out = Vec::new();
        for code in [LZ4, ZSTD] {
            for payload in [
                &b""[..],
                b"\xff\xff\xff",
                b"\xff\xff\xff\x0f",
                b"\xff\xff\xff\x0fabcdefgh",
                b"\x05\0\0\0junk",
            ] {
                let refused = decompress(code, payload, 512 << 20, &mut out);
                assert!(matches!(refused, Err(DecodeError::Corrupt(_))), "{code} {payload:?}");
                assert!(out.capacity() < 1 << 20);
            }
        }
        assert_eq!(decompress(9, b"", 10, &mut out), Err(DecodeError::Unknown("compression", 9)));
    }

    #[test]
    fn names_round_trip() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            assert_eq!(compression.to_string().parse::<Compression>().unwrap(), compression);
        }
        assert_eq!("snappy".parse::<Compression>().unwrap_err().kind(), base::ErrorKind::InvalidArgument);
    }
}
