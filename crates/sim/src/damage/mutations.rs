//! The mutations of a fixture: all changes applied to its files.

use super::fixture::{Fixture, file_name, is_log, is_manifest};
use crate::random::{Draw, Rng, derive};
use cairn::env::SimEnv;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files up to this size have every bit flipped; larger files have one bit per byte flipped.
const EVERY_BIT: usize = 4 << 10;

/// Lengths by which files are extended.
const EXTENSIONS: [usize; 8] = [1, 4, 11, 64, 80, 512, 4096, 33_000];

/// Lengths of the ranges that are zeroed, overwritten and swapped. Ranges start at multiples of their length.
const RANGES: [usize; 4] = [16, 64, 256, 512];

/// One change to the files.
pub(super) enum Mutation {
    /// A bit is flipped.
    Flip { path: PathBuf, offset: usize, bit: u32 },
    /// The file is cut.
    Cut { path: PathBuf, len: usize },
    /// Bytes are appended.
    Extend { path: PathBuf, tail: Vec<u8>, what: &'static str },
    /// A range is overwritten.
    Overwrite { path: PathBuf, offset: usize, bytes: Vec<u8>, what: &'static str },
    /// Two ranges are swapped.
    Swap { a: (PathBuf, usize), b: (PathBuf, usize), len: usize },
    /// The content of a file is replaced.
    Replace { path: PathBuf, bytes: Vec<u8>, what: String },
    /// Two files are exchanged.
    Exchange { a: PathBuf, b: PathBuf },
    /// A file is removed.
    Remove { path: PathBuf },
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mutation::Flip { path, offset, bit } => {
                write!(f, "bit {bit} of byte {offset} of {} flipped", file_name(path))
            }
            Mutation::Cut { path, len } => write!(f, "{} cut to {len} bytes", file_name(path)),
            Mutation::Extend { path, tail, what } => {
                write!(f, "{} extended by {} bytes of {what}", file_name(path), tail.len())
            }
            Mutation::Overwrite { path, offset, bytes, what } => {
                write!(f, "{} bytes at {offset} of {} overwritten by {what}", bytes.len(), file_name(path))
            }
            Mutation::Swap { a, b, len } => {
                let (a_name, b_name) = (file_name(&a.0), file_name(&b.0));
                write!(f, "{len} bytes at {} of {a_name} swapped with those at {} of {b_name}", a.1, b.1)
            }
            Mutation::Replace { path, what, .. } => write!(f, "{} replaced by {what}", file_name(path)),
            Mutation::Exchange { a, b } => write!(f, "{} and {} exchanged", file_name(a), file_name(b)),
            Mutation::Remove { path } => write!(f, "{} removed", file_name(path)),
        }
    }
}

impl Mutation {
    /// A copy of the disk with this mutation.
    pub(super) fn apply(&self, fixture: &Fixture) -> Arc<SimEnv> {
        let image = fixture.image();
        let edit = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = image.read_file(path);
            change(&mut bytes);
            image.write_file(path, bytes);
        };
        match self {
            Mutation::Flip { path, offset, bit } => edit(path, &|bytes| bytes[*offset] ^= 1 << bit),
            Mutation::Cut { path, len } => edit(path, &|bytes| bytes.truncate(*len)),
            Mutation::Extend { path, tail, .. } => edit(path, &|bytes| bytes.extend_from_slice(tail)),
            Mutation::Overwrite { path, offset, bytes: new, .. } => {
                edit(path, &|bytes| bytes[*offset..offset + new.len()].copy_from_slice(new));
            }
            Mutation::Swap { a, b, len } => {
                let of = |at: &(PathBuf, usize)| fixture.files[&at.0][at.1..at.1 + len].to_vec();
                let (from_a, from_b) = (of(a), of(b));
                edit(&a.0, &|bytes| bytes[a.1..a.1 + len].copy_from_slice(&from_b));
                edit(&b.0, &|bytes| bytes[b.1..b.1 + len].copy_from_slice(&from_a));
            }
            Mutation::Replace { path, bytes, .. } => image.write_file(path, bytes.clone()),
            Mutation::Exchange { a, b } => {
                image.write_file(a, fixture.files[b].clone());
                image.write_file(b, fixture.files[a].clone());
            }
            Mutation::Remove { path } => image.remove_file(path),
        }
        image
    }
}

/// All mutations of a fixture, in an order that follows from the seed.
pub(super) fn all(fixture: &Fixture, seed: u64) -> Vec<Mutation> {
    let mut rng = Rng::new(derive(seed, 7));
    let mut mutations = Vec::new();
    for (path, bytes) in &fixture.files {
        mutations.push(Mutation::Remove { path: path.clone() });
        flips(path, bytes, &mut rng, &mut mutations);
        mutations.extend((0..bytes.len()).map(|len| Mutation::Cut { path: path.clone(), len }));
        extensions(path, bytes, &mut rng, &mut mutations);
        overwrites(path, bytes, &mut rng, &mut mutations);
    }
    swaps(fixture, &mut rng, &mut mutations);
    replacements(fixture, &mut mutations);
    mutations
}

fn flips(path: &Path, bytes: &[u8], rng: &mut Rng, mutations: &mut Vec<Mutation>) {
    for offset in 0..bytes.len() {
        let bits = match bytes.len() <= EVERY_BIT {
            true => 0..8,
            false => {
                let bit = rng.below(8) as u32;
                bit..bit + 1
            }
        };
        mutations.extend(bits.map(|bit| Mutation::Flip { path: path.to_owned(), offset, bit }));
    }
}

fn extensions(path: &Path, bytes: &[u8], rng: &mut Rng, mutations: &mut Vec<Mutation>) {
    for len in EXTENSIONS {
        let mut garbage = vec![0; len];
        rng.fill(&mut garbage);
        let own: Vec<u8> =
            bytes.iter().copied().cycle().take(if bytes.is_empty() { 0 } else { len }).collect();
        for (tail, what) in [(vec![0; len], "zeros"), (garbage, "garbage"), (own, "its own front")] {
            mutations.push(Mutation::Extend { path: path.to_owned(), tail, what });
        }
    }
}

fn overwrites(path: &Path, bytes: &[u8], rng: &mut Rng, mutations: &mut Vec<Mutation>) {
    let mut overwrite = |from: usize, to: usize, rng: &mut Rng| {
        let mut garbage = vec![0; to - from];
        rng.fill(&mut garbage);
        for (bytes, what) in [(vec![0; to - from], "zeros"), (garbage, "garbage")] {
            mutations.push(Mutation::Overwrite { path: path.to_owned(), offset: from, bytes, what });
        }
    };
    for len in RANGES {
        for from in (0..bytes.len()).step_by(len) {
            overwrite(from, (from + len).min(bytes.len()), rng);
        }
    }
    if !bytes.is_empty() {
        for _ in 0..64 {
            let from = rng.below(bytes.len() as u64) as usize;
            overwrite(from, rng.between(from + 1, bytes.len()), rng);
        }
    }
}

/// Swaps of ranges, within a file and between two files.
fn swaps(fixture: &Fixture, rng: &mut Rng, mutations: &mut Vec<Mutation>) {
    let files: Vec<_> = fixture.files.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    for _ in 0..512 {
        let (a, b) = (*rng.pick(&files), *rng.pick(&files));
        let b = if rng.chance(1, 2) { a } else { b };
        let len = (*rng.pick(&RANGES)).min(a.1.len()).min(b.1.len());
        let aligned = rng.chance(1, 2);
        let mut place = |file: (&PathBuf, &Vec<u8>)| {
            let most = file.1.len() - len;
            let at = rng.between(0, most);
            (file.0.clone(), if aligned { at - at % len } else { at })
        };
        let (a, b) = (place(a), place(b));
        if a.0 != b.0 || a.1.abs_diff(b.1) >= len {
            mutations.push(Mutation::Swap { a, b, len });
        }
    }
}

/// Replacements of files by others of their kind, or by older versions.
fn replacements(fixture: &Fixture, mutations: &mut Vec<Mutation>) {
    let kind = |path: &Path| (is_log(path), is_manifest(path));
    let paths: Vec<_> = fixture.files.keys().collect();
    for (i, a) in paths.iter().enumerate() {
        for b in &paths[..i] {
            mutations.push(Mutation::Exchange { a: (*a).clone(), b: (*b).clone() });
        }
        for b in paths.iter().filter(|b| *b != a && kind(b) == kind(a)) {
            let what = format!("a copy of {}", file_name(b));
            mutations.push(Mutation::Replace { path: (*a).clone(), bytes: fixture.files[*b].clone(), what });
        }
        let old = fixture.older.iter().filter(|(path, _)| kind(path) == kind(a));
        for (path, bytes) in old {
            let what = format!("{} as it was with {} bytes", file_name(path), bytes.len());
            mutations.push(Mutation::Replace { path: (*a).clone(), bytes: bytes.clone(), what });
        }
    }
}
