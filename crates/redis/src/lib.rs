#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Floor 0: scripts with their answers, and the stored layout.
mod layout;
mod script;
// Floor 1: connections to the servers.
mod link;
// Floor 2: a deployment, on which scripts run; the check of its servers.
mod deployment;
mod examine;
// Floor 3: this process among the nodes; reads.
mod node;
mod read;
// Floor 4: operations.
mod operation;
// Floor 5: claims and leases.
mod claim;
// Floor 6: the thread of a node.
mod upkeep;
// Floor 7: the store.
mod store;
#[cfg(test)]
mod tests;

pub use examine::{Grade, Line, Report, check};
pub use link::{Connect, ConnectError, SyncPolicy, Tls};
pub use store::{Mended, POLL, RedisBuilder, RedisStore, SHARDS};
pub use tourbillon_durable::store::SharedDocument;
