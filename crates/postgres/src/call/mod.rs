//! Calls of the SQL functions for callers, in transactions of a program's own connections.
//!
//! A [`Call`] is a statement with its values, and can read the statement's answer. All values are texts or bytes. An
//! answer has at most one row, with one text. So the code for a driver is only a few lines long, and the answers do not
//! depend on the driver.

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
