//! Calls of the functions for callers, in transactions of a program's own connections.
//!
//! A [`Call`] is a statement with its values, and reads its answer. All values are texts or bytes, and an answer is at
//! most one row with one text. So a driver needs a few lines, and all drivers give the same answers.

mod answer;
#[cfg(feature = "diesel")]
mod diesel;
mod error;
mod policy;
#[cfg(feature = "diesel")]
mod raised;
mod service;
#[cfg(feature = "sqlx")]
mod sqlx;
mod statement;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;
mod transactional;
mod values;

pub use answer::Seen;
pub use error::{CallError, CallErrorKind};
pub use statement::{Call, Value};
pub use transactional::Transactional;
