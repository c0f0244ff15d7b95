//! The store itself: opens, checks and repairs a deployment, and implements the trait of `tourbillon-durable`.

mod builder;
mod documents;
mod opening;
mod redis_store;
mod repair;

pub use builder::{POLL, RedisBuilder, SHARDS};
pub use redis_store::RedisStore;
pub use repair::Mended;
