//! Hint files: their descriptions in the manifest, and records behind checksums that are right.

use crate::Source;
use base::limits::MAX_KEYSPACE_NAME_LEN;
use base::{ErrorKind, MAX_SEQ};
use env::{Env, SimEnv};
use hashlog::{Hint, HintFile, HintOwner, HintReader, HintWriter, hint_file_name};
use record::{SegmentKind, SegmentWriter};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/";
const NUMBER: u64 = 5;

/// The first byte selects a description, or a file.
pub(crate) fn hints(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    match source.u8() % 2 {
        0 => description(source.rest()).is_some(),
        _ => file(&mut source),
    }
}

/// A description that is accepted is the same after writing it and reading it again.
fn description(bytes: &[u8]) -> Option<HintFile> {
    let file = HintFile::decode(bytes)?;
    assert!(file.number > 0 && 0 < file.min_seq && file.min_seq <= file.max_seq && file.max_seq <= MAX_SEQ);
    assert!(!file.shares.is_empty() && file.shares.is_sorted_by(|a, b| a.file < b.file));
    assert!(file.count() <= file.len);
    let mut out = Vec::new();
    file.encode(&mut out);
    assert_eq!(HintFile::decode(&out).as_ref(), Some(&file));
    Some(file)
}

/// A description, a header and records, each with its length, are a file with right checksums. Its hints are those that the description
/// counts, and an error names the file.
fn file(source: &mut Source<'_>) -> bool {
    let Some(described) = description(source.bytes()) else { return false };
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    let (dir, path) = (Path::new(DIR), Path::new(DIR).join(hint_file_name(NUMBER)));
    let mut writer = SegmentWriter::create(&env, &path, SegmentKind::Hints, NUMBER, source.bytes())
        .expect("a short header");
    while !source.is_empty() {
        let len = source.u16().into();
        writer.append(&[source.take(len)]).expect("a short record");
    }
    writer.flush().expect("the disk works");
    if let Some(owner) = HintOwner::read(&env, dir, NUMBER).expect("the version is ours") {
        assert!(owner.name.len() <= MAX_KEYSPACE_NAME_LEN);
    }
    let described = HintFile { number: NUMBER, len: writer.len(), ..described };
    match read(&env, &described) {
        Ok(hints) => {
            assert_eq!(hints.len() as u64, described.count());
            rewrite(&env, &hints);
            true
        }
        Err(e) => {
            assert!(e.kind() == ErrorKind::Corruption && e.to_string().contains("000005.hnt"), "{e:?}");
            false
        }
    }
}

/// A hint and its key.
type Owned = (Hint<'static>, Vec<u8>);

fn read(env: &Arc<dyn Env>, file: &HintFile) -> base::Result<Vec<Owned>> {
    let mut hints = Vec::new();
    let reader = HintReader { env: env.clone(), dir: DIR.into() };
    reader.read(file, &mut |hint| {
        assert!((file.min_seq..=file.max_seq).contains(&hint.seq));
        assert!(file.shares.iter().any(|share| share.file == hint.file));
        let Hint { file, at, seq, is_delete, key } = hint;
        hints.push((Hint { file, at, seq, is_delete, key: b"" }, key.to_vec()));
        Ok(())
    })?;
    Ok(hints)
}

/// Hints in the order in which a writer takes them are the same after writing them and reading them again.
fn rewrite(env: &Arc<dyn Env>, hints: &[Owned]) {
    if hints.is_empty() || !hints.is_sorted_by_key(|(hint, _)| (hint.file, hint.at.chunk)) {
        return;
    }
    let owner = HintOwner { keyspace: 1, name: "k".to_owned() };
    let mut writer = HintWriter::create(env, Path::new(DIR), NUMBER + 1, &owner).expect("the disk works");
    for (hint, key) in hints {
        writer.push(&Hint { key, ..*hint }, 1).expect("the disk works");
    }
    let file = writer.finish().expect("the disk works").expect("there are hints");
    assert_eq!(read(env, &file).expect("the hints that were written"), hints);
}
