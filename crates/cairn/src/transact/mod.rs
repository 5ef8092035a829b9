//! Transactions: optimistic ones over all keyspaces ([`Transaction`]), single steps on one key (`update_key.rs`), and batches (`batch.rs`), which are transactions where they
//! have to read.
//!
//! Imports `api`, `read`, `state` and `types`, and calls the commit of `write`. A transaction reads a snapshot, keeps its writes to itself (`own_writes.rs`), and notes
//! what it has read ([`ReadSet`](crate::state::ReadSet)). Its commit is that of a batch, which the holder of the writer refuses if another commit
//! has changed what was read (`read/changed.rs`). Absent: locks on keys, and anything that other writes do for transactions.

mod batch;
mod merge;
mod own_writes;
mod range;
mod retry;
mod transaction;
mod update_key;
mod versions;
mod write_async;

pub use range::TransactionRange;
pub use retry::TransactionOptions;
pub use transaction::Transaction;
pub use versions::{TransactionRangeAt, TransactionVersions};
pub use write_async::WriteFuture;
