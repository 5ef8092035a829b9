//! Reading a table: look-ups, cursors, and the blocks that they read.

pub(crate) mod block;
pub(crate) mod cursor;
pub(crate) mod entry_cursor;
pub(crate) mod get;
pub(crate) mod get_now;
pub(crate) mod index;
pub(crate) mod leaf_cursor;
pub(crate) mod leaf_scan;
pub(crate) mod nonblocking_read;
pub(crate) mod pinned_index;
pub(crate) mod readahead;
pub(crate) mod row_cursor;
pub(crate) mod row_merge;
pub(crate) mod row_pages;
pub(crate) mod samples;
pub(crate) mod share;
pub(crate) mod table;
pub(crate) mod window;
