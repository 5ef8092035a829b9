//! The byte format of a table: frames, nodes, filter, properties and footer, with encoders and decoders. No I/O.

pub(crate) mod compression;
pub(crate) mod decode_error;
pub(crate) mod filter;
pub(crate) mod footer;
pub(crate) mod frame;
pub(crate) mod node;
pub(crate) mod node_builder;
pub(crate) mod options;
pub(crate) mod properties;
pub(crate) mod rows;
