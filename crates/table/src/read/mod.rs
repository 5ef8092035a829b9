//! Reading a table: look-ups, cursors, and the blocks that they read.

pub(crate) mod block;
pub(crate) mod cursor;
pub(crate) mod entry_cursor;
pub(crate) mod get;
pub(crate) mod index;
pub(crate) mod nonblocking_read;
pub(crate) mod pinned_index;
pub(crate) mod readahead;
pub(crate) mod scan;
pub(crate) mod table;
pub(crate) mod window;
