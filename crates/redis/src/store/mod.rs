//! The store: how it is opened, checked and repaired, and its face for `tourbillon-durable`.

mod builder;
mod documents;
mod opening;
mod redis_store;
mod repair;

pub use builder::{POLL, RedisBuilder, SHARDS};
pub use documents::SharedDocument;
pub use redis_store::RedisStore;
pub use repair::Mended;
