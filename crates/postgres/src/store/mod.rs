//! The store, which joins the parts, and its builder.

mod builder;
mod opening;
mod postgres_store;

pub use builder::{POLL, PostgresBuilder, TTL};
pub use postgres_store::PostgresStore;
