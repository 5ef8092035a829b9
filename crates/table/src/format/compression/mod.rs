//! Compression of blocks: the codecs, the decision whether a block is stored compressed, and the bound on the memory that a hostile
//! compressed block can claim.
//!
//! A compressed payload is the length of the raw bytes (u32) and the codec's own output. The codecs' contexts are
//! large, so they are created once per writer and once per reading thread.
//!
//! Zstandard is written in C, and in builds with the feature `zstd` only. A build without it knows the codec's code, and refuses what has it.

#[cfg_attr(not(feature = "zstd"), path = "no_zstd.rs")]
mod zstd;

use crate::format::decode_error::DecodeError;
use base::Error;
use lz4_flex::block::CompressTable;

/// How the blocks of a table are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: about 2 GB/s to read. For data that shrinks.
    Lz4,
    /// Zstandard at level 1: smaller than LZ4 and about three times slower. Needs the feature `zstd`, and a C compiler to build it.
    Zstd,
}

/// Codes of the codecs in a block's header.
const NONE: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;
/// The last of them.
pub(crate) const LAST_CODE: u8 = ZSTD;

/// Bytes of the raw length in front of compressed data.
const LEN: usize = 4;

base::named_enum!(Compression, "compression", "none" => Compression::None, "lz4" => Compression::Lz4, "zstd" => Compression::Zstd);

impl Compression {
    /// What this build has.
    ///
    /// ```
    /// # use table::Compression;
    /// assert!(Compression::AVAILABLE.starts_with(&[Compression::None, Compression::Lz4]));
    /// ```
    pub const AVAILABLE: &[Compression] = match cfg!(feature = "zstd") {
        true => &[Compression::None, Compression::Lz4, Compression::Zstd],
        false => &[Compression::None, Compression::Lz4],
    };

    /// Whether this build has it.
    pub fn is_available(self) -> bool {
        Compression::AVAILABLE.contains(&self)
    }

    /// Checks that this build has it.
    ///
    /// # Errors
    /// `InvalidArgument` names the feature that is missing.
    pub fn check_available(self) -> base::Result<()> {
        match self.is_available() {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "compression = {self}: this program was built without it; it needs the feature {self} of the package cairn-kv"
            ))),
        }
    }
}

/// A codec with its context and its output buffer.
pub(crate) struct Compressor {
    codec: Codec,
    out: Vec<u8>,
}

enum Codec {
    None,
    Lz4(CompressTable),
    Zstd(zstd::Context),
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Result<Self, Error> {
        compression.check_available()?;
        let codec = match compression {
            Compression::None => Codec::None,
            Compression::Lz4 => Codec::Lz4(CompressTable::default()),
            Compression::Zstd => Codec::Zstd(zstd::Context::new()?),
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
                (ZSTD, context.compress(raw, &mut self.out[LEN..LEN + room])?)
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

/// Whether blocks with this codec's code are stored uncompressed.
pub(crate) fn is_raw(code: u8) -> bool {
    code == NONE
}

/// Decompresses `payload` to at most `cap` bytes, which replace the content of `out`.
///
/// Allocates no more than `payload` can expand to with its codec.
pub(crate) fn decompress(code: u8, payload: &[u8], cap: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    match code {
        ZSTD if !Compression::Zstd.is_available() => return Err(DecodeError::NotBuilt("zstd")),
        LZ4 | ZSTD => {}
        _ => return Err(DecodeError::Unknown("compression", code.into())),
    }
    let (len, data) =
        payload.split_first_chunk().ok_or(DecodeError::Corrupt("compressed block without a length"))?;
    let len = u32::from_le_bytes(*len) as usize;
    if len > cap || len > most_raw(code, data.len()) {
        return Err(DecodeError::Corrupt("compressed block claims an impossible length"));
    }
    out.clear();
    out.resize(len, 0);
    let got = match code {
        LZ4 => lz4_flex::block::decompress_into(data, out).ok(),
        _ => zstd::decompress(data, out),
    };
    if got == Some(len) { Ok(()) } else { Err(DecodeError::Corrupt("block does not decompress")) }
}

/// The maximum that `len` compressed bytes can expand to: LZ4 codes at most 255 bytes per byte, Zstandard a block of 128 KiB in four.
fn most_raw(code: u8, len: usize) -> usize {
    if code == LZ4 { len.saturating_mul(255) } else { len.saturating_mul(32 << 10).saturating_add(128 << 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_at_all_sizes_and_leaves_noise_alone() {
        for &compression in &Compression::AVAILABLE[1..] {
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
        for code in [LZ4, ZSTD].into_iter().filter(|code| *code == LZ4 || Compression::Zstd.is_available()) {
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
    fn a_build_without_a_codec_refuses_its_blocks_and_says_what_is_missing() {
        let block = decompress(ZSTD, b"\x05\0\0\0junk", 64, &mut Vec::new()).unwrap_err();
        let asked = Compressor::new(Compression::Zstd).err();
        if Compression::Zstd.is_available() {
            assert_eq!((block, asked.is_none()), (DecodeError::Corrupt("block does not decompress"), true));
            return;
        }
        let (block, asked) = (block.at("000001.tbl".as_ref(), 4096), asked.unwrap());
        assert_eq!(
            (block.kind(), asked.kind()),
            (base::ErrorKind::Unsupported, base::ErrorKind::InvalidArgument)
        );
        assert!(
            ["000001.tbl", "4096", "zstd", "feature"].iter().all(|w| block.to_string().contains(w)),
            "{block}"
        );
        assert!(["zstd", "feature"].iter().all(|word| asked.to_string().contains(word)), "{asked}");
    }

    #[test]
    fn names_round_trip() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            assert_eq!(compression.to_string().parse::<Compression>().unwrap(), compression);
        }
        assert_eq!("snappy".parse::<Compression>().unwrap_err().kind(), base::ErrorKind::InvalidArgument);
    }
}
