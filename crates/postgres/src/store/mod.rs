//! The store and its builder.

mod builder;
mod documents;
mod opening;
mod owner;
mod postgres_store;
mod restoration;

pub use builder::{POLL, PostgresBuilder, TTL};
pub use postgres_store::PostgresStore;
pub use restoration::Restoration;
