//! Hard limits. Lengths that come from disk or from a caller are checked against them before memory is allocated.

/// Maximum length of a key, in bytes (64 KiB).
pub const MAX_KEY_LEN: usize = 64 << 10;

/// Maximum length of a value, in bytes (256 MiB).
pub const MAX_VALUE_LEN: usize = 256 << 20;

/// Maximum length of an encoded batch, in bytes (1 GiB). A batch is one log record and is applied completely or not
/// at all.
pub const MAX_BATCH_LEN: usize = 1 << 30;

/// Maximum length of a keyspace name, in bytes.
pub const MAX_KEYSPACE_NAME_LEN: usize = 255;

/// Maximum number of guard levels in a tree, without level 0.
pub const MAX_LEVELS: usize = 15;

const _: () = assert!(MAX_KEY_LEN + MAX_VALUE_LEN < MAX_BATCH_LEN);
const _: () = assert!(MAX_BATCH_LEN < u32::MAX as usize);
