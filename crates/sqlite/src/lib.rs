#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "sqlx"), forbid(unsafe_code))]
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Floor 0: errors, rows, the schema, the free space on the disk, and the lock of the store that delivers.
mod error;
mod owner;
mod row;
mod schema;
// Floor 1: the reads and writes of a transaction.
mod act;
// Floor 2: jobs on their way to the thread that writes.
mod queue;
// Floor 3: the thread that writes.
mod committer;
// Floor 4: the program's own transactions.
#[cfg(feature = "sqlx")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlx")))]
mod sqlx;
mod transactional;
// Floor 5: the store.
mod store;

pub use rusqlite;
pub use schema::{SCHEMA, migrate, schema};
pub use store::{LOOK, SqliteBuilder, SqliteStore};
pub use transactional::{NotEnded, Transactional};
