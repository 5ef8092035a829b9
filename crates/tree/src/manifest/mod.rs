//! The manifest: the state of the database, as a log of edits.
//!
//! A manifest is one segment. Its first record is the whole state as an edit to nothing; each further record is one
//! edit. Switching to a new manifest is atomic: it is written under a temporary name, synced and renamed, then the
//! directory is synced; only then is the old one removed. So the manifest with the highest number is the valid one.
//!
//! After every synced edit an empty record, the *sync mark*, is appended without a sync. It proves that the edit before
//! it was synced, so that damage even to the newest edit is recognised as damage and not taken for a torn tail.
//!
//! The library appends a [`DatabaseEdit`] for each flush, compaction, created or dropped keyspace and closed log, and reads the manifest
//! when it opens the database ([`Manifest::read`]). Salvage reads damaged manifests ([`SalvagedManifest`]).
//!
//! Imports `version`. What is absent: the decision what to log, and the deletion of files that are not needed any more.

mod database_edit;
mod manifest_file;
mod salvage;
mod state;

pub use database_edit::{DatabaseEdit, KeyspaceDescription, LogClosed};
pub use manifest_file::{
    Manifest, ManifestError, ManifestReader, manifest_file_name, parse_manifest_file_name,
};
pub use salvage::SalvagedManifest;
pub use state::{KeyspaceState, ManifestState};
