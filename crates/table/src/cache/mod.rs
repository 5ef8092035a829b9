//! What tables share in memory: the block cache, open files, counters and buffers; and the policy for blocks that are not in memory.

pub(crate) mod block_cache;
pub(crate) mod buffer_pool;
pub(crate) mod counters;
pub(crate) mod read_policy;
pub(crate) mod table_cache;
