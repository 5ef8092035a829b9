//! Copying a file, and the digest of its content.

use base::Result;
use env::{Env, ReadFile};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of one read.
const PIECE: usize = 1 << 20;

/// Bytes that the disk is asked for ahead of a read.
const AHEAD: u64 = 4 << 20;

/// The digest of a content: XXH3 with 128 bits. It tells contents apart and finds damage; it does not resist forgery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest that `text`, of 32 hexadecimal digits, displays.
    pub fn parse(text: &str) -> Option<Digest> {
        let digest = Digest(u128::from_str_radix(text, 16).ok()?);
        (digest.to_string() == text).then_some(digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Reads the first `len` bytes of a file in pieces. `step` is called with the number of bytes read so far.
fn read(
    env: &Arc<dyn Env>,
    path: &Path,
    len: u64,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Digest> {
    let file: Arc<dyn ReadFile> = env.open(path)?;
    let (mut at, mut asked, mut digest) = (0, 0, Xxh3::new());
    let mut buffer = vec![0; (len.min(PIECE as u64)) as usize];
    while at < len {
        if asked < len && asked < at + AHEAD {
            let more = AHEAD.min(len - asked);
            file.will_need(asked, more);
            asked += more;
        }
        let piece = &mut buffer[..(len - at).min(PIECE as u64) as usize];
        file.read_exact_at(piece, at)?;
        digest.update(piece);
        take(piece)?;
        at += piece.len() as u64;
        step(at)?;
    }
    Ok(Digest(digest.digest128()))
}

/// The digest of the first `len` bytes of a file. `step` is called with the number of bytes read so far; its error ends it.
pub fn digest_file(
    env: &Arc<dyn Env>,
    path: &Path,
    len: u64,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Digest> {
    read(env, path, len, &mut |_| Ok(()), step)
}

/// Copies the first `len` bytes of `from` to `to`, which must not exist, and syncs it, but not its directory. `step` is called with the number
/// of bytes copied so far. After an error there is no `to`, if it can be removed.
pub fn copy_file(
    env: &Arc<dyn Env>,
    from: &Path,
    to: &Path,
    len: u64,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Digest> {
    let mut file = env.create(to)?;
    let copied = read(env, from, len, &mut |piece| file.append(piece), step);
    let synced = copied.and_then(|digest| file.sync().map(|()| digest));
    synced.inspect_err(|_| _ = env.remove(to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Error, ErrorKind};
    use env::{Fault, Repeat, SimEnv};

    #[test]
    fn copies_are_the_same_and_have_the_digest_of_the_program_xxhsum() {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        let (from, to) = (Path::new("/from"), Path::new("/to"));
        for len in [0, 1, PIECE, PIECE + 1, 6 * PIECE + 77] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            sim.write_file(from, [&bytes[..], b"not needed"].concat());
            let mut at = Vec::new();
            let digest = copy_file(&env, from, to, len as u64, &mut |done| {
                at.push(done);
                Ok(())
            });
            let digest = digest.unwrap();
            assert_eq!(sim.read_file(to), bytes);
            assert_eq!(digest, digest_file(&env, to, len as u64, &mut |_| Ok(())).unwrap());
            assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
            assert_eq!((at.last().copied().unwrap_or(0), at.len()), (len as u64, len.div_ceil(PIECE)));
            sim.remove_file(to);
        }
        sim.write_file(from, "hello");
        let digest = digest_file(&env, from, 5, &mut |_| Ok(())).unwrap();
        assert_eq!(digest, Digest(xxhash_rust::xxh3::xxh3_128(b"hello")));
        assert_eq!(Digest::parse("12"), None);
        assert_eq!(Digest::parse(&"+".repeat(32)), None);
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing() {
        let sim = SimEnv::new(1);
        let env: Arc<dyn Env> = sim.clone();
        let (from, to) = (Path::new("/from"), Path::new("/to"));
        sim.write_file(from, vec![7; 3 * PIECE]);
        let begin = sim.op_count();
        copy_file(&env, from, to, 3 * PIECE as u64, &mut |_| Ok(())).unwrap();
        let operations = sim.op_count() - begin;
        sim.remove_file(to);
        for n in 0..operations {
            sim.fail_op(sim.op_count() + n, Fault::EIO, Repeat::Once);
            assert!(copy_file(&env, from, to, 3 * PIECE as u64, &mut |_| Ok(())).is_err(), "{n}");
            assert!(!env.exists(to).unwrap(), "{n}");
        }
        let error = copy_file(&env, from, to, 4 * PIECE as u64, &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "the file is too short");
        let closed = || Err(Error::new(ErrorKind::Closed, "closed"));
        let ended = copy_file(&env, from, to, 3 * PIECE as u64, &mut |_| closed());
        assert!(ended.is_err() && !env.exists(to).unwrap());
    }
}
