//! Hard limits. Everything read from disk or handed in by a caller is checked against these before memory is
//! set aside for it.

/// Longest key, in bytes (64 KiB).
pub const MAX_KEY_LEN: usize = 64 << 10;

/// Longest value, in bytes (256 MiB).
pub const MAX_VALUE_LEN: usize = 256 << 20;

/// Longest batch, in encoded bytes (1 GiB). One batch is one log record and is applied whole or not at all.
pub const MAX_BATCH_LEN: usize = 1 << 30;

/// Longest name of a keyspace, in bytes.
pub const MAX_KEYSPACE_NAME_LEN: usize = 255;

/// Most levels of guards a tree may have, level 0 not counted.
pub const MAX_LEVELS: usize = 15;

const _: () = assert!(MAX_KEY_LEN + MAX_VALUE_LEN < MAX_BATCH_LEN);
const _: () = assert!(MAX_BATCH_LEN < u32::MAX as usize);
