//! What tables share in memory: the block cache, open files, counters and buffers.

pub(crate) mod block_cache;
pub(crate) mod buffer_pool;
pub(crate) mod counters;
pub(crate) mod table_cache;
