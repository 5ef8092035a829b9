//! Whole manifests: edits from the input, in a segment with valid checksums.

use crate::Source;
use base::{Error, ErrorKind};
use env::{Env, SimEnv};
use record::{SegmentKind, SegmentWriter};
use std::path::Path;
use std::sync::Arc;
use table::{BlockCache, TableCache};
use tree::{DatabaseEdit, LiveTable, Manifest, ManifestState, check_version, manifest_file_name};

const NUMBER: u64 = 3;

fn read(env: &Arc<dyn Env>, number: u64) -> Result<ManifestState, Error> {
    let tables = TableCache::new(env.clone(), "/".into(), Arc::new(BlockCache::new(0)), 16);
    Manifest::read(env, Path::new("/"), number, &mut |meta| {
        let table = tables.open(meta)?;
        Ok(LiveTable::new(meta.clone(), table, Arc::default(), None))
    })
}

/// The edit that creates `state` from an empty state.
fn whole(state: &ManifestState) -> DatabaseEdit {
    DatabaseEdit {
        created: state.keyspaces.values().map(|k| k.description.clone()).collect(),
        next_file: state.next_file,
        next_keyspace: state.next_keyspace,
        last_seq: state.last_seq,
        min_log: state.min_log,
        newest_log: state.newest_log,
        closed: state.closed.iter().map(|(&number, &len)| tree::LogClosed { number, len }).collect(),
        ..DatabaseEdit::default()
    }
    .with_trees(state.keyspaces.iter().map(|(id, k)| (*id, &*k.version)))
}

/// With flag 1, the input is records (each a two-byte length and the bytes) for a manifest that is a valid segment.
/// Otherwise it is the bytes of the file.
///
/// An accepted manifest gives a state. That state, written as a new manifest, must give itself again.
pub(crate) fn manifest(data: &[u8]) -> bool {
    let mut source = Source::new(data);
    let flags = source.u8();
    let sim = SimEnv::new(1);
    let env: Arc<dyn Env> = sim.clone();
    let path = Path::new("/").join(manifest_file_name(NUMBER));
    if flags & 1 != 0 {
        let mut writer =
            SegmentWriter::create(&env, &path, SegmentKind::Manifest, NUMBER, &[]).expect("the disk works");
        while !source.is_empty() {
            let len = source.u16().into();
            writer.append(&[source.take(len)]).expect("a short record");
        }
        writer.flush().expect("the disk works");
    } else {
        sim.write_file(&path, source.rest());
    }
    let state = match read(&env, NUMBER) {
        Ok(state) => state,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("manifest-") || text.contains(".tbl"), "{text}");
            return false;
        }
    };
    for keyspace in state.keyspaces.values() {
        // Hostile edits may claim overlapping tables. The check reports them and must not panic.
        let _ = check_version(&keyspace.version);
    }
    let edit = whole(&state);
    if edit == DatabaseEdit::default() {
        // An empty record is a mark. A real database never has an empty state: it has at least a next file number.
        return true;
    }
    let created = Manifest::create(&env, Path::new("/"), NUMBER + 1, &edit);
    drop(created.expect("the disk works"));
    let again = read(&env, NUMBER + 1).expect("a state that was read can be written");
    assert_eq!(whole(&again), edit);
    true
}
