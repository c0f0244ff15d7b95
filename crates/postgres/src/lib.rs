#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Floor 0: rows.
mod layout;
// Floor 1: connections.
mod link;
// Floor 2: the tables and functions on the server.
mod schema;
// Floor 3: an open deployment.
mod deployment;
// Floor 4: calls in a program's own transactions; this process as a node; reads.
mod call;
mod node;
mod read;
// Floor 5: operations.
mod operation;
// Floor 6: claims and leases.
mod claim;
// Floor 7: the task of a node.
mod upkeep;
// Floor 8: the store.
mod store;
#[cfg(test)]
mod tests;

pub use call::{Call, CallError, CallErrorKind, Seen, Transactional, Value};
pub use link::{Connect, ConnectError, Tls};
pub use schema::VERSION;
pub use store::{POLL, PostgresBuilder, PostgresStore, Restoration, TTL};
pub use tourbillon_api;
pub use tourbillon_durable::store::SharedDocument;
