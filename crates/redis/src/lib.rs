#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod again;
mod bulk;
mod check;
mod claims;
mod commit;
mod connect;
mod creations;
mod ends;
mod examine;
mod fetch;
mod layout;
mod lists;
mod losses;
mod mend;
mod nodes;
mod notes;
mod outside;
mod promise;
mod queue;
mod reservation;
mod returned;
mod script;
mod scripts;
mod send;
mod shared;
mod store;
mod stored;
mod sweep;
#[cfg(test)]
mod tests;
mod time;
mod transact;
mod turns;
mod values;
mod words;

pub use connect::{Connect, ConnectError, SyncPolicy, Tls};
pub use examine::{Grade, Line, Report, check};
pub use mend::Mended;
pub use notes::Note;
pub use store::{POLL, RedisBuilder, RedisStore, SHARDS};
