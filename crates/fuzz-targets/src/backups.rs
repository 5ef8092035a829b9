//! Lists of generations of backups.

use crate::Source;
use backup::Store;
use base::ErrorKind;
use env::{Env, SimEnv};
use record::{SegmentKind, SegmentWriter};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/backup";
const LIST: &str = "/backup/generation-000001";
const NUMBER: u64 = 1;

/// With flag 1, the input is records (each a two-byte length and the bytes) for a list that is a valid segment. Otherwise it is the bytes of
/// the file.
///
/// Names in an accepted list stay in their directory. A refused one is an error that names the file.
pub(crate) fn list(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let flags = source.u8();
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    sim.write_file("/backup/BACKUP", "");
    if flags & 1 != 0 {
        let mut writer = SegmentWriter::create(&env, Path::new(LIST), SegmentKind::Backup, NUMBER, &[])
            .expect("the disk works");
        while !source.is_empty() {
            let len = source.u16().into();
            writer.append(&[source.take(len)]).expect("a short record");
        }
        writer.flush().expect("the disk works");
    } else {
        sim.write_file(LIST, source.rest());
    }
    let store = Store::open(&env, Path::new(DIR)).expect("there is a store");
    match store.generation(NUMBER) {
        Ok(generation) => {
            for file in &generation.files {
                let path = Path::new(DIR).join(&file.name);
                assert!(
                    path.parent() == Some(Path::new(DIR)) && path.file_name().is_some(),
                    "{:?}",
                    file.name
                );
            }
            let sum: u128 = generation.files.iter().map(|file| u128::from(file.len)).sum();
            assert_eq!(u128::from(generation.bytes()), sum.min(u64::MAX.into()));
            // The contents are not there.
            let damage = store.verify(&mut |_, _, _| Ok(())).expect("the disk works");
            assert!(damage.is_empty() == generation.files.is_empty(), "{damage:?}");
            true
        }
        Err(e) => {
            assert!(matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{e:?}");
            assert!(e.to_string().contains(LIST), "{e}");
            false
        }
    }
}
